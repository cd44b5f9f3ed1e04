package excache

// Sizes of the cache. Offsets of a store are pages of all rooms, one after the other.
const (
	PageBytes = 4096
	// RoomBytes is what a program takes of the store at a time: small enough that little programs take little, large enough that a
	// fabric endpoint's 1,024 mappings are 16 GiB.
	RoomBytes = 16 << 20
	roomPages = RoomBytes / PageBytes
	// runPages bounds a run that comes in a transfer: several of them are on their way for one walk.
	runPages = 16
	// nearPages bounds one that is copied straight from a mapped store, where a fault costs as much as some six pages.
	nearPages = 64
	// batchPages are written back and given up together, before there is need.
	batchPages = 32
	// runBytes is what one transfer carries at most.
	runBytes = runPages * PageBytes
	// MinLocalBytes lets a batch leave while runs arrive.
	MinLocalBytes = 1 << 20
)

// state is where a page's bytes are.
type state uint8

const (
	zero   state = iota // nowhere: never written, or freed; it reads as zeros
	remote              // in the store
	blank               // local, protected, still all zeros
	clean               // local, protected, and the same in the store
	dirty               // local, and the store's bytes are old
	lost                // in a store that is gone
)

func (s state) local() bool { return s == blank || s == clean || s == dirty }

// An effect is what the daemon is to do with n pages from first on, all of one room. Effects are done in order.
type effect struct {
	kind     effectKind
	transfer uint8 // of fetch, place, recall and send: which transfer's buffer
	first    uint32
	n        uint32
}

type effectKind uint8

const (
	fill          effectKind = iota // copy them in from the store, writable
	fillProtected                   // the same, protected
	fillZero                        // zeros, writable
	fillBlank                       // zeros, protected
	unprotect                       // let writers go on
	wake                            // let the thread try again
	continued                       // the page is in the file: put it into the page table
	continuedProtected
	save   // protect, put into the store, and take away
	drop   // take away
	poison // an access is an error
	keep   // put into the store; protected already, and stays

	// Where the store is not mapped its bytes come and go in transfers.
	fetch          // start to get the pages into the transfer's buffer
	place          // copy them in from the buffer, writable
	placeProtected // the same, protected
	send           // protect, read into the buffer, take away, and start to put the buffer
	keepFar        // read into the buffer, and start to put the buffer; protected already, and stays
	await          // the fault is answered once the transfer has ended
	stall          // no room until some transfer has ended: ask again then
)

// page is what the core knows of one page.
type page struct {
	next, prev uint32 // of its queue while it is local; else prev is when it left (0: it has not, or too long ago to tell)
	state      state
	transfer   uint8 // 1 and the number of the transfer that has its bytes, or a copy that is not to be overtaken; 0: none
	main       bool  // in the main queue
	alone      bool  // it came by itself the last time
	passing    bool  // in the queue of that name while it is local
	rounds     uint8 // it goes round in its queue so often before it leaves
	level      uint8 // how often it came back soon, less how often it did not, at most levelMost
	stored     bool  // the store has bytes of it, old ones perhaps
}

const none = ^uint32(0)

// Core decides what is local. It is pure: an event in, effects out, which the caller carries out before the next event.
//
// No accessed bits can be seen from another process. What is seen is a miss, a first write to a clean page, and that a page
// comes back soon after it left. So new pages wait in a small queue, and what comes back alone goes to the main queue, for twice as long each time.
// What comes back in a run is a walk's. A long walk that comes back after more has left than is local would never find what it brought: its pages are passing, and leave
// soon, so that older ones stay for it.
type Core struct {
	limit       int // local pages
	pages       []page
	gone        []bool // rooms whose store is lost
	far         []bool // rooms whose store is not mapped
	owners      []uint64
	forks       []forking // of rooms
	areas       []trust   // per runPages pages: whether reads there are followed by writes
	small, main queue
	passing     queue  // what walks bring that will have left before they come back
	passes      int    // pages that may be passing before they leave first
	turns       uint32 // victims while they do
	long        bool   // what comes is a long walk's
	calm        uint32 // pages that came, ever
	left        uint32 // pages that have left, ever: the clock of prev
	picks       uint32 // victims ever
	later       int    // pages that MakeRoom makes room for
	reads       streams
	writes      streams
	transfers   [Transfers + 1]transfer // the last one is the discard's
	freed       []uint16                // pages of a room that were freed while the store had bytes of them, since it was discarded
	age         uint32                  // of transfers
	out         []effect
	victims     [nearPages]uint32
	Counts      Counts
}

