package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

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
	engine, err := wasm.New(wasm.Config{CacheDir: dir, CacheBytes: int64(n.cfg.CodeCacheBytes),
		MaxInstances: l.engine.MaxInstances, MemoryBytes: l.engine.MemoryBytes, Ceilings: l.ceilings, Log: n.log})
	if err != nil {
		return fmt.Errorf("function engine: %w", err)
	}
	n.engine = engine
	n.rt, err = inject.NewRuntime(n.el, inject.Config{Engines: []abi.Engine{wasm.Runner{Engine: engine}, noNative{}}, Trust: policy, Travel: l.functions,
		Log: n.log, Tracer: n.cfg.Tracer})
	return err
}

// noNative says why a node runs no native code.
type noNative struct{}

const nativeIsOff = "native code is off (native in the node's configuration)"

func (noNative) Offers() []abi.Offer {
	return []abi.Offer{{Form: "llvm-bitcode", Why: nativeIsOff}, {Form: "elf", Why: nativeIsOff}}
}

func (noNative) Load(context.Context, abi.Code) (abi.Program, error) {
	return nil, errors.New(nativeIsOff)
}

// Runtime runs and starts functions at this node.
func (n *Node) Runtime() *inject.Runtime { return n.rt }
