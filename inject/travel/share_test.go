package travel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestForksOfSeveral: what waits at an element for the runs of two principals keeps neither these nor a third one's from forking.
func TestForksOfSeveral(t *testing.T) {
	h := newHall(t, 3, 100, travel.Limits{HeldRuns: 8, PrincipalHeldRuns: 2})
	for i := 1; i <= 2; i++ {
		core := h.desks[i].core
		b, err := core.Bind(h.now, h.image, travel.ID{})
		if err != nil {
			t.Fatal(err)
		}
		a := travel.StartArgs{Binding: b, Stateful: true, Deadline: h.now + 100*second}
		for range 4 { // one begins, and the others wait for its end
			a.Roots = append(a.Roots, travel.Root{To: 1, Payload: fmt.Appendf(nil, "%d %d", i, 1)})
		}
		if _, err := core.Start(h.now, &a); err != nil {
			t.Fatal(err)
		}
	}
	h.begin(h.settle(t, nil))
	h.ask(3, 1, travel.StartArgs{})
	if len(h.runs) != 3 {
		t.Fatalf("%d run, want one of each", len(h.runs))
	}
	for _, p := range h.runs {
		if _, err := p.d.core.Fork(h.now, p.r, 4, nil, []byte("x")); err != nil {
			t.Errorf("a fork of %v's to an element that takes everything: %v", p.r.Invocation(), err)
		}
	}
}

// TestStowedIsCharged: the branches of one principal that wait to leave take what one principal may have, held and beyond, and no more;
// another's find room, also to the same element.
func TestStowedIsCharged(t *testing.T) {
	const each = 1 + 512
	h := newHall(t, 3, 3, travel.Limits{HeldRuns: 8, PrincipalHeldRuns: 2, BacklogBytes: 8 * each, PrincipalBacklogBytes: 5 * each})
	for i := range 10 {
		h.ask(1, 1, travel.StartArgs{})
		p := h.runs[0]
		h.desks[0].full = true
		err := p.d.core.Forward(h.now, p.r, 4, []byte("x"))
		h.desks[0].full = false
		if full := i >= 2+5; (err != nil) != full || full && (!errors.Is(err, travel.ErrBackpressure) || p.r.Ended()) {
			t.Errorf("branch %d that cannot leave: %v", i, err)
		}
		h.end()
	}
	if n := h.desks[0].core.Sizes(); n.Stowed != 7 || n.HeldRuns != 2 || n.Backlog != 5 {
		t.Errorf("%+v, want 7 stowed, 2 of them held", n)
	}
	for range 4 { // of another principal: three begin, and one waits for room
		h.ask(2, 1, travel.StartArgs{})
	}
	if n := h.desks[0].core.Sizes(); n.Awaiting != 1 || n.HeldRuns != 3 || len(h.desks[2].ended) > 0 {
		t.Errorf("%+v, want one more held; %v", n, h.desks[2].ended)
	}
	if _, err := h.desks[0].core.Fork(h.now, h.runs[0].r, 4, nil, []byte("x")); err != nil {
		t.Errorf("another principal's fork to where the stowed are to go: %v", err)
	}
}

// knot is two invocations that keep scratch at an element each, which has room for one. Each sends the other's element branches, which wait
// for room there, and more than may be held.
type knot struct {
	*town
	t     *testing.T
	owner map[*desk]travel.InvocationID
	live  []placed // the runs that fork; 0: at desk 1, to desk 2; 1: the other way round
	left  []int    // their forks; -1: it has ended
}

