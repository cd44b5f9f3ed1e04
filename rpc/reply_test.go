package rpc

import (
	"context"
	"sync/atomic"
	"testing"
)

// TestTypedReplyTwice: of two answers to a call the first counts, also while it is on its way when the second comes.
func TestTypedReplyTwice(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	var later atomic.Bool
	entered, on := make(chan struct{}, 1), make(chan struct{})
	b.p.cfg.Servers = []ServerInterceptor{func(ctx context.Context, _ *Call) (context.Context, func(error), error) {
		return ctx, func(error) { // the first answer passes here
			if later.Load() {
				entered <- struct{}{}
				<-on
			}
		}, nil
	}}
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	m := Define("x", Text{}, Text{})
	if err := m.Serve(b.p, func(_ context.Context, c *Call, s string) (string, error) {
		if s == "plain" {
			return "an answer that leaves memory behind", nil
		}
		err := c.Detach()
		go m.Reply(c, "first", nil)
		go func() {
			<-entered
			m.Reply(c, "other", nil)
			close(on)
		}()
		return "", err
	}, Options{Inline: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Call(t.Context(), a.p, ep, "plain"); err != nil {
		t.Fatal(err)
	}
	later.Store(true)
	if got, err := m.Call(t.Context(), a.p, ep, "later"); err != nil || got != "first" {
		t.Errorf("%q, %v, want the first", got, err)
	}
}
