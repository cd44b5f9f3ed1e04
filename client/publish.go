package client

import (
	"context"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
)

// finish makes the dataset visible: all nodes check, then all publish.
func (l *loading) finish(ctx context.Context, table *cluster.Table) error {
	b, err := table.Encode()
	if err != nil {
		return err
	}
	n := int64(len(l.nodes))
	l.progress(LoadProgress{Phase: PhaseCommit, Done: 0, Total: 2 * n})
	if err := l.each(func(t *target) error {
		_, err := ask[control.Nothing](ctx, l.c, t.ep, control.CallPrepare, control.PrepareRequest{Load: l.id, Table: b})
		return err
	}); err != nil {
		return err
	}
	l.progress(LoadProgress{Phase: PhaseCommit, Done: n, Total: 2 * n})
	// From here on a node that has heard of it publishes; the context may end meanwhile.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	if err := l.each(func(t *target) error {
		_, err := ask[control.Nothing](late, l.c, t.ep, control.CallCommit, control.LoadRequest{Load: l.id})
		return err
	}); err != nil {
		if l.base == nil { // else what was there before would go too
			l.retract(ctx)
		}
		return err
	}
	l.progress(LoadProgress{Phase: PhaseCommit, Done: 2 * n, Total: 2 * n})
	l.dropOld(ctx)
	return nil
}

// afterwards is time for what remains to be done, whatever has become of the load's own.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// shortly is afterwards of what the nodes do by themselves in the end: it does not take long beyond the load's deadline.
func shortly(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := afterwards(ctx)
	until, ok := ctx.Deadline()
	if !ok {
		return late, cancel
	}
	late, end := context.WithDeadline(late, time.Now().Add(max(time.Until(until), 0)+overTime))
	return late, func() { end(); cancel() }
}

// retract removes what was published where others could not.
func (l *loading) retract(ctx context.Context) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	l.each(func(t *target) error {
		_, err := ask[control.Nothing](ctx, l.c, t.ep, control.CallRemove, control.NameRequest{Name: l.spec.Name, Version: l.version})
		return err
	})
}

// dropOld removes the version that was replaced from nodes that hold no shard of the new one.
func (l *loading) dropOld(ctx context.Context) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	done := map[string]bool{}
	for _, t := range l.nodes {
		done[t.name] = true
	}
	for _, t := range l.nodes {
		for _, m := range t.begun.Holders {
			ep := l.c.links.Endpoint(m.Name)
			if done[m.Name] || ep == nil {
				continue
			}
			done[m.Name] = true
			e, err := ask[control.Entry](ctx, l.c, ep, control.CallStat, control.NameRequest{Name: l.spec.Name})
			if err == nil && e.Version < l.version {
				_, err = ask[control.Nothing](ctx, l.c, ep, control.CallRemove, control.NameRequest{Name: l.spec.Name, Version: e.Version})
			}
			if err != nil {
				l.c.log.Warn("the replaced version stays at a node", "node", m.Name, "name", l.spec.Name, "err", err)
			}
		}
	}
}

// undo gives the load up at all nodes; those that are lost do so by themselves.
func (l *loading) undo(ctx context.Context) {
	ctx, cancel := shortly(ctx)
	defer cancel()
	l.each(func(t *target) error {
		if t.begun == nil || t.ep.Err() != nil {
			return nil
		}
		_, err := ask[control.Nothing](ctx, l.c, t.ep, control.CallAbort, control.LoadRequest{Load: l.id})
		return err
	})
}
