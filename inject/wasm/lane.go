package wasm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/wherry-fabric/wherry/internal/codecache"
)

// lane is a wazero runtime with a staging directory of its own, in which one
// module is compiled at a time. With a disk cache there are two, so that a function of a few
// KiB never waits until a module of MiBs, which takes seconds, is compiled. And there is always one without
// a directory, for when the cached ones fail (or are not wanted).
type lane struct {
	mu       sync.Mutex // one compilation at a time: the staging directory is its
	runtime  wazero.Runtime
	compiled wazero.CompilationCache // nil without a disk cache
	stage    *stage
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

// newLane makes a lane; staged, it has a directory, below that one where there is no memory for files.
func newLane(kind, staged string) (*lane, error) {
	rc := wazero.NewRuntimeConfigCompiler()
	if kind == kindInterpreter {
		rc = wazero.NewRuntimeConfigInterpreter()
	}
	l := &lane{}
	if staged != "" {
		var err error
		if l.stage, err = newStage(staged); err != nil {
			return nil, err
		}
		l.compiled, err = wazero.NewCompilationCacheWithDir(l.stage.dir)
		if err == nil {
			err = l.stage.settle()
		}
		if err != nil {
			l.stage.close()
			return nil, fmt.Errorf("wasm: staging directory %s: %w", l.stage.dir, err)
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
		l.stage.close()
	}
	return err
}

// machineCode compiles an instrumented module, or takes it from the disk cache: in a compiler process if it can take long and the engine has such.
// It also says in which lane the result can run.
func (e *Engine) machineCode(ctx context.Context, principal string, id ID, checkStores, quick bool, code []byte) (*lane, wazero.CompiledModule, error) {
	key := cacheKey(id, checkStores)
	if !quick && e.compilers != nil {
		return e.longCode(ctx, principal, key, code)
	}
	if e.cache != nil {
		l := e.lanes[laneLarge]
		if len(code) <= smallModule {
			l = e.lanes[laneSmall]
		}
		c, err := e.cachedCode(l, key, code)
		if err == nil {
			return l, c, nil
		}
		e.config.Log.Debug("wasm: compiling through the cache failed; once more without it", "err", err)
	}
	// Either the code is bad, and then the error is the same; or the staging directory is full or gone.
	l := e.lanes[lanePlain]
	c, err := l.compile(code)
	if err != nil {
		return nil, nil, err
	}
	e.count(&e.stats.Compiled)
	return l, c, nil
}

// longCode has a module compiled by another process, unless its code is on disk.
func (e *Engine) longCode(ctx context.Context, principal, key string, code []byte) (*lane, wazero.CompiledModule, error) {
	l := e.lanes[laneLarge]
	entry, state := e.kept(key)
	if state == codecache.Good {
		if c, err := l.load(entry, code); err == nil {
			e.count(&e.stats.CacheHits)
			return l, c, nil
		}
		e.reject(key)
	}
	entry, err := e.compileElsewhere(ctx, principal, key, code)
	if err != nil {
		return nil, nil, err
	}
	c, err := l.load(entry, code)
	if err != nil {
		return nil, nil, fmt.Errorf("wasm: what the compiler process made cannot be used: %w", err)
	}
	e.count(&e.stats.Compiled)
	e.count(&e.stats.Elsewhere)
	if e.cache != nil {
		e.count(&e.stats.CacheMisses)
		e.cache.Publish(entry)
	}
	return l, c, nil
}

// load has wazero load a file of machine code.
func (l *lane) load(entry codecache.Entry, code []byte) (wazero.CompiledModule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.stage.clear()
	if err := l.stage.put(entry); err != nil {
		return nil, err
	}
	c, err := l.compile(code)
	if err == nil && len(l.stage.files()) != 1 {
		_ = c.Close(context.Background()) // nothing runs it
		return nil, errors.New("it is another module's, and wazero compiled it anew")
	}
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
	defer l.stage.clear()
	entry, state := e.kept(key)
	staged := state == codecache.Good && l.stage.put(entry) == nil
	c, err := l.compile(code)
	if err != nil && staged {
		e.reject(key)
		l.stage.clear()
		staged = false
		c, err = l.compile(code)
	}
	if err != nil {
		return nil, err
	}
	files := l.stage.files()
	if staged && len(files) == 1 {
		e.count(&e.stats.CacheHits) // wazero had nothing to add
		return c, nil
	}
	e.count(&e.stats.Compiled)
	e.count(&e.stats.CacheMisses)
	if made, ok := l.stage.newest(files); ok {
		made.Key = key
		e.cache.Publish(made)
	}
	return c, nil
}

// compile compiles, with wazero's panics (there should be none) as errors.
func (l *lane) compile(code []byte) (c wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, &CodeError{fmt.Errorf("the compiler failed: %v", r)}
		}
	}()
	if c, err = l.runtime.CompileModule(context.Background(), code); err != nil {
		return nil, &CodeError{fmt.Errorf("the compiler says (functions are counted without imports): %w", err)}
	}
	return c, nil
}
