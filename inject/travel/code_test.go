package travel_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestCode: objects of all sizes come over, once, from whoever has them.
func TestCode(t *testing.T) {
	for _, size := range []int{1, 1000, travel.InlineObjectBytes, travel.InlineObjectBytes + 1, travel.ChunkBytes * 4, travel.ChunkBytes*9 + 1} {
		w := newTown(t, 3, travel.Limits{})
		id := w.desks[0].put(bytes.Repeat([]byte{7}, size))
		table := w.desks[0].put(bytes.Repeat([]byte{8}, size/2+1))
		b, err := w.desks[0].core.Bind(w.now, id, table)
		if err != nil {
			t.Fatal(err)
		}
		w.bind = b
		for range 5 { // all before any ACK
			w.start(t, travel.StartArgs{}, 2)
		}
		runs := w.settle(t, nil)
		if len(runs) != 5 {
			t.Fatalf("%d bytes: %d runs", size, len(runs))
		}
		delete(w.desks[1].store, id) // the middle one has lost it since; the origin has it
		for _, p := range runs {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); !errors.Is(err, nil) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}
		runs = w.settle(t, nil)
		if len(runs) != 5 || !bytes.Equal(w.desks[2].store[id], w.desks[0].store[id]) {
			t.Fatalf("%d bytes: %d runs at the third element", size, len(runs))
		}
		for _, p := range runs {
			p.finish(w, travel.End{})
		}
		w.settle(t, nil)
		if n := len(w.desks[0].ended); n != 5 {
			t.Fatalf("%d of 5 ended", n)
		}
		w.empty(t)
		w.desks[0].core.Unbind(b)
		if w.desks[2].pins[id] != 0 {
			t.Errorf("%d bytes: still pinned %d times", size, w.desks[2].pins[id])
		}
	}
}

// TestNoCode: an object that nobody gives fails who waits for it, and says so.
func TestNoCode(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w := newTown(t, 2, travel.Limits{})
		id := w.desks[0].put(make([]byte, 100_000))
		b, _ := w.desks[0].core.Bind(w.now, id, travel.ID{})
		w.bind = b
		w.start(t, travel.StartArgs{Deadline: 100 * second}, 2)
		if silent {
			w.settle(t, func(_ int, m sentMsg) bool { return m.kind == travel.KindNeed })
			for range 20 {
				w.now += second
				w.desks[1].core.Tick(w.now)
				w.settle(t, func(_ int, m sentMsg) bool { return m.kind == travel.KindNeed })
			}
		} else {
			inject := w.desks[0].take()
			delete(w.desks[0].store, id)
			w.desks[1].deliverFrom(t, w.now, 1, inject)
			w.settle(t, nil)
		}
		err := w.outcome(t)
		if !errors.Is(err, travel.ErrNoCode) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("silent=%v: ended with %v", silent, err)
		}
		w.empty(t)
	}
}

// TestSlotsAreReused: more functions than there are bindings, one after the
// other: each message runs its own.
func TestSlotsAreReused(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Bindings: 2})
	w.desks[0].core.Unbind(w.bind)
	for round := range 3 {
		for i := range 40 {
			id := w.desks[0].put([]byte{byte(i)})
			b, err := w.desks[0].core.Bind(w.now, id, travel.ID{})
			if err != nil {
				t.Fatal(err)
			}
			w.bind = b
			for range 3 {
				w.start(t, travel.StartArgs{}, 2)
				p := w.one(t, w.settle(t, nil))
				if p.r.Binding().Image != id {
					t.Fatalf("round %d: function %d ran as %v", round, i, p.r.Binding().Image)
				}
				p.finish(w, travel.End{})
				w.settle(t, nil)
			}
			w.desks[0].core.Unbind(b)
			w.now += 1000
		}
	}
	held, err := w.desks[0].core.Bind(w.now, w.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.desks[0].core.Bind(w.now, travel.ID{1}, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.desks[0].core.Bind(w.now, travel.ID{2}, travel.ID{}); !errors.Is(err, travel.ErrLimit) || !strings.Contains(err.Error(), "Limits.Bindings") {
		t.Errorf("a third binding in two slots gives %v", err)
	}
	w.desks[0].core.Unbind(held)
	w.desks[0].core.Unbind(other)
	w.empty(t)
}

// TestUnknownHandle: a receiver that has no declaration says so, and gets it
// with the next message.
func TestUnknownHandle(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	once := func() error {
		w.desks[0].ended = nil
		w.start(t, travel.StartArgs{}, 2)
		for _, p := range w.settle(t, nil) {
			p.finish(w, travel.End{})
		}
		w.settle(t, nil)
		return w.outcome(t)
	}
	if err := once(); err != nil {
		t.Fatal(err)
	}
	w.start(t, travel.StartArgs{}, 2)
	m := w.desks[0].take()[0]
	m.body[4]++ // another slot
	w.desks[1].deliverFrom(t, w.now, 1, []sentMsg{m})
	w.desks[0].ended = nil
	w.settle(t, nil)
	if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || !errors.Is(err, travel.ErrNoCode) {
		t.Fatalf("an unknown handle gives %v", err)
	}
	if err := once(); err != nil {
		t.Fatalf("after that: %v", err)
	}
	w.empty(t)
}
