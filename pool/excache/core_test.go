package excache

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/internal/uffd"
)

// world is a program, its window and a store, and carries out what the core says: pages are one byte each.
type world struct {
	t       *rapid.T
	core    *Core
	window  []byte
	there   []bool // the window has the page
	writes  []bool // and it is writable
	store   []byte
	plain   []byte // what the program must see
	broken  bool   // the store is gone
	misses  int
	crashed bool
	rng     *rand.Rand // which operation ends when
	buffers [Transfers][]byte
	firsts  [Transfers]uint32
	under   []effect // started, in whatever order they end
	room    int      // that ranges are of
	ranges  []Range  // being discarded
}

func newWorld(t *rapid.T, limit, rooms int, far bool) *world {
	n := rooms * roomPages
	w := &world{t: t, core: NewCore(limit), window: make([]byte, n), there: make([]bool, n), writes: make([]bool, n), store: make([]byte, n), plain: make([]byte, n)}
	for i := range w.store {
		w.store[i] = 0xee // of whoever had the room before
	}
	for r := range rooms {
		w.core.AddRoom(r)
		w.core.Own(r, 0, far)
	}
	w.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	return w
}

// land ends one of the operations that are under way.
func (w *world) land() bool {
	if len(w.ranges) > 0 && w.rng.IntN(3) == 0 {
		for _, r := range w.ranges {
			for p := range r.Size / PageBytes {
				w.store[uint64(w.room)*roomPages+r.Off/PageBytes+p] = 0xdd
			}
		}
		w.ranges = nil
		w.core.Discarded()
		w.apply(slices.Clone(w.core.Resume()))
	}
	if len(w.under) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.under))
	e := w.under[i]
	w.under = slices.Delete(w.under, i, i+1)
	if w.broken {
		for r := range w.core.gone {
			w.core.Lose(r)
		}
		return w.apply(slices.Clone(w.core.Failed(e.transfer)))
	}
	b, at := w.buffers[e.transfer], w.store[e.first:e.first+e.n]
	if puts(e) {
		copy(at, b)
	} else if w.rng.IntN(2) == 0 { // else it read them when it began
		copy(b, at)
	}
	w.apply(slices.Clone(w.core.Ended(e.transfer)))
	w.apply(slices.Clone(w.core.Resume()))
	w.apply(slices.Clone(w.core.MakeRoom()))
	return false
}

func puts(e effect) bool { return e.kind == send || e.kind == keepFar }

func (w *world) begin(e effect) {
	for _, o := range w.under {
		if o.transfer == e.transfer || puts(o) && puts(e) && o.first < e.first+e.n && e.first < o.first+o.n {
			w.t.Fatalf("%+v begins while %+v is under way", e, o)
		}
	}
	if e.n > runPages {
		w.t.Fatalf("%+v does not fit a buffer", e)
	}
	w.under = append(w.under, e)
	w.firsts[e.transfer] = e.first
	if e.kind == fetch {
		w.buffers[e.transfer] = bytes.Clone(w.store[e.first : e.first+e.n])
		return
	}
	b := bytes.Clone(w.window[e.first : e.first+e.n])
	w.buffers[e.transfer] = b
}

func (w *world) apply(effects []effect) (poisoned bool) {
	failed := []effect{}
	for _, e := range effects {
		if e.n == 0 || e.first/roomPages != (e.first+e.n-1)/roomPages {
			w.t.Fatalf("effect %+v crosses rooms", e)
		}
		if w.broken && (e.kind == fill || e.kind == fillProtected || e.kind == save) {
			failed = append(failed, e)
			continue
		}
		if e.kind == fetch || puts(e) {
			w.begin(e)
		}
		for p := e.first; p < e.first+e.n; p++ {
			w.one(e, p)
		}
		poisoned = poisoned || e.kind == poison
	}
	for _, e := range failed {
		if e.kind == save {
			w.core.Unsaved(e)
		} else {
			w.core.Absent(e)
		}
	}
	if len(failed) > 0 {
		for r := range w.core.gone {
			w.core.Lose(r)
		}
		return true
	}
	return poisoned
}