// Counts are pages, but for the faults.
type Counts struct {
	Faults      uint64 `json:"faults"`       // all
	WriteFaults uint64 `json:"write_faults"` // first writes to clean pages
	Fetched     uint64 `json:"fetched_pages"`
	Ahead       uint64 `json:"ahead_pages"` // fetched or zeroed beyond the page that was asked for
	Zeroed      uint64 `json:"zeroed_pages"`
	Saved       uint64 `json:"saved_pages"`
	Evicted     uint64 `json:"evicted_pages"`
	Freed       uint64 `json:"freed_pages"`     // local pages that were freed by the program, hence not written back
	Returned    uint64 `json:"returned"`        // came back soon after they left
	Discarded   uint64 `json:"discarded_pages"` // freed, and forgotten by the store
}

// NewCore makes a core that keeps at most limit pages local, at least MinLocalBytes.
func NewCore(limit int) *Core {
	c := &Core{limit: max(limit, MinLocalBytes/PageBytes)}
	c.small.reset()
	c.main.reset()
	c.passing.reset()
	c.passes = c.limit / passPart
	c.reads.reset()
	c.writes.reset()
	c.out = make([]effect, 0, 4*batchPages)
	return c
}

// Local is how many pages are local.
func (c *Core) Local() int { return c.small.n + c.main.n + c.passing.n }

// AddRoom makes the pages of room known, all of them zero. Rooms are numbered from 0.
func (c *Core) AddRoom(room int) {
	for len(c.pages) < (room+1)*roomPages {
		c.pages = append(c.pages, page{})
	}
	for len(c.gone) <= room {
		c.gone = append(c.gone, false)
		c.far = append(c.far, false)
		c.freed = append(c.freed, 0)
		c.owners = append(c.owners, 0)
		c.forks = append(c.forks, 0)
	}
	for len(c.areas)*runPages < len(c.pages) {
		c.areas = append(c.areas, trust{})
	}
}

// Own says whose a room is, and whether its store is far, that is not mapped. What one owner does brings nothing of another's, who may
// not even be there yet.
func (c *Core) Own(room int, owner uint64, far bool) {
	c.owners[room], c.far[room], c.freed[room], c.forks[room] = owner, far, 0, 0
	pages := c.pages[room*roomPages : (room+1)*roomPages]
	for i := range pages {
		pages[i].stored, pages[i].level = false, 0 // what was there was another's
	}
}

// Allows reports whether an access to page p is no fault.
func (c *Core) Allows(p uint32, write bool) bool {
	s := c.pages[p].state
	return s == dirty || !write && s.local()
}

// Fault answers an access to page p. inFile says that the window's file has the page, though the program's page table lacks it.
func (c *Core) Fault(p uint32, write, inFile bool) []effect {
	c.out = c.out[:0]
	c.Counts.Faults++
	g := &c.pages[p]
	switch {
	case g.state == lost:
		c.emit(poison, p, 1)
	case write && c.forks[p/roomPages] == still:
		c.emit(stall, p, 1)
	case g.state == remote && g.transfer != 0:
		c.inTransfer(p, write)
	case !g.state.local():
		c.miss(p, write)
	case inFile && g.state == dirty && c.forks[p/roomPages] != still:
		c.emit(continued, p, 1)
	case inFile:
		c.emit(continuedProtected, p, 1)
	case write && g.state != dirty:
		c.firstWrite(p)
	default:
		c.emit(wake, p, 1) // another thread's fault was answered first
	}
	return c.out
}

