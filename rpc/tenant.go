package rpc

import (
	"container/list"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/internal/share"
)

// tenant is what one principal's endpoints have together of what there is for all: however many connections it opens, it has share.Of that.
type tenant struct {
	conns  int // under Peer.mu
	active atomic.Int64

	// Under queue.mu: its calls that lack one of its places, and what all that wait count as.
	line        list.List
	queuedBytes int64

	requests portion // of Peer's: large requests that came here, until their handlers have ended
}

// tenantOf is the tenant of a principal for one more endpoint. Those go that have none and of which no call runs any more: one that comes back while
// its calls of before still run finds them counted. p.mu is held.
func (p *Peer) tenantOf(principal string) *tenant {
	for name, t := range p.tenants {
		if t.conns == 0 && t.active.Load() == 0 && name != principal {
			delete(p.tenants, name)
		}
	}
	t := p.tenants[principal]
	if t == nil {
		t = &tenant{requests: portion{b: &p.requests}}
		p.tenants[principal] = t
	}
	t.conns++
	return t
}

// left has calls try that wait for a place which one of the endpoint's had.
func (c *conn) left() { c.p.unpark(&c.line, &c.tenant.line, &c.p.queue.line) }

// charge takes room for a large request before it is fetched. Calls from within handlers do not wait for it, as that could be for what waits for them.
func (k *Call) charge(ctx context.Context, n int64) error {
	s := &k.c.tenant.requests
	if s.take(n) {
		k.charged = n
		return nil
	}
	if !k.nested && !k.leads.Load() {
		if s.wait(ctx, n, k.c.gone) == nil {
			k.charged = n
			return nil
		}
		if ctx.Err() != nil {
			return timedOut(context.Cause(ctx))
		}
	}
	return &Error{CodeBusy, fmt.Sprintf("no room for a request of %d bytes: those that are served take %d bytes, %d of principal %q; all may take %d (Limits.RequestBytes), and one as much as it leaves to others",
		n, s.b.inUse(), s.inUse(), k.c.ep.Principal().Name, s.b.limit)}
}

// uncharge gives that room back.
func (k *Call) uncharge() {
	if k.charged > 0 {
		k.c.tenant.requests.give(k.charged)
		k.charged = 0
	}
}

// enters takes a place for a call that runs. Else it is nil for who lacks one, and says of what.
func (c *conn) enters() (lacks *list.List) {
	p := c.p
	if !take(&c.tenant.active, 1, int64(share.Of(p.limits.Calls))) {
		return &c.tenant.line
	}
	if !take(&p.active, 1, int64(p.limits.Calls)) {
		c.tenant.active.Add(-1)
		return &p.queue.line
	}
	return nil
}

// forces is enters for one that cannot be refused.
func (c *conn) forces() {
	c.tenant.active.Add(1)
	c.p.active.Add(1)
}

// leaves gives a place back.
func (c *conn) leaves() {
	c.tenant.active.Add(-1)
	c.p.active.Add(-1)
}
