package travel

// Most branches come in order, their code is ready, nothing else of their invocation is known here, and they answer or go on
// when their function returns. Such a Run is light: it has no invocation, is in no table, and of its fields only the first are
// set. There is one at a time. Whatever asks for more makes it a run like all others first (expand).

// Arrive takes an INJECT as Recv does, if it can be a light run and there is no
// other one. It returns nil, having done nothing, if it cannot: then Recv takes it.
func (c *Core) Arrive(now Instant, from Peer, body []byte) *Run {
	p := c.peer(from)
	if p == nil || c.light != nil || c.draining || c.ready.first != nil || c.rooms.n+c.unready.n > 0 ||
		c.running >= c.runShare || c.invs.n+1 >= c.lim.Invocations || len(body) > MaxMessageBytes {
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
	came := p.recvLow
	p.slide() // perhaps past others that came early
	b.used = now
	b.refs++
	c.running++
	c.stats.Runs++
	r := c.freeRun()
	c.light = r
	r.Payload, r.binding, r.from, r.origin = payload, b, p, origin
	r.seq, r.branch, r.came, r.hops = seq, branch, came, hops
	r.arrived, r.deadline, r.state, r.runFlags = now, now+decodeTime(left), runRunning, runFlags{direct: p == origin}
	return r
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

// expandRun gives the light run its invocation, and puts that into the tables.
func (c *Core) expandRun() {
	r := c.light
	c.light = nil
	c.noteAccepted(r.arrived, r.from, r.came)
	inv := c.newInvocation(InvocationID{r.origin.Incarnation, r.seq}, r.origin, r.deadline)
	c.enter(inv)
	r.runRest = runRest{forks: r.forks[:0]}
	r.inv = inv
	inv.runs.push(&r.inInv)
	r.tenant(c).running++ // all counted it already
}

// Onward ends a light run: its branch goes on to another element. It returns
// false, having done nothing, if the run is not light or that cannot be.
func (c *Core) Onward(now Instant, r *Run, to Peer, payload []byte) bool {
	p := c.peer(to)
	if c.light != r || p == nil || !p.Member || p.turns.n > 0 || p.keepsBack(r.origin.Incarnation) || r.hops == 0 || len(payload) > MaxDataBytes || !p.declared(r.binding) ||
		!c.room(p, r.origin.tenant, false) {
		return false
	}
	left := encodeTimeOnward(r.deadline-now, (r.seq^p.next<<40)*hashA)
	if left == 0 {
		return false
	}
	flags := uint16(flagOrigin)
	if r.branch != 0 {
		flags |= flagBranch
	}
	n := putInject((*[injectHeadBytes + 24]byte)(c.out[:injectHeadBytes+24]), flags, oneLess(r.hops), left, r.binding.handle(), p.next, r.seq, r.origin.Incarnation, r.branch)
	if c.fx.Send(p.num, KindInject, c.out[:n], payload) != nil {
		return false
	}
	c.noted(r.arrived, r.from) // an ACK's low-water mark says that it is accepted
	s := c.number(p, r.origin.tenant, r.deadline)
	s.origin, s.seq, s.branch, s.binding = r.origin.Incarnation, r.seq, r.branch, r.binding // and its reference
	c.stats.Forwards++
	c.endLight(r)
	return true
}

// Answer ends a light run of a branch that came from its origin, with a result
// or without. It returns false, having done nothing, if the run is not light or that takes more.
func (c *Core) Answer(r *Run, result []byte, has bool) bool {
	if c.light != r || !r.direct || len(result) > MaxDataBytes {
		return false
	}
	m := doneMsg{flags: doneFinal, seq: r.seq, branch: r.branch, final: r.came}
	if m.branch != 0 {
		m.flags |= doneBranch
	}
	if has {
		m.flags |= doneResult
	} else {
		result = nil
	}
	c.out = m.append(c.out[:0], nil)
	c.send(r.from, KindDone, c.out, result)
	r.binding.refs--
	c.endLight(r)
	return true
}

// endLight takes the light run back.
func (c *Core) endLight(r *Run) {
	c.light = nil
	c.running--
	r.state, r.Payload, r.User = runFree, nil, nil
	c.runPool.put(r)
}
