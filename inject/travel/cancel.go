package travel

import "time"

// sendCancels tells every peer that may have branches of a future: the peers it
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
		if !p.Member {
			c.send(p, KindCancel, b, nil)
		}
	}
}

// recvCancel ends an invocation here. A tombstone stops branches that are still on their way.
func (c *Core) recvCancel(now Instant, p *peer, body []byte) error {
	var m cancelMsg
	if err := m.decode(body); err != nil {
		return err
	}
	id := InvocationID{p.Incarnation, m.seq}
	left := max(decodeTime(m.left), Instant(c.lim.TombstoneTime))
	c.tombs.cancel(id, now+min(left, Instant(c.lim.MaxTime)+Instant(time.Second)), p.Principal, c.lim.Tombstones)
	if inv := c.invs.get(id.Seq, id.Origin); inv != nil {
		c.kill(now, inv, CodeOK, "")
	}
	return nil
}

// recvFree lets go of the state of an invocation that has completed.
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
