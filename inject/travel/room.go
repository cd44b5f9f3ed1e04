package travel

import (
	"fmt"
	"math"
	"math/bits"
)

// Room is what Effects.Reserve found.
type Room uint8

const (
	RoomTaken Room = iota // it is the run's
	RoomShort             // the element has not enough
	RoomShare             // the run's principal has its share already
)

const (
	// roomClasses: each has needs of up to twice those of the one before, up to 2 TiB.
	roomClasses = 42
	// maxPassed is how many branches that came later may be given room before one that waits.
	maxPassed = 64
	// small: a branch that is due does not hold up those that need less than this part of what it needs, until so many times
	// maxPassed have gone before it. Then nothing goes before it: a crowd of small ones would take all that is freed.
	small = 8
)

// rooms are the branches that wait for room in the runtime's engines.
type rooms struct {
	n       int          // waiting
	tenants list[tenant] // of whom some wait; the next in turn first
	due     list[Run]    // of those that wait the ones that are asked first, in the order in which they came to be due
	turns   uint64       // counts those that came
	look    Instant      // when giveWay looks at who waits too long; 0: nobody waits
	since   Instant      // since when somebody has waited without a break
	refused []*Run       // scratch
	holders list[invocation]
}

// AwaitsRoom reports whether a branch waits for room: whatever needs new room then waits with it, in turn.
func (c *Core) AwaitsRoom() bool { return c.rooms.n > 0 }

// Await takes a run back that the runtime has no room for, before it has done anything: it waits as one does for
// code, while its deadline runs, until Effects.Reserve has taken the need bytes for it. NextRun gives it once more
// then, with its User. Await returns false if the branch has ended instead; the run is gone then.
func (c *Core) Await(now Instant, r *Run, need uint64) bool {
	c.catchUp()
	if r.ended { // it was stopped meanwhile
		c.Finish(now, r, End{Code: CodeCanceled})
		return false
	}
	c.charge(r, false)
	c.pause(r)
	r.state, r.need, r.since, r.awaited = runAwaiting, need, now, true
	c.rooms.turns++
	r.turn, r.passed = c.rooms.turns, 0
	t := r.tenant(c)
	t.class(need).push(&r.inQueue)
	c.stats.Awaited++
	if t.inRooms.in == nil {
		c.rooms.tenants.push(&t.inRooms)
	}
	if c.rooms.n++; c.rooms.look == 0 {
		c.rooms.look, c.rooms.since = now+Instant(c.lim.RoomPatience), now
		c.lookSoon(now)
	}
	c.grant()
	return true
}

// RoomFreed says that the runtime has some room again: those for whom it suffices go on, in their order.
func (c *Core) RoomFreed() {
	if c.rooms.n > 0 {
		c.catchUp()
		c.grant()
	}
}

func (t *tenant) class(need uint64) *list[Run] {
	return &t.rooms[min(bits.Len64(need), roomClasses-1)]
}

// leaveRoom takes a run from those that wait for room.
func (c *Core) leaveRoom(r *Run) {
	t := r.tenant(c)
	r.inQueue.leave()
	r.inDue.leave()
	if c.rooms.n--; c.rooms.n == 0 {
		c.rooms.look = 0
	}
	for i := range t.rooms {
		if t.rooms[i].n > 0 {
			return
		}
	}
	t.inRooms.leave()
}

// grant gives room to who waits, as far as it goes.
func (c *Core) grant() {
	for c.grantOne() {
	}
}

// grantOne gives room to the first branch for which there is enough. Those that are due are asked first; then the principals
// take turns, and of one principal's branches the first that came is asked first. A branch that is refused is overtaken by
// those that need less, until it is due itself (maxPassed).
func (c *Core) grantOne() bool {
	short := uint64(math.MaxUint64) // no branch gets that much
	c.rooms.refused = c.rooms.refused[:0]
	for n := c.rooms.tenants.first; n != nil; n = n.next {
		n.v.most = math.MaxUint64
	}
	for n := c.rooms.due.first; n != nil; n = n.next {
		if r := n.v; r.need < min(r.tenant(c).most, short) && c.suits(r, &short) {
			c.overtake(r)
			return true
		}
	}
	for n := c.rooms.tenants.first; n != nil; n = n.next {
		t := n.v
		r := c.suitsOf(t, &short)
		if r == nil {
			continue
		}
		c.overtake(r)
		if t.inRooms.in != nil {
			t.inRooms.leave()
			c.rooms.tenants.push(&t.inRooms)
		}
		return true
	}
	return false
}

// overtake lets a run that has its room go before those that were refused.
func (c *Core) overtake(r *Run) {
	for _, over := range c.rooms.refused {
		if over.passed++; over.passed == maxPassed {
			c.setDue(over)
		}
	}
	c.granted(r)
}

// granted moves a run that has its room to those that are ready.
func (c *Core) granted(r *Run) {
	c.leaveRoom(r)
	r.reserved = true
	c.enqueue(r)
}

