package inject

import (
	"context"
	"fmt"
	"time"
)

// drainEvery is how often it is looked whether functions have ended.
const drainEvery = 5 * time.Millisecond

// Drain makes the runtime take nothing new, from here or from elsewhere
// (travel.ErrStopping), and waits until everything that was here has ended and the peers that
// wait for it know, or the context ends. It cannot be undone.
func (rt *Runtime) Drain(ctx context.Context) error {
	rt.mu.Lock()
	rt.core.Drain()
	rt.mu.Unlock()
	return rt.awaitIdle(ctx)
}

// EndAll ends what Drain waited for in vain: origins hear why, functions
// are stopped. It returns when that is done, or the context has ended.
func (rt *Runtime) EndAll(ctx context.Context, why string) error {
	rt.mu.Lock()
	rt.core.Drain()
	rt.core.EndAll(rt.now(), why)
	rt.soon(rt.now())
	rt.mu.Unlock()
	rt.after()
	return rt.awaitIdle(ctx)
}

func (rt *Runtime) awaitIdle(ctx context.Context) error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		rt.mu.Lock()
		idle := rt.closed || rt.core.Idle()
		s := rt.core.Sizes()
		rt.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("inject: %d functions run, %d wait, %d were handed on and have not ended: %w", s.Running, s.HeldRuns, s.Records, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
