package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// mutual is a stateful invocation with a run at each of two desks, which each have sent the other so many branches.
func mutual(t *testing.T, forks int) (w *town, runs []placed) {
	w = newTown(t, 3, travel.Limits{PrincipalHeldRuns: 2})
	w.start(t, travel.StartArgs{Stateful: true, Deadline: w.now + 100*second}, 2, 3)
	if runs = w.settle(t, nil); len(runs) != 2 {
		t.Fatalf("%d runs may begin, want 2", len(runs))
	}
	for i, p := range runs {
		for range forks {
			if _, err := p.d.core.Fork(w.now, p.r, travel.Peer(3-i), nil, []byte("much")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if more := w.settle(t, nil); len(more) != 0 {
		t.Fatalf("%d more run beside the first", len(more))
	}
	return w, runs
}

// waitInForks has all runs wait in a fork for the other's desk for so many seconds, trying again and again.
func (w *town) waitInForks(t *testing.T, runs []placed, seconds int) {
	t.Helper()
	for range 4 * seconds {
		for i, p := range runs {
			if p.r.Ended() {
				continue
			}
			p.d.full = true
			if _, err := p.d.core.Fork(w.now, p.r, travel.Peer(3-i), nil, []byte("more")); !errors.Is(err, travel.ErrBackpressure) {
				t.Fatalf("a fork where there is no room: %v", err)
			}
			p.d.full = false
			p.d.core.Wait(w.now, p.r, travel.Peer(3-i))
		}
		w.pass(t, second/4)
		for _, p := range runs {
			p.d.core.Awake(p.r)
		}
	}
}

// TestMutualWait: runs whose forks wait for each other are ended long before the deadline, and it is said what was too much.
func TestMutualWait(t *testing.T) {
	w, runs := mutual(t, 4)
	w.waitInForks(t, runs, 9)
	if n := len(w.desks[0].ended); n != 0 {
		t.Fatalf("after 9 seconds it has ended: %v", w.desks[0].ended[0].Err)
	}
	w.waitInForks(t, runs, 3)
	err := w.outcome(t)
	if !errors.Is(err, travel.ErrBackpressure) || !strings.Contains(err.Error(), "2 branches of one principal") {
		t.Errorf("it ended with %v", err)
	}
	stuck := uint64(0)
	for i, d := range w.desks[1:] {
		stuck += d.core.Counters().Stuck
		if len(d.stops) != 1 || d.stops[0] != runs[i].r {
			t.Errorf("desk %d was asked to stop %d runs, want its own, once", i+1, len(d.stops))
		}
	}
	if stuck == 0 {
		t.Error("no branch counts as stuck")
	}
	for _, p := range runs {
		p.finish(w, travel.End{})
	}
	w.pass(t, 200*second) // tombstones stay for as long as the invocation might have taken
	w.empty(t)
}

// TestLongWaitInFork: a fork may wait for long if it is in nobody's way, or if something leaves for where it is to go.
func TestLongWaitInFork(t *testing.T) {
	for name, forks := range map[string]int{"nobody's credit is kept": 2, "something leaves": 4} {
		t.Run(name, func(t *testing.T) {
			w, runs := mutual(t, forks)
			for range 5 {
				w.waitInForks(t, runs, 6)
				for i, p := range runs {
					if forks == 2 {
						continue
					}
					if _, err := p.d.core.Fork(w.now, p.r, travel.Peer(3-i), nil, []byte("on")); err != nil {
						t.Fatal(err)
					}
				}
			}
			for done := runs; len(done) > 0; done = w.settle(t, nil) {
				for _, p := range done {
					p.finish(w, travel.End{})
				}
			}
			if err := w.outcome(t); err != nil {
				t.Error(err)
			}
			w.empty(t)
		})
	}
}
