package travel

// Visit is a branch at an element in the common case: it came in order, its
// code is ready, nothing else of its invocation is known here, and most likely it answers or goes on
// when its function returns. Until then this one record is all that the core keeps; whatever asks
// for more turns it into a Run (Become), which can do everything.
type Visit struct {
	// Payload is what the function gets; it is part of the message.
	Payload []byte
	// Binding is what to run.
	Binding *Binding
	// User is what the run's User will be if the visit becomes one, and Run is set then, by
	// whichever call of the core does it. Both are the caller's to set, before the next call.
	User any
	Run  **Run

	open                  bool
	hops                  uint16
	transfer, seq, branch uint64
	came, deadline        Instant
	from, origin          *peer
}

// Deadline is when the invocation's time is up.
func (v *Visit) Deadline() Instant { return v.deadline }

// Origin is the endpoint of the element that started the invocation.
func (v *Visit) Origin() Peer { return v.origin.num }

// Arrive takes an INJECT as Recv does, if it can be a visit and there is no
// other one. It returns nil, having done nothing, if it cannot: then Recv takes it.
func (c *Core) Arrive(now Instant, from Peer, body []byte) *Visit {
	p := c.peer(from)
	if p == nil || c.visit.open || c.loose != nil || c.draining || c.ready.first != nil || c.rooms.n > 0 ||
		c.running >= c.runShare || c.invs.n+c.relays+1 >= c.lim.Invocations || len(body) > MaxMessageBytes {
		return nil
	}
	if len(body) < injectHeadBytes || body[1]>>4&(flagExt|flagState) != 0 || getU24(body[6:]) != p.recvLow&(1<<24-1) {
		return nil
	}
	// As injectMsg.decode does it, with nothing in between; what it finds wrong it may tell.
	hops, left, payload := le.Uint16(body)&MaxHops, le.Uint16(body[2:]), body[injectHeadBytes:]
	seq, branch, origin := getU40(body[9:]), uint64(0), p
	if left == 0 {
		return nil
	}
	if body[1]>>4&flagOrigin != 0 {
		if len(payload) < 8 || !p.Member {
			return nil
		}
		inc := le.Uint64(payload)
		if origin = c.speaker; origin == nil || origin.Incarnation != inc {
			origin = c.byInc.get(inc, 0)
			c.speaker = origin
		}
		if origin == nil || inc == p.Incarnation {
			return nil
		}
		payload = payload[8:]
	}
	if body[1]>>4&flagBranch != 0 {
		if len(payload) < 8 || le.Uint64(payload) == 0 {
			return nil
		}
		branch, payload = le.Uint64(payload), payload[8:]
	}
	b := p.ready(le.Uint16(body[4:]))
	if b == nil || !origin.Injector || c.invs.n > 0 && c.invs.get(seq, origin.Incarnation) != nil ||
		c.tombs.byID.n > 0 && c.tombs.has(InvocationID{origin.Incarnation, seq}) {
		return nil
	}
	t := p.recvLow
	p.slide() // perhaps past others that came early
	b.used = now
	b.refs++
	c.running++
	c.stats.Runs++
	v := &c.visit // all of it but what is the caller's, field by field: half the code of a literal
	v.Payload, v.Binding, v.from, v.origin = payload, b, p, origin
	v.open, v.hops, v.transfer, v.seq, v.branch = true, hops, t, seq, branch
	v.came, v.deadline = now, now+decodeTime(left)
	return v
}

// ready is the binding that a handle names, if it has been used before and its objects are here.
func (p *peer) ready(wire uint16) *Binding {
	slot, gen := int(wire%MaxSlots), uint8(wire>>12)
	if slot >= len(p.handles) {
		return nil
	}
	h := &p.handles[slot]
	if b := h.b; h.known && h.gen == gen && b != nil && b.gen == h.bgen && b.pinned {
		return b
	}
	return nil
}

// Become makes the visit a run, if it is none yet.
func (c *Core) Become() {
	v := &c.visit
	if !v.open {
		return
	}
	v.open = false
	c.noteAccepted(v.came, v.from, v.transfer)
	inv := c.newInvocation(InvocationID{v.origin.Incarnation, v.seq}, v.origin, v.deadline)
	c.loose = inv
	r := c.newRun(inv, v.branch, v.hops, c.newHold(v.from, v.transfer))
	r.from, r.binding, r.Payload, r.User, r.state = v.from, v.Binding, v.Payload, v.User, runRunning
	r.tenant(c).running++ // all counted it already
	*v.Run = r
	*v = Visit{}
}

// Onward ends the visit: its branch goes on to another element. It returns
// false, having done nothing, if that takes a run or cannot be.
func (c *Core) Onward(now Instant, to Peer, payload []byte) bool {
	v, p := &c.visit, c.peer(to)
	if p == nil || !p.Member || p.stowed.n > 0 || p.keepsBack(v.origin.Incarnation) || v.hops == 0 || len(payload) > MaxDataBytes || !p.declared(v.Binding) ||
		!c.room(p, v.origin.tenant, false) {
		return false
	}
	s := p.relaySlot(p.next)
	left := encodeTimeOnward(v.deadline-now, (v.seq^p.next<<40)*hashA)
	if s == nil || left == 0 {
		return false
	}
	flags := uint16(flagOrigin)
	if v.branch != 0 {
		flags |= flagBranch
	}
	n := putInject((*[injectHeadBytes + 24]byte)(c.out[:injectHeadBytes+24]), flags, oneLess(v.hops), left, v.Binding.handle(), p.next, v.seq, v.origin.Incarnation, v.branch)
	if c.fx.Send(p.num, KindInject, c.out[:n], payload) != nil {
		return false
	}
	c.noted(v.came, v.from) // an ACK's low-water mark says that it is accepted
	s.tag, s.seq, s.branch, s.deadline = p.next+1, v.seq, v.branch, v.deadline
	s.origin, s.binding, s.pred, s.predTransfer = v.origin, v.Binding, v.from, v.transfer
	c.addRelay(p, s)
	p.next++
	c.record(v.origin.tenant, 1)
	c.running--
	c.stats.Forwards++
	v.open = false
	return true
}

// Answer ends the visit of a branch that came from its origin, with a result
// or without. It returns false, having done nothing, if that takes a run.
func (c *Core) Answer(result []byte, has bool) bool {
	v := &c.visit
	p := v.from
	if v.origin != p || len(result) > MaxDataBytes {
		return false
	}
	m := doneMsg{flags: doneFinal, seq: v.seq, branch: v.branch, final: v.transfer}
	if m.branch != 0 {
		m.flags |= doneBranch
	}
	if has {
		m.flags |= doneResult
	} else {
		result = nil
	}
	c.out = m.append(c.out[:0], nil)
	c.send(p, KindDone, c.out, result)
	v.Binding.refs--
	c.running--
	v.open = false
	return true
}
