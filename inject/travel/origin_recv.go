package travel

// recvDone takes the end of a branch that began here.
func (c *Core) recvDone(now Instant, p *peer, body []byte) error {
	var m doneMsg
	if err := m.decode(body); err != nil {
		return err
	}
	c.expand()
	switch {
	case m.flags&doneNumbered != 0:
		if !c.arrived(now, p, m.transfer) {
			return nil
		}
	case m.flags&doneFinal != 0:
		t, ok := expand24(m.final, p.next)
		if !ok || t >= p.next {
			return malformed(KindDone, "it acknowledges transfer %d, which was never sent", t)
		}
		if s := p.sentAt(t); s != nil && (s.binding == nil || s.origin != c.cfg.Self || s.seq != m.seq) {
			return malformed(KindDone, "it acknowledges transfer %d, which is no branch of invocation %d", t, m.seq)
		}
		c.accept(p, t)
	}
	f := c.futureOf(m.seq)
	if f == nil {
		c.stats.Late++
		if m.flags&doneHolds != 0 {
			c.free(p, m.seq)
		}
		return nil
	}
	m.settled = m.flags&doneFinal != 0
	if f.mayReport(p) {
		c.ended(now, f, p, &m, nil)
	}
	return nil
}

// arrived notes a numbered report; false if it was here before.
func (c *Core) arrived(now Instant, p *peer, wire uint64) bool {
	t, ok := expand24(wire, p.recvLow)
	if !ok || !p.receive(t) {
		c.stats.Duplicates++
		return false
	}
	c.noteAccepted(now, p, t)
	return true
}

func (c *Core) futureOf(seq uint64) *future {
	if inv := c.invs.get(seq, c.cfg.Self); inv != nil {
		return inv.fut
	}
	return nil
}

// mayReport reports whether a peer may speak about a future's branches.
func (f *future) mayReport(p *peer) bool {
	if p.Member {
		return true
	}
	for _, s := range f.sentTo {
		if s == p {
			return true
		}
	}
	return false
}

func (c *Core) free(p *peer, seq uint64) {
	c.out = appendU40(c.out[:0], seq)
	c.send(p, KindFree, c.out, nil)
}

func (c *Core) recvPart(now Instant, p *peer, kind Kind, body []byte) error {
	var m partMsg
	if err := m.decode(kind, body); err != nil {
		return err
	}
	if !c.arrived(now, p, m.transfer) {
		return nil
	}
	f := c.futureOf(m.seq)
	switch {
	case f == nil:
		c.stats.Late++
	case !f.mayReport(p):
	case kind == KindPart:
		c.part(now, f, m.branch, m.index, m.data)
	default:
		c.listed(now, f, m.branch, m.index, m.data)
	}
	return nil
}

func (c *Core) recvLost(now Instant, p *peer, body []byte) error {
	var m lostMsg
	if err := m.decode(body); err != nil {
		return err
	}
	if m.numbered && !c.arrived(now, p, m.transfer) {
		return nil
	}
	f := c.futureOf(m.seq)
	if f == nil || !f.mayReport(p) {
		c.stats.Late++
		return nil
	}
	c.lost(now, f, m.branch, lostError(m.code, &PeerLostError{Branch: m.branch, Element: string(m.name),
		Incarnation: m.incarnation, MayHaveRun: m.mayHaveRun, Text: string(m.text)}))
	return nil
}

// recvHold hears that a peer holds state of an invocation of ours.
func (c *Core) recvHold(p *peer, body []byte) error {
	seq, err := decodeSeq(KindHold, body)
	if err != nil {
		return err
	}
	if f := c.futureOf(seq); f != nil {
		f.holder(p)
	} else {
		c.free(p, seq)
	}
	return nil
}
