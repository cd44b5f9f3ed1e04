package rpctest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func crowdChecks() []check {
	return []check{
		{"hundreds in flight", hundredsInFlight},
		{"concurrent callers", concurrentCallers},
		{"concurrent handlers", concurrentHandlers},
		{"create and drop while serving", createAndDrop},
		{"per-peer limit", perPeerLimit},
		{"per-call limit", perCallLimit},
		{"back-pressure", backPressure},
		{"both ways at once", bothWays},
	}
}

func hundredsInFlight(r *rig) {
	const n = 700
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{Calls: 2 * n, CallsPerPeer: n}}) // one principal has three quarters of Calls
	r.serve(b, "echo", inline(), echo)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open() // also if the check fails before: Close waits for handlers
	r.serve(b, "gate", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) { <-gate; return c.Req, nil })
	for _, name := range []string{"echo", "gate"} {
		var futures []rpc.Future
		for i := range n {
			futures = append(futures, r.start(a, ep, name, suite.Pattern(i, uint32(i))))
		}
		if name == "gate" {
			r.Eventually("all run", func() bool { return b.Stats().Active == n })
			open()
		}
		for i := range n {
			i = (i*37 + 11) % n // in another order
			got, err := futures[i].Wait(r.Ctx)
			if err != nil || !bytes.Equal(got, suite.Pattern(i, uint32(i))) {
				r.Fatalf("%s %d: %d bytes, %v", name, i, len(got), err)
			}
		}
	}
	r.settled(a, b)
}

func concurrentCallers(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	var wg sync.WaitGroup
	for who := range 8 {
		wg.Go(func() {
			for i := range 200 {
				n := (i * 53) % 2000
				if i%50 == 49 {
					n = 40_000
				}
				req := suite.Pattern(n, uint32(who*1000+i))
				got, err := a.Call(r.Ctx, ep, "echo", req)
				if err != nil || !bytes.Equal(got, req) {
					r.Errorf("caller %d, call %d: %d bytes, %v", who, i, len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.settled(a, b)
}

// concurrentHandlers needs many handlers at once: each waits for all of them.
func concurrentHandlers(r *rig) {
	const n = 50
	a, b, ep := r.pair(rpc.Config{})
	var in atomic.Int64
	all := make(chan struct{})
	r.serve(b, "meet", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		if in.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return c.Req, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if got, err := a.Call(r.Ctx, ep, "meet", []byte{byte(i)}); err != nil || got[0] != byte(i) {
				r.Errorf("%v, %v", got, err)
			}
		})
	}
	wg.Wait()
	r.settled(a, b)
}

// createAndDrop has callers come and go, and names be registered and taken back, while others are served.
func createAndDrop(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r.echoes(a, ep, suite.Pattern(i%20_000, uint32(i)))
		}
	})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("name %d", i%5)
			if err := b.Register(name, echo, inline()); err != nil {
				r.Error(err)
			}
			if _, err := a.Call(r.Ctx, ep, name, nil); err != nil {
				r.Error(err)
			}
			if err := b.Deregister(r.Ctx, name); err != nil {
				r.Error(err)
			}
		}
	})
	for i := range 20 {
		c, err := newSide(r.make, fmt.Sprintf("guest %d", i), rpc.Config{})
		r.Must(err)
		other := r.dial(c, b)
		for range 5 {
			r.echoes(c, other, suite.Pattern(i*3000, uint32(i)))
		}
		f := r.start(c, other, "echo", make([]byte, 50_000))
		f.Forget()
		c.Peer.Close()
		r.Must(c.el.Close())
	}
	close(stop)
	wg.Wait()
	r.settled(a, b)
}

func perPeerLimit(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 2, Calls: 3, Queued: -1}})
	gate := make(chan struct{})
	r.serve(b, "hold", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { <-gate; return nil, nil })
	var held []rpc.Future
	hold := func(ep *fabric.Endpoint, n int64) {
		f := r.start(a, ep, "hold", nil)
		held = append(held, f)
		r.Eventually("it runs", func() bool { return b.Stats().Active == n })
	}
	hold(ep, 1)
	hold(ep, 2)
	if _, err := a.Call(r.Ctx, ep, "hold", nil); !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("the third call of a peer that may have two: %v", err)
	}
	other := r.dial(a, b)
	hold(other, 3)
	if _, err := a.Call(r.Ctx, other, "hold", nil); !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("the fourth call where there can be three: %v", err)
	}
	close(gate)
	for _, f := range held {
		if _, err := f.Wait(r.Ctx); err != nil {
			r.Error(err)
		}
	}
	r.settled(a, b)
	if _, err := a.Call(r.Ctx, ep, "hold", nil); err != nil {
		r.Errorf("after the others: %v", err)
	}
}

func perCallLimit(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{Queued: -1}})
	gate := make(chan struct{})
	r.serve(b, "one", rpc.Options{Concurrent: 1}, func(context.Context, *rpc.Call) ([]byte, error) { <-gate; return nil, nil })
	r.serve(b, "echo", inline(), echo)
	f := r.start(a, ep, "one", nil)
	r.Eventually("it runs", func() bool { return b.Stats().Active == 1 })
	if _, err := a.Call(r.Ctx, ep, "one", nil); !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("the second: %v", err)
	}
	r.echoes(a, ep, []byte("others are served"))
	close(gate)
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
	if _, err := a.Call(r.Ctx, ep, "one", nil); err != nil {
		r.Errorf("after the first: %v", err)
	}
}

// backPressure has more callers than slots, and more bytes than the peer's window: all
// wait, and all get through.
func backPressure(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{Outgoing: 4}})
	r.serve(b, "echo", inline(), echo)
	var wg sync.WaitGroup
	for who := range 32 {
		wg.Go(func() {
			for i := range 20 {
				req := suite.Pattern(8000, uint32(who*100+i))
				if got, err := a.Call(r.Ctx, ep, "echo", req); err != nil || !bytes.Equal(got, req) {
					r.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
	for range 1000 {
		r.Must(a.Send(r.Ctx, ep, "echo", make([]byte, 8000)))
	}
	r.echoes(a, ep, []byte("after the one-way calls"))
	r.Eventually("all have run", func() bool { return b.Stats().Served == 32*20+1001 })
}

// bothWays has two elements flood each other with large answers: neither can stop the other.
func bothWays(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	back, other := ep, a
	if !r.self {
		r.serve(a, "echo", inline(), echo)
		back, other = r.dial(b, a), b
	}
	var wg sync.WaitGroup
	flood := func(s *side, ep *fabric.Endpoint) {
		wg.Go(func() {
			var futures []rpc.Future
			for i := range 400 {
				f, err := s.Start(r.Ctx, ep, "echo", suite.Pattern(7000, uint32(i)))
				if errors.Is(err, fabric.ErrBackpressure) {
					got, err := s.Call(r.Ctx, ep, "echo", suite.Pattern(7000, uint32(i)))
					if err != nil || !bytes.Equal(got, suite.Pattern(7000, uint32(i))) {
						r.Errorf("%d bytes, %v", len(got), err)
					}
					continue
				}
				if err != nil {
					r.Error(err)
					continue
				}
				futures = append(futures, f)
			}
			for _, f := range futures {
				if got, err := f.Wait(r.Ctx); err != nil || len(got) != 7000 {
					r.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	flood(a, ep)
	flood(other, back)
	wg.Wait()
	r.settled(a, b)
}