// miss brings p, with what is probably wanted beside it.
func (c *Core) miss(p uint32, write bool) {
	spare := c.room(runPages)
	if spare == 0 {
		c.emit(stall, p, 1)
		return
	}
	far := c.far[p/roomPages]
	h := c.reads.hit(p, min(c.limit/8, map2(far, min(runPages, spare), nearPages)))
	if c.pages[p].state == remote && far {
		c.fetch(p, write, h)
		return
	}
	h.run = min(h.run, uint32(c.room(int(h.run))))
	first, span, n := c.stretch(p, h, 2*h.run)
	c.reads.went(h, first, span, n)
	c.long = c.reads.long(h.at) // not where runs are fetched ahead, which hides misses
	c.installAll(first, span, p, write, h.down)
	c.long = false
	c.strided(p, write, h)
	c.later = max(c.later, batchPages, int(min(2*h.run, nearPages)))
}

// MakeRoom has pages leave for the next miss. It follows what a miss led to, so that the thread that waits is answered first; without it the next miss makes
// room for itself.
func (c *Core) MakeRoom() []effect {
	c.out = c.out[:0]
	c.room(c.later)
	c.later = 0
	return c.out
}

// strided brings what an equal stride leads to next.
func (c *Core) strided(p uint32, write bool, h hint) {
	for k := range h.more {
		q := int64(p) + h.stride*int64(k+1)
		if !c.beside(p, q) {
			return
		}
		if g := &c.pages[q]; c.far[q/roomPages] {
			if !c.fetchAhead(uint32(q), hint{at: -1, run: 1}) {
				return
			}
		} else if g.state != remote || c.Local() == c.limit {
			return
		} else {
			c.install(uint32(q), 1, p, write)
		}
	}
}

// room has pages leave where fewer than n more may be local, and says how many may be.
func (c *Core) room(n int) int {
	if c.limit-c.Local() < n {
		c.evict(max(batchPages, n))
	}
	return c.limit - c.Local()
}

// beside reports whether q is a page of the same owner's, kept in the same way.
func (c *Core) beside(p uint32, q int64) bool {
	if q < 0 || q >= int64(len(c.pages)) {
		return false
	}
	a, b := p/roomPages, q/roomPages
	return c.owners[a] == c.owners[b] && c.far[a] == c.far[b]
}

// stretch is the span from p on, in the direction of h, that has h.run pages in p's state, or fewer: it ends with p's room, after
// most pages, and at a page in another state that is not local, or under way. Local pages do not end it: the walk would pass over them.
func (c *Core) stretch(p uint32, h hint, most uint32) (first, span, n uint32) {
	s, room := c.pages[p].state, p/roomPages
	low, high := p, p
	n = 1
	for k := uint32(1); n < h.run && k < most; k++ {
		q := p + k
		if h.down {
			q = p - k
		}
		if q/roomPages != room || int(q) >= len(c.pages) {
			break
		}
		if t := c.pages[q].state; t == s && c.pages[q].transfer == 0 {
			low, high = min(low, q), max(high, q)
			n++
		} else if !t.local() {
			break
		}
	}
	return low, high - low + 1, n
}

// installAll installs what is not local of a span, the part with p first.
func (c *Core) installAll(first, span, p uint32, write, down bool) {
	s, end := c.pages[p].state, first+span
	part := func(from, to uint32) {
		if from < to {
			c.install(from, to-from, p, write)
		}
	}
	if down {
		for q := end; q > first; q-- {
			if c.pages[q-1].state != s {
				part(q, end)
				end = q - 1
			}
		}
		part(first, end)
		return
	}
	for q := first; q < end; q++ {
		if c.pages[q].state != s {
			part(first, q)
			first = q + 1
		}
	}
	part(first, end)
}

