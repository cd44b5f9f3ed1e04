package travel_test

import (
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestSpare: an endpoint that is not needed is busy while a branch from there has not ended, and so while one is
// there; invocations that come later hang on the other one.
func TestSpare(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	at := func(i, n int) bool { return w.desks[i].core.Spare(w.now, travel.Peer(n)) }
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	if p.d != w.desks[1] {
		t.Fatal("the branch is elsewhere")
	}
	for name, busy := range map[string]bool{"the origin": at(0, 2), "where it runs": at(1, 1)} {
		if !busy {
			t.Errorf("%s needs the endpoint, and says that it does not", name)
		}
	}
	if at(0, 3) || at(1, 3) {
		t.Error("an endpoint is busy that nothing went over")
	}
	// Another endpoint from where it runs to the origin: only what comes now is its.
	c := w.desks[1].core
	if err := c.PeerUp(w.now, 9, travel.PeerInfo{Incarnation: 1, Name: "a", Member: true, Injector: true}); err != nil {
		t.Fatal(err)
	}
	if !at(1, 1) || at(1, 9) {
		t.Errorf("busy: %v and %v", at(1, 1), at(1, 9))
	}
	// On to a third.
	if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
		t.Fatal(err)
	}
	p.finish(w, travel.End{})
	p = w.one(t, w.settle(t, nil))
	w.pass(t, second/10) // acknowledgements wait for company
	if at(1, 3) || at(2, 2) {
		t.Error("the endpoint over which the branch went on is busy, and it was acknowledged")
	}
	if !at(2, 1) {
		t.Error("the element that will answer needs the endpoint, and says that it does not")
	}
	p.finish(w, travel.End{})
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Fatal(err)
	}
	for range 4 { // from one to the other
		w.pass(t, second/10)
	}
	if at(0, 2) || at(1, 1) || at(1, 9) || at(2, 1) || at(2, 2) || at(1, 3) {
		t.Error("busy after the end")
	}
}

// TestSpareOrigin: an invocation that arrives by another element belongs to the endpoint that is used.
func TestSpareOrigin(t *testing.T) {
	for spared, want := range map[travel.Peer]travel.Peer{0: 1, 1: 9, 9: 1} {
		w := newTown(t, 3, travel.Limits{})
		c := w.desks[2].core
		if err := c.PeerUp(w.now, 9, travel.PeerInfo{Incarnation: 1, Name: "a", Member: true, Injector: true}); err != nil {
			t.Fatal(err)
		}
		if spared != 0 && c.Spare(w.now, spared) {
			t.Error("busy at once")
		}
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		sent := injects(p.d.take())
		r, err := c.Recv(w.now, 2, sent[0].kind, sent[0].body)
		if err != nil || r == nil {
			t.Fatalf("%v, %v", r, err)
		}
		if r.Origin() != want || !c.Spare(w.now, want) || !c.Spare(w.now, 2) {
			t.Errorf("%d is spared: the origin is peer %d, want %d; busy %v", spared, r.Origin(), want, c.Spare(w.now, want))
		}
		c.Finish(w.now, r, travel.End{})
		w.desks[2].take()
	}
}
