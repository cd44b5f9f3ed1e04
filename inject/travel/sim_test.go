package travel_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

var trials = seeds.Flags("./inject/travel")

// slack is how late a future may end: a tick of the wheel and the world's own lateness.
const slack = 4 * time.Millisecond

// trialKind is one sort of simulation.
type trialKind struct {
	faults   sim.Faults
	limits   travel.Limits
	shape    shape
	nodes    int
	clients  int // of the nodes: not members
	plans    int
	spread   time.Duration // over which plans start
	deadline [2]time.Duration
	evict    float64
	corrupt  float64
	cancel   float64
	crashes  int
	cuts     int
	objects  []int // sizes of images
	tables   bool
	room     int
	surge    int // of so many branches from and to each member, at most, is a round; 0: plans are random trees
	narrow   int
	compile  compiling
}

func (k *trialKind) world(seed uint64, fail seeds.Fail) *trial {
	w := sim.New(seed, k.faults)
	t := &trial{w: w, objects: map[travel.ID][]byte{}, evict: k.evict, corrupt: k.corrupt, limits: k.limits, members: k.nodes - k.clients, lazy: seed%2 == 1, room: k.room, patient: k.surge > 0, narrow: k.narrow, compile: k.compile, ordered: !k.faults.Reorder}
	t.fail = func(format string, args ...any) {
		fail("%v: %s", w, fmt.Sprintf(format, args...))
	}
	for i := range k.nodes {
		w.Add("node"+strconv.Itoa(i), t.boot)
	}
	w.Run(k.faults.Detect*2 + time.Millisecond) // everybody meets
	return t
}

// object makes an image or table of n bytes.
func (t *trial) object(n int) travel.ID {
	b := make([]byte, max(n, 8))
	binary.LittleEndian.PutUint64(b, t.w.Rand.Uint64())
	id := travel.ID(sha256.Sum256(b))
	t.objects[id] = b
	return id
}

// populate plans everything that is going to happen.
func (k *trialKind) populate(t *trial) {
	w := t.w
	var images, tables []travel.ID
	for _, n := range k.objects {
		images = append(images, t.object(n))
	}
	tables = append(tables, travel.ID{}, travel.ID{})
	if k.tables {
		tables = append(tables, t.object(3000), t.object(120000))
	}
	members := k.nodes - k.clients
	for i := range k.plans {
		var p *plan
		if k.surge > 0 {
			p = surgePlan(w.Rand, members, k.surge)
		} else {
			p = randomPlan(w.Rand, k.shape, func() int { return w.Rand.IntN(members) })
		}
		p.id, p.origin = i, w.Rand.IntN(k.nodes)
		p.image, p.table = images[w.Rand.IntN(len(images))], tables[w.Rand.IntN(len(tables))]
		p.form = uint8(i % 4 / 3) // of some calls; it is part of what is to run wherever a branch goes
		t.plans = append(t.plans, p)
		deadline := w.Between(k.deadline[0], k.deadline[1])
		w.After(w.Between(0, k.spread), func() { t.launch(p, deadline) })
		if w.Rand.Float64() < k.cancel {
			w.After(w.Between(0, k.spread+5*time.Millisecond), func() { t.cancel(p) })
		}
	}
	for range k.crashes {
		w.After(w.Between(0, k.spread+5*time.Millisecond), func() { t.crash(w.Nodes()[w.Rand.IntN(members)]) })
	}
	for range k.cuts {
		w.After(w.Between(0, k.spread), func() {
			a, b := w.Nodes()[w.Rand.IntN(k.nodes)], w.Nodes()[w.Rand.IntN(k.nodes)]
			if a == b {
				return
			}
			if w.Rand.IntN(2) == 0 {
				w.Cut(a, b)
				return
			}
			w.Partition(a, b, true)
			w.After(w.Between(0, 50*time.Millisecond), func() { w.Partition(a, b, false) })
		})
	}
}

func (t *trial) launch(p *plan, deadline time.Duration) {
	n := t.w.Nodes()[p.origin]
	if !n.Alive() {
		p.orphaned = true
		return
	}
	n.Do(0, func() { n.Handler().(*element).start(p, deadline, true) })
}