// install makes n pages from first on local, which are all remote or all zero. p is the page that was asked for.
func (c *Core) install(first, n, p uint32, write bool) {
	s := c.installed(first, n, p, write)
	if c.pages[first].state == zero {
		c.Counts.Zeroed += uint64(n)
		c.emit(map2(s == dirty, fillZero, fillBlank), first, n)
	} else {
		c.Counts.Fetched += uint64(n)
		c.emit(map2(s == dirty, fill, fillProtected), first, n)
	}
	c.ahead(first, n, p)
	c.enterAll(first, n, s)
	if write {
		c.written(first, n)
	}
}

// ahead counts pages that come without having been asked for.
func (c *Core) ahead(first, n, p uint32) {
	if p < first || p >= first+n {
		c.Counts.Ahead++
	}
	c.Counts.Ahead += uint64(n - 1)
}

// installed is the state that n pages from first on are to have once they are local.
func (c *Core) installed(first, n, p uint32, write bool) state {
	quiet := c.forks[first/roomPages] == still
	switch {
	case write && !quiet:
		return dirty
	case c.pages[first].state == zero:
		return blank
	case !quiet && c.guess(first, n, p):
		return dirty
	}
	return clean
}

// enterAll makes n pages from first on local.
func (c *Core) enterAll(first, n uint32, s state) {
	for q := first; q < first+n; q++ {
		g := &c.pages[q]
		back := g.state == remote && g.prev != 0 && c.left-g.prev < uint32(c.limit)
		if back {
			c.Counts.Returned++
		}
		alone := back && n == 1 // what comes in runs is a walk's, and cheap
		switch {
		case alone:
			g.level = min(g.level+1, levelMost)
		case g.level > 0:
			g.level--
		}
		c.passed(g, n > 1)
		g.state, g.rounds = s, 1<<g.level-1
		c.enter(q, alone)
	}
}

