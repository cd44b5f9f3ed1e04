package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// largeSides is a caller and a callee where one answer of 1 MiB takes all the room for those that nobody waits for; and one more that is held.
func largeSides(t *testing.T, perPeer int) (a, b *side, held func()) {
	limits := Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20}
	a = newSide(t, "a", limits)
	limits.CallsPerPeer = perPeer
	b = newSide(t, "b", limits)
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, 1<<20), nil })
	return a, b, func() {
		for i := range 2 {
			f, err := a.p.Start(t.Context(), ep, "large", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.Forget)
			if i == 0 {
				<-f.Done()
			}
		}
		waitFor(t, "an answer is held", func() bool { return b.p.held.Load() == 1 })
	}
}

// TestWaitsBesideHeld: a call for which a place becomes free without its caller's doing waits for it, though the last place is a held answer's.
func TestWaitsBesideHeld(t *testing.T) {
	a, b, hold := largeSides(t, 4)
	_, open := b.gate(t, "slow")
	hold()
	ep := a.el.Endpoints()[0]
	var futures []Future
	start := func() {
		f, err := a.p.Start(t.Context(), ep, "slow", nil)
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
	}
	for range 3 {
		start()
	}
	waitFor(t, "three run", func() bool { return b.p.Stats().Active == 3 })
	start()
	waitFor(t, "one waits", func() bool { return b.p.Stats().Parked == 1 })
	open()
	for i, f := range futures {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestStalledIsOnesOwn: a call that waits for another peer's is not refused because its caller leaves an answer unasked.
func TestStalledIsOnesOwn(t *testing.T) {
	a, b, hold := largeSides(t, 0)
	x := newSide(t, "x", Limits{})
	gate := make(chan bool)
	if err := b.p.Register("other", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil }, Options{Concurrent: 1}); err != nil {
		t.Fatal(err)
	}
	hold()
	ep := a.el.Endpoints()[0]
	theirs, err := x.p.Start(t.Context(), connect(t, x, b, "tcp://127.0.0.1:0"), "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "theirs runs", func() bool { return b.p.Stats().Active == 1 })
	ours, err := a.p.Start(t.Context(), ep, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "ours waits", func() bool { return b.p.Stats().Parked == 1 })
	for end := time.Now().Add(3 * sweepEvery); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b.el.TickSoon()
	}
	close(gate)
	for _, f := range []Future{theirs, ours} {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestQueuedAfterLoss: a call that comes to the queue when its endpoint is just lost does not stay there.
func TestQueuedAfterLoss(t *testing.T) {
	a, b := newSideOf(t, fabric.Config{Name: "a", Several: true}, Limits{}), newSide(t, "b", Limits{})
	ep, other := connect(t, a, b, "tcp://127.0.0.1:0"), connect(t, a, b, "tcp://127.0.0.1:0")
	gate := make(chan bool)
	if err := b.p.Register("one", func(context.Context, *Call) ([]byte, error) { <-gate; return nil, nil }, Options{Concurrent: 1}); err != nil {
		t.Fatal(err)
	}
	defer close(gate)
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
