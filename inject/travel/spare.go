package travel

import "slices"

// Spare has another endpoint to the same incarnation, if there is one, be the one by which that is found from now
// on, and reports whether anything that is here would be lost with this one. What is under way stays where it is.
func (c *Core) Spare(now Instant, n Peer) (busy bool) {
	c.fasten()
	p := c.peer(n)
	if p == nil {
		return false
	}
	c.succeed(p)
	p.rests = c.byInc.get(p.Incarnation, 0) != p
	return p.next > p.low || p.late.n+p.waits()+p.acks.count+len(p.outbox) > 0 || c.dependsOn(p)
}

// dependsOn reports whether an invocation's origin is to hear through a peer how its branches end, or a
// future sent a root there.
func (c *Core) dependsOn(p *peer) (found bool) {
	c.invs.all(func(inv *invocation) {
		found = found || inv.originPeer == p || inv.fut != nil && slices.Contains(inv.fut.sentTo, p)
	})
	return found
}