// suitsOf is the tenant's first run for which there is room, which is taken for it; nil if there is none.
func (c *Core) suitsOf(t *tenant, short *uint64) *Run {
	for asked := uint64(0); ; {
		r := t.after(asked, min(t.most, *short))
		if r == nil || c.suits(r, short) {
			return r
		}
		asked = r.turn
	}
}

// suits takes room for a run if there is enough. If not, it lowers the bar that later runs must stay below in this pass: that
// of its tenant, and short, which is everyone's, if the element itself has not enough.
func (c *Core) suits(r *Run, short *uint64) bool {
	room := c.fx.Reserve(r)
	if room == RoomTaken {
		return true
	}
	c.rooms.refused = append(c.rooms.refused, r)
	bar := r.need
	switch {
	case r.passed >= small*maxPassed:
		bar = 0
	case r.passed >= maxPassed:
		bar /= small
	}
	t := r.tenant(c)
	t.most = min(t.most, bar)
	if room == RoomShort {
		*short = min(*short, bar)
	}
	return false
}

// after is the tenant's first waiting run that needs less than most and came after the one whose turn was last, as far as
// it is the first of its class.
func (t *tenant) after(last, most uint64) (first *Run) {
	for i := range t.rooms {
		n := t.rooms[i].first
		if n == nil || n.v.turn <= last || n.v.need >= most || first != nil && first.turn < n.v.turn {
			continue
		}
		first = n.v
	}
	return first
}

// setDue has a run asked before all others but those that are due already; whatever needs about as much waits behind it.
func (c *Core) setDue(r *Run) {
	if r.inDue.in == nil {
		r.passed = max(r.passed, maxPassed)
		c.rooms.due.push(&r.inDue)
	}
}

// older reports whether an invocation started before another, as all elements see it.
func (a *invocation) older(b *invocation) bool {
	switch {
	case a.born != b.born:
		return a.born < b.born
	case a.id.Origin != b.id.Origin:
		return a.id.Origin < b.id.Origin
	}
	return a.id.Seq < b.id.Seq
}

// giveWay resolves what no room freed here would: an invocation that keeps scratch at one element and waits for room at
// another, where one keeps scratch that waits for the first. Age decides. Of each principal the oldest that
// waits for a while takes the scratch of the youngest that keeps some here without running, if that is younger. The oldest of
// a ring that waits for itself finds only younger ones where it waits, so it gets on.
func (c *Core) giveWay(now Instant) {
	patience := Instant(c.lim.RoomPatience)
	c.rooms.look = now + patience
	c.grant()
	for n := c.rooms.tenants.first; n != nil; {
		t := n.v
		n = n.next
		old := t.oldest(now - patience)
		if old == nil {
			continue
		}
		room := c.fx.Reserve(old)
		if room == RoomTaken {
			c.granted(old)
			continue
		}
		if young := c.youngest(old.inv, now-patience, room == RoomShare); young != nil {
			c.setDue(old)
			c.yield(now, young, old.inv)
		}
	}
	if c.rooms.n == 0 {
		c.rooms.look = 0
	}
}

// oldest is the oldest of a tenant's invocations that may keep scratch elsewhere and has waited since before.
func (t *tenant) oldest(before Instant) (old *Run) {
	for i := range t.rooms {
		for n := t.rooms[i].first; n != nil; n = n.next {
			if r := n.v; r.inv.stateful && r.since <= before && (old == nil || r.inv.older(old.inv)) {
				old = r
			}
		}
	}
	return old
}

// youngest is the youngest invocation that keeps scratch here, has not run here since before and is younger than old;
// if own is set, of the same principal.
func (c *Core) youngest(old *invocation, before Instant, own bool) (young *invocation) {
	for n := c.rooms.holders.first; n != nil; n = n.next {
		inv := n.v
		if inv.runs.n == 0 && inv.rested <= before && old.older(inv) && (young == nil || young.older(inv)) &&
			(!own || c.tenantOf(inv) == c.tenantOf(old)) {
			young = inv
		}
	}
	return young
}

func (c *Core) tenantOf(inv *invocation) *tenant {
	if inv.originPeer == nil {
		return &c.own
	}
	return inv.originPeer.tenant
}

// yield takes the scratch that an invocation keeps here. Its record stays, so that a branch which comes for the scratch
// ends with an error instead of finding none.
func (c *Core) yield(now Instant, inv, to *invocation) {
	c.stats.Yielded++
	if inv.fut != nil {
		c.fail(now, inv.fut, &RemoteError{Code: CodeBackpressure, Element: c.cfg.Name, Function: inv.fut.binding.Name, Text: yielded})
		return
	}
	inv.yielded = true
	c.freeState(inv)
}

// yielded is what a branch is told that comes back for scratch which is gone.
const yielded = "the scratch that it kept here was given to a function that started earlier and had waited for room: start it again, or let this element have more room"

// awaits says what a branch waits for whose time is up here.
func (c *Core) awaits(r *Run) string {
	if r.state != runAwaiting {
		return ""
	}
	return fmt.Sprintf("; it waited for room for %d KiB, %d others with it: raise the engine's MaxInstances or MemoryBytes, start fewer at once, or allow more time", r.need>>10, c.rooms.n-1)
}
