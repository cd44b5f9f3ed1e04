package wasm

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/invariants"
)

// usage is what instances take of an engine.
type usage struct {
	live  int    // instances, running and idle
	bytes uint64 // of their memory and stacks, windows not counted
}

func (u usage) plus(o usage) usage { return usage{u.live + o.live, u.bytes + o.bytes} }
func (u usage) less(o usage) usage { return usage{u.live - o.live, u.bytes - o.bytes} }

// user is one principal's part of an engine.
type user struct {
	principal string
	bindings  int
	all, idle usage
}

// stackBytes is charged for the stack of a function that recurs: wazero lets it grow to about that, and no limit of ours
// does. What others need is known from their code, and is little.
const stackBytes = 100 << 20

// share is the part of its room that an engine gives to one principal: three quarters, so that there is
// always some left for another's.
func share[T int | uint64](limit T) T { return limit - limit/4 }

// userOf finds or makes a principal's part, for one more binding.
func (e *Engine) userOf(principal string) *user {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := e.users[principal]
	if u == nil {
		u = &user{principal: principal}
		e.users[principal] = u
	}
	u.bindings++
	return u
}

// vacate forgets a principal that has nothing here: under mu.
func (e *Engine) vacate(u *user) {
	if u.bindings == 0 && u.all.live == 0 {
		delete(e.users, u.principal)
	}
}

// needs is what an instance takes of Config.MemoryBytes, with the stack of one that recurs, and with all of its scratch or
// none.
func (p *Program) needs(scratch bool) uint64 {
	l := p.room
	if !scratch {
		l.ScratchBytes = 0
	}
	n := ownBytes(l)
	if p.recursive {
		n += stackBytes
	}
	return n
}

// Need is how many bytes an instance of the binding takes of Config.MemoryBytes whose run asks for so much scratch.
func (b *Binding) Need(scratch uint64) uint64 { return b.base + b.extra(scratch) }

// extra is what scratch takes beyond base.
func (b *Binding) extra(scratch uint64) uint64 {
	if b.ahead {
		return 0
	}
	return pages(min(scratch, b.program.room.ScratchBytes))
}

// Place is room for one instance, taken by Binding.Reserve.
type Place struct {
	binding *Binding
	extra   uint64      // room for scratch
	idle    *Instance   // the one that was there; nil: one is to be made
	victims []*Instance // to be closed, off the count already
}

// Reserve takes room for one instance with so much scratch: that of an idle one, the one used last, or new. At Config.MaxInstances or
// MemoryBytes, or at three quarters of them for one principal, the longest idle instances of any binding make room; if that does not
// suffice, all stay, and the error is abi.ErrShareBusy for the principal's part, else abi.ErrEngineBusy.
func (b *Binding) Reserve(scratch uint64) (Place, error) {
	e := b.program.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	p := Place{binding: b, extra: b.extra(scratch)}
	has := usage{}
	if n := len(b.idle); n > 0 {
		p.idle = b.idle[n-1]
		has = p.idle.usage()
		if invariants.Enabled && p.idle.binding != b {
			panic("wasm: an idle instance of another binding")
		}
		e.take(p.idle)
	} else if b.closed || e.closed {
		return Place{}, ErrClosed
	}
	var err error
	if p.victims, err = e.admit(b.user, has, b.base+p.extra); err != nil {
		if p.idle != nil {
			e.put(p.idle)
		}
		return Place{}, err
	}
	if p.idle != nil {
		p.idle.reserved = p.extra
	}
	return p, nil
}

// admit charges a principal need bytes for an instance that has been charged for what it has; nothing if it is new. It takes
// those off the count that have to be closed for it: under mu.
func (e *Engine) admit(u *user, has usage, need uint64) (victims []*Instance, err error) {
	most, bytes := share(e.config.MaxInstances), share(e.config.MemoryBytes)
	if busy := u.all.less(u.idle).less(has); busy.live > 0 && busy.beyond(need, most, bytes) {
		return nil, abi.ErrShareBusy
	}
	if busy := e.all.less(e.unused).less(has); busy.live > 0 && busy.beyond(need, e.config.MaxInstances, e.config.MemoryBytes) {
		return nil, abi.ErrEngineBusy
	}
	for others := u.all.less(has); others.live > 0 && others.beyond(need, most, bytes); others = u.all.less(has) {
		victims = append(victims, e.evict(u))
	}
	for others := e.all.less(has); others.live > 0 && others.beyond(need, e.config.MaxInstances, e.config.MemoryBytes); others = e.all.less(has) {
		victims = append(victims, e.evict(nil))
	}
	e.recharge(u, has, usage{1, need})
	return victims, nil
}

// recharge charges a principal for what an instance is now instead of what it was: under mu.
func (e *Engine) recharge(u *user, was, is usage) {
	e.all = e.all.less(was).plus(is)
	u.all = u.all.less(was).plus(is)
}

// beyond reports whether one more instance is too much.
func (u usage) beyond(need uint64, instances int, bytes uint64) bool {
	return u.live+1 > instances || u.bytes+need > bytes
}

// usage is what the instance is charged.
func (in *Instance) usage() usage { return usage{1, in.binding.base + in.reserved} }

// extend charges a running instance for bytes of scratch in all, at least what it is charged now. The error, if there is no room,
// is abi.ErrShareBusy or ErrEngineBusy, and says how much there is.
func (e *Engine) extend(in *Instance, bytes uint64) error {
	b := in.binding
	if bytes = b.extra(bytes); bytes <= in.reserved {
		return nil
	}
	e.mu.Lock()
	victims, err := e.admit(b.user, in.usage(), b.base+bytes)
	if err == nil {
		in.reserved = bytes
	}
	e.mu.Unlock()
	for _, v := range victims {
		v.discard()
	}
	return b.explain(err, bytes)
}

