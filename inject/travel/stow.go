package travel

import "errors"

// A branch that goes on to an element for which there is no room just now is stowed: its run can end, and with it goes
// all that a run takes; what is left is the payload, counted as held. It leaves when there is room.

// stow keeps a forward that found no room; false: there is none for it here either, or it is no branch that can wait.
func (c *Core) stow(now Instant, r *Run, p *peer, b *Binding, payload []byte) bool {
	if t, n := r.tenant(c), len(payload)+runOverheadBytes; !c.fitsHeld(t, n) && !c.fitsBacklog(t, n) {
		return false
	}
	r.stowed, r.as, r.ended, r.since, r.told = true, b, true, now, false
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
	c.unref(r.as)
	r.stowed, r.as = false, nil
	c.stowed--
}

// sendStowed sends what waits to leave for p, as far as there is room: one branch of each principal in turn.
func (c *Core) sendStowed(now Instant, p *peer) {
	for refused := 0; refused < p.turns.n && p.up; {
		l := p.turns.first.v
		r := l.stowed.first.v
		s := c.sending(r, r.as, r.branch)
		declares, err := c.sendInject(now, p, &s, r.Payload)
		if isBackpressure(err) && c.hasShare(l.tenant, false) {
			return // nobody's would find room
		}
		l.inTurn.leave() // the others' turn
		p.turns.push(&l.inTurn)
		if isBackpressure(err) {
			refused++
			continue
		}
		refused, l.moved = 0, now
		c.unstow(r)
		if err == nil {
			c.sentBranch(p, &s, declares)
			r.moved = true
			r.forks = r.forks[:0]
			c.tellHold(r)
		} else {
			r.ended = false
			_ = c.unsent(now, r, err) // its origin hears why
		}
		if r.inv != nil && r.state == runStowed { // else its future ended with it, or its function has not returned
			c.retire(now, r)
		}
	}
}

// stowedLost ends the branches that wait to leave for a peer that is gone.
func (c *Core) stowedLost(now Instant, p *peer) {
	c.openDue(now, p)
	for p.turns.n > 0 {
		r := p.turns.first.v.stowed.first.v
		c.unstow(r)
		r.ended = false
		_ = c.unsent(now, r, ErrPeerLost)
		if r.inv != nil && r.state == runStowed {
			c.retire(now, r)
		}
	}
}

// unsent ends a branch that cannot be sent on, and says why.
func (c *Core) unsent(now Instant, r *Run, err error) error {
	code := CodePeerLost
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrNoCode):
		code = CodeLimit
	case errors.Is(err, ErrDeadline):
		code = CodeDeadline
	}
	return c.abort(now, r, code, err.Error())
}

// sending is what an INJECT says of a branch that goes on, or that a run forks.
func (c *Core) sending(r *Run, b *Binding, branch uint64) sending {
	inv := r.inv
	s := sending{id: inv.id, tenant: r.tenant(c), fromHere: inv.originPeer == nil, stateful: inv.stateful, born: inv.born, deadline: inv.deadline,
		binding: b, branch: branch, hops: oneLess(r.hops)}
	if r.hasTrace {
		s.trace = &r.trace
	}
	if branch == r.branch {
		s.parts, s.lists, s.forks = r.parts, r.lists, r.forks
	}
	return s
}
