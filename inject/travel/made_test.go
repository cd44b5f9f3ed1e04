package travel_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// make has a run make a function of code that no desk has.
func (w *town) make(t *testing.T, p placed, code []byte) *travel.Binding {
	t.Helper()
	b, err := p.d.core.Make(w.now, p.r, p.d.put(code))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMade: who is sent a function that a run has made, and finds it gone where it came from, gets it from its maker; that keeps it
// until the call is complete, though its own branch has long gone on and nobody uses it there.
func TestMade(t *testing.T) {
	for name, size := range map[string]int{"small": 100, "large": 3 * travel.ChunkBytes} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t, 4, travel.Limits{})
			code := bytes.Repeat([]byte("m"), size)
			w.start(t, travel.StartArgs{Deadline: 60 * second}, 2)
			p := w.one(t, w.settle(t, nil))
			b := w.make(t, p, code)
			if err := p.d.core.ForwardAs(w.now, p.r, 3, 0, b, []byte("on")); err != nil {
				t.Fatal(err)
			}
			p.d.core.Unbind(b)
			p.finish(w, travel.End{})
			q := w.one(t, w.settle(t, nil))
			if got := q.r.Binding().What; got != b.What || got.Maker != 2 {
				t.Fatalf("%+v ran, want %+v", got, b.What)
			}
			for range 5 { // the maker's binding is idle for longer than others keep their objects
				w.pass(t, second)
			}
			if w.desks[1].pins[b.Image] != 1 {
				t.Errorf("the maker has pinned its image %d times", w.desks[1].pins[b.Image])
			}
			if err := q.d.core.Forward(w.now, q.r, 4, make([]byte, travel.MaxDataBytes)); err != nil { // so that no code fits beside it
				t.Fatal(err)
			}
			q.finish(w, travel.End{})
			delete(w.desks[2].store, b.Image)
			last := w.one(t, w.settle(t, nil))
			if last.d != w.desks[3] || last.r.Binding().What != b.What {
				t.Fatalf("%+v ran", last.r.Binding().What)
			}
			last.finish(w, travel.End{})
			w.settle(t, nil)
			if err := w.outcome(t); err != nil {
				t.Error(err)
			}
			w.empty(t)
			for i, d := range w.desks {
				if d.pins[b.Image] != 0 {
					t.Errorf("desk %d still pins it", i)
				}
			}
		})
	}
}

// TestMadeGoes: what a run has made goes with the call, whatever way that ends: by the origin's word, its loss, or the deadline.
func TestMadeGoes(t *testing.T) {
	for name, end := range map[string]func(w *town, p placed, id travel.FutureID){
		"done":   func(w *town, p placed, _ travel.FutureID) { p.finish(w, travel.End{}) },
		"failed": func(w *town, p placed, _ travel.FutureID) { p.finish(w, travel.End{Code: travel.CodeTrap}) },
		"canceled": func(w *town, p placed, id travel.FutureID) {
			if err := w.desks[0].core.Cancel(w.now, id); err != nil {
				t.Error(err)
			}
			w.settle(t, nil)
			p.finish(w, travel.End{Code: travel.CodeCanceled})
		},
		"origin lost": func(w *town, p placed, _ travel.FutureID) {
			p.d.core.PeerLost(w.now, 1, errors.New("gone"))
			w.desks[0].core.PeerLost(w.now, 2, errors.New("gone"))
			p.finish(w, travel.End{Code: travel.CodeCanceled})
		},
		"expired": func(w *town, p placed, _ travel.FutureID) {
			w.pass(t, 2*second)
			p.finish(w, travel.End{Code: travel.CodeDeadline})
		},
	} {
		w := newTown(t, 2, travel.Limits{})
		id := w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		b := w.make(t, p, []byte("made"))
		again := w.make(t, p, []byte("made"))
		if again != b {
			t.Errorf("%s: the same function is another one the second time", name)
		}
		p.d.core.Unbind(b)
		p.d.core.Unbind(b)
		end(w, p, id)
		w.settle(t, nil)
		w.empty(t)
		if n := p.d.pins[b.Image]; n != 0 {
			t.Errorf("%s: it is pinned %d times", name, n)
		}
	}
}

// TestMadeLimit: what one principal's calls make here at once is bounded, and the error names the limit; what is over makes room.
func TestMadeLimit(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Made: 4})
	fill := func() error {
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		for i := range 3 {
			p.d.core.Unbind(w.make(t, p, []byte{byte(i)}))
		}
		_, err := p.d.core.Make(w.now, p.r, p.d.put([]byte("one more")))
		p.finish(w, travel.End{})
		w.settle(t, nil)
		return err
	}
	for range 2 {
		if err := fill(); !errors.Is(err, travel.ErrLimit) || !strings.Contains(err.Error(), "Limits.Made") {
			t.Error(err)
		}
	}
	w.empty(t)
}

// TestMadeMakerLost: the error of a branch whose code cannot be had any more names who was asked.
func TestMadeMakerLost(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	w.bind.Elements = nil // so that the loss of the maker, which has no branch any more, ends nothing by itself
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	b := w.make(t, p, bytes.Repeat([]byte("m"), travel.InlineObjectBytes+1))
	if err := p.d.core.ForwardAs(w.now, p.r, 4, 0, b, nil); err != nil {
		t.Fatal(err)
	}
	p.d.core.Unbind(b)
	p.finish(w, travel.End{})
	w.settle(t, func(_ int, m sentMsg) bool { return m.kind == travel.KindCode })
	w.desks[3].core.PeerLost(w.now, 2, errors.New("gone"))
	w.settle(t, nil)
	if err := w.outcome(t); !errors.Is(err, travel.ErrPeerLost) || !strings.Contains(err.Error(), "b was lost; a does not have it; a run made it at an element that is gone") {
		t.Error(err)
	}
}
