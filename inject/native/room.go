package native

import (
	"context"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/invariants"
)

// usage is what workers take of an engine.
type usage struct {
	live  int // running and idle
	bytes uint64
}

func (u usage) plus(o usage) usage { return usage{u.live + o.live, u.bytes + o.bytes} }
func (u usage) less(o usage) usage { return usage{u.live - o.live, u.bytes - o.bytes} }

// beyond reports whether one more worker is too much.
func (u usage) beyond(need uint64, workers int, bytes uint64) bool {
	return u.live+1 > workers || u.bytes+need > bytes
}

// user is one principal's part of an engine.
type user struct {
	principal string
	bounds    int
	all       usage
	loaded    loaded // for it; others may run it too
}

// share is the part of its room that an engine gives to one principal: three quarters, so that there is always some left for another's.
func share[T int | uint64](limit T) T { return limit - limit/4 }

// userOf finds or makes a principal's part: under mu.
func (e *Engine) userOf(principal string) *user {
	u := e.users[principal]
	if u == nil {
		u = &user{principal: principal}
		e.users[principal] = u
	}
	return u
}

// userFor is userOf for one more bound.
func (e *Engine) userFor(principal string) *user {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := e.userOf(principal)
	u.bounds++
	return u
}

// vacate forgets a principal that has nothing here: under mu.
func (e *Engine) vacate(u *user) {
	if u.bounds == 0 && u.all.live == 0 && u.loaded.programs == 0 {
		delete(e.users, u.principal)
	}
}

// recharge charges a principal for what a worker is now instead of what it was: under mu.
func (e *Engine) recharge(u *user, was, is usage) {
	e.all = e.all.less(was).plus(is)
	u.all = u.all.less(was).plus(is)
}

// takeIdle takes the idle workers that match off the list and off the count; the caller discards them. Under mu.
func (e *Engine) takeIdle(match func(*instance) bool) (taken []*instance) {
	e.idle = slices.DeleteFunc(e.idle, func(in *instance) bool {
		if !match(in) {
			return false
		}
		taken = append(taken, in)
		return true
	})
	for _, in := range taken {
		e.recharge(in.bound.user, in.usage(), usage{})
		e.vacate(in.bound.user)
	}
	return taken
}

// idleUsage is what a principal's idle workers take, or those of all if u is nil: under mu.
func (e *Engine) idleUsage(u *user) (sum usage) {
	for _, in := range e.idle {
		if u == nil || in.bound.user == u {
			sum = sum.plus(in.usage())
		}
	}
	return sum
}

// admit charges a principal need bytes for a worker that has been charged for what it has; nothing if it is new. It
// takes the longest idle workers off the count that have to end for it; if that does not suffice, all stay: under mu.
func (e *Engine) admit(u *user, has usage, need uint64) (victims []*instance, err error) {
	workers, bytes := e.config.MaxWorkers, e.config.MemoryBytes
	if busy := u.all.less(e.idleUsage(u)).less(has); busy.live > 0 && busy.beyond(need, share(workers), share(bytes)) {
		return nil, abi.ErrShareBusy
	}
	if busy := e.all.less(e.idleUsage(nil)).less(has); busy.live > 0 && busy.beyond(need, workers, bytes) {
		return nil, abi.ErrEngineBusy
	}
	evict := func(of *user) {
		found := false
		victims = append(victims, e.takeIdle(func(in *instance) bool {
			take := !found && (of == nil || in.bound.user == of)
			found = found || take
			return take
		})...)
		e.stats.Evicted++
	}
	for others := u.all.less(has); others.live > 0 && others.beyond(need, share(workers), share(bytes)); others = u.all.less(has) {
		evict(u)
	}
	for others := e.all.less(has); others.live > 0 && others.beyond(need, workers, bytes); others = e.all.less(has) {
		evict(nil)
	}
	e.recharge(u, has, usage{1, need})
	return victims, nil
}

// place is room for one worker.
type place struct {
	bound   *bound
	extra   uint64      // room for scratch
	idle    *instance   // the one that was there; nil: one is to be made
	victims []*instance // to be ended, off the count already
}

