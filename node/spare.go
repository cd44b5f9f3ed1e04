package node

import (
	"context"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// spare has an endpoint that is not needed used no more, here and at its other end, and reports whether anything
// still is under way on it. A peer that does not answer may be busy.
func (n *Node) spare(ctx context.Context, ep, other *fabric.Endpoint) (busy bool) {
	if n.rest(ep) {
		return true
	}
	there, err := control.Do[control.SpareReply](ctx, n.rpc, other, control.CallSpare, control.Nothing{})
	if err != nil {
		n.log.Debug("a peer does not say whether it needs a second connection", "peer", other.String(), "err", err)
	}
	return err != nil || there.Busy
}

// rest has nothing more begun over an endpoint here, as long as there is another one.
func (n *Node) rest(ep *fabric.Endpoint) (busy bool) {
	functions, calls := n.rt.Spare(ep), n.rpc.Spare(ep)
	return functions || calls || ep.Busy()
}

// spareOf answers a peer that has two connections here, and will close the one that it dialled.
func (n *Node) spareOf(_ context.Context, c *rpc.Call, _ *control.Nothing) (*control.SpareReply, error) {
	if who := control.PrincipalOf(c.From); !who.Caps.Has(cluster.CapMember) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability member", Do: "only nodes say this"}
	}
	reply := &control.SpareReply{}
	used := n.links.Endpoint(c.From.Name())
	for _, ep := range n.el.Endpoints() {
		if ep != c.From && ep.Incarnation() == c.From.Incarnation() && ep.Principal() == c.From.Principal() && !ep.Dialled() && (ep == used || n.rest(ep)) {
			reply.Busy = true
		}
	}
	return reply, nil
}
