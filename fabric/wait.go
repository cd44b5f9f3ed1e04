package fabric

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Waiter is where goroutines wait for one thing that others complete: an operation, a call, a future.
// The goroutine that completes it calls Wake afterwards, and no other waiter is woken. A Waiter that is alone drives progress itself,
// so that its answer costs no hand-over between goroutines; of several, all sleep and the background drives.
// Init comes before anything else; a Waiter must not be copied.
type Waiter struct {
	l    *leader
	ends bool // what is waited for has a deadline of its own, so Limits.OpTime is none
	room bool // it is WaitFor's: woken at each change

	asleep atomic.Int32
	mu     sync.Mutex
	ch     chan struct{} // made by the first sleeper
}

// Init says whose element the Waiter is at. What is waited for must have a deadline of its own: Wait sets it none but the context's.
func (w *Waiter) Init(e *Element) { w.l, w.ends = &e.leader, true }

// Wake wakes the waiters, which look at their conditions. It may be called from any goroutine, also from handlers.
func (w *Waiter) Wake() {
	w.l.rouse()
	if w.asleep.Load() > 0 {
		w.wake()
	}
}

// wake wakes one sleeper; each that finds its condition true wakes the next.
func (w *Waiter) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		return // its maker looks at the condition after that
	}
	select {
	case w.ch <- struct{}{}:
		w.l.woken.Store(true)
	default:
	}
}

// Wait drives progress, or sleeps while another goroutine does, until cond holds or the context ends. cond must be cheap; it is
// called on this goroutine, while handlers may run on another: what they share must be atomic. Once it has held it is not called again.
func (w *Waiter) Wait(ctx context.Context, cond func() bool) error { return w.l.wait(ctx, cond, w) }

// WaitFor is Waiter.Wait for conditions that no single goroutine completes, such as room for a message: cond is looked at after each round of progress that brought
// anything, after each Wake, and four times a second. Without a deadline in the context, Limits.OpTime is one.
func (e *Element) WaitFor(ctx context.Context, cond func() bool) error {
	return e.leader.waitRoom(ctx, cond)
}

func (l *leader) waitRoom(ctx context.Context, cond func() bool) error { return l.wait(ctx, cond, nil) }

// wait is Waiter.Wait, and WaitFor if w is nil. Its condition may do something when it holds, as a send does.
func (l *leader) wait(ctx context.Context, cond func() bool, w *Waiter) error {
	limit := int64(0) // set when the clock is first looked at
	for first := true; ; first = false {
		if cond() {
			if !first && w != nil {
				w.next()
			}
			return nil
		}
		if !first || l.closed.Load() || ctx.Err() != nil {
			if err := l.waitOver(ctx, &limit, w); err != nil {
				return err
			}
		}
		if l.el.heldN.Load() > 0 {
			l.el.letGo()
		}
		term, ok := l.takeAlone(first)
		if !ok {
			held, free := l.sleepFor(ctx, cond, w, &limit)
			if held {
				return nil
			}
			if !free {
				continue
			}
			if term, ok = l.take(false, true); !ok {
				continue
			}
		}
		if err := l.leadFor(ctx, term, &limit, cond, w); err != errTermOver {
			return err
		}
	}
}

// takeAlone takes the lead for a waiter, unless others wait already: with several, each would give it to the next at each answer.
func (l *leader) takeAlone(relieve bool) (term uint64, ok bool) {
	if l.parked.Load() > 0 {
		return 0, false
	}
	// A leader that sleeps is relieved once: waiters that went on doing that to each other would keep all of them awake.
	if term, ok = l.take(relieve, true); ok || l.foreground.Load() || l.el.cfg.Scheduler != nil {
		return term, ok
	}
	l.want.Add(1)
	defer l.want.Add(-1)
	for range relieveTries {
		runtime.Gosched()
		if term, ok = l.take(false, true); ok || l.foreground.Load() || l.parked.Load() > 0 {
			return term, ok
		}
	}
	return 0, false
}

// errTermOver says that another goroutine leads now; it is no error.
var errTermOver = fmt.Errorf("term over")

func (l *leader) waitOver(ctx context.Context, limit *int64, w *Waiter) error {
	if l.closed.Load() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if _, has := ctx.Deadline(); has || w != nil && w.ends {
		return nil
	}
	now := l.el.now()
	if *limit == 0 {
		*limit = now + int64(l.el.cfg.Limits.OpTime)
	}
	if now > *limit {
		return fmt.Errorf("fabric: no answer in %v (Limits.OpTime; give the context a deadline of its own): %w", l.el.cfg.Limits.OpTime, context.DeadlineExceeded)
	}
	return nil
}

