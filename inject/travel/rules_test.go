package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// frees counts the FREEs that a desk has sent to a peer, and takes everything.
func (d *desk) frees(to travel.Peer) (n int) {
	for _, m := range d.take() {
		if m.kind == travel.KindFree && m.to == to {
			n++
		}
	}
	return n
}

// TestHoldOfEndedFuture: who says that it holds state of a future that has ended is told to free it, whichever message says so.
func TestHoldOfEndedFuture(t *testing.T) {
	for name, m := range map[string]sentMsg{
		"HOLD":            {1, travel.KindHold, []byte{1, 0, 0, 0, 0}},
		"DONE":            {1, travel.KindDone, []byte{64, 1, 0, 0, 0, 0}},
		"of none at all":  {1, travel.KindHold, []byte{99, 0, 0, 0, 0}},
		"DONE of none":    {1, travel.KindDone, []byte{64, 99, 0, 0, 0, 0}},
		"DONE of another": {1, travel.KindDone, []byte{65, 1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 128}},
	} {
		w := newTown(t, 2, travel.Limits{})
		w.start(t, travel.StartArgs{Stateful: true}, 2)
		w.one(t, w.settle(t, nil)).finish(w, travel.End{})
		w.settle(t, nil)
		w.desks[0].deliverFrom(t, w.now, 2, []sentMsg{m})
		if n := w.desks[0].frees(2); n != 1 {
			t.Errorf("%s: answered with %d FREEs, want 1", name, n)
		}
	}
}

// TestTombstoneTime: a canceled invocation is remembered for a second at least, also if it had less time left.
func TestTombstoneTime(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	id := w.start(t, travel.StartArgs{Deadline: w.now + second/100}, 2)
	late := w.desks[0].take()
	if err := w.desks[0].core.Cancel(w.now, id); err != nil {
		t.Fatal(err)
	}
	w.settle(t, nil)
	w.now += second * 9 / 10
	w.desks[1].core.Tick(w.now)
	w.desks[1].deliverFrom(t, w.now, 1, nil)
	for _, m := range late {
		if r, err := w.desks[1].core.Recv(w.now, 1, m.kind, m.body); err != nil || r != nil {
			t.Errorf("a branch that came 0.9 s after CANCEL: %v, %v", r, err)
		}
	}
	w.now += second
	w.desks[1].core.Tick(w.now)
	if n := w.desks[1].core.Sizes().Tombstones; n != 0 {
		t.Errorf("%d tombstones are left after two seconds", n)
	}
}

// TestStrangerReports: a peer that is no member is not heard about a future that it was given no root of.
func TestStrangerReports(t *testing.T) {
	for _, m := range []sentMsg{
		{1, travel.KindDone, []byte{0, 1, 0, 0, 0, 0}},
		{1, travel.KindLost, append([]byte{4, byte(travel.CodePeerLost), 1, 0, 0, 0, 0}, make([]byte, 9)...)},
	} {
		w := newTown(t, 2, travel.Limits{})
		w.desks = append(w.desks, newDesk(t, 3, travel.Limits{}))
		w.join(t, 0, 2, false)
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		w.desks[0].deliverFrom(t, w.now, 3, []sentMsg{m})
		if n := len(w.desks[0].ended); n != 0 {
			t.Fatalf("%v of a stranger ended the future: %v", m.kind, w.desks[0].ended[0].Err)
		}
		p.finish(w, travel.End{})
		w.settle(t, nil)
		if err := w.outcome(t); err != nil {
			t.Error(err)
		}
	}
}

// TestOtherEndpoint: while there is another endpoint to an origin, its branches go on arriving and their ends leave by that one.
func TestOtherEndpoint(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	info := travel.PeerInfo{Incarnation: 1, Name: "a", Member: true, Injector: true}
	c := w.desks[2].core
	if err := c.PeerUp(w.now, 9, info); err != nil {
		t.Fatal(err)
	}
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	c.PeerLost(w.now, 1, errors.New("one of two"))
	if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
		t.Fatal(err)
	}
	p.finish(w, travel.End{})
	sent := injects(p.d.take())
	if len(sent) != 1 {
		t.Fatalf("%d INJECTs", len(sent))
	}
	r, err := c.Recv(w.now, 2, sent[0].kind, sent[0].body)
	if err != nil || r == nil {
		t.Fatalf("the forward that came by another element: %v, %v", r, err)
	}
	if r.Origin() != 9 {
		t.Errorf("its origin is peer %d, want the endpoint that is left", r.Origin())
	}
	c.Finish(w.now, r, travel.End{})
	if out := w.desks[2].take(); len(out) != 1 || out[0].to != 9 || out[0].kind != travel.KindDone {
		t.Errorf("sent %v, want a DONE by the endpoint that is left", out)
	}
}
