package client

import (
	"context"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// Pool makes and finds regions of remote memory at the nodes that lend some.
func (c *Client) Pool() *pool.Pool { return pool.New(c) }

// Ask makes a small call to one node and decodes the answer into reply: it is what package pool asks by.
func (c *Client) Ask(ctx context.Context, node, call string, req, reply any) (*fabric.Endpoint, error) {
	ep, err := c.Reach(ctx, node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return ep, control.DoInto(ctx, c.rpc, ep, call, req, reply)
}