func newKnot(t *testing.T, forks int) *knot {
	k := &knot{newTown(t, 4, travel.Limits{PrincipalHeldRuns: 2, HeldRuns: 100}), t, map[*desk]travel.InvocationID{}, nil, []int{forks, forks}}
	for _, d := range k.desks {
		d.reserve = func(r *travel.Run) travel.Room {
			if o, ok := k.owner[d]; ok && o != r.Invocation() {
				return travel.RoomShort
			}
			k.owner[d] = r.Invocation()
			return travel.RoomTaken
		}
		d.unreserve = func(*travel.Run) {}
	}
	k.start(t, travel.StartArgs{Stateful: true, Deadline: k.now + 100*second}, 2)
	k.begin(k.settle(t, nil))
	k.now += 1000 // the other is younger
	core := k.desks[3].core
	b, err := core.Bind(k.now, k.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.Start(k.now, &travel.StartArgs{Binding: b, Stateful: true, Deadline: k.now + 100*second, Roots: []travel.Root{{To: 3, Payload: []byte("go")}}}); err != nil {
		t.Fatal(err)
	}
	k.begin(k.settle(t, nil))
	if len(k.live) != 2 {
		t.Fatalf("%d run, want 2", len(k.live))
	}
	return k
}

// begin does what a runtime does with runs that may begin: a root goes on, and any other ends.
func (k *knot) begin(runs []placed) {
	for ; len(runs) > 0; runs = k.settle(k.t, nil) {
		for _, p := range runs {
			if p.d.reserve(p.r) != travel.RoomTaken {
				p.r.User = 1
				p.d.core.Await(k.now, p.r, 1)
				continue
			}
			if err := p.d.core.HoldState(p.r, "scratch"); err != nil {
				k.t.Fatal(err)
			}
			if string(p.r.Payload) == "go" {
				k.live = append(k.live, p)
				continue
			}
			p.finish(k.town, travel.End{})
		}
	}
}

// fork has the i-th live run make its forks until one finds no room, and end after the last.
func (k *knot) fork(i int) {
	p, to := k.live[i], travel.Peer(3-i)
	for k.left[i] > 0 && !p.r.Ended() {
		if _, err := p.d.core.Fork(k.now, p.r, to, nil, []byte("list")); err != nil {
			p.d.core.Wait(k.now, p.r)
			return
		}
		k.left[i]--
		k.begin(k.settle(k.t, nil))
	}
	if k.left[i] >= 0 {
		k.left[i] = -1
		p.finish(k.town, travel.End{})
	}
}

// TestRoomAndQueues: invocations that wait for each other's room and queues at once get on long before their deadlines. The younger one may
// have to give way.
func TestRoomAndQueues(t *testing.T) {
	for _, forks := range []int{1, 8} {
		k := newKnot(t, forks)
		for range 4 * 5 { // quarters of a second
			for i := range k.live {
				k.fork(i)
			}
			k.begin(k.pass(t, second/4))
			for _, d := range k.desks {
				if d.freed > 0 {
					d.freed = 0
					delete(k.owner, d)
					d.core.RoomFreed()
				}
			}
			for i, p := range k.live {
				if k.left[i] >= 0 {
					p.d.core.Awake(p.r)
				}
			}
			k.begin(k.settle(t, nil))
		}
		if err := k.outcome(t); err != nil {
			t.Errorf("%d forks: the older one ended with %v", forks, err)
		}
		if young := k.desks[3].ended; len(young) != 1 || young[0].Err != nil && !errors.Is(young[0].Err, travel.ErrBackpressure) {
			t.Errorf("%d forks: the younger one ended with %v", forks, young)
		}
	}
}

// TestRecordsOfSeveral: what one principal has under way, and nobody has acknowledged, takes what one principal may have and no more: another's
// branches, parts and reports still find numbers, to the same element and to others.
func TestRecordsOfSeveral(t *testing.T) {
	w, alice, bob := junctionOf(t, travel.Limits{Records: 64})
	n := 0
	for err := error(nil); err == nil; n++ {
		if n > 64 {
			t.Fatal("one principal may have any number under way")
		}
		_, err = alice.d.core.Fork(w.now, alice.r, 3, nil, nil)
		if err != nil && (!errors.Is(err, travel.ErrBackpressure) || !strings.Contains(err.Error(), "Limits.Records") || alice.r.Ended()) {
			t.Fatalf("fork %d of one principal: %v", n, err)
		}
	}
	for i := range 8 {
		if _, err := bob.d.core.Fork(w.now, bob.r, 3, nil, nil); err != nil {
			t.Fatalf("fork %d of another principal, after %d of the first: %v", i, n, err)
		}
	}
	if err := bob.d.core.Part(w.now, bob.r, []byte("part")); err != nil {
		t.Errorf("a part: %v", err)
	}
	if err := alice.d.core.Part(w.now, alice.r, []byte("part")); !errors.Is(err, travel.ErrBackpressure) || alice.r.Ended() {
		t.Errorf("a part of the first principal's: %v", err)
	}
	runs := w.settle(t, nil)
	w.now += second / 20
	for _, d := range w.desks {
		d.core.Tick(w.now) // what is accepted is acknowledged
	}
	w.settle(t, nil)
	for _, p := range runs {
		p.finish(w, travel.End{})
	}
	alice.finish(w, travel.End{})
	bob.finish(w, travel.End{})
	w.empty(t)
	if len(w.desks[0].ended) != 1 || len(w.desks[3].ended) != 1 || w.desks[0].ended[0].Err != nil || w.desks[3].ended[0].Err != nil {
		t.Errorf("the futures ended with %v and %v", w.desks[0].ended, w.desks[3].ended)
	}
}

// TestBindingsShared: a principal that has ever more different functions run takes three quarters of the bindings, in use or idle, and leaves others theirs.
func TestBindingsShared(t *testing.T) {
	h := newHall(t, 2, 100, travel.Limits{Bindings: 8, Running: 64})
	ask := func(client, function int) {
		for _, d := range h.desks {
			h.image = d.put(fmt.Appendf(nil, "function %d", function))
		}
		h.ask(client, 1, travel.StartArgs{})
	}
	for i := range 7 {
		ask(1, i)
	}
	if n, ended := len(h.runs), h.desks[1].ended; n != 6 || len(ended) != 1 || !errors.Is(ended[0].Err, travel.ErrBackpressure) || !strings.Contains(ended[0].Err.Error(), `principal "p1"`) {
		t.Fatalf("%d functions of one principal run in 8 bindings, want 6; %+v", n, ended)
	}
	ask(2, 100)
	if len(h.runs) != 7 || len(h.desks[2].ended) > 0 {
		t.Fatalf("%d run, want another principal's too; %+v", len(h.runs), h.desks[2].ended)
	}
	h.runs[6].r.Binding().Data = "compiled"
	for len(h.runs) > 0 {
		h.end()
	}
	for i := range 20 { // one after the other: they take each other's places
		h.now += 1000
		ask(1, i)
		h.end()
	}
	ask(2, 100)
	if data := h.runs[0].r.Binding().Data; data != "compiled" {
		t.Errorf("another principal's function has to be made ready again: %v", data)
	}
}

// TestBindingsNamed: what runs of a principal name, or make, takes of the principal's share of the bindings too, and leaves others theirs.
func TestBindingsNamed(t *testing.T) {
	h := newHall(t, 2, 100, travel.Limits{Bindings: 8})
	h.ask(1, 1, travel.StartArgs{}) // its own function is one of the six
	p := h.runs[0]
	var err error
	n := 1
	for ; n <= 8 && err == nil; n++ {
		_, err = p.d.core.BindFor(h.now, p.r, travel.What{Image: p.d.put(fmt.Appendf(nil, "function %d", n))})
	}
	if !errors.Is(err, travel.ErrLimit) || !strings.Contains(err.Error(), `principal "p1"`) || n != 7 {
		t.Errorf("of 8 bindings one principal's run may have %d: %v", n-1, err)
	}
	if _, err := p.d.core.Make(h.now, p.r, p.d.put([]byte("made"))); !errors.Is(err, travel.ErrLimit) || !strings.Contains(err.Error(), `principal "p1"`) {
		t.Errorf("and it may make one more: %v", err)
	}
	for _, d := range h.desks {
		h.image = d.put([]byte("another's"))
	}
	h.ask(2, 1, travel.StartArgs{})
	if len(h.runs) != 2 || len(h.desks[2].ended) > 0 {
		t.Errorf("%d run, want another principal's too; %+v", len(h.runs), h.desks[2].ended)
	}
}
