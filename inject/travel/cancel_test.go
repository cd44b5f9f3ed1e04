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
