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
	n.pass(t, second/40) // what was sent is acknowledged
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

// relay passes one branch on, and checks that the middle keeps nothing of it but that it is under way.
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

// left checks how much the middle keeps.
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

// TestOnwardLost: a branch that was on its way to an element that is lost is reported by the element before; one that had arrived there is not,
// but its origin sees that loss for itself.
func TestOnwardLost(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		n := newLine(t, travel.Limits{})
		n.through(t)
		if arrived {
			n.pass(t, second/40)
			n.left(t, 0, 0)
		}
		n.middle.core.PeerLost(n.now, 3, errors.New("cut"))
		if got := kinds(n.middle.take(), 1, travel.KindLost); got != 1 && !arrived || got != 0 && arrived {
			t.Errorf("the middle reported %d losses of a branch that had arrived: %v", got, arrived)
		}
		if n.origin.core.PeerLost(n.now, 3, errors.New("cut")); len(n.origin.ended) != 1 {
			t.Fatalf("arrived %v: the origin ended %d futures, want 1", arrived, len(n.origin.ended))
		}
		var lost *travel.PeerLostError
		if err := n.outcome(t); !errors.As(err, &lost) || lost.Element != "c" || !lost.MayHaveRun {
			t.Errorf("ended with %v", err)
		}
	}
}

// TestOtherElementLost: the loss of an element that a future's branches cannot be at is nothing to it.
func TestOtherElementLost(t *testing.T) {
	n := newLine(t, travel.Limits{})
	n.bind.Elements = []uint64{1, 2}
	n.start(t, travel.StartArgs{}, 2)
	p := n.one(t, n.settle(t, nil))
	n.origin.core.PeerLost(n.now, 3, errors.New("cut"))
	p.finish(n.town, travel.End{})
	n.settle(t, nil)
	if err := n.outcome(t); err != nil {
		t.Error(err)
	}
}

// TestLateLoss: the last element took a branch over an endpoint to the origin of which the origin knew already that it is lost. What became
// of the branch cannot be heard, so the origin fails its future when they meet again.
func TestLateLoss(t *testing.T) {
	n := newLine(t, travel.Limits{})
	n.origin.core.PeerLost(n.now, 3, errors.New("cut"))
	_, p := n.through(t)
	p.finish(n.town, travel.End{})
	n.last.take() // its answer is lost
	n.last.core.PeerLost(n.now, 1, errors.New("cut"))
	n.pass(t, second/40)
	if len(n.origin.ended) != 0 {
		t.Fatalf("ended with %v", n.origin.ended[0].Err)
	}
	n.join(t, 2, 0, true)
	n.join(t, 0, 2, true)
	var lost *travel.PeerLostError
	if err := n.outcome(t); !errors.As(err, &lost) || lost.Element != "c" || !lost.MayHaveRun {
		t.Errorf("ended with %v", err)
	}
}

// TestFirstMeeting: an element that was never met cannot have lost anything.
func TestFirstMeeting(t *testing.T) {
	n := newLine(t, travel.Limits{Peers: 9})
	n.bind.Elements = append(n.bind.Elements, 77)
	n.start(t, travel.StartArgs{}, 2)
	p := n.one(t, n.settle(t, nil))
	for i := range 20 { // nor is it forgotten for others that came and went
		for _, inc := range []uint64{100 + uint64(i), 77}[:1+i/19] {
			if err := n.origin.core.PeerUp(n.now, 8, travel.PeerInfo{Incarnation: inc, Name: "new", Member: true, Injector: true}); err != nil {
				t.Fatal(err)
			}
			if inc != 77 {
				n.origin.core.PeerLost(n.now, 8, errors.New("cut"))
			}
		}
	}
	p.finish(n.town, travel.End{})
	n.settle(t, nil)
	if err := n.outcome(t); err != nil {
		t.Error(err)
	}
}

// TestLateLossOfOne is the same where another endpoint is there: the last element says over that what was lost with the first, be it a branch
// that runs or a report.
func TestLateLossOfOne(t *testing.T) {
	for _, runs := range []bool{false, true} {
		n := newLine(t, travel.Limits{})
		info := func(i int) travel.PeerInfo {
			return travel.PeerInfo{Incarnation: uint64(i), Name: string(rune('a' + i - 1)), Member: true, Injector: true}
		}
		if err := n.origin.core.PeerUp(n.now, 9, info(3)); err != nil {
			t.Fatal(err)
		}
		if err := n.last.core.PeerUp(n.now, 9, info(1)); err != nil {
			t.Fatal(err)
		}
		n.origin.core.PeerLost(n.now, 3, errors.New("cut"))
		_, p := n.through(t)
		if !runs {
			p.finish(n.town, travel.End{})
			n.last.take() // its answer is lost
		}
		n.last.core.PeerLost(n.now, 1, errors.New("cut"))
		said := n.last.take()
		if len(said) != 1 || said[0].kind != travel.KindLost || said[0].to != 9 {
			t.Fatalf("runs %v: the last said %v, want LOST over the other endpoint", runs, said)
		}
		n.origin.deliverFrom(t, n.now, 9, said)
		if err := n.outcome(t); !errors.Is(err, travel.ErrPeerLost) {
			t.Errorf("runs %v: ended with %v", runs, err)
		}
	}
}

