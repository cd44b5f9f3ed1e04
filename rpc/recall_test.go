package rpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestHoardersGiveWay: several peers that together have all the memory for answers, and fetch none for an hour, give
// it up to who waits.
func TestHoardersGiveWay(t *testing.T) {
	const size, hoarders, calls, linger = 128 << 10, 12, 60, time.Second
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: 4 * size, LingerTime: linger})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
	start := time.Now()
	var all []*holder
	for range hoarders {
		h := newHolder(t, b, true)
		h.call(t, "large", calls)
		all = append(all, h)
	}
	recalled := func() (n int64) {
		for _, h := range all {
			n += h.recalled.Load()
		}
		return n
	}
	waitFor(t, "they have it all", func() bool { return b.p.Stats().BulkBytes == 4*size && b.p.starved.Load() > 0 })
	time.Sleep(3 * sweepEvery)
	if n := recalled(); n != 0 && time.Since(start) < linger {
		t.Errorf("%d answers were taken back before their time", n)
	}
	a := newSide(t, "a", Limits{})
	ep, err := a.el.Dial(t.Context(), b.el.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 3 {
		if got, err := a.p.Call(ctx, ep, "large", nil); err != nil || len(got) != size {
			t.Fatalf("call %d: %d bytes, %v; %+v", i, len(got), err, b.p.Stats())
		}
	}
	if recalled() == 0 {
		t.Error("nobody was told of an answer that was taken back")
	}
}

// TestRecalled: who waits too late for an answer that was taken back is told so, and that the call ran.
func TestRecalled(t *testing.T) {
	const size = 1 << 20
	schemes(t, func(t *testing.T, addr string) {
		b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: 3 * size, LingerTime: 50 * time.Millisecond})
		bound, err := b.el.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
		caller := func(cfg fabric.Config) (*side, *fabric.Endpoint) {
			s := newSideOf(t, cfg, Limits{MaxBytes: size, BulkBytes: size})
			ep, err := s.el.Dial(t.Context(), bound)
			if err != nil {
				t.Fatal(err)
			}
			return s, ep
		}
		a, ep := caller(fabric.Config{Name: "a", Manual: true}) // hears of nothing until it waits
		var lies Future
		for range 2 { // the first is fetched ahead, and takes the room for that
			if lies, err = a.p.Start(t.Context(), ep, "large", nil); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "its answer is there", func() bool { a.el.Progress(); return lies.Poll() })
		}
		b.p.makeRoom(3 * size)
		free := 3*size - b.p.bulk.Load()
		b.p.bulk.Add(free) // the rest is taken
		defer b.p.bulk.Add(-free)
		other, to := caller(fabric.Config{Name: "other"})
		if got, err := other.p.Call(t.Context(), to, "large", nil); err != nil || len(got) != size {
			t.Errorf("who waits: %d bytes, %v", len(got), err)
		}
		_, err = lies.Wait(t.Context())
		if !errors.Is(err, ErrAnswer) || errors.Is(err, fabric.ErrPeerLost) || errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("who does not: %v", err)
		}
		if n := b.p.Stats().Unfetched; n != 1 {
			t.Errorf("%d answers were taken back", n)
		}
	})
}

// TestRecallsInTurn: however often it is looked whether answers are to be taken back, they are at intervals only, in
// which who waits for their room can take it.
func TestRecallsInTurn(t *testing.T) {
	const size, calls = 1 << 20, 3
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: 8 * size, LingerTime: time.Hour})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
	newHolder(t, b, false).call(t, "large", calls)
	waitFor(t, "its endpoint is there", func() bool { return len(b.conns()) == 1 })
	c := b.conns()[0]
	waitFor(t, "they are lent", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.lending.Len() == calls
	})
	at := b.el.Now() + int64(2*time.Hour)
	for i, later := range []time.Duration{0, 0, sweepEvery - 1, sweepEvery, sweepEvery} {
		b.p.recall(at + int64(later))
		if n, want := b.p.Stats().Unfetched, uint64(1+i/3); n != want {
			t.Fatalf("%d answers were taken back by %v, want %d", n, later, want)
		}
	}
}
