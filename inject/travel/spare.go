package travel

// Spare has another endpoint to the same incarnation, if there is one, be the one by which that is found from now
// on, and reports whether anything that is here would be lost with this one. What is under way stays where it is.
func (c *Core) Spare(now Instant, n Peer) (busy bool) {
	c.catchUp()
	p := c.peer(n)
	if p == nil {
		return false
	}
	c.succeed(p)
	c.unfold(now)
	return p.records.n+p.late.n+p.waits()+p.acks.count+len(p.outbox) > 0 || c.dependsOn(p)
}

// dependsOn reports whether an invocation's origin is to hear through a peer how its branches end, or a
// branch from there is not released.
func (c *Core) dependsOn(p *peer) (found bool) {
	c.invs.all(func(inv *invocation) {
		if inv.originPeer == p {
			found = true
		}
		for n := inv.runs.first; n != nil && !found; n = n.next {
			found = n.v.hold != nil && n.v.hold.pred == p
		}
		for n := inv.records.first; n != nil && !found; n = n.next {
			found = n.v.hold != nil && n.v.hold.pred == p
		}
	})
	return found
}
