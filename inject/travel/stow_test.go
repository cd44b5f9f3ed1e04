package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// stowed is a town in which a branch at b has gone on to c, for which there is no room.
func stowed(t *testing.T, finish bool) (w *town, p placed) {
	t.Helper()
	w = newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	p = w.one(t, w.settle(t, nil))
	p.d.full = true
	if err := p.d.core.Forward(w.now, p.r, 3, []byte("onward")); err != nil || !p.r.Ended() {
		t.Fatalf("a forward into a full queue: %v", err)
	}
	if finish {
		p.finish(w, travel.End{})
	}
	if n := p.d.core.Sizes(); n.Stowed != 1 || n.HeldRuns != 1 || n.Running > 0 == finish {
		t.Fatalf("%+v", n)
	}
	return w, p
}

// TestStowed: a branch that finds no room to go on waits without its run, and goes on when there is some.
func TestStowed(t *testing.T) {
	for _, first := range []bool{true, false} { // whether its run ends before it leaves
		w, p := stowed(t, first)
		p.d.full = false
		next := w.one(t, w.pass(t, 2e6))
		if got := string(next.r.Payload); got != "onward" {
			t.Errorf("the branch went on with %q", got)
		}
		if !first {
			p.finish(w, travel.End{})
		}
		next.finish(w, travel.End{})
		w.settle(t, nil)
		if err := w.outcome(t); err != nil {
			t.Error(err)
		}
		w.empty(t)
	}
}

// TestStowedEnds: a branch that waits to leave ends with an error, like any other.
func TestStowedEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *town, p placed)
		want error
	}{
		"deadline":  {func(w *town, p placed) { w.pass(t, 2*second) }, travel.ErrDeadline},
		"peer lost": {func(w *town, p placed) { p.d.core.PeerLost(w.now, 3, nil) }, travel.ErrPeerLost},
		"canceled":  {func(w *town, p placed) { _ = w.desks[0].core.Cancel(w.now, 1) }, travel.ErrCanceled},
		"failed":    {func(w *town, p placed) { p.finish(w, travel.End{Code: travel.CodeTrap, Text: "a trap"}) }, travel.ErrRemote},
	} {
		for _, finish := range []bool{true, false} {
			if finish && name == "failed" {
				continue
			}
			w, p := stowed(t, finish)
			c.end(w, p)
			if p.d.full = false; !finish && name != "failed" {
				p.finish(w, travel.End{})
			}
			if more := append(w.settle(t, nil), w.pass(t, second/10)...); len(more) > 0 {
				t.Errorf("%s: the branch ran on", name)
			}
			if err := w.outcome(t); !errors.Is(err, c.want) {
				t.Errorf("%s: it ended with %v", name, err)
			}
			if n := p.d.core.Sizes(); n.Stowed+n.HeldRuns+n.HeldBytes+n.Running > 0 {
				t.Errorf("%s: %+v", name, n)
			}
		}
	}
}

// TestStowedThenLate: of a branch that has waited for room, and then in vain to leave, the report may have to wait too. Its place in
// the engine was given back when its function returned.
func TestStowedThenLate(t *testing.T) {
	s := &storm{town: newTown(t, 4, travel.Limits{Running: 2 * window})}
	d, room := s.desks[2], travel.RoomShort
	d.reserve = func(*travel.Run) travel.Room { return room }
	d.unreserve = func(r *travel.Run) { t.Errorf("Unreserve of a run that has ended, with %v", r.User) }
	s.id = s.start(t, travel.StartArgs{Deadline: s.now + 3*second}, 2)
	s.root = s.one(t, s.settle(t, nil))
	s.fork(t, window+1)
	last := s.runs[window].r
	last.User = "its host"
	if !d.core.Await(s.now, last, 1) {
		t.Fatal("it does not wait for room")
	}
	room = travel.RoomTaken
	if d.core.RoomFreed(); d.core.NextRun() != last {
		t.Fatal("another run has the room")
	}
	for _, p := range s.runs[:window] { // their reports fill the window to the origin
		p.finish(s.town, travel.End{})
	}
	s.carry(t)
	d.full = true
	if err := d.core.Forward(s.now, last, 4, []byte("on")); err != nil {
		t.Fatal(err)
	}
	d.core.Finish(s.now, last, travel.End{})
	d.full = false
	d.core.PeerLost(s.now, 4, nil)
	if n := d.core.Sizes(); n.LateReports != 1 || n.Stowed != 0 {
		t.Fatalf("%+v", n)
	}
	s.release(t)
	if err := s.outcome(t); !errors.Is(err, travel.ErrPeerLost) {
		t.Errorf("it ended with %v", err)
	}
}

