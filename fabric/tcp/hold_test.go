package tcp

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestHold: what is sent between Hold and Release leaves together, in order, and a wait
// lets it go too.
func TestHold(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "TLS"}[secure], func(t *testing.T) {
			a, b, ep := holdPair(t, secure)
			var got, wrong, answers atomic.Int64
			b.Handle(100, func(m fabric.Message) {
				if binary.LittleEndian.Uint64(m.Body) != uint64(got.Add(1)) {
					wrong.Add(1)
				}
				m.From.Post(3000, nil, nil)
			})
			a.Handle(3000, func(fabric.Message) { answers.Add(1) })
			sent := 0
			send := func(n, size int) {
				for range n {
					sent++
					body := make([]byte, size)
					binary.LittleEndian.PutUint64(body, uint64(sent))
					if err := ep.Send(t.Context(), 100, nil, body); err != nil {
						t.Fatal(err)
					}
				}
			}
			arrive := func(what string) {
				t.Helper()
				if err := b.WaitFor(t.Context(), func() bool { return got.Load() == int64(sent) }); err != nil {
					t.Fatalf("%s: %d of %d arrived: %v", what, got.Load(), sent, err)
				}
			}
			send(1, 8)
			arrive("not held")

			ep.Hold()
			ep.Hold()
			send(10, 8)
			ep.Release()
			time.Sleep(20 * time.Millisecond)
			if n := got.Load(); n != 1 {
				t.Errorf("%d messages of 11 arrived, 1 was not held", n)
			}
			ep.Release()
			arrive("released")

			ep.Hold()
			send(3, 8)
			if err := a.WaitFor(t.Context(), func() bool { return answers.Load() == int64(sent) }); err != nil {
				t.Fatalf("a wait lets go: %v", err)
			}
			send(1, 8)
			ep.Release()
			arrive("held, waited and released")

			ep.Hold()
			send(300, 1000)
			send(3, 20<<10)
			send(2, 8)
			ep.Release()
			arrive("more than is held back")
			if n := wrong.Load(); n > 0 {
				t.Errorf("%d messages were out of order", n)
			}
			ep.Hold()
			ep.Close()
			ep.Release()
		})
	}
}

// TestHoldAgain: a wait sends what is held, and ends that hold; a further one holds again, though the first lasts.
func TestHoldAgain(t *testing.T) {
	a, b, ep := holdPair(t, false)
	var got, answers atomic.Int64
	b.Handle(100, func(m fabric.Message) { got.Add(1); m.From.Post(3000, nil, nil) })
	a.Handle(3000, func(fabric.Message) { answers.Add(1) })
	send := func(n int) {
		for range n {
			if err := ep.Send(t.Context(), 100, nil, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ep.Hold()
	send(1)
	if err := a.WaitFor(t.Context(), func() bool { return answers.Load() == 1 }); err != nil {
		t.Fatal(err)
	}
	if !ep.Hold() {
		t.Error("a socket cannot hold")
	}
	send(5)
	ep.Release()
	time.Sleep(20 * time.Millisecond)
	if n := got.Load(); n != 1 {
		t.Errorf("%d messages of 6 arrived, 5 were held after a wait", n)
	}
	ep.Release()
	if err := b.WaitFor(t.Context(), func() bool { return got.Load() == 6 }); err != nil {
		t.Fatalf("%d of 6 arrived: %v", got.Load(), err)
	}
}

func holdPair(t *testing.T, secure bool) (a, b *fabric.Element, ep *fabric.Endpoint) {
	if !secure {
		return pair(t, fabric.Latency)
	}
	ca := newAuthority(t, "ca")
	b, _ = element(t, "b", ca.holder(t, "b"))
	addr, err := b.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, _ = element(t, "a", ca.holder(t, "a"))
	ep, err = a.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return a, b, ep
}
