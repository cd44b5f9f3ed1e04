package travel

import (
	"fmt"
	"time"
)

// A run that waits in a fork holds what others wait for: its instance, and of a stateful invocation the turn of every branch
// that comes after it. If the element went on refusing what arrives beyond what may be held, elements that fork to
// each other would wait in a circle. So an element from which nothing gets away for a while is jammed: it
// takes in what arrives, up to Limits.BacklogBytes, until the runs that jammed it have ended. An element that waits for
// others is then one that no other waits for, as long as there is memory.

const (
	// jamTime is how long a fork must have waited before the element counts as jammed. A peer that is merely slow pushes back until
	// then, and costs no memory here.
	jamTime = Instant(20 * time.Millisecond)
	jamLook = jamTime / 2
	// stuckTime is how long a fork, or a branch that goes on, waits while there is no room left for what arrives. Then it is ended: with all
	// memory taken, most likely nothing else ends it but the deadline.
	stuckTime = Instant(10 * time.Second)
)

// Wait says that a run waits for room to send what ErrBackpressure was the answer to, and Awake that it does not any more: meanwhile it
// is not one of Limits.Running, so that those which may make room can run.
func (c *Core) Wait(now Instant, r *Run) {
	c.expand()
	if r.waits || r.state != runRunning {
		return
	}
	r.waits = true
	c.running--
	c.asleep++
	t := r.tenant(c)
	t.running--
	t.asleep++
	if r.ended {
		return
	}
	if !r.blocked {
		r.blocked, r.since = true, now
		c.stats.Waits++
	}
	c.inForks.push(&r.inFork)
	c.lookSoon(now)
}

// Awake ends a Wait.
func (c *Core) Awake(r *Run) {
	if r.waits {
		r.waits = false
		c.running++
		c.asleep--
		t := r.tenant(c)
		t.running++
		t.asleep--
		r.inFork.leave()
	}
}

// unjam forgets that a run which ends has jammed the element.
func (c *Core) unjam(r *Run) {
	if r.jams {
		r.jams = false
		c.jams--
	}
}

func (c *Core) lookSoon(now Instant) {
	if c.jamAt == 0 {
		c.jamAt = now + jamLook
	}
}

// jammed reports whether what arrives is taken in beyond what may be held.
func (c *Core) jammed() bool { return c.jams > 0 || c.stalled }

// lookAtJams finds the runs that have waited for long, and the peers for which branches have.
func (c *Core) lookAtJams(now Instant) {
	c.jamAt, c.stalled = 0, false
	if c.rooms.n > 0 {
		c.lookSoon(now)
		c.stalled = now >= c.rooms.since+jamTime
	}
	for _, p := range c.full {
		for l := range p.waiting {
			c.lookSoon(now)
			c.stalled = c.stalled || now >= l.moved+jamTime
			if now >= l.moved+stuckTime {
				c.tellStowed(now, l)
			}
		}
	}
	for n := c.inForks.first; n != nil; n = n.next {
		c.lookSoon(now)
		if r := n.v; !r.jams && !r.ended && now >= r.since+jamTime {
			r.jams = true
			c.jams++
		}
	}
	if !c.jammed() {
		return
	}
	c.takeIn()
	c.letGo()
	if r := c.stuck(now); r != nil { // one: the end of a future may change the lists
		c.endStuck(now, r)
	}
}

// stuck is a run whose fork, or a branch that, has waited for long to leave, where no more of its principal's can be taken in; nil if there is none.
func (c *Core) stuck(now Instant) *Run {
	for n := c.inForks.first; n != nil; n = n.next {
		if r := n.v; !r.ended && now >= r.since+stuckTime && r.tenant(c).tooMuch() {
			return r
		}
	}
	for _, p := range c.full {
		for l := range p.waiting {
			if r := l.stowed.first.v; now >= l.moved+stuckTime && now >= r.since+stuckTime && r.tenant(c).tooMuch() {
				return r
			}
		}
	}
	return nil
}

// tellStowed tells the origins of branches that have not got away for long that these wait for room. If one keeps scratch in the way of an
// older invocation, it gives way (giveWay). One that no other waits for stays: its end would free nothing that is needed.
func (c *Core) tellStowed(now Instant, l *lane) {
	for n := l.stowed.first; n != nil; n = n.next {
		if r := n.v; r.inv.stateful && !r.told && now >= r.since+stuckTime {
			r.told = true
			c.tellRoom(now, r.inv, roomWaits)
		}
	}
}

// tooMuch reports whether more of a tenant's wants to come than can be taken in.
func (t *tenant) tooMuch() bool { return t.kept.n > 0 || len(t.paced) > 0 }

// endStuck ends a branch that waits to send, or to leave, where nothing more can be taken in.
func (c *Core) endStuck(now Instant, r *Run) {
	to, t := c.cfg.Name, r.tenant(c)
	if r.toward != nil {
		to = r.toward.Name
	}
	text := fmt.Sprintf("for %v it waited for room to send a branch to %s, while %d messages of principal %q waited to be taken in here and %d members kept more of them back: what elements send each other at once "+
		"has filled the %d bytes (of %d in all) that it may take here beyond what is held; have it send less at once, or raise Limits.BacklogBytes and PrincipalBacklogBytes",
		time.Duration(stuckTime), to, t.kept.n, t.name, len(t.paced), c.lim.PrincipalBacklogBytes, c.lim.BacklogBytes)
	c.stats.Stuck++
	if r.stowed {
		c.endStowed(now, r, CodeBackpressure, text)
		return
	}
	r.stopped = true // what ends its future, here, does not stop it again
	c.reportEnd(now, r, End{Code: CodeBackpressure, Text: text})
	c.fx.Stop(r)
}
