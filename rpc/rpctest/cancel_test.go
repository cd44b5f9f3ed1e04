package rpctest_test

import (
	"context"
	"errors"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func cancelChecks() []check {
	return []check{
		{"before it was sent", cancelUnsent},
		{"before progress", cancelBeforeProgress},
		{"in flight", cancelInFlight},
		{"by context", cancelByContext},
		{"after completion", cancelAfter},
		{"of a nested call", cancelNested},
	}
}

// cancelUnsent cancels a call that waits for room: it must never run.
func cancelUnsent(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{Outgoing: 1}})
	gate := make(chan struct{})
	r.serve(b, "hold", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { <-gate; return nil, nil })
	f := r.start(a, ep, "hold", nil)
	if _, err := a.Start(r.Ctx, ep, "hold", nil); !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("Start without room: %v", err)
	}
	ctx, cancel := context.WithCancel(r.Ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := a.Call(ctx, ep, "hold", nil); !errors.Is(err, context.Canceled) {
		r.Errorf("a call that was cancelled while it waited for room: %v", err)
	}
	ctx, cancel = context.WithCancel(r.Ctx)
	cancel()
	if _, err := a.Call(ctx, ep, "hold", nil); !errors.Is(err, context.Canceled) {
		r.Errorf("a call that was cancelled before it began: %v", err)
	}
	close(gate)
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
	if _, err := a.Call(r.Ctx, ep, "hold", nil); err != nil {
		r.Errorf("once there is room: %v", err)
	}
	if n := b.Stats().Served; n != 2 {
		r.Errorf("%d calls ran of two that were sent", n)
	}
}

func cancelBeforeProgress(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	for i := range 50 {
		f := r.start(a, ep, "echo", suite.Pattern(i*1000, 1))
		f.Cancel()
		// It may have been answered by the background's progress, but that is one or the other.
		if got, err := f.Wait(r.Ctx); err != nil && !errors.Is(err, rpc.ErrCanceled) || err == nil && len(got) != i*1000 {
			r.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	for range 50 {
		f := r.start(a, ep, "echo", nil)
		f.Forget()
	}
	// One that nobody can have answered: what is told to its caller is that it was cancelled.
	gate := make(chan struct{})
	r.serve(b, "gate", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { <-gate; return nil, nil })
	for _, n := range []int{0, 100_000} {
		f := r.start(a, ep, "gate", make([]byte, n))
		f.Cancel()
		if _, err := f.Wait(r.Ctx); !errors.Is(err, rpc.ErrCanceled) {
			r.Errorf("with %d bytes: %v", n, err)
		}
	}
	close(gate)
	r.echoes(a, ep, []byte("after all of them"))
	r.settled(a, b)
}

func cancelInFlight(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	ended := make(chan error, 1)
	entered := make(chan struct{}, 1)
	r.serve(b, "wait", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		return untilDone(ended)(ctx, c)
	})
	for _, n := range []int{0, 100_000} {
		f := r.start(a, ep, "wait", make([]byte, n))
		<-entered
		done := make(chan error, 1)
		go func() { _, err := f.Wait(r.Ctx); done <- err }()
		f.Cancel()
		if err := <-done; !errors.Is(err, rpc.ErrCanceled) || !errors.Is(err, context.Canceled) {
			r.Errorf("the caller: %v", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.Errorf("the handler: %v", err)
		}
		r.settled(a, b)
	}
}

func cancelByContext(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(r.Ctx)
	r.serve(b, "wait", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		cancel() // now that it runs: what was cancelled before would have no handler
		return untilDone(ended)(ctx, c)
	})
	if _, err := a.Call(ctx, ep, "wait", nil); !errors.Is(err, context.Canceled) {
		r.Errorf("the caller: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		r.Errorf("the handler: %v", err)
	}
	r.settled(a, b)
}

func cancelAfter(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	for _, n := range []int{10, 100_000} {
		f := r.start(a, ep, "echo", suite.Pattern(n, 2))
		<-f.Done()
		f.Cancel()
		if got, err := f.Wait(r.Ctx); err != nil || len(got) != n {
			r.Errorf("%d bytes, %v", len(got), err)
		}
		f.Cancel() // has ended: nothing, also if another call has its place
		r.echoes(a, ep, suite.Pattern(n, 3))
	}
	// An answer that has come and is not wanted any more.
	f := r.start(a, ep, "echo", make([]byte, 100_000))
	<-f.Done()
	f.Forget()
	r.settled(a, b)
}

// cancelNested cancels a call whose handler waits for another.
func cancelNested(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	entered, ended := make(chan struct{}, 1), make(chan error, 2)
	r.serve(a, "leaf", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		return untilDone(ended)(ctx, c)
	})
	r.serve(b, "relay", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		_, err := b.Call(ctx, c.From, "leaf", nil)
		ended <- err
		return nil, err
	})
	f := r.start(a, ep, "relay", nil)
	<-entered
	f.Cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.Errorf("%v", err)
		}
	}
	f.Forget()
	r.settled(a, b)
	// The endpoint's end cancels what its peer runs.
	f = r.start(a, ep, "relay", nil)
	<-entered
	ep.Close()
	if _, err := f.Wait(r.Ctx); !errors.Is(err, rpc.ErrOutcomeUnknown) || !errors.Is(err, fabric.ErrClosed) {
		r.Errorf("the caller, after its endpoint's end: %v", err)
	}
	for range 2 {
		if err := <-ended; err == nil || errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("a handler's context outlives its caller: %v", err)
		}
	}
	r.settled(a, b)
}
