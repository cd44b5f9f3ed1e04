package room

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/share"
)

var errBusy, errClosed, errMake = errors.New("busy"), errors.New("closed"), errors.New("it cannot be made")

// bound is a pool with what is known of it.
type bound struct {
	*Pool
	base, most uint64
	fails      bool // Make does
	made, gone int
	discarded  int
	closed     bool
}

func (b *bound) Make(context.Context) (Instance, error) {
	if b.fails {
		return nil, errMake
	}
	b.made++
	return &instance{b: b}, nil
}

func (b *bound) Gone() { b.gone++ }

type instance struct {
	b       *bound
	slot    Slot
	broken  bool
	ended   bool
	scratch uint64
}

func (in *instance) Slot() *Slot                                           { return &in.slot }
func (in *instance) Discard()                                              { in.ended = true; in.b.discarded++ }
func (in *instance) Waits()                                                {}
func (in *instance) Release()                                              { in.slot.Release(in.broken) }
func (in *instance) Run([]byte, *abi.Limits, abi.Host) (abi.Status, error) { return 0, nil }

// model is a room and what is taken of it.
type model struct {
	r       *Room
	c       Config
	bounds  []*bound
	running []*instance
	places  []*place
	empty   int
}

// TestRoom: whatever is reserved, made, extended, released and closed, nothing is charged beyond the limits or a principal's share of them; what is charged is what
// there is; an idle instance ends before anybody is refused; and a pool is gone once, when it is closed and all of it has ended.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{c: Config{Instances: 8, Bytes: 64 * pageBytes, Noun: "instances", Busy: errBusy, Closed: errClosed}}
		m.c.Empty = func() { m.empty++ }
		m.r = New(m.c)
		for i := range 4 {
			b := &bound{base: uint64(1+i) * pageBytes, most: uint64(i) * 4 * pageBytes}
			b.Pool = m.r.Pool([]string{"ann", "ann", "bob", "cas"}[i], b, b.base, b.most)
			m.bounds = append(m.bounds, b)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.step(t)
			m.check(t)
		}
		for _, in := range m.running {
			in.Release()
		}
		for _, p := range m.places {
			p.Release()
		}
		for _, b := range m.bounds {
			b.Close()
			b.Close()
		}
		m.r.Close()
		if s := m.r.Stats(); s.Live != 0 || s.Bytes != 0 || len(m.r.users) != 0 {
			t.Fatalf("at the end there is %+v of %d principals", s, len(m.r.users))
		}
		for i, b := range m.bounds {
			if b.gone != 1 || b.made != b.discarded {
				t.Fatalf("pool %d was gone %d times, %d made and %d discarded", i, b.gone, b.made, b.discarded)
			}
		}
	})
}

func (m *model) step(t *rapid.T) {
	b := m.bounds[rapid.IntRange(0, 3).Draw(t, "bound")]
	scratch := rapid.Uint64Range(0, 20*pageBytes).Draw(t, "scratch")
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
	switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
	case op < 4:
		m.reserve(t, b, scratch)
	case op < 6 && len(m.places) > 0:
		i := pick(len(m.places))
		p := m.places[i]
		m.places = slices.Delete(m.places, i, i+1)
		if op == 4 {
			p.Release()
			return
		}
		owner := p.pool.bound.(*bound)
		owner.fails = rapid.IntRange(0, 4).Draw(t, "fails") == 0
		in, err := p.Acquire(context.Background())
		if err != nil && !(owner.fails && err == errMake) {
			t.Fatal(err)
		}
		if err == nil {
			m.running = append(m.running, in.(*instance))
		}
	case op < 8 && len(m.running) > 0:
		i := pick(len(m.running))
		in := m.running[i]
		if op == 6 {
			if err := in.slot.Extend(scratch); err == nil {
				in.scratch = max(in.scratch, scratch)
			} else if !errors.Is(err, errBusy) {
				t.Fatal(err)
			}
			return
		}
		m.running = slices.Delete(m.running, i, i+1)
		in.slot.Trim(in.scratch)
		in.broken, in.scratch = rapid.IntRange(0, 4).Draw(t, "broken") == 0, 0
		in.Release()
	case op == 8 && rapid.IntRange(0, 5).Draw(t, "close") == 0:
		b.Close()
		b.closed = true
	}
}

// reserve takes room; if there is none, those that run have it.
func (m *model) reserve(t *rapid.T, b *bound, scratch uint64) {
	pl, err := b.Reserve(scratch)
	if err == nil {
		m.places = append(m.places, pl.(*place))
		return
	}
	if err == errClosed && b.closed {
		return
	}
	instances, bytes, used := m.c.Instances, m.c.Bytes, m.busy("")
	if err == abi.ErrShareBusy {
		instances, bytes, used = share.Of(instances), share.Of(bytes), m.busy(b.Principal())
	} else if err != abi.ErrEngineBusy {
		t.Fatal(err)
	}
	if used.live == 0 || !used.beyond(b.Need(scratch), instances, bytes) {
		t.Fatalf("refused with %v where %+v are at work", err, used)
	}
}

// busy is what is charged for all that is not idle, or for a principal's.
func (m *model) busy(principal string) (u usage) {
	for _, in := range m.running {
		if principal == "" || in.b.Principal() == principal {
			u = u.plus(in.slot.usage())
		}
	}
	for _, p := range m.places {
		if principal == "" || p.pool.Principal() == principal {
			u = u.plus(usage{1, p.pool.base + p.extra})
		}
	}
	return u
}

func (m *model) check(t *rapid.T) {
	s, idle := m.r.Stats(), usage{}
	for _, b := range m.bounds {
		for _, s := range b.idle {
			idle = idle.plus(s.usage())
			if s.owner.(*instance).ended || !s.Idle() || s.reserved != 0 {
				t.Fatalf("an idle instance is %+v", s.owner)
			}
		}
	}
	for _, in := range m.running {
		if in.ended || in.slot.reserved < owed(in) {
			t.Fatalf("one that runs is %+v, charged %d for scratch", in, in.slot.reserved)
		}
	}
	if all := m.busy("").plus(idle); all.live != s.Live || all.bytes != s.Bytes || idle != m.r.unused {
		t.Fatalf("%+v are charged, %+v idle; there are %+v, %+v idle", s, m.r.unused, all, idle)
	}
	if s.Live > m.c.Instances || s.Bytes > m.c.Bytes && s.Live > 1 {
		t.Fatalf("%+v is more than may be", s)
	}
	for name, u := range m.r.users {
		if u.all.live > share.Of(m.c.Instances) || u.all.bytes > share.Of(m.c.Bytes) && u.all.live > 1 {
			t.Fatalf("%s has %+v", name, u.all)
		}
	}
}

// owed is what an instance must be charged for its scratch.
func owed(in *instance) uint64 { return in.b.extra(in.scratch) }
