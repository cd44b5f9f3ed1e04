package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// injects are the INJECTs among messages.
func injects(msgs []sentMsg) (found []sentMsg) {
	for _, m := range msgs {
		if m.kind == travel.KindInject {
			found = append(found, m)
		}
	}
	return found
}

// TestAnsweredDeclares: the answer to the first branch says that its declaration was taken.
func TestAnsweredDeclares(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	for i := range 3 {
		w.start(t, travel.StartArgs{}, 2)
		sent := w.desks[0].take()
		if n, short := len(injects(sent)[0].body), 14+len("go"); i > 0 && n != short {
			t.Errorf("INJECT %d has %d bytes, want %d", i, n, short)
		}
		for _, m := range sent {
			r, err := w.desks[1].core.Recv(w.now, 1, m.kind, m.body)
			if err != nil || r == nil {
				t.Fatalf("%v: %v, %v", m.kind, r, err)
			}
			w.desks[1].core.Finish(w.now, r, travel.End{})
		}
		w.desks[0].deliverFrom(t, w.now, 2, w.desks[1].take())
	}
	if n := len(w.desks[0].ended); n != 3 {
		t.Errorf("%d of 3 futures ended", n)
	}
	w.empty(t)
}

// TestAnsweredAfterHold: the element that answers need not be the one that holds state: that is freed too.
func TestAnsweredAfterHold(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{Stateful: true}, 2)
	p := w.one(t, w.settle(t, nil))
	if err := p.d.core.HoldState(p.r, 7); err != nil {
		t.Fatal(err)
	}
	for _, to := range []travel.Peer{1, 3} { // home, and to another one
		if err := p.d.core.Forward(w.now, p.r, to, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		p = w.one(t, w.settle(t, nil))
		if more := w.pass(t, second/10); len(more) != 0 { // the first transfer is released meanwhile
			t.Fatalf("%d runs too many", len(more))
		}
	}
	p.finish(w, travel.End{})
	w.settle(t, nil)
	if err := w.outcome(t); err != nil || w.desks[1].freed != 1 {
		t.Errorf("ended with %v; state was freed %d times, want once", err, w.desks[1].freed)
	}
	w.empty(t)
}

// TestSpentBindings: a binding that only completed futures use makes room for what arrives.
func TestSpentBindings(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Bindings: 1})
	w.start(t, travel.StartArgs{}, 2)
	w.desks[0].core.Unbind(w.bind)
	p := w.one(t, w.settle(t, nil))
	p.finish(w, travel.End{})
	w.desks[0].deliverFrom(t, w.now, 2, w.desks[1].take())
	if err := w.outcome(t); err != nil {
		t.Fatal(err)
	}
	other := w.desks[1].core
	b, err := other.Bind(w.now, w.desks[1].put([]byte("another image")), travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Start(w.now, &travel.StartArgs{Binding: b, Roots: []travel.Root{{To: 1}}, Deadline: w.now + second}); err != nil {
		t.Fatal(err)
	}
	other.Unbind(b)
	w.one(t, w.settle(t, nil)).finish(w, travel.End{})
	w.settle(t, nil)
	if n := len(w.desks[1].ended); n != 1 || w.desks[1].ended[0].Err != nil {
		t.Errorf("the other way round: %+v", w.desks[1].ended)
	}
	w.empty(t)
}

// TestLateBranch: a branch of a future that has completed is not run, also if its element puts that away later.
func TestLateBranch(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	if _, err := p.d.core.Fork(w.now, p.r, 1, nil, []byte("late")); err != nil {
		t.Fatal(err)
	}
	fork := injects(p.d.take())
	if len(fork) != 1 {
		t.Fatal("the fork was not sent")
	}
	p.finish(w, travel.End{})
	p.d.take() // its end does not arrive, but one that lies does
	w.desks[0].deliverFrom(t, w.now, 2, []sentMsg{{1, travel.KindDone, []byte{4, 1, 0, 0, 0, 0, 0, 0, 0}}})
	if err := w.outcome(t); err != nil {
		t.Fatal(err)
	}
	r, err := w.desks[0].core.Recv(w.now, 2, fork[0].kind, fork[0].body)
	if err != nil || r != nil || w.desks[0].core.Ready() {
		t.Errorf("a late branch: %v, %v", r, err)
	}
}

