package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// asker is what the pool asks by: a component by its name, and any manager that answers by none.
type asker struct {
	pool.Asker
	c *Client
}

func (c *Client) asker() pool.Asker { return asker{control.NewAsker(c.RPC(), c.Reach), c} }

// Ask implements pool.Asker. A manager's table names components with their addresses: the client connects to those that it did not know.
func (a asker) Ask(ctx context.Context, component, call string, req, reply any) (*fabric.Endpoint, error) {
	if component != pool.Manager {
		a.c.inUse.Store(component, true)
		return a.Asker.Ask(ctx, component, call, req, reply)
	}
	var ep *fabric.Endpoint
	err := a.c.withManager(ctx, slices.Contains(asking, call), func(name string) (err error) {
		ep, err = a.Asker.Ask(ctx, name, call, req, reply)
		return err
	})
	if t, ok := reply.(*pool.Table); ok && err == nil {
		for _, m := range t.Members {
			a.c.links.Add(m)
		}
	}
	return ep, err
}

// asking are the calls that change nothing.
var asking = []string{pool.ManagerCall(pool.CallLookup), pool.ManagerCall(pool.CallStat), pool.ManagerCall(pool.CallList)}

// withManager has fn ask one manager after the other, until one that can be reached and whose store answers does. What only asks is asked again also
// where a manager had no answer in time.
func (c *Client) withManager(ctx context.Context, asks bool, fn func(name string) error) error {
	names, err := c.Managers(ctx)
	if err != nil {
		return err
	}
	c.settle(ctx, func() bool { return slices.ContainsFunc(names, c.up) }, 0)
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { // one that is silent would take its time first
		switch up := c.up(a); {
		case up == c.up(b):
			return 0
		case up:
			return -1
		}
		return 1
	})
	var failed []error
	for _, name := range names {
		err := fn(name)
		if err == nil {
			c.prefer(name)
		}
		if err == nil || !passing(err) && !(asks && errors.Is(err, manager.ErrTime)) || ctx.Err() != nil {
			return err
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// prefer has a manager that answered asked first from now on.
func (c *Client) prefer(name string) {
	c.managers.mu.Lock()
	defer c.managers.mu.Unlock()
	if i := slices.Index(c.managers.names, name); i > 0 {
		c.managers.names = append([]string{name}, slices.Delete(slices.Clone(c.managers.names), i, i+1)...)
	}
}

// managersKnown are the managers that nodes have named.
type managersKnown struct {
	mu    sync.Mutex
	names []string
}

// heardOf takes the managers that a node names.
func (k *managersKnown) heardOf(names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		if !slices.Contains(k.names, name) && len(k.names) < maxManagers {
			k.names = append(slices.Clip(k.names), name)
		}
	}
}

// maxManagers bounds how many managers a client keeps in mind.
const maxManagers = 64

// passing reports whether another manager may have the answer. A request that this one may have carried out is not made again: of such a one a manager
// says ErrTime, and ErrAway only where its store gave no answer before it had begun.
func passing(err error) bool {
	for _, e := range []error{control.ErrNotConnected, control.ErrNoManager, control.ErrStopping, manager.ErrBusy, control.ErrNoNode, cluster.ErrAway} {
		if errors.Is(err, e) {
			return !errors.Is(err, manager.ErrTime)
		}
	}
	return false
}

// Managers are the names of the nodes that manage the cluster, as other nodes know them; the one that answered last is first.
func (c *Client) Managers(ctx context.Context) ([]string, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.managers.mu.Lock()
	names := c.managers.names
	c.managers.mu.Unlock()
	if len(names) > 0 {
		return names, nil
	}
	for _, ep := range c.connected() { // they were asked as they were connected, unless the client keeps to them, or managers came since
		if info, err := c.info(ctx, ep); err == nil && len(info.Managers) > 0 {
			c.managers.heardOf(info.Managers)
			return info.Managers, nil
		}
	}
	return nil, fmt.Errorf("client: %w: no node that answers knows one: start managers (docs/cluster.md); without any, what is about a region takes the node that has it (--on)", control.ErrNoManager)
}

// Managed reports whether the nodes know managers.
func (c *Client) Managed(ctx context.Context) bool {
	names, err := c.Managers(ctx)
	return err == nil && len(names) > 0
}

// Top is what there is: components, regions, managers, as a manager knows them; where there is no manager, as the nodes say it.
func (c *Client) Top(ctx context.Context) (*manager.Top, error) {
	if !c.Managed(ctx) {
		return c.topOfNodes(ctx)
	}
	return askManager[manager.Top](ctx, c, true, manager.CallTop, control.Nothing{})
}

// ManagerMembers lists the members that keep the managers' state, where the managers keep it themselves.
func (c *Client) ManagerMembers(ctx context.Context) ([]cluster.StoreMember, error) {
	r, err := askManager[manager.MembersReply](ctx, c, true, manager.CallMembers, control.Nothing{})
	if err != nil {
		return nil, err
	}
	return r.Members, nil
}

// JoinManagers makes room for a manager that has no data, and returns all members. It takes the capability member.
func (c *Client) JoinManagers(ctx context.Context, name, addr string) ([]cluster.StoreMember, error) {
	r, err := askManager[manager.MembersReply](ctx, c, false, manager.CallJoin, manager.JoinRequest{Name: name, Addr: addr})
	if err != nil {
		return nil, err
	}
	return r.Members, nil
}

// RemoveManager ends a manager's membership, by any other manager. It takes the capability member or admin.
func (c *Client) RemoveManager(ctx context.Context, name string) error {
	_, err := askManager[control.Nothing](ctx, c, false, manager.CallLeave, manager.LeaveRequest{Name: name})
	return err
}

// askManager makes a call to one manager after the other, as withManager does.
func askManager[Reply any](ctx context.Context, c *Client, asks bool, call string, req any) (reply *Reply, err error) {
	err = c.withManager(ctx, asks, func(name string) error {
		ep, err := c.Reach(ctx, name)
		if err != nil {
			return err
		}
		reply, err = control.Do[Reply](ctx, c.RPC(), ep, call, req)
		return err
	})
	return reply, err
}
