package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/host"
)

// Devices lists the devices that the client may borrow at all nodes that answer, by name and node. It fails if none does.
func (c *Client) Devices(ctx context.Context) ([]device.Info, error) {
	replies, err := gather[device.ListReply](ctx, c, device.CallList, device.Nothing{})
	if err != nil {
		return nil, err
	}
	out := []device.Info{}
	for _, r := range replies {
		out = append(out, r.Devices...)
	}
	slices.SortFunc(out, func(a, b device.Info) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node)) })
	return out, nil
}

// FindDevice is the node that lends a device of this name. It fails if no node that answers does, or if several do.
func (c *Client) FindDevice(ctx context.Context, name string) (node string, err error) {
	list, err := c.Devices(ctx)
	if err != nil {
		return "", err
	}
	var at []string
	for _, d := range list {
		if d.Name == name {
			at = append(at, d.Node)
		}
	}
	if len(at) == 0 {
		return "", fmt.Errorf("client: %w: %q at no node that answers, or you have no grant for it: an admin gives one (wherry dev grant %s TOKEN rw)", device.ErrNoDrive, name, name)
	}
	return only(at, "lend devices", name)
}

// Device describes a device of a node.
func (c *Client) Device(ctx context.Context, node, name string) (*device.Info, error) {
	return askNode[device.Info](ctx, c, node, device.CallStat, device.NameRequest{Name: name})
}

// GrantDevice sets what a principal may do with a device: "r", "rw" or "none". It takes the capability admin.
func (c *Client) GrantDevice(ctx context.Context, node, name, to, rights string) error {
	_, err := askNode[device.Nothing](ctx, c, node, device.CallGrant, device.GrantRequest{Name: name, To: to, Rights: rights})
	return err
}

// ReturnLease ends a lease, and waits until its blocks are free.
func (c *Client) ReturnLease(ctx context.Context, node string, lease uint64) error {
	_, err := askNode[device.Nothing](ctx, c, node, device.CallReturn, device.LeaseRequest{Lease: lease})
	return err
}

// BorrowLease is BorrowDrive without a queue, for a borrower that has memory for its queues.
func (c *Client) BorrowLease(ctx context.Context, node, name string, cfg host.Config) (*host.Lease, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	cfg.Element, cfg.Asker, cfg.Node, cfg.Drive = c.el, control.NewAsker(c.rpc, c.Reach), node, name
	return host.Borrow(ctx, cfg)
}

// BorrowDrive borrows a drive of a node; cfg says what else, and its Element, Asker, Node and Drive are set here. The capability device and a
// grant are needed.
func (c *Client) BorrowDrive(ctx context.Context, node, name string, cfg host.Config) (*host.Drive, error) {
	l, err := c.BorrowLease(ctx, node, name, cfg)
	if err != nil {
		return nil, err
	}
	return l.Open(ctx)
}

// askNode asks one node.
func askNode[Reply any](ctx context.Context, c *Client, node, call string, req any) (*Reply, error) {
	ep, err := c.Reach(ctx, node)
	if err != nil {
		return nil, err
	}
	return ask[Reply](ctx, c, ep, call, req)
}
