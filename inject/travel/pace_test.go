package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// junction is two members (desks 1 and 2) and the clients of two principals, alice (desk 0) and bob (desk 3), each of whom has a run at the
// first member.
func junction(t *testing.T) (w *town, alice, bob placed) {
	return junctionOf(t, travel.Limits{PrincipalHeldRuns: 2, Running: 4})
}

func junctionOf(t *testing.T, l travel.Limits) (w *town, alice, bob placed) {
	w = newTown(t, 4, l)
	for _, d := range w.desks[1:3] {
		for n, name := range map[travel.Peer]string{1: "alice", 4: "bob"} {
			d.core.PeerLost(0, n, nil)
			if err := d.core.PeerUp(n, travel.PeerInfo{Incarnation: uint64(n), Name: name, Principal: name, Injector: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.start(t, travel.StartArgs{Deadline: 100 * second}, 2)
	alice = w.one(t, w.settle(t, nil))
	return w, alice, w.ofBob(t)
}

// ofBob is a run of bob's at the first member.
func (w *town) ofBob(t *testing.T) placed {
	t.Helper()
	core := w.desks[3].core
	b, err := core.Bind(w.now, w.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.Start(w.now, &travel.StartArgs{Binding: b, Deadline: 100 * second, Roots: []travel.Root{{To: 2}}}); err != nil {
		t.Fatal(err)
	}
	return w.one(t, w.settle(t, nil))
}

// TestPace: more of one principal's branches than a member may hold wait at the member that sends them, and take nothing of the link
// between the two from another principal's.
func TestPace(t *testing.T) {
	w, alice, bob := junction(t)
	alice.fork(t, w, 3, 7)
	work := w.settle(t, nil) // three begin: one principal's share
	w.kept(t, w.desks[2:3], 0, 2, 1)
	if _, err := alice.d.core.Fork(w.now, alice.r, 3, nil, nil); !errors.Is(err, travel.ErrBackpressure) || alice.r.Ended() {
		t.Fatalf("a fork to where no more may wait: %v", err)
	}
	if err := alice.d.core.Forward(w.now, alice.r, 3, []byte("last")); err != nil {
		t.Fatal(err)
	}
	alice.finish(w, travel.End{})
	if n := alice.d.core.Sizes(); n.Stowed != 1 || n.Lanes != 1 {
		t.Fatalf("%+v, want one branch kept back", n)
	}
	bob.fork(t, w, 3, 1)
	if err := bob.d.core.Forward(w.now, bob.r, 3, nil); err != nil {
		t.Fatal(err)
	}
	bob.finish(w, travel.End{})
	for range 2 { // one place is free at a time
		his := w.one(t, w.settle(t, nil))
		his.finish(w, travel.End{})
	}
	if more := w.settle(t, nil); len(more) > 0 {
		t.Fatalf("%d more run", len(more))
	}
	w.haveEnded(t, 0, 1)
	w.kept(t, w.desks[2:3], 0, 2, 1)
	last := false
	for ; len(work) > 0; work = w.settle(t, nil) {
		for _, p := range work {
			last = last || string(p.r.Payload) == "last"
			p.finish(w, travel.End{})
		}
	}
	if w.haveEnded(t, 1, 1); !last {
		t.Error("the branch that was kept back never came")
	}
	w.empty(t)
}

// haveEnded checks how many futures of alice's and of bob's have ended, and that they did well.
func (w *town) haveEnded(t *testing.T, alice, bob int) {
	t.Helper()
	if a, b := len(w.desks[0].ended), len(w.desks[3].ended); a != alice || b != bob {
		t.Fatalf("%d futures of alice's and %d of bob's have ended, want %d and %d", a, b, alice, bob)
	}
	for _, o := range append(w.desks[0].ended, w.desks[3].ended...) {
		if o.Err != nil {
			t.Error(o.Err)
		}
	}
}

// TestPaceWordLost: a word that is lost, either one, costs time and nothing else; and what a member was told of an origin ends with what it holds.
func TestPaceWordLost(t *testing.T) {
	w, alice, bob := junction(t)
	drop := func(_ int, m sentMsg) bool { return m.kind == travel.KindPace }
	alice.fork(t, w, 3, 7)
	work := w.settle(t, drop)
	alice.fork(t, w, 3, 1) // it has not heard
	work = append(work, w.settle(t, drop)...)
	w.kept(t, w.desks[2:3], 0, 3, 1)
	for range 3 { // it is said again
		work = append(work, w.pass(t, second/2)...)
	}
	if _, err := alice.d.core.Fork(w.now, alice.r, 3, nil, nil); !errors.Is(err, travel.ErrBackpressure) {
		t.Fatalf("a fork to where no more may wait: %v", err)
	}
	for ; len(work) > 0; work = w.settle(t, drop) {
		for _, p := range work {
			p.finish(w, travel.End{})
		}
	}
	if n := w.desks[2].core.Sizes(); n.Paced != 0 || n.HeldRuns != 0 {
		t.Fatalf("%+v, want nothing", n)
	}
	if _, err := alice.d.core.Fork(w.now, alice.r, 3, nil, nil); !errors.Is(err, travel.ErrBackpressure) {
		t.Fatalf("a fork before the time of the last word is over: %v", err)
	}
	w.pass(t, 2*second+1)
	alice.fork(t, w, 3, 1)
	w.finishAll(t, append(w.settle(t, nil), alice, bob))
	w.haveEnded(t, 1, 1)
	w.empty(t)
}

// TestPaceOfStrangers: an element keeps nothing back of origins that it does not know, and a peer that is gone keeps nothing back either.
func TestPaceOfStrangers(t *testing.T) {
	w, alice, bob := junction(t)
	for origin := range 50 {
		word := append([]byte{1, byte(origin + 1)}, make([]byte, 7)...)
		if _, err := w.desks[1].core.Recv(w.now, 3, travel.KindPace, word); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.desks[1].core.Sizes().Lanes; n != 4 { // the three others, and itself
		t.Errorf("it keeps branches of %d origins back, want 4", n)
	}
	if err := alice.d.core.Forward(w.now, alice.r, 3, nil); err != nil {
		t.Fatal(err)
	}
	alice.finish(w, travel.End{})
	w.desks[1].core.PeerLost(w.now, 3, nil)
	w.finishAll(t, append(w.settle(t, nil), bob))
	if n := len(w.desks[0].ended); n != 1 || !errors.Is(w.desks[0].ended[0].Err, travel.ErrPeerLost) {
		t.Errorf("what was to leave for the peer that is gone ended with %v", w.desks[0].ended)
	}
	if n := w.desks[1].core.Sizes(); n.Lanes != 0 || n.Stowed != 0 {
		t.Errorf("%+v", n)
	}
}

// TestPaceOfLostMember: a member that is lost while it keeps branches back is forgotten, and the next one is told in its turn.
func TestPaceOfLostMember(t *testing.T) {
	w := newTown(t, 4, travel.Limits{PrincipalHeldRuns: 2, Running: 4})
	w.start(t, travel.StartArgs{Deadline: 100 * second}, 2, 4)
	runs := w.settle(t, nil)
	if len(runs) != 2 {
		t.Fatalf("%d run, want one at each of two members", len(runs))
	}
	runs[0].fork(t, w, 3, 7)
	work := w.settle(t, nil)
	w.kept(t, w.desks[2:3], 0, 2, 1)
	w.desks[2].core.PeerLost(w.now, 2, nil)
	for range 3 { // the word would be said again
		w.now += second / 2
		w.desks[2].core.Tick(w.now)
	}
	runs[1].fork(t, w, 3, 1)
	gone := func(from int, m sentMsg) bool { return from == 2 && m.to == 2 }
	work = append(work, w.settle(t, gone)...)
	if n := w.desks[2].core.Sizes(); n.Paced != 1 || n.Backlog == 0 {
		t.Fatalf("%+v, want one member told", n)
	}
	for ; len(work) > 0; work = w.settle(t, gone) {
		for _, p := range work {
			p.finish(w, travel.End{})
		}
	}
	if n := w.desks[2].core.Sizes(); n.Paced != 0 {
		t.Errorf("%+v, want no member told: what waited has begun", n)
	}
}