// crowd has the first of two members hold so many branches of alice's that wait to leave for the second one, and then one of bob's.
func crowd(t *testing.T, n int, l travel.Limits) (w *town, d *desk) {
	t.Helper()
	l.Running, l.PrincipalHeldRuns = 400, 400
	w, alice, bob := junctionOf(t, l)
	d = w.desks[1]
	alice.fork(t, w, travel.Self, n)
	crowd := append(w.settle(t, nil), alice)
	d.full = true
	for _, p := range append(crowd, bob) {
		p.onward(t, w, 3)
	}
	if s := d.core.Sizes(); s.Stowed != n+2 {
		t.Fatalf("%+v, want %d branches that wait to leave", s, n+2)
	}
	d.full = false
	return w, d
}

// TestStowedInTurn: where the way to a peer is full, principals' branches leave it in turn. One that comes behind another principal's crowd is the
// second to leave.
func TestStowedInTurn(t *testing.T) {
	w, d := crowd(t, 50, travel.Limits{})
	d.fits = 2
	var at []int
	for left := 0; left < 52; {
		d.core.Tick(w.now)
		w.now += 1e6
		for _, m := range d.take() {
			if m.kind != travel.KindInject {
				continue
			}
			if m.body[14] == 4 { // its origin is bob's element
				at = append(at, left)
			}
			left++
		}
	}
	if len(at) != 1 || at[0] > 1 {
		t.Errorf("bob's branch left after %v of alice's, want at most one", at)
	}
}

// TestStowedBeyondShare: branches of a principal that has its share of Limits.Records under way keep nobody else's back.
func TestStowedBeyondShare(t *testing.T) {
	w, d := crowd(t, 20, travel.Limits{Records: 20})
	d.core.Tick(w.now)
	alices, bobs := 0, 0
	for _, m := range d.take() {
		switch {
		case m.kind != travel.KindInject:
		case m.body[14] == 4:
			bobs++
		default:
			alices++
		}
	}
	if s := d.core.Sizes(); bobs != 1 || alices == 0 || s.Stowed == 0 {
		t.Errorf("%d branches of alice's and %d of bob's left, and %d wait; want bob's to leave though alice has her share", alices, bobs, s.Stowed)
	}
}

// keepBack has a desk's third peer go on keeping an element's branches back for so many seconds.
func (w *town) keepBack(t *testing.T, d *desk, origin byte, seconds int) (runs []placed) {
	t.Helper()
	for range seconds {
		if _, err := d.core.Recv(w.now, 3, travel.KindPace, append([]byte{1, origin}, make([]byte, 7)...)); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, w.pass(t, second)...)
	}
	return runs
}

