package travel_test

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// compiling says how programs come to be ready in a trial. The zero value: they are.
type compiling struct {
	time   time.Duration // that it takes, at most
	fails  float64       // of those that begin to be made ready
	forget float64       // of a program that is ready not being ready the next time
	holds  bool          // runs keep their places meanwhile: as it must not be
}

// programs are those of one element, by image; the runs that wait for each in their order.
type programs struct {
	ready map[travel.ID]bool
	wait  map[travel.ID][]*travel.Run
	gave  int // runs that went on, or failed
}

func (p *programs) waiting() (n int) {
	for _, list := range p.wait {
		n += len(list)
	}
	return n
}

// leave forgets a run that waits.
func (p *programs) leave(r *travel.Run) {
	list := p.wait[r.Binding().Image]
	for i, x := range list {
		if x == r {
			p.wait[r.Binding().Image] = append(list[:i:i], list[i+1:]...)
			return
		}
	}
}

// program has a run wait for its program if that is not ready; false: it waits, or has ended.
func (e *element) program(r *travel.Run) bool {
	k, p, id := &e.t.compile, &e.programs, r.Binding().Image
	if k.time == 0 || e.state[workerOf(r)] > 0 {
		return true
	}
	if p.ready == nil {
		p.ready, p.wait = map[travel.ID]bool{}, map[travel.ID][]*travel.Run{}
	}
	if p.ready[id] {
		if e.t.w.Rand.Float64() >= k.forget {
			return true
		}
		delete(p.ready, id)
	}
	if k.holds {
		e.core.Own(r)
		e.n.Do(e.t.w.Between(0, k.time), func() {
			p.ready[id] = true
			e.execute(r)
			e.after()
		})
		return false
	}
	r.User = id
	first := len(p.wait[id]) == 0
	if !e.core.AwaitProgram(e.now(), r) {
		return false
	}
	p.wait[id] = append(p.wait[id], r)
	if first {
		e.n.Do(e.t.w.Between(0, k.time), func() { e.made(id) })
	}
	return false
}

// made ends the wait for a program. Nobody may wait any more.
func (e *element) made(id travel.ID) {
	p := &e.programs
	fails := e.t.w.Rand.Float64() < e.t.compile.fails
	p.ready[id] = !fails
	for len(p.wait[id]) > 0 {
		r := p.wait[id][0]
		p.gave++
		if fails {
			e.core.ProgramFailed(e.now(), r, travel.CodeRefused, "it does not compile")
			continue // Unreserve took it off the list
		}
		p.leave(r)
		e.core.ProgramReady(r)
	}
	e.after()
}

// TestSimProgram: branches wait for programs that are slow to be made ready, some of which fail. Nobody waits for a deadline, and a call fails for that
// reason only. Where a branch keeps its place meanwhile, the same seeds are slower: those that need nothing wait with it.
func TestSimProgram(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: 300 * time.Microsecond, Detect: 5 * time.Millisecond, WakeJitter: 200 * time.Microsecond},
		limits: travel.Limits{Running: 2},
		shape:  shape{steps: 12, roots: 2, forks: 2, parts: 2, forward: 0.7, run: 500 * time.Microsecond, bytes: 500, stateful: 0.4},
		nodes:  4, clients: 1, plans: 30, spread: 20 * time.Millisecond, deadline: [2]time.Duration{20 * time.Second, 30 * time.Second},
		objects: smallObjects, tables: true, compile: compiling{time: 80 * time.Millisecond, fails: 0.1},
	}
	held := k
	held.compile.fails, held.compile.holds = 0, true
	calm := held
	calm.compile.holds = false
	waited, failed, sooner, ran := 0, 0, 0, 0
	trials.Each(t, 25, func(seed uint64, fail seeds.Fail) {
		ran++
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			switch {
			case p.startError != nil:
				tr.fail("plan %d did not start: %v", p.id, p.startError)
			case p.endedAt-p.started > int64(5*time.Second):
				tr.fail("plan %d took %v and ended with %v", p.id, time.Duration(p.endedAt-p.started), p.err)
			case errors.Is(p.err, travel.ErrRefused):
				failed++
			case p.err != nil:
				tr.fail("plan %d ended with %v", p.id, p.err)
			}
		}
		for _, n := range tr.w.Nodes() {
			waited += n.Handler().(*element).programs.gave
		}
		if took(calm.run(seed, fail)) < took(held.run(seed, fail)) {
			sooner++
		}
	})
	if ran >= 25 && (failed == 0 || sooner <= ran/2) {
		t.Errorf("%d branches waited, %d calls failed, %d of %d worlds were slower where branches keep their places: too few to tell", waited, failed, sooner, ran)
	}
}

// took is how long all calls of a world took together.
func took(tr *trial) (sum time.Duration) {
	for _, p := range tr.plans {
		if p.err != nil || p.startError != nil {
			tr.fail("plan %d ended with %v, %v", p.id, p.startError, p.err)
		}
		sum += time.Duration(p.endedAt - p.started)
	}
	return sum
}

// TestSimProgramCancel: most calls are canceled, or their time ends, while their branches wait for programs. Nothing is left of them.
func TestSimProgramCancel(t *testing.T) {
	k := trialKind{
		faults: sim.Faults{MinDelay: 5 * time.Microsecond, MaxDelay: time.Millisecond, Reorder: true, Duplicate: 0.1, Detect: 5 * time.Millisecond},
		shape:  shape{steps: 12, roots: 3, forks: 2, parts: 2, forward: 0.7, run: time.Millisecond, stateful: 0.4},
		nodes:  4, clients: 1, plans: 40, spread: 20 * time.Millisecond, deadline: [2]time.Duration{10 * time.Millisecond, 10 * time.Second},
		cancel: 0.5, objects: smallObjects, tables: true, compile: compiling{time: 60 * time.Millisecond, forget: 0.2},
	}
	unready := 0
	trials.Each(t, 25, func(seed uint64, fail seeds.Fail) {
		tr := k.run(seed, fail)
		for _, p := range tr.plans {
			if p.err != nil && !p.canceled && !errors.Is(p.err, travel.ErrDeadline) {
				tr.fail("plan %d ended with %v", p.id, p.err)
			}
			if p.err != nil && errors.Is(p.err, travel.ErrDeadline) {
				unready++
			}
		}
	})
	if !trials.One() && unready == 0 {
		t.Error("no call's time ended while it waited: this tests little")
	}
}

// TestSimProgramChaos: the same where everything else goes wrong too, with and without few places.
func TestSimProgramChaos(t *testing.T) {
	k := chaos
	k.compile = compiling{time: 20 * time.Millisecond, fails: 0.1, forget: 0.1}
	narrow := k
	narrow.room = 3
	trials.Each(t, 40, func(seed uint64, fail seeds.Fail) {
		if seed%2 == 0 {
			k.run(seed, fail)
		} else {
			narrow.run(seed, fail)
		}
	})
}
