package travel

// recvDone takes the end of a branch that began here.
func (c *Core) recvDone(now Instant, p *peer, body []byte) error {
	var m doneMsg
	if err := m.decode(body); err != nil {
		return err
	}
	if m.flags&^doneResult == doneFinal && c.answered(now, p, &m) {
		return nil
	}
	c.catchUp()
	switch {
	case m.flags&doneNumbered != 0:
		if !c.arrived(now, p, m.transfer) {
			return nil
		}
	case m.flags&doneFinal != 0:
		t, ok := expand24(m.final, p.next)
		if !ok || t >= p.next {
			return malformed(KindDone, "it releases transfer %d, which was never sent", t)
		}
		p.giveUp(t)
		if r := c.recordOf(now, p, t); r != nil {
			if r.kind != recordInject || r.inv.originPeer != nil || r.inv.id.Seq != m.seq {
				return malformed(KindDone, "it releases transfer %d, which is no branch of invocation %d", t, m.seq)
			}
			if r.declares {
				p.told[r.binding.slot] |= toldAccepted
			}
			r.accepted = true
			c.dropRecord(now, r)
		}
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

// spent is a future that has completed and the record of its only transfer.
type spent struct {
	f  *future
	r  *record
	at Instant
}

// maxSpent bounds the futures that wait to be put away.
const maxSpent = 16

// answered takes the DONE that most futures end with: the only branch's, from
// where it was sent. It completes the future and puts the rest off: who waits for the answer
// should not wait for that too. It returns false, having done nothing, if the DONE is any other.
func (c *Core) answered(now Instant, p *peer, m *doneMsg) bool {
	t, ok := expand24(m.final, p.next)
	if !ok || t >= p.next {
		return false
	}
	r := p.records.get(t, 0)
	if r == nil || r.kind != recordInject || r.branch != 0 {
		return false
	}
	inv := r.inv
	f := inv.fut
	if f == nil || inv.id.Seq != m.seq || !f.only() {
		return false
	}
	if r.declares {
		p.told[r.binding.slot] |= toldAccepted
	}
	inv.fut = nil
	c.stats.Succeeded++
	c.outcome = Outcome{Branches: 1, Reply: m.result, HasReply: m.flags&doneResult != 0}
	c.fx.Complete(FutureID(m.seq), &c.outcome)
	if c.spent = append(c.spent, spent{f, r, now}); len(c.spent) >= maxSpent {
		c.putAway()
	}
	return true
}

// only reports whether nothing but the first transfer is known of a future.
func (f *future) only() bool {
	return f.pending == 1 && f.early == 0 && f.others.n == 0 && len(f.holders) == 0 &&
		f.root.gotParts|f.root.gotLists == 0 && f.inv.records.n == 1 && f.inv.runs.n == 0
}

// putAway frees what completed futures left.
func (c *Core) putAway() {
	for i, s := range c.spent {
		c.spent[i] = spent{}
		s.r.to.giveUp(s.r.transfer)
		s.r.accepted = true
		f := s.f
		c.unref(f.binding)
		f.binding.used = s.at
		f.binding, f.inv = nil, nil
		clear(f.sentTo)
		c.futures--
		c.futPool.put(f)
		c.dropRecord(s.at, s.r) // and with it the invocation's
	}
	c.spent = c.spent[:0]
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