// shorten gives back what an instance is charged for scratch beyond what it has.
func (e *Engine) shorten(in *Instance) {
	e.mu.Lock()
	was := in.usage()
	in.reserved = in.binding.extra(in.scratch)
	e.recharge(in.binding.user, was, in.usage())
	e.mu.Unlock()
}

// evict takes the longest idle instance, if u is not nil of that principal, off the count: under mu.
func (e *Engine) evict(u *user) *Instance {
	victim := e.idle.oldest()
	for u != nil && victim.binding.user != u {
		victim = victim.lru.next.owner
	}
	e.forget(victim)
	e.stats.Evicted++
	return victim
}

// Ready reports whether an instance is there, and no other one has to end first.
func (p Place) Ready() bool { return p.idle != nil && len(p.victims) == 0 }

// Acquire gives the instance that was there or makes one. Making the first one compiles the program, which ctx does not
// interrupt; every one runs its start function and _initialize, bounded by ctx and the program's RunTime. After an error the
// room is given back.
func (p Place) Acquire(ctx context.Context) (*Instance, error) {
	p.clear()
	if in := p.idle; in != nil {
		return in, nil
	}
	e := p.binding.program.engine
	in, err := p.binding.create(ctx)
	if err != nil {
		e.leave(p.binding, usage{1, p.binding.base + p.extra})
		return nil, err
	}
	in.reserved = p.extra
	e.count(&e.stats.Created)
	return in, nil
}

// Release gives the room back, if Acquire was not called.
func (p Place) Release() {
	p.clear()
	if p.idle != nil {
		p.idle.Release()
		return
	}
	p.binding.program.engine.leave(p.binding, usage{1, p.binding.base + p.extra})
}

func (p Place) clear() {
	for _, v := range p.victims {
		v.discard()
	}
}

// Acquire is Reserve, without scratch, and then Place.Acquire. If there is no room, the error is ErrBusy.
func (b *Binding) Acquire(ctx context.Context) (*Instance, error) {
	p, err := b.Reserve(0)
	if err != nil {
		return nil, b.explain(err, 0)
	}
	return p.Acquire(ctx)
}

// explain says of an error for want of room how much of it is taken.
func (b *Binding) explain(err error, scratch uint64) error {
	e := b.program.engine
	e.mu.Lock()
	all, u := e.all, b.user.all
	e.mu.Unlock()
	switch err {
	case abi.ErrShareBusy:
		return fmt.Errorf("%w (%w: %q has %d instances of %d, %d MiB of %d; %d KiB are needed)", ErrBusy, err, b.principal,
			u.live, share(e.config.MaxInstances), u.bytes>>20, share(e.config.MemoryBytes)>>20, b.Need(scratch)>>10)
	case abi.ErrEngineBusy:
		return fmt.Errorf("%w (%d instances of %d, %d MiB of %d; %d KiB are needed)", ErrBusy,
			all.live, e.config.MaxInstances, all.bytes>>20, e.config.MemoryBytes>>20, b.Need(scratch)>>10)
	}
	return err
}

// forget takes an idle instance, which the caller will close, off the count: under mu.
func (e *Engine) forget(in *Instance) {
	e.take(in)
	u := in.binding.user
	e.recharge(u, in.usage(), usage{})
	e.vacate(u)
}

// leave takes an instance, gone by now, off the count. The last one to leave a
// closed engine closes its lanes.
func (e *Engine) leave(b *Binding, was usage) {
	e.mu.Lock()
	e.recharge(b.user, was, usage{})
	e.vacate(b.user)
	last := e.closed && e.all.live == 0
	e.mu.Unlock()
	if last {
		if err := e.closeLanes(); err != nil {
			e.config.Log.Warn("wasm: closing the runtime", "err", err)
		}
	}
}

// put adds an instance to its idle ones: under mu.
func (e *Engine) put(in *Instance) {
	b := in.binding
	b.idle = append(b.idle, in)
	e.idle.append(in)
	e.unused, b.user.idle = e.unused.plus(in.usage()), b.user.idle.plus(in.usage())
}

// take removes an idle instance from its pool: under mu.
func (e *Engine) take(in *Instance) {
	in.lru.remove()
	u := in.binding.user
	e.unused, u.idle = e.unused.less(in.usage()), u.idle.less(in.usage())
	idle := in.binding.idle
	for i := len(idle) - 1; i >= 0; i-- {
		if idle[i] == in {
			copy(idle[i:], idle[i+1:])
			idle[len(idle)-1] = nil
			in.binding.idle = idle[:len(idle)-1]
			return
		}
	}
}

// release puts an instance back, charged for no scratch any more, or discards it if it failed or the pool is gone.
func (b *Binding) release(in *Instance) {
	e := b.program.engine
	e.mu.Lock()
	if !in.broken && !b.closed && !e.closed {
		was := in.usage()
		in.reserved = 0
		e.recharge(b.user, was, in.usage())
		e.put(in)
		e.mu.Unlock()
		return
	}
	if in.broken {
		e.stats.Failed++
	}
	e.mu.Unlock()
	in.discard()
	e.leave(b, in.usage())
}

// discard closes an instance that is in no pool.
func (in *Instance) discard() {
	in.close()
	in.binding.program.drop()
}
