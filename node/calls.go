package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// serve registers the control calls.
func (n *Node) serve() error {
	p := n.rpc
	return errors.Join(
		control.ServePool(p, n.pool, n.log, n.stoppingErr),
		control.ServePull(p, n.pool, n.links.Wait),
		control.ServeManager(p, n.managing.calls, n.log),
		control.Serve(p, control.CallInfo, n.info),
		control.Serve(p, control.CallNameConflict, n.heardOfNameConflict),
		control.Serve(p, control.CallStatus, n.status),
		control.Serve(p, control.CallExplain, n.explain),
		control.Serve(p, control.CallBegin, n.begin),
		control.Serve(p, control.CallAlloc, n.alloc),
		control.Serve(p, control.CallFill, n.fill),
		control.Serve(p, control.CallFile, n.file),
		control.Serve(p, control.CallPrepare, n.prepare),
		control.Serve(p, control.CallCommit, n.commit),
		control.Serve(p, control.CallAbort, n.abort),
		control.Serve(p, control.CallOutcome, n.outcomeOf),
		control.Serve(p, control.CallList, n.list),
		control.Serve(p, control.CallStat, n.stat),
		control.Serve(p, control.CallTable, n.table),
		control.Serve(p, control.CallRemove, n.remove),
		control.Serve(p, control.CallGrant, n.grant),
		control.ServeTraffic(p, func() int { return n.rt.Stats().Sizes.Owed() }),
	)
}

func (n *Node) info(ctx context.Context, c *rpc.Call, _ *control.InfoRequest) (*control.Info, error) {
	select {
	case <-n.peersKnown: // a client that asks as soon as the node listens wants to hear of all
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	who := control.PrincipalOf(c.From)
	i := &control.Info{Version: control.Version, Program: n.cfg.Program, Name: n.cfg.Name, Incarnation: cluster.Incarnation(n.el.Incarnation()),
		Addrs: n.Addrs(), Transports: n.schemes.Names(), LentBytes: n.lent().Bytes, LimitBytes: int64(n.live.Load().Memory),
		Datasets: n.data.datasets(), UptimeMs: time.Since(n.started).Milliseconds(), StartedUnixMs: n.started.UnixMilli(), Stopping: n.stopping.Load(), Principal: who.Name, Caps: who.Caps.String(), Forms: n.rt.Forms(), Managers: n.managers(), Peers: []control.Peer{}}
	for _, s := range n.links.States() {
		p := control.Peer{Name: s.Member.Name, Addrs: s.Member.Addrs}
		if s.Endpoint != nil {
			p.Connected, p.Incarnation = true, cluster.Incarnation(s.Endpoint.Incarnation())
		} else if s.Err != nil {
			p.Error = s.Err.Error()
		}
		i.Peers = append(i.Peers, p)
	}
	return i, nil
}

// entry is a catalogue's entry as the asker sees it.
func (n *Node) entry(who cluster.Principal, e *cluster.Entry) control.Entry {
	out := control.Entry{Name: e.Name, Version: e.Version, Owner: e.Owner, Table: e.Table, Rights: n.catalog.Rights(who, e.Name).String()}
	if who.Name == e.Owner || who.Caps.Has(cluster.CapAdmin) {
		out.Grants = map[string]string{}
		for to, r := range e.Grants {
			out.Grants[to] = r.String()
		}
	}
	out.LentBytes, out.Writable = n.data.held(e.Name)
	return out
}

func (n *Node) list(_ context.Context, c *rpc.Call, _ *control.Nothing) (*control.ListReply, error) {
	who := control.PrincipalOf(c.From)
	reply := &control.ListReply{Entries: []control.Entry{}}
	for _, e := range n.catalog.List(who) {
		reply.Entries = append(reply.Entries, n.entry(who, &e))
	}
	return reply, nil
}

func (n *Node) stat(_ context.Context, c *rpc.Call, req *control.NameRequest) (*control.Entry, error) {
	who := control.PrincipalOf(c.From)
	e, err := n.catalog.Get(who, req.Name, 0)
	if err != nil {
		return nil, err
	}
	out := n.entry(who, &e)
	return &out, nil
}

// versionTries is how often a table is looked up anew because another version took its place.
const versionTries = 3

// table answers with the shard table, with keys to this node's windows.
func (n *Node) table(_ context.Context, c *rpc.Call, req *control.TableRequest) (*control.TableReply, error) {
	who := control.PrincipalOf(c.From)
	e, err := n.catalog.Get(who, req.Name, 0)
	if err != nil {
		return nil, err
	}
	asked := fabric.RightsAll
	if req.Rights != "" {
		if asked, err = cluster.ParseRights(req.Rights); err != nil {
			return nil, fmt.Errorf("%w: %w", control.ErrRequest, err)
		}
		if err := n.catalog.Allow(who, req.Name, asked); err != nil {
			return nil, err
		}
	}
	may := func() fabric.Rights { return asked & n.catalog.Rights(who, req.Name) }
	keys, rights, err := n.data.keys(e.Name, e.Version, who, c.From, may)
	for range versionTries {
		if !errors.Is(err, control.ErrNoShard) {
			break
		}
		had := e.Version // a load may have ended meanwhile
		if e, err = n.catalog.Get(who, req.Name, 0); err != nil {
			return nil, err
		}
		if keys, rights, err = n.data.keys(e.Name, e.Version, who, c.From, may); e.Version == had {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	shard := &e.Table.Shards[e.Table.Index(n.cfg.Name)]
	for i := range shard.Windows {
		shard.Windows[i].Key = keys[i]
	}
	b, err := e.Table.Encode()
	if err != nil {
		return nil, err
	}
	return &control.TableReply{Table: b, Rights: rights.String(), Owner: e.Owner}, nil
}

func (n *Node) remove(ctx context.Context, c *rpc.Call, req *control.NameRequest) (*control.Nothing, error) {
	who := control.PrincipalOf(c.From)
	version, err := n.catalog.Delete(ctx, who, req.Name, req.Version)
	if err != nil {
		return nil, err
	}
	n.data.remove(req.Name, version)
	n.log.Info("dataset removed", "name", req.Name, "by", who.Name)
	return &control.Nothing{}, nil
}

func (n *Node) grant(ctx context.Context, c *rpc.Call, req *control.GrantRequest) (*control.Nothing, error) {
	rights, err := cluster.ParseRights(req.Rights)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrRequest, err)
	}
	if err := n.catalog.Grant(ctx, control.PrincipalOf(c.From), req.Name, req.To, rights); err != nil {
		return nil, err
	}
	n.data.regrant(req.Name, func(p cluster.Principal) fabric.Rights { return n.catalog.Rights(p, req.Name) })
	return &control.Nothing{}, nil
}
