package excache

import "math/bits"

// Transfers bounds what is under way between a cache and its store at a time: a store keeps so many operations, numbered from 0. Each has
// a buffer of 64 KiB, which counts in addition to what is local.
const Transfers = 64

const (
	// sendTransfers are those that pages leave by, the first ones: a batch of single pages fits twice, nearly. The others fetch.
	sendTransfers = 40
	// aheadMost of the others may have what nobody has asked for; the rest is for faults.
	aheadMost = 16
	// windowMost is how many runs are fetched ahead of one walk: half a MiB, which is a round trip of 0.4 ms at 10 Gbit/s.
	windowMost = 8
)

// transfer is a run on its way between the buffer of that number and the store.
type transfer struct {
	kind     transferKind
	wanted   bool // a thread waits for page
	write    bool
	down     bool // the walk's way
	page     uint32
	first, n uint32
	walk     int    // the stream that it is ahead of, -1: none
	since    uint32 // of that stream
	age      uint32
}

type transferKind uint8

const (
	idle transferKind = iota
	fetching
	arrived // its buffer has what was fetched, and nobody has touched it yet
	sending
)

func (t *transfer) sends() bool { return t.kind == sending }

// begin takes a free transfer; false: there is none.
func (c *Core) begin(kind transferKind, first, n uint32) (i uint8, ok bool) {
	from, to := uint8(sendTransfers), uint8(Transfers)
	if kind == sending {
		from, to = 0, sendTransfers
	}
	oldest := uint8(Transfers)
	for i := from; i < to; i++ {
		switch t := &c.transfers[i]; {
		case t.kind == idle:
			c.age++
			*t = transfer{kind: kind, first: first, n: n, walk: -1, age: c.age}
			return i, true
		case t.kind == arrived && !t.wanted && (oldest == Transfers || c.age-t.age > c.age-c.transfers[oldest].age):
			oldest = i
		}
	}
	if oldest == Transfers {
		return 0, false
	}
	c.end(oldest) // nobody may ever want it
	c.age++
	c.transfers[oldest] = transfer{kind: kind, first: first, n: n, walk: -1, age: c.age}
	return oldest, true
}

// end frees a transfer.
func (c *Core) end(i uint8) {
	t := &c.transfers[i]
	for q := t.first; q < t.first+t.n; q++ {
		if c.pages[q].transfer == i+1 {
			c.pages[q].transfer = 0
		}
	}
	if s := c.walkOf(t); s != nil {
		s.ahead--
	}
	t.kind, t.walk = idle, -1
}

// walkOf is the stream that a transfer is ahead of, if it goes on.
func (c *Core) walkOf(t *transfer) *stream {
	if t.walk < 0 || c.reads.all[t.walk].since != t.since {
		return nil
	}
	return &c.reads.all[t.walk]
}

// canSend is how many pages may leave at least.
func (c *Core) canSend() int {
	n := 0
	for i := range c.transfers[:sendTransfers] {
		if c.transfers[i].kind == idle {
			n++
		}
	}
	return n
}

// send has a page leave that is dirty, with the one before it if that left just now.
func (c *Core) send(p uint32) {
	g := &c.pages[p]
	if last := len(c.out) - 1; last >= 0 {
		e := &c.out[last]
		if e.kind == send && e.first+e.n == p && p%roomPages != 0 && e.n < runPages {
			e.n++
			c.transfers[e.transfer].n++
			g.transfer = e.transfer + 1
			return
		}
	}
	i, _ := c.begin(sending, p, 1) // evict has seen that there are enough
	g.transfer = i + 1
	c.out = append(c.out, effect{kind: send, transfer: i, first: p, n: 1})
}

// fetch starts to get the run that p begins, and more where accesses have gone on before.
func (c *Core) fetch(p uint32, write bool, h hint) {
	first, span, n := c.stretch(p, h, runPages)
	i, ok := c.begin(fetching, first, span)
	if !ok {
		c.emit(stall, p, 1)
		return
	}
	t := &c.transfers[i]
	t.wanted, t.page, t.write = true, p, write
	c.start(i)
	c.Counts.Ahead += uint64(n - 1)
	c.reads.went(h, first, span, n)
	c.strided(p, write, h)
	if h.run >= runPages {
		s := &c.reads.all[h.at]
		s.window = max(s.window, 1)
		c.readAhead(h.at, p, h.down)
	}
}

// start emits the fetch of a transfer.
func (c *Core) start(i uint8) {
	t := &c.transfers[i]
	for q := t.first; q < t.first+t.n; q++ {
		if g := &c.pages[q]; g.state == remote && g.transfer == 0 {
			g.transfer = i + 1
			c.Counts.Fetched++
		}
	}
	c.out = append(c.out, effect{kind: fetch, transfer: i, first: t.first, n: t.n})
}

// readAhead fetches runs in front of a walk until its window is full.
func (c *Core) readAhead(walk int, p uint32, down bool) {
	s := &c.reads.all[walk]
	for s.ahead < s.window {
		q := s.up
		if down {
			q = s.down
		}
		for range slack { // local already
			if !c.beside(p, int64(q)) || !c.pages[q].state.local() {
				break
			}
			q = map2(down, q-1, q+1)
		}
		if !c.beside(p, int64(q)) || !c.fetchAhead(q, hint{at: walk, run: runPages, down: down}) {
			return
		}
	}
}

