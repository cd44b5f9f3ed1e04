package control

import (
	"context"
	"errors"
	"log/slog"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
)

// ServePool registers the calls of a component. stopping says why no more regions are made; nil: they are.
func ServePool(p *rpc.Peer, c *component.Component, log *slog.Logger, stopping func() error) error {
	return errors.Join(
		Serve(p, pool.CallCreate, func(_ context.Context, call *rpc.Call, req *pool.CreateRequest) (*pool.Table, error) {
			if err := stopping(); err != nil {
				return nil, err
			}
			who := PrincipalOf(call.From)
			t, err := c.Create(who, call.From, req)
			if err == nil {
				log.Info("region made", "region", t.Region, "name", t.Name, "size", component.SizeText(int64(t.Size)), "by", who.Name)
			}
			return t, err
		}),
		Serve(p, pool.CallLookup, func(_ context.Context, call *rpc.Call, req *pool.LookupRequest) (*pool.Table, error) {
			return c.Lookup(PrincipalOf(call.From), call.From, req)
		}),
		Serve(p, pool.CallResize, func(_ context.Context, call *rpc.Call, req *pool.ResizeRequest) (*pool.Table, error) {
			if err := stopping(); err != nil {
				return nil, err
			}
			who := PrincipalOf(call.From)
			t, err := c.Resize(who, req)
			if err == nil {
				log.Info("region resized", "region", t.Region, "name", t.Name, "size", component.SizeText(int64(t.Size)), "by", who.Name)
			}
			return t, err
		}),
		Serve(p, pool.CallDestroy, func(_ context.Context, call *rpc.Call, req *pool.NameRequest) (*pool.Nothing, error) {
			who := PrincipalOf(call.From)
			err := c.Destroy(who, *req)
			if err == nil {
				log.Info("region destroyed", "region", req.String(), "by", who.Name)
			}
			return &pool.Nothing{}, err
		}),
		Serve(p, pool.CallList, func(_ context.Context, call *rpc.Call, _ *pool.Nothing) (*pool.ListReply, error) {
			return c.List(PrincipalOf(call.From)), nil
		}),
		Serve(p, pool.CallStat, func(_ context.Context, call *rpc.Call, req *pool.NameRequest) (*pool.Info, error) {
			return c.Stat(PrincipalOf(call.From), *req)
		}),
		Serve(p, pool.CallGrant, func(_ context.Context, call *rpc.Call, req *pool.GrantRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.Grant(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallDiscard, func(_ context.Context, call *rpc.Call, req *pool.DiscardRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.Discard(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallCopy, func(ctx context.Context, call *rpc.Call, req *pool.CopyRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.Copy(ctx, PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallRead, func(_ context.Context, call *rpc.Call, req *pool.ReadRequest) (*pool.ReadReply, error) {
			return c.Read(PrincipalOf(call.From), req)
		}),
		serveBytes(p, pool.CallGather, c.Gather),
		serveBytes(p, pool.CallScatter, c.Scatter),
		servePlacing(p, c, stopping),
		serveItems(p, c, stopping),
	)
}

// serveItems registers the calls about items.
func serveItems(p *rpc.Peer, c *component.Component, stopping func() error) error {
	return errors.Join(
		Serve(p, pool.CallItemCreate, func(_ context.Context, call *rpc.Call, req *pool.ItemCreateRequest) (*pool.ItemTable, error) {
			if err := stopping(); err != nil {
				return nil, err
			}
			return c.CreateItem(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallItemLookup, func(_ context.Context, call *rpc.Call, req *pool.ItemRequest) (*pool.ItemTable, error) {
			return c.LookupItem(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallItemResize, func(_ context.Context, call *rpc.Call, req *pool.ItemResizeRequest) (*pool.ItemTable, error) {
			return c.ResizeItem(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallItemDestroy, func(_ context.Context, call *rpc.Call, req *pool.ItemRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.DestroyItem(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallItemGrant, func(_ context.Context, call *rpc.Call, req *pool.ItemGrantRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.GrantItem(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallItemList, func(_ context.Context, call *rpc.Call, req *pool.NameRequest) (*pool.ItemList, error) {
			return c.ListItems(PrincipalOf(call.From), *req)
		}),
	)
}

// ServePull registers the call by which a component fetches bytes from another one. reach finds the connection to that.
func ServePull(p *rpc.Peer, c *component.Component, reach func(ctx context.Context, component string) (*fabric.Endpoint, error)) error {
	return Serve(p, pool.CallPull, func(ctx context.Context, call *rpc.Call, req *pool.PullRequest) (*pool.Nothing, error) {
		return &pool.Nothing{}, c.Pull(ctx, PrincipalOf(call.From), req, reach)
	})
}

// servePlacing registers what managers ask of a component.
func servePlacing(p *rpc.Peer, c *component.Component, stopping func() error) error {
	return errors.Join(
		Serve(p, pool.CallReserve, func(_ context.Context, call *rpc.Call, req *pool.ReserveRequest) (*pool.Nothing, error) {
			if err := stopping(); err != nil {
				return nil, err
			}
			return &pool.Nothing{}, c.Reserve(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallRelease, func(_ context.Context, call *rpc.Call, req *pool.ReleaseRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.Release(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallEpoch, func(_ context.Context, call *rpc.Call, req *pool.EpochRequest) (*pool.Nothing, error) {
			return &pool.Nothing{}, c.SetEpoch(PrincipalOf(call.From), req)
		}),
		Serve(p, pool.CallHeld, func(_ context.Context, call *rpc.Call, _ *pool.Nothing) (*pool.HeldReply, error) {
			return c.Held(PrincipalOf(call.From))
		}),
	)
}

// serveBytes registers a call whose bodies are no JSON, and which takes no longer than a Get: it runs inline.
func serveBytes(p *rpc.Peer, call string, fn func(who cluster.Principal, req []byte) ([]byte, error)) error {
	return p.Register(call, func(_ context.Context, c *rpc.Call) ([]byte, error) {
		answer, err := fn(PrincipalOf(c.From), c.Req)
		if err != nil {
			return nil, Coded(err)
		}
		return answer, nil
	}, rpc.Options{Inline: true})
}

// NewAsker makes what package pool asks by. reach finds the connection to a component.
func NewAsker(p *rpc.Peer, reach func(ctx context.Context, component string) (*fabric.Endpoint, error)) pool.Asker {
	return &asker{p, reach}
}

type asker struct {
	rpc   *rpc.Peer
	reach func(ctx context.Context, component string) (*fabric.Endpoint, error)
}

func (a *asker) Ask(ctx context.Context, component, call string, req, reply any) (*fabric.Endpoint, error) {
	ep, err := a.reach(ctx, component)
	if err != nil {
		return nil, err
	}
	return ep, doInto(ctx, a.rpc, ep, call, req, reply, nil)
}

func (a *asker) Call(ctx context.Context, ep *fabric.Endpoint, call string, req []byte) ([]byte, error) {
	answer, err := a.rpc.Call(ctx, ep, call, req)
	if err != nil {
		return nil, Err(ep.Name(), err)
	}
	return answer, nil
}
