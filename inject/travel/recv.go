package travel

import "fmt"

// recvInject takes a branch that arrives.
func (c *Core) recvInject(now Instant, p *peer, body []byte) (*Run, error) {
	var m injectMsg
	var ext injectExt
	if len(body) > MaxMessageBytes {
		return nil, malformed(KindInject, "%d bytes, at most %d are allowed", len(body), MaxMessageBytes)
	}
	if err := m.decode(body, &ext); err != nil {
		return nil, err
	}
	if p.acks.count >= ackAfter {
		c.flush(p)
	}
	t, ok := expand24(m.transfer, p.recvLow)
	if !ok || !p.receive(t) {
		c.stats.Duplicates++
		return nil, nil
	}
	c.note(now, p, t) // and not sent yet: if it is refused, REFUSED has to come first
	if ext.declared && (p.Injector || p.Member) {
		p.learn(t, m.handle, &ext) // whatever becomes of this message: it counts as declared
	}
	origin, id, err := c.originOf(p, &m)
	if err != nil {
		return nil, err
	}
	if origin == nil && id.Origin != c.cfg.Self {
		why := fmt.Sprintf("origin %016x has no endpoint here", m.origin)
		if !p.Member {
			why = "the sender is no member, so it cannot forward for others"
		}
		c.sendRefused(p, t, CodeRefused, reasonOther, why)
		return nil, nil
	}
	if origin != nil && origin.Foreign {
		c.sendRefused(p, t, CodeRefused, reasonOther, fmt.Sprintf("%s may not inject functions over this connection: the incarnation that it shows is another principal's than %q here", origin.Name, origin.Principal))
		return nil, nil
	}
	if origin != nil && !origin.Injector {
		c.sendRefused(p, t, CodeRefused, reasonOther, fmt.Sprintf("%s may not inject functions here: its principal %q lacks the capability inject; use a token or certificate that has it", origin.Name, origin.Principal))
		return nil, nil
	}
	inv := c.invs.get(id.Seq, id.Origin)
	if over, why := c.isOver(id, inv, origin); over && why != CodeOK {
		c.sendRefused(p, t, why, reasonOther, lapseText(why))
		return nil, nil
	} else if over || inv == nil && origin == nil {
		if over {
			c.stats.Stopped++
		}
		return nil, nil // it was canceled or has ended
	}
	if inv == nil && c.draining && p == origin {
		c.sendRefused(p, t, CodeStopping, reasonOther, StoppingText)
		return nil, nil
	}
	return c.arrive(now, p, t, inv, origin, id, &m, &ext)
}

// isOver reports whether an invocation, of which inv is here if it is not nil, has ended here. With a code its origin may not know, and
// the branch must not be dropped. What another principal left under the origin's incarnation is not the origin's.
func (c *Core) isOver(id InvocationID, inv *invocation, origin *peer) (bool, Code) {
	if t := c.tombs.get(id); t != nil && (origin == nil || t.principal == "" || t.principal == origin.Principal) {
		return true, t.why
	} else if t != nil {
		c.tombs.remove(t)
	}
	if inv != nil && inv.dead {
		return true, inv.lapsed
	}
	return false, CodeOK
}

// originOf names a message's origin; nil is this element, or one that has no
// endpoint here, or one that the sender may not speak for.
func (c *Core) originOf(p *peer, m *injectMsg) (*peer, InvocationID, error) {
	if m.flags&flagOrigin == 0 {
		return p, InvocationID{p.Incarnation, m.seq}, nil
	}
	if m.origin == p.Incarnation {
		return nil, InvocationID{}, malformed(KindInject, "the sender names itself as origin")
	}
	id := InvocationID{m.origin, m.seq}
	if !p.Member {
		if m.origin == c.cfg.Self {
			id.Origin = 0
		}
		return nil, id, nil
	}
	return c.byInc.get(m.origin, 0), id, nil
}

// arrive makes a run of a message that is to be taken.
func (c *Core) arrive(now Instant, p *peer, t uint64, inv *invocation, origin *peer, id InvocationID, m *injectMsg, ext *injectExt) (*Run, error) {
	deadline := now + decodeTime(m.left)
	if inv == nil {
		if c.invs.n >= c.lim.Invocations {
			c.sendRefused(p, t, CodeBackpressure, reasonOther, fmt.Sprintf("%d invocations are here, as many as Limits.Invocations allows; try again later or raise it", c.invs.n))
			return nil, nil
		}
		inv = c.newInvocation(id, origin, deadline)
		c.enter(inv)
	} else if m.flags&flagState != 0 && !inv.stateful { // its branches here take no turns, so this one would be at work beside them
		c.sendRefused(p, t, CodeRefused, reasonOther, "the invocation has branches here that were sent as such that keep no scratch: all of its messages say STATE, or none")
		return nil, nil
	} else {
		c.extend(now, inv, deadline)
	}
	if m.flags&flagState != 0 && !inv.stateful {
		if over := c.makeStateful(now, inv); over != "" {
			c.tidy(inv)
			c.sendRefused(p, t, CodeBackpressure, reasonOther, over)
			return nil, nil
		}
		inv.born = m.born
	}
	r := c.newRun(inv, m.branch, m.hops)
	r.from, r.direct, r.came = p, p == origin, t
	if m.flags&flagExt != 0 {
		r.take(ext)
	}
	b, known := c.resolve(now, p, &r.tenant(c).name, m.handle, ext)
	if !known {
		c.dropRun(now, r)
		c.tidy(inv)
		c.sendRefused(p, t, CodeNoCode, reasonUnknownHandle, "the handle was never declared here")
		return nil, nil
	}
	r.Payload = m.payload
	if b == nil {
		c.failRun(now, r, CodeBackpressure, c.noBinding(&r.tenant(c).name))
		return nil, nil
	}
	b.refs++
	r.binding = b
	if m.left == 0 {
		c.failRun(now, r, CodeDeadline, "the branch arrived with no time left")
		return nil, nil
	}
	if !c.ensure(now, b) {
		c.park(now, r, ext)
		return nil, nil
	}
	return c.admit(now, r, true), nil
}

// makeStateful lets an invocation keep scratch here, if there is room for its tombstone; else over says what is full.
func (c *Core) makeStateful(now Instant, inv *invocation) (over string) {
	if inv.originPeer != nil {
		if over = c.tombs.take(inv.originPeer.Principal, &c.lim); over != "" {
			return over
		}
		inv.placed, inv.came = true, now
	}
	inv.stateful = true
	return ""
}

// admit lets a run that has its code execute: at once if it may and direct is
// set, else in its turn.
func (c *Core) admit(now Instant, r *Run, direct bool) *Run {
	inv := r.inv
	wait := inv.stateful && !inv.seats.vacant(r, c.lim.Workers)
	if direct && !wait && c.mayBegin(r.tenant(c)) && !c.crowds(r.tenant(c), r) {
		c.begin(r)
		return r
	}
	c.charge(r, direct)
	if wait {
		r.state = runWaiting
		inv.seats.of(r).waiting.push(&r.inQueue)
		return nil
	}
	if inv.stateful {
		inv.seats.take(r)
	}
	c.enqueue(r)
	return nil
}

// mayBegin reports whether a tenant's run may begin at once: no other one has waited longer.
func (c *Core) mayBegin(t *tenant) bool {
	return c.running < c.lim.Running && t.running < c.runShare && t.ready.n == 0 && !c.Ready()
}