func (t *trial) cancel(p *plan) {
	n := t.w.Nodes()[p.origin]
	if p.fut == 0 || p.ended || p.orphaned || !n.Alive() {
		return
	}
	p.canceled = true
	e := n.Handler().(*element)
	if err := e.core.Cancel(e.now(), p.fut); err != nil {
		t.fail("plan %d: Cancel: %v", p.id, err)
	}
	if !p.ended || !errors.Is(p.err, travel.ErrCanceled) {
		t.fail("plan %d: canceled, but ended=%v with %v", p.id, p.ended, p.err)
	}
	e.after()
	n.Do(0, func() {})
}

func (t *trial) crash(n *sim.Node) {
	if !n.Alive() {
		return
	}
	for _, p := range t.plans {
		if p.origin == n.Index && p.life != 0 && !p.ended { // also one whose start waits for room
			p.orphaned = true
		}
	}
	t.w.Crash(n)
	t.w.After(t.w.Between(0, 40*time.Millisecond), func() { t.w.Restart(n) })
}

// checkSuccess says what a success means: every step happened exactly once,
// and every piece of every result came exactly once.
func (t *trial) checkSuccess(p *plan) {
	for i, s := range p.steps {
		if s.runs != 1 {
			t.fail("plan %d succeeded, but step %d ran %d times", p.id, i, s.runs)
		}
	}
	if want := p.expected(); !maps.Equal(want, p.results) {
		t.fail("plan %d succeeded with the pieces %v, want %v", p.id, p.results, want)
	}
	if p.fails {
		t.fail("plan %d succeeded, but one of its steps failed", p.id)
	}
	if p.forgot != "" {
		t.fail("plan %d succeeded, but %s", p.id, p.forgot)
	}
}

// checkLimits holds at every moment.
func (t *trial) checkLimits() {
	l := t.limits
	over := func(name string, got, limit int) {
		if limit > 0 && got > limit {
			t.fail("%s: %d, at most %d", name, got, limit)
		}
	}
	for _, n := range t.w.Nodes() {
		if !n.Alive() {
			continue
		}
		s := n.Handler().(*element).core.Sizes()
		over("futures", s.Futures, l.Futures)
		over("invocations", s.Invocations, l.Invocations)
		over("running", s.Running, l.Running)
		over("held runs", s.HeldRuns, l.HeldRuns)
		over("held bytes", s.HeldBytes, l.HeldBytes)
		over("backlog bytes", s.BacklogBytes, l.BacklogBytes)
		over("records", s.Records, l.Records)
		over("tombstones", s.Tombstones, l.Tombstones)
		over("stateful invocations and lapsed ones", s.Stateful, l.Stateful)
		over("fetches", s.Fetches, l.Fetches)
		over("fetch bytes", s.FetchBytes, l.FetchBytes)
	}
}

// checkEmpty holds when everything is over: nothing is left anywhere.
func (t *trial) checkEmpty() {
	for _, p := range t.plans {
		if !p.ended && !p.orphaned {
			t.fail("plan %d never ended", p.id)
		}
	}
	for _, n := range t.w.Nodes() {
		e := n.Handler().(*element)
		if s := e.core.Sizes(); s != (travel.Sizes{}) {
			t.fail("%s still holds %+v", n.Name, s)
		}
		if e.used > 0 || len(e.taken) > 0 {
			t.fail("%s still has %d places taken", n.Name, e.used)
		}
		if n := e.programs.waiting(); n > 0 {
			t.fail("%s still has %d runs that wait for their programs", e.n.Name, n)
		}
		if len(e.state) > 0 {
			t.fail("%s still holds state of %d invocations", n.Name, len(e.state))
		}
		for id, pins := range e.has {
			if pins > 0 {
				t.fail("%s still pins %v", n.Name, id)
			}
		}
	}
}

// run is one whole trial: everything happens, then time passes until nothing can.
func (k *trialKind) run(seed uint64, fail seeds.Fail) *trial {
	t := k.world(seed, fail)
	k.populate(t)
	var n int
	t.w.Check = func(int64) {
		if n++; n%64 == 0 {
			t.checkLimits()
		}
	}
	t.w.Run(k.spread + 60*time.Millisecond)
	for _, node := range t.w.Nodes() {
		t.w.Restart(node)
	}
	t.w.Run(k.deadline[1]*9/8 + 4*time.Second) // lapsed invocations are remembered for longer
	t.checkEmpty()
	return t
}

var smallObjects = []int{100, 5000, 40000, 200000}

