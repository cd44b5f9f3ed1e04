package inject_test

import (
	"context"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// BenchmarkDo is a cached injection between two elements of one process. Its
// allocations are what counts here; wherry bench inject has the times.
func BenchmarkDo(b *testing.B) {
	client, _ := mesh(b, 1, fabric.Latency)
	f, err := client.rt.Prepare(xrdma.Echo(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	root := inject.Root{To: client.eps["n0"], Payload: []byte("12345678")}
	reply := make([]byte, 0, 64)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Do(ctx, root, reply[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSelf is a long run on the caller's own element, per hop of a chase
// in a window of 256 KiB.
func BenchmarkSelf(b *testing.B) {
	for _, policy := range []fabric.Policy{fabric.Latency, fabric.Balanced} {
		b.Run(policy.String(), func(b *testing.B) {
			_, nodes := mesh(b, 1, policy)
			table, _ := permutation(b, nodes, 256<<10/8)
			f, err := nodes[0].rt.Prepare(xrdma.Chase(), table)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			const hops = 200_000
			payload := xrdma.ChaseArgs(0, hops)
			for b.Loop() {
				if _, err := f.Do(context.Background(), inject.Root{Payload: payload}, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/hops, "ns/hop")
		})
	}
}

// BenchmarkPrepare is what a call prepares of a function and a table that earlier calls had.
func BenchmarkPrepare(b *testing.B) {
	_, nodes := mesh(b, 4, fabric.Balanced)
	table, _ := permutation(b, nodes, 1024)
	img, err := xrdma.Lookup("closure")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		f, err := nodes[0].rt.Prepare(img, table)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
