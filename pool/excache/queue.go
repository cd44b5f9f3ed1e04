package excache

import "slices"

// queue is a first-in, first-out list of local pages, linked through the pages themselves.
type queue struct {
	head, tail uint32
	n          int
}

func (q *queue) reset() { q.head, q.tail, q.n = none, none, 0 }

const (
	// smallPart is which part of the local pages the small queue may keep before it is asked for victims first.
	smallPart = 10
	// mainTurn: of so many victims one is the main queue's even so. Nothing shows that its pages are not used any more, and a
	// program that walks through much would have no use of them for ever. Victims of a queue come in a row, so that neighbours leave together.
	mainTurn = 5
	// levelMost bounds how often a page goes round in the main queue: 15 times.
	levelMost = 4
	// passPart is which part of the local pages is for passing ones at least: four runs of 256 KiB where 16 MiB are local.
	passPart = 16
	// passTurn: of so many victims one is an older page even so, if a walk brought it, for those are of no use for ever either. Older ones that came alone
	// have mainTurn: here and there, they cut walks' runs in two.
	passTurn = 80
	// soonPart: what was passing, left and comes back before that part of what is local has left, did so too soon.
	soonPart = 4
	// calmPages come before the room for passing pages shrinks by one.
	calmPages = 16
)

func (c *Core) queueOf(g *page) *queue {
	if g.passing {
		return &c.passing
	}
	if g.main {
		return &c.main
	}
	return &c.small
}

// enter puts p at the end of a queue: the main one if it came back soon, and alone.
func (c *Core) enter(p uint32, main bool) {
	g := &c.pages[p]
	g.main = main
	q := c.queueOf(g)
	g.next, g.prev = none, q.tail
	if q.tail == none {
		q.head = p
	} else {
		c.pages[q.tail].next = p
	}
	q.tail = p
	q.n++
}

// leave takes p out of its queue.
func (c *Core) leave(p uint32) {
	g := &c.pages[p]
	q := c.queueOf(g)
	if g.prev == none {
		q.head = g.next
	} else {
		c.pages[g.prev].next = g.next
	}
	if g.next == none {
		q.tail = g.prev
	} else {
		c.pages[g.next].prev = g.prev
	}
	q.n--
	g.next, g.prev = none, 0
}

// victim picks the page that leaves next, and takes it out of its queue. What was used while it was there goes round once more.
func (c *Core) victim() uint32 {
	for {
		p := c.next().head
		g := &c.pages[p]
		c.leave(p)
		if g.rounds > 0 {
			g.rounds--
			g.passing = false
			c.enter(p, true)
			continue
		}
		return p
	}
}

// next is the queue that the next victim is of.
func (c *Core) next() *queue {
	if c.passing.n > 0 && (c.passing.n >= c.passes || c.small.n+c.main.n == 0) {
		c.turns++
		switch t := c.turns / runPages; {
		case c.main.n > 0 && t%map2[uint32](c.pages[c.main.head].alone, mainTurn, passTurn) == 0:
			return &c.main
		case c.small.n > 0 && t%map2[uint32](c.pages[c.small.head].alone, mainTurn, passTurn) == 1:
			return &c.small
		}
		return &c.passing
	}
	if c.picks++; (c.small.n*smallPart >= c.limit && c.picks/runPages%mainTurn != 0 && c.small.n > 0) || c.main.n == 0 {
		return &c.small
	}
	return &c.main
}

// passed notes that page g comes, with a walk or alone, and decides whether it is passing: a walk has come back to it after more has left than is local. To keep
// what a walk like that brings is of no use, as it will have left before the walk is there again; so it leaves soon, and older pages stay, which the walk then
// finds. What leaves too soon, as many walks go on at a time, makes the room for such pages larger.
func (c *Core) passed(g *page, walk bool) {
	far := g.state == remote && g.prev != 0 && c.left-g.prev >= uint32(c.limit)
	if g.passing && !far && c.left-g.prev < uint32(c.limit/soonPart) {
		c.passes = min(c.passes+2, c.limit/2)
	}
	g.alone, g.passing = !walk, c.long && far
	if c.calm++; g.passing && c.calm%calmPages == 0 {
		c.passes = max(c.passes-1, c.limit/passPart)
	}
}

// evict gives up to n pages up, those side by side together: fewer where transfers are wanting that they could leave by, or all are under way.
func (c *Core) evict(n int) {
	n = min(n, c.Local(), len(c.victims))
	gone, sends := c.victims[:0], c.canSend()
	for tries := c.Local(); len(gone) < n && tries > 0; tries-- {
		p := c.victim()
		g := &c.pages[p]
		// What it was before is still on its way to the store, and may not come after what it is now; or a child is to have that.
		if g.transfer != 0 || g.state == dirty && c.forks[p/roomPages] == copied {
			g.passing = false // else it would come up again before all older ones
			c.enter(p, g.main)
			continue
		}
		if g.state == dirty && c.far[p/roomPages] {
			if sends == 0 {
				c.enter(p, g.main)
				break
			}
			sends--
		}
		gone = append(gone, p)
	}
	slices.Sort(gone)
	for _, p := range gone {
		c.evictOne(p)
	}
}

func (c *Core) evictOne(p uint32) {
	g := &c.pages[p]
	if c.left++; c.left == 0 {
		c.left = 1 // 0 is never
	}
	g.prev = c.left
	c.Counts.Evicted++
	switch {
	case c.gone[p/roomPages]:
		g.state, g.prev = lost, 0
		c.join(drop, p)
	case g.state == dirty:
		c.Counts.Saved++
		g.state, g.stored = remote, true
		if c.far[p/roomPages] {
			c.send(p)
		} else {
			c.join(save, p)
		}
	case g.state == clean:
		g.state = remote
		c.join(drop, p)
		if area := &c.areas[p/runPages]; area.test {
			*area = trust{}
		}
	default:
		g.state = zero
		c.join(drop, p)
	}
}