// TestLoose: whatever happens while a run that came from its origin executes, before its invocation is noted down.
func TestLoose(t *testing.T) {
	cancel := func(w *town) { w.desks[0].core.Cancel(w.now, 1) }
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, w *town, p placed)
		stops int
		err   error // of the future
	}{
		{"nothing", func(t *testing.T, w *town, p placed) {}, 0, nil},
		{"CANCEL", func(t *testing.T, w *town, p placed) { cancel(w); w.settle(t, nil) }, 1, travel.ErrCanceled},
		{"CANCEL twice", func(t *testing.T, w *town, p placed) {
			cancel(w)
			for range 2 {
				p.d.deliverFrom(t, w.now, 1, w.desks[0].sentTwice())
			}
		}, 1, travel.ErrCanceled},
		{"its origin lost", func(t *testing.T, w *town, p placed) {
			p.d.core.PeerLost(w.now, 1, nil)
			w.desks[0].core.PeerLost(w.now, 2, nil)
		}, 1, travel.ErrPeerLost},
		{"somebody else lost", func(t *testing.T, w *town, p placed) {
			p.d.core.PeerLost(w.now, 3, nil)
			w.desks[2].core.PeerLost(w.now, 2, nil)
		}, 0, nil},
		{"the deadline", func(t *testing.T, w *town, p placed) { w.now += second; p.d.core.Tick(w.now) }, 1, travel.ErrDeadline},
		{"the next wake-up", func(t *testing.T, w *town, p placed) {
			next, ok := p.d.core.Next(w.now)
			if !ok || next > w.now+second/10 {
				t.Errorf("the core wants to be woken at %d, %v", next, ok)
			}
			for ; ok && next <= w.now+second+second/100; next, ok = p.d.core.Tick(next) {
			}
		}, 1, nil},
		{"a sibling", func(t *testing.T, w *town, p placed) {
			w.start(t, travel.StartArgs{}, 2, 2)
			for _, q := range w.settle(t, nil) {
				q.finish(w, travel.End{})
			}
		}, 0, nil},
		{"a fork to itself", func(t *testing.T, w *town, p placed) {
			if _, err := p.d.core.Fork(w.now, p.r, travel.Self, nil, nil); err != nil {
				t.Fatal(err)
			}
			w.one(t, w.settle(t, nil)).finish(w, travel.End{})
		}, 0, nil},
		{"a fork", func(t *testing.T, w *town, p placed) {
			if _, err := p.d.core.Fork(w.now, p.r, 3, nil, nil); err != nil {
				t.Fatal(err)
			}
			w.one(t, w.settle(t, nil)).finish(w, travel.End{})
		}, 0, nil},
		{"a forward", func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
				t.Fatal(err)
			}
			w.one(t, w.settle(t, nil)).finish(w, travel.End{})
		}, 0, nil},
		{"a forward to itself", func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, travel.Self, nil); err != nil {
				t.Fatal(err)
			}
			w.one(t, w.settle(t, nil)).finish(w, travel.End{})
		}, 0, nil},
		{"a part", func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Part(w.now, p.r, []byte("part")); err != nil {
				t.Fatal(err)
			}
			w.settle(t, nil)
		}, 0, nil},
		{"a forward and CANCEL", func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
				t.Fatal(err)
			}
			cancel(w)
			for _, q := range w.settle(t, nil) {
				q.finish(w, travel.End{})
			}
		}, 1, travel.ErrCanceled},
		{"its own invocation elsewhere", func(t *testing.T, w *town, p placed) {
			b, err := p.d.core.Bind(w.now, w.image, travel.ID{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.d.core.Start(w.now, &travel.StartArgs{Binding: b, Roots: []travel.Root{{To: 3}, {To: travel.Self}}, Deadline: w.now + second}); err != nil {
				t.Fatal(err)
			}
			p.d.core.Unbind(b)
			for _, q := range w.settle(t, nil) {
				q.finish(w, travel.End{})
			}
		}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, stateful := range []bool{false, true} {
				w := newTown(t, 3, travel.Limits{})
				w.start(t, travel.StartArgs{Stateful: stateful}, 2)
				p := w.one(t, w.settle(t, nil))
				if stateful {
					if err := p.d.core.HoldState(p.r, 1); err != nil {
						t.Fatal(err)
					}
					if strings.Contains(c.name, "itself") {
						continue // it would wait for its turn
					}
				}
				c.do(t, w, p)
				if n := len(p.d.stops); n != c.stops {
					t.Errorf("stopped %d times, want %d", n, c.stops)
				}
				p.finish(w, travel.End{})
				for _, q := range w.settle(t, nil) {
					q.finish(w, travel.End{})
				}
				w.settle(t, nil)
				w.now += 2 * second
				for _, d := range w.desks {
					d.core.Tick(w.now)
				}
				if err := w.desks[0].ended[0].Err; c.name != "the next wake-up" && !errors.Is(err, c.err) {
					t.Errorf("the future ended with %v, want %v", err, c.err)
				}
				w.empty(t)
				if stateful && p.d.freed != 1 {
					t.Errorf("state was freed %d times", p.d.freed)
				}
			}
		})
	}
}

// sentTwice is what was sent, and stays so once.
func (d *desk) sentTwice() (msgs []sentMsg) {
	n := d.n
	for _, m := range d.take() {
		if m.to == 2 {
			msgs = append(msgs, m)
		}
	}
	d.n = n
	return msgs
}
