package device

import (
	"fmt"
	"slices"
)

// State is how far a lease is.
type State uint8

const (
	Granted  State = iota // its registers and controller are being made
	Active                // its commands are fetched
	Draining              // no more are; those under way are waited for
	Quiet                 // none is under way; what it has is being taken away
	Free                  // it is over
)

func (s State) String() string {
	return [...]string{"granted", "active", "draining", "quiet", "free"}[s]
}

// Effect is what a Book wants done.
type Effect uint8

const (
	// Stop: have the engine fetch no more commands of the lease, and say Stopped once none is under way.
	Stop Effect = iota
	// Reclaim: delete its queues, unpin its windows, revoke its registers, and say Reclaimed.
	Reclaim
	// Release: tell whoever waits for its end.
	Release
)

// Action is an effect and whose.
type Action struct {
	Lease  uint64
	Effect Effect
}

// Range is a run of a device's bytes.
type Range struct{ Offset, Size uint64 }

// Overlaps reports whether two ranges have bytes in common.
func (r Range) Overlaps(o Range) bool {
	return r.Offset < o.Offset+o.Size && o.Offset < r.Offset+r.Size
}

// Term is what was agreed for a lease.
type Term struct {
	Principal string
	Mode      Mode
	Range     Range
}

// Book keeps the leases of one device. It is pure: events come as method calls, and what is to be done about them is returned. It is not for
// several goroutines at once.
type Book struct {
	size   uint64
	block  uint64
	leases map[uint64]*entry
}

type entry struct {
	Term
	state State
}

// NewBook makes a Book of a device of so many bytes, a multiple of the block.
func NewBook(size, block uint64) *Book {
	return &Book{size: size, block: block, leases: map[uint64]*entry{}}
}

// Borrow grants a lease, unless another stands in its way: also one that has ended and whose writes may still be under way.
func (b *Book) Borrow(id uint64, t Term) (Term, error) {
	if err := t.Mode.Validate(); err != nil {
		return t, err
	}
	if t.Range.Size == 0 && t.Range.Offset < b.size {
		t.Range.Size = b.size - t.Range.Offset
	}
	if t.Range.Size == 0 || t.Range.Offset > b.size || t.Range.Size > b.size-t.Range.Offset {
		return t, fmt.Errorf("%w: %d bytes from %d of a device of %d", ErrSpec, t.Range.Size, t.Range.Offset, b.size)
	}
	if t.Range.Offset%b.block != 0 || t.Range.Size%b.block != 0 {
		return t, fmt.Errorf("%w: %d bytes from %d: both must be multiples of its block, %d bytes", ErrSpec, t.Range.Size, t.Range.Offset, b.block)
	}
	if b.leases[id] != nil {
		return t, fmt.Errorf("%w: there is a lease %d", ErrSpec, id)
	}
	for other, l := range b.leases {
		if !l.Range.Overlaps(t.Range) || l.Mode != Exclusive && t.Mode != Exclusive {
			continue
		}
		what := fmt.Sprintf("lease %d has %d bytes from %d (%s)", other, l.Range.Size, l.Range.Offset, l.Mode)
		if l.state >= Draining {
			return t, fmt.Errorf("%w: %s, has ended, and its last commands are waited for: try again soon", ErrBusy, what)
		}
		return t, fmt.Errorf("%w: %s: wait until it is returned, ask for another range, or for a mode that both can share", ErrBusy, what)
	}
	b.leases[id] = &entry{Term: t}
	return t, nil
}

// Opened says that a granted lease has what it needs. It is false if the lease has ended meanwhile.
func (b *Book) Opened(id uint64) bool {
	l := b.leases[id]
	if l == nil || l.state != Granted {
		return false
	}
	l.state = Active
	return true
}

// End ends a lease: it was returned, taken back, or its borrower is lost. It may be said again and again.
func (b *Book) End(id uint64) []Action {
	l := b.leases[id]
	if l == nil || l.state > Active {
		return nil
	}
	l.state = Draining
	return []Action{{id, Stop}}
}

// Stopped says that no command of a lease is under way, and none will be.
func (b *Book) Stopped(id uint64) []Action {
	l := b.leases[id]
	if l == nil || l.state != Draining {
		return nil
	}
	l.state = Quiet
	return []Action{{id, Reclaim}}
}

// Reclaimed says that a lease has nothing any more. Its blocks can be lent again from now on.
func (b *Book) Reclaimed(id uint64) []Action {
	l := b.leases[id]
	if l == nil || l.state != Quiet {
		return nil
	}
	delete(b.leases, id)
	return []Action{{id, Release}}
}

// State is how far a lease is.
func (b *Book) State(id uint64) State {
	if l := b.leases[id]; l != nil {
		return l.state
	}
	return Free
}

// Term is what was agreed for a lease.
func (b *Book) Term(id uint64) (Term, bool) {
	if l := b.leases[id]; l != nil {
		return l.Term, true
	}
	return Term{}, false
}

// IDs lists the leases.
func (b *Book) IDs() []uint64 {
	ids := make([]uint64, 0, len(b.leases))
	for id := range b.leases {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
