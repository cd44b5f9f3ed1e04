package travel_test

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// line is a town of three through which branches go from the origin by the middle to the last.
type line struct {
	*town
	origin, middle, last *desk
}

// newLine lets one invocation through, so that each element knows the function by its handle.
func newLine(t *testing.T, l travel.Limits) *line {
	t.Helper()
	w := newTown(t, 3, l)
	n := &line{w, w.desks[0], w.desks[1], w.desks[2]}
	n.start(t, travel.StartArgs{}, 2)
	n.onward(t, n.one(t, n.settle(t, nil)))
	n.one(t, n.settle(t, nil)).finish(w, travel.End{})
	n.settle(t, nil)
	for range 3 { // a report, its acknowledgement, the release
		n.pass(t, second/40)
	}
	if err := n.outcome(t); err != nil {
		t.Fatal(err)
	}
	n.origin.ended = nil
	n.left(t, 0, 0)
	return n
}

// onward sends a run's branch to the last, and gives the run back.
func (n *line) onward(t *testing.T, p placed) {
	t.Helper()
	if err := p.d.core.Forward(n.now, p.r, 3, []byte("on")); err != nil {
		t.Fatal(err)
	}
	p.finish(n.town, travel.End{})
}

// passOn gives the middle what the origin sent: each branch goes on in one go.
func (n *line) passOn(t *testing.T, msgs ...sentMsg) {
	t.Helper()
	for i := range msgs {
		runs := n.middle.deliverFrom(t, n.now, 1, msgs[i:i+1])
		if len(runs) != 1 {
			t.Fatalf("%d runs may begin, want 1", len(runs))
		}
		n.onward(t, placed{n.middle, runs[0]})
	}
}

// relay passes one branch on, and checks that the middle keeps it as a relay.
func (n *line) relay(t *testing.T, m sentMsg) {
	t.Helper()
	before := n.middle.core.Sizes()
	n.passOn(t, m)
	n.left(t, before.Records+1, before.Invocations)
}

// through starts a function whose branch goes by the middle to the last, where its run is.
func (n *line) through(t *testing.T) (travel.FutureID, placed) {
	t.Helper()
	id := n.start(t, travel.StartArgs{}, 2)
	n.relay(t, injects(n.origin.take())[0])
	return id, n.one(t, n.settle(t, nil))
}

// left checks how much the middle keeps: a relay is a transfer of no invocation.
func (n *line) left(t *testing.T, transfers, invocations int) {
	t.Helper()
	if s := n.middle.core.Sizes(); s.Records != transfers || s.Invocations != invocations {
		t.Fatalf("the middle keeps %d transfers and %d invocations, want %d and %d", s.Records, s.Invocations, transfers, invocations)
	}
}

// kinds counts the messages of a kind to a peer.
func kinds(msgs []sentMsg, to travel.Peer, k travel.Kind) (n int) {
	for _, m := range msgs {
		if m.to == to && m.kind == k {
			n++
		}
	}
	return n
}

// TestRelayCanceled: a CANCEL follows a branch that only passed through.
func TestRelayCanceled(t *testing.T) {
	n := newLine(t, travel.Limits{})
	id, p := n.through(t)
	if err := n.origin.core.Cancel(n.now, id); err != nil {
		t.Fatal(err)
	}
	passed := 0
	n.settle(t, func(from int, m sentMsg) bool {
		if from == 1 && m.to == 3 && m.kind == travel.KindCancel {
			passed++
		}
		return from == 0 && m.to == 3 // the origin does not reach the last
	})
	if passed != 1 || len(p.d.stops) != 1 {
		t.Errorf("the middle sent %d CANCELs on and the last stopped %d runs, want one each", passed, len(p.d.stops))
	}
	n.left(t, 0, 0)
	p.finish(n.town, travel.End{})
	n.empty(t)
}

// TestRelayStays: the end of an invocation that left state leaves alone what is kept of others.
func TestRelayStays(t *testing.T) {
	n := newLine(t, travel.Limits{})
	_, p := n.through(t)
	n.start(t, travel.StartArgs{Stateful: true}, 2)
	q := n.one(t, n.settle(t, nil))
	if err := q.d.core.HoldState(q.r, 1); err != nil {
		t.Fatal(err)
	}
	q.finish(n.town, travel.End{})
	n.settle(t, nil)
	if n.middle.freed != 1 {
		t.Errorf("the state was freed %d times", n.middle.freed)
	}
	n.left(t, 1, 0)
	p.finish(n.town, travel.End{})
	n.empty(t)
	if len(n.origin.ended) != 2 || n.origin.ended[0].Err != nil || n.origin.ended[1].Err != nil {
		t.Errorf("ended: %+v", n.origin.ended)
	}
}

