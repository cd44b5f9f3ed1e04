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
		if err := w.desks[1].core.PeerUp(1, travel.PeerInfo{Incarnation: 1, Name: "client"}); err != nil {
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
