package travel

import (
	"cmp"
	"slices"
)

// lane is a queue of branches that wait to leave for a peer: those of one principal, which take their turns with other principals'; or those
// of one origin that the peer wants kept back (PACE).
type lane struct {
	tenant *tenant // nil: the lane is an origin's
	origin uint64
	until  Instant // an origin's are kept back until then
	stowed list[Run]
	moved  Instant // when the last of them left, or the first came
	inTurn node[lane]
}

// laneOf is where a principal's branches wait to leave for p, nil if none do.
func (p *peer) laneOf(t *tenant) *lane {
	for n := p.turns.first; n != nil; n = n.next {
		if n.v.tenant == t {
			return n.v
		}
	}
	return nil
}

// findLane is where an origin's lane to p is among those that are kept back, or would be.
func (p *peer) findLane(origin uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(p.lanes, origin, func(l *lane, o uint64) int { return cmp.Compare(l.origin, o) })
}

// keepsBack reports whether the branches of an origin are not to go to p just now.
func (p *peer) keepsBack(origin uint64) bool {
	if len(p.lanes) == 0 {
		return false
	}
	_, ok := p.findLane(origin)
	return ok
}

// queue has a stowed branch wait to leave for p.
func (c *Core) queue(now Instant, p *peer, r *Run) {
	var l *lane
	if at, ok := p.findLane(r.inv.id.Origin); ok {
		l = p.lanes[at]
	} else if l = p.laneOf(r.tenant(c)); l == nil {
		l = &lane{tenant: r.tenant(c), moved: now}
		l.inTurn.v = l
		p.turns.push(&l.inTurn)
	}
	if l.stowed.n == 0 {
		l.moved = now
	}
	r.lane = l
	l.stowed.push(&r.inQueue)
}

// leaveLane takes a branch out of its lane.
func (r *Run) leaveLane() {
	l := r.lane
	r.lane = nil
	r.inQueue.leave()
	if l.tenant != nil && l.stowed.n == 0 {
		l.inTurn.leave()
	}
}

// keepBack gives an origin a lane of its own, at its place among those that are kept back.
func (p *peer) keepBack(now Instant, at int, origin uint64) {
	own := &lane{origin: origin, until: now + paceTime, moved: now}
	p.lanes = slices.Insert(p.lanes, at, own)
	for t := p.turns.first; t != nil; {
		l := t.v
		t = t.next
		for n := l.stowed.first; n != nil; {
			r := n.v
			if n = n.next; r.inv.id.Origin == origin {
				r.leaveLane()
				r.lane = own
				own.stowed.push(&r.inQueue)
			}
		}
	}
}

// open has the branches of a lane that was kept back wait with those of their principals.
func (c *Core) open(p *peer, at int) {
	own := p.lanes[at]
	p.lanes = slices.Delete(p.lanes, at, at+1)
	for n := own.stowed.first; n != nil; n = own.stowed.first {
		n.v.leaveLane()
		c.queue(own.moved, p, n.v)
	}
}

// openDue opens the lanes of which nothing has been heard for long; all of them if the peer is gone.
func (c *Core) openDue(now Instant, p *peer) {
	for i := len(p.lanes) - 1; i >= 0; i-- {
		if now >= p.lanes[i].until || !p.up {
			c.open(p, i)
		}
	}
}

// waiting gives the lanes in which branches wait to leave for p.
func (p *peer) waiting(yield func(*lane) bool) {
	for n := p.turns.first; n != nil; n = n.next {
		if !yield(n.v) {
			return
		}
	}
	for _, l := range p.lanes {
		if l.stowed.n > 0 && !yield(l) {
			return
		}
	}
}

// waits is how many branches wait to leave for p.
func (p *peer) waits() (n int) {
	for l := range p.waiting {
		n += l.stowed.n
	}
	return n
}
