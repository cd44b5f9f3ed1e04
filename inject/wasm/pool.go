package wasm

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm/internal/linear"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// Binding is a program for one principal with one set of windows: the pool that
// instances come from. Instances never move to another binding, so what a
// principal leaves in memory only that principal's runs can find.
//
// The caller keeps a Binding as long as the principal, and the windows'
// descriptors, stay what they were, and closes it when any of them changes.
// Descriptors must stay open while the binding is.
type Binding struct {
	program   *Program
	principal string
	windows   []abi.Window
	ids       []identity
	layout    layout
	user      *user
	check     bool   // there is what must not be written: read-only windows, or scratch that was not asked for
	base      uint64 // charged for each instance, besides scratch as it is asked for
	ahead     bool   // all scratch is in base: the function writes to windows, so that it cannot start over when there is no room

	idle   []*Instance // under Engine.mu; the last one was used last
	closed bool        // under Engine.mu
}

// Bind checks the windows (a system call or two for each) and lays them out. Errors are *WindowError, *LimitError
// and ErrClosed.
func (p *Program) Bind(principal string, windows []abi.Window) (*Binding, error) {
	lay, err := plan(p.room, windows, slices.Contains(p.imports, callWindowAt))
	if err != nil {
		return nil, err
	}
	b := &Binding{program: p, principal: principal, layout: lay, check: p.scratches}
	b.windows = append(b.windows, windows...)
	for i, w := range windows {
		id, err := inspect(w)
		if err != nil {
			return nil, &WindowError{i, err}
		}
		b.ids = append(b.ids, id)
		b.check = b.check || !w.Writable && w.Size > 0
		b.ahead = b.ahead || w.Writable && w.Size > 0
	}
	b.base = p.needs(b.ahead)
	if err := p.hold(); err != nil {
		return nil, err
	}
	b.user = p.engine.userOf(principal)
	return b, nil
}

// Principal is whom the binding was made for.
func (b *Binding) Principal() string { return b.principal }

// closeIdle closes the idle instances that match.
func (e *Engine) closeIdle(match func(*Instance) bool) {
	e.mu.Lock()
	var victims []*Instance
	for item := e.idle.next; item != &e.idle; {
		in := item.owner
		item = item.next
		if match(in) {
			e.forget(in)
			victims = append(victims, in)
		}
	}
	e.mu.Unlock()
	for _, in := range victims {
		in.discard()
	}
}

// Close closes the idle instances; running ones are closed when they are released.
func (b *Binding) Close() {
	e := b.program.engine
	e.mu.Lock()
	if b.closed {
		e.mu.Unlock()
		return
	}
	b.closed = true
	b.user.bindings--
	e.vacate(b.user)
	e.mu.Unlock()
	e.closeIdle(func(in *Instance) bool { return in.binding == b })
	b.program.drop()
}

// create makes an instance and runs what the module wants run first.
func (b *Binding) create(ctx context.Context) (*Instance, error) {
	p := b.program
	if err := p.hold(); err != nil {
		return nil, err
	}
	in, err := b.instantiate()
	if err == nil {
		if err = in.start(ctx); err == nil {
			err = in.remember()
		}
		if err == nil {
			return in, nil
		}
		in.close()
	}
	p.drop()
	return nil, err
}

func (b *Binding) instantiate() (*Instance, error) {
	p := b.program
	v, err := p.compiled(b.check)
	if err != nil {
		return nil, err
	}
	for i, w := range b.windows {
		// The numbers may mean other files by now.
		if id, err := inspect(w); err != nil {
			return nil, &WindowError{i, err}
		} else if id != b.ids[i] {
			return nil, &WindowError{i, fmt.Errorf("descriptor %d is another memfd than when the window was bound; close the binding before its descriptors", w.FD)}
		}
	}
	memory, err := linear.Map(b.layout.end, b.layout.views(b.windows))
	if err != nil {
		return nil, err
	}
	if err := memory.Small(b.layout.scratch, b.layout.store); err != nil {
		memory.Free()
		return nil, err
	}
	in := &Instance{binding: b, memory: memory, mem: memory.Bytes(), limits: &p.limits, replies: p.replies, forwards: p.forwards,
		address: b.layout.inbox}
	in.area = in.mem[b.layout.inbox:][:pages(boxBytes+p.room.PayloadBytes)-boxBytes]
	in.box = in.mem[b.layout.mailbox:][:wasmcode.MailboxBytes]
	in.lru.owner = in
	for i := range b.layout.windows {
		if b.layout.windows[i].slides() {
			in.parts = make([]uint64, len(b.layout.windows))
		}
	}
	ctx := experimental.WithMemoryAllocator(context.Background(),
		experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return memory }))
	in.module, err = v.lane.runtime.InstantiateModule(ctx, v.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		in.close()
		return nil, &CodeError{fmt.Errorf("instantiate: %w", err)}
	}
	in.entry = in.module.ExportedFunction(abi.Entry)
	in.fuel = in.global(wasmcode.ExportFuel)
	in.fuel.Set(firstFuel)
	in.global(wasmcode.ExportHeapLimit).Set(b.layout.heap / pageBytes)
	in.stores = in.global(wasmcode.ExportStoreLimit)
	in.allow()
	in.global(wasmcode.ExportMailbox).Set(b.layout.mailbox)
	for i := range min(len(b.layout.windows), wasmcode.FastWindows) {
		w := &b.layout.windows[i]
		if w.slides() {
			continue
		}
		in.global(wasmcode.ExportWindow + strconv.Itoa(2*i)).Set(w.addr | uint64(w.flags())<<32)
		in.global(wasmcode.ExportWindow + strconv.Itoa(2*i+1)).Set(w.size)
	}
	return in, nil
}

// global is a global that the instrumentation added.
func (in *Instance) global(name string) api.MutableGlobal {
	return in.module.ExportedGlobal(name).(api.MutableGlobal)
}

// start runs the start function and _initialize, in that order, as one run.
func (in *Instance) start(ctx context.Context) error {
	in.host = startHost{ctx.Err}
	defer func() { in.host = nil }()
	for _, name := range []string{wasmcode.ExportStart, initExport} {
		if f := in.module.ExportedFunction(name); f != nil {
			if err := in.call(f); err != nil {
				return fmt.Errorf("wasm: %s: %w", name, err)
			}
		}
	}
	return nil
}

// listItem is an element of the engine's list of idle instances, oldest first.
type listItem struct {
	prev, next *listItem
	owner      *Instance
}

func (l *listItem) init() { l.prev, l.next = l, l }

func (l *listItem) oldest() *Instance { return l.next.owner }

func (l *listItem) append(in *Instance) {
	i := &in.lru
	i.prev, i.next = l.prev, l
	l.prev.next, l.prev = i, i
}

func (l *listItem) remove() {
	l.prev.next, l.next.prev = l.next, l.prev
	l.prev, l.next = nil, nil
}
