package travel

import "time"

// sendCancels tells everybody who may have branches of a future: the peers it
// was sent to, and all members.
func (c *Core) sendCancels(now Instant, f *future) {
	m := cancelMsg{left: encodeTime(f.inv.deadline - now), seq: f.inv.id.Seq}
	var buf [16]byte
	b := m.append(buf[:0])
	for _, p := range c.peers {
		if p != nil && p.Member {
			c.send(p, KindCancel, b, nil)
		}
	}
	for _, p := range f.sentTo {
		c.send(p, KindCancel, b, nil)
	}
}

// recvCancel ends an invocation here, and wherever this element has sent
// branches of it. A tombstone stops those still on their way.
func (c *Core) recvCancel(now Instant, p *peer, body []byte) error {
	var m cancelMsg
	if err := m.decode(body); err != nil {
		return err
	}
	id, who := InvocationID{p.Incarnation, m.seq}, p.Principal
	if m.origin != 0 {
		if !p.Member || m.origin == c.cfg.Self || m.origin == p.Incarnation {
			return nil // only members speak for others, and nobody for us
		}
		id.Origin, who = m.origin, ""
	}
	left := max(decodeTime(m.left), Instant(c.lim.TombstoneTime))
	c.tombs.cancel(id, now+min(left, Instant(c.lim.MaxTime)+Instant(time.Second)), who, c.lim.Tombstones)
	c.unfold(now)
	inv := c.invs.get(id.Seq, id.Origin)
	if inv == nil || inv.dead {
		return nil
	}
	c.forwardCancel(now, inv)
	c.kill(now, inv, CodeOK, "")
	return nil
}

// forwardCancel follows custody: each peer that has something of an
// invocation from here hears of its end once.
func (c *Core) forwardCancel(now Instant, inv *invocation) {
	m := cancelMsg{left: encodeTime(inv.deadline - now), seq: inv.id.Seq, origin: inv.id.Origin}
	var buf [16]byte
	b := m.append(buf[:0])
	c.cancels++
	for n := inv.records.first; n != nil; n = n.next {
		p := n.v.to
		if n.v.kind != recordInject || p.mark == c.cancels || p == inv.originPeer {
			continue
		}
		p.mark = c.cancels
		c.send(p, KindCancel, b, nil)
	}
}

// recvFree lets go of the state of an invocation that has completed. A stateful
// one leaves no relays.
func (c *Core) recvFree(now Instant, p *peer, body []byte) error {
	seq, err := decodeSeq(KindFree, body)
	if err != nil {
		return err
	}
	c.tombs.free(InvocationID{p.Incarnation, seq})
	if inv := c.invs.get(seq, p.Incarnation); inv != nil {
		c.kill(now, inv, CodeOK, "")
	}
	return nil
}
