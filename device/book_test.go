package device

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/wherry-fabric/wherry/internal/seeds"
)

var trials = seeds.Flags("./device")

// TestBookModes: who may have the same blocks at once.
func TestBookModes(t *testing.T) {
	for _, c := range []struct {
		first, second Mode
		at            uint64 // where the second begins; both have 4096 bytes
		ok            bool
	}{
		{Exclusive, Exclusive, 0, false}, {Exclusive, Shared, 0, false}, {Exclusive, Read, 0, false}, {Shared, Exclusive, 0, false},
		{Read, Exclusive, 0, false}, {Shared, Shared, 0, true}, {Shared, Read, 0, true}, {Read, Shared, 0, true}, {Read, Read, 0, true},
		{Exclusive, Exclusive, 4096, true}, {Exclusive, Exclusive, 3584, false},
	} {
		b := NewBook(16384, 512)
		if _, err := b.Borrow(1, Term{Mode: c.first, Range: Range{0, 4096}}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Borrow(2, Term{Mode: c.second, Range: Range{c.at, 4096}}); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrBusy) {
			t.Errorf("%s, then %s at %d: %v", c.first, c.second, c.at, err)
		}
	}
}

// TestBookRefuses: ranges and modes that make no sense.
func TestBookRefuses(t *testing.T) {
	b := NewBook(16384, 512)
	for _, term := range []Term{
		{Mode: "both"}, {Mode: ""}, {Mode: Read, Range: Range{16384, 0}}, {Mode: Read, Range: Range{16384, 512}}, {Mode: Read, Range: Range{0, 16896}},
		{Mode: Read, Range: Range{1 << 63, 1 << 63}}, {Mode: Read, Range: Range{512, 1<<64 - 512}}, {Mode: Read, Range: Range{100, 512}}, {Mode: Read, Range: Range{0, 100}},
	} {
		if got, err := b.Borrow(1, term); !errors.Is(err, ErrSpec) {
			t.Errorf("%+v: %+v, %v", term, got, err)
		}
	}
	if got, err := b.Borrow(1, Term{Mode: Read, Range: Range{Offset: 1024}}); err != nil || got.Range.Size != 16384-1024 {
		t.Errorf("the rest of a device: %+v, %v", got, err)
	}
}

// bookSim has borrowers that come, work, return and die in any order, and an engine whose commands end when they like: what a late write could
// damage is looked at after each step.
type bookSim struct {
	fail     seeds.Fail
	r        *rand.Rand
	b        *Book
	next     uint64
	stopping map[uint64]bool // the engine was told to stop
	inflight map[uint64]int
	quiet    map[uint64]bool // asked to be reclaimed
	released map[uint64]bool
}

func (s *bookSim) do(actions []Action) {
	for _, a := range actions {
		switch a.Effect {
		case Stop:
			if s.stopping[a.Lease] {
				s.fail("lease %d is stopped twice", a.Lease)
			}
			s.stopping[a.Lease] = true
		case Reclaim:
			if s.inflight[a.Lease] > 0 || s.quiet[a.Lease] {
				s.fail("lease %d is reclaimed with %d commands under way, before: %v", a.Lease, s.inflight[a.Lease], s.quiet[a.Lease])
			}
			s.quiet[a.Lease] = true
		case Release:
			if !s.quiet[a.Lease] || s.released[a.Lease] {
				s.fail("lease %d is released, reclaimed %v, before: %v", a.Lease, s.quiet[a.Lease], s.released[a.Lease])
			}
			s.released[a.Lease] = true
		}
	}
}

func (s *bookSim) step() {
	id := 1 + s.r.Uint64N(s.next)
	switch s.r.IntN(8) {
	case 0, 1:
		s.next++
		s.b.Borrow(s.next, Term{Mode: Modes[s.r.IntN(3)], Range: Range{512 * s.r.Uint64N(16), 512 * s.r.Uint64N(16)}})
	case 2:
		s.b.Opened(id)
	case 3: // a command is fetched
		if s.b.State(id) == Active && !s.stopping[id] {
			s.inflight[id]++
		}
	case 4:
		if s.inflight[id] > 0 {
			s.inflight[id]--
		}
	case 5: // the borrower returns it, an operator takes it back, its connection ends
		s.do(s.b.End(id))
	case 6:
		if s.stopping[id] && s.inflight[id] == 0 {
			s.do(s.b.Stopped(id))
		}
	case 7:
		if s.quiet[id] {
			s.do(s.b.Reclaimed(id))
		}
	}
	s.check()
}

// check: no two leases have the same blocks of which one is exclusive, and no command is under way of a lease that is over.
func (s *bookSim) check() {
	ids := s.b.IDs()
	for i, id := range ids {
		a, _ := s.b.Term(id)
		for _, other := range ids[i+1:] {
			if o, _ := s.b.Term(other); a.Range.Overlaps(o.Range) && (a.Mode == Exclusive || o.Mode == Exclusive) {
				s.fail("leases %d %+v and %d %+v", id, a, other, o)
			}
		}
	}
	for id, n := range s.inflight {
		if n > 0 && s.b.State(id) >= Quiet {
			s.fail("%d commands of lease %d, which is %v", n, id, s.b.State(id))
		}
	}
}

// TestSimBook: whatever the order of events is, blocks are lent anew only when nothing of the last borrower is under way, and each lease that ends is over
// some time.
func TestSimBook(t *testing.T) {
	trials.Each(t, 30, func(seed uint64, fail seeds.Fail) {
		s := &bookSim{fail: fail, r: rand.New(rand.NewPCG(seed, 13)), b: NewBook(16*512, 512), next: 1,
			stopping: map[uint64]bool{}, inflight: map[uint64]int{}, quiet: map[uint64]bool{}, released: map[uint64]bool{}}
		for range 400 {
			s.step()
		}
		for _, id := range s.b.IDs() {
			s.do(s.b.End(id))
			s.inflight[id] = 0
			s.do(s.b.Stopped(id))
			s.do(s.b.Reclaimed(id))
			if !s.released[id] || s.b.State(id) != Free {
				fail("lease %d does not end: %v", id, s.b.State(id))
			}
		}
		if _, err := s.b.Borrow(s.next+1, Term{Mode: Exclusive}); err != nil {
			fail("%v", err)
		}
	})
}
