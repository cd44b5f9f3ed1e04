package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestDrain covers: an element that drains refuses what is new, lets what is
// there end, even if it comes back from elsewhere, and then ends the rest.
func TestDrain(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	b := w.one(t, w.settle(t, nil))
	core := w.desks[1].core
	if core.Idle() {
		t.Error("idle, and a branch runs")
	}
	core.Drain()
	w.start(t, travel.StartArgs{}, 2)
	if runs := w.settle(t, nil); len(runs) != 0 {
		t.Fatalf("%d new branches run at an element that drains", len(runs))
	}
	err := w.outcome(t)
	var refused *travel.RefusedError
	if !errors.Is(err, travel.ErrStopping) || !errors.As(err, &refused) {
		t.Errorf("a new branch: %v", err)
	}
	w.desks[0].ended = nil
	if _, err := core.Start(w.now, &travel.StartArgs{Binding: w.bind, Roots: []travel.Root{{}}, Deadline: w.now + second}); !errors.Is(err, travel.ErrStopping) {
		t.Errorf("a start: %v", err)
	}
	// The branch goes to desk 3 and comes back.
	if err := core.Forward(w.now, b.r, 3, []byte("on")); err != nil {
		t.Fatal(err)
	}
	core.Finish(w.now, b.r, travel.End{})
	c := w.one(t, w.settle(t, nil))
	if core.Idle() {
		t.Error("idle, and nobody has said that a branch which was handed on arrived")
	}
	if err := c.d.core.Forward(w.now, c.r, 2, []byte("back")); err != nil {
		t.Fatal(err)
	}
	c.d.core.Finish(w.now, c.r, travel.End{})
	b = w.one(t, w.settle(t, nil))
	core.Finish(w.now, b.r, travel.End{HasResult: true, Result: []byte("answer")})
	w.settle(t, nil)
	for range 2 { // a report and its acknowledgement
		w.pass(t, second/20)
	}
	if err := w.outcome(t); err != nil {
		t.Errorf("what was under way: %v", err)
	}
	if !core.Idle() {
		t.Errorf("not idle: %+v", core.Sizes())
	}
}

func TestEndAll(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	b := w.one(t, w.settle(t, nil))
	core := w.desks[1].core
	core.Drain()
	core.EndAll(w.now, "the lights go out")
	w.settle(t, nil)
	if err := w.outcome(t); !errors.Is(err, travel.ErrStopping) || !strings.Contains(err.Error(), "the lights go out") {
		t.Errorf("ended with %v", err)
	}
	if !b.r.Ended() || core.Idle() {
		t.Error("the run was not told to stop, or is not counted any more")
	}
	core.Finish(w.now, b.r, travel.End{Code: travel.CodeCanceled})
	if !core.Idle() {
		t.Errorf("not idle: %+v", core.Sizes())
	}
	// At the origin: its futures end.
	w.desks[0].ended = nil
	w.start(t, travel.StartArgs{}, travel.Self)
	w.desks[0].core.EndAll(w.now, "here too")
	if err := w.outcome(t); !errors.Is(err, travel.ErrStopping) {
		t.Errorf("ended with %v", err)
	}
}
