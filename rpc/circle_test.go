package rpc

import (
	"context"
	"sync"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
)

// circleLimits let one endpoint lend two payloads of circleBytes at once.
var circleLimits = Limits{MaxBytes: circleBytes, BulkBytes: 4 * circleBytes, CallsPerPeer: 2, CallTime: patience / 4}

const circleBytes = 1 << 20

// circle is two servers, each of which has all that requests may lend to the other lent, to calls that wait there.
func circle(t *testing.T) (sides [2]*side, eps [2]*fabric.Endpoint, open func()) {
	sides = [2]*side{newSide(t, "a", circleLimits), newSide(t, "b", circleLimits)}
	eps[0] = connect(t, sides[0], sides[1], "tcp://127.0.0.1:0")
	waitFor(t, "they are connected", func() bool { return len(sides[1].conns()) == 1 })
	eps[1] = sides[1].conns()[0].ep
	gate := make(chan struct{})
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // before the Peers close, which wait for handlers
	for i, s := range sides {
		if err := s.p.Register("gate", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil }, Options{Concurrent: 1}); err != nil {
			t.Fatal(err)
		}
		s.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, circleBytes), nil })
		s.serve(t, "back", func(ctx context.Context, k *Call) ([]byte, error) {
			return s.p.Call(ctx, k.From, "large", make([]byte, circleBytes))
		})
		for n := range 3 {
			f, err := sides[1-i].p.Start(t.Context(), eps[1-i], "gate", make([]byte, circleBytes))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.Forget)
			if n == 0 {
				waitFor(t, "it runs, and its request was read", func() bool {
					lent := sides[1-i].p.Stats()
					return s.p.Stats().Active == 1 && lent.BulkBytes == lent.PoolBytes
				})
			}
		}
		waitFor(t, "two wait", func() bool { return s.p.Stats().Parked == 2 })
	}
	return sides, eps, open
}

// TestAnswersPassRequests: servers whose requests to each other wait for places still answer each other's calls, and those of handlers,
// however large: nobody's answer waits for somebody's handler.
func TestAnswersPassRequests(t *testing.T) {
	for _, name := range []string{"large", "back"} {
		t.Run(name, func(t *testing.T) {
			sides, eps, open := circle(t)
			defer open()
			for i, s := range sides {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				got, err := s.p.Call(ctx, eps[i], name, nil)
				cancel()
				if err != nil || len(got) != circleBytes {
					t.Errorf("%s to the other: %d bytes, %v", s.el.Name(), len(got), err)
				}
			}
		})
	}
}

// TestCallBack: two servers whose handlers call each other back, all with large requests and answers, come to an end.
func TestCallBack(t *testing.T) {
	sides, eps, open := circle(t)
	for _, s := range sides {
		// Inline, so that no handler lacks a place: what is looked at is the room for payloads.
		if err := s.p.Register("inline", func(context.Context, *Call) ([]byte, error) { return make([]byte, circleBytes), nil }, Options{Inline: true}); err != nil {
			t.Fatal(err)
		}
		s.serve(t, "both", func(ctx context.Context, k *Call) ([]byte, error) {
			if _, err := s.p.Call(ctx, k.From, "inline", nil); err != nil {
				return nil, err
			}
			return make([]byte, circleBytes), nil
		})
	}
	open()
	var wg sync.WaitGroup
	for i, s := range sides {
		for range 24 {
			wg.Go(func() {
				if got, err := s.p.Call(t.Context(), eps[i], "both", make([]byte, circleBytes)); err != nil || len(got) != circleBytes {
					t.Errorf("%s: %d bytes, %v", s.el.Name(), len(got), err)
				}
			})
		}
	}
	wg.Wait()
}
