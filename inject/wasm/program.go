package wasm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// ID is a function's identity: the hash of its content, by whoever knows what
// belongs to it.
type ID [sha256.Size]byte

// Program is a function that was accepted. Its machine code is made when it is first needed,
// in up to two variants: one for window sets that are all writable, one that checks stores.
type Program struct {
	engine    *Engine
	id        ID
	module    *wasmcode.Module
	limits    abi.Limits
	recursive bool
	imports   []string

	mu       sync.Mutex
	variants [2]variant
	uses     int // the handle itself and every live instance
	closed   bool
}

// variant is one instrumented form of a program. mu is held while it is compiled.
type variant struct {
	mu   sync.Mutex
	code wazero.CompiledModule
}

// Compile checks code, whose content has the identity id, for a function with
// the limits of its manifest. It takes microseconds: machine code is made
// later. The program refers to code, which must not change. Errors are
// *CodeError and *LimitError.
func (e *Engine) Compile(ctx context.Context, id ID, code []byte, limits abi.Limits) (*Program, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := wasmcode.Decode(code, e.rules)
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	return &Program{engine: e, id: id, module: m, limits: got, recursive: m.Recursive, imports: m.ImportsUsed(), uses: 1}, nil
}

// ID is the identity that the program was compiled under.
func (p *Program) ID() ID { return p.id }

// Limits are what the program has here: the manifest's or the defaults, below
// the ceilings.
func (p *Program) Limits() abi.Limits { return p.limits }

// Imports are the names of the host calls that the program imports, sorted.
func (p *Program) Imports() []string { return p.imports }

// compiled returns the machine code of a variant, making it at first use.
func (p *Program) compiled(checkStores bool) (wazero.CompiledModule, error) {
	v := &p.variants[0]
	if checkStores {
		v = &p.variants[1]
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.code != nil {
		return v.code, nil
	}
	code, err := p.module.Instrument(wasmcode.Options{CheckStores: checkStores})
	if err != nil {
		return nil, &CodeError{err}
	}
	v.code, err = p.engine.machineCode(p.id, checkStores, code)
	return v.code, err
}

// machineCode compiles an instrumented module, or takes it from the disk cache.
func (e *Engine) machineCode(id ID, checkStores bool, code []byte) (wazero.CompiledModule, error) {
	e.compileMu.Lock()
	defer e.compileMu.Unlock()
	if e.cache == nil {
		e.count(&e.stats.Compiled)
		return e.wazeroCompile(code)
	}
	key := cacheKey(id, checkStores)
	defer e.cache.clearStaging()
	staged, rejected := e.cache.stage(key)
	if rejected {
		e.count(&e.stats.CacheRejected)
	}
	c, err := e.wazeroCompile(code)
	if err != nil && staged {
		// The file was what was once stored, but wazero cannot read it.
		e.cache.remove(key)
		e.cache.clearStaging()
		e.count(&e.stats.CacheRejected)
		staged = false
		c, err = e.wazeroCompile(code)
	}
	if err != nil {
		return nil, err
	}
	if staged && e.cache.onlyStaged() {
		e.count(&e.stats.CacheHits)
		return c, nil
	}
	e.count(&e.stats.Compiled)
	e.cache.publish(key)
	return c, nil
}

// wazeroCompile compiles, with wazero's panics (there should be none) as errors.
func (e *Engine) wazeroCompile(code []byte) (c wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, &CodeError{fmt.Errorf("the compiler failed: %v", r)}
		}
	}()
	c, err = e.runtime.CompileModule(context.Background(), code)
	if err != nil {
		// wazero numbers functions as instrumented: behind the imports by two more.
		return nil, &CodeError{fmt.Errorf("the compiler says: %w", err)}
	}
	return c, nil
}

// hold adds a use for an instance.
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
		v.mu.Lock()
		if v.code != nil {
			// Nothing runs this code any more; closing it cannot fail.
			_ = v.code.Close(context.Background())
			v.code = nil
		}
		v.mu.Unlock()
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
	p.engine.closeIdle(func(in *Instance) bool { return in.binding.program == p })
	p.drop()
}
