package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// newRoad is a line whose middle has answered too: each element knows that the next one has the function.
func newRoad(t *testing.T, l travel.Limits) *line {
	t.Helper()
	n := newLine(t, l)
	for range 2 {
		n.start(t, travel.StartArgs{}, 2)
		n.one(t, n.settle(t, nil)).finish(n.town, travel.End{})
		n.settle(t, nil)
	}
	n.origin.ended = nil
	n.left(t, 0, 0)
	return n
}

// send starts a branch at the middle and takes the message that it leaves with.
func (n *line) send(t *testing.T) (travel.FutureID, []byte) {
	t.Helper()
	id := n.start(t, travel.StartArgs{}, 2)
	m := injects(n.origin.take())
	if len(m) != 1 {
		t.Fatalf("%d branches were sent, want 1", len(m))
	}
	return id, m[0].body
}

// visit starts a branch and lets the middle take it as a visit, its message changed.
func (n *line) visit(t *testing.T, changes ...func(body []byte)) placed {
	t.Helper()
	_, body := n.send(t)
	for _, change := range changes {
		change(body)
	}
	r := n.middle.core.Arrive(n.now, 1, body)
	if r == nil {
		t.Fatal("it is no light run")
	}
	r.User = n
	return placed{n.middle, r}
}

// TestVisit: whatever happens while a visit is open, its branch ends once, as a run's would.
func TestVisit(t *testing.T) {
	finish := func(t *testing.T, n *line, p placed) {
		n.middle.core.Sizes() // it has its records now
		if p.r.User != any(n) || string(p.r.Payload) != "go" {
			t.Fatalf("the light run became %+v", p.r)
		}
		p.finish(n.town, travel.End{})
	}
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, n *line, p placed)
		stops int
		err   error
		gone  bool // the branch needs no end here
	}{
		{name: "an answer", gone: true, do: func(t *testing.T, n *line, p placed) {
			if !n.middle.core.Answer(p.r, nil, false) {
				t.Error("not taken")
			}
		}},
		{name: "onward", gone: true, do: func(t *testing.T, n *line, p placed) {
			if !n.middle.core.Onward(n.now, p.r, 3, []byte("on")) {
				t.Error("not taken")
			}
			if s := n.middle.core.Sizes(); s.Records != 1 || s.Invocations != 0 || s.Running != 0 {
				t.Errorf("the middle keeps %+v", s)
			}
			n.one(t, n.settle(t, nil)).finish(n.town, travel.End{})
		}},
		{name: "onward and lost", gone: true, err: travel.ErrPeerLost, do: func(t *testing.T, n *line, p placed) {
			if !n.middle.core.Onward(n.now, p.r, 3, []byte("on")) {
				t.Error("not taken")
			}
			n.middle.take()
			n.middle.core.PeerLost(n.now, 3, errors.New("cut"))
			n.last.core.PeerLost(n.now, 2, errors.New("cut"))
		}},
		{name: "a run's end", do: func(*testing.T, *line, placed) {}},
		{name: "a wake-up", do: func(_ *testing.T, n *line, _ placed) { n.middle.core.Tick(n.now + second/40) }},
		{name: "CANCEL", stops: 1, err: travel.ErrCanceled, do: func(t *testing.T, n *line, _ placed) {
			if err := n.origin.core.Cancel(n.now, 4); err != nil {
				t.Fatal(err)
			}
			n.settle(t, nil)
		}},
		{name: "the deadline", stops: 1, err: travel.ErrDeadline, do: func(_ *testing.T, n *line, _ placed) {
			n.now += second
			n.middle.core.Tick(n.now)
		}},
		{name: "its origin lost", stops: 1, err: travel.ErrPeerLost, do: func(_ *testing.T, n *line, _ placed) {
			n.middle.core.PeerLost(n.now, 1, nil)
			n.origin.core.PeerLost(n.now, 2, nil)
		}},
		{name: "another lost", do: func(_ *testing.T, n *line, _ placed) {
			n.middle.core.PeerLost(n.now, 3, nil)
			n.last.core.PeerLost(n.now, 2, nil)
		}},
		{name: "all ended", stops: 1, err: travel.ErrStopping, do: func(_ *testing.T, n *line, _ placed) {
			n.middle.core.EndAll(n.now, "the lights go out")
		}},
		{name: "another arrives", do: func(t *testing.T, n *line, _ placed) {
			_, body := n.send(t)
			if n.middle.core.Arrive(n.now, 1, body) != nil {
				t.Error("two visits at once")
			}
			n.middle.core.Finish(n.now, n.middle.deliverFrom(t, n.now, 1, []sentMsg{{2, travel.KindInject, body}})[0], travel.End{})
			n.settle(t, nil)
			n.origin.ended = n.origin.ended[:0]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			before := n.middle.core.Counters()
			p := n.visit(t)
			if r := p.r; r.Origin() != 1 || r.Deadline() <= n.now || r.Deadline() > n.now+second || string(r.Payload) != "go" || r.Branch() != 0 || r.Invocation().Origin != 1 || r.Stateful() || r.State() != nil || r.Ended() {
				t.Errorf("the light run is %+v", r)
			}
			c.do(t, n, p)
			if len(n.middle.stops) != c.stops {
				t.Errorf("stopped %d times, want %d", len(n.middle.stops), c.stops)
			}
			if !c.gone {
				finish(t, n, p)
			}
			n.settle(t, nil)
			if err := n.outcome(t); !errors.Is(err, c.err) {
				t.Errorf("ended with %v, want %v", err, c.err)
			}
			if got := n.middle.core.Counters().Runs; got == before.Runs {
				t.Error("no run was counted")
			}
			n.empty(t)
		})
	}
}

