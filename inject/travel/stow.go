package travel

import "errors"

// A branch that goes on to an element for which there is no room just now is stowed: its run can end, and with it goes
// all that a run takes; what is left is the payload, counted as held. It leaves when there is room.

// stow keeps a forward that found no room; false: there is none for it here either, or it is no branch that can wait.
func (c *Core) stow(now Instant, r *Run, p *peer, worker uint8, b *Binding, payload []byte) bool {
	if t, n := r.tenant(c), len(payload)+runOverheadBytes; !c.fitsHeld(t, n) && !c.fitsBacklog(t, n) {
		return false
	}
	r.stowed, r.as, r.onto, r.ended, r.since, r.told = true, b, worker, true, now, false
	b.refs++
	r.Payload, r.owned = append([]byte(nil), payload...), true
	r.from = nil // it is this element's now
	c.charge(r, false)
	c.queue(now, p, r)
	c.stowed++
	c.behind(p)
	c.lookSoon(now)
	return true
}

// outOfTurn reports whether a branch of a run's principal waits to leave for a peer since before the run did, and it is that one's turn.
func (c *Core) outOfTurn(r *Run, p *peer) bool {
	l := p.laneOf(r.tenant(c))
	return l != nil && !(r.blocked && r.since <= l.stowed.first.v.since)
}

// unstow takes a branch out of where it waits to leave.
func (c *Core) unstow(r *Run) {
	c.uncharge(r)
	r.leaveLane()
	if r.stowed = false; r.told && !r.inv.dead {
		c.tellRoom(0, r.inv, roomGoesOn)
	}
	c.unref(r.as)
	r.as = nil
	c.stowed--
}

// sendStowed sends what waits to leave for p, as far as there is room: one branch of each principal in turn.
func (c *Core) sendStowed(now Instant, p *peer) {
	for refused := 0; refused < p.turns.n && p.up; {
		l := p.turns.first.v
		r := l.stowed.first.v
		s := c.sending(r, r.onto, r.as, r.branch)
		declares, err := c.sendInject(now, p, &s, r.Payload)
		if isBackpressure(err) && c.hasShare(l.tenant, false) {
			return // no tenant's branch would find room
		}
		l.inTurn.leave() // the others' turn
		p.turns.push(&l.inTurn)
		if isBackpressure(err) {
			refused++
			continue
		}
		refused, l.moved = 0, now
		if err != nil {
			c.endStowed(now, r, unsentCode(err), err.Error())
			continue
		}
		c.unstow(r)
		c.sentBranch(p, &s, declares)
		r.moved = true
		r.forks = r.forks[:0]
		c.tellHold(r)
		if r.state == runStowed { // else its function has not returned
			c.retire(now, r)
		}
	}
}

// endStowed ends a branch that waits to leave. Its origin hears why.
func (c *Core) endStowed(now Instant, r *Run, code Code, text string) {
	c.unstow(r)
	r.ended = false
	_ = c.abort(now, r, code, text)
	if r.inv != nil && r.state == runStowed { // else its future ended with it, or its function has not returned
		c.retire(now, r)
	}
}

// stowedLost ends the branches that wait to leave for a peer that is gone.
func (c *Core) stowedLost(now Instant, p *peer) {
	c.openDue(now, p)
	for p.turns.n > 0 {
		c.endStowed(now, p.turns.first.v.stowed.first.v, CodePeerLost, ErrPeerLost.Error())
	}
}

// unsentCode says why a branch could not be sent on.
func unsentCode(err error) Code {
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrNoCode):
		return CodeLimit
	case errors.Is(err, ErrDeadline):
		return CodeDeadline
	}
	return CodePeerLost
}

// sending is what an INJECT says of a branch that goes on, or that a run forks.
func (c *Core) sending(r *Run, worker uint8, b *Binding, branch uint64) sending {
	inv := r.inv
	s := sending{id: inv.id, tenant: r.tenant(c), fromHere: inv.originPeer == nil, stateful: inv.stateful, born: inv.born, deadline: inv.deadline,
		binding: b, branch: branch, hops: oneLess(r.hops), worker: worker, workers: r.workers}
	if r.hasTrace {
		s.trace = &r.trace
	}
	if branch == r.branch {
		s.parts, s.lists, s.forks = r.parts, r.lists, r.forks
	}
	return s
}
