package travel_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// surgePlan draws an invocation as functions that go on in rounds make it: it keeps scratch and starts at every member, and each of
// its roots has many branches for every other one, some of which have more.
func surgePlan(r *rand.Rand, members, most int) *plan {
	p := &plan{results: make(map[[2]int]int), kept: make(map[[2]int]uint64), stateful: true, cancelAt: -1}
	add := func(at int) int {
		p.steps = append(p.steps, step{at: at, next: -1, hold: true, split: true, reply: true, bytes: r.IntN(400), run: time.Duration(r.Int64N(int64(20 * time.Microsecond)))})
		return len(p.steps) - 1
	}
	list := func(from, most int) {
		for to := range members {
			for n := r.IntN(most + 1); n > 0 && to != p.steps[from].at; n-- {
				i := add(to)
				p.steps[from].forks = append(p.steps[from].forks, i)
			}
		}
	}
	for at := range members {
		p.roots = append(p.roots, add(at))
	}
	for _, root := range p.roots {
		list(root, most)
	}
	for i := range p.steps[members:] {
		if r.IntN(most) == 0 {
			list(members+i, most)
		}
	}
	return p
}

// surges are such invocations where queues and what may be held are a tenth of what one sends in a round.
var surges = trialKind{
	faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 5 * time.Millisecond, WakeJitter: 200 * time.Microsecond, Room: 6, RoomReserved: 20},
	limits: travel.Limits{HeldRuns: 24, PrincipalHeldRuns: 6},
	nodes:  5, clients: 1, plans: 3, spread: 10 * time.Millisecond, deadline: [2]time.Duration{20 * time.Second, 30 * time.Second},
	objects: smallObjects, surge: 30,
}

// TestSimSurge: what elements send each other in one round is many times what their queues hold, and in every third world there is also
// room for few functions. All of it arrives, and nobody waits for a deadline or is found to be stuck; where nothing can be taken in beyond
// what may be held, somebody is.
func TestSimSurge(t *testing.T) {
	waits, takenIn, paced, compared, stuck := 0, 0, 0, 0, 0
	trials.Each(t, 20, func(seed uint64, fail seeds.Fail) {
		k := surges
		if seed%3 == 0 {
			k.plans, k.room = 8, 3
		}
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			gaveWay := k.room > 0 && errors.Is(p.err, travel.ErrBackpressure)
			if p.startError != nil || p.err != nil && !gaveWay || p.endedAt-p.started > int64(8*time.Second) {
				tr.fail("plan %d took %v and ended with %v, %v", p.id, time.Duration(p.endedAt-p.started), p.startError, p.err)
			}
		}
		for _, n := range tr.w.Nodes() {
			c := n.Handler().(*element).core.Counters()
			if c.Stuck > 0 {
				tr.fail("%s ended %d branches that it found to be stuck", n.Name, c.Stuck)
			}
			waits, takenIn, paced = waits+int(c.Waits), takenIn+int(c.TakenIn), paced+int(c.Paced)
		}
		if seed != 1 { // waiting in vain takes long
			return
		}
		compared++
		k.limits.BacklogBytes = 1
		for _, p := range k.run(seed, func(format string, args ...any) {}).plans {
			if errors.Is(p.err, travel.ErrDeadline) || errors.Is(p.err, travel.ErrBackpressure) && p.endedAt-p.started > int64(8*time.Second) {
				stuck++
			}
		}
	})
	t.Logf("runs waited %d times, %d branches were taken in, members were paced %d times; without a backlog %d plans were stuck", waits, takenIn, paced, stuck)
	if !trials.One() && (waits == 0 || takenIn == 0 || paced == 0) || compared > 0 && stuck == 0 {
		t.Error("too few to tell")
	}
}

// TestSimSurgeChaos: the same with little room for a backlog, where everything else goes wrong too. Nothing is lost of what was counted.
func TestSimSurgeChaos(t *testing.T) {
	k := chaos
	k.surge, k.plans = 20, 20
	trials.Each(t, 20, func(seed uint64, fail seeds.Fail) { k.run(seed, fail) })
}
