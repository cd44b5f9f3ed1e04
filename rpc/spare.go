package rpc

import "github.com/wherry-fabric/wherry/fabric"

// Spare says that an endpoint is not needed, because there is another one of the same principal to the same
// incarnation: bulks are moved over that from now on, and calls should be made over it. It reports whether calls are
// under way on this one, either way, or payloads lent. It may be called again, to ask.
func (p *Peer) Spare(ep *fabric.Endpoint) (busy bool) {
	p.mu.Lock()
	c := p.conns[ep]
	if c != nil && p.owners[ep.Incarnation()] == c {
		p.succeed(c)
	}
	p.mu.Unlock()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caller.Live()+c.callee.Running()+c.lending.Len()+c.waiting+int(c.queued.Load()) > 0 || c.held.Load() > 0
}

// succeed has bulks of a conn's peer be moved over another conn to it, if there is one; mu is held.
func (p *Peer) succeed(c *conn) {
	for _, other := range p.order {
		if other != c && other.ep.Incarnation() == c.ep.Incarnation() && other.ep.Principal() == c.ep.Principal() {
			p.owners[c.ep.Incarnation()] = other
			return
		}
	}
}
