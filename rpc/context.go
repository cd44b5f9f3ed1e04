package rpc

import (
	"context"
	"fmt"
	"time"
)

// handlerContext is a Call as its handler's context. Most handlers never ask it
// for more than a deadline, so it is made of the call's own record; a real context with a
// timer and a channel is made when Done is first called.
type handlerContext Call

// callKey finds the Call in a handler's context.
type callKey struct{}

// errGaveUp is why a handler's context ends when its caller cancels.
var errGaveUp = fmt.Errorf("rpc: cancelled by the caller: %w", context.Canceled)

func (h *handlerContext) call() *Call { return (*Call)(h) }

// Deadline is the call's.
func (h *handlerContext) Deadline() (time.Time, bool) {
	k := h.call()
	return k.c.p.layer.Time(k.deadline), true
}

// Done makes the real context.
func (h *handlerContext) Done() <-chan struct{} { return h.real().Done() }

// Err asks the real context if there is one, or must be one.
func (h *handlerContext) Err() error {
	if inner := h.ended(); inner != nil {
		return inner.Err()
	}
	return nil
}

// Value finds the call. context.Cause looks in here for how the context ended.
func (h *handlerContext) Value(key any) any {
	if _, ours := key.(callKey); ours {
		return h.call()
	}
	if inner := h.ended(); inner != nil {
		return inner.Value(key)
	}
	return nil
}

// ended is the real context if there is one, or if it would have ended.
func (h *handlerContext) ended() context.Context {
	k := h.call()
	k.mu.Lock()
	inner, cause := k.inner, k.cause
	k.mu.Unlock()
	if inner == nil && (cause != nil || k.c.p.el.Now() >= k.deadline) {
		return h.real()
	}
	return inner
}

// real makes the real context, once.
func (h *handlerContext) real() context.Context {
	k := h.call()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inner == nil {
		left := max(time.Duration(k.deadline-k.c.p.el.Now()), 0)
		timed, stop := k.c.p.layer.Timeout(context.Background(), left, ErrDeadline)
		inner, cancel := context.WithCancelCause(timed)
		k.inner, k.cancel = inner, func(cause error) {
			cancel(cause)
			stop()
		}
		if k.cause != nil {
			k.cancel(k.cause)
		}
	}
	return k.inner
}

// stop ends the handler's context; gone says that the answer is no longer wanted.
func (k *Call) stop(cause error, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gaveUp = k.gaveUp || gone
	if k.cause == nil {
		k.cause = cause
		if k.cancel != nil {
			k.cancel(cause)
		}
	}
}