// TestSimCalm: without faults everything succeeds.
func TestSimCalm(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 5 * time.Millisecond, WakeJitter: 200 * time.Microsecond},
		shape:  shape{steps: 25, roots: 3, forks: 3, parts: 3, forward: 0.6, run: 2 * time.Millisecond, bytes: 2000, stateful: 0.4, fail: 0.1},
		nodes:  5, clients: 1, plans: 40, spread: 30 * time.Millisecond, deadline: [2]time.Duration{8 * time.Second, 10 * time.Second},
		evict: 0.05, objects: smallObjects, tables: true,
	}
	trials.Each(t, 25, func(seed uint64, fail seeds.Fail) {
		tr := k.run(seed, fail)
		if tr.derived == 0 {
			tr.fail("no branch went on as another function")
		}
		if tr.made == 0 {
			tr.fail("no run made a function")
		}
		for _, p := range tr.plans {
			switch {
			case p.startError != nil:
				tr.fail("plan %d did not start: %v", p.id, p.startError)
			case p.fails && !errors.Is(p.err, travel.ErrRemote):
				tr.fail("plan %d ended with %v, want the failure of its step", p.id, p.err)
			case !p.fails && p.err != nil:
				tr.fail("plan %d ended with %v", p.id, p.err)
			case p.endedAt-p.started > int64(5*time.Second):
				tr.fail("plan %d took %v", p.id, time.Duration(p.endedAt-p.started))
			}
		}
	})
}

// TestSimCancel: the network reorders but loses nothing, and most futures are
// canceled or fail. Nothing runs where it is known that it need not.
func TestSimCancel(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 5 * time.Millisecond, Reorder: true, Duplicate: 0.2, Detect: 5 * time.Millisecond},
		shape:  shape{steps: 25, roots: 3, forks: 3, parts: 3, forward: 0.8, run: 2 * time.Millisecond, stateful: 0.4, fail: 0.4},
		nodes:  5, clients: 1, plans: 40, spread: 20 * time.Millisecond, deadline: [2]time.Duration{10 * time.Millisecond, 10 * time.Second},
		cancel: 0.5, objects: smallObjects, tables: true,
	}
	trials.Each(t, 25, func(seed uint64, fail seeds.Fail) {
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			if p.err != nil && !p.canceled && !p.fails && !errors.Is(p.err, travel.ErrDeadline) {
				tr.fail("plan %d ended with %v", p.id, p.err)
			}
		}
	})
}

// TestSimCrash: the network is reliable and one element crashes. Nobody waits
// for a deadline: what is lost is reported as lost. On the slow network much
// more is under way than reports wait to go out.
func TestSimCrash(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 5 * time.Millisecond, WakeJitter: 200 * time.Microsecond},
		shape:  shape{steps: 25, roots: 3, forks: 3, parts: 3, forward: 0.6, run: 2 * time.Millisecond, bytes: 2000, stateful: 0.4},
		nodes:  5, clients: 1, plans: 40, spread: 30 * time.Millisecond, deadline: [2]time.Duration{20 * time.Second, 30 * time.Second},
		crashes: 1, objects: smallObjects, tables: true,
	}
	chains := k
	chains.shape = shape{steps: 12, roots: 1, parts: 3, forward: 0.9, run: time.Millisecond, stateful: 0.2}
	chains.plans = 250
	slow := k
	slow.faults.MaxDelay = 15 * time.Millisecond
	slow.faults.Detect = 40 * time.Millisecond
	slow.objects = []int{100}
	slowChains := slow
	slowChains.shape, slowChains.plans = chains.shape, chains.plans
	kinds := []trialKind{k, chains, slow, slowChains, k, chains, slow, slowChains}
	for i := 4; i < 8; i++ { // a link breaks instead, and both its ends live on
		kinds[i].crashes, kinds[i].cuts = 0, 1
	}
	var lost, code [8]tally
	var worlds, made int
	trials.Each(t, 160, func(seed uint64, fail seeds.Fail) {
		tr := kinds[seed%8].run(seed, fail)
		made += tr.made
		if worlds++; tr.derived == 0 {
			tr.fail("no branch went on as another function")
		}
		for _, p := range tr.plans {
			if p.orphaned || p.startError != nil {
				continue
			}
			lost[seed%8].add(p)
			if p.mixed {
				code[seed%8].add(p)
			}
			if p.endedAt-p.started > int64(5*time.Second) {
				tr.fail("plan %d took %v and ended with %v", p.id, time.Duration(p.endedAt-p.started), p.err)
			}
			if p.err != nil && !errors.Is(p.err, travel.ErrPeerLost) && !errors.Is(p.err, travel.ErrRefused) {
				tr.fail("plan %d ended with %v", p.id, p.err)
			}
		}
	})
	if worlds >= len(kinds) && made == 0 { // one slow world may make none before it ends
		t.Error("no run made a function")
	}
	t.Logf("futures that ended with a loss, of crashes and of cut links: %v; of those whose branches made functions and ran as them: %v", lost, code)
}