func (w *world) one(e effect, p uint32) {
	if e.kind == fetch || e.kind == await || e.kind == stall {
		return
	}
	if installs := e.kind <= fillBlank || e.kind == place || e.kind == placeProtected; installs == w.there[p] && e.kind != wake && e.kind != poison {
		w.t.Fatalf("effect %+v at page %d, which is there: %v", e, p, w.there[p])
	}
	switch e.kind {
	case fill, fillProtected:
		w.window[p], w.there[p], w.writes[p] = w.store[p], true, e.kind == fill
	case fillZero, fillBlank:
		w.window[p], w.there[p], w.writes[p] = 0, true, e.kind == fillZero
	case unprotect:
		w.writes[p] = true
	case place, placeProtected:
		w.window[p], w.there[p], w.writes[p] = w.buffers[e.transfer][p-w.firsts[e.transfer]], true, e.kind == place
	case send:
		w.there[p] = false
	case save:
		w.store[p], w.there[p] = w.window[p], false
	case keep, keepFar:
		if w.writes[p] {
			w.t.Fatalf("page %d is kept while it is written", p)
		}
		if e.kind == keep {
			w.store[p] = w.window[p]
		}
	case drop:
		w.there[p] = false
	case wake, poison:
	case continued, continuedProtected:
		w.t.Fatalf("effect %+v without a page in the file", e)
	}
}

// touch is an access: it faults until the page allows it.
func (w *world) touch(p uint32, write bool) {
	if w.rng.IntN(4) == 0 {
		w.land()
	}
	for tries := 0; !w.there[p] || write && !w.writes[p]; tries++ {
		if tries == 2*Transfers+3 {
			w.t.Fatalf("page %d stays out of reach: %+v, under way %+v", p, w.core.pages[p], w.under)
		}
		if !w.there[p] {
			w.misses++
		}
		if w.apply(slices.Clone(w.core.Fault(p, write, false))) && w.broken {
			w.crashed = true
			return
		}
		if w.rng.IntN(4) > 0 && w.apply(slices.Clone(w.core.MakeRoom())) && w.broken {
			w.crashed = true
			return
		}
		if !w.there[p] && w.land() {
			w.crashed = true
			return
		}
	}
	if w.core.Local() > w.core.limit {
		w.t.Fatalf("%d pages are local, %d may be", w.core.Local(), w.core.limit)
	}
}

// check: what the core believes is what is there.
func (w *world) check() {
	n := 0
	for p := range w.core.pages {
		g := &w.core.pages[p]
		if g.state.local() != w.there[p] || w.there[p] && w.writes[p] != (g.state == dirty) {
			w.t.Fatalf("page %d: state %d, there %v, writable %v", p, g.state, w.there[p], w.writes[p])
		}
		if w.there[p] {
			n++
		}
	}
	if n != w.core.Local() {
		w.t.Fatalf("%d pages are local, the queues have %d", n, w.core.Local())
	}
}

// TestModel: whatever a program does, it sees what it wrote, and not more than the bound is local.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(256, 600).Draw(t, "limit"), 2, rapid.Bool().Draw(t, "far"))
		at := uint32(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "elsewhere") {
				at = uint32(rapid.IntRange(0, 2*roomPages-1).Draw(t, "at"))
			}
			n := uint32(rapid.SampledFrom([]int{1, 3, 50, 400, 2000}).Draw(t, "n"))
			step := uint32(rapid.SampledFrom([]int{1, 1, 2, 7, 2*roomPages - 1, 2*roomPages - 5}).Draw(t, "step"))
			kind := rapid.SampledFrom([]string{"read", "write", "both", "free"}).Draw(t, "kind")
			v := byte(rapid.Byte().Draw(t, "value"))
			if kind == "free" {
				n = min(n, 2*roomPages-at)
				w.apply(w.core.Free(at, n))
				clear(w.plain[at : at+n])
				if room, ranges := w.core.Discard(nil); len(ranges) > 0 {
					w.room, w.ranges = room, ranges
				}
				continue
			}
			for range n {
				if kind != "write" {
					if w.touch(at, false); w.window[at] != w.plain[at] {
						t.Fatalf("page %d reads %d, not %d", at, w.window[at], w.plain[at])
					}
				}
				if kind != "read" {
					w.touch(at, true)
					v++
					w.window[at], w.plain[at] = v, v
				}
				at = (at + step) % (2 * roomPages)
			}
		}
		w.check()
		for p := range w.plain { // an access too
			w.touch(uint32(p), false)
		}
		for len(w.under) > 0 {
			w.land()
		}
		got := bytes.Clone(w.store)
		for p := range got {
			if g := &w.core.pages[p]; g.state.local() {
				got[p] = w.window[p]
			} else if g.state == zero {
				got[p] = 0
			}
		}
		if !bytes.Equal(got, w.plain) {
			t.Fatal("the program sees other bytes than it wrote")
		}
		w.check()
	})
}

