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

// visit lets the middle take the only branch that the origin sent as a visit.
func (n *line) visit(t *testing.T) (*travel.Visit, *placed) {
	t.Helper()
	m := injects(n.origin.take())
	if len(m) != 1 {
		t.Fatalf("%d branches were sent, want 1", len(m))
	}
	v := n.middle.core.Arrive(n.now, 1, m[0].body)
	if v == nil {
		t.Fatal("this takes a run")
	}
	p := &placed{d: n.middle}
	v.User, v.Run = p, &p.r
	return v, p
}

// TestVisit: whatever happens while a visit is open, its branch ends once, as a run's would.
func TestVisit(t *testing.T) {
	finish := func(t *testing.T, n *line, p *placed) {
		n.middle.core.Become()
		if p.r == nil || p.r.User != any(p) || string(p.r.Payload) != "go" {
			t.Fatalf("the visit became %+v", p.r)
		}
		p.finish(n.town, travel.End{})
	}
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, n *line, p *placed)
		stops int
		err   error
		gone  bool // the branch needs no end here
	}{
		{name: "an answer", gone: true, do: func(t *testing.T, n *line, p *placed) {
			if !n.middle.core.Answer(nil, false) {
				t.Error("not taken")
			}
		}},
		{name: "onward", gone: true, do: func(t *testing.T, n *line, p *placed) {
			if !n.middle.core.Onward(n.now, 3, []byte("on")) {
				t.Error("not taken")
			}
			if s := n.middle.core.Sizes(); s.Records != 1 || s.Invocations != 0 || s.Running != 0 {
				t.Errorf("the middle keeps %+v", s)
			}
			n.one(t, n.settle(t, nil)).finish(n.town, travel.End{})
		}},
		{name: "onward and lost", gone: true, err: travel.ErrPeerLost, do: func(t *testing.T, n *line, p *placed) {
			if !n.middle.core.Onward(n.now, 3, []byte("on")) {
				t.Error("not taken")
			}
			n.middle.take()
			n.middle.core.PeerLost(n.now, 3, errors.New("cut"))
			n.last.core.PeerLost(n.now, 2, errors.New("cut"))
		}},
		{name: "a run's end", do: func(*testing.T, *line, *placed) {}},
		{name: "a wake-up", do: func(_ *testing.T, n *line, _ *placed) { n.middle.core.Tick(n.now + second/40) }},
		{name: "CANCEL", stops: 1, err: travel.ErrCanceled, do: func(t *testing.T, n *line, _ *placed) {
			if err := n.origin.core.Cancel(n.now, 4); err != nil {
				t.Fatal(err)
			}
			n.settle(t, nil)
		}},
		{name: "the deadline", stops: 1, err: travel.ErrDeadline, do: func(_ *testing.T, n *line, _ *placed) {
			n.now += second
			n.middle.core.Tick(n.now)
		}},
		{name: "its origin lost", stops: 1, err: travel.ErrPeerLost, do: func(_ *testing.T, n *line, _ *placed) {
			n.middle.core.PeerLost(n.now, 1, nil)
			n.origin.core.PeerLost(n.now, 2, nil)
		}},
		{name: "another lost", do: func(_ *testing.T, n *line, _ *placed) {
			n.middle.core.PeerLost(n.now, 3, nil)
			n.last.core.PeerLost(n.now, 2, nil)
		}},
		{name: "all ended", stops: 1, err: travel.ErrStopping, do: func(_ *testing.T, n *line, _ *placed) {
			n.middle.core.EndAll(n.now, "the lights go out")
		}},
		{name: "another arrives", do: func(t *testing.T, n *line, _ *placed) {
			n.start(t, travel.StartArgs{}, 2)
			m := injects(n.origin.take())[0]
			if n.middle.core.Arrive(n.now, 1, m.body) != nil {
				t.Error("two visits at once")
			}
			n.middle.core.Finish(n.now, n.middle.deliverFrom(t, n.now, 1, []sentMsg{m})[0], travel.End{})
			n.settle(t, nil)
			n.origin.ended = n.origin.ended[:0]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			n.start(t, travel.StartArgs{}, 2)
			before := n.middle.core.Counters()
			v, p := n.visit(t)
			if v.Origin() != 1 || v.Deadline() <= n.now || v.Deadline() > n.now+second || string(v.Payload) != "go" {
				t.Errorf("visit %+v", v)
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
	for name, leave := range map[string]func(n *line) bool{
		"a long answer":  func(n *line) bool { return n.middle.core.Answer(make([]byte, travel.MaxDataBytes+1), true) },
		"to nobody":      func(n *line) bool { return n.middle.core.Onward(n.now, 9, nil) },
		"to itself":      func(n *line) bool { return n.middle.core.Onward(n.now, travel.Self, nil) },
		"a long payload": func(n *line) bool { return n.middle.core.Onward(n.now, 3, make([]byte, travel.MaxDataBytes+1)) },
		"no credit":      func(n *line) bool { n.middle.full = true; return n.middle.core.Onward(n.now, 3, nil) },
		"no time":        func(n *line) bool { return n.middle.core.Onward(n.now+2*second, 3, nil) },
		"a new function": func(n *line) bool { return n.middle.core.Onward(n.now, 1, nil) }, // to the origin
		"no hops to go":  func(n *line) bool { return n.middle.core.Onward(n.now, 3, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			n.start(t, travel.StartArgs{}, 2)
			if name == "no hops to go" {
				n.origin.sent[n.origin.n-1].body[0] = 0
				n.origin.sent[n.origin.n-1].body[1] &= 0xf0
			}
			_, p := n.visit(t)
			before := n.middle.core.Counters()
			if leave(n) {
				t.Error("it was taken")
			}
			n.middle.full = false
			if got := n.middle.core.Counters(); got != before {
				t.Errorf("counted %+v, before %+v", got, before)
			}
			n.middle.core.Become()
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
	for range 2 {
		n.start(t, travel.StartArgs{}, 2)
	}
	m := injects(n.origin.take())
	if n.middle.core.Arrive(n.now, 1, m[1].body) != nil {
		t.Error("a visit out of turn")
	}
	r := n.middle.deliverFrom(t, n.now, 1, m[1:])[0]
	n.middle.core.Sizes() // notes its invocation down
	if n.middle.core.Arrive(n.now, 1, m[0].body) == nil || !n.middle.core.Answer([]byte("yes"), true) {
		t.Fatal("this takes a run")
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
		n.start(t, travel.StartArgs{}, 2)
		n.middle.core.Drain()
		if n.middle.core.Arrive(n.now, 1, injects(n.origin.take())[0].body) != nil {
			t.Error("it takes something new")
		}
	})
	t.Run("for itself", func(t *testing.T) {
		n := newRoad(t, travel.Limits{})
		n.start(t, travel.StartArgs{}, 2)
		b := injects(n.origin.take())[0].body
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

// TestVisitLimits: the bound on invocations holds while an errand and a visit count as such and are in no table.
func TestVisitLimits(t *testing.T) {
	const limit = 5
	n := newRoad(t, travel.Limits{Invocations: limit})
	b, err := n.middle.core.Bind(n.now, n.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if n.middle.core.Ask(n.now, b, 3, n.now+second, nil) == 0 {
		t.Fatal("this takes a future")
	}
	next := func() *travel.Visit {
		n.origin.ended = nil
		id := n.start(t, travel.StartArgs{}, 2)
		m := injects(n.origin.take())[0]
		v := n.middle.core.Arrive(n.now, 1, m.body)
		if err := n.origin.core.Cancel(n.now, id); err != nil { // it has the same limit
			t.Fatal(err)
		}
		n.origin.take()
		return v
	}
	var runs [limit]*travel.Run
	for i := range limit - 1 {
		v := next()
		if v == nil {
			t.Fatalf("%d invocations are here, and no more are taken", i+1)
		}
		if v.Run = &runs[i]; i == limit-2 { // the last stays
			break
		}
		if !n.middle.core.Onward(n.now, 3, nil) {
			t.Fatal("this takes a run")
		}
	}
	if _, err := n.middle.core.Start(n.now, &travel.StartArgs{Binding: b, Roots: []travel.Root{{To: 3}}, Deadline: n.now + second}); !errors.Is(err, travel.ErrBackpressure) {
		t.Errorf("one too many was started: %v", err)
	}
	n.middle.core.Become()
	if s := n.middle.core.Sizes(); s.Invocations > limit {
		t.Errorf("%d invocations, at most %d", s.Invocations, limit)
	}
}

// TestVisitRelaysFull: relays and an errand leave no room for a visit.
func TestVisitRelaysFull(t *testing.T) {
	const limit = 5
	n := newRoad(t, travel.Limits{Invocations: limit})
	b, err := n.middle.core.Bind(n.now, n.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if n.middle.core.Ask(n.now, b, 3, n.now+second, nil) == 0 {
		t.Fatal("this takes a future")
	}
	taken := 0
	for range limit {
		id := n.start(t, travel.StartArgs{}, 2)
		var run *travel.Run
		v := n.middle.core.Arrive(n.now, 1, injects(n.origin.take())[0].body)
		if v != nil {
			taken++
			if v.Run = &run; !n.middle.core.Onward(n.now, 3, nil) {
				t.Fatal("this takes a run")
			}
		}
		if err := n.origin.core.Cancel(n.now, id); err != nil { // it has the same limit
			t.Fatal(err)
		}
		n.origin.take()
	}
	if taken != limit-1 {
		t.Errorf("%d visits beside an errand, want %d", taken, limit-1)
	}
}
