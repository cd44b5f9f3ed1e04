package node

import (
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

// Pool makes and finds regions at this node's peers.
func (n *Node) Pool() *pool.Pool { return pool.New(control.NewAsker(n.rpc, n.links.Wait)) }

// stoppingErr says why nothing new is begun; nil: it is.
func (n *Node) stoppingErr() error {
	if n.stopping.Load() {
		return control.ErrStopping
	}
	return nil
}

// lent is all that is lent.
func (n *Node) lent() component.Lent {
	all, _, _ := n.account.Used()
	return all
}
