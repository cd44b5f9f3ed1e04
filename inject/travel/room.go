package travel

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
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
	// maxPressed is how often the number of those doubles that are looked at because they stand in one's way.
	maxPressed = 16
)

// rooms are the branches that wait for room in the runtime's engines.
type rooms struct {
	n       int          // waiting
	short   bool         // for one of them the element has not enough: it is not its principal's share that it waits for
	tenants list[tenant] // those with waiting branches; the next in turn first
	due     list[Run]    // of those that wait the ones that are asked first, in the order in which they came to be due
	turns   uint64       // counts those that came
	look    Instant      // when giveWay looks for branches that wait too long; 0: none waits
	since   Instant      // since when there has always been a waiting branch
	refused []*Run       // scratch
	holders list[invocation]

	inTheWay []*invocation // scratch of press
	ids      []InvocationID
}

// AwaitsRoom reports whether what needs new room for a principal has to wait for it in turn: a branch waits because the element
// has not enough, or one of the principal's own branches waits.
func (c *Core) AwaitsRoom(principal string) bool {
	if c.rooms.n == 0 || c.rooms.short {
		return c.rooms.n > 0
	}
	t := c.tenants[principal]
	return t != nil && t.inRooms.in != nil || principal == c.own.name && c.own.inRooms.in != nil
}

