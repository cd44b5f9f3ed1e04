package travel_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestOutbox: reports that find no room wait; a peer that takes none is severed.
func TestOutbox(t *testing.T) {
	w := newTown(t, 2, travel.Limits{OutboxBytes: 600})
	var runs []placed
	for range 20 {
		w.start(t, travel.StartArgs{}, 2)
		runs = append(runs, w.settle(t, nil)...)
	}
	w.desks[1].full = true
	for i, p := range runs {
		if i == 4 {
			w.desks[1].full = false
			w.pass(t, 2e6) // Tick finds room
			if n := len(w.desks[0].ended); n != 4 {
				t.Fatalf("%d of 4 reports came out of the outbox", n)
			}
			w.desks[1].full = true
		}
		p.finish(w, travel.End{HasResult: true, Result: []byte("some result")})
		if n := p.d.core.Sizes().OutboxBytes; n > 600 {
			t.Fatalf("%d bytes in the outbox", n)
		}
	}
	if fmt.Sprint(w.desks[1].sever) != "[1]" {
		t.Fatalf("severed %v, want peer 1, once", w.desks[1].sever)
	}
	w.desks[1].core.PeerLost(w.now, 1, errors.New("severed"))
	w.desks[0].core.PeerLost(w.now, 2, errors.New("severed"))
	if n := len(w.desks[0].ended); n != 20 {
		t.Fatalf("%d of 20 futures ended", n)
	}
	for i, o := range w.desks[0].ended {
		if (o.Err == nil) != (i < 4) {
			t.Errorf("future %d ended with %v", i, o.Err)
		}
	}
	w.empty(t)
}

// TestTooManyWait: what there is no room to hold fails its branch, and only that.
func TestTooManyWait(t *testing.T) {
	const each = 2 + 512 // a payload of two bytes, and what a run is charged besides
	for name, l := range map[string]travel.Limits{
		"runs": {HeldRuns: 3}, "bytes": {HeldBytes: 3*each + 1}, "a peer's runs": {PrincipalHeldRuns: 3}, "a peer's bytes": {PrincipalHeldBytes: 3*each + 1},
	} {
		t.Run(name, func(t *testing.T) { tooManyWait(t, l) })
	}
}

func tooManyWait(t *testing.T, l travel.Limits) {
	l.Running = 2
	w := newTown(t, 2, l)
	for range 7 {
		w.start(t, travel.StartArgs{}, 2)
	}
	var held, rest []placed
	for held = w.settle(t, nil); len(held) > 0; held = rest {
		if n := w.desks[1].core.Sizes().Running; n > 2 {
			t.Fatalf("%d run at once", n)
		}
		for _, p := range held {
			p.finish(w, travel.End{})
		}
		rest = w.settle(t, nil)
	}
	good, full := 0, 0
	for _, o := range w.desks[0].ended {
		if o.Err == nil {
			good++
		} else if errors.Is(o.Err, travel.ErrBackpressure) {
			full++
		}
	}
	if good != 5 || full != 2 {
		t.Errorf("%d ended well, %d for want of room; want 5 and 2", good, full)
	}
	w.empty(t)
}
