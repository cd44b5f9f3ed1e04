package travel

// relay is custody of a branch that arrived and went on in one go: what is
// left of its run, its invocation's record, its hold and its transfer's record, in one cache line.
// Most hops of a travelling function are that. Its slot is its transfer's number
// modulo relaySlots. Whatever asks for more than an ACK does turns it into those records (unfold).
type relay struct {
	tag          uint64 // the transfer's number plus 1; 0: free
	seq, branch  uint64
	deadline     Instant
	origin       *peer
	binding      *Binding
	pred         *peer // nil: the transfer is accepted, and so the predecessor's released
	predTransfer uint64
}

// relaySlots: two ACKs' worth for one peer, 32 KiB from the first hop there on.
const relaySlots = 2 * ackAfter

// relayed is the relay with that transfer number, nil if there is none.
func (p *peer) relayed(t uint64) *relay {
	if p.relayN > 0 {
		if s := &p.relays[t%relaySlots]; s.tag == t+1 {
			return s
		}
	}
	return nil
}

// leaves reports whether nothing but its forward will be left of a run. A loose invocation has no other run, and
// what this one sent its hold counts too.
func (c *Core) leaves(r *Run) bool {
	return c.loose == r.inv && !r.inv.stateful && r.hold.count == 1
}

// leave numbers the transfer with which a run leaves. What is kept of it shows when the run ends.
func (r *Run) leave(c *Core, p *peer) {
	r.onward, r.transfer = p, p.next
	p.next++
	c.record(r.tenant(c), 1)
}

// moor makes the record of a run's forward that was put off.
func (c *Core) moor(r *Run) {
	p := r.onward
	r.onward = nil
	c.keep(p, r.transfer, recordInject, r.inv, r.branch, r.hold).binding = r.binding
	r.binding.refs++
}

// relay ends a run that left and whose invocation is still loose. It returns
// false, having done nothing, if an older relay is in the way.
func (c *Core) relay(r *Run) bool {
	p, t, inv, h := r.onward, r.transfer, r.inv, r.hold
	s := p.relaySlot(t)
	if s == nil {
		return false
	}
	*s = relay{t + 1, inv.id.Seq, r.branch, inv.deadline, inv.originPeer, r.binding, h.pred, h.transfer}
	c.addRelay(p, s)
	c.loose = nil
	c.pause(r)
	r.inInv.leave()
	r.state, r.Payload, r.User, r.forks = runFree, nil, nil, r.forks[:0]
	r.inv, r.hold, r.binding, r.from, r.onward = nil, nil, nil, nil, nil
	c.runPool.put(r)
	h.pred = nil
	c.holdPool.put(h)
	inv.originPeer = nil
	c.invPool.put(inv)
	return true
}

// relaySlot is where the relay of a transfer may lie; nil if an older one does.
func (p *peer) relaySlot(t uint64) *relay {
	if p.relays == nil {
		p.relays = make([]relay, relaySlots)
	}
	if s := &p.relays[t%relaySlots]; s.tag == 0 {
		return s
	}
	return nil
}

// addRelay counts a relay that was filled in.
func (c *Core) addRelay(p *peer, s *relay) {
	p.relayN++
	if c.relays++; c.relays == 1 || s.deadline < c.relayEnd {
		c.relayEnd = s.deadline
	}
}

// acceptRelay notes that the next element has the branch: the one before is released.
func (c *Core) acceptRelay(now Instant, s *relay) {
	if pred := s.pred; pred != nil {
		s.pred = nil
		c.noteReleased(now, pred, s.predTransfer) // it is up: a loss unfolds
	}
}

// endRelay frees a relay whose transfer is accepted and released.
func (c *Core) endRelay(p *peer, s *relay) {
	c.unref(s.binding)
	c.record(s.origin.tenant, -1)
	*s = relay{}
	p.relayN--
	c.relays--
}

// recordOf finds a transfer's record, unfolding a relay.
func (c *Core) recordOf(now Instant, p *peer, t uint64) *record {
	if s := p.relayed(t); s != nil {
		c.unfoldOne(now, p, s)
	}
	return p.records.get(t, 0)
}

// unfold turns all relays into records, in the order of their slots from the next transfer's on: the oldest first,
// except for one that more transfers than there are slots have passed.
func (c *Core) unfold(now Instant) {
	if c.relays == 0 {
		return
	}
	for _, p := range c.peers {
		if p == nil {
			continue
		}
		for i := uint64(0); i < relaySlots && p.relayN > 0; i++ {
			if s := &p.relays[(p.next+i)%relaySlots]; s.tag != 0 {
				c.unfoldOne(now, p, s)
			}
		}
	}
}

func (c *Core) unfoldOne(now Instant, p *peer, s *relay) {
	m := *s
	*s = relay{}
	p.relayN--
	c.relays--
	inv := c.invs.get(m.seq, m.origin.Incarnation)
	if inv == nil {
		inv = c.newInvocation(InvocationID{m.origin.Incarnation, m.seq}, m.origin, m.deadline)
		c.enter(inv)
	} else {
		c.extend(now, inv, m.deadline)
	}
	var h *hold
	if m.pred != nil {
		h = c.newHold(m.pred, m.predTransfer)
		h.count = 0 // the record counts it
	}
	r := c.keep(p, m.tag-1, recordInject, inv, m.branch, h)
	r.binding, r.accepted = m.binding, m.pred == nil
	if inv.dead { // only runs that were asked to stop are left of it
		c.dropRecord(now, r)
	}
}
