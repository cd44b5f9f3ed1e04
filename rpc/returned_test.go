package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// bare is an element without a Peer.
func bare(t testing.TB, name string) *side {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sh, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr, sh}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return &side{el: el}
}

// TestNoPeer: calls to an element that serves none at all end at once, and leave nothing behind.
func TestNoPeer(t *testing.T) {
	a, b := newSideOf(t, fabric.Config{Name: "a", Several: true}, Limits{CallTime: time.Hour}), bare(t, "b")
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range []int{0, 100, 100_000} {
		_, err := a.p.Call(ctx, ep, "echo", make([]byte, n))
		if !errors.Is(err, ErrNoSuchCall) || !strings.Contains(err.Error(), "echo at b: it serves no calls") {
			t.Errorf("a call of %d bytes: %v", n, err)
		}
		if f, err := a.p.Start(ctx, ep, "echo", make([]byte, n)); err != nil {
			t.Error(err)
		} else if _, err := f.Wait(ctx); !errors.Is(err, ErrNoSuchCall) {
			t.Errorf("a call of %d bytes that was started: %v", n, err)
		}
	}
	for i := range 2 * exchange.MaxOneWay {
		if err := a.p.Send(ctx, ep, "echo", make([]byte, 100_000*(i&1))); err != nil {
			t.Fatalf("one-way call %d: %v", i, err)
		}
	}
	waitFor(t, "what was lent comes back", func() bool {
		s := a.p.Stats()
		return s.BulkBytes == s.PoolBytes
	})
	if err := ep.Err(); err != nil {
		t.Error(err)
	}
	// Once there is a Peer, it is called.
	var err error
	if b.p, err = New(b.el, Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.p.Close() })
	b.serve(t, "echo", echo)
	again := connect(t, a, b, "tcp://127.0.0.1:0")
	if got, err := a.p.Call(ctx, again, "echo", []byte("ahoy")); err != nil || string(got) != "ahoy" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestReturnedForged: a peer can say of no request that it came back that was not sent, or make the caller panic.
func TestReturnedForged(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	b.serve(t, "echo", echo)
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	if _, err := a.p.Call(t.Context(), ep, "echo", nil); err != nil {
		t.Fatal(err)
	}
	c := a.conns()[0]
	for _, id := range []exchange.ID{1 << 16, 1<<16 | 5, 1<<40 | exchange.ID(exchange.NoSlot-1)} {
		head := make([]byte, requestIDEnd)
		putNumber((*[numberBytes]byte)(head[8:]), id)
		if err := c.onReturned(head); err != nil {
			t.Errorf("a request that has ended: %v", err)
		}
	}
	for _, head := range [][]byte{nil, make([]byte, requestIDEnd-1), make([]byte, requestIDEnd)} {
		if err := c.onReturned(head); !errors.Is(err, ErrWire) {
			t.Errorf("%x: %v", head, err)
		}
	}
	head := make([]byte, requestIDEnd)
	putNumber((*[numberBytes]byte)(head[8:]), 7<<16|exchange.NoSlot)
	if err := c.onReturned(head); !errors.Is(err, ErrWire) {
		t.Errorf("a one-way call that was not made: %v", err)
	}
	if got, err := a.p.Call(t.Context(), ep, "echo", []byte("ahoy")); err != nil || string(got) != "ahoy" {
		t.Errorf("%q, %v", got, err)
	}
}
