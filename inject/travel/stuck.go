package travel

import (
	"fmt"
	"time"
)

// Branches of a stateful invocation run one at a time at an element. So while one waits there in a fork, those that
// arrive for it cannot run, and keep their senders' credit. Where two elements send each other more than may be held, each
// waits in a fork for the other to run what it has been sent, and nothing comes of that but the deadline. Neither can
// know what the other does, but that it has taken nothing for a long time. So that is when a fork which is
// itself in others' way gives up, and its origin hears what was too much.

const (
	// stuckTime is how long nothing must have left for where a fork is to go. A branch that is merely slow there holds up what comes
	// after it as well, so this is far more than one should take.
	stuckTime = Instant(10 * time.Second)
	// stuckLook is how often that is looked at.
	stuckLook = stuckTime / 10
)

// Wait says that a run waits for room towards a peer, and Awake that it does not any more: meanwhile it
// is not one of Limits.Running, so that those which may make room can run.
func (c *Core) Wait(now Instant, r *Run, to Peer) {
	if r.waits || r.state != runRunning {
		return
	}
	r.waits = true
	c.running--
	r.tenant(c).running--
	p := c.peer(to)
	if !r.inv.stateful || r.ended || p == nil {
		return
	}
	if r.toward != p || r.sent != p.next { // else it has tried in vain, and still waits
		r.toward, r.sent, r.since = p, p.next, now
	}
	c.inForks.push(&r.inFork)
	if c.stuckAt == 0 {
		c.stuckAt = now + stuckLook
	}
}

// Awake ends a Wait.
func (c *Core) Awake(r *Run) {
	if r.waits {
		r.waits = false
		c.running++
		r.tenant(c).running++
		r.inFork.leave()
	}
}

// endStuck ends the branches whose forks wait, as it seems, for each other.
func (c *Core) endStuck(now Instant) {
	c.stuckAt = 0
	for n := c.inForks.first; n != nil; n = n.next {
		c.stuckAt = now + stuckLook
		r := n.v
		if r.sent != r.toward.next { // something went there
			r.sent, r.since = r.toward.next, now
		}
		if now < r.since+stuckTime || r.ended || !r.toward.up || !r.holdsUp() {
			continue
		}
		c.stats.Stuck++
		r.stopped = true // what ends its future, here, does not stop it again
		c.reportEnd(now, r, End{Code: CodeBackpressure, Text: c.stuckText(r)})
		c.fx.Stop(r)
		c.stuckAt = now + 1 // the end of a future may have changed the list
		return
	}
}

// holdsUp reports whether a branch that waits for the run's end keeps its sender's credit.
func (r *Run) holdsUp() bool {
	for n := r.inv.waiting.first; n != nil; n = n.next {
		if n.v.credit != nil {
			return true
		}
	}
	return false
}

func (c *Core) stuckText(r *Run) string {
	return fmt.Sprintf("it waited for room to fork to %s, which took nothing for %v, while %d branches of its own invocation waited here for its end: "+
		"its elements sent each other more at once than they may hold (%d bytes or %d branches of one principal, and a window of credit); "+
		"have it send less in a round, or raise those limits", r.toward.Name, time.Duration(stuckTime), r.inv.waiting.n, c.lim.PrincipalHeldBytes, c.lim.PrincipalHeldRuns)
}
