package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// TestParkedIsUnderWay: a one-way call that waits behind another connection's is under way on its own, which is not to be given up.
func TestParkedIsUnderWay(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		bound, err := b.el.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		var eps [2]*fabric.Endpoint
		for i := range eps {
			if eps[i], err = a.el.Dial(ctx, bound); err != nil {
				t.Fatal(err)
			}
		}
		begun, gate := make(chan bool, 1), make(chan bool)
		if err := b.p.Register("one", func(context.Context, *Call) ([]byte, error) {
			begun <- true
			<-gate
			return nil, nil
		}, Options{Concurrent: 1}); err != nil {
			t.Fatal(err)
		}
		if err := a.p.Send(ctx, eps[0], "one", nil); err != nil {
			t.Fatal(err)
		}
		<-begun
		if err := a.p.Send(ctx, eps[1], "one", nil); err != nil {
			t.Fatal(err)
		}
		for b.p.Stats().Parked == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		busy := 0
		for _, ep := range b.el.Endpoints() {
			if b.p.Spare(ep, nil) {
				busy++
			}
		}
		if busy != 2 {
			t.Errorf("%d of two connections are in use", busy)
		}
		close(gate)
		<-begun
	})
}

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
