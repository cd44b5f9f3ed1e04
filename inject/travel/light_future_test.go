package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// ask starts a light future at the origin, to the middle, which knows the function.
func (n *line) ask(t *testing.T, payload string) travel.FutureID {
	t.Helper()
	id := n.origin.core.Ask(n.now, n.bind, 2, n.now+second, []byte(payload))
	if id == 0 {
		t.Fatal("this takes no future")
	}
	return id
}

// take lets the middle have what the origin sent, which must be one branch.
func (n *line) take(t *testing.T) placed {
	t.Helper()
	return n.one(t, n.settle(t, nil))
}

// TestLightFutureRefusals: whatever a light future cannot be is left to Start, and nothing has happened.
func TestLightFutureRefusals(t *testing.T) {
	const hour = 3600 * second
	for _, c := range []struct {
		name     string
		to       travel.Peer
		deadline travel.Instant
		payload  int
		before   func(t *testing.T, n *line)
	}{
		{name: "itself", to: travel.Self, deadline: second},
		{name: "nobody", to: 9, deadline: second},
		{name: "one that does not know the function", to: 3, deadline: second},
		{name: "no time", to: 2},
		{name: "less than can be said", to: 2, deadline: 10},
		{name: "too much time", to: 2, deadline: 1000 * hour},
		{name: "too long", to: 2, deadline: second, payload: travel.MaxDataBytes + 1},
		{name: "draining", to: 2, deadline: second, before: func(_ *testing.T, n *line) { n.origin.core.Drain() }},
		{name: "no credit", to: 2, deadline: second, before: func(_ *testing.T, n *line) { n.origin.full = true }},
		{name: "not pinned", to: 2, deadline: second, before: func(_ *testing.T, n *line) {
			n.origin.core.Unbind(n.bind)
			n.now += 1000 * second
			n.origin.core.Tick(n.now)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			if c.before != nil {
				c.before(t, n)
			}
			n.origin.take()
			before := n.origin.core.Counters()
			if id := n.origin.core.Ask(n.now, n.bind, c.to, n.now+c.deadline, make([]byte, c.payload)); id != 0 {
				t.Errorf("future %d was started", id)
			}
			if n.origin.core.Counters() != before || len(n.origin.take()) != 0 || n.origin.core.Sizes().Futures != 0 {
				t.Error("something happened")
			}
		})
	}
}

// TestLightFutureLimits: light futures fill no table over its limit, and their transfers no window.
func TestLightFutureLimits(t *testing.T) {
	for name, l := range map[string]travel.Limits{"futures": {Futures: 5}, "invocations": {Invocations: 5}, "records": {Records: 8}, "window": {}} {
		t.Run(name, func(t *testing.T) {
			n := newRoad(t, l)
			most := 5
			switch name {
			case "records":
				most = 6 // three quarters
			case "window":
				most = travel.WindowTransfers
			}
			ids := 0
			for n.origin.core.Ask(n.now, n.bind, 2, n.now+second, nil) != 0 {
				if ids++; ids > most {
					t.Fatalf("%d light futures, want at most %d", ids, most)
				}
			}
			if s := n.origin.core.Sizes(); ids == 0 || s.Futures != ids || s.Invocations != ids || s.Records != ids {
				t.Errorf("%d light futures: %+v", ids, s)
			}
		})
	}
}

// TestLightFutureTime: the branch gets what is left when the origin keeps some of the time for the answer, as with Start.
func TestLightFutureTime(t *testing.T) {
	n := newRoad(t, travel.Limits{})
	n.start(t, travel.StartArgs{}, 2)
	n.ask(t, "go")
	sent := injects(n.origin.take())
	for i := range sent {
		sent[i].body[6], sent[i].body[9] = 0, 0 // the transfer's number and the invocation's
	}
	if string(sent[0].body) != string(sent[1].body) {
		t.Errorf("a light future is sent as %x, by Start as %x", sent[1].body, sent[0].body)
	}
}