// fetchAhead fetches a run that nobody has asked for. It reports whether it did.
func (c *Core) fetchAhead(q uint32, h hint) bool {
	if g := &c.pages[q]; g.state != remote || g.transfer != 0 {
		return false
	}
	n, pages := 0, uint32(0)
	for i := sendTransfers; i < Transfers; i++ {
		if t := &c.transfers[i]; t.kind == fetching && !t.wanted {
			n++
			pages += t.n
		}
	}
	if n >= aheadMost || int(pages) > c.limit/4 {
		return false
	}
	first, span, run := c.stretch(q, h, runPages)
	i, ok := c.begin(fetching, first, span)
	if !ok {
		return false
	}
	c.Counts.Ahead += uint64(run)
	c.start(i)
	if h.at >= 0 {
		s, t := &c.reads.all[h.at], &c.transfers[i]
		t.walk, t.since, t.down = h.at, s.since, h.down
		s.ahead++
		s.up, s.down = first+span, first-1
	}
	return true
}

// inTransfer answers a fault on a page whose bytes a transfer has.
func (c *Core) inTransfer(p uint32, write bool) {
	i := c.pages[p].transfer - 1
	t := &c.transfers[i]
	if t.kind == sending {
		if c.room(1) == 0 {
			c.emit(stall, p, 1)
			return
		}
		quiet := c.forks[p/roomPages] == still
		c.out = append(c.out, effect{kind: map2(quiet, placeProtected, place), transfer: i, first: p, n: 1})
		c.enterAll(p, 1, map2(quiet, clean, dirty))
		return
	}
	t.wanted, t.page, t.write = true, p, write
	walk, down, s := t.walk, t.down, c.walkOf(t)
	if t.kind == fetching {
		c.out = append(c.out, effect{kind: await, transfer: i, first: p, n: 1})
	} else {
		c.place(i)
	}
	if s == nil {
		return
	}
	if t.walk == walk { // it is ahead no more
		s.ahead--
		t.walk = -1
	}
	c.reads.clock++
	s.used = c.reads.clock
	s.hits++
	s.window = min(2*s.window, windowMost)
	c.readAhead(walk, p, down)
}

// Ended says that a transfer's operation has: what was fetched has arrived, or what was sent is in the store.
func (c *Core) Ended(i uint8) []effect {
	c.out = c.out[:0]
	switch t := &c.transfers[i]; t.kind {
	case fetching:
		if t.kind = arrived; t.wanted || c.unused(i) {
			c.place(i)
		}
	case sending:
		c.end(i)
	}
	return c.out
}

// unused reports whether nobody can ask for a transfer's pages any more.
func (c *Core) unused(i uint8) bool {
	t := &c.transfers[i]
	for q := t.first; q < t.first+t.n; q++ {
		if c.pages[q].transfer == i+1 && c.pages[q].state == remote {
			return false
		}
	}
	return true
}

// Resume places what has arrived and found no room.
func (c *Core) Resume() []effect {
	c.out = c.out[:0]
	for i := uint8(sendTransfers); i < Transfers; i++ {
		if t := &c.transfers[i]; t.kind == arrived && t.wanted {
			c.place(i)
		}
	}
	return c.out
}

// holds reports whether anything has arrived that a thread waits for, and found no room.
func (c *Core) holds() bool {
	for i := range c.transfers[sendTransfers:Transfers] {
		if t := &c.transfers[sendTransfers+i]; t.kind == arrived && t.wanted {
			return true
		}
	}
	return false
}

// place makes pages local that have arrived and are wanted still. Without room they stay where they are.
func (c *Core) place(i uint8) {
	t := &c.transfers[i]
	n := 0
	for q := t.first; q < t.first+t.n; q++ {
		if g := &c.pages[q]; g.transfer == i+1 && g.state == remote {
			n++
		}
	}
	spare := c.room(max(n, 1))
	if spare == 0 && n > 0 {
		return
	}
	for q := t.first; q < t.first+t.n; {
		k := uint32(1)
		g := &c.pages[q]
		if g.transfer != i+1 {
			if t.wanted && g.state == zero {
				c.emit(wake, q, 1) // freed meanwhile
			}
			q++
			continue
		}
		for q+k < t.first+t.n && c.pages[q+k].transfer == i+1 && c.pages[q+k].state == g.state {
			k++
		}
		if g.state != remote {
			c.emit(poison, q, k) // lost meanwhile
		} else if n <= spare {
			c.placeRun(i, q, k)
		} else if t.page-q < k {
			c.placeRun(i, t.page, 1)
		}
		q += k
	}
	c.end(i)
	c.later = max(c.later, batchPages)
}

func (c *Core) placeRun(i uint8, first, n uint32) {
	t := &c.transfers[i]
	s := c.installed(first, n, t.page, t.write)
	c.out = append(c.out, effect{kind: map2(s == dirty, place, placeProtected), transfer: i, first: first, n: n})
	c.enterAll(first, n, s)
}

// Failed says that a transfer's operation has, for good. Lose has been called.
func (c *Core) Failed(i uint8) []effect {
	c.out = c.out[:0]
	t := &c.transfers[i]
	for q := t.first; q < t.first+t.n; q++ {
		g := &c.pages[q]
		if g.transfer != i+1 || g.state.local() || g.state == zero {
			continue
		}
		g.state, g.prev = lost, 0
		if !t.sends() {
			c.join(poison, q)
		}
	}
	c.end(i)
	return c.out
}

// each calls fn for the bits of a set of transfers.
func each(set uint64, fn func(i int)) {
	for ; set != 0; set &= set - 1 {
		fn(bits.TrailingZeros64(set))
	}
}
