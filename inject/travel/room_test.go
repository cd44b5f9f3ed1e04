package travel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// hall is one element whose room is counted in bytes; each client is another principal's and desk 0 of nobody.
type hall struct {
	*town
	t          *testing.T
	free       uint64
	share      uint64 // of each principal; 0: all
	taken      map[string]uint64
	has        map[*travel.Run]want
	order      []string // whose runs, in their order
	runs       []placed
	unreserved int
}

// want is what a run wants of the room, and for whom.
type want struct {
	name string
	need uint64
}

// newHall makes a hall with so much room and n clients: desks 1 to n, each of a principal of its own.
func newHall(t *testing.T, n int, room uint64, l travel.Limits) *hall {
	h := &hall{town: &town{}, t: t, free: room, taken: map[string]uint64{}, has: map[*travel.Run]want{}}
	for i := range n + 1 {
		h.desks = append(h.desks, newDesk(t, uint64(i+1), l))
	}
	for i := 1; i <= n; i++ {
		for _, pair := range [][2]int{{0, i}, {i, 0}} {
			err := h.desks[pair[0]].core.PeerUp(0, travel.Peer(pair[1]+1), travel.PeerInfo{Incarnation: uint64(pair[1] + 1), Name: string(rune('a' + pair[1])),
				Principal: fmt.Sprint("p", pair[1]), Member: true, Injector: true})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, d := range h.desks {
		h.image = d.put([]byte("image"))
		d.reserve, d.unreserve = h.reserve, func(*travel.Run) { h.unreserved++ }
	}
	return h
}

func (h *hall) reserve(r *travel.Run) travel.Room {
	w := r.User.(want)
	switch {
	case h.share > 0 && h.taken[w.name]+w.need > h.share:
		return travel.RoomShare
	case w.need > h.free:
		return travel.RoomShort
	}
	h.free -= w.need
	h.taken[w.name] += w.need
	h.has[r] = w
	return travel.RoomTaken
}

// ask has client i start a function that needs so much, and lets it begin or wait.
func (h *hall) ask(i int, need uint64, a travel.StartArgs) travel.FutureID {
	h.t.Helper()
	c := h.desks[i].core
	b, err := c.Bind(h.now, h.image, travel.ID{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Unbind(b)
	a.Binding = b
	if a.Deadline == 0 {
		a.Deadline = h.now + 100*second
	}
	for n := range max(a.Workers, 1) {
		a.Roots = append(a.Roots, travel.Root{To: 1, Worker: n, Payload: fmt.Appendf(nil, "%d %d", i, need)})
	}
	id, err := c.Start(h.now, &a)
	if err != nil {
		h.t.Fatal(err)
	}
	h.begin(h.settle(h.t, nil))
	return id
}

// begin does what a runtime does with runs that may begin.
func (h *hall) begin(runs []placed) {
	for ; len(runs) > 0; runs = h.settle(h.t, nil) {
		for _, p := range runs {
			if _, ok := h.has[p.r]; !ok {
				var w want
				var i int
				fmt.Sscanf(string(p.r.Payload), "%d %d", &i, &w.need)
				w.name = fmt.Sprint("p", i)
				p.r.User = w
				if p.d.core.AwaitsRoom(w.name) || h.reserve(p.r) != travel.RoomTaken {
					p.d.core.Await(h.now, p.r, w.need)
					continue
				}
			}
			h.order = append(h.order, fmt.Sprint(h.has[p.r].name, ":", h.has[p.r].need))
			h.runs = append(h.runs, p)
		}
	}
}

// end ends the run that began first.
func (h *hall) end() {
	p := h.runs[0]
	h.runs = h.runs[1:]
	w := h.has[p.r]
	delete(h.has, p.r)
	p.finish(h.town, travel.End{})
	h.free += w.need
	h.taken[w.name] -= w.need
	p.d.core.RoomFreed()
	h.begin(h.settle(h.t, nil))
}

func (h *hall) expect(want ...string) {
	h.t.Helper()
	if got := fmt.Sprint(h.order); got != fmt.Sprint(want) {
		h.t.Errorf("began %v, want %v", got, want)
	}
	h.order = nil
}

func (h *hall) finish() {
	h.t.Helper()
	for len(h.runs) > 0 {
		h.end()
	}
	h.empty(h.t)
}

// TestRoomTurns: principals take turns, whatever crowd one of them has.
func TestRoomTurns(t *testing.T) {
	h := newHall(t, 2, 2, travel.Limits{})
	for range 50 {
		h.ask(1, 1, travel.StartArgs{})
	}
	h.ask(2, 1, travel.StartArgs{})
	h.ask(2, 1, travel.StartArgs{})
	if n := h.desks[0].core.Sizes().Awaiting; n != 50 {
		t.Errorf("%d wait, want 50", n)
	}
	for range 5 {
		h.end()
	}
	h.expect("p1:1", "p1:1", "p1:1", "p2:1", "p1:1", "p2:1", "p1:1")
	h.finish()
}

// TestRoomShare: who has a share waits for it; others of the element's room do not wait with it.
func TestRoomShare(t *testing.T) {
	h := newHall(t, 2, 8, travel.Limits{})
	h.share = 6
	for range 3 {
		h.ask(1, 3, travel.StartArgs{})
	}
	h.ask(2, 2, travel.StartArgs{})
	h.ask(1, 3, travel.StartArgs{})
	awaits := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if name := fmt.Sprint("p", i+1); h.desks[0].core.AwaitsRoom(name) != w {
				t.Errorf("what needs room for %s waits: %t", name, !w)
			}
		}
	}
	awaits(true, false)
	h.expect("p1:3", "p1:3", "p2:2")
	h.ask(2, 1, travel.StartArgs{})
	awaits(true, true)
	h.finish()
	awaits(false, false)
}

// TestRoomSmall: who needs little does not wait behind who needs much, and goes before it for so long only as
// it does not starve.
func TestRoomSmall(t *testing.T) {
	h := newHall(t, 2, 32, travel.Limits{})
	for range 4 {
		h.ask(1, 8, travel.StartArgs{})
	}
	h.ask(1, 20, travel.StartArgs{})
	const crowd = 200
	for range crowd {
		h.ask(2, 8, travel.StartArgs{})
	}
	h.end()
	h.order = nil
	before := 0
	for ; len(h.runs) > 0; h.end() {
		for _, b := range h.order {
			if b == "p1:20" {
				if before < 10 || before >= crowd/2 {
					t.Errorf("%d of %d went before", before, crowd)
				}
				h.finish()
				return
			}
			before++
		}
		h.order = nil
	}
	t.Error("it never began")
}

// endWhere ends all runs of which the function says so.
func (h *hall) endWhere(match func(want) bool) {
	for i := 0; i < len(h.runs); i++ {
		if match(h.has[h.runs[i].r]) {
			h.runs[0], h.runs[i] = h.runs[i], h.runs[0]
			h.end()
			i = -1
		}
	}
}

// fills counts what begins before a branch of a name while crowds are kept coming; none stands for never.
func (h *hall) fills(rounds int, name string, crowd func()) (before int) {
	h.order = nil
	for range rounds {
		crowd()
		h.end()
		for _, b := range h.order {
			if b == name {
				return before
			}
			before++
		}
		h.order = nil
	}
	h.t.Fatalf("%s did not begin before %d others", name, before)
	return 0
}

// TestRoomDueKeepsTurn: a branch that is due stays first while its principal's small ones are given room, so another principal's
// crowd that needs as much does not get between.
func TestRoomDueKeepsTurn(t *testing.T) {
	h := newHall(t, 2, 32, travel.Limits{})
	for range 4 {
		h.ask(2, 8, travel.StartArgs{})
	}
	h.ask(1, 20, travel.StartArgs{})
	n := h.fills(1000, "p1:20", func() {
		h.endWhere(func(w want) bool { return w.need == 1 })
		for range 3 {
			h.ask(1, 1, travel.StartArgs{})
		}
		for h.desks[0].core.Sizes().Awaiting < 12 {
			h.ask(2, 8, travel.StartArgs{})
		}
	})
	if n > 300 { // of four that begin each round one overtakes it, 64 times
		t.Errorf("%d went before", n)
	}
	h.finish()
}

// TestRoomTinyCrowd: a branch that is due gets its room though a crowd that needs less than an eighth of it never ends.
func TestRoomTinyCrowd(t *testing.T) {
	h := newHall(t, 2, 32, travel.Limits{})
	for range 16 {
		h.ask(2, 2, travel.StartArgs{})
	}
	h.ask(1, 30, travel.StartArgs{})
	n := h.fills(5000, "p1:30", func() { h.ask(2, 2, travel.StartArgs{}) })
	if n < 64 || n > 1000 {
		t.Errorf("%d went before", n)
	}
	h.finish()
}

// TestRoomDueSmall: of a principal's branches that are due the small one is not held up by the large one, which came first.
func TestRoomDueSmall(t *testing.T) {
	h := newHall(t, 2, 210, travel.Limits{})
	h.ask(1, 200, travel.StartArgs{}) // runs on
	h.ask(1, 200, travel.StartArgs{}) // both wait, and come to be due
	h.ask(1, 20, travel.StartArgs{})
	for range 10 {
		h.ask(2, 1, travel.StartArgs{})
	}
	small := func(w want) bool { return w.need == 1 }
	for range 7 {
		for range 10 {
			h.ask(2, 1, travel.StartArgs{})
		}
		h.endWhere(small)
	}
	h.endWhere(small)
	h.order = nil
	h.free += 15
	h.desks[0].core.RoomFreed()
	h.begin(h.settle(t, nil))
	h.expect("p1:20")
	h.finish()
}

// TestRoomDueInOrder: branches that are due are given room in the order in which they came to be due, whoever's they are.
func TestRoomDueInOrder(t *testing.T) {
	h := newHall(t, 3, 1000, travel.Limits{})
	h.ask(3, 995, travel.StartArgs{})
	small := func(w want) bool { return w.need == 1 }
	for i, need := range []uint64{900, 100} {
		h.ask(i+1, need, travel.StartArgs{})
		for range 20 {
			for range 5 {
				h.ask(3, 1, travel.StartArgs{})
			}
			h.endWhere(small)
		}
	}
	h.order = nil
	h.free -= 50 // for one of them only
	h.end()
	h.expect("p1:900")
	h.free += 50
	h.finish()
	h.expect("p2:100")
}

// TestRoomWaitEnds: what waits can be canceled, ends by its deadline with what it waited for, and with its origin; what its
// runtime keeps for it is given up.
func TestRoomWaitEnds(t *testing.T) {
	h := newHall(t, 3, 1, travel.Limits{})
	h.ask(1, 1, travel.StartArgs{})
	canceled := h.ask(1, 1, travel.StartArgs{Deadline: h.now + 2*second})
	h.ask(2, 1, travel.StartArgs{Deadline: h.now + second})
	h.ask(3, 1, travel.StartArgs{})
	if err := h.desks[1].core.Cancel(h.now, canceled); err != nil {
		t.Fatal(err)
	}
	h.begin(h.settle(t, nil))
	if h.unreserved != 1 {
		t.Errorf("after a cancel %d are given up", h.unreserved)
	}
	h.now += second - travel.Instant(3*time.Millisecond) // the origin waits a little longer
	h.begin(h.pass(t, 0))
	if o := h.desks[2].ended; len(o) != 1 || !errors.Is(o[0].Err, travel.ErrDeadline) || !strings.Contains(o[0].Err.Error(), "MaxInstances") {
		t.Errorf("a deadline passed: %+v", o)
	}
	h.desks[0].core.PeerLost(h.now, 4, errors.New("reset"))
	h.desks[3].core.PeerLost(h.now, 1, errors.New("reset"))
	if h.unreserved != 3 || h.desks[0].core.AwaitsRoom("p1") {
		t.Errorf("%d are given up, want 3", h.unreserved)
	}
	h.finish()
}

// TestRoomIsBounded: so many wait for room, of one principal and in all. What arrives beyond that keeps its sender's credit and begins in its
// turn; nothing fails.
func TestRoomIsBounded(t *testing.T) {
	for _, backlog := range []int{0, 1} {
		h := newHall(t, 3, 1, travel.Limits{PrincipalHeldRuns: 4, HeldRuns: 6, BacklogBytes: backlog})
		for i := 1; i <= 3; i++ { // they are clients: members are told to send no more
			h.desks[0].core.PeerLost(0, travel.Peer(i+1), nil)
			if err := h.desks[0].core.PeerUp(0, travel.Peer(i+1), travel.PeerInfo{Incarnation: uint64(i + 1), Principal: fmt.Sprint("p", i), Injector: true}); err != nil {
				t.Fatal(err)
			}
		}
		kept := []int{0, 5, 5, 6} // one runs, and the first of each principal's begins before it finds no room
		all := 0
		for i, asked := range []int{0, 10, 7, 7} {
			for range asked {
				h.ask(i, 1, travel.StartArgs{})
			}
			if all += kept[i]; h.desks[0].kept != all {
				t.Errorf("after client %d the credit of %d is withheld, want %d", i, h.desks[0].kept, all)
			}
		}
		if n := h.desks[0].core.Sizes(); n.Awaiting != 7 || n.Kept != all || n.HeldRuns+n.Backlog != 7 || n.HeldRuns > 7 {
			t.Errorf("%+v", n)
		}
		for len(h.runs) > 0 {
			h.end()
		}
		for i, want := range []int{0, 10, 7, 7} {
			if n := len(h.desks[i].ended); n != want {
				t.Errorf("%d of client %d ended, want %d", n, i, want)
			}
		}
		h.finish()
	}
}

// TestQueueTurns: principals take turns to run, too, and no one has all places.
func TestQueueTurns(t *testing.T) {
	h := newHall(t, 2, 1000, travel.Limits{Running: 4})
	for range 20 {
		h.ask(1, 1, travel.StartArgs{})
	}
	h.ask(2, 1, travel.StartArgs{})
	h.ask(2, 1, travel.StartArgs{})
	for range 3 {
		h.end()
	}
	h.expect("p1:1", "p1:1", "p1:1", "p2:1", "p1:1", "p2:1", "p1:1")
	h.finish()
}

// TestYield: of two that wait for each other the older gets on, and the younger hears why. One that is at work elsewhere is left
// alone, however long the older one waits.
func TestYield(t *testing.T) {
	for _, waits := range []bool{false, true} {
		h := newHall(t, 2, 1, travel.Limits{})
		first := h.now
		away := h.keeps(2)
		if waits {
			away.r.User = want{"p2", 1}
			away.d.core.Await(h.now, away.r, 1)
		}
		h.now = first // the older one started then, and comes later
		h.ask(1, 1, travel.StartArgs{Stateful: true})
		h.now++
		passes := func() {
			for range 20 {
				h.begin(h.pass(t, 30*travel.Instant(time.Millisecond)))
				if h.desks[0].freed == 1 && h.free == 0 && len(h.order) == 0 {
					h.free, h.taken = 1, map[string]uint64{}
					h.desks[0].core.RoomFreed()
				}
			}
		}
		passes()
		o := h.desks[2].ended
		if waits {
			if len(o) != 1 || !errors.Is(o[0].Err, travel.ErrBackpressure) || !strings.Contains(o[0].Err.Error(), "started earlier") {
				t.Errorf("it stood in an older one's way, and waited: %+v", o)
			}
		} else {
			if len(o) != 0 {
				t.Errorf("it was at work: %+v", o)
			}
			h.expect()
			away.finish(h.town, travel.End{})
			h.settle(t, nil)
			passes()
			if o = h.desks[2].ended; len(o) != 1 || o[0].Err != nil {
				t.Errorf("it was at work: %+v", o)
			}
		}
		h.expect("p1:1")
		h.begin(h.pass(t, 3*second)) // no tombstone is left
		h.finish()
	}
}

// keeps has client i start a function that keeps its room at desk 0 and goes on to the client itself.
func (h *hall) keeps(i int) (away placed) {
	h.t.Helper()
	h.now++
	h.ask(i, 1, travel.StartArgs{Stateful: true, Deadline: h.now + 2*second})
	here := h.runs[0]
	if err := here.d.core.HoldState(here.r, "scratch"); err != nil {
		h.t.Fatal(err)
	}
	if err := here.d.core.Forward(h.now, here.r, travel.Peer(i+1), []byte("on")); err != nil {
		h.t.Fatal(err)
	}
	here.finish(h.town, travel.End{})
	delete(h.has, here.r)
	away = h.one(h.t, h.settle(h.t, nil))
	h.runs, h.order = nil, nil
	return away
}

// TestYieldBehind: one that waits is found behind younger ones that are at work.
func TestYieldBehind(t *testing.T) {
	h := newHall(t, 4, 3, travel.Limits{})
	first := h.now
	waits, atWork, too := h.keeps(2), h.keeps(3), h.keeps(4)
	waits.r.User = want{"p2", 1}
	waits.d.core.Await(h.now, waits.r, 1)
	h.now = first
	h.ask(1, 1, travel.StartArgs{Stateful: true, Deadline: h.now + 2*second})
	h.now += 4
	for range 10 {
		h.begin(h.pass(t, 30*travel.Instant(time.Millisecond)))
	}
	for i, want := range []int{0, 0, 1, 0, 0} {
		if n := len(h.desks[i].ended); n != want {
			t.Errorf("%d futures of client %d ended, want %d", n, i, want)
		}
	}
	h.free = 1
	h.desks[0].core.RoomFreed()
	h.begin(h.settle(t, nil))
	h.expect("p1:1")
	atWork.finish(h.town, travel.End{})
	too.finish(h.town, travel.End{})
	h.begin(h.pass(t, 3*second))
	h.finish()
}

// TestYieldNotTold: a future is ended only while it waits and when it stands in somebody's way, in whatever order its origin hears
// of both.
func TestYieldNotTold(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	id := w.start(t, travel.StartArgs{Stateful: true}, 2)
	run := w.one(t, w.settle(t, nil))
	room := func(from travel.Peer, what byte) {
		t.Helper()
		if _, err := w.desks[0].core.Recv(w.now, from, travel.KindRoom, []byte{what, byte(id), 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []byte{2, 1, 0, 2, 0, 1, 0, 2} {
		room(2, what)
	}
	if n := len(w.desks[0].ended); n != 0 {
		t.Fatalf("%d futures ended", n)
	}
	room(3, 1)
	room(2, 2)
	if o := w.desks[0].ended; len(o) != 1 || !errors.Is(o[0].Err, travel.ErrBackpressure) || w.desks[0].core.Counters().Yielded != 1 {
		t.Errorf("%+v", o)
	}
	run.finish(w, travel.End{})
	w.settle(t, nil)
	w.empty(t)
}
