package node

import (
	"fmt"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

// functions makes the node able to run what is injected.
func (n *Node) functions(l *limits) error {
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
	n.rt, err = inject.NewRuntime(n.el, inject.Config{Engines: []abi.Engine{wasm.Runner{Engine: engine}}, Travel: l.functions, Log: n.log, Tracer: n.cfg.Tracer})
	return err
}

// Runtime runs and starts functions at this node.
func (n *Node) Runtime() *inject.Runtime { return n.rt }
