package rpctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
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
		{"no room for the answer", overflowCrowded},
		{"no room for the request", overflowWaits},
		{"refused before it is fetched", overflowRefused},
		{"caller gives up", overflowGivenUp},
		{"awaited in an inline handler", overflowInline},
		{"fetched ahead", overflowAhead},
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

// overflowBounded has more large answers at once than there may be memory for: they
// wait for one another, none is lost, and the bound holds.
func overflowBounded(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 2 << 20, PoolBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	var ran atomic.Int64
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			ran.Add(1)
			return suite.Pattern(1<<20, uint32(c.Req[0])), nil
		})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if got, err := a.Call(r.Ctx, ep, name, []byte{byte(i)}); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, uint32(i))) {
					r.Errorf("%s %d: %d bytes, %v", name, i, len(got), err)
				}
				if s := b.Stats(); s.BulkBytes > limits.BulkBytes || s.PoolBytes > limits.PoolBytes {
					r.Errorf("%+v", s)
				}
			})
		}
		wg.Wait()
		if n := ran.Swap(0); n != 8 {
			r.Errorf("%s: 8 calls ran %d times", name, n)
		}
	})
	r.settled(a, b)
	// Idle segments of one size make room for another.
	r.serve(b, "echo", inline(), echo)
	for _, n := range []int{1 << 20, 100_000, 300_000, 1 << 20} {
		r.echoes(a, ep, suite.Pattern(n, 1))
	}
}

// overflowCrowded has the callee's memory for answers taken up by a caller who has
// fetched ahead what he may, and asks for no more: whoever waits for room is told at his deadline that the call ran, and can cancel before.
func overflowCrowded(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	var ran atomic.Int64
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(context.Context, *rpc.Call) ([]byte, error) { ran.Add(1); return make([]byte, 1<<20), nil })
		ahead := r.start(a, ep, name, nil)
		<-ahead.Done()
		hog := r.start(a, ep, name, nil)
		<-hog.Done()
		ctx, cancel := context.WithTimeout(r.Ctx, 100*time.Millisecond)
		late := r.start(a, ep, name, nil) // has all the time
		_, err := a.Call(ctx, ep, name, nil)
		cancel()
		if !errors.Is(err, rpc.ErrDeadline) && !errors.Is(err, rpc.ErrAnswer) || errors.Is(err, rpc.ErrBusy) {
			r.Errorf("%s: no room until its deadline: %v", name, err)
		}
		gone := r.start(a, ep, name, nil)
		r.Eventually("all have run", func() bool { return ran.Load() == 5 })
		gone.Cancel()
		if _, err := gone.Wait(r.Ctx); !errors.Is(err, rpc.ErrCanceled) {
			r.Errorf("%s: cancelled: %v", name, err)
		}
		r.Eventually("only one waits", func() bool { return b.Stats().Active == 1 })
		for _, f := range []rpc.Future{ahead, hog, late} {
			if got, err := f.Wait(r.Ctx); err != nil || len(got) != 1<<20 {
				r.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
		ran.Store(0)
		r.settled(a, b)
	})
}

// overflowWaits has more large requests at once than there may be memory for: Call
// and Send wait for room, and Start says that there is none.
func overflowWaits(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	r.serve(b, "length", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		time.Sleep(time.Millisecond)
		return fmt.Append(nil, len(c.Req)), nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := a.Call(r.Ctx, ep, "length", make([]byte, 1<<20)); err != nil || string(got) != "1048576" {
				r.Errorf("Call: %q, %v", got, err)
			}
			if err := a.Send(r.Ctx, ep, "length", make([]byte, 1<<20)); err != nil {
				r.Errorf("Send: %v", err)
			}
		})
	}
	wg.Wait()
	r.Eventually("all have run", func() bool { return b.Stats().Served == 16 })
	r.settled(a, b)
	// All of the memory is taken by an answer that nobody fetches, or by a request that nobody reads.
	r.serve(a, "large", inline(), func(context.Context, *rpc.Call) ([]byte, error) { return make([]byte, 1<<20), nil })
	back := ep
	if !r.self {
		back = r.dial(b, a)
	}
	ahead := r.start(b, back, "large", nil)
	<-ahead.Done()
	hog := r.start(b, back, "large", nil)
	<-hog.Done()
	if _, err := a.Start(r.Ctx, ep, "length", make([]byte, 1<<20)); !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("Start: %v", err)
	}
	ctx, cancel := context.WithTimeout(r.Ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := a.Call(ctx, ep, "length", make([]byte, 1<<20)); !errors.Is(err, rpc.ErrDeadline) || !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("Call: %v", err)
	}
	hog.Forget()
	ahead.Forget()
	if _, err := a.Call(r.Ctx, ep, "length", make([]byte, 1<<20)); err != nil {
		r.Errorf("once there is room: %v", err)
	}
	r.settled(a, b)
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

// overflowInline has an inline handler take large answers that have come already: it must
// not wait for what only its own goroutine could bring.
func overflowInline(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	r.serve(b, "large", inline(), func(context.Context, *rpc.Call) ([]byte, error) { return suite.Pattern(1<<20, 1), nil })
	var f atomic.Pointer[rpc.Future]
	r.serve(a, "take", inline(), func(ctx context.Context, _ *rpc.Call) ([]byte, error) {
		got, err := f.Load().Wait(ctx)
		return got[:min(len(got), 10)], err
	})
	back := ep
	if !r.self {
		back = r.dial(b, a)
	}
	other := r.dial(a, b) // through which nothing is mapped yet
	ahead := r.start(a, ep, "large", nil)
	<-ahead.Done()
	far := r.start(a, other, "large", nil)
	<-far.Done()
	f.Store(&far) // has come, and lies at the peer
	if got, err := b.Call(r.Ctx, back, "take", nil); err == nil || !strings.Contains(err.Error(), "inline handler cannot wait") {
		r.Errorf("what would have to be fetched: %q, %v", got, err)
	}
	f.Store(&ahead)
	if got, err := b.Call(r.Ctx, back, "take", nil); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, 1)[:10]) {
		r.Errorf("what was fetched ahead: %q, %v", got, err)
	}
	if got, err := far.Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, 1)) {
		r.Errorf("later: %d bytes, %v", len(got), err)
	}
	r.settled(a, b)
}

// overflowAhead starts calls with large answers, and looks whether the callee has its memory back
// before anybody waits for them.
func overflowAhead(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "large", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		return suite.Pattern(1<<20+int(c.Req[0]), uint32(c.Req[0])), nil
	})
	var futures []rpc.Future
	for i := range 8 {
		futures = append(futures, r.start(a, ep, "large", []byte{byte(i)}))
	}
	for _, f := range futures {
		<-f.Done()
	}
	r.settled(a, b)
	for i, f := range futures {
		var buf []byte
		if i%2 == 0 {
			buf = []byte("kept")
		}
		got, err := f.WaitAppend(r.Ctx, buf)
		if err != nil || string(got[:len(buf)]) != string(buf) || !bytes.Equal(got[len(buf):], suite.Pattern(1<<20+i, uint32(i))) {
			r.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
	}
	// What was fetched ahead and is not wanted counts no more: these are more than there can be at once.
	for range 70 {
		f := r.start(a, ep, "large", []byte{1})
		<-f.Done()
		f.Forget()
	}
	f := r.start(a, ep, "large", []byte{1})
	<-f.Done()
	r.settled(a, b)
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
}
