package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestCancelBeforeArrival: a branch that arrives after its CANCEL never runs.
func TestCancelBeforeArrival(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	f := w.start(t, travel.StartArgs{}, 2)
	late := w.desks[0].take()
	if err := w.desks[0].core.Cancel(w.now, f); err != nil {
		t.Fatal(err)
	}
	if err := w.desks[0].core.Cancel(w.now, f); !errors.Is(err, travel.ErrNoFuture) {
		t.Errorf("a second Cancel gives %v", err)
	}
	if err := w.outcome(t); !errors.Is(err, travel.ErrCanceled) {
		t.Errorf("ended with %v", err)
	}
	w.settle(t, nil)
	w.desks[1].deliverFrom(t, w.now, 1, late)
	if n := w.desks[1].core.Counters().Runs; n != 0 || len(w.settle(t, nil)) != 0 {
		t.Fatalf("%d runs of a canceled invocation", n)
	}
	w.empty(t)
}

// TestCancelFollowsCustody: who the origin cannot reach hears of the end from
// who sent it a branch.
func TestCancelFollowsCustody(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	f := w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	for _, to := range []travel.Peer{3, 4} {
		if _, err := p.d.core.Fork(w.now, p.r, to, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	forks := w.settle(t, nil)
	if len(forks) != 2 {
		t.Fatalf("%d forks run", len(forks))
	}
	if err := w.desks[0].core.Cancel(w.now, f); err != nil {
		t.Fatal(err)
	}
	passed := 0
	w.settle(t, func(from int, m sentMsg) bool {
		if from == 1 && m.kind == travel.KindCancel {
			passed++
		}
		return from == 0 && m.to != 2
	})
	if passed != 2 {
		t.Errorf("%d CANCELs were passed on, want 2", passed)
	}
	for _, q := range append(forks, p) {
		if len(q.d.stops) != 1 {
			t.Errorf("desk %p has stopped %d runs", q.d, len(q.d.stops))
		}
		q.finish(w, travel.End{})
	}
	w.empty(t)
}