// leadFor leads until cond holds, the context ends, or the term does.
func (l *leader) leadFor(ctx context.Context, term uint64, limit *int64, cond func() bool, w *Waiter) error {
	p := pacer{l: l}
	l.waits++
	tick := l.waits%tickWaits == 0
	if tick {
		runtime.Gosched()
	}
	for {
		n := l.poll(term)
		over := l.state.Load() != term
		if cond() {
			l.leave(term)
			return nil
		}
		if over {
			return errTermOver
		}
		pace := p.after(n)
		if pace == paceOn && !tick {
			continue
		}
		tick = false
		l.runTickers(term)
		if l.state.Load() != term {
			return errTermOver
		}
		if err := l.waitOver(ctx, limit, w); err != nil {
			l.leave(term)
			return err
		}
		if pace == paceSleep {
			var leads, held bool
			term, leads, held = l.sleepCtx(ctx, term, cond)
			if leads && held {
				l.leave(term)
			}
			if held {
				return nil
			}
			if !leads {
				return errTermOver
			}
			p.reset()
		}
	}
}

// sleepCtx is sleep for a waiter: its context wakes it too.
func (l *leader) sleepCtx(ctx context.Context, term uint64, cond func() bool) (now uint64, leads, held bool) {
	if l.epfd < 0 {
		runtime.Gosched()
		return term, true, false
	}
	l.watch(ctx)
	l.want.Add(1) // from now on the goroutine that makes cond true rings
	defer l.want.Add(-1)
	return l.sleep(ctx, term, time.Duration(l.tick.Load()), cond)
}

// watch has the end of a context ring for the leader, which is about to sleep. The last context stays watched, as callers often have one for
// many waits, and to watch it takes allocations.
func (l *leader) watch(ctx context.Context) {
	done := ctx.Done()
	if done == nil || done == l.watched {
		return
	}
	if l.unwatch != nil {
		l.unwatch()
	}
	l.watched, l.unwatch = done, context.AfterFunc(ctx, l.ring)
}

// sleepFor parks on w, or on a Waiter of its own.
func (l *leader) sleepFor(ctx context.Context, cond func() bool, w *Waiter, limit *int64) (held, free bool) {
	if w != nil {
		if held, free = l.park(ctx, cond, w, limit); held {
			w.next()
		}
		return held, free
	}
	if w = l.waiters.get(); w == nil {
		w = &Waiter{l: l, room: true}
	}
	defer l.waiters.put(w)
	return l.park(ctx, cond, w, limit)
}

// park sleeps until the waiter is woken, while another goroutine leads. It reports whether cond held, and whether no goroutine led.
func (l *leader) park(ctx context.Context, cond func() bool, w *Waiter, limit *int64) (held, free bool) {
	if s := l.el.cfg.Scheduler; s != nil {
		if cond() {
			return true, false
		}
		s.Rest()
		return false, true
	}
	ch := w.lieDown()
	defer w.asleep.Add(-1)
	l.parked.Add(1)
	defer l.parked.Add(-1)
	if w.room {
		l.enlist(w)
		defer l.delist(w)
	}
	if cond() {
		return true, false
	}
	if l.role() == roleFree {
		if l.parked.Load() == 1 || l.epfd < 0 {
			return false, true
		}
		l.nudge()
	}
	until := l.bedtime(ctx, w, limit)
	if until == 0 {
		select {
		case <-ch:
		case <-ctx.Done():
		case <-l.over:
		}
		return false, false
	}
	timer := l.timers.get()
	if timer == nil {
		timer = time.NewTimer(until)
	} else {
		timer.Reset(until)
	}
	select {
	case <-ch:
	case <-timer.C:
	case <-ctx.Done():
	case <-l.over:
	}
	timer.Stop() // nothing of it is left in its channel
	l.timers.put(timer)
	return false, false
}

// bedtime is how long a waiter sleeps if it is not woken; 0: as long as its context lasts.
func (l *leader) bedtime(ctx context.Context, w *Waiter, limit *int64) time.Duration {
	if l.epfd < 0 { // no goroutine leads in the background
		return backgroundPeriod
	}
	if _, has := ctx.Deadline(); has || w.ends {
		return 0
	}
	now := l.el.now()
	if *limit == 0 {
		*limit = now + int64(l.el.cfg.Limits.OpTime)
	}
	return max(time.Duration(*limit-now), 0) + time.Millisecond
}

// lieDown announces a sleeper on the channel. The caller looks at its condition again afterwards.
func (w *Waiter) lieDown() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	w.asleep.Add(1)
	return w.ch
}

// next wakes one more sleeper, after one that found its condition true.
func (w *Waiter) next() {
	if w.asleep.Load() > 0 {
		w.wake()
	}
}

// enlist has the waiter woken at each change.
func (l *leader) enlist(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, w)
	l.rooms.Store(int32(len(l.waiting)))
}

func (l *leader) delist(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == w {
			last := len(l.waiting) - 1
			l.waiting[i] = l.waiting[last]
			l.waiting[last] = nil
			l.waiting = l.waiting[:last]
			break
		}
	}
	l.rooms.Store(int32(len(l.waiting)))
}

// rouse rings for a waiter that sleeps as the leader, which must look at its condition.
func (l *leader) rouse() {
	if l.want.Load() > 0 && l.role() == roleAsleep {
		l.ring()
	}
}

// changed makes all waiters of WaitFor look at their conditions.
func (l *leader) changed() {
	l.rouse()
	if l.rooms.Load() > 0 {
		l.wakeRooms()
	}
}

func (l *leader) wakeRooms() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		w.wake()
	}
}
