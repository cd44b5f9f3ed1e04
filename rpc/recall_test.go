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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// TestTurn: of those who wait for what all have together one at a time may have it, and who comes later stands behind.
func TestTurn(t *testing.T) {
	b := newSide(t, "b", Limits{})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		newHolder(t, b, false)
	}
	waitFor(t, "they are there", func() bool { return len(b.conns()) == 4 })
	cs := b.conns()
	granted := func(i int, at int64) { cs[i].granted.Store(at); b.p.hasRoom() }
	wait := func(i int) *shortage {
		s := &shortage{c: cs[i]}
		s.note(&noRoom{whose: roomOfAll})
		return s
	}
	turns := func(when string, want ...bool) {
		t.Helper()
		for i, c := range cs {
			if got := c.turn(); got != want[i] {
				t.Errorf("%s: endpoint %d may have room: %v", when, i, got)
			}
		}
	}
	for i := range cs {
		granted(i, int64(10*i))
	}
	turns("nobody waits", true, true, true, true)
	wait(1).note(&noRoom{whose: roomOfPeer})
	turns("one waits for its own", true, true, true, true)
	last := wait(3)
	turns("the last waits", true, true, true, true) // all others have waited for longer
	second := wait(1)
	turns("two wait", true, true, false, false)
	wait(1).note(nil)
	turns("one of its waits ends", true, true, false, false)
	cs[1].slow.Store(true)
	b.p.hasRoom()
	turns("one is slow", true, false, true, true)
	cs[0].slow.Store(true)
	turns("one that does not wait is slow", false, false, true, true)
	last.note(nil)
	turns("a slow one waits alone", true, true, true, true)
	granted(1, 40)
	turns("it had its turn", true, true, true, true)
	cs[0].slow.Store(false)
	cs[1].slow.Store(false)
	b.p.hasRoom()
	granted(3, 50)
	turns("one had a later turn", true, true, true, false)
	second.note(nil)
	if b.p.starved.Load() != 0 || b.p.line.Load() != nil {
		t.Error("nobody waits, and somebody is first in line")
	}
}
