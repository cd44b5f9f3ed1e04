package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/pool/manager"
	"github.com/wherry-fabric/wherry/rpc"
)

// Managing serves a manager's calls. The zero value manages nothing, and says so.
type Managing struct {
	mu    sync.Mutex
	m     *manager.Manager
	store cluster.Membership          // of m's store; nil: it is an etcd cluster that is run apart from wherry
	ids   map[*fabric.Endpoint]uint64 // connections that leased regions were made over
	last  uint64
	names func() []string // of managers
}

// NewManaging makes one. names are those that a node which manages nothing refers its askers to.
func NewManaging(names func() []string) *Managing {
	return &Managing{ids: map[*fabric.Endpoint]uint64{}, names: names}
}

// Set says which manager there is, and which members keep its store; nil: they are not the managers' affair.
func (g *Managing) Set(m *manager.Manager, store cluster.Membership) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.m, g.store = m, store
}

// members lists the store's members, for a principal that has any of some capabilities.
func (g *Managing) members(who cluster.Principal, do string, caps ...cluster.Caps) (cluster.Membership, error) {
	if !slices.ContainsFunc(caps, who.Caps.Has) {
		var need []string
		for _, c := range caps {
			need = append(need, c.String())
		}
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability " + strings.Join(need, " or "), Do: do}
	}
	if _, err := g.Manager(); err != nil {
		return nil, err
	}
	if g.store == nil {
		return nil, fmt.Errorf("%w: the state is kept by an etcd cluster (--etcd) with members of its own: etcdctl member shows and changes them", cluster.ErrNoMember)
	}
	return g.store, nil
}

// Manager is the manager here, or an error that names another one.
func (g *Managing) Manager() (*manager.Manager, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m != nil {
		return g.m, nil
	}
	if names := g.names(); len(names) > 0 {
		return nil, fmt.Errorf("%w: this node is none; it knows %v", ErrNoManager, names)
	}
	return nil, fmt.Errorf("%w: this node is none, and knows none: say at which node the region shall be (--on), or start managers (docs/cluster.md)", ErrNoManager)
}

// Lost says that a connection has ended.
func (g *Managing) Lost(ep *fabric.Endpoint) {
	g.mu.Lock()
	id, m := g.ids[ep], g.m
	delete(g.ids, ep)
	g.mu.Unlock()
	if id != 0 && m != nil {
		m.Gone(id)
	}
}

// idOf numbers a connection, which must be alive.
func (g *Managing) idOf(ep *fabric.Endpoint) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ids[ep] == 0 {
		g.last++
		g.ids[ep] = g.last
	}
	return g.ids[ep]
}

// managed serves a call by a manager.
func managed[Req, Reply any](p *rpc.Peer, g *Managing, call string, body func(req *Req) any) error {
	return Serve(p, call, func(ctx context.Context, c *rpc.Call, req *Req) (*Reply, error) {
		m, err := g.Manager()
		if err != nil {
			return nil, err
		}
		from := uint64(0)
		b := body(req)
		if create, ok := b.(pool.CreateRequest); ok && create.Leased {
			from = g.idOf(c.From)
			defer func() {
				if c.From.Err() != nil { // it ended before it had a number
					g.Lost(c.From)
				}
			}()
		}
		answer, err := m.Do(ctx, PrincipalOf(c.From), from, b)
		if err != nil {
			return nil, err
		}
		reply, ok := answer.(*Reply)
		if !ok {
			return nil, fmt.Errorf("control: %s answers %T", call, answer)
		}
		return reply, nil
	})
}

// ServeManager registers the calls of a manager.
func ServeManager(p *rpc.Peer, g *Managing, log *slog.Logger) error {
	return errors.Join(
		managed[pool.CreateRequest, pool.Table](p, g, pool.ManagerCall(pool.CallCreate), func(req *pool.CreateRequest) any {
			log.Debug("region asked for", "name", req.Name, "size", component.SizeText(int64(req.Size)))
			return *req
		}),
		managed[pool.LookupRequest, pool.Table](p, g, pool.ManagerCall(pool.CallLookup), func(req *pool.LookupRequest) any { return *req }),
		managed[pool.ResizeRequest, pool.Table](p, g, pool.ManagerCall(pool.CallResize), func(req *pool.ResizeRequest) any { return *req }),
		managed[pool.NameRequest, pool.Nothing](p, g, pool.ManagerCall(pool.CallDestroy), func(req *pool.NameRequest) any { return manager.DestroyRequest{NameRequest: *req} }),
		managed[pool.NameRequest, pool.Info](p, g, pool.ManagerCall(pool.CallStat), func(req *pool.NameRequest) any { return manager.StatRequest{NameRequest: *req} }),
		managed[pool.Nothing, pool.ListReply](p, g, pool.ManagerCall(pool.CallList), func(*pool.Nothing) any { return manager.ListRequest{} }),
		managed[pool.GrantRequest, pool.Nothing](p, g, pool.ManagerCall(pool.CallGrant), func(req *pool.GrantRequest) any { return *req }),
		managed[Nothing, manager.Top](p, g, manager.CallTop, func(*Nothing) any { return manager.TopRequest{} }),
		Serve(p, manager.CallRegister, func(ctx context.Context, c *rpc.Call, req *manager.RegisterRequest) (*manager.RegisterReply, error) {
			who := PrincipalOf(c.From)
			if !who.Caps.Has(cluster.CapMember) || req.Name != c.From.Name() || req.Incarnation != cluster.Incarnation(c.From.Incarnation()) {
				return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability member, and a connection of its own", Do: "only nodes register, each itself"}
			}
			m, err := g.Manager()
			if err != nil {
				return nil, err
			}
			return m.Register(ctx, req)
		}),
		serveMembers(p, g),
	)
}

// serveMembers registers the calls about the members that keep the managers' store.
func serveMembers(p *rpc.Peer, g *Managing) error {
	return errors.Join(
		Serve(p, manager.CallMembers, func(ctx context.Context, c *rpc.Call, _ *Nothing) (*manager.MembersReply, error) {
			m, err := g.members(PrincipalOf(c.From), "use a token or certificate that has it", cluster.CapRead, cluster.CapMember)
			if err != nil {
				return nil, err
			}
			list, err := m.Members(ctx)
			return &manager.MembersReply{Members: list}, err
		}),
		Serve(p, manager.CallJoin, func(ctx context.Context, c *rpc.Call, req *manager.JoinRequest) (*manager.MembersReply, error) {
			m, err := g.members(PrincipalOf(c.From), "only nodes join", cluster.CapMember)
			if err != nil {
				return nil, err
			}
			list, err := m.Join(ctx, req.Name, req.Addr)
			return &manager.MembersReply{Members: list}, err
		}),
		Serve(p, manager.CallLeave, func(ctx context.Context, c *rpc.Call, req *manager.LeaveRequest) (*Nothing, error) {
			m, err := g.members(PrincipalOf(c.From), "use a token or certificate that has one of them", cluster.CapAdmin, cluster.CapMember)
			if err != nil {
				return nil, err
			}
			return &Nothing{}, m.Leave(ctx, req.Name)
		}),
	)
}
