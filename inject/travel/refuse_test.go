package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestRefuses: who may inject, forward, and for whom.
func TestRefuses(t *testing.T) {
	t.Run("not an injector", func(t *testing.T) {
		w := &town{desks: []*desk{newDesk(t, 1, travel.Limits{}), newDesk(t, 2, travel.Limits{})}}
		w.image = w.desks[0].put([]byte("image"))
		w.bind, _ = w.desks[0].core.Bind(0, w.image, travel.ID{})
		w.join(t, 0, 1, true)
		if err := w.desks[1].core.PeerUp(w.now, 1, travel.PeerInfo{Incarnation: 1, Name: "client"}); err != nil {
			t.Fatal(err)
		}
		w.start(t, travel.StartArgs{}, 2)
		if n := len(w.settle(t, nil)); n != 0 {
			t.Fatalf("%d runs", n)
		}
		if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || errors.Is(err, travel.ErrOutcomeUnknown) {
			t.Errorf("ended with %v", err)
		}
		w.empty(t)
	})
	t.Run("more of them than an ACK waits for", func(t *testing.T) {
		w := &town{desks: []*desk{newDesk(t, 1, travel.Limits{}), newDesk(t, 2, travel.Limits{})}}
		w.image = w.desks[0].put([]byte("image"))
		w.bind, _ = w.desks[0].core.Bind(0, w.image, travel.ID{})
		w.join(t, 0, 1, true)
		if err := w.desks[1].core.PeerUp(w.now, 1, travel.PeerInfo{Incarnation: 1, Name: "client"}); err != nil {
			t.Fatal(err)
		}
		const starts = 600
		for range starts {
			w.start(t, travel.StartArgs{}, 2)
		}
		w.settle(t, nil)
		if n := len(w.desks[0].ended); n != starts {
			t.Fatalf("%d of %d futures heard that they were refused", n, starts)
		}
	})
	t.Run("origin unknown", func(t *testing.T) {
		w := newTown(t, 3, travel.Limits{})
		w.desks[2].core.PeerLost(w.now, 1, nil)
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		w.settle(t, func(from int, m sentMsg) bool { return from == 0 && m.to == 3 })
		if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "no endpoint") {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("not a member", func(t *testing.T) {
		w := newTown(t, 3, travel.Limits{})
		w.desks[2].core.PeerLost(w.now, 2, nil)
		w.join(t, 2, 1, false)
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		if n := len(w.settle(t, nil)); n != 0 {
			t.Fatalf("%d runs", n)
		}
		if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "no member") {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestForeign: a peer that shows another's incarnation is not found by it, may not inject nor speak for others, and all of that ends when it is
// that one's after all. What went over it before counts.
func TestForeign(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	c := w.desks[2].core
	good := travel.PeerInfo{Incarnation: 1, Name: "a", Member: true, Injector: true}
	foreign := travel.PeerInfo{Incarnation: 1, Name: "a", Principal: "bob", Foreign: true}
	if err := c.PeerUp(w.now, 9, travel.PeerInfo{Incarnation: 1, Member: true, Foreign: true}); !errors.Is(err, travel.ErrProtocol) {
		t.Errorf("a foreign member: %v", err)
	}
	if err := c.PeerUp(w.now, 9, foreign); err != nil {
		t.Fatal(err)
	}
	// origin is the peer that a branch from the first element, handed on by the second, belongs to at the third.
	origin := func() travel.Peer {
		t.Helper()
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		p = w.one(t, w.settle(t, nil))
		defer p.finish(w, travel.End{})
		return p.r.Origin()
	}
	if n := origin(); n != 1 {
		t.Errorf("beside a foreign one the origin is peer %d", n)
	}
	direct := func(want error, says string) {
		t.Helper()
		w.start(t, travel.StartArgs{}, 3)
		for _, p := range w.settle(t, nil) {
			p.finish(w, travel.End{})
		}
		w.settle(t, nil)
		if err := w.outcome(t); !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("ended with %v, want %v", err, want)
		}
		w.desks[0].ended = nil
	}
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Fatal(err)
	}
	w.desks[0].ended = nil
	direct(nil, "")
	c.PeerIs(1, foreign)
	direct(travel.ErrRefused, "over this connection")
	c.PeerIs(9, good)
	if n := origin(); n != 9 {
		t.Errorf("beside one that has become foreign the origin is peer %d", n)
	}
	w.desks[2].take()
	c.PeerIs(9, foreign)
	c.PeerIs(1, good)
	direct(nil, "")
}

// TestStartRefuses: what Start says no to, having started nothing.
func TestStartRefuses(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Branches: 10})
	gone, _ := w.desks[0].core.Bind(0, travel.ID{9}, travel.ID{})
	root := []travel.Root{{To: 2}}
	for name, c := range map[string]struct {
		a    travel.StartArgs
		want error
	}{
		"no binding":    {travel.StartArgs{Roots: root, Deadline: second}, travel.ErrNoCode},
		"no code":       {travel.StartArgs{Binding: gone, Roots: root, Deadline: second}, travel.ErrNoCode},
		"no roots":      {travel.StartArgs{Binding: w.bind, Deadline: second}, travel.ErrLimit},
		"no time":       {travel.StartArgs{Binding: w.bind, Roots: root}, travel.ErrDeadline},
		"too long":      {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: 1 << 60}, travel.ErrLimit},
		"hops":          {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: second, Hops: travel.MaxHops + 1}, travel.ErrHopLimit},
		"branches":      {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: second, Branches: 11}, travel.ErrForkLimit},
		"roots":         {travel.StartArgs{Binding: w.bind, Roots: make([]travel.Root, 11), Deadline: second}, travel.ErrForkLimit},
		"no worker":     {travel.StartArgs{Binding: w.bind, Roots: []travel.Root{{To: 2, Worker: 2}}, Deadline: second, Workers: 2}, travel.ErrLimit},
		"workers":       {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: second, Workers: travel.MaxWorkers + 1}, travel.ErrLimit},
		"no peer":       {travel.StartArgs{Binding: w.bind, Roots: []travel.Root{{To: 2}, {To: 5}}, Deadline: second}, travel.ErrNoPeer},
		"large payload": {travel.StartArgs{Binding: w.bind, Roots: []travel.Root{{To: 2, Payload: make([]byte, 65536)}}, Deadline: second}, travel.ErrTooLarge},
	} {
		if _, err := w.desks[0].core.Start(0, &c.a); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	w.desks[0].core.Unbind(gone)
	for _, p := range w.settle(t, nil) {
		p.finish(w, travel.End{})
	}
	if len(w.desks[0].ended) != 0 {
		t.Error("Complete was called for what did not start")
	}
	w.empty(t)
}
