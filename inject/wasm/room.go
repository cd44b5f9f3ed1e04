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

func (u *usage) add(bytes uint64)  { u.live, u.bytes = u.live+1, u.bytes+bytes }
func (u *usage) take(bytes uint64) { u.live, u.bytes = u.live-1, u.bytes-bytes }

// less is what is taken but for what idle instances take, which make room for others.
func (u usage) less(idle usage) usage { return usage{u.live - idle.live, u.bytes - idle.bytes} }

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

// Need is how many bytes an instance of the binding takes of Config.MemoryBytes.
func (b *Binding) Need() uint64 {
	n := ownBytes(b.program.limits)
	if b.program.recursive {
		n += stackBytes
	}
	return n
}

// Place is room for one instance, taken by Binding.Reserve.
type Place struct {
	binding *Binding
	idle    *Instance   // the one that was there; nil: one is to be made
	victims []*Instance // to be closed, off the count already
}

// Reserve takes room for one instance: that of an idle one, the one used last, or new. At Config.MaxInstances or
// MemoryBytes, or at three quarters of them for one principal, the longest idle instances of any binding make room; if that does not
// suffice, all stay, and the error is abi.ErrShareBusy for the principal's part, else abi.ErrEngineBusy.
func (b *Binding) Reserve() (Place, error) {
	e := b.program.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(b.idle); n > 0 {
		in := b.idle[n-1]
		e.take(in)
		if invariants.Enabled && in.binding != b {
			panic("wasm: an idle instance of another binding")
		}
		return Place{binding: b, idle: in}, nil
	}
	if b.closed || e.closed {
		return Place{}, ErrClosed
	}
	need, u := b.Need(), b.user
	if busy := u.all.less(u.idle); busy.live > 0 && e.beyond(busy, need, share(e.config.MaxInstances), share(e.config.MemoryBytes)) {
		return Place{}, abi.ErrShareBusy
	}
	if busy := e.all.less(e.unused); busy.live > 0 && e.beyond(busy, need, e.config.MaxInstances, e.config.MemoryBytes) {
		return Place{}, abi.ErrEngineBusy
	}
	p := Place{binding: b}
	for u.all.live > 0 && e.beyond(u.all, need, share(e.config.MaxInstances), share(e.config.MemoryBytes)) {
		p.victims = append(p.victims, e.evict(u))
	}
	for e.all.live > 0 && e.beyond(e.all, need, e.config.MaxInstances, e.config.MemoryBytes) {
		p.victims = append(p.victims, e.evict(nil))
	}
	e.all.add(need)
	u.all.add(need)
	return p, nil
}

// beyond reports whether one more instance is too much.
func (e *Engine) beyond(u usage, need uint64, instances int, bytes uint64) bool {
	return u.live+1 > instances || u.bytes+need > bytes
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

// Acquire gives the instance that was there or makes one. Making the first one compiles the program, which ctx does not
// interrupt; every one runs its start function and _initialize, bounded by ctx and the program's RunTime. After an error the
// room is given back.
func (p Place) Acquire(ctx context.Context) (*Instance, error) {
	if in := p.idle; in != nil {
		return in, nil
	}
	p.clear()
	e := p.binding.program.engine
	in, err := p.binding.create(ctx)
	if err != nil {
		e.leave(p.binding)
		return nil, err
	}
	e.count(&e.stats.Created)
	return in, nil
}

// Release gives the room back, if Acquire was not called.
func (p Place) Release() {
	if p.idle != nil {
		p.idle.Release()
		return
	}
	p.clear()
	p.binding.program.engine.leave(p.binding)
}

func (p Place) clear() {
	for _, v := range p.victims {
		v.discard()
	}
}

// Acquire is Reserve and then Place.Acquire. If there is no room, the error is ErrBusy.
func (b *Binding) Acquire(ctx context.Context) (*Instance, error) {
	p, err := b.Reserve()
	if err != nil {
		return nil, b.explain(err)
	}
	return p.Acquire(ctx)
}

// explain says how much of the room is taken.
func (b *Binding) explain(err error) error {
	e := b.program.engine
	e.mu.Lock()
	all, u := e.all, b.user.all
	e.mu.Unlock()
	switch err {
	case abi.ErrShareBusy:
		return fmt.Errorf("%w (%q has %d instances of %d, %d MiB of %d; %d MiB are needed)", ErrBusy, b.principal,
			u.live, share(e.config.MaxInstances), u.bytes>>20, share(e.config.MemoryBytes)>>20, b.Need()>>20)
	case abi.ErrEngineBusy:
		return fmt.Errorf("%w (%d instances of %d, %d MiB of %d; %d MiB are needed)", ErrBusy,
			all.live, e.config.MaxInstances, all.bytes>>20, e.config.MemoryBytes>>20, b.Need()>>20)
	}
	return err
}

// forget takes an idle instance, which the caller will close, off the count: under mu.
func (e *Engine) forget(in *Instance) {
	e.take(in)
	need, u := in.binding.Need(), in.binding.user
	e.all.take(need)
	u.all.take(need)
	e.vacate(u)
}

// leave takes an instance, gone by now, off the count. The last one to leave a
// closed engine closes its lanes.
func (e *Engine) leave(b *Binding) {
	need := b.Need()
	e.mu.Lock()
	e.all.take(need)
	b.user.all.take(need)
	e.vacate(b.user)
	last := e.closed && e.all.live == 0
	e.mu.Unlock()
	if last {
		if err := e.closeLanes(); err != nil {
			e.config.Log.Warn("wasm: closing the runtime", "err", err)
		}
	}
}

// take removes an idle instance from its pool: under mu.
func (e *Engine) take(in *Instance) {
	in.lru.remove()
	need := in.binding.Need()
	e.unused.take(need)
	in.binding.user.idle.take(need)
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

// release puts an instance back, or discards it if it failed or the pool is gone.
func (b *Binding) release(in *Instance) {
	e := b.program.engine
	e.mu.Lock()
	if !in.broken && !b.closed && !e.closed {
		b.idle = append(b.idle, in)
		e.idle.append(in)
		need := b.Need()
		e.unused.add(need)
		b.user.idle.add(need)
		e.mu.Unlock()
		return
	}
	if in.broken {
		e.stats.Failed++
	}
	e.mu.Unlock()
	in.discard()
	e.leave(b)
}

// discard closes an instance that is in no pool.
func (in *Instance) discard() {
	in.close()
	in.binding.program.drop()
}
