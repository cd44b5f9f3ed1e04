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

// TestTooManyWait: what arrives beyond the bounds of what may wait here costs its sender's credit until it runs; what a member sends is taken in.
func TestTooManyWait(t *testing.T) {
	const each = 2 + 512 // a payload of two bytes, and what a run is charged besides
	for name, l := range map[string]travel.Limits{
		"runs": {HeldRuns: 3}, "bytes": {HeldBytes: 3*each + 1}, "a peer's runs": {PrincipalHeldRuns: 3}, "a peer's bytes": {PrincipalHeldBytes: 3*each + 1},
	} {
		t.Run(name, func(t *testing.T) { tooManyWait(t, l, false) })
		t.Run(name+", of a member's", func(t *testing.T) { tooManyWait(t, l, true) })
	}
}

func tooManyWait(t *testing.T, l travel.Limits, member bool) {
	l.Running = 2
	w := newTown(t, 2, l)
	if !member {
		w.desks[1].core.PeerLost(w.now, 1, nil)
		w.join(t, 1, 0, false)
	}
	most := 0
	for range 7 {
		w.start(t, travel.StartArgs{}, 2)
	}
	var held, rest []placed
	for held = w.settle(t, nil); len(held) > 0; held = rest {
		if n := w.desks[1].core.Sizes().Running; n > 2 {
			t.Fatalf("%d run at once", n)
		}
		n := w.desks[1].core.Sizes()
		if most = max(most, n.Kept+n.Backlog); n.HeldRuns > 3 || n.Kept != w.desks[1].kept || member && n.Kept > 0 || !member && n.Backlog > 0 {
			t.Fatalf("%+v, and the credit of %d is withheld", n, w.desks[1].kept)
		}
		for _, p := range held {
			p.finish(w, travel.End{})
		}
		rest = w.settle(t, nil)
	}
	for _, o := range w.desks[0].ended {
		if o.Err != nil {
			t.Error(o.Err)
		}
	}
	if n := len(w.desks[0].ended); n != 7 || most != 2 || w.desks[1].kept != 0 {
		t.Errorf("%d of 7 ended; %d waited beyond the bounds, want 2; that of %d still is", n, most, w.desks[1].kept)
	}
	w.empty(t)
}

// TestFullQueueEndsNothing: what finds no room to be sent can be sent later, by the run that wanted to.
func TestFullQueueEndsNothing(t *testing.T) {
	w := newTown(t, 3, travel.Limits{HeldRuns: 1})
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	p.d.full = true
	for range 3 {
		if _, err := p.d.core.Fork(w.now, p.r, 3, nil, []byte("fork")); !errors.Is(err, travel.ErrBackpressure) || p.r.Ended() {
			t.Fatalf("a fork into a full queue: %v", err)
		}
	}
	p.d.full = false
	if _, err := p.d.core.Fork(w.now, p.r, 3, nil, []byte("fork")); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the first waits here, where one may
		if _, err := p.d.core.Fork(w.now, p.r, travel.Self, nil, []byte("here")); errors.Is(err, travel.ErrBackpressure) != (i > 0) || p.r.Ended() {
			t.Fatalf("fork %d to itself: %v", i, err)
		}
	}
	p.d.core.Wait(w.now, p.r)
	if n := p.d.core.Sizes().Running; n != 0 {
		t.Errorf("%d run, want none: the only one waits", n)
	}
	p.d.core.Awake(p.r)
	if err := p.d.core.Forward(w.now, p.r, 3, []byte("onward")); err != nil {
		t.Fatal(err)
	}
	p.finish(w, travel.End{})
	for _, p := range w.settle(t, nil) {
		p.finish(w, travel.End{})
	}
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Error(err)
	}
	w.empty(t)
}
