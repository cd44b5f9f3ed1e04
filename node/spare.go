package node

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// spare has an endpoint that is not needed used no more, here and at its other end, and reports whether anything
// still is under way on it. Once that is nothing, no call is begun on it, and nothing is lost with it. A peer that does not answer may
// be busy; one that does not know the question, or does not let this node ask it, is an error.
func (n *Node) spare(ctx context.Context, ep, other *fabric.Endpoint) (busy bool, err error) {
	n.rest(ep, other) // first of all: the peer can only say that nothing of its own is under way
	there, err := control.Do[control.SpareReply](ctx, n.rpc, other, control.CallSpare, control.Nothing{})
	switch {
	case errors.Is(err, rpc.ErrNoSuchCall) || errors.Is(err, cluster.ErrForbidden):
		return false, err
	case err != nil:
		n.log.Debug("a peer has not said whether it needs a second connection; it is asked again", "peer", other.String(), "err", err)
		return true, nil
	}
	return there.Busy || n.rest(ep, other), nil // what the peer has begun before it answered ends first
}

// rest has nothing more begun over an endpoint here, as long as there is the other one.
func (n *Node) rest(ep, other *fabric.Endpoint) (busy bool) {
	functions, calls := n.rt.Spare(ep), n.rpc.Spare(ep, other)
	return functions || calls || ep.Busy()
}

// spareOf answers a peer that has two connections here, and will close the one that it dialled. One of another principal is
// not used instead of that, so nothing is said of it.
func (n *Node) spareOf(_ context.Context, c *rpc.Call, _ *control.Nothing) (*control.SpareReply, error) {
	who := control.PrincipalOf(c.From)
	if !who.Caps.Has(cluster.CapMember) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability member", Do: "only nodes say this"}
	}
	reply := &control.SpareReply{}
	used := n.links.Endpoint(c.From.Name())
	for _, ep := range n.el.Endpoints() {
		if ep == c.From || ep.Incarnation() != c.From.Incarnation() || ep.Dialled() {
			continue
		}
		if ep.Principal() != c.From.Principal() {
			return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "one principal on both connections", Do: "the other connection is another principal's, or another certificate's of this one"}
		}
		if ep == used || n.rest(ep, c.From) {
			reply.Busy = true
		}
	}
	return reply, nil
}
