package excache

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/pool"
)

// Silence is how long a component may take for what it is asked before it counts as lost. A program that waits gets its SIGBUS within 5 s. Of what is mapped
// nothing is asked: there the element that Regions are reached by has to have it as its limit (PeerTime).
const Silence = 4 * time.Second

// Regions is a Store at one component: each room is a leased region of its own, which goes with the client's connection, or a part of what others have too.
type Regions struct {
	mu    sync.RWMutex
	rooms []roomBytes
	// forget is a region's Close, which asks the component, and waits for a while where that does not answer.
	forget func(*pool.Region) error
	create func(context.Context) (*pool.Region, error)
	late   atomic.Bool // a create has not been answered in time
	silent atomic.Bool // the component does not answer: the regions go with the connection

	latest atomic.Pointer[pool.Memory] // any that was taken
	under  sync.Mutex
	ops    [Transfers]pool.Op // under way
}

// roomBytes is where a room's bytes are.
type roomBytes struct {
	mem    *pool.Memory // nil: the room is not taken
	region *pool.Region // its own
	off    uint64       // in mem
	size   int          // fewer than RoomBytes at the end of what is shared
}

// lateTime is how long a region that comes too late is waited for. One that comes later goes with the connection.
const lateTime = time.Minute

// errGivenUp: the component did not answer in time.
var errGivenUp = errors.New("no answer")

// NewRegions makes a store of regions at a component.
func NewRegions(p *pool.Pool, component string) *Regions {
	return &Regions{forget: (*pool.Region).Close, create: func(ctx context.Context) (*pool.Region, error) {
		return p.CreateRegion(ctx, component, pool.Spec{Size: RoomBytes, Leased: true})
	}}
}

// Take implements Store. A region that comes too late is given back when it is there; until then no other is asked for.
func (s *Regions) Take(ctx context.Context, r int) error {
	if s.late.Load() {
		return fmt.Errorf("%w: the component has not answered an earlier request yet", ErrFull)
	}
	type answer struct {
		region *pool.Region
		err    error
	}
	made := make(chan answer, 1)
	go func() { // until the answer, lateTime, or the end of the client's connection
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
		defer cancel()
		region, err := s.create(whole)
		made <- answer{region, err}
	}()
	soon, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer afterSilence(func() { cancel(context.DeadlineExceeded) }).stop()
	select {
	case a := <-made:
		if a.err != nil {
			return fmt.Errorf("%w: %w", ErrFull, a.err)
		}
		s.keep(r, roomBytes{mem: &a.region.Memory, region: a.region, size: RoomBytes})
		return nil
	case <-soon.Done():
		s.late.Store(true)
		go func() {
			if a := <-made; a.err == nil {
				s.forget(a.region)
			}
			s.late.Store(false)
		}()
		return fmt.Errorf("%w: the component did not answer in time: %w", ErrFull, context.Cause(soon))
	}
}

// Share makes a Share of memory that is open here, and stays so.
func (s *Regions) Share(name string, mem *pool.Memory, writable bool) (Share, error) {
	rights, need, or := mem.Info().Rights, "r", ""
	if writable {
		need, or = "rw", ", or give it to be read (--share)"
	}
	for _, one := range need {
		if !strings.ContainsRune(rights, one) {
			return Share{}, fmt.Errorf("%w: you have the rights %s to %s, and need %s: have its owner, %q, grant them (wherry pool grant, wherry pool item grant)%s", pool.ErrRights, rights, name, need, mem.Info().Owner, or)
		}
	}
	return Share{Name: name, Size: mem.Size(), Writable: writable, Bind: func(r, part int) {
		off := int64(part) * RoomBytes
		s.keep(r, roomBytes{mem: mem, off: uint64(off), size: int(min(RoomBytes, mem.Size()-off))})
	}}, nil
}

func (s *Regions) keep(r int, b roomBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.rooms) <= r {
		s.rooms = append(s.rooms, roomBytes{})
	}
	s.rooms[r] = b
	s.latest.Store(b.mem)
}