// TestStowedGivesWay: an invocation that keeps scratch, and whose branch is kept from leaving for ten seconds, waits for room like one that waits for it to run.
// It gives way to an older one that waits for the room of its scratch; so the two do not wait to their deadlines.
func TestStowedGivesWay(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	d := w.desks[1]
	d.reserve = func(*travel.Run) travel.Room {
		if d.freed == 0 {
			return travel.RoomShort
		}
		return travel.RoomTaken
	}
	older := w.start(t, travel.StartArgs{Stateful: true, Deadline: 100 * second}, 2)
	first := w.one(t, w.settle(t, nil))
	w.pass(t, second/10)
	w.start(t, travel.StartArgs{Stateful: true, Deadline: 100 * second}, 2)
	second := w.one(t, w.settle(t, nil))
	if err := d.core.HoldState(second.r, "scratch"); err != nil {
		t.Fatal(err)
	}
	w.keepBack(t, d, 1, 1)
	second.onward(t, w, 3)
	if !d.core.Await(w.now, first.r, 1) {
		t.Fatal("it does not wait for room")
	}
	if runs := w.keepBack(t, d, 1, 9); len(runs)+len(w.desks[0].ended) > 0 {
		t.Fatalf("after nine seconds %d runs began and %v ended", len(runs), w.desks[0].ended)
	}
	runs := w.keepBack(t, d, 1, 3)
	if err := w.outcome(t); !errors.Is(err, travel.ErrBackpressure) || !strings.Contains(err.Error(), "started earlier") {
		t.Errorf("the younger one ended with %v", err)
	}
	if w.one(t, runs).r != first.r || d.freed != 1 {
		t.Error("the older one does not have the room")
	}
	first.finish(w, travel.End{})
	w.settle(t, nil)
	if n := w.desks[0].ended; len(n) != 2 || n[1].Err != nil {
		t.Errorf("call %d ended with %v", older, n)
	}
	w.pass(t, 2*100e9)
	w.empty(t)
}

// TestStowedIsStuck: where no more can be taken in of a principal's, and its branches have not got away for ten seconds, one of them ends, long before
// its deadline, and says what was too much.
func TestStowedIsStuck(t *testing.T) {
	w := newTown(t, 3, travel.Limits{PrincipalHeldRuns: 2, BacklogBytes: 2 * (4 + 512), PrincipalBacklogBytes: 4 + 512})
	d := w.desks[1]
	w.start(t, travel.StartArgs{Deadline: 100 * second}, 2)
	alone := w.one(t, w.settle(t, nil))
	w.start(t, travel.StartArgs{Stateful: true, Deadline: 100 * second}, 2, 3)
	runs := w.settle(t, nil) // what comes after these waits for its turn
	runs[1].fork(t, w, 2, 1)
	w.settle(t, nil)
	w.keepBack(t, d, 1, 1)
	alone.onward(t, w, 3)
	runs[1].fork(t, w, 2, 2)
	w.settle(t, nil)
	w.kept(t, w.desks[1:2], 1, 1, 1)
	if w.keepBack(t, d, 1, 9); len(w.desks[0].ended) > 0 {
		t.Fatalf("after nine seconds it has ended: %v", w.desks[0].ended[0].Err)
	}
	w.keepBack(t, d, 1, 2)
	if err := w.outcome(t); !errors.Is(err, travel.ErrBackpressure) || !strings.Contains(err.Error(), "516 bytes (of 1032 in all)") {
		t.Errorf("it ended with %v", err)
	}
	if n := d.core.Sizes(); n.Stowed != 0 || d.core.Counters().Stuck != 1 {
		t.Errorf("%+v, want no branch that waits to leave, and one that was stuck", n)
	}
	w.finishAll(t, runs)
	w.pass(t, 2*100e9)
	w.empty(t)
}

// TestStowedAs: a branch that goes on as another function does so too when it has waited to leave, and where nobody knows that function.
func TestStowedAs(t *testing.T) {
	for _, first := range []bool{true, false} {
		w := newTown(t, 3, travel.Limits{})
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		other, err := p.d.core.Bind(w.now, p.d.put([]byte("another function")), p.r.Binding().Table)
		if err != nil {
			t.Fatal(err)
		}
		p.d.full = true
		if err := p.d.core.ForwardAs(w.now, p.r, 3, 0, other, []byte("onward")); err != nil || p.d.core.Sizes().Stowed != 1 {
			t.Fatalf("a forward into a full queue: %v, %+v", err, p.d.core.Sizes())
		}
		p.d.core.Unbind(other)
		if first {
			p.finish(w, travel.End{})
		}
		p.d.full = false
		next := w.one(t, w.pass(t, 2e6))
		if got := next.r.Binding().Image; got != other.Image || string(next.r.Payload) != "onward" {
			t.Errorf("the branch went on as %v with %q, want %v", got, next.r.Payload, other.Image)
		}
		if !first {
			p.finish(w, travel.End{})
		}
		next.finish(w, travel.End{})
		w.settle(t, nil)
		if err := w.outcome(t); err != nil {
			t.Error(err)
		}
		w.empty(t)
	}
}
