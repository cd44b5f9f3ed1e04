package rpc

import (
	"context"
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestPrincipalsShare: one principal's connections together do not hold every place for calls, nor all that calls which wait may take.
func TestPrincipalsShare(t *testing.T) {
	for _, queued := range []bool{false, true} {
		t.Run(fmt.Sprint(queued), func(t *testing.T) {
			node := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{Calls: 8, CallsPerPeer: 4, QueuedBytes: 96 << 10})
			gate, began := make(chan struct{}), make(chan struct{}, 64)
			node.serve(t, "long", func(context.Context, *Call) ([]byte, error) { began <- struct{}{}; <-gate; return nil, nil })
			node.serve(t, "short", func(context.Context, *Call) ([]byte, error) { return []byte("done"), nil })
			defer close(gate)
			calls := 4
			if queued {
				calls = 4 + 12 // of which as many wait as their endpoint may have
			}
			for i := range 8 {
				eve := newSideOf(t, fabric.Config{Name: fmt.Sprint("eve", i), Auth: tokenOf("eve")}, Limits{})
				ep := connect(t, eve, node, "tcp://127.0.0.1:0")
				for range calls {
					f, err := eve.p.Start(t.Context(), ep, "long", make([]byte, 600))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(f.Forget)
				}
			}
			waitFor(t, "eve has what she may", func() bool {
				st := node.p.Stats()
				return st.Active == 6 && st.Parked+int64(st.Refused) == int64(8*calls-6)
			})
			ann := newSideOf(t, fabric.Config{Name: "ann", Auth: tokenOf("ann")}, Limits{})
			ep := connect(t, ann, node, "tcp://127.0.0.1:0")
			for range 3 {
				if got, err := ann.p.Call(t.Context(), ep, "short", nil); err != nil || string(got) != "done" {
					t.Fatalf("%q, %v", got, err)
				}
			}
			node.p.queue.mu.Lock()
			defer node.p.queue.mu.Unlock()
			if has := node.p.queue.bytes; has > 72<<10 {
				t.Errorf("eve's calls that wait take %d bytes of 96 KiB", has)
			}
		})
	}
}

// TestTenantsGo: what is kept for principals ends with their endpoints.
func TestTenantsGo(t *testing.T) {
	node := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{})
	for i := range 4 {
		who := newSideOf(t, fabric.Config{Name: fmt.Sprint("c", i), Auth: tokenOf(fmt.Sprint("p", i))}, Limits{})
		connect(t, who, node, "tcp://127.0.0.1:0").Close()
		waitFor(t, "it is gone", func() bool { return len(node.conns()) == 0 })
	}
	node.p.mu.Lock()
	defer node.p.mu.Unlock()
	if n := len(node.p.tenants); n > 1 {
		t.Errorf("%d principals are kept", n)
	}
}
