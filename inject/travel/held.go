package travel

import "fmt"

// A branch that waits here is counted: as held, within the limits of that; as backlog beyond them, if it can wait nowhere else or
// the element is jammed; or not at all, and then its message keeps its sender's credit.

// counted says as what a waiting branch is counted.
type counted uint8

const (
	countedNot counted = iota
	countedHeld
	countedBacklog
)

// cost is what a run counts as.
func (r *Run) cost() int { return len(r.Payload) + runOverheadBytes }

// fitsHeld reports whether a branch of n bytes more may be held for a tenant.
func (c *Core) fitsHeld(t *tenant, n int) bool {
	return c.heldRuns < c.lim.HeldRuns && c.heldBytes+n <= c.lim.HeldBytes && t.heldRuns < c.lim.PrincipalHeldRuns && t.heldBytes+n <= c.lim.PrincipalHeldBytes
}

// fitsBacklog reports whether one may wait beyond what may be held.
func (c *Core) fitsBacklog(t *tenant, n int) bool {
	return c.backlogBytes+n <= c.lim.BacklogBytes && t.backlogBytes+n <= c.lim.PrincipalBacklogBytes
}

// charge makes a run that begins to wait keep its payload, and counts it. What arrives and finds no room is taken in if a member sent it, which
// is told to send no more of it (pace). Else, and where that finds no room, it keeps its sender's credit, so what a peer can have waiting here ends with
// its window. What does not arrive has been asked whether it fits.
func (c *Core) charge(r *Run, arrives bool) {
	if r.counted != countedNot || r.credit != nil {
		return
	}
	c.Own(r)
	t, n := r.tenant(c), r.cost()
	switch {
	case c.fitsHeld(t, n) || !arrives && !c.fitsBacklog(t, n):
		c.count(r, t, countedHeld, 1)
	case (!arrives || c.jammed() || r.from.Member) && c.fitsBacklog(t, n):
		c.count(r, t, countedBacklog, 1)
		if arrives && r.from.Member && (!c.jammed() || c.backlogged(t, 8)) {
			c.pace(t, r)
		}
	default:
		if r.from.Member {
			c.pace(t, r)
		}
		r.credit = c.fx.Keep()
		c.kept++
		if t.kept.push(&r.inKept); t.kept.n == 1 {
			c.keepers.push(&t.inKeepers)
		}
	}
}

// count counts a run as what it is to be, or not any more (by is -1).
func (c *Core) count(r *Run, t *tenant, as counted, by int) {
	n := by * r.cost()
	r.counted = as
	if by < 0 {
		r.counted = countedNot
	}
	if as == countedHeld {
		c.heldRuns += by
		c.heldBytes += n
		t.heldRuns += by
		t.heldBytes += n
		return
	}
	c.backlog += by
	c.backlogBytes += n
	t.backlogBytes += n
	if by > 0 {
		c.stats.TakenIn++
	}
}

// takeIn counts as backlog what keeps its sender's credit, as far as there is room, and gives that back.
func (c *Core) takeIn() {
	for n := c.keepers.first; n != nil; {
		t := n.v
		n = n.next
		for k := t.kept.first; k != nil; {
			r := k.v
			k = k.next
			if c.fitsBacklog(t, r.cost()) {
				c.giveCredit(r)
				c.count(r, t, countedBacklog, 1)
			}
		}
	}
}

// giveCredit gives the sender of a run's message its credit back.
func (c *Core) giveCredit(r *Run) {
	t, credit := r.tenant(c), r.credit
	r.credit = nil
	c.kept--
	r.inKept.leave()
	if t.kept.n == 0 {
		t.inKeepers.leave()
	}
	c.fx.Release(credit)
}

// uncharge ends what a run counts as: it begins, or is gone.
func (c *Core) uncharge(r *Run) {
	if r.credit != nil {
		c.giveCredit(r)
	}
	t := r.tenant(c)
	if r.counted != countedNot {
		c.count(r, t, r.counted, -1)
	}
	if c.paced.n > 0 {
		c.letGo()
	}
	if t.peers == 0 {
		c.vacate(t)
	}
}

// overfull says why a branch of a tenant's can wait here neither as held nor as backlog.
func (c *Core) overfull(t *tenant) string {
	return fmt.Sprintf("%d branches wait here with %d bytes (Limits.HeldRuns, HeldBytes), of principal %q %d with %d (PrincipalHeldRuns, PrincipalHeldBytes), "+
		"and beyond that %d bytes, of the principal %d (BacklogBytes, PrincipalBacklogBytes): start fewer at once, or raise what is full",
		c.heldRuns, c.heldBytes, t.name, t.heldRuns, t.heldBytes, c.backlogBytes, t.backlogBytes)
}