// TestLost: when the store is gone, what is local goes on working while it is, all else is an error, never other data.
func TestLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 256, 1, rapid.Bool().Draw(t, "far"))
		for p := range uint32(1000) {
			w.touch(p, true)
			w.window[p], w.plain[p] = byte(p), byte(p)
		}
		w.broken = true
		for range rapid.IntRange(1, 500).Draw(t, "accesses") {
			p := uint32(rapid.IntRange(0, 1999).Draw(t, "page"))
			if w.touch(p, rapid.Bool().Draw(t, "write")); w.crashed {
				break
			}
			if w.window[p] != w.plain[p] {
				t.Fatalf("page %d reads %d, not %d", p, w.window[p], w.plain[p])
			}
		}
		w.check()
	})
}

// TestRuns: what is walked through page by page is fetched in runs that grow to 256 KiB, upwards, downwards and in strides; what is
// touched at random is fetched by the page.
func TestRuns(t *testing.T) {
	for _, c := range []struct {
		name  string
		page  func(i int) uint32
		n     int
		least float64 // pages installed per fault
		most  float64
	}{
		{"up", func(i int) uint32 { return uint32(i) }, 2000, 48, 64},
		{"down", func(i int) uint32 { return uint32(3999 - i) }, 2000, 48, 64},
		{"two at once", func(i int) uint32 { return uint32(i/2 + i%2*2000) }, 4000, 48, 64},
		{"strided", func(i int) uint32 { return uint32(i * 5) }, 800, 2.5, 5},
		{"strided down", func(i int) uint32 { return uint32(4000 - i*5) }, 800, 2.5, 5},
		{"random", func(i int) uint32 { return uint32(i*2654435761>>7) % (64 * roomPages) }, 4000, 1, 1.05},
	} {
		rooms := 2
		if c.name == "random" {
			rooms = 64
		}
		for _, write := range []bool{false, true} {
			core := NewCore(1024)
			for r := range rooms {
				core.AddRoom(r)
			}
			for p := range core.pages {
				core.pages[p].state = remote
			}
			for i := range c.n {
				p := c.page(i)
				if s := core.pages[p].state; !s.local() || write && s != dirty {
					core.Fault(p, write, false)
				}
			}
			per := float64(core.Counts.Fetched) / float64(core.Counts.Faults)
			if per < c.least || per > c.most {
				t.Errorf("%s, writing %v: %.2f pages a fault, want %v to %v", c.name, write, per, c.least, c.most)
			}
		}
	}
}

