package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

// What Config.Native can be.
const (
	nativeOff       = "off"
	nativeWorker    = "worker"
	nativeInProcess = "in-process"
)

// compilePatience is how many times its processor time compiling may take on the clock, where others have the processors, as internal/compiler has it.
const compilePatience = 10

// maxCompileTime is more than any function of an image's size takes, under an emulator too.
const maxCompileTime = 10 * time.Minute

// functions makes the node able to run what is injected.
func (n *Node) functions(l *limits) error {
	policy, err := n.cfg.trust()
	if err != nil {
		return err
	}
	dir, err := n.codeCache()
	if err != nil {
		return err
	}
	has, free := n.cfg.Native != nativeOff, n.cfg.freeMemory(&l.calls)
	ofWasm, ofNative := l.engine.memory(has, free, l.ceilings)
	code := l.engine.code(has, free)
	engine, err := wasm.New(wasm.Config{CacheDir: dir, CacheBytes: int64(n.cfg.CodeCacheBytes),
		MaxInstances: l.engine.MaxInstances, MemoryBytes: ofWasm, CodeBytes: code, Ceilings: l.ceilings, Compiler: n.cfg.WasmCompiler, CompileTime: n.cfg.CompileTime, Log: n.log})
	if err != nil {
		return fmt.Errorf("function engine: %w%s", err, ofHalf(has && ofWasm < wasm.LeastMemory(l.ceilings)))
	}
	n.engine = engine
	other, err := n.nativeEngine(dir, native.Config{MaxWorkers: l.engine.MaxWorkers, MemoryBytes: ofNative, CodeBytes: code, Ceilings: l.ceilings})
	if err != nil {
		return fmt.Errorf("native code: %w%s", err, ofHalf(ofNative < native.LeastMemory(l.ceilings)))
	}
	for _, o := range other.Offers() {
		if o.Why != "" && n.cfg.Native != nativeOff {
			n.log.Warn("this form of code does not run here", "form", o.Form, "why", o.Why)
		}
	}
	n.rt, err = inject.NewRuntime(n.el, inject.Config{Engines: []abi.Engine{wasm.Runner{Engine: engine}, other}, Trust: policy, Travel: l.functions,
		LoadTime: max(inject.DefaultLoadTime, compilePatience*n.cfg.CompileTime), Log: n.log, Output: n.cfg.Output, Tracer: n.cfg.Tracer})
	return err
}

// ofHalf explains an engine's error where the memory that it has is little.
func ofHalf(little bool) string {
	if little {
		return " (one half of memory_bytes is wasm's, the other native code's)"
	}
	return ""
}

// nativeEngine is what runs native code, or says why nothing does. What it compiles is kept in dir too; "": in memory only.
func (n *Node) nativeEngine(dir string, c native.Config) (abi.Engine, error) {
	if n.cfg.Native == nativeOff {
		return noNative{}, nil
	}
	if dir != "" {
		dir = filepath.Join(dir, "objects")
	}
	n.compiler = llvm.New(llvm.Config{Command: n.cfg.Compiler, Unconfined: n.cfg.UnconfinedCompiler, Deadline: n.cfg.CompileTime, CacheDir: dir, CacheBytes: int64(n.cfg.CodeCacheBytes), Log: n.log})
	c.Compiler, c.Worker, c.InProcess, c.Log = compiler{n.compiler, n.cfg.UnconfinedCompiler}, n.cfg.Worker, n.cfg.Native == nativeInProcess, n.log
	var err error
	n.native, err = native.New(c)
	return n.native, err
}

// compiler has package llvm compile for package native: neither knows the other.
type compiler struct {
	*llvm.Compiler
	unconfined bool
}

// Target says with the processor what an operator who looks at the node should see.
func (c compiler) Target() (triple, cpu string, features []string, err error) {
	triple, cpu, features, err = c.Compiler.Target()
	if c.unconfined {
		cpu += " by compilers that are not locked down (unconfined_compiler)"
	}
	return triple, cpu, features, err
}

func (c compiler) Object(ctx context.Context, r native.Request) ([]byte, bool, error) {
	return c.Compiler.Object(ctx, llvm.Request(r))
}

// noNative says why a node runs no native code.
type noNative struct{}

const nativeIsOff = "native code is off; native: worker in the node's configuration turns it on"

func (noNative) Offers() []abi.Offer {
	return []abi.Offer{{Form: "llvm-bitcode", Why: nativeIsOff}, {Form: "elf", Why: nativeIsOff}}
}

func (noNative) Load(context.Context, abi.Code) (abi.Program, error) {
	return nil, errors.New(nativeIsOff)
}

// closeEngines ends what runs functions. Nothing runs any more.
func (n *Node) closeEngines() error {
	var errs []error
	if n.engine != nil {
		errs = append(errs, n.engine.Close())
	}
	if n.native != nil {
		errs = append(errs, n.native.Close())
	}
	if n.compiler != nil {
		errs = append(errs, n.compiler.Close())
	}
	return errors.Join(errs...)
}

// Runtime runs and starts functions at this node.
func (n *Node) Runtime() *inject.Runtime { return n.rt }