// TestVisitStays: what cannot be done in the quick way leaves the visit as it is.
func TestVisitStays(t *testing.T) {
	for name, leave := range map[string]func(n *line, p placed) bool{
		"a long answer": func(n *line, p placed) bool {
			return n.middle.core.Answer(p.r, make([]byte, travel.MaxDataBytes+1), true)
		},
		"to nobody": func(n *line, p placed) bool { return n.middle.core.Onward(n.now, p.r, 9, nil) },
		"to itself": func(n *line, p placed) bool { return n.middle.core.Onward(n.now, p.r, travel.Self, nil) },
		"a long payload": func(n *line, p placed) bool {
			return n.middle.core.Onward(n.now, p.r, 3, make([]byte, travel.MaxDataBytes+1))
		},
		"no credit":      func(n *line, p placed) bool { n.middle.full = true; return n.middle.core.Onward(n.now, p.r, 3, nil) },
		"no time":        func(n *line, p placed) bool { return n.middle.core.Onward(n.now+2*second, p.r, 3, nil) },
		"a new function": func(n *line, p placed) bool { return n.middle.core.Onward(n.now, p.r, 1, nil) }, // to the origin
		"no hops to go":  func(n *line, p placed) bool { return n.middle.core.Onward(n.now, p.r, 3, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			p := n.visit(t, func(body []byte) {
				if name == "no hops to go" {
					body[0] = 0
					body[1] &= 0xf0
				}
			})
			before := n.middle.core.Counters()
			if leave(n, p) {
				t.Error("it was taken")
			}
			n.middle.full = false
			if got := n.middle.core.Counters(); got != before {
				t.Errorf("counted %+v, before %+v", got, before)
			}
			n.middle.core.Sizes() // it has its records now
			p.finish(n.town, travel.End{})
			n.settle(t, nil)
			if err := n.outcome(t); err != nil {
				t.Error(err)
			}
			n.empty(t)
		})
	}
}