// Await takes a run back that the runtime has no room for, before it has done anything: it waits as one does for
// code, while its deadline runs, until Effects.Reserve has taken the need bytes for it. NextRun gives it once more
// then, with its User. Await returns false if the branch has ended instead; the run is gone then.
func (c *Core) Await(now Instant, r *Run, need uint64) bool {
	c.expand()
	if r.ended { // it was stopped meanwhile
		c.Finish(now, r, End{Code: CodeCanceled})
		return false
	}
	c.charge(r, false)
	c.pause(r)
	r.state, r.need, r.since, r.awaited = runAwaiting, need, now, true
	c.rooms.turns++
	r.turn, r.passed, r.told, r.pressed = c.rooms.turns, 0, false, 0
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

// RoomFreed says that the runtime has some room again: branches for which it suffices go on, in their order.
func (c *Core) RoomFreed() {
	if c.rooms.n > 0 {
		c.expand()
		c.grant()
	}
}

func (t *tenant) class(need uint64) *list[Run] {
	return &t.rooms[min(bits.Len64(need), roomClasses-1)]
}

// leaveRoom takes a run from those that wait for room.
func (c *Core) leaveRoom(r *Run) {
	t := r.tenant(c)
	if r.told && !r.inv.dead {
		c.tellRoom(0, r.inv, roomGoesOn)
	}
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

// grant gives room to waiting branches, as far as it goes.
func (c *Core) grant() {
	for c.grantOne() {
	}
}

// grantOne gives room to the first branch for which there is enough. Those that are due are asked first; then the principals
// take turns, and of one principal's branches the first that came is asked first. A branch that is refused is overtaken by
// those that need less, until it is due itself (maxPassed).
func (c *Core) grantOne() bool {
	short := uint64(math.MaxUint64) // no branch gets that much
	c.rooms.short = false
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
		c.rooms.short = true
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
// another, where one keeps scratch that waits for the first. An invocation is ended for that only if it
//
//   - keeps scratch where an older one has waited for a while, and has not run there meanwhile, so that it stands in its way, and
//   - has waited for room itself for a while, somewhere else, or for long to leave for there (tellStowed): one that is at work comes back,
//     and gives its scratch up in time.
//
// The first is seen here, the second where it waits. Its origin hears of both (ROOM), and ends it. Of each principal the oldest
// that waits looks at the youngest that stands in its way, then at twice as many each time. The oldest of a ring that waits for
// itself finds only younger ones where it waits, and they wait too, so it gets on.
func (c *Core) giveWay(now Instant) {
	patience := Instant(c.lim.RoomPatience)
	c.rooms.look = now + patience
	c.grant()
	for n := c.rooms.tenants.first; n != nil; {
		t := n.v
		n = n.next
		old := c.oldest(now, t, now-patience)
		if old == nil {
			continue
		}
		room := c.fx.Reserve(old)
		if room == RoomTaken {
			c.granted(old)
			continue
		}
		if c.onlyItself(old.inv, room == RoomShare) {
			c.failRun(now, old, CodeBackpressure, inItsOwnWay(old))
			continue
		}
		c.press(now, old, now-patience, room == RoomShare)
	}
	if c.rooms.n == 0 {
		c.rooms.look = 0
	}
}

// oldest is the oldest of a tenant's invocations that may keep scratch elsewhere and has waited since before. The origins of all
// that have hear that they wait.
func (c *Core) oldest(now Instant, t *tenant, before Instant) (old *Run) {
	for i := range t.rooms {
		for n := t.rooms[i].first; n != nil; n = n.next {
			r := n.v
			if !r.inv.stateful || r.since > before {
				continue
			}
			if !r.told {
				r.told = true
				c.tellRoom(now, r.inv, roomWaits)
			}
			if old == nil || r.inv.older(old.inv) {
				old = r
			}
		}
	}
	return old
}

// rests reports whether no branch of an invocation has run here since before: what is here of it waits to leave, for room that
// another worker of it has not got, or for its turn behind such a one.
func (inv *invocation) rests(before Instant) bool {
	for n := inv.runs.first; n != nil; n = n.next {
		switch n.v.state {
		case runWaiting:
		case runStowed, runAwaiting:
			if n.v.since > before {
				return false
			}
		default:
			return false
		}
	}
	return inv.rested <= before
}

// onlyItself reports whether an invocation of which a branch waits for room here has it all: nobody else keeps scratch, runs, has room that it
// begins in soon, or has some cleared that it gave back; of its principal if that one's share is short.
func (c *Core) onlyItself(inv *invocation, own bool) bool {
	if inv.seats.held == 0 || c.fx.Freeing() {
		return false
	}
	if t := c.tenantOf(inv); own && t.running+t.asleep+t.granted.n > 0 || !own && c.running+c.asleep > 0 {
		return false
	}
	for n := c.ready.first; n != nil && !own; n = n.next {
		if n.v.granted.n > 0 {
			return false
		}
	}
	for n := c.rooms.holders.first; n != nil; n = n.next {
		if n.v != inv && (!own || c.tenantOf(n.v) == c.tenantOf(inv)) {
			return false
		}
	}
	return true
}

// inItsOwnWay says why a branch ends for which only its own invocation leaves no room.
func inItsOwnWay(r *Run) string {
	const more = "let the element have more room (MaxInstances, of native code MaxWorkers, or MemoryBytes)"
	if _, workers := r.Worker(); workers > 1 {
		return fmt.Sprintf("%d of its %d workers keep scratch here, and that leaves no room of %d KiB for another: ask for fewer workers, or %s", r.inv.seats.held, workers, r.need>>10, more)
	}
	return fmt.Sprintf("another function of the same call keeps scratch here, and that leaves no room of %d KiB for this one: %s", r.need>>10, more)
}

// press tells the origins of the youngest invocations that stand in the way of a branch: those that keep
// scratch here, have not run here since before and are younger; if own is set, only the same principal's.
func (c *Core) press(now Instant, old *Run, before Instant, own bool) {
	inTheWay := c.rooms.inTheWay[:0]
	for n := c.rooms.holders.first; n != nil; n = n.next {
		if inv := n.v; inv.rests(before) && old.inv.older(inv) && (!own || c.tenantOf(inv) == c.tenantOf(old.inv)) {
			inTheWay = append(inTheWay, inv)
		}
	}
	if len(inTheWay) > 0 {
		c.setDue(old)
	}
	slices.SortFunc(inTheWay, func(a, b *invocation) int {
		if a.older(b) {
			return 1
		}
		return -1
	})
	n := min(1<<min(old.pressed, maxPressed), len(inTheWay))
	old.pressed++
	ids := c.rooms.ids[:0] // of those that are looked at: the end of one may end others
	for _, inv := range inTheWay[:n] {
		ids = append(ids, inv.id)
	}
	clear(inTheWay)
	c.rooms.inTheWay, c.rooms.ids = inTheWay[:0], ids[:0]
	for _, id := range ids {
		if inv := c.invs.get(id.Seq, id.Origin); inv != nil && !inv.dead {
			c.stats.Pressed++
			c.tellRoom(now, inv, roomInTheWay)
		}
	}
}

func (c *Core) tenantOf(inv *invocation) *tenant {
	if inv.originPeer == nil {
		return &c.own
	}
	return inv.originPeer.tenant
}

// tellRoom tells an invocation's origin what it has to do with the room here.
func (c *Core) tellRoom(now Instant, inv *invocation, what roomWord) {
	if inv.originPeer != nil {
		var buf [roomBytes]byte
		c.send(inv.originPeer, KindRoom, (&roomMsg{what, inv.id.Seq}).append(buf[:0]), nil)
	} else if inv.fut != nil {
		c.heedRoom(now, inv.fut, what, c.cfg.Name)
	}
}

// recvRoom hears what an invocation of this element's has to do with the room elsewhere.
func (c *Core) recvRoom(now Instant, p *peer, body []byte) error {
	var m roomMsg
	if err := m.decode(body); err != nil {
		return err
	}
	if f := c.futureOf(m.seq); f != nil && f.mayReport(p) {
		c.heedRoom(now, f, m.what, p.Name)
	}
	return nil
}

// heedRoom ends a future that stands in an older one's way at an element, if it waits for room itself.
func (c *Core) heedRoom(now Instant, f *future, what roomWord, element string) {
	switch {
	case what == roomWaits:
		f.waits++
	case what == roomGoesOn:
		f.waits = max(f.waits-1, 0)
	case f.waits > 0:
		c.stats.Yielded++
		c.fail(now, f, &RemoteError{Code: CodeBackpressure, Element: element, Function: f.binding.Name, Text: gaveWay})
	}
}

// gaveWay says why a future was ended to make room.
const gaveWay = "its scratch stood in the way of a function that started earlier and waited for room there, while it waited for room itself, or for long to go on to an element that took no more: " +
	"start it again, or let its elements have more room (MaxInstances, of native code MaxWorkers, MemoryBytes, or Limits.BacklogBytes)"

// awaits says what a branch waits for whose time is up here.
func (c *Core) awaits(r *Run) string {
	switch r.state {
	case runUnready:
		return "; it waited for its program, which was being made ready: allow more time, or call it once beforehand"
	case runAwaiting:
	default:
		return ""
	}
	return fmt.Sprintf("; it waited for room for %d KiB, as did %d more: raise MaxInstances (of native code MaxWorkers) or MemoryBytes, start fewer at once, or allow more time", r.need>>10, c.rooms.n-1)
}
