package excache

import (
	"math"
	"math/rand/v2"
	"testing"
)

// worked is a core with a program that works on its pages, and what the daemon does for it.
type worked struct {
	core  *Core
	rng   *rand.Rand
	calls [stall + 1]int
	waits int // faults that were answered only when other pages had left
	pages [stall + 1]int
	last  uint32 // the page of the last access, and whether it was a write: most are like the one before
	wrote bool
}

func newWorked(mib, local int, far bool) *worked {
	w := &worked{core: NewCore(local << 20 / PageBytes), rng: rand.New(rand.NewPCG(1, 2)), last: none}
	for r := range mib << 20 / RoomBytes {
		w.core.AddRoom(r)
		w.core.Own(r, 1, far)
	}
	return w
}

// at is an access to the i-th word.
func (w *worked) at(i int, write bool) {
	p := uint32(i / (PageBytes / 8))
	if p == w.last && (w.wrote || !write) {
		return
	}
	w.last, w.wrote = p, write
	for !w.core.Allows(p, write) {
		for i, e := range w.core.Fault(p, write, false) {
			w.calls[e.kind]++
			if i == 0 && (e.kind == save || e.kind == drop) {
				w.waits++
			}
		}
		for _, e := range w.core.MakeRoom() {
			w.calls[e.kind]++
		}
	}
}

func (w *worked) fill(n int) []uint64 {
	a := make([]uint64, n)
	for i := range a {
		w.at(i, true)
		a[i] = w.rng.Uint64()
	}
	return a
}

func (w *worked) sort(a []uint64, low, high int) {
	for high-low > 16 {
		pivot := a[low+(high-low)/2]
		i, j := low, high
		for i <= j {
			for w.at(i, false); a[i] < pivot; w.at(i, false) {
				i++
			}
			for w.at(j, false); a[j] > pivot; w.at(j, false) {
				j--
			}
			if i <= j {
				w.at(i, true)
				w.at(j, true)
				a[i], a[j] = a[j], a[i]
				i++
				j--
			}
		}
		if j-low < high-i {
			w.sort(a, low, j)
			low = i
		} else {
			w.sort(a, i, high)
			high = j
		}
	}
	for i := low + 1; i <= high; i++ {
		w.at(i, true)
		for j := i; j > low && a[j-1] > a[j]; j-- {
			a[j-1], a[j] = a[j], a[j-1]
		}
	}
}

var works = map[string]func(w *worked, n int){
	"quicksort": func(w *worked, n int) {
		w.sort(w.fill(n), 0, n-1)
		for i := range n {
			w.at(i, false)
		}
	},
	"scan": func(w *worked, n int) {
		w.fill(n)
		for range 4 {
			for i := 0; i < n; i += 8 {
				w.at(i, false)
				w.at(i, true)
			}
		}
	},
	"read": func(w *worked, n int) {
		w.fill(n)
		for range 4 {
			for i := 0; i < n; i += 8 {
				w.at(i, false)
			}
		}
	},
	"zipf": func(w *worked, n int) {
		w.fill(n)
		pages := n / 512
		for range 250_000 {
			p := int(float64(pages)*math.Pow(w.rng.Float64(), 4)) * 2654435761 % pages
			w.at(p*512, false)
			w.at(p*512, true)
		}
	},
	"hot": func(w *worked, n int) { // a walk through all, and an eighth of the pages at random beside it
		w.fill(n)
		pages := n / 512
		for range 4 {
			for i := range pages {
				w.at(i*512, false)
				for range 2 {
					w.at(w.rng.IntN(pages/8)*8*512+3*512, false)
				}
			}
		}
	},
	"lanes": func(w *worked, n int) { // 16 walks at a time, each through its part, four times over
		w.fill(n)
		for range 4 {
			for i := range n / 512 / 16 {
				for lane := range 16 {
					w.at(lane*(n/16)+i*512, false)
					w.at(lane*(n/16)+i*512, true)
				}
			}
		}
	},
	"random": func(w *worked, n int) {
		w.fill(n)
		for range 100_000 {
			w.at(w.rng.IntN(n), w.rng.IntN(2) == 0)
		}
	},
}

// TestWork: of programs that walk through their memory few accesses are faults, and what leaves does so in long runs. Each fault, and each
// run, is a handful of system calls.
func TestWork(t *testing.T) {
	names := []string{"scan", "read", "quicksort"}
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		w := newWorked(16, 2, false)
		works[name](w, 8<<20/8)
		c := &w.core.Counts
		if moved := c.Fetched + c.Zeroed; c.Faults*16 > moved || c.WriteFaults*32 > moved || c.Saved < 12*uint64(w.calls[save]) || c.Evicted < 12*uint64(w.calls[save]+w.calls[drop]) {
			t.Errorf("%s: %d faults, %d of them first writes, for %d pages; %d pages were saved in %d runs, and of %d that left %d runs were dropped",
				name, c.Faults, c.WriteFaults, moved, c.Saved, w.calls[save], c.Evicted, w.calls[drop])
		}
	}
}

