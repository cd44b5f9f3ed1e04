package live

import (
	"testing"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
)

// BenchmarkInject times the injected functions on nodes in this process.
func BenchmarkInject(b *testing.B) {
	g, err := debgraph.Load()
	if err != nil {
		b.Fatal(err)
	}
	c, names := nodes(b, "tcp", 4)
	loaded, err := Load(b.Context(), c, names, g)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := loaded.Close(); err != nil {
			b.Error(err)
		}
	})
	id := func(name string) uint32 {
		v, err := g.Find(name)
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	most, err := loaded.Data.GraphAt.Inject(b.Context(), &demo.Call{Op: demo.OpMostDirect, Limit: demo.MaxStarts})
	if err != nil {
		b.Fatal(err)
	}
	for _, op := range []struct {
		name string
		call demo.Call
	}{
		{"needs", demo.Call{Op: demo.OpClosure, Starts: []uint32{id("firefox-esr")}}},
		{"needed-by", demo.Call{Op: demo.OpClosure, Dir: debgraph.NeededBy, Starts: []uint32{id("libssl3")}}},
		{"path", demo.Call{Op: demo.OpPath, Starts: []uint32{id("gnome")}, Goal: id("perl-base")}},
		{"dependents", demo.Call{Op: demo.OpDependents, Starts: most.IDs}},
		{"chase", demo.Call{Op: demo.OpChase, Starts: []uint32{0}, Hops: demo.DefaultHops}},
	} {
		b.Run(op.name, func(b *testing.B) {
			at := loaded.Data.GraphAt
			if op.call.Op == demo.OpChase {
				at = loaded.Data.ChaseAt
			}
			chain := 0
			for b.Loop() {
				reply, err := at.Inject(b.Context(), &op.call)
				if err != nil {
					b.Fatal(err)
				}
				chain = reply.Chain
			}
			b.ReportMetric(float64(chain), "chain")
		})
	}
}