func map2[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// firstWrite makes a local page writable, and those after it where writes go on.
func (c *Core) firstWrite(p uint32) {
	c.Counts.WriteFaults++
	area := &c.areas[p/runPages]
	most := map2(c.far[p/roomPages], runPages, nearPages)
	h := c.writes.hit(p, most)
	if area.level > 0 {
		h.run = uint32(most)
	}
	first, n := c.stretchWrites(p, h)
	for q := first; q < first+n; q++ {
		c.pages[q].state = dirty
	}
	c.written(first, n)
	c.pages[p].rounds = max(c.pages[p].rounds, 1)
	c.emit(unprotect, first, n)
}

// trust is what is known of an area: whether what is read there is written soon. A guess that it will be saves a fault, and may make pages
// dirty that are never written, which nothing shows. So guesses run out, and then a read is answered with protected pages: if a write
// follows, there are more guesses than before; if the pages leave as they came, none.
type trust struct {
	level uint8 // tests that a write followed, at most trustMost
	left  uint8 // guesses, 1<<level - 1 after each such test
	test  bool  // a read was answered with protected pages
}

const trustMost = 3

// guess reports whether n pages from first on are to come writable. The area of p decides, the page that was asked for; every area of the run uses a
// guess up, or is tested.
func (c *Core) guess(first, n, p uint32) bool {
	yes := c.areas[p/runPages].left > 0
	for a := first / runPages; a <= (first+n-1)/runPages; a++ {
		if t := &c.areas[a]; !yes {
			t.test = true
		} else if t.left > 0 {
			t.left--
		}
	}
	return yes
}

// written says that n pages from first on are written.
func (c *Core) written(first, n uint32) {
	for a := first / runPages; a <= (first+n-1)/runPages; a++ {
		if t := &c.areas[a]; t.test || t.level == 0 {
			level := min(t.level+1, trustMost)
			*t = trust{level: level, left: 1<<level - 1}
		}
	}
}

// stretchWrites is the run of protected pages from p on, in the direction of h, within p's room.
func (c *Core) stretchWrites(p uint32, h hint) (first, n uint32) {
	room := p / roomPages
	first, n = p, 1
	for n < h.run {
		q := first + n
		if h.down {
			q = first - 1
		}
		if q/roomPages != room || int(q) >= len(c.pages) || c.pages[q].state != blank && c.pages[q].state != clean {
			break
		}
		if h.down {
			first--
		}
		n++
	}
	c.writes.went(h, first, n, n)
	return first, n
}

// Free says that the program gave n pages up: their bytes are wanted no more, and they read as zeros.
func (c *Core) Free(first, n uint32) []effect {
	c.out = c.out[:0]
	for q := first; q < first+n; q++ {
		g := &c.pages[q]
		if g.state.local() {
			c.leave(q)
			c.Counts.Freed++
			c.join(drop, q)
		}
		if g.transfer != 0 && !c.transfers[g.transfer-1].sends() {
			g.transfer = 0 // what is fetched of it is not used
		}
		if g.state != lost {
			if g.state = zero; g.stored {
				c.freed[q/roomPages] = min(c.freed[q/roomPages]+1, roomPages)
			}
		}
		g.prev = 0
	}
	return c.out
}

// Drop takes what is clean of a room away. Nothing else of it is local.
func (c *Core) Drop(room int) []effect {
	c.out = c.out[:0]
	for p, end := uint32(room)*roomPages, uint32(room+1)*roomPages; p < end; p++ {
		if g := &c.pages[p]; g.state == clean || g.state == blank {
			s := map2(g.state == clean, remote, zero)
			c.leave(p)
			g.state = s
			c.join(drop, p)
		}
	}
	return c.out
}

// Lose says that the store of room is gone: what is not local is lost, and what leaves from now on.
func (c *Core) Lose(room int) {
	c.gone[room] = true
	pages := c.pages[room*roomPages : (room+1)*roomPages]
	for i := range pages {
		if !pages[i].state.local() {
			pages[i].state, pages[i].prev = lost, 0
		}
	}
}

// Absent takes back an install that could not be done: the pages are where they were before, or zero if they were nowhere.
func (c *Core) Absent(e effect) {
	for q := e.first; q < e.first+e.n; q++ {
		g := &c.pages[q]
		if !g.state.local() {
			continue
		}
		c.leave(q)
		if g.prev = 0; e.kind != fillZero && e.kind != fillBlank {
			g.state = remote
		} else {
			g.state = zero
		}
	}
}

// Unsaved takes back a save or a send that could not be done: the pages are local and dirty.
func (c *Core) Unsaved(e effect) {
	if e.kind == send {
		c.end(e.transfer)
	}
	for q := e.first; q < e.first+e.n; q++ {
		c.pages[q].state = dirty
		c.enter(q, false)
	}
}

// Put says that the store holds n pages from first on, which are not local.
func (c *Core) Put(first, n uint32) {
	for q := first; q < first+n; q++ {
		c.pages[q].state, c.pages[q].prev, c.pages[q].stored = remote, 0, true
	}
}

// stretchOf is how many pages from p on are in p's state, in its room and at most a batch.
func (c *Core) stretchOf(p uint32) uint32 {
	n := uint32(1)
	for n < batchPages && (p+n)%roomPages != 0 && c.pages[p+n].state == c.pages[p].state {
		n++
	}
	return n
}

// emit appends an effect.
func (c *Core) emit(k effectKind, first, n uint32) {
	c.out = append(c.out, effect{kind: k, first: first, n: n})
}

// join appends an effect on q, or adds q to the last one if it is of the kind and ends before q, in the same room.
func (c *Core) join(k effectKind, q uint32) {
	if last := len(c.out) - 1; last >= 0 {
		e := &c.out[last]
		if e.kind == k && e.first+e.n == q && q%roomPages != 0 {
			e.n++
			return
		}
	}
	c.emit(k, q, 1)
}
