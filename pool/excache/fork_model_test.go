package excache

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// try is touch, but for an access that waits for a fork: false.
func (w *world) try(p uint32, write bool) bool {
	for idle := 0; !w.there[p] || write && !w.writes[p]; {
		w.apply(slices.Clone(w.core.Fault(p, write, false)))
		if len(w.under) > 0 {
			idle = 0
		} else if idle++; idle == 3 {
			return false
		}
		w.land()
	}
	return true
}

// parentPages are those of the two rooms that are forked.
const parentPages = 2 * roomPages

// work has the parent read its pages, and write and free some. An access that waits for the fork ends the step.
func (w *world) work(steps int, writes bool) {
	for range steps {
		at := uint32(w.rng.IntN(parentPages))
		write := writes && w.rng.IntN(2) == 0
		for p := at; p < min(at+uint32(1+w.rng.IntN(40)), parentPages); p++ {
			if !w.try(p, write) {
				return
			}
			if w.window[p] != w.plain[p] {
				w.t.Fatalf("page %d reads %d, not %d", p, w.window[p], w.plain[p])
			}
			if write {
				w.plain[p]++
				w.window[p] = w.plain[p]
			}
		}
		if writes && w.rng.IntN(10) == 0 {
			k := min(uint32(w.rng.IntN(600)), parentPages-at)
			w.apply(slices.Clone(w.core.Free(at, k)))
			clear(w.plain[at : at+k])
		}
		if room, ranges := w.core.Discard(nil); len(ranges) > 0 {
			w.room, w.ranges = room, ranges
		}
	}
}

// TestForkModel: a child sees what its parent had at one moment, and the parent what it wrote, whatever that does while the store copies.
func TestForkModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = parentPages
		far := rapid.Bool().Draw(t, "far")
		w := newWorld(t, rapid.IntRange(256, 600).Draw(t, "limit"), 4, far)
		for r := range 4 {
			w.core.Own(r, uint64(r/2), far)
		}
		w.work(rapid.IntRange(1, 150).Draw(t, "before"), true)
		parent, child := []int{0, 1}, []int{2, 3}
		runs := w.core.Still(parent)
		for _, e := range runs {
			clear(w.writes[e.first : e.first+e.n])
		}
		moment := slices.Clone(w.plain[:n])
		for _, e := range runs {
			for done := false; !done; {
				var effects []effect
				effects, done = w.core.Keep(e)
				w.apply(slices.Clone(effects))
				w.work(1, false)
				w.land()
			}
		}
		for w.core.unsettled(parent) {
			w.land()
		}
		var all [2][]Range
		for i, r := range parent {
			var err error
			if all[i], err = w.core.Clone(r, child[i]); err != nil {
				t.Fatal(err)
			}
			w.work(1, false)
		}
		w.core.GoOn(parent)
		w.apply(slices.Clone(w.core.Resume()))
		for i, r := range parent {
			for _, g := range all[i] {
				for p := g.Off / PageBytes; p < (g.Off+g.Size)/PageBytes; p++ {
					if w.rng.IntN(200) == 0 {
						w.work(1, true)
					}
					w.store[uint64(child[i])*roomPages+p] = w.store[uint64(r)*roomPages+p]
				}
			}
		}
		w.core.Cloned(parent)
		w.apply(slices.Clone(w.core.Resume()))
		copy(w.plain[n:], moment)
		w.work(20, true)
		w.check()
		for p := range w.plain {
			if w.touch(uint32(p), false); w.window[p] != w.plain[p] {
				t.Fatalf("page %d reads %d, not %d", p, w.window[p], w.plain[p])
			}
		}
		w.check()
	})
}
