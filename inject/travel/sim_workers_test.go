package travel_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// TestSimWorkers: invocations have up to four workers at each element, of which two or three may be at work there. Each worker runs
// one branch at a time and finds its own scratch, all succeed, and several are at work at once.
func TestSimWorkers(t *testing.T) {
	k := trialKind{
		faults: roomy.faults,
		shape:  shape{steps: 25, roots: 3, forks: 3, parts: 3, forward: 0.6, run: 2 * time.Millisecond, bytes: 2000, stateful: 0.8, workers: 4},
		nodes:  5, clients: 1, plans: 40, spread: 30 * time.Millisecond, deadline: [2]time.Duration{8 * time.Second, 10 * time.Second},
		evict: 0.05, objects: smallObjects, tables: true,
	}
	trials.Each(t, 25, func(seed uint64, fail seeds.Fail) {
		k.limits.Workers = 2 + int(seed%2)
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			if p.startError != nil || p.err != nil {
				tr.fail("plan %d ended with %v, %v", p.id, p.startError, p.err)
			}
		}
		if tr.atOnce < 2 {
			tr.fail("no two workers of an invocation ran at once")
		}
	})
}

// TestSimWorkersRoom: workers of an invocation keep scratch where others of it wait for room, and where there is room for two in all.
// Age decides between invocations; one that has nobody in its way but itself is told so and ended, and nobody waits for a deadline.
func TestSimWorkersRoom(t *testing.T) {
	k := roomy
	k.shape.workers = 3
	gaveWay, own, done, ran := 0, 0, 0, 0
	trials.Each(t, 40, func(seed uint64, fail seeds.Fail) {
		ran++
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			var e *travel.RemoteError
			switch {
			case p.startError != nil:
				tr.fail("plan %d did not start: %v", p.id, p.startError)
			case p.endedAt-p.started > int64(5*time.Second):
				tr.fail("plan %d took %v and ended with %v", p.id, time.Duration(p.endedAt-p.started), p.err)
			case p.err == nil:
				done++
			case !errors.As(p.err, &e) || !errors.Is(p.err, travel.ErrBackpressure):
				tr.fail("plan %d ended with %v", p.id, p.err)
			case strings.Contains(e.Text, "workers keep scratch here"):
				own++
			default:
				gaveWay++
			}
		}
	})
	t.Logf("%d succeeded, %d gave way, %d were in their own way", done, gaveWay, own)
	if ran >= 40 && (gaveWay == 0 || own == 0 || done == 0) {
		t.Error("too few to tell")
	}
}

// TestSimWorkersChaos: the same where everything else goes wrong too.
func TestSimWorkersChaos(t *testing.T) {
	k := chaos
	k.shape.workers, k.shape.stateful, k.limits.Workers = 4, 0.7, 3
	trials.Each(t, 40, func(seed uint64, fail seeds.Fail) {
		k.room = int(seed%2) * 4
		k.run(seed, fail)
	})
}
