package rpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestFutureUsedTwice: a future that several use at once ends one call, once; the others hear that it was used, and no other call is touched.
func TestFutureUsedTwice(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		var gates [30]chan bool
		for i := range gates {
			gates[i] = make(chan bool)
		}
		b.serve(t, "gate", func(ctx context.Context, c *Call) ([]byte, error) {
			select {
			case <-gates[c.Req[0]]:
			case <-ctx.Done():
			}
			return c.Req, nil
		})
		for round := range gates {
			f, err := a.p.Start(t.Context(), ep, "gate", []byte{byte(round)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			var got, used, gaveUp atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					switch body, err := f.Wait(ctx); {
					case err == nil && len(body) == 1 && body[0] == byte(round):
						got.Add(1)
					case errors.Is(err, ErrEnded):
						used.Add(1)
					case errors.Is(err, context.Canceled):
						gaveUp.Add(1)
					default:
						t.Errorf("%q, %v", body, err)
					}
				})
			}
			if round%2 == 0 {
				close(gates[round])
			} else {
				cancel()
			}
			wg.Wait()
			cancel()
			if got.Load()+gaveUp.Load() != 1 || used.Load() != 3 {
				t.Fatalf("of four %d got the answer, %d gave up, %d heard that it was used", got.Load(), gaveUp.Load(), used.Load())
			}
			if n := a.p.conn(ep).caller.Live(); n != 0 {
				t.Fatalf("%d calls are left", n)
			}
		}
	})
}

// TestDoneOfForgotten: whoever watches a call hears its end, also where somebody else has forgotten it or given up waiting.
func TestDoneOfForgotten(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	b.serve(t, "wait", func(ctx context.Context, _ *Call) ([]byte, error) { <-ctx.Done(); return nil, nil })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, end := range map[string]func(Future){
		"forgotten": Future.Forget,
		"given up":  func(f Future) { f.Wait(gone) },
		"cancelled": Future.Cancel,
	} {
		f, err := a.p.Start(t.Context(), ep, "wait", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := f.Done()
		end(f)
		select {
		case <-done:
		case <-time.After(patience):
			t.Errorf("%s: not done", name)
		}
		f.Forget()
	}
}

// TestLongName: a name that cannot be one is not written out in the error.
func TestLongName(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	if _, err := a.p.Call(t.Context(), ep, strings.Repeat("x", 10_000), nil); !errors.Is(err, ErrName) || len(err.Error()) > 1000 {
		t.Errorf("%d bytes of error", len(err.Error()))
	}
	if _, err := New(a.el, Config{}); err == nil || !strings.Contains(err.Error(), "has a Peer already") {
		t.Errorf("a second Peer: %v", err)
	}
}

// TestWaitOfEnded: whoever still waits for a call that somebody else has ended hears so, and does not sleep on the
// next call in its place.
func TestWaitOfEnded(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{Outgoing: 1}), newSide(t, "b", Limits{}) // so that there is one place
		ep := connect(t, a, b, addr)
		b.serve(t, "wait", func(ctx context.Context, _ *Call) ([]byte, error) { <-ctx.Done(); return nil, nil })
		start := func() Future {
			f, err := a.p.Start(t.Context(), ep, "wait", nil)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		f := start()
		for round := range 200 {
			ended, one := make(chan error, 2), f
			for range cap(ended) {
				go func() {
					_, err := one.Wait(t.Context())
					ended <- err
				}()
			}
			time.Sleep(time.Duration(round%4) * 100 * time.Microsecond) // they wait, or are about to
			one.Forget()
			f = start()
			for range cap(ended) {
				select {
				case err := <-ended:
					if !errors.Is(err, ErrEnded) {
						t.Fatalf("round %d: %v", round, err)
					}
				case <-time.After(patience / 4):
					t.Fatalf("round %d: it waits for the next call", round)
				}
			}
		}
		f.Forget()
	})
}
