package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestQueuedAfterLoss: a call that comes to the queue when its endpoint is just lost does not stay there.
func TestQueuedAfterLoss(t *testing.T) {
	a, b := newSideOf(t, fabric.Config{Name: "a", Several: true}, Limits{}), newSide(t, "b", Limits{})
	ep, other := connect(t, a, b, "tcp://127.0.0.1:0"), connect(t, a, b, "tcp://127.0.0.1:0")
	gate := make(chan bool)
	if err := b.p.Register("one", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil }, Options{Concurrent: 1}); err != nil {
		t.Fatal(err)
	}
	defer close(gate)
	waitFor(t, "b knows both endpoints", func() bool { return len(b.conns()) == 2 })
	conns := b.conns()
	f, err := a.p.Start(t.Context(), ep, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Forget()
	waitFor(t, "one runs", func() bool { return b.p.Stats().Active == 1 })
	other.Close()
	waitFor(t, "the other is lost", func() bool { return len(b.conns()) == 1 })
	lost := conns[0]
	if lost == b.conns()[0] {
		lost = conns[1]
	}
	r := request{method: HashName("one"), id: 1 << 16, low: 1, left: time.Hour}
	var head [requestBytes]byte
	r.put(&head)
	if err := lost.onRequest(head[:]); err != nil { // by a leader who had looked before
		t.Fatal(err)
	}
	if n := b.p.Stats().Parked; n != 0 {
		t.Errorf("%d calls of a lost endpoint wait", n)
	}
}

// TestQueuedCost: queued calls are charged for the memory that they keep, whatever it held before.
func TestQueuedCost(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	wide, gate := make(chan struct{}), make(chan struct{})
	b.serve(t, "fast", func(context.Context, *Call) ([]byte, error) { <-wide; return nil, nil })
	if err := b.p.Register("slow", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil }, Options{Concurrent: 1}); err != nil {
		t.Fatal(err)
	}
	start := func(n int, name string, req []byte) (fs []Future) {
		for range n {
			f, err := a.p.Start(t.Context(), ep, name, req)
			if err != nil {
				t.Fatal(err)
			}
			fs = append(fs, f)
		}
		return fs
	}
	end := func(fs []Future) {
		for _, f := range fs {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	fs := start(8, "fast", make([]byte, 60<<10))
	close(wide)
	end(fs)
	waitFor(t, "their memory is kept", func() bool { return b.p.Stats().Active == 0 && b.p.idleBuffers.Load() > 0 })
	for _, n := range []int{600, 40 << 10} {
		fs = append(fs[:0], start(9, "slow", make([]byte, n))...)
		waitFor(t, "they wait", func() bool { return b.p.Stats().Parked == 8 })
		q := &b.p.queue
		q.mu.Lock()
		kept := 0
		for _, calls := range q.calls {
			for _, k := range calls {
				kept += max(cap(k.buf), len(k.Req))
			}
		}
		if int64(kept) > q.bytes {
			t.Errorf("requests of %d bytes: the queued ones are charged %d bytes and keep %d", n, q.bytes, kept)
		}
		q.mu.Unlock()
		for range fs {
			gate <- struct{}{}
		}
		end(fs)
	}
}
