package fabric

import (
	"context"
	"time"
)

// A Scheduler is what a simulator has in place of the runtime's goroutines, timers and time: one
// goroutine of an element runs at a time, on the simulator's clock. All methods may be called from
// any of its goroutines, Go also from handlers.
type Scheduler interface {
	// Go runs fn as a go statement does.
	Go(fn func())
	// Rest lets others run. Who waits for something calls it again and again.
	Rest()
	// Timeout is context.WithTimeoutCause.
	Timeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc)
	// Zero is when the element's clock was 0, on the clock of contexts' deadlines.
	Zero() time.Time
}

// What layers above need of the runtime they ask of their element, so that a
// simulator can run them too.

// Go runs fn on a goroutine of its own: one that has run something before, if there is one.
func (e *Element) Go(fn func()) {
	if s := e.cfg.Scheduler; s != nil {
		s.Go(fn)
		return
	}
	e.workers.run(fn)
}

// Await waits until done is closed, or the context ends, and does not drive progress.
func (e *Element) Await(ctx context.Context, done <-chan struct{}) error {
	s := e.cfg.Scheduler
	if s == nil {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.Rest()
	}
}

// Timeout is context.WithTimeoutCause on the element's clock.
func (e *Element) Timeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if s := e.cfg.Scheduler; s != nil {
		return s.Timeout(ctx, d, cause)
	}
	return context.WithTimeoutCause(ctx, d, cause)
}

// farthest bounds how far ahead a time on an element's clock can be, so that sums do not overflow.
const farthest = 1 << 61

// At is a time on the element's clock.
func (e *Element) At(t time.Time) int64 {
	switch s := e.cfg.Scheduler; {
	case s != nil:
		return int64(min(t.Sub(s.Zero()), farthest))
	case e.cfg.Now == nil && t != t.Round(0): // it has a monotonic reading: the wall clock may have been set since the start
		return int64(min(t.Sub(e.start), farthest))
	}
	return e.now() + int64(min(time.Until(t), farthest))
}

// Time is when the element's clock is at, as contexts' deadlines say it.
func (e *Element) Time(at int64) time.Time {
	if s := e.cfg.Scheduler; s != nil {
		return s.Zero().Add(time.Duration(at))
	}
	return time.Now().Add(time.Duration(at - e.now()))
}
