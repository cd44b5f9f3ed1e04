package wasm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/wherry-fabric/wherry/inject/wasm/internal/shelf"
	"github.com/wherry-fabric/wherry/internal/codecache"
)

// lane is a wazero runtime with a shelf of its own, for which one module is compiled at a time. With a disk cache there are two, so that a function of a few
// KiB never waits until a module of MiBs, which takes seconds, is compiled. And there is always one without a shelf, for when nothing is kept.
type lane struct {
	mu       sync.Mutex // one compilation at a time: the shelf is its
	runtime  wazero.Runtime
	compiled wazero.CompilationCache // nil without a shelf
	shelf    *shelf.Shelf
}

// smallModule is the size of the code up to which the first lane takes it: some 100 ms of compilation.
const smallModule = 64 << 10

// Which lane.
const (
	lanePlain = iota // without a cache, and with many compilations at once
	laneSmall
	laneLarge
	lanes
)

// newLane makes a lane, with a shelf or without.
func newLane(kind string, shelved bool) (*lane, error) {
	rc := wazero.NewRuntimeConfigCompiler()
	if kind == kindInterpreter {
		rc = wazero.NewRuntimeConfigInterpreter()
	}
	l := &lane{}
	if shelved {
		var err error
		if l.shelf, l.compiled, err = shelf.New(); err != nil {
			return nil, err
		}
		rc = rc.WithCompilationCache(l.compiled)
	}
	ctx := context.Background()
	// The instrumentation drops debug information. Everything else is at
	// wazero's defaults; above all no WithCloseOnContextDone, which costs microseconds a call.
	l.runtime = wazero.NewRuntimeWithConfig(ctx, rc.WithCoreFeatures(features).WithDebugInfoEnabled(false))
	if err := instantiateHost(ctx, l.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("wasm: host module: %w", err), l.close())
	}
	return l, nil
}

func (l *lane) close() error {
	ctx := context.Background()
	err := l.runtime.Close(ctx)
	if l.compiled != nil {
		err = errors.Join(err, l.compiled.Close(ctx))
	}
	return err
}

// goneShare is the part of Config.CodeBytes that may lie in memory after it was given up.
const goneShare = 8

// collect unmaps machine code that was given up, where that is much. wazero leaves it to a finalizer, and the collector goes by the heap, of which the code is no part: in a
// process with a heap of 256 MiB none ran while 29 MiB of code were given up.
func (e *Engine) collect() {
	if n := e.gone.Load(); n > e.config.CodeBytes/goneShare && e.gone.CompareAndSwap(n, 0) {
		runtime.GC()
	}
}

// machineCode compiles an instrumented module, or takes it from the disk cache: in a compiler process if it can take long and the engine has such.
// It also says in which lane the result can run. What it takes is charged before this process has it: what can be known of it beforehand, or what it is.
func (e *Engine) machineCode(ctx context.Context, bill *bill, id ID, checkStores, quick bool, code []byte) (*lane, wazero.CompiledModule, error) {
	e.collect()
	key := cacheKey(id, checkStores)
	if !quick && e.compilers != nil {
		return e.longCode(ctx, bill, key, code)
	}
	if err := bill.set(machinePerByte * uint64(len(code))); err != nil {
		return nil, nil, err
	}
	if e.cache != nil {
		l := e.lanes[laneLarge]
		if len(code) <= smallModule {
			l = e.lanes[laneSmall]
		}
		c, err := e.cachedCode(l, key, code)
		return l, c, err
	}
	l := e.lanes[lanePlain]
	c, _, _, err := l.compile(code, shelf.Code{})
	if err != nil {
		return nil, nil, err
	}
	e.count(&e.stats.Compiled)
	return l, c, nil
}

