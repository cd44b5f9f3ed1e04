package travel

import (
	"cmp"
	"fmt"
	"slices"
)

// StoppingText is what an origin is told whose branch meets CodeStopping on arrival.
const StoppingText = "it is about to stop and takes nothing new; start the function again elsewhere, or when it is back"

// Drain makes the core take nothing new: invocations that have nothing here
// yet are refused with CodeStopping, and none starts here. What is here goes on,
// with the branches that come back to it.
func (c *Core) Drain() { c.draining = true }

// Idle reports whether nothing of any invocation is left here, and everybody
// every element concerned has been told.
func (c *Core) Idle() bool {
	c.expand()
	if c.invs.n+c.records > 0 || len(c.full) > 0 {
		return false
	}
	for _, p := range c.dirty {
		if p.up && p.acks.count > 0 {
			return false
		}
	}
	return true
}

// EndAll ends what Drain let go on: futures that started here fail with
// ErrStopping, and so do, at their origins, all that have a branch here. Runs are
// asked to stop. State stays as it is: others see when this element goes.
func (c *Core) EndAll(now Instant, why string) {
	c.expand()
	var invs []*invocation
	c.invs.all(func(inv *invocation) {
		if !inv.dead && (inv.fut != nil || inv.runs.n > 0) {
			invs = append(invs, inv)
		}
	})
	slices.SortFunc(invs, func(a, b *invocation) int {
		return cmp.Or(cmp.Compare(a.id.Origin, b.id.Origin), cmp.Compare(a.id.Seq, b.id.Seq))
	})
	for _, inv := range invs {
		switch {
		case inv.fut != nil:
			c.fail(now, inv.fut, fmt.Errorf("%w: %s: %s", ErrStopping, c.cfg.Name, why))
		case !inv.dead:
			c.kill(now, inv, CodeStopping, why)
		}
	}
}
