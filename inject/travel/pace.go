package travel

import (
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/internal/share"
)

// The link between two members carries the branches of many principals. If what one of them has too much of took the link's credit, all the
// others' branches would wait with it. So a member's credit goes back: what arrives beyond what may be held is taken in, and
// the member is told (PACE) to keep the branches of that origin back for a while. There their forks wait, and those that go on are stowed.
// What is taken in after the word was sent ends when the member hears it.

const (
	// paceTime is how long a member keeps branches back after the last word. The other words are a matter of speed: if one that ends it is
	// lost, or the member knows its origin by a new connection, only that much time is.
	paceTime = Instant(2 * time.Second)
	// paceRenew is how often the word is repeated while it holds.
	paceRenew = paceTime / 4
)

// pacedLink is a member that was told to keep an origin's branches back.
type pacedLink struct {
	from   *peer
	origin uint64
}

// pace tells the member that a run came from to keep the branches of the run's origin back.
func (c *Core) pace(t *tenant, r *Run) {
	p, origin := r.from, r.inv.id.Origin
	if p.pacing[origin] {
		return
	}
	if p.pacing == nil {
		p.pacing = map[uint64]bool{}
	}
	p.pacing[origin] = true
	if t.paced = append(t.paced, pacedLink{p, origin}); len(t.paced) == 1 {
		c.paced.push(&t.inPaced)
	}
	c.stats.Paced++
	c.sendPace(p, origin, true)
}

func (c *Core) sendPace(p *peer, origin uint64, wait bool) {
	var buf [paceBytes]byte
	c.send(p, KindPace, (&paceMsg{wait, origin}).append(buf[:0]), nil)
}

// goesOn reports whether what waits here of a tenant's has become little: half of what may, or nothing; or, where the element is
// jammed, less than what may be taken in.
func (c *Core) goesOn(t *tenant) bool {
	switch {
	case t.heldRuns == 0 && t.backlogBytes == 0:
		return true
	case c.jammed():
		return !c.backlogged(t, 4)
	}
	return t.heldRuns <= c.lim.PrincipalHeldRuns/2 && t.heldBytes+t.backlogBytes <= c.lim.PrincipalHeldBytes/2 &&
		c.heldRuns <= share.Of(c.lim.HeldRuns) && c.heldBytes <= share.Of(c.lim.HeldBytes)
}

// backlogged reports whether a tenant's backlog, or all, is in the last of so many parts of what it may be.
func (c *Core) backlogged(t *tenant, parts int) bool {
	return t.backlogBytes > c.lim.PrincipalBacklogBytes-c.lim.PrincipalBacklogBytes/parts || c.backlogBytes > c.lim.BacklogBytes-c.lim.BacklogBytes/parts
}

// letGo tells members that the branches they keep back may come, of the tenants for whom there is room.
func (c *Core) letGo() {
	for n := c.paced.first; n != nil; {
		t := n.v
		if n = n.next; !c.goesOn(t) {
			continue
		}
		for _, l := range t.paced {
			delete(l.from.pacing, l.origin)
			c.sendPace(l.from, l.origin, false)
		}
		clear(t.paced)
		t.paced = t.paced[:0]
		t.inPaced.leave()
		c.vacate(t)
	}
}

// renewPaces repeats the words that hold.
func (c *Core) renewPaces(now Instant) {
	c.letGo()
	again := c.paceAt != 0
	if c.paceAt = now + paceRenew; c.paced.n == 0 {
		c.paceAt = 0
	}
	for n := c.paced.first; n != nil && again; n = n.next {
		for _, l := range n.v.paced {
			c.sendPace(l.from, l.origin, true)
		}
	}
}

// unpace forgets that a member which is gone was told anything.
func (c *Core) unpace(p *peer) {
	for n := c.paced.first; n != nil; {
		t := n.v
		n = n.next
		if t.paced = slices.DeleteFunc(t.paced, func(l pacedLink) bool { return l.from == p }); len(t.paced) == 0 {
			t.inPaced.leave()
			c.vacate(t)
		}
	}
}

// recvPace hears that p has more of an origin's branches than it can run, or that they may go on.
func (c *Core) recvPace(now Instant, p *peer, body []byte) error {
	var m paceMsg
	if err := m.decode(body); err != nil {
		return err
	}
	at, ok := p.findLane(m.origin)
	switch {
	case !m.wait && ok:
		c.open(p, at)
		c.sendStowed(now, p)
	case m.wait && ok:
		p.lanes[at].until = now + paceTime
	case m.wait && (m.origin == c.cfg.Self || c.byInc.get(m.origin, 0) != nil): // no other has any branches here
		p.keepBack(now, at, m.origin)
		c.behind(p)
	}
	return nil
}

func keptBack(p *peer) error {
	return fmt.Errorf("%w: as many branches of this origin wait on %s as may (Limits.PrincipalHeldRuns, PrincipalHeldBytes), and it takes no more for now", ErrBackpressure, p.Name)
}
