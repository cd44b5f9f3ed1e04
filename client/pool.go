package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/pool"
)

// Pool makes and finds regions of remote memory at the nodes that lend some.
func (c *Client) Pool() *pool.Pool { return pool.New(c.asker()) }

// Regions lists the regions that the client may see at all nodes that answer and at managers, by name and node. It fails if no node answers, or if there
// are managers and none of them does.
func (c *Client) Regions(ctx context.Context) ([]pool.Info, error) {
	list, away, err := c.regions(ctx)
	if err = cmp.Or(err, away); err != nil {
		return nil, err
	}
	return list, nil
}

// regions is Regions where those of nodes are of use by themselves; away says why managers do not list theirs.
func (c *Client) regions(ctx context.Context) (out []pool.Info, away, err error) {
	replies, err := gather[pool.ListReply](ctx, c, pool.CallList, pool.Nothing{})
	if err != nil {
		return nil, nil, err
	}
	out = []pool.Info{}
	if c.Managed(ctx) {
		managed, err := c.Pool().ListRegions(ctx, pool.Manager)
		if err != nil {
			away = fmt.Errorf("client: managers do not list their regions: %w", err)
		}
		out = append(out, managed...)
	}
	for _, r := range replies {
		out = append(out, r.Regions...)
	}
	slices.SortFunc(out, func(a, b pool.Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Region, b.Region))
	})
	return out, away, nil
}

// FindRegion is the node that has a region of this name; pool.Manager, if managers placed it. It fails if no node that answers has one, or if several have.
func (c *Client) FindRegion(ctx context.Context, name string) (node string, err error) {
	if c.cfg.Node != "" {
		c.widen(ctx, func() bool { return true }, grace) // Connect waited for no others, and several nodes may have it
	}
	at, away, err := c.having(ctx, name)
	if err == nil && len(at) == 0 && c.hasty() && c.widen(ctx, nil, 0) {
		at, away, err = c.having(ctx, name)
	}
	if err != nil {
		return "", err
	}
	if len(at) == 0 {
		if away != nil {
			return "", away // they may have it
		}
		return "", fmt.Errorf("client: %w: %q, at no node that answers", pool.ErrNoRegion, name)
	}
	return only(at, "have regions", name)
}

// FindItem is FindRegion for an item of a region: the client may have rights to the item only, and is not told of the region then. So nodes are asked for the
// item itself. Managers, which know no items, tell nothing of such a region.
func (c *Client) FindItem(ctx context.Context, region, item string) (node string, err error) {
	node, err = c.FindRegion(ctx, region)
	if !errors.Is(err, pool.ErrNoRegion) {
		return node, err
	}
	var at []string
	for _, n := range c.Nodes() {
		if n.Endpoint == nil {
			continue
		}
		if _, e := c.Pool().LookupItem(ctx, n.Member.Name, region, item); e == nil {
			at = append(at, n.Member.Name)
		}
	}
	if len(at) == 0 {
		return "", err
	}
	return only(at, "have items", region+":"+item)
}

// having are the nodes that answer and have a region of this name, as regions does.
func (c *Client) having(ctx context.Context, name string) (at []string, away, err error) {
	list, away, err := c.regions(ctx)
	for _, r := range list {
		if r.Name == name {
			at = append(at, r.Component)
		}
	}
	return at, away, err
}

// only is the one node that has something of a name; an error if several have.
func only(at []string, have, name string) (node string, err error) {
	if len(at) > 1 {
		return "", fmt.Errorf("client: %w: nodes %s %s of the name %q: say which node (--on NODE; in cp and --share NAME@NODE)", control.ErrRequest, strings.Join(at, ", "), have, name)
	}
	return at[0], nil
}
