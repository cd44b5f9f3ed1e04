package forms

import (
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/inject/image"
)

// LongRun is the mean time of a run from which on native code is worth its worker process: a hand-over to one and back costs
// about 3 µs, so that is a twentieth of it.
const LongRun = 60 * time.Microsecond

const (
	// longEnough is what runs as wasm take together, at least, before anything follows from them: a first run of 100 µs found everything cold.
	longEnough = time.Millisecond
	// fewRuns is how many warm runs a trial of a form takes. The longest of them does not count: another program may have had the processor.
	fewRuns = 4
	// coldRuns is after how many cold runs these count in place of warm ones: then cold is how the function runs here, as each of its runs has a new process.
	coldRuns = 32
	// span bounds the runs that a mean is of: those before it count half as much from there on.
	span = 256
	// unsure is how exactly a wasm run's time is known: to a slice.
	unsure = 100 * time.Microsecond
	// stay is for how many times as long as a look takes the form that has proved better runs at least before the next look, …
	stay = 16
	// … which doubles with each look that finds nothing new, so often at most: looks take a 16th of a function's time at first, and a 2,048th in the end.
	maxDoublings = 7
	// turning is what a look costs besides its runs: a worker is made for it, and ends.
	turning = time.Millisecond
)

// History is what runs of a function at an element came to.
type History struct {
	Runs uint64        // that ended
	Time time.Duration // that they took together, without waiting
}

// Mean is the mean time of a run.
func (h History) Mean() time.Duration {
	if h.Runs == 0 {
		return 0
	}
	return h.Time / time.Duration(h.Runs)
}

// Sample is how long runs in one form take, by the last ones. Cold ones, which find pages that were not touched and code that is not the best yet,
// count only until there is a warm one.
type Sample struct {
	Warm, Cold History
	longest    time.Duration // of the warm ones
}

// add counts a run.
func (s *Sample) add(took time.Duration, warm bool) {
	if !warm {
		s.Cold.Runs++
		s.Cold.Time += took
		return
	}
	s.Warm.Runs++
	s.Warm.Time += took
	s.longest = max(s.longest, took)
	for s.Warm.Runs >= span {
		s.Warm = History{Runs: (s.Warm.Runs - 1) / 2, Time: (s.Warm.Time - s.longest) / 2}
		s.longest = 0
	}
}

// counted are the runs that the mean is of.
func (s *Sample) counted() History {
	switch {
	case s.Warm.Runs == 0:
		return s.Cold
	case s.Warm.Runs < fewRuns:
		return s.Warm
	}
	return History{Runs: s.Warm.Runs - 1, Time: s.Warm.Time - s.longest}
}

// Mean is how long a run takes, by what is known; 0: nothing is, or the runs end within their first slice.
func (s *Sample) Mean() time.Duration { return s.counted().Mean() }

// known reports whether a trial has come to its end.
func (s *Sample) known() bool { return s.Warm.Runs >= fewRuns || s.Cold.Runs >= coldRuns }

// Tried reports whether there was any run.
func (s *Sample) Tried() bool { return s.Warm.Runs+s.Cold.Runs > 0 }

// long reports whether runs are worth a process.
func (s *Sample) long() bool {
	h := s.counted()
	return h.Time >= longEnough && h.Mean() >= LongRun
}

// Past is how a function has run at an element, as wasm and as native code, and what Auto makes of that. The function has settled on one of the two, wasm at
// first. Now and then it looks how long the other takes, by a few runs, once its own have taken many times what a look costs.
type Past struct {
	Wasm, Native Sample

	settled   bool          // on native code
	away      bool          // it looks at the other form
	spent     time.Duration // that runs took since it began to look, or has looked
	due       time.Duration // that is spent before it looks again, …
	doublings int           // … doubled so often while the other does not seem better
}

// Light counts a run as wasm that ended within its first slice, in as few steps as possible: what follows from it does so after a longer one.
func (p *Past) Light() { p.Wasm.Warm.Runs++ }

