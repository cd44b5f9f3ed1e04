package rpctest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func overflowChecks() []check {
	return []check{
		{"in", overflowIn},
		{"out", overflowOut},
		{"in and out", overflowBoth},
		{"one-way", overflowOneWay},
		{"released early", overflowReleased},
		{"bounded pool", overflowBounded},
		{"refused before it is fetched", overflowRefused},
		{"caller gives up", overflowGivenUp},
	}
}

// eachKind runs fn for handlers of either kind.
func eachKind(fn func(name string, o rpc.Options)) {
	fn("inline", inline())
	fn("blocking", blocking())
}

func overflowIn(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			if len(c.Req) != c.Bytes || !bytes.Equal(c.Req, suite.Pattern(c.Bytes, 7)) {
				return nil, errors.New("another request")
			}
			return []byte("ok"), nil
		})
		for _, n := range []int{9000, 70_000, 70_000, 300_000, 5 << 20, 9000} {
			if got, err := a.Call(r.Ctx, ep, name, suite.Pattern(n, 7)); err != nil || string(got) != "ok" {
				r.Fatalf("%s, %d bytes: %q, %v", name, n, got, err)
			}
		}
	})
	r.settled(a, b)
}

func overflowOut(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			return suite.Pattern(int(c.Req[0])*70_000, 9), nil
		})
		buf := []byte("kept")
		for _, n := range []byte{1, 2, 1, 40} {
			got, err := a.CallAppend(r.Ctx, ep, name, []byte{n}, buf)
			if err != nil || !bytes.Equal(got[4:], suite.Pattern(int(n)*70_000, 9)) || string(got[:4]) != "kept" {
				r.Fatalf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	})
	r.settled(a, b)
}

func overflowBoth(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	for i := range 20 {
		r.echoes(a, ep, suite.Pattern(8193+i*31_000, uint32(i)))
	}
	// Many at once.
	var futures []rpc.Future
	for i := range 16 {
		f, err := a.Start(r.Ctx, ep, "echo", suite.Pattern(100_000+i, uint32(i)))
		r.Must(err)
		futures = append(futures, f)
	}
	for i, f := range futures {
		if got, err := f.Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(100_000+i, uint32(i))) {
			r.Errorf("call %d: %d bytes, %v", i, len(got), err)
		}
	}
	r.settled(a, b)
}

func overflowOneWay(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	var good atomic.Int64
	r.serve(b, "take", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		if bytes.Equal(c.Req, suite.Pattern(200_000, 3)) {
			good.Add(1)
		}
		return nil, nil
	})
	for range 20 {
		r.Must(a.Send(r.Ctx, ep, "take", suite.Pattern(200_000, 3)))
	}
	r.Eventually("all were taken", func() bool { return b.Stats().Served == 20 })
	if good.Load() != 20 {
		r.Errorf("%d of 20 requests were whole", good.Load())
	}
	r.settled(a, b)
}

// overflowReleased looks whether a request's segment is free while its handler still runs.
func overflowReleased(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	gate := make(chan struct{})
	r.serve(b, "hold", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		<-gate
		return nil, nil
	})
	f, err := a.Start(r.Ctx, ep, "hold", make([]byte, 1<<20))
	r.Must(err)
	r.Eventually("the request's segment is free", func() bool {
		s := a.Stats()
		return s.PoolBytes == 1<<20 && s.BulkBytes == s.PoolBytes
	})
	close(gate)
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
}

func overflowBounded(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 2 << 20, PoolBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	gate := make(chan struct{})
	var once sync.Once
	open := func() { once.Do(func() { close(gate) }) }
	defer open()

	r.serve(b, "hold", rpc.Options{Blocking: true}, func(_ context.Context, c *rpc.Call) ([]byte, error) {
		<-gate
		return make([]byte, 1<<20), nil
	})
	var futures []rpc.Future
	for range 8 {
		f, err := a.Start(r.Ctx, ep, "hold", nil)
		r.Must(err)
		futures = append(futures, f)
	}
	open()
	busy := 0
	for _, f := range futures {
		got, err := f.Wait(r.Ctx)
		switch {
		case errors.Is(err, rpc.ErrBusy):
			busy++
		case err != nil || len(got) != 1<<20:
			r.Errorf("%d bytes, %v", len(got), err)
		}
		if s := b.Stats(); s.BulkBytes > limits.BulkBytes || s.PoolBytes > limits.PoolBytes {
			r.Errorf("%+v", s)
		}
	}
	if busy == len(futures) {
		r.Error("none had room")
	}
	r.settled(a, b)
	// Idle segments of one size make room for another.
	r.serve(b, "echo", inline(), echo)
	for _, n := range []int{1 << 20, 100_000, 300_000, 1 << 20} {
		r.echoes(a, ep, suite.Pattern(n, 1))
	}
}

func overflowRefused(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "small", rpc.Options{MaxBytes: 10_000}, echo)
	if _, err := a.Call(r.Ctx, ep, "small", make([]byte, 10_001)); !errors.Is(err, rpc.ErrTooLarge) {
		r.Errorf("a request above the method's limit: %v", err)
	}
	if got, err := a.Call(r.Ctx, ep, "small", make([]byte, 10_000)); err != nil || len(got) != 10_000 {
		r.Errorf("%d bytes, %v", len(got), err)
	}
	r.settled(a, b)
}

func overflowGivenUp(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{LingerTime: 200 * time.Millisecond}})
	entered := make(chan struct{}, 1)
	r.serve(b, "late", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return make([]byte, 1<<20), nil // an answer that nobody wants
	})
	f, err := a.Start(r.Ctx, ep, "late", make([]byte, 1<<20))
	r.Must(err)
	<-entered
	f.Forget()
	r.settled(a, b)
}