// Release implements Store.
func (s *Regions) Release(r int) {
	s.mu.Lock()
	region := s.rooms[r].region
	s.rooms[r] = roomBytes{}
	s.mu.Unlock()
	if region != nil && !s.silent.Load() && s.forget(region) != nil {
		s.silent.Store(true) // a program has many rooms, and the time would be theirs together
	}
}

// Silent implements Store.
func (s *Regions) Silent() { s.silent.Store(true) }

// at is where n bytes at an offset are: fewer at the end of what is shared.
func (s *Regions) at(off uint64, n int) (mem *pool.Memory, at uint64, size int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := &s.rooms[off/RoomBytes]
	off %= RoomBytes
	return r.mem, r.off + off, min(n, r.size-int(off))
}

func (s *Regions) room(r int) *pool.Region {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rooms[r].region
}

// Clone implements Store: the component copies.
func (s *Regions) Clone(ctx context.Context, from, to int, ranges []Range) error {
	src, dst := s.room(from), s.room(to)
	if src == nil || dst == nil {
		return net.ErrClosed // a process has ended
	}
	for _, g := range ranges {
		if err := src.CopyTo(ctx, g.Off, dst, g.Off, g.Size); err != nil {
			return lostOr(errors.Join(err, src.Quiet(ctx)))
		}
	}
	return nil
}

// Discard implements Store.
func (s *Regions) Discard(ctx context.Context, r int, ranges []Range) error {
	region := s.room(r)
	if region == nil {
		return nil
	}
	all := make([]pool.Range, len(ranges))
	for i, g := range ranges {
		all[i] = pool.Range{Off: g.Off, Size: g.Size}
	}
	err := region.DiscardInTurn(ctx, all)
	if err != nil {
		err = errors.Join(err, region.Quiet(ctx)) // which says whether the connection has ended
	}
	return lostOr(err)
}

// lostOr is err, and ErrLost if it says that the bytes are gone.
func lostOr(err error) error {
	for _, gone := range []error{pool.ErrLost, pool.ErrMoved, pool.ErrRights, pool.ErrRange, pool.ErrClosed, pool.ErrNoRegion} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}

// Mapped implements Store.
func (s *Regions) Mapped(r int) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := &s.rooms[r]
	return b.mem.MappedRun(b.off) >= b.size
}

// Access implements Store.
func (s *Regions) Access(off uint64, n int, fn func(mem []byte)) error {
	mem, at, n := s.at(off, n)
	return mem.Access(at, n, fn)
}

// StartGet implements Store.
func (s *Regions) StartGet(i int, p []byte, off uint64) {
	mem, at, n := s.at(off, len(p))
	op := mem.StartGet(p[:n], at)
	s.under.Lock()
	defer s.under.Unlock()
	s.ops[i] = op
}

// StartPut implements Store.
func (s *Regions) StartPut(i int, p []byte, off uint64) {
	mem, at, n := s.at(off, len(p))
	op := mem.StartPut(p[:n], at)
	s.under.Lock()
	defer s.under.Unlock()
	s.ops[i] = op
}

// Done implements Store.
func (s *Regions) Done(set uint64) (done uint64) {
	if set == 0 {
		return 0
	}
	s.under.Lock()
	defer s.under.Unlock()
	for ; set != 0; set &= set - 1 {
		if s.ops[bits.TrailingZeros64(set)].Poll() {
			done |= set & -set
		}
	}
	return done
}

// End implements Store.
func (s *Regions) End(i int) error {
	s.under.Lock()
	op := s.ops[i]
	s.ops[i] = pool.Op{}
	s.under.Unlock()
	if !op.Poll() {
		op.Forget()
		return fmt.Errorf("%w from node %s", errGivenUp, op.Component())
	}
	return lostOr(op.Wait(context.Background())) // which it need not
}

// Wait implements Store.
func (s *Regions) Wait(ctx context.Context, cond func() bool) error {
	if r := s.latest.Load(); r != nil {
		return r.WaitFor(ctx, cond)
	}
	return errGivenUp // nothing was ever started
}

// Wake implements Store.
func (s *Regions) Wake() {
	if r := s.latest.Load(); r != nil {
		r.Wake()
	}
}
