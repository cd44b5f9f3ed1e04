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
