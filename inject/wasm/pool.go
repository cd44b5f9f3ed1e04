package wasm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/room"
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
	*room.Pool
	program *Program
	windows []abi.Window
	ids     []identity
	layout  layout
	shown   []atomic.Uint32 // by window: how often it was mapped at the layout's stage
	check   bool            // there is what must not be written: read-only windows, or scratch that was not asked for
}

// Bind checks the windows (a system call or two for each) and lays them out. Errors are *WindowError, *LimitError
// and ErrClosed.
func (p *Program) Bind(principal string, windows []abi.Window) (*Binding, error) {
	lay, err := plan(p.room, windows, slices.Contains(p.imports, callWindowAt))
	if err != nil {
		return nil, err
	}
	b := &Binding{program: p, layout: lay, check: p.scratches}
	ahead := false // all scratch is charged at once: the function writes to windows, so that it cannot start over when there is no room
	b.windows = append(b.windows, windows...)
	b.shown = make([]atomic.Uint32, len(windows))
	for i, w := range windows {
		id, err := inspect(w)
		if err != nil {
			return nil, &WindowError{i, err}
		}
		b.ids = append(b.ids, id)
		b.check = b.check || !w.Writable && w.Size > 0
		ahead = ahead || w.Writable && w.Size > 0
	}
	if err := p.hold(); err != nil {
		return nil, err
	}
	most := pages(p.room.ScratchBytes)
	if ahead {
		most = 0
	}
	b.Pool = p.engine.room.Pool(principal, b, p.needs(ahead), most)
	return b, nil
}

// Prepare makes the machine code, if it is not there yet: what comes after it takes microseconds. The context's end ends that where a compiler process is at it.
func (b *Binding) Prepare(ctx context.Context) error {
	_, err := b.program.compiled(ctx, b.Principal(), b.check)
	return err
}

func (b *Binding) instantiate(ctx context.Context) (*Instance, error) {
	p := b.program
	v, err := p.compiled(ctx, b.Principal(), b.check)
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
		address: b.layout.inbox, staged: -1}
	in.area = in.mem[b.layout.inbox:][:pages(boxBytes+p.room.PayloadBytes)-boxBytes]
	in.box = in.mem[b.layout.mailbox:][:wasmcode.MailboxBytes]
	for i := range b.layout.windows {
		if b.layout.windows[i].slides() {
			in.parts = make([]uint64, len(b.layout.windows))
		}
	}
	memories := experimental.WithMemoryAllocator(context.Background(),
		experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return memory }))
	in.module, err = v.lane.runtime.InstantiateModule(memories, v.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
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
