package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// keeping is an invocation that has nothing but scratch at the second desk: its only branch runs at the fourth, and came by the third.
func keeping(t *testing.T, l travel.Limits) (*town, placed) {
	t.Helper()
	w := newTown(t, 4, l)
	w.start(t, travel.StartArgs{Stateful: true, Deadline: w.now + 10*second}, 2)
	p := w.one(t, w.settle(t, nil))
	if err := p.d.core.HoldState(p.r, "scratch"); err != nil {
		t.Fatal(err)
	}
	for _, to := range []travel.Peer{3, 4} {
		p.onward(t, w, to)
		p = w.one(t, w.settle(t, nil))
	}
	for range 3 {
		w.pass(t, second/20) // what led there is released
	}
	if s := w.desks[1].core.Sizes(); s.Records != 0 || s.Invocations != 1 || s.Stateful != 1 {
		t.Fatalf("the second desk has more than scratch: %+v", s)
	}
	return w, p
}

func (p placed) onward(t *testing.T, w *town, to travel.Peer) {
	t.Helper()
	if err := p.d.core.Forward(w.now, p.r, to, nil); err != nil {
		t.Fatal(err)
	}
	p.finish(w, travel.End{})
}

// lostAt has a desk lose its endpoint to another, and get a new one, before the other hears of that.
func (w *town) lostAt(t *testing.T, i, k int) {
	t.Helper()
	w.desks[i].core.PeerLost(w.now, travel.Peer(k+1), errors.New("cut"))
	w.join(t, i, k, true)
}

// lateAt has the second desk's time run ahead of the others'.
func (w *town) lateAt(d *desk) { d.core.Tick(w.now + 10*second) }

// TestLapsed: a branch that comes back to where its invocation's scratch was freed fails the future at once; it
// does not run there.
func TestLapsed(t *testing.T) {
	for name, c := range map[string]struct {
		lapse func(w *town)
		is    error
		says  string
	}{
		"the connection to the origin was lost": {func(w *town) { w.lostAt(t, 1, 0) }, travel.ErrPeerLost, "the element had lost its connection to the origin"},
		"the deadline passed":                   {func(w *town) { w.lateAt(w.desks[1]) }, travel.ErrDeadline, "its time was over"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := keeping(t, travel.Limits{})
			c.lapse(w)
			if s := w.desks[1].core.Sizes(); s.Lapsed != 1 || s.Stateful != 1 || s.Invocations != 0 {
				t.Fatalf("the second desk has %+v, want a tombstone", s)
			}
			p.onward(t, w, 2)
			if runs := w.settle(t, nil); len(runs) != 0 {
				t.Fatal("a branch runs where its scratch is gone")
			}
			if err := w.outcome(t); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "what it kept here") {
				t.Errorf("the future ended with %v", err)
			}
			w.pass(t, 20*second)
			w.empty(t)
		})
	}
}

// TestLapsedWhileRunning: the same where a function still runs that was asked to stop, with scratch (then there is a tombstone) and
// before it has asked for some.
func TestLapsedWhileRunning(t *testing.T) {
	t.Run("with scratch", func(t *testing.T) { lapsedWhileRunning(t, true) })
	t.Run("without scratch", func(t *testing.T) { lapsedWhileRunning(t, false) })
}

