package rpc

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/fabric"
)

// Spare says that an endpoint is not needed, because there is another one of the same principal to the same
// incarnation: calls that are made over it go over the other from now on, as long as that lives, and bulks are moved
// over that. It reports whether calls are under way on this one, either way, or bulks moved, or payloads lent. It may
// be called again, to ask. Where both ends have said this of a connection, and then it reports false at both, it can be
// closed, and no call is lost with it.
func (p *Peer) Spare(ep, other *fabric.Endpoint) (busy bool) {
	p.mu.Lock()
	c, to := p.conns[ep], p.conns[other]
	if c != nil && to != nil && c != to && ep.Incarnation() == other.Incarnation() && ep.Principal() == other.Principal() {
		to.instead.Store(nil) // so that no chain of them closes: the last of one has none
		c.mu.Lock()
		c.instead.Store(to)
		c.mu.Unlock()
		if p.owners[ep.Incarnation()] == c {
			p.owners[ep.Incarnation()] = to
		}
	}
	p.mu.Unlock()
	if c == nil {
		return false
	}
	c.lent.fail(errSpared, false) // there may be room on the other one for who waits
	c.wakeSenders()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caller.Live()+int(c.caller.OneWays())+c.callee.Running()+c.lending.Len()+c.waiting+int(c.queued.Load()) > 0 || c.held.Load() > 0 || c.movers.Load() > 0
}

// errSpared says that a call is to be made over another endpoint: this one has become a spare since it was chosen.
var errSpared = errors.New("the endpoint is not needed any more: the call goes over another one")

// successor is the conn that calls go over instead of this one; nil if there is none that lives.
func (c *conn) successor() *conn {
	other := c.instead.Load()
	if other != nil && other.ep.Err() != nil {
		c.instead.CompareAndSwap(other, nil)
		return nil
	}
	return other
}

// unsent fails a call that was not sent, or makes it over the conn that is used instead.
func (c *conn) unsent(ctx context.Context, to target, req []byte, mode sendMode, err error) (Future, error) {
	if err != errSpared {
		return c.p.failed(c.ep, to, err)
	}
	c.p.stats.calls.Add(^uint64(0)) // it counts once
	if other := c.successor(); other != nil {
		c = other
	}
	return c.p.begin(ctx, c.ep, to, req, mode)
}