// TestRelayStateful: an element keeps a stateful invocation whole, also where it only passed through: its next branch
// gets its turn there, and so does another's.
func TestRelayStateful(t *testing.T) {
	n := newLine(t, travel.Limits{})
	for range 2 {
		n.start(t, travel.StartArgs{Stateful: true}, 2, 2)
		n.passOn(t, injects(n.origin.take())...)
	}
	n.left(t, 4, 2)
}

// TestRelayLost: when the element is lost to which a branch went on, the origin hears it from the one before; when
// the origin is lost, nothing is kept for it.
func TestRelayLost(t *testing.T) {
	for _, next := range []bool{true, false} {
		n := newLine(t, travel.Limits{})
		n.through(t)
		if !next {
			n.middle.core.PeerLost(n.now, 1, errors.New("cut"))
			n.left(t, 0, 0)
			continue
		}
		n.middle.core.PeerLost(n.now, 3, errors.New("cut"))
		n.settle(t, nil)
		var lost *travel.PeerLostError
		if err := n.outcome(t); !errors.As(err, &lost) || lost.Element != "c" || !lost.MayHaveRun {
			t.Errorf("ended with %v", err)
		}
	}
}

// TestRelayTogether: two branches of one invocation that passed through are kept as long as the later of them may
// be under way, and both are reported as lost.
func TestRelayTogether(t *testing.T) {
	n := newLine(t, travel.Limits{})
	start := n.now
	n.start(t, travel.StartArgs{}, 2, 2)
	roots := injects(n.origin.take())
	n.relay(t, roots[0])
	n.now += second * 4 / 10 // the second was long on its way
	n.relay(t, roots[1])
	n.now = start + second*11/10
	n.middle.core.Tick(n.now)
	n.left(t, 2, 1)
	n.middle.take()
	n.middle.core.PeerLost(n.now, 3, errors.New("cut"))
	if lost := kinds(n.middle.take(), 1, travel.KindLost); lost != 2 {
		t.Errorf("%d branches were reported as lost, want 2", lost)
	}
}

// TestRelayTime: what is kept of a branch goes when its time is up, though another's that came before has longer.
func TestRelayTime(t *testing.T) {
	n := newLine(t, travel.Limits{})
	start := n.now
	for _, d := range []travel.Instant{3 * second, second, 2 * second} {
		n.start(t, travel.StartArgs{Deadline: start + d}, 2)
		n.relay(t, injects(n.origin.take())[0])
	}
	for i, want := range []int{2, 1, 0} {
		n.now = start + travel.Instant(i+1)*second + second/10
		n.middle.core.Tick(n.now)
		if got := n.middle.core.Sizes().Records; got != want {
			t.Errorf("after %d.1 s %d transfers are kept, want %d", i+1, got, want)
		}
	}
}

// TestRelayIsDue: who asks when time matters next hears of a branch that only passed through.
func TestRelayIsDue(t *testing.T) {
	n := newLine(t, travel.Limits{IdleUnpin: time.Hour}) // nothing else is due
	end := n.now + second
	n.start(t, travel.StartArgs{Deadline: end}, 2)
	n.relay(t, injects(n.origin.take())[0])
	n.now += second / 10
	n.middle.core.Tick(n.now) // it says what it has to say
	if next, ok := n.middle.core.Next(n.now); !ok || next > end {
		t.Errorf("something is due at %d (%v), want it by %d", next, ok, end)
	}
}

