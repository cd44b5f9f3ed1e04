package rpc

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// twice has b listen at an address and a dial it twice. of are the endpoints of a, and at those of b, in the same order.
func twice(t *testing.T, a, b *side, addr string) (of, at [2]*fabric.Endpoint) {
	t.Helper()
	of[0] = connect(t, a, b, addr)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if of[1], err = a.el.Dial(ctx, b.el.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	came := make(chan *fabric.Endpoint, 1)
	b.serve(t, "which", func(_ context.Context, c *Call) ([]byte, error) { came <- c.From; return nil, nil })
	for i, ep := range of {
		if _, err := a.p.Call(ctx, ep, "which", nil); err != nil {
			t.Fatal(err)
		}
		at[i] = <-came
	}
	waitFor(t, "nothing is under way", func() bool { return !a.p.Spare(of[0], nil) && !b.p.Spare(at[0], nil) })
	return of, at
}

// from has a side answer with the number of the endpoint that a call came over.
func (s *side) from(t *testing.T, at [2]*fabric.Endpoint) {
	s.serve(t, "from", func(_ context.Context, c *Call) ([]byte, error) {
		for i, ep := range at {
			if c.From == ep {
				return []byte{'0' + byte(i)}, nil
			}
		}
		return nil, errors.New("no such endpoint")
	})
}

// TestSparedCallsGoOver: calls that are made over a spare go over the endpoint that is used instead while that lives, and no two are each
// other's.
func TestSparedCallsGoOver(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		of, at := twice(t, a, b, addr)
		b.from(t, at)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		want := func(over int, came string) {
			t.Helper()
			got, err := a.p.Call(ctx, of[over], "from", nil)
			if err != nil || string(got) != came {
				t.Fatalf("a call over %d came over %q, not %s: %v", over, got, came, err)
			}
		}
		want(0, "0")
		want(1, "1")
		a.p.Spare(of[0], of[1])
		want(0, "1")
		want(1, "1")
		a.p.Spare(of[1], of[0])
		want(0, "0")
		want(1, "0")
		a.p.Spare(of[0], of[0]) // which says nothing
		want(1, "0")
		c := newSide(t, "c", Limits{})
		a.p.Spare(of[0], connect(t, a, c, "tcp://127.0.0.1:0")) // nor does this: it is another peer's
		want(0, "0")
		of[0].Close()
		want(1, "1")
	})
}

// TestSpareTakesAlong: what waits to be sent over an endpoint that becomes a spare is sent over the other one.
func TestSpareTakesAlong(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{Outgoing: 1}), newSide(t, "b", Limits{})
		of, at := twice(t, a, b, addr)
		b.from(t, at)
		gate := make(chan bool)
		b.serve(t, "hold", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		held, err := a.p.Start(ctx, of[0], "hold", nil)
		if err != nil {
			t.Fatal(err)
		}
		went := make(chan string, 1)
		go func() {
			got, err := a.p.Call(ctx, of[0], "from", bytes.Repeat([]byte{1}, 1<<16))
			if err != nil {
				got = []byte(err.Error())
			}
			went <- string(got)
		}()
		c := a.p.conn(of[0])
		waitFor(t, "a call waits", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.waiting > 0
		})
		if !a.p.Spare(of[0], of[1]) {
			t.Error("with a call under way nothing is")
		}
		if got := <-went; got != "1" {
			t.Errorf("the call that waited came over %q", got)
		}
		close(gate)
		if _, err := held.Wait(ctx); err != nil {
			t.Error(err)
		}
		waitFor(t, "nothing is under way", func() bool { return !a.p.Spare(of[0], of[1]) })
		if s := a.p.Stats(); s.Calls != 4 || s.Failed != 0 {
			t.Errorf("%d calls, of which %d failed; there were 4", s.Calls, s.Failed)
		}
	})
}

// TestOneWayIsUnderWay: a one-way call is under way where it was made until the callee has said that it has ended.
func TestOneWayIsUnderWay(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		of, _ := twice(t, a, b, addr)
		gate := make(chan bool)
		b.serve(t, "hold", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil })
		if err := a.p.Send(t.Context(), of[0], "hold", nil); err != nil {
			t.Fatal(err)
		}
		if !a.p.Spare(of[0], of[1]) {
			t.Error("nothing is under way")
		}
		close(gate)
		waitFor(t, "it has ended", func() bool { return !a.p.Spare(of[0], of[1]) })
	})
}

// TestMoveIsUnderWay: so is a bulk that is moved, also between two of its operations, or where they end at once.
func TestMoveIsUnderWay(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		of, _ := twice(t, a, b, addr)
		p := a.p
		bulk := &Bulk{owner: of[0].Incarnation()}
		c, err := p.ownerOf(t.Context(), bulk)
		if err != nil || c.ep != of[0] || !p.Spare(of[0], of[1]) {
			t.Fatalf("over %v, %v", c, err)
		}
		c.movers.Add(-1) // as at its end
		if p.Spare(of[0], of[1]) {
			t.Error("after its end it is under way")
		}
		if c, err = p.ownerOf(t.Context(), bulk); err != nil || c.ep != of[1] {
			t.Errorf("the next one goes over %v, %v", c, err)
		}
	})
}

// TestSpareLosesNothing: endpoints become spares, and are closed when nothing is under way on them at either end, while both ends
// make calls over them; no call is lost.
func TestSpareLosesNothing(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		of, at := twice(t, a, b, addr)
		var sent, came [2]atomic.Int64
		ends := []struct {
			s   *side
			eps [2]*fabric.Endpoint
		}{{a, of}, {b, at}}
		for i, e := range ends {
			e.s.serve(t, "echo", echo)
			e.s.serve(t, "one", func(context.Context, *Call) ([]byte, error) { came[1-i].Add(1); return nil, nil })
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stop, done := make(chan bool), make(chan error)
		calls := 0
		for i, e := range ends {
			for n := range 4 {
				calls++
				go func() {
					body := bytes.Repeat([]byte{byte(n)}, 1+n*n*4000) // the last ones are lent
					for {
						select {
						case <-stop:
							done <- nil
							return
						default:
						}
						_, err := e.s.p.Call(ctx, e.eps[0], "echo", body)
						if n == 0 && err == nil {
							if err = e.s.p.Send(ctx, e.eps[0], "one", nil); err == nil {
								sent[i].Add(1)
							}
						}
						if err != nil && !errors.Is(err, ErrOutcomeUnknown) && of[0].Err() != nil {
							err = nil // it was made after the end, and says so
							<-stop
						}
						if err != nil {
							done <- err
							return
						}
					}
				}()
			}
		}
		time.Sleep(10 * time.Millisecond)
		waitFor(t, "nothing is under way", func() bool {
			a.p.Spare(of[0], of[1]) // which b may keep busy as long as it has not heard
			return !b.p.Spare(at[0], at[1]) && !a.p.Spare(of[0], of[1])
		})
		of[0].Close()
		close(stop)
		for range calls {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		waitFor(t, "all one-way calls have run", func() bool { return sent[0].Load() == came[0].Load() && sent[1].Load() == came[1].Load() })
	})
}
