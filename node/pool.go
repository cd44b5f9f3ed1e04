package node

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
)

// servePool registers the calls of the pool's memory side.
func (n *Node) servePool() error {
	p, c := n.rpc, n.pool
	return errors.Join(
		control.Serve(p, pool.CallCreate, func(_ context.Context, call *rpc.Call, req *pool.CreateRequest) (*pool.Table, error) {
			if n.stopping.Load() {
				return nil, control.ErrStopping
			}
			who := control.PrincipalOf(call.From)
			t, err := c.Create(who, call.From, req)
			if err == nil {
				n.log.Info("region made", "region", t.Region, "name", t.Name, "size", Bytes(t.Size), "by", who.Name)
			}
			return t, err
		}),
		control.Serve(p, pool.CallLookup, func(_ context.Context, call *rpc.Call, req *pool.LookupRequest) (*pool.Table, error) {
			return c.Lookup(control.PrincipalOf(call.From), req)
		}),
		control.Serve(p, pool.CallDestroy, func(_ context.Context, call *rpc.Call, req *pool.NameRequest) (*pool.Nothing, error) {
			who := control.PrincipalOf(call.From)
			err := c.Destroy(who, *req)
			if err == nil {
				n.log.Info("region destroyed", "region", req.String(), "by", who.Name)
			}
			return &pool.Nothing{}, err
		}),
		control.Serve(p, pool.CallList, func(_ context.Context, call *rpc.Call, _ *pool.Nothing) (*pool.ListReply, error) {
			return c.List(control.PrincipalOf(call.From)), nil
		}),
		control.Serve(p, pool.CallStat, func(_ context.Context, call *rpc.Call, req *pool.NameRequest) (*pool.Info, error) {
			return c.Stat(control.PrincipalOf(call.From), *req)
		}),
		control.Serve(p, pool.CallGrant, func(_ context.Context, call *rpc.Call, req *pool.GrantRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.Grant(control.PrincipalOf(call.From), req)
		}),
		control.Serve(p, pool.CallDiscard, func(_ context.Context, call *rpc.Call, req *pool.DiscardRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.Discard(control.PrincipalOf(call.From), req)
		}),
	)
}

// Pool makes and finds regions at this node's peers.
func (n *Node) Pool() *pool.Pool { return pool.New(n) }

// Ask makes a call to a peer and decodes the answer into reply: it is what package pool asks by.
func (n *Node) Ask(ctx context.Context, peer, call string, req, reply any) (*fabric.Endpoint, error) {
	ep, err := n.links.Wait(ctx, peer)
	if err != nil {
		return nil, err
	}
	return ep, control.DoInto(ctx, n.rpc, ep, call, req, reply)
}

// lent is all that is lent.
func (n *Node) lent() component.Lent {
	all, _, _ := n.account.Used()
	return all
}