// tally counts futures, and those of them that ended because something was lost.
type tally struct{ lost, of int }

func (n *tally) add(p *plan) {
	n.of++
	if errors.Is(p.err, travel.ErrPeerLost) || errors.Is(p.err, travel.ErrRefused) {
		n.lost++
	}
}

func (n tally) String() string { return fmt.Sprintf("%d of %d", n.lost, n.of) }

// TestSimScratch: what an invocation keeps at an element is there when a branch comes back, or the future fails. In
// the first sort of worlds links break while an element holds nothing of an invocation but its scratch (branches stay
// elsewhere until all that led there is released), and are made again before its branches come back. In the others
// deadlines fall between two visits: of branches that run or are on their way; that wait for queues with room for four messages;
// that wait for room to run, one function at a time; that wait for programs which take a third of the time; and of elements
// with two links between any two, one of which breaks and is noticed at one end before the other.
func TestSimScratch(t *testing.T) {
	cut := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 2 * time.Millisecond},
		shape:  shape{steps: 8, roots: 1, forks: 1, parts: 1, forward: 1, run: 150 * time.Millisecond, stateful: 1},
		nodes:  4, clients: 1, plans: 30, spread: 500 * time.Millisecond, deadline: [2]time.Duration{8 * time.Second, 10 * time.Second},
		cuts: 8, objects: []int{100},
	}
	late := trialKind{
		faults: sim.Faults{MinDelay: 200 * time.Microsecond, MaxDelay: 2 * time.Millisecond},
		shape:  shape{steps: 6, roots: 1, forward: 1, run: 10 * time.Millisecond, stateful: 1},
		nodes:  4, clients: 1, plans: 200, spread: 40 * time.Millisecond, deadline: [2]time.Duration{10 * time.Millisecond, 60 * time.Millisecond},
		objects: []int{100},
	}
	busy := late
	busy.shape = shape{steps: 20, roots: 2, forks: 3, forward: 1, run: 4 * time.Millisecond, stateful: 1}
	busy.plans = 100
	queues, room, programs, links := busy, busy, busy, busy
	queues.faults.Room, queues.faults.RoomReserved = 4, 60
	room.room = 1
	programs.compile = compiling{time: 15 * time.Millisecond, forget: 0.3}
	links.faults.Links, links.faults.Detect, links.cuts = 2, 20*time.Millisecond, 6
	kinds, good := []trialKind{cut, late, queues, room, programs, links}, [6]int{}
	trials.Each(t, 90, func(seed uint64, fail seeds.Fail) {
		which := seed % uint64(len(kinds))
		tr := kinds[which].run(seed, fail)
		for _, p := range tr.plans {
			if p.err == nil && p.startError == nil {
				good[which]++
			}
		}
	})
	if !trials.One() && slices.Contains(good[:], 0) {
		t.Errorf("%v plans succeeded in the sorts of worlds: the trials test little", good)
	}
}

// chaos has lost, doubled and late messages, crashes, cut links, cancels, and
// tables and queues too small for what happens.
var chaos = trialKind{
	faults: sim.Faults{Loss: 0.01, Duplicate: 0.1, Reorder: true, MinDelay: 5 * time.Microsecond, MaxDelay: 3 * time.Millisecond,
		Detect: 10 * time.Millisecond, WakeJitter: 500 * time.Microsecond, Room: 200, RoomReserved: 400},
	limits: travel.Limits{Futures: 64, Invocations: 200, Running: 16, HeldRuns: 64, HeldBytes: 128 << 10, PrincipalHeldRuns: 32,
		PrincipalHeldBytes: 64 << 10, BacklogBytes: 32 << 10, Records: 400, Tombstones: 24, Stateful: 20, Bindings: 6, Fetches: 6, FetchBytes: 300 << 10, OutboxBytes: 32 << 10, Branches: 64, Parts: 8},
	shape: shape{steps: 25, roots: 3, forks: 3, parts: 4, forward: 0.6, run: 2 * time.Millisecond, bytes: 4000, stateful: 0.4, fail: 0.05},
	nodes: 5, clients: 1, plans: 60, spread: 40 * time.Millisecond, deadline: [2]time.Duration{time.Millisecond, 2 * time.Second},
	evict: 0.2, corrupt: 0.1, cancel: 0.2, crashes: 2, cuts: 4, objects: append([]int{60, 70, 80, 90}, smallObjects...), tables: true,
}

