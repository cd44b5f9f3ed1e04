package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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
		ep := connect(t, who, node, "tcp://127.0.0.1:0")
		waitFor(t, "it is known", func() bool { return len(node.conns()) == 1 })
		ep.Close()
		waitFor(t, "it is gone", func() bool { return len(node.conns()) == 0 })
	}
	node.p.mu.Lock()
	defer node.p.mu.Unlock()
	if n := len(node.p.tenants); n > 1 {
		t.Errorf("%d principals are kept", n)
	}
}

// TestRequestsShared: large requests of one principal, however many connections they come by and however long their handlers take, leave memory to others'.
func TestRequestsShared(t *testing.T) {
	const size = 1 << 20
	node := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{MaxBytes: size, BulkBytes: 4 * size, RequestBytes: 8 * size, PoolBytes: size})
	gate := make(chan struct{})
	node.serve(t, "long", func(_ context.Context, c *Call) ([]byte, error) { <-gate; return nil, nil })
	node.serve(t, "count", func(_ context.Context, c *Call) ([]byte, error) { return fmt.Append(nil, len(c.Req)), nil })
	var futures []Future
	for i := range 4 {
		eve := newSideOf(t, fabric.Config{Name: fmt.Sprint("eve", i), Auth: tokenOf("eve")}, Limits{MaxBytes: size, BulkBytes: 16 * size})
		ep := connect(t, eve, node, "tcp://127.0.0.1:0")
		for range 4 {
			f, err := eve.p.Start(t.Context(), ep, "long", make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
	}
	waitFor(t, "eve has what she may", func() bool { return node.p.Stats().Active == 16 && node.p.requests.inUse() == 4*size })
	ann := newSideOf(t, fabric.Config{Name: "ann", Auth: tokenOf("ann")}, Limits{MaxBytes: size, BulkBytes: 4 * size})
	ep := connect(t, ann, node, "tcp://127.0.0.1:0")
	if got, err := ann.p.Call(t.Context(), ep, "count", make([]byte, size)); err != nil || string(got) != fmt.Sprint(size) {
		t.Fatalf("%q, %v", got, err)
	}
	close(gate)
	for _, f := range futures { // the others have waited for their turn
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	waitFor(t, "all is given back", func() bool { return node.p.requests.inUse() == 0 })
}

// unread is memory that does not answer until gate is closed.
type unread struct{ gate chan struct{} }

func (unread) Bytes() []byte                  { return nil }
func (unread) FD() (int, int64)               { return -1, 0 }
func (u unread) ReadAt([]byte, uint64) error  { <-u.gate; return nil }
func (u unread) WriteAt([]byte, uint64) error { return nil }
func (unread) Close() error                   { return nil }

// TestRequestNeverSent: a request whose owner does not send it is given up, and what it had, long before its call's deadline.
func TestRequestNeverSent(t *testing.T) {
	const size = 1 << 20
	node := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{LingerTime: 100 * time.Millisecond})
	eve := newSideOf(t, fabric.Config{Name: "eve", Auth: tokenOf("eve")}, Limits{})
	node.serve(t, "count", func(_ context.Context, c *Call) ([]byte, error) { return fmt.Append(nil, len(c.Req)), nil })
	ep := connect(t, eve, node, "tcp://127.0.0.1:0")
	gate := make(chan struct{})
	defer close(gate)
	seg, err := eve.el.NewSegmentOn(unread{gate}, size, fabric.Writable)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seg.Key(fabric.RightRead)
	if err != nil {
		t.Fatal(err)
	}
	r := request{method: HashName("count"), id: 1 << 16, low: 1, left: time.Hour, flags: flagLent}
	var head [requestBytes]byte
	r.put(&head)
	if err := ep.Post(IDRequest, head[:], ref{key, size}.append(nil)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is fetched, and given up", func() bool { return node.p.Stats().Served == 1 })
	waitFor(t, "its memory and its place are free", func() bool { return node.p.requests.inUse() == 0 && node.p.Stats().Active == 0 }) // after it counts as served
}

// TestAllow: who may not make a call hears it before any of the request is fetched.
func TestAllow(t *testing.T) {
	node := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{})
	var served atomic.Int64
	err := node.p.Register("table", func(_ context.Context, c *Call) ([]byte, error) {
		served.Add(int64(len(c.Req)))
		return nil, nil
	}, Options{Allow: func(ep *fabric.Endpoint) error {
		if who := ep.Principal().Name; who != "ann" {
			return &Error{FirstCode + 7, who + " may not"}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"eve", "ann"} {
		side := newSideOf(t, fabric.Config{Name: who, Auth: tokenOf(who)}, Limits{})
		_, err := side.p.Call(t.Context(), connect(t, side, node, "tcp://127.0.0.1:0"), "table", make([]byte, 8<<20))
		var own *RemoteError
		switch {
		case who == "ann" && (err != nil || served.Load() != 8<<20):
			t.Errorf("ann: %v, %d bytes were served", err, served.Load())
		case who == "eve" && (!errors.As(err, &own) || own.Code != FirstCode+7 || own.Text != "eve may not"):
			t.Errorf("eve: %v", err)
		case who == "eve" && (node.p.stats.overflows.Load() != 0 || served.Load() != 0):
			t.Errorf("%d requests of eve's were fetched, %d bytes served", node.p.stats.overflows.Load(), served.Load())
		}
	}
}