// Reserve takes room for one worker with so much scratch: that of the bound's idle one that was used last, or new.
func (b *bound) Reserve(scratch uint64) (abi.Place, error) {
	e := b.program.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.closed || e.closed {
		return nil, ErrClosed
	}
	p := &place{bound: b, extra: b.extra(scratch)}
	has, at := usage{}, -1
	for i, in := range e.idle {
		if in.bound == b {
			at = i
		}
	}
	if at >= 0 {
		p.idle = e.idle[at]
		has = p.idle.usage()
		e.idle = slices.Delete(e.idle, at, at+1)
	}
	var err error
	if p.victims, err = e.admit(b.user, has, b.base+p.extra); err != nil {
		if p.idle != nil {
			e.idle = slices.Insert(e.idle, at, p.idle)
		}
		return nil, err
	}
	if p.idle != nil {
		p.idle.reserved = p.extra
	} else {
		b.live++ // from here on: the windows stay if the bound is closed before the worker is made
	}
	return p, nil
}

func (p *place) clear() {
	for _, v := range p.victims {
		v.discard()
	}
	p.victims = nil
}

// Ready reports whether a worker is there, and no other one has to end first.
func (p *place) Ready() bool { return p.idle != nil && len(p.victims) == 0 }

// Acquire gives the worker that was there or makes one. An error gives the room back.
func (p *place) Acquire(ctx context.Context) (abi.Instance, error) {
	p.clear()
	if p.idle != nil {
		return p.idle, nil
	}
	e := p.bound.program.engine
	in, err := p.bound.start(ctx)
	if err != nil {
		e.leave(p.bound, usage{1, p.bound.base + p.extra})
		p.bound.left()
		return nil, err
	}
	in.reserved = p.extra
	e.mu.Lock()
	e.stats.Created++
	e.mu.Unlock()
	return in, nil
}

// Release gives the room back, if Acquire was not called.
func (p *place) Release() {
	p.clear()
	if p.idle != nil {
		p.idle.Release()
		return
	}
	p.bound.program.engine.leave(p.bound, usage{1, p.bound.base + p.extra})
	p.bound.left()
}

// leave takes a worker, or room that was for one, off the count.
func (e *Engine) leave(b *bound, was usage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recharge(b.user, was, usage{})
	e.vacate(b.user)
}

// usage is what the instance is charged.
func (in *instance) usage() usage { return usage{1, in.bound.base + in.reserved} }

// extend charges a running instance for bytes of scratch in all. The error, if there is no room, is abi.ErrShareBusy or
// ErrEngineBusy, and says how much there is.
func (e *Engine) extend(in *instance, bytes uint64) error {
	b := in.bound
	if bytes = b.extra(bytes); bytes <= in.reserved {
		return nil
	}
	e.mu.Lock()
	victims, err := e.admit(b.user, in.usage(), b.base+bytes)
	if err == nil {
		in.reserved = bytes
	}
	all, own := e.all, b.user.all
	e.mu.Unlock()
	for _, v := range victims {
		v.discard()
	}
	if err != nil {
		return fmt.Errorf("%w (%w: %q has %d workers of %d and %d MiB of %d, all have %d and %d MiB; %d KiB more are needed)", ErrBusy, err, b.user.principal,
			own.live, share(e.config.MaxWorkers), own.bytes>>20, share(e.config.MemoryBytes)>>20, all.live, all.bytes>>20, bytes>>10)
	}
	return nil
}

// Release gives the worker back, its scratch gone. One that failed, or whose bound is closed, ends.
func (in *instance) Release() {
	if in.running {
		if invariants.Enabled {
			panic("native: an instance is released while it runs")
		}
		return
	}
	e := in.bound.program.engine
	if !in.broken && in.scratch > 0 {
		in.broken = in.process.resizeScratch(0) != nil
		in.scratch = 0
	}
	e.mu.Lock()
	was := in.usage()
	in.reserved = 0
	if !in.broken && !in.bound.closed && !e.closed {
		e.recharge(in.bound.user, was, in.usage())
		if invariants.Enabled && slices.Contains(e.idle, in) {
			panic("native: an instance is released twice")
		}
		e.idle = append(e.idle, in)
		e.mu.Unlock()
		return
	}
	if in.broken {
		e.stats.Failed++
	}
	e.recharge(in.bound.user, was, usage{})
	e.vacate(in.bound.user)
	e.mu.Unlock()
	in.discard()
}

// discard ends a worker that is off the count.
func (in *instance) discard() {
	in.process.end()
	in.bound.left()
}