// TestSimChaos: everything goes wrong at once.
func TestSimChaos(t *testing.T) {
	trials.Each(t, 60, func(seed uint64, fail seeds.Fail) { chaos.run(seed, fail) })
}

// TestSimEndpoints: several endpoints between every two elements, used as they come. One broken one, or one crash, is
// reported as such and nobody waits for a deadline; without faults everything succeeds.
func TestSimEndpoints(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 5 * time.Millisecond, WakeJitter: 200 * time.Microsecond, Links: 3},
		shape:  shape{steps: 12, roots: 3, forks: 3, parts: 3, forward: 0.8, run: 2 * time.Millisecond, bytes: 2000, stateful: 0.4},
		nodes:  4, clients: 1, plans: 60, spread: 30 * time.Millisecond, deadline: [2]time.Duration{20 * time.Second, 30 * time.Second},
		objects: smallObjects, tables: true,
	}
	cut, slow, crash, wild := k, k, k, chaos
	cut.cuts = 4
	slow.cuts, slow.faults.MaxDelay, slow.faults.Detect, slow.objects = 3, 15*time.Millisecond, 40*time.Millisecond, []int{100}
	crash.crashes = 1
	wild.faults.Links = 2
	kinds := []trialKind{k, cut, slow, crash, wild}
	trials.Each(t, 75, func(seed uint64, fail seeds.Fail) {
		which := seed % 5
		tr := kinds[which].run(seed, fail)
		for _, p := range tr.plans {
			switch {
			case p.orphaned || p.startError != nil || which == 4:
			case p.endedAt-p.started > int64(5*time.Second):
				tr.fail("plan %d took %v and ended with %v", p.id, time.Duration(p.endedAt-p.started), p.err)
			case p.err != nil && (which == 0 || !errors.Is(p.err, travel.ErrPeerLost) && !errors.Is(p.err, travel.ErrRefused)):
				tr.fail("plan %d ended with %v", p.id, p.err)
			}
		}
	})
}

// TestSimFull: queues have room for a handful of messages, so that both sides
// of every link are full. Nothing hangs, and what succeeds is whole.
func TestSimFull(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 50 * time.Microsecond, MaxDelay: 400 * time.Microsecond, Detect: 5 * time.Millisecond, Room: 4, RoomReserved: 6},
		limits: travel.Limits{Running: 4, HeldRuns: 40, PrincipalHeldRuns: 12, Records: 120},
		shape:  shape{steps: 25, roots: 3, forks: 3, parts: 6, forward: 0.6, run: time.Millisecond, bytes: 2000, stateful: 0.3},
		nodes:  4, plans: 80, spread: 10 * time.Millisecond, deadline: [2]time.Duration{5 * time.Second, 6 * time.Second},
		cancel: 0.05, objects: smallObjects, tables: true,
	}
	trials.Each(t, 40, func(seed uint64, fail seeds.Fail) {
		tr := k.run(seed, fail)
		good := 0
		for _, p := range tr.plans {
			if p.startError == nil && p.err == nil {
				good++
			}
		}
		if good == 0 {
			tr.fail("nothing succeeded")
		}
	})
}

// TestSimRepeats: a seed gives one history, so nothing in the core depends on
// anything but its events.
func TestSimRepeats(t *testing.T) {
	history := func(seed uint64, fail seeds.Fail) string {
		tr := chaos.run(seed, fail)
		h := fmt.Sprint(tr.w.Events)
		for _, p := range tr.plans {
			h += fmt.Sprintf("; %d %v %v", p.endedAt, p.err, len(p.results))
		}
		for _, n := range tr.w.Nodes() {
			h += fmt.Sprintf("; %+v", n.Handler().(*element).core.Counters())
		}
		return h
	}
	trials.Each(t, 5, func(seed uint64, fail seeds.Fail) {
		if a, b := history(seed, fail), history(seed, fail); a != b {
			fail("seed %d gave two histories:\n%s\n%s", seed, a, b)
		}
	})
}
