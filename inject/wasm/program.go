package wasm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// ID is a function's identity: the hash of its content, computed by the caller, which knows what
// belongs to it.
type ID [sha256.Size]byte

// Program is a function that was accepted. Its machine code is made when it is first needed,
// in up to two variants: one that checks stores, for window sets that are not all writable and for functions that ask for scratch,
// and one for all others.
type Program struct {
	engine    *Engine
	id        ID
	module    *wasmcode.Module
	limits    abi.Limits
	room      abi.Limits // of which it can use heap, payload and scratch
	recursive bool
	scratches bool // it imports scratch
	imports   []string
	replies   bool // it imports reply
	forwards  bool // it imports forward
	resets    bool // statics are as declared at every run

	staticsOnce sync.Once
	statics     []byte // what they begin as, unless instances run something first

	mu       sync.Mutex
	variants [2]variant
	uses     int // the handle itself and every live instance
	closed   bool
}

// variant is one instrumented form of a program.
type variant struct {
	turn chan struct{} // has room for the one goroutine that compiles it, or looks at the rest
	lane *lane
	code wazero.CompiledModule

	bill *bill // for the code; before there is some, of the principal that asked last; nil: none has asked
}

// bill is what a principal is charged for a variant's code.
type bill struct {
	machine   *room.Code
	principal string
	bytes     uint64
	known     uint64 // what the code took that was made and found no room; 0: it is not known
}

// set replaces what is charged; 0: nothing is any more. After an error it is what it was.
func (b *bill) set(bytes uint64) (err error) {
	switch {
	case b.bytes == 0 && bytes == 0:
		return nil
	case bytes == 0:
		b.machine.Drop(b.principal, b.bytes)
	case b.bytes == 0:
		err = b.machine.Admit(b.principal, bytes)
	default:
		err = b.machine.Change(b.principal, b.bytes, bytes)
	}
	if err == nil {
		b.bytes = bytes
	}
	return err
}

// take waits for the variant's turn, as long as ctx says.
func (v *variant) take(ctx context.Context) error {
	select {
	case v.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wasm: the function is being compiled for another call: %w", context.Cause(ctx))
	}
}

func (v *variant) leave() { <-v.turn }

// Compile checks code, whose content has the identity id, for a function with
// the ABI version and the limits of its manifest. It takes microseconds: machine code is made
// later. The program refers to code, which must not change. Errors are
// *CodeError and *LimitError.
func (e *Engine) Compile(ctx context.Context, id ID, version uint32, code []byte, limits abi.Limits) (*Program, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if version == 0 || version > abi.Version {
		return nil, &CodeError{fmt.Errorf("ABI version %d is not known here, which implements up to %d", version, abi.Version)}
	}
	m, err := wasmcode.Decode(code, e.rules[version])
	if err != nil {
		return nil, &CodeError{err}
	}
	got := e.Limits(limits)
	if need := uint64(m.MinPages) * pageBytes; need > got.HeapBytes {
		if limits.HeapBytes != 0 || need > e.config.Ceilings.HeapBytes {
			return nil, &LimitError{Limit: "heap_bytes", Wanted: need, Max: got.HeapBytes}
		}
		got.HeapBytes = need // no limit was named, so the module's own size is as good as the default
	}
	if m.Lasting != "" && version >= resetsSince {
		return nil, &CodeError{fmt.Errorf("%s, which cannot be put back before the next run, as ABI version %d wants statics to be; build it without, or for ABI version 1", m.Lasting, version)}
	}
	room, scratches := got, slices.Contains(m.Imports, callScratch)
	if !m.Grows {
		room.HeapBytes = max(uint64(m.MinPages), 1) * pageBytes
	}
	if !scratches {
		room.ScratchBytes = 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	turns := [2]variant{{turn: make(chan struct{}, 1)}, {turn: make(chan struct{}, 1)}}
	return &Program{engine: e, variants: turns, id: id, module: m, limits: got, room: room, recursive: m.Recursive, scratches: scratches, imports: m.ImportsUsed(),
		replies: slices.Contains(m.Imports, callReply), forwards: slices.Contains(m.Imports, callForward), resets: version >= resetsSince, uses: 1}, nil
}

// ID is the identity that the program was compiled under.
func (p *Program) ID() ID { return p.id }

// Limits are what the program has here: the manifest's or the defaults, below
// the ceilings.
func (p *Program) Limits() abi.Limits { return p.limits }

// Imports are the names of the host calls that the program imports, sorted.
func (p *Program) Imports() []string { return p.imports }

// compiled returns a variant with its machine code, which is made at first use and charged to the first principal.
func (p *Program) compiled(ctx context.Context, principal string, checkStores bool) (*variant, error) {
	v := &p.variants[0]
	if checkStores {
		v = &p.variants[1]
	}
	if err := v.take(ctx); err != nil {
		return nil, err
	}
	defer v.leave()
	if v.code != nil {
		return v, nil
	}
	code, err := p.module.Instrument(wasmcode.Options{CheckStores: checkStores})
	if err != nil {
		return nil, &CodeError{err}
	}
	bill := &bill{machine: p.engine.machine, principal: principal}
	if v.bill != nil {
		bill.known = v.bill.known
	}
	v.bill = bill
	if v.lane, v.code, err = p.engine.machineCode(ctx, bill, p.id, checkStores, p.module.Quick(len(code)), code); err != nil {
		bill.set(0)
		return nil, err
	}
	return v, nil
}

// open is ErrClosed once the program is given up.
func (p *Program) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	return nil
}

// hold adds a use for a binding.
func (p *Program) hold() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.uses++
	return nil
}

// drop takes back a use; the last one frees the machine code.
func (p *Program) drop() {
	p.mu.Lock()
	p.uses--
	last := p.uses == 0
	p.mu.Unlock()
	if !last {
		return
	}
	for i := range p.variants {
		v := &p.variants[i]
		if v.code != nil { // the last use: it is not being compiled either
			// Nothing runs this code any more; closing it cannot fail.
			_ = v.code.Close(context.Background())
			v.code = nil
			p.engine.gone.Add(v.bill.bytes)
			v.bill.set(0)
		}
	}
}

// Close gives the program up: nothing new can be bound to it, its idle instances
// are closed, and its machine code is freed when the last running one is released.
func (p *Program) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.mu.Unlock()
	p.engine.room.Evict(func(in room.Instance) bool { return in.(*runnerInstance).binding.program == p })
	p.drop()
}