// TestRelayOfTheDead: an invocation has ended at the middle except for a run that is told to stop and a branch that
// passed through. That is not kept beyond the next time that somebody asks for it.
func TestRelayOfTheDead(t *testing.T) {
	ended := func(t *testing.T, n *line, p placed) {
		t.Helper()
		if len(n.middle.stops) != 1 || !p.r.Ended() {
			t.Fatalf("%d runs were told to stop, want 1", len(n.middle.stops))
		}
	}
	t.Run("stopping", func(t *testing.T) {
		n := newLine(t, travel.Limits{})
		n.start(t, travel.StartArgs{}, 2, 2)
		roots := injects(n.origin.take())
		n.relay(t, roots[0])
		p := placed{n.middle, n.middle.deliverFrom(t, n.now, 1, roots[1:])[0]}
		q := n.one(t, n.settle(t, nil))
		n.middle.core.EndAll(n.now, "the lights go out")
		ended(t, n, p)
		n.left(t, 1, 1)
		n.settle(t, nil) // the origin cancels the rest
		n.left(t, 0, 1)
		p.finish(n.town, travel.End{})
		n.left(t, 0, 0)
		q.finish(n.town, travel.End{})
		n.empty(t)
	})
	t.Run("time is up", func(t *testing.T) {
		n := newLine(t, travel.Limits{})
		start := n.now
		n.start(t, travel.StartArgs{}, 2, 3)
		roots := injects(n.origin.take())
		q := placed{n.last, n.last.deliverFrom(t, n.now, 1, roots[1:])[0]}
		n.now += second * 4 / 10 // the first was long on its way: here it has more time than the second
		n.relay(t, roots[0])
		n.middle.take()
		if err := q.d.core.Forward(n.now, q.r, 2, nil); err != nil {
			t.Fatal(err)
		}
		p := placed{n.middle, n.middle.deliverFrom(t, n.now, 3, injects(n.last.take()))[0]}
		n.now = start + second*11/10
		n.middle.core.Tick(n.now)
		ended(t, n, p)
		n.left(t, 1, 1)
		n.now = start + second*15/10
		n.middle.core.Tick(n.now)
		n.left(t, 0, 1)
		p.finish(n.town, travel.End{})
		n.left(t, 0, 0)
	})
}

// TestRelayDrains: an element that drains is not idle while it keeps a branch that passed through, and takes that
// when it comes back.
func TestRelayDrains(t *testing.T) {
	n := newLine(t, travel.Limits{})
	_, p := n.through(t)
	for range 2 {
		n.pass(t, second/40)
	}
	n.left(t, 1, 0)
	if pending := n.middle.core.Sizes().PendingReports; pending != 0 {
		t.Fatalf("%d reports are pending", pending)
	}
	n.middle.core.Drain()
	if n.middle.core.Idle() {
		t.Error("idle, and a branch that passed through has not ended")
	}
	if err := p.d.core.Forward(n.now, p.r, 2, []byte("back")); err != nil {
		t.Fatal(err)
	}
	p.finish(n.town, travel.End{})
	n.one(t, n.settle(t, nil)).finish(n.town, travel.End{})
	n.settle(t, nil)
	if err := n.outcome(t); err != nil {
		t.Error(err)
	}
	for range 3 {
		n.pass(t, second/40)
	}
	if !n.middle.core.Idle() {
		t.Errorf("not idle: %+v", n.middle.core.Sizes())
	}
	n.empty(t)
}

// TestRelayRefused: a branch that passed through and is not taken then is reported to its origin.
func TestRelayRefused(t *testing.T) {
	n := newLine(t, travel.Limits{})
	n.last.core.Drain()
	n.start(t, travel.StartArgs{}, 2)
	n.relay(t, injects(n.origin.take())[0])
	n.settle(t, nil)
	if err := n.outcome(t); !errors.Is(err, travel.ErrStopping) {
		t.Errorf("ended with %v", err)
	}
	n.empty(t)
}

// TestRelayIsNotTheirs: a DONE ends no branch that another element started; its sender is given up, and with it
// goes the branch.
func TestRelayIsNotTheirs(t *testing.T) {
	n := newLine(t, travel.Limits{})
	id, _ := n.through(t)
	const final, transfer = 4, 1 // the second from the middle to the last
	_, err := n.middle.core.Recv(n.now, 3, travel.KindDone, []byte{final, byte(id), 0, 0, 0, 0, transfer, 0, 0})
	if !errors.Is(err, travel.ErrProtocol) {
		t.Fatalf("a DONE that releases another's branch: %v", err)
	}
	n.middle.core.PeerLost(n.now, 3, err)
	n.settle(t, nil)
	var lost *travel.PeerLostError
	if err := n.outcome(t); !errors.As(err, &lost) || lost.Element != "c" {
		t.Errorf("ended with %v", err)
	}
}

