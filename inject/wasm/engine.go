package wasm

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/cpu"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/inject/wasm/internal/shelf"
	"github.com/wherry-fabric/wherry/internal/codecache"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// wazeroVersion is part of the key of cached machine code. A test compares it with go.mod.
const wazeroVersion = "v1.12.0"

// Engine compiles functions and keeps their instances. Its methods may be
// called from any goroutine.
type Engine struct {
	config Config
	kind   string
	why    string
	rules  [abi.Version + 1]*wasmcode.Rules // by ABI version
	cache  *codecache.Cache                 // nil without Config.CacheDir
	lanes  [lanes]*lane                     // some are nil without a disk cache or compiler processes

	compilers *compilers // nil without Config.Compiler
	epoch     time.Time

	room    *room.Room
	machine *room.Code    // of machine code, charged to whom a variant was compiled for first
	gone    atomic.Uint64 // bytes of it that were given up since collect; they are charged to nobody

	mu     sync.Mutex
	closed bool
	stats  Stats
}

// Stats counts what an engine did.
type Stats struct {
	Compiled      uint64 // variants compiled
	Elsewhere     uint64 // of those, by a compiler process
	Compiling     int    // variants that compiler processes are asked for now
	CacheHits     uint64 // variants whose machine code came from disk
	CacheMisses   uint64 // variants that were looked for on disk and not found, or not usable
	CacheEvicted  uint64 // files removed to keep the directory below its limit
	CodeBytes     uint64 // of machine code, as it is charged
	CacheRejected uint64 // cached files that were damaged or of another version, and removed
	room.Stats           // of instances
}

// New makes an engine.
func New(config Config) (*Engine, error) {
	config, err := config.filled()
	if err != nil {
		return nil, err
	}
	e := &Engine{config: config, epoch: time.Now()}
	e.room = room.New(room.Config{Instances: config.MaxInstances, Bytes: config.MemoryBytes, Noun: "instances", Busy: ErrBusy, Closed: ErrClosed, Empty: func() {
		if err := e.closeLanes(); err != nil {
			config.Log.Warn("wasm: closing the runtime", "err", err)
		}
	}})
	e.machine = room.NewCode("wasm", maxVariants, config.CodeBytes)
	for version := uint32(1); version <= abi.Version; version++ {
		e.rules[version] = rules(version)
	}
	e.kind, e.why = kind(config.Interpret)
	keeps := e.kind == kindCompiler
	if _, _, err := shelf.New(); keeps && err != nil {
		config.Log.Warn("wasm: functions are compiled anew after each start, and those that may take long are refused where a process would compile them", "why", err)
		keeps = false
	}
	if config.CacheDir != "" && keeps {
		if e.cache, err = codecache.Open(config.CacheDir, config.CacheBytes, cacheKind, config.Log); err != nil {
			return nil, err
		}
	}
	if e.kind == kindCompiler {
		e.compilers = newCompilers(config) // without a shelf they say why they are of no use
	}
	for i := range e.lanes {
		shelved := keeps && (i == laneLarge && e.compilers != nil || i != lanePlain && e.cache != nil)
		if i != lanePlain && !shelved {
			continue
		}
		if e.lanes[i], err = newLane(e.kind, shelved); err != nil {
			return nil, errors.Join(err, e.closeLanes())
		}
	}
	return e, nil
}

// features are the extensions that package wasmcode decodes.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesThreads | experimental.CoreFeaturesTailCall

const (
	kindCompiler    = "compiler"
	kindInterpreter = "interpreter"
)

// kind chooses how code runs, and says why if it is not compiled.
func kind(interpret bool) (kind, why string) {
	switch {
	case interpret:
		return kindInterpreter, "Config.Interpret is set"
	case runtime.GOOS != "linux":
		return kindInterpreter, "memory mapping is Linux's"
	case runtime.GOARCH == "amd64" && !cpu.X86.HasSSE41:
		return kindInterpreter, "wazero's compiler needs SSE 4.1"
	case runtime.GOARCH == "arm64" && !cpu.ARM64.HasATOMICS:
		return kindInterpreter, "wazero's compiler needs the ARMv8.1 atomics"
	case runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64":
		return kindInterpreter, "wazero has no compiler for " + runtime.GOARCH
	}
	return kindCompiler, ""
}

// Kind is "compiler" or "interpreter"; why says why it is not the compiler.
func (e *Engine) Kind() (kind, why string) { return e.kind, e.why }

// Limits is what a function that asks for l gets here.
func (e *Engine) Limits(l abi.Limits) abi.Limits {
	return l.Or(e.config.Defaults).AtMost(e.config.Ceilings)
}

// Stats returns what the engine did so far.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Stats = e.room.Stats()
	_, s.CodeBytes = e.machine.Usage()
	if e.compilers != nil {
		s.Compiling = e.compilers.pool.Asked()
	}
	if e.cache != nil {
		s.CacheEvicted = e.cache.Evicted()
	}
	return s
}

// Disk is what lies in an engine's cache directory now.
type Disk struct {
	Dir   string // empty: there is none
	Files int
	Bytes int64
	Limit int64
}

// Disk looks into the cache directory. Other processes may use it too: what
// they put there counts.
func (e *Engine) Disk() Disk {
	if e.cache == nil {
		return Disk{}
	}
	d := Disk{Dir: e.cache.Dir(), Limit: e.cache.Limit()}
	for _, info := range e.cache.Files() {
		d.Files++
		d.Bytes += info.Size()
	}
	return d
}

func (e *Engine) count(counter *uint64) {
	e.mu.Lock()
	*counter++
	e.mu.Unlock()
}

// Close closes idle instances and frees all code. If instances are running it
// says so, and all is freed when the last one is released.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	running, first := e.room.Close()
	switch {
	case !first:
		return nil
	case running > 0:
		return fmt.Errorf("wasm: %d instances are still running; all is freed when they are released", running)
	}
	return e.closeLanes()
}

func (e *Engine) closeLanes() error {
	var err error
	if e.compilers != nil {
		err = e.compilers.pool.Close()
	}
	for _, l := range e.lanes {
		if l != nil {
			err = errors.Join(err, l.close())
		}
	}
	if e.cache != nil {
		e.cache.Close()
	}
	return err
}