// TestOnwardTime: what is kept of a branch goes when its time is up, though another's that came before has longer.
func TestOnwardTime(t *testing.T) {
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

// TestOnwardIsDue: who asks when time matters next hears of a branch that only passed through.
func TestOnwardIsDue(t *testing.T) {
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

// TestOnwardDrains: an element that drains is not idle before what it handed on has arrived, and lets branches pass that began elsewhere.
func TestOnwardDrains(t *testing.T) {
	n := newLine(t, travel.Limits{})
	_, p := n.through(t)
	n.middle.core.Drain()
	if n.middle.core.Idle() {
		t.Error("idle, and a branch has not arrived")
	}
	n.pass(t, second/40)
	n.pass(t, second/40)
	if !n.middle.core.Idle() {
		t.Errorf("not idle: %+v", n.middle.core.Sizes())
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
	n.empty(t)
}

// TestOnwardRefused: a branch that passed through and is not taken then is reported to its origin.
func TestOnwardRefused(t *testing.T) {
	n := newLine(t, travel.Limits{})
	n.last.core.PeerLost(n.now, 1, errors.New("cut"))
	n.start(t, travel.StartArgs{}, 2)
	n.relay(t, injects(n.origin.take())[0])
	n.settle(t, func(from int, m sentMsg) bool { return from == 0 && m.to == 3 })
	if err := n.outcome(t); !errors.Is(err, travel.ErrRefused) {
		t.Errorf("ended with %v", err)
	}
}

// TestOnwardIsNotTheirs: a DONE ends no branch that another element started; its sender is given up, and with it
// goes the branch.
func TestOnwardIsNotTheirs(t *testing.T) {
	n := newLine(t, travel.Limits{})
	id, _ := n.through(t)
	const final, transfer = 4, 1 // the second from the middle to the last
	_, err := n.middle.core.Recv(n.now, 3, travel.KindDone, []byte{final, byte(id), 0, 0, 0, 0, transfer, 0, 0})
	if !errors.Is(err, travel.ErrProtocol) {
		t.Fatalf("a DONE that acknowledges another's branch: %v", err)
	}
	n.middle.core.PeerLost(n.now, 3, err)
	n.settle(t, nil)
	var lost *travel.PeerLostError
	if err := n.outcome(t); !errors.As(err, &lost) || lost.Element != "c" {
		t.Errorf("ended with %v", err)
	}
}

// many is more branches than a peer's ring begins with.
const many = 600

// TestOnwardRing: all branches that are on their way to one peer are known, in whatever order they are acknowledged; and none is, when they
// are, or the peer is lost, or their time is up.
func TestOnwardRing(t *testing.T) {
	for name, end := range map[string]func(n *line){
		"lost":   func(n *line) { n.middle.core.PeerLost(n.now, 3, errors.New("cut")) },
		"origin": func(n *line) { n.middle.core.PeerLost(n.now, 1, errors.New("cut")); n.pass(t, second/40) },
		"time":   func(n *line) { n.now += 10 * second; n.middle.core.Tick(n.now) },
		"ack":    func(n *line) { n.pass(t, second/40) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newLine(t, travel.Limits{})
			for range many {
				n.start(t, travel.StartArgs{Deadline: n.now + 9*second}, 2)
			}
			n.passOn(t, injects(n.origin.take())...)
			n.left(t, many, 0)
			onward := n.middle.take()
			if name == "ack" || name == "origin" {
				n.last.deliverFrom(t, n.now, 2, injects(onward))
			}
			end(n)
			lost := kinds(n.middle.take(), 1, travel.KindLost)
			if want := map[string]int{"lost": many}[name]; lost != want {
				t.Errorf("%d branches were reported as lost, want %d", lost, want)
			}
			want := 0
			if name == "lost" { // those are reports to be acknowledged
				want = many
			}
			n.left(t, want, 0)
			if next, ok := n.middle.core.Next(n.now); ok && next <= n.now {
				t.Errorf("Tick is due again at %d, and it is %d", next, n.now)
			}
		})
	}
}
