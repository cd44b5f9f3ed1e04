package faulttest

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// tight are limits that a start with many roots meets part-way.
func tight(s *settings) { s.OutboxBytes, s.WindowBytes = 64<<10, 256<<10 }

// runs counts the branches that ran on all nodes.
func (g *grid) runs() (n uint64) {
	for _, node := range g.nodes {
		n += node.report(g.t).Stats.Runs
	}
	return n
}

// TestManyRoots covers: starts of more roots than there is room for, to several
// elements. Each root runs once: not fewer times, not more.
func TestManyRoots(t *testing.T) { overBoth(t, manyRoots) }

func manyRoots(t *testing.T, change func(*settings)) {
	for _, tc := range []struct {
		name         string
		roots, bytes int
		limits       travel.Limits
	}{
		{"credit", 300, 20 << 10, travel.Limits{}},
		{"transfers", 9000, 8, travel.Limits{}},
		{"records", 2000, 8, travel.Limits{Records: 400}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGrid(t, 2, nil, func(s *settings) {
				change(s)
				tight(s)
				s.Travel = tc.limits
			})
			f := g.prepare(g.client, guestImage(t, "faults", nil), nil)
			before := g.runs()
			var roots []inject.Root
			for i := range tc.roots {
				roots = append(roots, g.at(i%2, append(order(0, uint32(i), 0), make([]byte, tc.bytes)...)))
			}
			fut, err := f.Start(within(t, time.Minute), roots, inject.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := fut.Wait(within(t, time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range r.Pieces {
				if p.Branch != uint64(i) || binary.LittleEndian.Uint32(p.Data[4:]) != uint32(i) {
					t.Fatalf("piece %d is of branch %d: %x", i, p.Branch, p.Data[:16])
				}
			}
			if n := g.runs() - before; len(r.Pieces) != tc.roots || n != uint64(tc.roots) {
				t.Errorf("%d roots: %d pieces, and %d runs", tc.roots, len(r.Pieces), n)
			}
			g.serves()
		})
	}
}

// TestManyRootsFail covers: a root that fails while others wait for room, and
// time that runs out then. Nothing is left, and nothing ran twice.
func TestManyRootsFail(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, func(s *settings) {
		tight(s)
		s.Running = 2
	})
	f := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), nil)
	const n = 300
	roots := func(first []byte) []inject.Root {
		list := []inject.Root{g.at(0, first)}
		for range n - 1 {
			list = append(list, g.at(0, append(order(15, 0, uint64(5*time.Millisecond)), make([]byte, 20<<10)...)))
		}
		return list
	}
	before := g.runs()
	fut, err := f.Start(within(t, time.Minute), roots(order(1, 0, 0)), inject.Options{})
	if err != nil {
		t.Fatalf("a root failed: the future must say so, not the start: %v", err)
	}
	if _, err := fut.Wait(within(t, time.Minute)); !errors.Is(err, travel.ErrRemote) {
		t.Errorf("ended with %v", err)
	}
	g.quiet()
	if ran := g.runs() - before; ran == 0 || ran >= n {
		t.Errorf("%d of %d roots ran, though the first one failed", ran, n)
	}

	// Where the machine stands still when the time runs out, all may begin, to be ended at once: not each time.
	ran := uint64(n)
	for try := 0; try < 5 && ran >= n; try++ {
		before = g.runs()
		fut, err = f.Start(within(t, 300*time.Millisecond), roots(order(15, 0, uint64(200*time.Millisecond))), inject.Options{})
		if err == nil { // the time ran out just after the last root was sent, or the element said so first
			_, err = fut.Wait(within(t, time.Minute))
		}
		if !errors.Is(err, travel.ErrDeadline) && !errors.Is(err, travel.ErrBackpressure) {
			t.Errorf("no time is left: %v", err)
		}
		g.quiet()
		ran = uint64(g.runs() - before)
	}
	if ran >= n {
		t.Errorf("%d of %d roots ran in a time that is too short", ran, n)
	}
	g.serves()
}

// TestTooManyPeers covers: an endpoint that the travel protocol has no room for
// gets an answer, not silence, and others are served.
func TestTooManyPeers(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, func(s *settings) { s.Travel.Peers = 3 }) // numbers 1 and 2, and the client has one
	served, refused := 0, 0
	for _, name := range []string{"one", "two", "three"} {
		c := g.newClient(settings{Name: name, Token: "alice"})
		f := g.prepare(c, guestImage(t, "faults", nil), nil)
		ep := g.connect(c, g.nodes[0])
		start := time.Now()
		_, err := f.Do(within(t, time.Minute), inject.Root{To: ep, Payload: order(0, 0, 0)}, nil)
		switch {
		case err == nil:
			served++
		case errors.Is(err, travel.ErrRefused):
			refused++
			says(t, err, "n0", "takes no functions over this connection")
			soon(t, start, 30*time.Second)
		default:
			t.Error(err)
		}
	}
	if served != 1 || refused != 2 {
		t.Errorf("%d were served and %d refused, want 1 and 2", served, refused)
	}
	g.serves()
}