// Ran counts a run, and decides in which form the next ones are.
func (p *Past) Ran(form image.Form, took time.Duration, warm bool) {
	native := form != image.Wasm
	p.sample(native).add(took, warm)
	if native != p.PrefersNative() { // the other code is not ready yet, or a caller asked for this one
		return
	}
	p.spent += took
	if p.away {
		p.judge()
	} else {
		p.look()
	}
}

// Renewed says that better native code is ready than what has run: how long that took tells nothing of it.
func (p *Past) Renewed() { p.Native = Sample{} }

// PrefersNative reports whether the function is to run as native code: it has settled on it, or looks how long it takes.
func (p *Past) PrefersNative() bool {
	if p.away && !p.settled {
		return p.Wasm.long() // else its runs have become short meanwhile
	}
	return p.settled != p.away
}

// Looks reports whether the function runs in a form that it has not settled on.
func (p *Past) Looks() bool { return p.away }

func (p *Past) sample(native bool) *Sample {
	if native {
		return &p.Native
	}
	return &p.Wasm
}

// slower reports whether native code takes longer than wasm: as where a function makes many host calls that the node answers, each a hand-over.
func (p *Past) slower() bool { return p.Native.known() && p.Native.Mean() > p.Wasm.Mean()+unsure }

// wasmBetter reports whether the function had better run as wasm.
func (p *Past) wasmBetter() bool { return !p.Wasm.long() || p.slower() }

// left is how much runs are to take yet before the function looks again.
func (p *Past) left() time.Duration {
	due := p.due
	if p.wasmBetter() != p.settled {
		due <<= p.doublings
	}
	return due - p.spent
}

// look has a function look at the form that it has not settled on, if that is due.
func (p *Past) look() {
	switch {
	case !p.settled && !p.Wasm.long():
		return
	case !p.settled && !p.Native.Tried():
	case p.left() > 0:
		return
	}
	p.away, p.spent = true, 0
	*p.sample(!p.settled) = Sample{}
}

// judge ends a look that has seen enough.
func (p *Past) judge() {
	other := p.sample(!p.settled)
	if !other.known() || p.settled && other.Mean() >= LongRun && !other.long() {
		return
	}
	cost := p.spent
	if p.wasmBetter() == p.settled {
		cost = (fewRuns + 1) * p.sample(p.settled).Mean()
		p.settled, p.doublings = !p.settled, 0
	} else if p.doublings < maxDoublings {
		p.doublings++
	}
	p.away, p.spent, p.due = false, 0, stay*(cost+turning)
}

// why says why the function runs in the form that it does.
func (p *Past) why() string {
	switch wasm := &p.Wasm; {
	case !wasm.Tried():
		return "wasm is ready first, and nothing is known of its runs yet"
	case p.settled && p.away && (!wasm.known() || wasm.Mean() >= LongRun):
		return fmt.Sprintf("runs as native code took %s each, and now a few show how long they take as wasm", each(&p.Native))
	case p.settled && !p.away && p.Native.Tried():
		return fmt.Sprintf("runs as native code take %s each, and as wasm took %s", each(&p.Native), each(wasm))
	case p.PrefersNative() || wasm.long() && !p.slower():
		return fmt.Sprintf("runs as wasm took %s each: native code is worth its process from %v on", each(wasm), LongRun)
	case wasm.long():
		return fmt.Sprintf("runs as native code took %s each, and as wasm take %s: native code is tried again once they have taken %v more", each(&p.Native), each(wasm), max(p.left(), 0).Round(time.Millisecond))
	case wasm.Mean() >= LongRun:
		return fmt.Sprintf("runs took %v so far, and nothing follows from less than %v together: native code is worth its process from %v each on", wasm.counted().Time, longEnough, LongRun)
	}
	return fmt.Sprintf("runs take %s each: native code is worth its process from %v on", each(&p.Wasm), LongRun)
}

// each says how long a run took, as far as that was measured: one that ends within its first slice counts as nothing.
func each(s *Sample) string {
	if s.Mean() < time.Microsecond {
		return fmt.Sprintf("less than %v", unsure)
	}
	return s.Mean().Round(time.Microsecond).String()
}