// TestRelayWithAFork: a run that leaves more than its forward behind is kept whole, and the origin may forget its
// branch only when both are accepted.
func TestRelayWithAFork(t *testing.T) {
	n := newLine(t, travel.Limits{})
	n.start(t, travel.StartArgs{}, 2)
	p := n.one(t, n.settle(t, nil))
	if _, err := p.d.core.Fork(n.now, p.r, 3, nil, nil); err != nil {
		t.Fatal(err)
	}
	n.onward(t, p)
	n.left(t, 2, 1)
	sent := n.middle.take()
	half := n.last.deliverFrom(t, n.now, 2, sent[:1])
	n.last.core.Tick(n.now + second/40) // ACK
	n.middle.deliverFrom(t, n.now, 3, n.last.take())
	n.middle.core.Tick(n.now + second/40)
	if got := releases(n.middle.take(), 1); len(got) != 0 {
		t.Errorf("released with half of it under way: %v", got)
	}
	for _, r := range append(half, n.last.deliverFrom(t, n.now, 2, sent[1:])...) {
		n.last.core.Finish(n.now, r, travel.End{})
	}
	n.settle(t, nil)
	if err := n.outcome(t); err != nil || n.origin.ended[0].Branches != 2 {
		t.Errorf("ended with %+v", n.origin.ended)
	}
	n.empty(t)
}

// releases counts how often each transfer is released by the ACKs to a peer: u24 low, two counts, the ranges
// accepted and those released, each u24 first and u16 count.
func releases(msgs []sentMsg, to travel.Peer) map[int]int {
	times := map[int]int{}
	for _, m := range msgs {
		if m.to != to || m.kind != travel.KindAck {
			continue
		}
		for b := m.body[5+5*int(m.body[3]):]; len(b) > 0; b = b[5:] {
			first := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
			for i := range int(b[3]) | int(b[4])<<8 {
				times[first+i]++
			}
		}
	}
	return times
}

// many is more branches to one peer than its ring of relays holds.
const many = 600

// TestRelayRing: when more branches pass through than there are slots while the next element acknowledges nothing,
// the others are kept in full, and with the acknowledgements each is released once.
func TestRelayRing(t *testing.T) {
	n := newLine(t, travel.Limits{})
	for range many {
		n.start(t, travel.StartArgs{Deadline: n.now + 9*second}, 2)
	}
	n.passOn(t, injects(n.origin.take())...)
	onward := injects(n.middle.take())
	if s := n.middle.core.Sizes(); s.Records != many || s.Invocations == 0 || s.Invocations > many/2 {
		t.Errorf("the middle keeps %d transfers and %d invocations; most of %d should be relays, and not all", s.Records, s.Invocations, many)
	}
	runs := n.last.deliverFrom(t, n.now, 2, onward)
	acks := n.last.take()
	n.now += second / 40
	n.last.core.Tick(n.now)
	n.middle.deliverFrom(t, n.now, 3, append(acks, n.last.take()...))
	n.now += second / 40
	n.middle.core.Tick(n.now)
	sent := n.middle.take()
	times := releases(sent, 1)
	for transfer := 1; transfer <= many; transfer++ { // 0 was the one before
		if times[transfer] != 1 {
			t.Fatalf("transfer %d was released %d times", transfer, times[transfer])
		}
	}
	if len(times) != many {
		t.Errorf("%d transfers were released, want %d", len(times), many)
	}
	n.origin.deliverFrom(t, n.now, 2, sent)
	for _, r := range runs {
		n.last.core.Finish(n.now, r, travel.End{})
	}
	n.settle(t, nil)
	for range 3 {
		n.pass(t, second/40)
	}
	n.left(t, 0, 0)
	if len(n.origin.ended) != many {
		t.Errorf("%d of %d futures ended", len(n.origin.ended), many)
	}
	n.empty(t)
}

// TestRelayRingLost: what is kept of the oldest branch that passed through is found though more transfers followed
// than there are slots, when its next element or its origin is lost and when its time is up.
func TestRelayRingLost(t *testing.T) {
	for name, lose := range map[string]func(n *line){
		"next":   func(n *line) { n.middle.core.PeerLost(n.now, 3, errors.New("cut")) },
		"origin": func(n *line) { n.middle.core.PeerLost(n.now, 1, errors.New("cut")) },
		"time": func(n *line) {
			n.now += 10 * second
			n.middle.core.Tick(n.now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLine(t, travel.Limits{})
			for range many {
				n.start(t, travel.StartArgs{Deadline: n.now + 9*second}, 2)
			}
			n.passOn(t, injects(n.origin.take())...)
			n.middle.take()
			lose(n)
			if name == "next" {
				if lost := kinds(n.middle.take(), 1, travel.KindLost); lost != many {
					t.Errorf("%d branches were reported as lost, want %d", lost, many)
				}
				return
			}
			n.left(t, 0, 0)
			if next, ok := n.middle.core.Next(n.now); ok && next <= n.now {
				t.Errorf("Tick is due again at %d, and it is %d", next, n.now)
			}
		})
	}
}