// TestReadAfterFilling: what was written once and is only read from then on is saved twice at most: no guess shows that it is not written.
func TestReadAfterFilling(t *testing.T) {
	w := newWorked(16, 4, false)
	works["read"](w, 16<<20/8)
	if c := &w.core.Counts; c.Saved > 2*c.Zeroed {
		t.Errorf("%d pages were saved, of %d that were ever written", c.Saved, c.Zeroed)
	}
}

// TestReadAfterWrites: what was written here and there, and is read in a row from then on, is saved until each place was looked at once: not in the third walk. A run
// has several areas, and each learns from it; they used to wait until a run began with them.
func TestReadAfterWrites(t *testing.T) {
	const pages = 64 << 20 / PageBytes
	w := newWorked(64, 16, false)
	w.fill(pages * 512)
	for range 20_000 {
		w.at(w.rng.IntN(pages)*512, true)
	}
	for pass := range 4 {
		before := w.core.Counts.Saved
		for i := range pages {
			w.at(i*512, false)
		}
		if saved := w.core.Counts.Saved - before; pass >= 2 && saved > pages/64 {
			t.Errorf("walk %d: %d pages were saved, and nothing was written", pass, saved)
		}
	}
}

// TestLeaveAfterAnswer: where the store is mapped, what leaves for a walk does so after the thread that waits has its pages, however long the runs are.
func TestLeaveAfterAnswer(t *testing.T) {
	w := newWorked(64, 16, false)
	works["scan"](w, 64<<20/8)
	if misses := int(w.core.Counts.Faults - w.core.Counts.WriteFaults); w.waits*20 > misses {
		t.Errorf("%d of %d misses waited until other pages had left", w.waits, misses)
	}
}

// TestRoundAndRound: a walk round and round through more than is local finds a part of it. First in, first out would have each page leave just before the walk is there
// again.
func TestRoundAndRound(t *testing.T) {
	const pages = 64 << 20 / PageBytes
	w := newWorked(64, 16, false)
	w.fill(pages * 512)
	for pass := range 5 {
		before := w.core.Counts.Fetched
		for i := range pages {
			w.at(i*512, true)
		}
		if fetched := w.core.Counts.Fetched - before; pass >= 1 && fetched > pages*9/10 {
			t.Errorf("walk %d: %d of %d pages came; a quarter of all is local", pass, fetched, pages)
		}
	}
}

// TestHotBesideWalk: what comes back again and again stays, though far more passes by than is local. A page that leaves the main queue must be known
// when it comes back, or each round of the queue is a miss for each hot page.
func TestHotBesideWalk(t *testing.T) {
	w := newWorked(64, 16, false)
	works["hot"](w, 64<<20/8)
	const walked = 5 * 64 << 20 / PageBytes // the filling is one of the walks
	if c := &w.core.Counts; c.Fetched+c.Zeroed > walked || c.Faults > 10_000 {
		t.Errorf("%d pages came with %d faults; the walks alone pass %d", c.Fetched+c.Zeroed, c.Faults, walked)
	}
}

// TestWalksAfterRandom: pages that a program used at random, and that stay for having come back, give way to walks: from the third walk on all that comes does so in
// runs. They used to stay, one here and one there, for as long as walks went on, and each cut a run in two.
func TestWalksAfterRandom(t *testing.T) {
	w := newWorked(64, 16, false)
	w.fill(64 << 20 / 8)
	const area, areas, length = 32, 64 << 20 / PageBytes / 32, 31 // short walks, of runs of 1, 2, 4, 8 and 16 pages
	for range 20_000 {
		w.at(w.rng.IntN(areas*area)*512, true)
	}
	for pass := range 4 {
		clear(w.calls[:])
		for walk := range areas {
			for at := range length {
				w.at((walk*37%areas*area+at)*512, true)
			}
		}
		if fills := w.calls[fill] + w.calls[fillProtected]; pass >= 2 && fills > 5*areas+areas/10 {
			t.Errorf("walk %d: %d runs came, want %d", pass, fills, 5*areas)
		}
	}
}

// BenchmarkWork counts what the daemon is asked for, and asks the kernel for.
func BenchmarkWork(b *testing.B) {
	for _, name := range []string{"quicksort", "scan", "read", "zipf", "hot", "lanes", "random"} {
		b.Run(name, func(b *testing.B) {
			var w *worked
			for b.Loop() {
				w = newWorked(64, 16, false)
				works[name](w, 64<<20/8)
			}
			c := &w.core.Counts
			b.ReportMetric(float64(c.Faults-c.WriteFaults), "misses")
			b.ReportMetric(float64(c.WriteFaults), "write-faults")
			b.ReportMetric(float64(c.Fetched), "fetched")
			b.ReportMetric(float64(w.calls[fill]+w.calls[fillProtected]+w.calls[fillZero]+w.calls[fillBlank]), "fills")
			b.ReportMetric(float64(c.Saved), "saved")
			b.ReportMetric(float64(w.calls[save]), "saves")
			b.ReportMetric(float64(w.calls[drop]), "drops")
		})
	}
}