// TestWalkAfterJumps: what jumps about leaves pages behind; a walk afterwards is in long runs all the same, at once and ever more.
func TestWalkAfterJumps(t *testing.T) {
	core := NewCore(roomPages)
	for r := range 4 {
		core.AddRoom(r)
	}
	for p := range core.pages {
		core.pages[p].state = remote
	}
	touch := func(p uint32) {
		if !core.Allows(p, false) {
			core.Fault(p, false, false)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60_000 {
		touch(uint32(rng.IntN(4 * roomPages)))
	}
	for pass, least := range []float64{8, 12} {
		before := core.Counts
		for p := range uint32(4 * roomPages) {
			touch(p)
		}
		if per := float64(core.Counts.Fetched-before.Fetched) / float64(core.Counts.Faults-before.Faults); per < least {
			t.Errorf("pass %d: %.1f pages a fault, want %v", pass, per, least)
		}
	}
}

// TestWrittenAreas: where reads are followed by writes, pages come writable after a while, so that the second fault is saved.
func TestWrittenAreas(t *testing.T) {
	core := NewCore(1024)
	core.AddRoom(0)
	for p := range core.pages {
		core.pages[p].state = remote
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		p := uint32(rng.IntN(roomPages))
		if !core.pages[p].state.local() {
			core.Fault(p, false, false)
		}
		if core.pages[p].state != dirty {
			core.Fault(p, true, false)
		}
	}
	if c := &core.Counts; c.WriteFaults*3 > c.Fetched {
		t.Errorf("%d write faults on %d pages that were all written", c.WriteFaults, c.Fetched)
	}
}

// TestZipf: a skewed program misses less often than with first in, first out.
func TestZipf(t *testing.T) {
	if got := missesOverFIFO(1); got > 0.88 {
		t.Errorf("misses are %.3f of those of a plain queue, want at most 0.88", got)
	} else {
		t.Logf("misses over FIFO: %.3f", got)
	}
}

func missesOverFIFO(seed uint64) float64 {
	const pages, limit = 4 * roomPages, roomPages
	core := NewCore(limit)
	for r := range pages / roomPages {
		core.AddRoom(r)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	fifo, in, at, fifoMisses, misses := make([]uint32, limit), make([]bool, pages), 0, 0, 0
	for range 400000 {
		p := uint32(pages * math.Pow(rng.Float64(), 4))
		p = p * 2654435761 % pages
		write := rng.IntN(2) == 0
		if s := core.pages[p].state; !s.local() {
			misses++
			core.Fault(p, write, false)
		} else if write && s != dirty {
			core.Fault(p, true, false)
		}
		if !in[p] {
			fifoMisses++
			if i := fifo[at]; fifoMisses > limit {
				in[i] = false
			}
			fifo[at], in[p] = p, true
			at = (at + 1) % limit
		}
	}
	return float64(misses) / float64(fifoMisses)
}

// TestCoreNoAllocation: no fault allocates.
func TestCoreNoAllocation(t *testing.T) {
	core := NewCore(256)
	core.AddRoom(0)
	p := uint32(0)
	if n := testing.AllocsPerRun(5000, func() {
		p = p*1664525 + 1013904223
		core.Fault(p>>16%roomPages, p>>9&1 == 0, false)
		core.MakeRoom()
	}); n != 0 {
		t.Errorf("%v allocations a fault", n)
	}
}

// TestRoomIsMadeAfterwards: a miss waits for no page that leaves, as the one before it has made room.
func TestRoomIsMadeAfterwards(t *testing.T) {
	const limit, pages = 1024, 4 * roomPages
	rng := rand.New(rand.NewPCG(1, 2))
	for name, page := range map[string]func(i uint32) uint32{
		"at random": func(uint32) uint32 { return rng.Uint32N(pages/8) * 8 }, // none beside another one
		"in a row":  func(i uint32) uint32 { return i % pages },
	} {
		core := NewCore(limit)
		for r := range pages / roomPages {
			core.AddRoom(r)
		}
		core.Put(0, pages)
		left := 0
		for i := range uint32(2 * pages) {
			p := page(i)
			if core.Allows(p, true) {
				continue
			}
			for _, e := range core.Fault(p, true, false) {
				if e.kind == save || e.kind == drop {
					t.Fatalf("%s: a miss leads to %+v, with %d pages local of %d", name, e, core.Local(), limit)
				}
			}
			left += len(core.MakeRoom())
			if n := limit - core.Local(); n < batchPages {
				t.Fatalf("%s: there is room for %d pages after a miss, want %d", name, n, batchPages)
			}
		}
		if left == 0 {
			t.Errorf("%s: nothing has left", name)
		}
	}
}

// TestStrideStaysAtHome: what is fetched ahead of a walk ends where another process's pages begin: that one may still be forked, and have no window.
func TestStrideStaysAtHome(t *testing.T) {
	const limit, stride = 2048, 64
	c := NewCore(limit)
	for r := range 2 {
		c.AddRoom(r)
		c.Own(r, uint64(r), false)
	}
	c.Put(0, 2*roomPages)
	ahead := 0
	for p := uint32(0); p < roomPages; p += stride {
		if c.pages[p].state != remote {
			ahead++
			continue
		}
		for _, e := range c.Fault(p, false, false) {
			if e.first >= roomPages {
				t.Fatalf("a fault at page %d leads to %+v, of another's room", p, e)
			}
		}
	}
	if ahead == 0 {
		t.Error("nothing was fetched ahead")
	}
}

// TestPartlyInstalled: pages of a run that are in place when the rest cannot be are local, as the program may have written them.
func TestPartlyInstalled(t *testing.T) {
	s := &session{placed: 2 * PageBytes}
	c := &Cache{core: NewCore(0)}
	c.core.AddRoom(0)
	c.core.Put(0, 4)
	c.core.install(0, 4, 0, true)
	s.faults = gone(t)
	c.failed(s, 0, effect{kind: fill, n: 4}, unix.ESRCH)
	for p, want := range []state{dirty, dirty, remote, remote} {
		if got := c.core.pages[p].state; got != want {
			t.Errorf("page %d is in state %d, want %d", p, got, want)
		}
	}
	c.failed(s, 0, effect{kind: continued, n: 1}, unix.ESRCH)
	if got := c.core.pages[0].state; got != dirty {
		t.Errorf("a page of the file is in state %d after it could not be put into the page table, want %d", got, dirty)
	}
}

// gone is a descriptor whose calls all fail.
func gone(t *testing.T) *uffd.FD {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	f, err := uffd.Adopt(fd)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