// longCode has a module compiled by another process, unless its code is on disk.
func (e *Engine) longCode(ctx context.Context, bill *bill, key string, code []byte) (*lane, wazero.CompiledModule, error) {
	l := e.lanes[laneLarge]
	entry, state := e.kept(key)
	if state == codecache.Good {
		if err := bill.set(uint64(len(entry.Data))); err != nil {
			return nil, nil, err
		}
		if c, err := l.load(shelf.Code{Name: entry.Name, Data: entry.Data}, code); err == nil {
			e.count(&e.stats.CacheHits)
			return l, c, nil
		}
		e.reject(key)
	}
	// Where there is no room for what is at least to come, nothing is compiled for the answer that there is none.
	if err := bill.set(max(bill.known, uint64(len(code)))); err != nil {
		return nil, nil, err
	}
	made, err := e.compileElsewhere(ctx, bill.principal, code)
	if err == nil {
		bill.known = uint64(len(made.Data))
		err = bill.set(bill.known)
	}
	if err != nil {
		return nil, nil, err
	}
	c, err := l.load(made, code)
	if err != nil {
		return nil, nil, fmt.Errorf("wasm: what the compiler process made cannot be used: %w", err)
	}
	e.count(&e.stats.Compiled)
	e.count(&e.stats.Elsewhere)
	if e.cache != nil {
		e.count(&e.stats.CacheMisses)
		e.cache.Publish(codecache.Entry{Key: key, Name: made.Name, Data: made.Data})
	}
	return l, c, nil
}

// load has wazero load machine code. What is not the module's, which a compiler process that was taken over can answer, is not compiled here for that.
func (l *lane) load(made shelf.Code, code []byte) (wazero.CompiledModule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shelf.Insist(made)
	c, _, _, err := l.build(code)
	return c, err
}

// kept is what the disk cache has.
func (e *Engine) kept(key string) (codecache.Entry, codecache.State) {
	if e.cache == nil {
		return codecache.Entry{}, codecache.Missing
	}
	entry, state := e.cache.Load(key)
	if state == codecache.Damaged {
		e.count(&e.stats.CacheRejected)
	}
	return entry, state
}

// reject removes a file that was what was once stored, but that wazero cannot use.
func (e *Engine) reject(key string) {
	e.cache.Remove(key)
	e.count(&e.stats.CacheRejected)
}

func (e *Engine) cachedCode(l *lane, key string, code []byte) (wazero.CompiledModule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, state := e.kept(key) // a zero entry offers nothing
	c, made, anew, err := l.compile(code, shelf.Code{Name: entry.Name, Data: entry.Data})
	if err != nil && state == codecache.Good {
		e.reject(key)
		c, made, anew, err = l.compile(code, shelf.Code{})
	}
	if err != nil {
		return nil, err
	}
	if !anew {
		e.count(&e.stats.CacheHits)
		return c, nil
	}
	e.count(&e.stats.Compiled)
	e.count(&e.stats.CacheMisses)
	e.cache.Publish(codecache.Entry{Key: key, Name: made.Name, Data: made.Data})
	return c, nil
}

// compile compiles, or loads what is offered if it is the module's; anew: it was compiled, and made is its machine code if the lane has a shelf. wazero's panics
// (there should be none) are errors. The caller has the lock of a lane with a shelf.
func (l *lane) compile(code []byte, offered shelf.Code) (c wazero.CompiledModule, made shelf.Code, anew bool, err error) {
	if l.shelf != nil {
		l.shelf.Offer(offered)
	}
	return l.build(code)
}

// build compiles, or loads what lies on the shelf, as compile does.
func (l *lane) build(code []byte) (c wazero.CompiledModule, made shelf.Code, anew bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, anew, err = nil, false, &CodeError{fmt.Errorf("the compiler failed: %v", r)}
		}
	}()
	if l.shelf != nil {
		defer l.shelf.Offer(shelf.Code{}) // it keeps nobody's bytes
	}
	if c, err = l.runtime.CompileModule(context.Background(), code); err != nil {
		return nil, shelf.Code{}, false, &CodeError{fmt.Errorf("the compiler says (functions are counted without imports): %w", err)}
	}
	if l.shelf == nil {
		return c, shelf.Code{}, true, nil
	}
	made, anew = l.shelf.Made()
	return c, made, anew, nil
}