func lapsedWhileRunning(t *testing.T, scratch bool) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{Stateful: true, Deadline: w.now + 10*second}, 2)
	p := w.one(t, w.settle(t, nil))
	if scratch {
		if err := p.d.core.HoldState(p.r, "scratch"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.d.core.Fork(w.now, p.r, 3, nil, nil); err != nil {
		t.Fatal(err)
	}
	fork := w.one(t, w.settle(t, nil))
	w.lateAt(w.desks[1])
	w.desks[1].take() // nobody hears that its time is over
	fork.onward(t, w, 2)
	if runs := w.settle(t, nil); len(runs) != 0 {
		t.Fatal("a branch runs where its invocation was ended")
	}
	if err := w.outcome(t); !errors.Is(err, travel.ErrDeadline) || !errors.Is(err, travel.ErrRefused) {
		t.Errorf("the future ended with %v", err)
	}
	p.finish(w, travel.End{})
	w.pass(t, 20*second)
	w.empty(t)
}

// TestLapsedIsOver: a tombstone goes when the origin says that the invocation is over: at once if it completed,
// to the canceled ones if not.
func TestLapsedIsOver(t *testing.T) {
	w, p := keeping(t, travel.Limits{})
	w.lateAt(w.desks[1])
	p.finish(w, travel.End{})
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Fatal(err)
	}
	if s := w.desks[1].core.Sizes(); s.Lapsed+s.Stateful+s.Tombstones != 0 {
		t.Errorf("after FREE the second desk has %+v", s)
	}
	w, p = keeping(t, travel.Limits{})
	w.lateAt(w.desks[1])
	if err := w.desks[0].core.Cancel(w.now, 1); err != nil {
		t.Fatal(err)
	}
	w.settle(t, nil)
	if s := w.desks[1].core.Sizes(); s.Lapsed+s.Stateful != 0 || s.Tombstones != 1 {
		t.Errorf("after CANCEL the second desk has %+v", s)
	}
	p.finish(w, travel.End{})
}

// TestStatefulBound: where there is no room for the tombstone that it may need, a stateful invocation is refused, and says
// why; what was lost is not forgotten for it, and neither other principals nor stateless invocations notice.
func TestStatefulBound(t *testing.T) {
	w := newTown(t, 3, travel.Limits{Stateful: 3, PrincipalStateful: 2})
	w.desks[1].core.PeerLost(w.now, 3, errors.New("again under its principal"))
	if err := w.desks[1].core.PeerUp(w.now, 3, travel.PeerInfo{Incarnation: 3, Name: "c", Principal: "carol", Member: true, Injector: true}); err != nil {
		t.Fatal(err)
	}
	begin := func(origin int, stateful bool) error {
		d := w.desks[origin]
		b, err := d.core.Bind(w.now, w.image, travel.ID{})
		if err != nil {
			t.Fatal(err)
		}
		before := len(d.ended)
		if _, err := d.core.Start(w.now, &travel.StartArgs{Binding: b, Roots: []travel.Root{{To: 2}}, Deadline: w.now + 10*second, Stateful: stateful}); err != nil {
			t.Fatal(err)
		}
		for _, p := range w.settle(t, nil) {
			if stateful {
				if err := p.d.core.HoldState(p.r, "scratch"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(d.ended) > before {
			return d.ended[before].Err
		}
		return nil
	}
	for i := range 2 {
		if err := begin(0, true); err != nil {
			t.Fatalf("invocation %d: %v", i, err)
		}
	}
	w.desks[0].core.PeerLost(w.now, 2, errors.New("cut"))
	w.lostAt(t, 1, 0)
	w.join(t, 0, 1, true)
	before := len(w.desks[0].ended)
	if s := w.desks[1].core.Sizes(); s.Stateful != 2 {
		t.Fatalf("%+v, want two places taken", s)
	}
	if err := begin(0, true); !errors.Is(err, travel.ErrBackpressure) || !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "PrincipalStateful") {
		t.Errorf("a third of one principal: %v", err)
	}
	if err := begin(0, false); err != nil {
		t.Errorf("a stateless one: %v", err)
	}
	if err := begin(2, true); err != nil {
		t.Errorf("another principal's: %v", err)
	}
	if err := begin(2, true); !errors.Is(err, travel.ErrBackpressure) || !strings.Contains(err.Error(), "Limits.Stateful") {
		t.Errorf("a fourth in all: %v", err)
	}
	if before != 2 {
		t.Errorf("%d futures had ended by the cut, want 2", before)
	}
}
