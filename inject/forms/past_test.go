package forms

import (
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/image"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// warm is of so many runs that took so long each.
func warm(n uint64, each time.Duration) Sample {
	return Sample{Warm: History{Runs: n, Time: time.Duration(n) * each}, longest: each}
}

// element runs a function as a Past prefers.
type element struct {
	t     *testing.T
	past  Past
	cost  [2]time.Duration // of a warm run as wasm, as native code
	cold  [2]time.Duration // what the first run after a turn takes more
	wasm  bool             // the last run's form
	ran   int
	turns int
	spent [2]time.Duration
}

// run has so many runs.
func (e *element) run(n int) *element {
	for range n {
		i, form, wasm := 0, image.Wasm, !e.past.PrefersNative()
		if !wasm {
			i, form = 1, image.LLVMBitcode
		}
		took, turned := e.cost[i], wasm != e.wasm || e.ran == 0
		if turned {
			took += e.cold[i]
			e.turns++
		}
		if e.wasm = wasm; wasm && took < unsure {
			e.past.Light()
			took = 0
		} else {
			e.past.Ran(form, took, !turned)
		}
		e.spent[i] += took
		e.ran++
	}
	return e
}

// now checks which form is preferred, once a look is over.
func (e *element) now(native bool, when string) {
	e.t.Helper()
	for range 2 * fewRuns {
		if e.past.Looks() {
			e.run(1)
		}
	}
	if e.past.PrefersNative() != native {
		e.t.Errorf("%s: native %v, want %v: %+v", when, !native, native, e.past)
	}
}

// TestColdFirst: first runs that find everything cold decide nothing, whichever form they are in.
func TestColdFirst(t *testing.T) {
	for name, c := range map[string]struct {
		cost, cold [2]time.Duration
		native     bool
	}{
		"native":                   {[2]time.Duration{50 * ms, 10 * ms}, [2]time.Duration{0, 400 * ms}, true},
		"native, a little":         {[2]time.Duration{800 * us, 400 * us}, [2]time.Duration{0, 2 * ms}, true},
		"both":                     {[2]time.Duration{50 * ms, 10 * ms}, [2]time.Duration{400 * ms, 400 * ms}, true},
		"wasm, which is better":    {[2]time.Duration{5 * ms, 50 * ms}, [2]time.Duration{400 * ms, 0}, false},
		"wasm, and runs are short": {[2]time.Duration{10 * us, 15 * us}, [2]time.Duration{3 * ms, 0}, false},
	} {
		e := &element{t: t, cost: c.cost, cold: c.cold}
		e.run(20000).now(c.native, name)
	}
}

// TestTierRenewed: what runs took in code that was made in haste is forgotten when the best is there, and native code that was given up for it is tried once more.
func TestTierRenewed(t *testing.T) {
	e := &element{t: t, cost: [2]time.Duration{5 * ms, 50 * ms}}
	e.run(10).now(false, "in haste")
	e.cost[1] = ms
	e.past.Renewed()
	e.run(2).now(true, "the best")
	if e.ran > 25 {
		t.Errorf("after %d runs", e.ran)
	}
}

// TestHasteIsNotJudged: cold runs end a trial only if there is never a warm one.
func TestHasteIsNotJudged(t *testing.T) {
	p := Past{}
	p.Ran(image.Wasm, 5*ms, false)
	for i := range coldRuns {
		if !p.PrefersNative() {
			t.Fatalf("given up after %d cold runs", i)
		}
		p.Ran(image.LLVMBitcode, 50*ms, false)
	}
	if p.PrefersNative() || p.Looks() {
		t.Errorf("each run is cold: %+v", p)
	}
}

// TestOneStall: one run of a trial during which something else had the processor does not count.
func TestOneStall(t *testing.T) {
	e := &element{t: t, cost: [2]time.Duration{5 * ms, ms}}
	e.run(3)
	e.past.Ran(image.LLVMBitcode, time.Second, true)
	e.now(true, "a second")
	// Nor does one of many short ones, which would have the function pay for a worker.
	e = &element{t: t, cost: [2]time.Duration{10 * us, 15 * us}}
	for range 50 {
		e.run(1000)
		e.past.Ran(image.Wasm, 10*ms, true)
		if e.now(false, "short runs"); e.past.Native.Tried() {
			t.Fatal("short runs were tried as native code")
		}
	}
}

// TestLooksAgain: a function that has settled hears of it when the other form has become better, or its own worse.
func TestLooksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		before, after [2]time.Duration
		native        bool // before
	}{
		"native becomes quicker":      {[2]time.Duration{50 * ms, 106 * ms}, [2]time.Duration{50 * ms, 10 * ms}, false},
		"wasm becomes slower":         {[2]time.Duration{5 * ms, 10 * ms}, [2]time.Duration{50 * ms, 10 * ms}, false},
		"wasm becomes quicker":        {[2]time.Duration{50 * ms, 10 * ms}, [2]time.Duration{ms, 10 * ms}, true},
		"native becomes slower":       {[2]time.Duration{50 * ms, 10 * ms}, [2]time.Duration{50 * ms, 106 * ms}, true},
		"runs become short":           {[2]time.Duration{50 * ms, 10 * ms}, [2]time.Duration{10 * us, 15 * us}, true},
		"short runs become long ones": {[2]time.Duration{10 * us, 15 * us}, [2]time.Duration{50 * ms, 10 * ms}, false},
	} {
		e := &element{t: t, cost: c.before, cold: [2]time.Duration{900 * us, 5 * ms}}
		e.run(100).now(c.native, name+", before")
		e.cost = c.after
		e.run(500000).now(!c.native, name+", after")
	}
}

// TestLooksRarely: looks at the form that is worse take a small part of a function's time, and less and less.
func TestLooksRarely(t *testing.T) {
	for name, cost := range map[string][2]time.Duration{
		"native": {5 * ms, ms}, "wasm": {ms, 5 * ms}, "wasm, by far": {270 * us, 40 * ms}, "as good": {ms, ms},
	} {
		e := &element{t: t, cost: cost, cold: [2]time.Duration{ms, 5 * ms}}
		for e.run(2); e.past.Looks(); e.run(1) {
		}
		worse := 0
		if !e.past.PrefersNative() {
			worse = 1
		}
		for _, c := range []struct {
			runs  int
			share float64
		}{{10000, 1. / stay}, {200000, 0.5 / stay}} {
			e.spent, e.turns = [2]time.Duration{}, 0
			e.run(c.runs)
			if share := float64(e.spent[worse]) / float64(e.spent[1-worse]); share > c.share || e.turns == 0 {
				t.Errorf("%s: in %d runs looks took %.4f of what the others did, in %d turns", name, c.runs, share, e.turns)
			}
		}
	}
}