// TestLightFuture: whatever happens to a light future, it ends once as a future would, and leaves nothing.
func TestLightFuture(t *testing.T) {
	lost := func(t *testing.T, n *line) {
		n.origin.take()
		n.origin.core.PeerLost(n.now, 2, errors.New("cut"))
		n.middle.core.PeerLost(n.now, 1, errors.New("cut"))
	}
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, n *line, id travel.FutureID)
		err   error
		reply string
	}{
		{name: "an answer", reply: "yes", do: func(t *testing.T, n *line, _ travel.FutureID) {
			n.take(t).finish(n.town, travel.End{Result: []byte("yes"), HasResult: true})
		}},
		{name: "no result", do: func(t *testing.T, n *line, _ travel.FutureID) { n.take(t).finish(n.town, travel.End{}) }},
		{name: "an error", err: &travel.RemoteError{}, do: func(t *testing.T, n *line, _ travel.FutureID) {
			n.take(t).finish(n.town, travel.End{Code: travel.CodeTrap, Text: "no"})
		}},
		{name: "a fork", do: func(t *testing.T, n *line, _ travel.FutureID) {
			p := n.take(t)
			if _, err := p.d.core.Fork(n.now, p.r, 3, nil, nil); err != nil {
				t.Fatal(err)
			}
			p.finish(n.town, travel.End{})
			n.take(t).finish(n.town, travel.End{})
		}},
		{name: "its branch comes home", do: func(t *testing.T, n *line, _ travel.FutureID) {
			p := n.take(t)
			if err := p.d.core.Forward(n.now, p.r, 1, nil); err != nil {
				t.Fatal(err)
			}
			p.finish(n.town, travel.End{})
			n.take(t).finish(n.town, travel.End{})
		}},
		{name: "a part", reply: "part", do: func(t *testing.T, n *line, _ travel.FutureID) {
			p := n.take(t)
			if err := p.d.core.Part(n.now, p.r, []byte("part")); err != nil {
				t.Fatal(err)
			}
			p.finish(n.town, travel.End{})
		}},
		{name: "an ACK first", do: func(t *testing.T, n *line, _ travel.FutureID) {
			p := n.take(t)
			n.pass(t, second/20)
			p.finish(n.town, travel.End{})
		}},
		{name: "CANCEL", err: travel.ErrCanceled, do: func(t *testing.T, n *line, id travel.FutureID) {
			p := n.take(t)
			if err := n.origin.core.Cancel(n.now, id); err != nil {
				t.Fatal(err)
			}
			n.settle(t, nil)
			p.finish(n.town, travel.End{})
		}},
		{name: "the deadline", err: travel.ErrDeadline, do: func(t *testing.T, n *line, _ travel.FutureID) {
			n.origin.take()
			n.now += 2 * second
			n.origin.core.Tick(n.now)
		}},
		{name: "the peer lost", err: travel.ErrPeerLost, do: func(t *testing.T, n *line, _ travel.FutureID) { lost(t, n) }},
		{name: "refused", err: travel.ErrStopping, do: func(t *testing.T, n *line, _ travel.FutureID) { n.middle.core.Drain() }},
		{name: "lost further on", err: travel.ErrPeerLost, do: func(t *testing.T, n *line, _ travel.FutureID) {
			p := n.take(t)
			n.onward(t, p)
			n.middle.take()
			n.middle.core.PeerLost(n.now, 3, errors.New("cut"))
			n.last.core.PeerLost(n.now, 2, errors.New("cut"))
		}},
		{name: "all ended", err: travel.ErrStopping, do: func(t *testing.T, n *line, _ travel.FutureID) {
			n.origin.core.EndAll(n.now, "the lights go out")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			before := n.origin.core.Counters()
			n.origin.parts = nil
			c.do(t, n, n.ask(t, "go"))
			for _, p := range n.settle(t, nil) {
				p.finish(n.town, travel.End{})
			}
			n.settle(t, nil)
			err := n.outcome(t)
			var remote *travel.RemoteError
			if _, is := c.err.(*travel.RemoteError); is && !errors.As(err, &remote) || !is && !errors.Is(err, c.err) {
				t.Errorf("ended with %v, want %v", err, c.err)
			}
			got := ""
			for _, p := range n.origin.parts {
				got += string(p)
			}
			if got != c.reply {
				t.Errorf("the reply is %q, want %q", got, c.reply)
			}
			after := n.origin.core.Counters()
			if after.Started != before.Started+1 || after.Succeeded+after.Failed != before.Succeeded+before.Failed+1 {
				t.Errorf("counted %+v, before %+v", after, before)
			}
			n.empty(t)
		})
	}
}

