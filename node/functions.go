package node

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

// functions makes the node able to run what is injected.
func (n *Node) functions() error {
	engine, err := wasm.New(wasm.Config{CacheDir: n.cfg.CodeCache, CacheBytes: int64(n.cfg.CodeCacheBytes), Log: n.log})
	if err != nil {
		return fmt.Errorf("function engine: %w", err)
	}
	n.engine = engine
	n.rt, err = inject.NewRuntime(n.el, inject.Config{Engines: []abi.Engine{wasm.Runner{Engine: engine}}, Log: n.log, Tracer: n.cfg.Tracer})
	return err
}

// Runtime runs and starts functions at this node.
func (n *Node) Runtime() *inject.Runtime { return n.rt }

// functionMetric is one figure of the runtime or the engine.
type functionMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *inject.Stats, e *wasm.Stats) float64
}

// functionCollector shows what functions do here.
type functionCollector struct {
	n       *Node
	metrics []functionMetric
}

func newFunctionCollector(n *Node) *functionCollector {
	c := &functionCollector{n: n}
	labels := prometheus.Labels{"element": n.cfg.Name}
	add := func(kind prometheus.ValueType, name, help string, value func(s *inject.Stats, e *wasm.Stats) float64) {
		c.metrics = append(c.metrics, functionMetric{prometheus.NewDesc("wherry_inject_"+name, help, nil, labels), kind, value})
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	add(counter, "runs_total", "Branches run here.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Runs) })
	add(counter, "forwards_total", "Branches handed on from here.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Forwards) })
	add(counter, "forks_total", "Branches forked here.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Forks) })
	add(counter, "refused_total", "Branches not taken.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Refused) })
	add(counter, "duplicates_total", "Messages seen before.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Duplicates) })
	add(counter, "stopped_total", "Branches not taken: their invocation had been canceled or had failed.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Stopped) })
	add(gauge, "running", "Branches running now.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Sizes.Running) })
	add(gauge, "held", "Branches parked for code or queued.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Sizes.HeldRuns) })
	add(gauge, "invocations", "Invocations with something here.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Sizes.Invocations) })
	add(gauge, "relays", "Branches that went straight on and are not released yet.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Sizes.Relays) })
	add(counter, "put_off_total", "Ends of branches that waited for their origin's acknowledgements.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.PutOff) })
	add(gauge, "code_cache_bytes", "Images and shard tables in memory.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.CacheBytes) })
	add(counter, "code_cache_evictions_total", "Objects that had to go.", func(s *inject.Stats, _ *wasm.Stats) float64 { return float64(s.Evicted) })
	add(counter, "compiled_total", "Functions compiled.", func(_ *inject.Stats, e *wasm.Stats) float64 { return float64(e.Compiled) })
	add(counter, "compile_cache_hits_total", "Functions taken from the disk cache.", func(_ *inject.Stats, e *wasm.Stats) float64 { return float64(e.CacheHits) })
	add(counter, "failed_instances_total", "Instances thrown away after a trap or a stop.", func(_ *inject.Stats, e *wasm.Stats) float64 { return float64(e.Failed) })
	return c
}

// Describe names the metrics.
func (c *functionCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect reads them.
func (c *functionCollector) Collect(ch chan<- prometheus.Metric) {
	s, e := c.n.rt.Stats(), c.n.engine.Stats()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s, &e))
	}
}
