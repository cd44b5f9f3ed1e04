package rpc

import (
	"context"
	"testing"

	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// TestLastEndsAreTold: a caller hears of the ends that are too few to be told of at once.
func TestLastEndsAreTold(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		gate := make(chan bool)
		b.serve(t, "hold", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil })
		b.serve(t, "end", func(context.Context, *Call) ([]byte, error) { return nil, nil })
		for i := range exchange.MaxOneWay + 10 {
			name := "end"
			if i >= 10 {
				name = "hold"
			}
			if err := a.p.Send(ctx, ep, name, nil); err != nil {
				t.Errorf("number %d, with 10 that have ended: %v", i, err)
				break
			}
		}
		close(gate)
	})
}