// TestLightFutureNotTheirs: only its own peer ends a light future, by releasing its own transfer.
func TestLightFutureNotTheirs(t *testing.T) {
	for name, c := range map[string]struct {
		from travel.Peer
		body func(seq, transfer byte) []byte
	}{
		"another peer":     {3, func(seq, transfer byte) []byte { return []byte{4, seq, 0, 0, 0, 0, transfer, 0, 0} }},
		"another transfer": {2, func(seq, transfer byte) []byte { return []byte{4, seq, 0, 0, 0, 0, transfer - 1, 0, 0} }},
		"another future":   {2, func(seq, transfer byte) []byte { return []byte{4, seq + 1, 0, 0, 0, 0, transfer, 0, 0} }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newRoad(t, travel.Limits{})
			id := n.ask(t, "go")
			succeeded := n.origin.core.Counters().Succeeded
			sent := byte(id) - 1 // one transfer an invocation
			if n.origin.core.Done(n.now, c.from, c.body(byte(id), sent)) {
				t.Fatal("it is taken for the light future's answer")
			}
			p := n.take(t)
			_, err := n.origin.core.Recv(n.now, c.from, travel.KindDone, c.body(byte(id), sent))
			if name != "another transfer" && !errors.Is(err, travel.ErrProtocol) {
				t.Errorf("the origin takes it: %v", err)
			}
			if name == "another transfer" {
				return // that was released before: it may be late, and says that the branch ended
			}
			if n.origin.core.Counters().Succeeded != succeeded || len(n.origin.ended) != 0 {
				t.Error("it ended the light future")
			}
			p.finish(n.town, travel.End{})
			n.settle(t, nil)
			if err := n.outcome(t); err != nil {
				t.Error(err)
			}
			n.empty(t)
		})
	}
}

// TestLightFutureToStranger: an element that is no member hears of the end of what it was sent, and may speak about it.
func TestLightFutureToStranger(t *testing.T) {
	w := &town{desks: []*desk{newDesk(t, 1, travel.Limits{}), newDesk(t, 2, travel.Limits{})}}
	w.join(t, 0, 1, false)
	w.join(t, 1, 0, true)
	for _, d := range w.desks {
		w.image = d.put([]byte("image"))
	}
	var err error
	if w.bind, err = w.desks[0].core.Bind(0, w.image, travel.ID{}); err != nil {
		t.Fatal(err)
	}
	w.start(t, travel.StartArgs{}, 2) // declares
	w.one(t, w.settle(t, nil)).finish(w, travel.End{})
	w.settle(t, nil)
	n := &line{w, w.desks[0], w.desks[1], nil}
	n.origin.ended = nil
	for _, end := range []travel.End{{}, {Code: travel.CodeTrap, Text: "no"}} {
		n.ask(t, "go")
		n.take(t).finish(w, end)
		n.settle(t, nil)
	}
	id := n.ask(t, "go")
	p := n.take(t)
	if err := n.origin.core.Cancel(n.now, id); err != nil {
		t.Fatal(err)
	}
	n.settle(t, nil)
	if len(p.d.stops) != 1 {
		t.Error("it did not hear of the cancellation")
	}
	p.finish(w, travel.End{})
	var remote *travel.RemoteError
	if len(n.origin.ended) != 3 || n.origin.ended[0].Err != nil || !errors.As(n.origin.ended[1].Err, &remote) || !errors.Is(n.origin.ended[2].Err, travel.ErrCanceled) {
		t.Errorf("ended: %+v", n.origin.ended)
	}
	n.empty(t)
}
