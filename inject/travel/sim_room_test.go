package travel_test

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// roomy has two places at each element for many functions, most of which keep theirs and go on to others.
var roomy = trialKind{
	faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 5 * time.Millisecond, WakeJitter: 200 * time.Microsecond},
	shape:  shape{steps: 8, roots: 2, forks: 2, parts: 2, forward: 0.8, run: time.Millisecond, bytes: 500, stateful: 0.7},
	nodes:  4, clients: 1, plans: 30, spread: 10 * time.Millisecond, deadline: [2]time.Duration{20 * time.Second, 30 * time.Second},
	objects: smallObjects, room: 2,
}

// TestSimRoom: branches wait for room. Those that keep a place at one element and wait for one at another give way by age, so
// that nobody waits for a deadline; without that rule somebody does.
func TestSimRoom(t *testing.T) {
	stuck := roomy
	stuck.limits.RoomPatience = time.Hour
	gaveWay, waited, deadlocks := 0, 0, 0
	ran := 0
	trials.Each(t, 40, func(seed uint64, fail seeds.Fail) {
		ran++
		tr := roomy.run(seed, fail)
		for _, p := range tr.plans {
			switch {
			case p.startError != nil:
				tr.fail("plan %d did not start: %v", p.id, p.startError)
			case p.endedAt-p.started > int64(5*time.Second):
				tr.fail("plan %d took %v and ended with %v", p.id, time.Duration(p.endedAt-p.started), p.err)
			case errors.Is(p.err, travel.ErrBackpressure):
				gaveWay++
			case p.err != nil:
				tr.fail("plan %d ended with %v", p.id, p.err)
			}
		}
		for _, n := range tr.w.Nodes() {
			waited += int(n.Handler().(*element).core.Counters().Awaited)
		}
		for _, p := range stuck.run(seed, fail).plans {
			if errors.Is(p.err, travel.ErrDeadline) {
				deadlocks++
			}
		}
	})
	t.Logf("%d branches waited for room, %d futures gave way; without the rule of age %d ended by their deadline", waited, gaveWay, deadlocks)
	if ran >= 40 && (gaveWay == 0 || deadlocks == 0) {
		t.Error("too few to tell")
	}
}

// TestSimRoomHonest: room is short at one element only. Functions that keep a place there and compute elsewhere for long wait for
// nobody, so no ring can be, and none of them is ended, however long older ones wait for its place.
func TestSimRoomHonest(t *testing.T) {
	k := roomy
	k.narrow, k.shape.run = 1, 400*time.Millisecond
	k.deadline = [2]time.Duration{200 * time.Second, 300 * time.Second}
	long, ran := 0, 0
	trials.Each(t, 12, func(seed uint64, fail seeds.Fail) {
		ran++
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			if p.startError != nil || p.err != nil {
				tr.fail("plan %d ended with %v, %v", p.id, p.startError, p.err)
			}
			if p.endedAt-p.started > int64(time.Second) {
				long++
			}
		}
	})
	if ran >= 12 && long == 0 {
		t.Error("nobody waited long, so this tests nothing")
	}
}

// TestSimRoomChaos: the same where everything else goes wrong too; nothing is lost of what was taken.
func TestSimRoomChaos(t *testing.T) {
	k := chaos
	k.room = 3
	trials.Each(t, 40, func(seed uint64, fail seeds.Fail) { k.run(seed, fail) })
}
