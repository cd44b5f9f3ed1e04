package sim

import (
	"context"
	"iter"
	"slices"
	"time"
)

// A proc is a goroutine of a host's life that may wait. Only one runs at any
// time, and the world stands still while it does: waiting is giving the turn back.
type proc struct {
	h     *Host
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	runs  uint64 // how often it was resumed
	rests bool   // until the host's round is over
}

// spawn makes a proc; it runs when it is first resumed.
func (h *Host) spawn(fn func()) *proc {
	p := &proc{h: h}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		fn()
	})
	h.procs = append(h.procs, p)
	return p
}

// resume lets a proc run until it waits or ends.
func (p *proc) resume() {
	n := p.h.net
	before := n.cur
	n.cur = p
	p.runs++
	_, more := p.next()
	n.cur = before
	if more {
		return
	}
	p.stop()
	h := p.h
	if i := slices.Index(h.procs, p); i >= 0 {
		h.procs = slices.Delete(h.procs, i, i+1)
	}
	if h.caller == p {
		h.caller = nil
		h.nextCall()
	}
}

// park waits until somebody resumes the proc.
func (p *proc) park() { p.yield(struct{}{}) }

// wake resumes a proc d from now, if nobody has by then.
func (p *proc) wake(d time.Duration) {
	mine, life := p.runs, p.h.life
	p.h.net.W.After(d, func() {
		if p.runs == mine && p.h.life == life && slices.Contains(p.h.procs, p) {
			p.resume()
			p.h.kick()
		}
	})
}

// Go runs a call of the host's current life on a goroutine of its own: it may
// use whatever of the fabric waits (Import, Send, Flush, Op.Wait, Dial …), while the
// world goes on. A host's calls run one after the other. ctx ends when the host
// crashes; use Timeout for one with a deadline.
func (h *Host) Go(call func(ctx context.Context)) {
	h.calls = append(h.calls, call)
	life := h.life
	h.net.W.After(0, func() {
		if h.life == life {
			h.nextCall()
		}
	})
}

func (h *Host) nextCall() {
	if h.caller != nil || len(h.calls) == 0 || !h.Alive() {
		return
	}
	call := h.calls[0]
	h.calls = h.calls[1:]
	h.caller = h.spawn(func() {
		ctx, cancel := h.Timeout(0)
		defer cancel()
		call(ctx)
	})
	h.caller.wake(0)
}

// Sleep lets d pass inside a call. It returns early when the host crashes.
func (h *Host) Sleep(d time.Duration) {
	p := h.net.cur
	if p == nil {
		panic("sim: Sleep outside a call (Host.Go)")
	}
	p.wake(d)
	p.park()
}

// rested are the procs that rested until now.
func (h *Host) rested() []*proc {
	list := h.resting
	h.resting = nil
	return slices.DeleteFunc(list, func(p *proc) bool { return !p.rests })
}

// Fork runs a call of the host's current life beside those of Go, and beside others of
// Fork: they wait together.
func (h *Host) Fork(call func(ctx context.Context)) {
	h.spawn(func() {
		ctx, cancel := h.Timeout(0)
		defer cancel()
		call(ctx)
	}).wake(0)
}

// scheduler is a host's fabric.Scheduler.
type scheduler struct{ h *Host }

// Go implements fabric.Scheduler.
func (s scheduler) Go(fn func()) { s.h.spawn(fn).wake(s.h.net.W.Between(0, s.h.net.Faults.Lag)) }

// Rest implements fabric.Scheduler: until the host's next round is over.
func (s scheduler) Rest() {
	p := s.h.net.cur
	if p == nil {
		panic("sim: a call of the fabric waits outside Host.Go: nothing could happen meanwhile")
	}
	p.rests = true
	s.h.resting = append(s.h.resting, p)
	p.park()
	p.rests = false
}

// zero is when worlds begin: contexts with deadlines on their clocks are not mistaken for others.
var zero = time.Unix(1<<40, 0)

// Zero implements fabric.Scheduler.
func (s scheduler) Zero() time.Time { return zero }

// Timeout implements fabric.Scheduler.
func (s scheduler) Timeout(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	h := s.h
	inner, cancel := context.WithCancelCause(parent)
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	t := &timeout{Context: inner, cancel: cancel, deadline: zero.Add(time.Duration(h.net.W.now) + d)}
	if at, has := parent.Deadline(); has && at.Before(t.deadline) {
		t.deadline = at
	}
	h.timeouts = append(h.timeouts, t)
	life := h.life
	if d < forever {
		h.net.W.After(d, func() {
			if h.life == life && inner.Err() == nil {
				t.late = true
				cancel(cause)
				h.kick()
			}
		})
	}
	return t, func() {
		cancel(context.Canceled)
		if i := slices.Index(h.timeouts, t); i >= 0 {
			h.timeouts = slices.Delete(h.timeouts, i, i+1)
		}
	}
}

// timeout is a context on the world's clock.
type timeout struct {
	context.Context
	cancel   context.CancelCauseFunc
	deadline time.Time
	late     bool // that is why it ended
}

// Deadline implements context.Context.
func (t *timeout) Deadline() (time.Time, bool) { return t.deadline, true }

// Err implements context.Context.
func (t *timeout) Err() error {
	if t.late {
		return context.DeadlineExceeded
	}
	return t.Context.Err()
}

// forever is longer than any world lives.
const forever = 1 << 60

// Timeout is a context that ends d from now on the world's clock (0: never), or when the
// host's current life does.
func (h *Host) Timeout(d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		d = forever
	}
	return scheduler{h}.Timeout(context.Background(), d, nil)
}
