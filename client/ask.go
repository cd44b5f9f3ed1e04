package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

// ask makes a small call that one node answers soon. If the connection is lost
// meanwhile it fails at once, with fabric.ErrPeerLost.
func ask[Reply any](ctx context.Context, c *Client, ep *fabric.Endpoint, call string, req any) (*Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return control.Do[Reply](ctx, c.rpc, ep, call, req)
}

// answer is one node's answer.
type answer[T any] struct {
	ep    *fabric.Endpoint
	reply *T
	err   error
}

// askAll asks all connected nodes at once. Once one of them has answered, the
// others get patience and no more, but for those whose own answers it shows to be needed; nil: none.
func askAll[T any](ctx context.Context, c *Client, call string, req any, needed func(*T) []string) ([]answer[T], error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	eps := c.connected()
	if len(eps) == 0 {
		return nil, c.nobody()
	}
	out := make([]answer[T], len(eps))
	ended := make(chan int, len(eps))
	giveUp := make(map[int]context.CancelCauseFunc, len(eps)) // of those that have not answered
	for i, ep := range eps {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		giveUp[i] = cancel
		go func() {
			reply, err := ask[T](ctx, c, ep, call, req)
			if err != nil && errors.Is(context.Cause(ctx), ErrNoAnswer) {
				err = fmt.Errorf("node %s: %w", ep.Name(), ErrNoAnswer)
			}
			out[i] = answer[T]{ep, reply, err}
			ended <- i
		}()
	}
	var late <-chan time.Time
	off := func() bool { return true }
	defer func() { off() }()
	waitFor := map[string]bool{}
	for len(giveUp) > 0 {
		select {
		case i := <-ended:
			delete(giveUp, i)
			if out[i].err != nil {
				continue
			}
			if late == nil {
				most := c.patience(ctx)
				timer := time.NewTimer(most)
				defer timer.Stop()
				late, off = timer.C, c.waits(most)
			}
			if needed != nil {
				for _, name := range needed(out[i].reply) {
					waitFor[name] = true
				}
			}
		case <-late:
			late = make(chan time.Time) // once is enough
			for i, cancel := range giveUp {
				if !waitFor[eps[i].Name()] {
					cancel(ErrNoAnswer)
				}
			}
		}
	}
	return out, nil
}

// gather asks all connected nodes, and returns the answers that came; an error if none did.
func gather[T any](ctx context.Context, c *Client, call string, req any) (replies []*T, err error) {
	answers, err := askAll[T](ctx, c, call, req, nil)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, a := range answers {
		if a.err != nil {
			failed = append(failed, a.err)
		} else {
			replies = append(replies, a.reply)
		}
	}
	switch {
	case len(replies) > 0:
		return replies, nil
	case !slices.ContainsFunc(failed, func(err error) bool { return !errors.Is(err, cluster.ErrForbidden) }):
		return nil, failed[0] // all say the same
	}
	return nil, errors.Join(failed...)
}

// nobody is the error when no node is connected.
func (c *Client) nobody() error {
	var why []error
	for _, s := range c.links.States() {
		why = append(why, fmt.Errorf("node %s: %w", s.Member.Name, s.Err))
	}
	return fmt.Errorf("client: %w to any node: %w", control.ErrNotConnected, errors.Join(why...))
}