// TestVisitEarly: what came before its turn does not give a visit its number.
func TestVisitEarly(t *testing.T) {
	n := newRoad(t, travel.Limits{})
	_, first := n.send(t)
	_, second := n.send(t)
	if n.middle.core.Arrive(n.now, 1, second) != nil {
		t.Error("a visit out of turn")
	}
	r := n.middle.deliverFrom(t, n.now, 1, []sentMsg{{2, travel.KindInject, second}})[0]
	n.middle.core.Sizes() // notes its invocation down
	light := n.middle.core.Arrive(n.now, 1, first)
	if light == nil || n.middle.core.Answer(r, []byte("no"), true) || !n.middle.core.Answer(light, []byte("yes"), true) {
		t.Fatal("it is no light run, or another is taken for it")
	}
	n.middle.core.Finish(n.now, r, travel.End{})
	n.settle(t, nil)
	if len(n.origin.ended) != 2 || n.origin.ended[0].Err != nil || n.origin.ended[1].Err != nil {
		t.Errorf("ended: %+v", n.origin.ended)
	}
	n.empty(t)
}

// TestVisitNot: what Recv would not take is no visit either.
func TestVisitNot(t *testing.T) {
	t.Run("draining", func(t *testing.T) {
		n := newRoad(t, travel.Limits{})
		_, b := n.send(t)
		n.middle.core.Drain()
		if n.middle.core.Arrive(n.now, 1, b) != nil {
			t.Error("it takes something new")
		}
	})
	t.Run("for itself", func(t *testing.T) {
		n := newRoad(t, travel.Limits{})
		_, b := n.send(t)
		b[1] |= 1 << 4 // an origin follows
		b = append(append(append([]byte(nil), b[:14]...), 1, 0, 0, 0, 0, 0, 0, 0), b[14:]...)
		if n.middle.core.Arrive(n.now, 1, b) != nil {
			t.Error("a sender that names itself as the origin")
		}
		if _, err := n.middle.core.Recv(n.now, 1, travel.KindInject, b); !errors.Is(err, travel.ErrProtocol) {
			t.Errorf("Recv says %v", err)
		}
	})
}

// TestVisitBesideTombs: what was canceled here stops nothing but branches of it.
func TestVisitBesideTombs(t *testing.T) {
	n := newRoad(t, travel.Limits{})
	id, late := n.send(t)
	if err := n.origin.core.Cancel(n.now, id); err != nil {
		t.Fatal(err)
	}
	for _, m := range n.origin.take() {
		if m.kind == travel.KindCancel {
			n.middle.deliverFrom(t, n.now, 1, []sentMsg{m}) // it overtakes the branch
		}
	}
	if got := n.middle.core.Sizes().Tombstones; got != 1 {
		t.Fatalf("%d tombstones, want 1", got)
	}
	if n.middle.core.Arrive(n.now, 1, late) != nil {
		t.Fatal("a canceled branch is a visit")
	}
	n.middle.deliverFrom(t, n.now, 1, []sentMsg{{kind: travel.KindInject, body: late}})
	n.settle(t, nil)
	p := n.visit(t)
	n.middle.core.Sizes() // it has its records now
	p.finish(n.town, travel.End{})
	n.settle(t, nil)
}

// TestVisitLimit: a light run counts as an invocation, though it is in no table.
func TestVisitLimit(t *testing.T) {
	n := newRoad(t, travel.Limits{Invocations: 3})
	var runs []*travel.Run
	for i := range 2 {
		_, body := n.send(t)
		r := n.middle.core.Arrive(n.now, 1, body)
		if r == nil {
			t.Fatalf("%d invocations are here, and no more are taken", i)
		}
		n.middle.core.Own(r)
		n.middle.core.Sizes() // it has its records now
		runs = append(runs, r)
	}
	_, body := n.send(t)
	if n.middle.core.Arrive(n.now, 1, body) != nil {
		t.Error("the last place is taken without a look at what else is put off")
	}
	for _, r := range runs {
		n.middle.core.Finish(n.now, r, travel.End{})
	}
}
