package rpc

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// kept waits until so many bytes of requests' memory are idle.
func (s *side) kept(t testing.TB, want int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d bytes are kept", want), func() bool { return s.p.Stats().BufferBytes == want })
}

// gate serves calls that wait until open is called, or the test ends.
func (s *side) gate(t testing.TB, name string) (entered *atomic.Int64, open func()) {
	t.Helper()
	gate, entered := make(chan struct{}), new(atomic.Int64)
	s.serve(t, name, func(context.Context, *Call) ([]byte, error) { entered.Add(1); <-gate; return nil, nil })
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return entered, open
}

// send calls name with n times the byte b.
func send(t testing.TB, s *side, ep *fabric.Endpoint, name string, n int, b byte) []byte {
	t.Helper()
	got, err := s.p.Call(t.Context(), ep, name, bytes.Repeat([]byte{b}, n))
	if err != nil {
		t.Fatalf("%d bytes: %v", n, err)
	}
	return got
}

// whole is a handler that wants all that it can reach through its request to be one byte over and over. (Memory of
// its own, which a small request may have, is zero beyond it.)
func whole(_ context.Context, c *Call) ([]byte, error) {
	for i, b := range c.Req[:cap(c.Req)] {
		if c.Bytes <= defaultEagerBytes && i >= c.Bytes && b == 0 {
			continue
		}
		if b != c.Req[0] {
			return nil, fmt.Errorf("byte %d of a request of %d is %#x, the first is %#x", i, len(c.Req), b, c.Req[0])
		}
	}
	return nil, nil
}

func TestRequestMemoryIsReused(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		for _, o := range []Options{{Inline: true}, {}} {
			a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
			ep := connect(t, a, b, addr)
			if err := b.p.Register("take", whole, o); err != nil {
				t.Fatal(err)
			}
			for i, step := range []struct {
				bytes  int
				reused uint64
				kept   int64
			}{
				{100, 0, 0}, // it travels in the message
				{100_000, 0, 100_000},
				{100_000, 1, 100_000},
				{90_000, 2, 100_000},  // what follows it there is not to be seen
				{120_000, 2, 120_000}, // too large for that: it takes its place
				{70_000, 3, 120_000},
				{1 << 20, 3, 120_000 + 1<<20},
				{200, 3, 120_000 + 1<<20},
				{600_000, 4, 120_000 + 1<<20},
			} {
				send(t, a, ep, "take", step.bytes, byte('a'+i))
				b.kept(t, step.kept)
				if got := b.p.Stats().Reused; got != step.reused {
					t.Fatalf("call %d, of %d bytes: %d were fetched into an earlier one's memory, not %d", i, step.bytes, got, step.reused)
				}
			}
			a.p.Close()
			a.el.Close()
			b.p.Close()
			b.el.Close()
		}
	})
}

func TestRequestMemoryIsBounded(t *testing.T) {
	a, b := newSideOf(t, fabric.Config{Name: "a", Several: true}, Limits{}), newSide(t, "b", Limits{PoolBytes: 2 << 20})
	eps := []*fabric.Endpoint{connect(t, a, b, "tcp://127.0.0.1:0"), connect(t, a, b, "tcp://127.0.0.1:0")}
	entered, open := b.gate(t, "wait")
	var futures []Future
	for i := range 6 {
		f, err := a.p.Start(t.Context(), eps[i%2], "wait", make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
	}
	waitFor(t, "all run", func() bool { return entered.Load() == 6 })
	open()
	for _, f := range futures {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all have ended", func() bool { return b.p.Stats().Active == 0 })
	b.kept(t, 2<<20)
}

func TestRequestMemoryGoes(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	b.serve(t, "take", whole)
	entered, open := b.gate(t, "wait")
	send(t, a, ep, "take", 100_000, 'a')
	b.kept(t, 100_000)
	last := b.p.layer.CoarseNow()
	b.p.sweep(last)
	b.kept(t, 100_000)
	b.p.sweep(last + int64(poolTime) + 1)
	b.kept(t, 0)

	if err := a.p.Send(t.Context(), ep, "take", make([]byte, 100_000)); err != nil { // nor does it matter that nobody is answered
		t.Fatal(err)
	}
	b.kept(t, 100_000)
	f, err := a.p.Start(t.Context(), ep, "wait", make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the call runs", func() bool { return entered.Load() == 1 })
	ep.Close()
	b.kept(t, 0)
	open() // what this one was using is its endpoint's too, which is gone
	f.Wait(t.Context())
	waitFor(t, "the call has ended", func() bool { return b.p.Stats().Served == 3 })
	b.p.Close()
	b.kept(t, 0)
}

// TestRequestStays has requests outlive their handlers, as far as they may: others that come meanwhile
// must not be fetched into their memory.
func TestRequestStays(t *testing.T) {
	const n = 100_000
	schemes(t, func(t *testing.T, addr string) {
		t.Run("detached", func(t *testing.T) {
			a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
			ep := connect(t, a, b, addr)
			later := make(chan *Call, 1)
			b.serve(t, "take", whole)
			err := b.p.Register("later", func(_ context.Context, c *Call) ([]byte, error) { err := c.Detach(); later <- c; return nil, err }, Options{Inline: true})
			if err != nil {
				t.Fatal(err)
			}
			send(t, a, ep, "take", n, 'a') // imports the segment, so that the next handler runs at once where it is mapped
			b.kept(t, n)
			for range 2 {
				f, err := a.p.Start(t.Context(), ep, "later", bytes.Repeat([]byte{'b'}, n))
				if err != nil {
					t.Fatal(err)
				}
				c := <-later
				for _, other := range []byte("cd") {
					send(t, a, ep, "take", n, other)
					b.kept(t, n)
				}
				if _, err := whole(t.Context(), c); err != nil || c.Req[0] != 'b' {
					t.Errorf("a detached call's request begins with %q: %v", c.Req[:1], err)
				}
				c.Reply(c.Req, nil)
				got, err := f.Wait(t.Context())
				if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{'b'}, n)) {
					t.Errorf("%d bytes were answered: %v", len(got), err)
				}
				b.kept(t, 2*n)
			}
		})
		t.Run("held", func(t *testing.T) {
			a := newSide(t, "a", Limits{})
			b := newSide(t, "b", Limits{MaxBytes: 128 << 10, BulkBytes: 256 << 10}) // one answer can be lent
			ep := connect(t, a, b, addr)
			b.serve(t, "echo", echo)
			b.serve(t, "take", whole)
			futures := make([]Future, 8)
			for i := range futures {
				var err error
				if futures[i], err = a.p.begin(t.Context(), ep, named("echo"), bytes.Repeat([]byte{byte('a' + i)}, n), sendWaits); err != nil {
					t.Fatal(err)
				}
			}
			waitFor(t, "all have run", func() bool { return b.p.Stats().Served == 8 })
			send(t, a, ep, "take", n, 'z')
			var all sync.WaitGroup
			for i, f := range futures {
				all.Go(func() {
					got, err := f.Wait(t.Context())
					if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte('a' + i)}, n)) {
						t.Errorf("answer %d has %d bytes and begins with %q: %v", i, len(got), got[:min(1, len(got))], err)
					}
				})
			}
			all.Wait()
		})
	})
}

// TestAnswerGrowsFromRequest has handlers append to requests that lie side by side.
func TestAnswerGrowsFromRequest(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		more := bytes.Repeat([]byte("!"), 40)
		if err := b.p.Register("grow", func(_ context.Context, c *Call) ([]byte, error) { return append(c.Req, more...), nil }, Options{Inline: true}); err != nil {
			t.Fatal(err)
		}
		futures := make([]Future, 64)
		ep.Hold()
		for i := range futures {
			var err error
			if futures[i], err = a.p.Start(t.Context(), ep, "grow", []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		ep.Release()
		for i, f := range futures {
			if got, err := f.Wait(t.Context()); err != nil || !bytes.Equal(got, append([]byte{byte(i)}, more...)) {
				t.Errorf("call %d: %q, %v", i, got, err)
			}
		}
	})
}

// BenchmarkLargeRequest compares requests that are fetched into fresh memory, as where nothing may be
// kept, and into that of earlier ones.
func BenchmarkLargeRequest(b *testing.B) {
	for _, addr := range []string{"tcp://127.0.0.1:0", "shm://" + filepath.Join(b.TempDir(), "s.sock")} {
		for _, n := range []int{64 << 10, 1 << 20, 8 << 20} {
			for _, keep := range []int64{1, 16 << 20} {
				b.Run(fmt.Sprintf("%s/%dKiB/%s", addr[:3], n>>10, map[bool]string{true: "kept", false: "fresh"}[keep > 1]), func(b *testing.B) {
					x, y := newSide(b, "a", Limits{}), newSide(b, "b", Limits{PoolBytes: keep})
					ep := connect(b, x, y, addr)
					y.serve(b, "take", func(context.Context, *Call) ([]byte, error) { return nil, nil })
					req := make([]byte, n)
					b.SetBytes(int64(n))
					b.ReportAllocs()
					for b.Loop() {
						if _, err := x.p.Call(b.Context(), ep, "take", req); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// TestIdleAnswers: the memory of answers that a burst of calls needed is kept within Limits.PoolBytes over all endpoints, for a while.
func TestIdleAnswers(t *testing.T) {
	const each = 40_000
	a, b := newSideOf(t, fabric.Config{Name: "a", Several: true}, Limits{EagerBytes: 60_000, PoolBytes: 20 * each}), newSide(t, "b", Limits{EagerBytes: 60_000})
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, each), nil })
	addr, err := b.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		ep, err := a.el.Dial(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		var futures []Future
		for range 16 {
			f, err := a.p.Start(t.Context(), ep, "large", nil)
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
		for _, f := range futures {
			if got, err := f.Wait(t.Context()); len(got) != each {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
	}
	held := func() (n int64) {
		for _, c := range a.conns() {
			c.mu.Lock()
			for _, r := range c.records {
				n += int64(cap(r.body))
			}
			c.mu.Unlock()
		}
		return n
	}
	if n, says := held(), a.p.Stats().BufferBytes; n > 20*each+64*keptShort || n < 10*each || says > n || says < n-64*keptShort {
		t.Errorf("%d bytes are kept, and said to be %d, of at most %d", n, says, 20*each)
	}
	a.p.sweep(a.el.Now() + 2*int64(poolTime) + 2)
	if n := held(); n > 64*keptShort || a.p.Stats().BufferBytes != 0 {
		t.Errorf("%d bytes are kept later", n)
	}
}

// TestIdleSegments: the sweep lets go of segments that nobody has used for a while.
func TestIdleSegments(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	b.serve(t, "take", func(context.Context, *Call) ([]byte, error) { return nil, nil })
	if _, err := a.p.Call(t.Context(), ep, "take", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its segment is kept", func() bool { return a.p.Stats().PoolBytes > 0 })
	a.p.sweep(a.el.Now() + int64(poolTime) + 1)
	if s := a.p.Stats(); s.PoolBytes != 0 || s.BulkBytes != 0 {
		t.Errorf("%d bytes are kept, %d in all", s.PoolBytes, s.BulkBytes)
	}
}

// TestMaxTime: a call has no more time than its callee gives, whatever its caller says.
func TestMaxTime(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{MaxTime: time.Second})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	var left atomic.Int64
	b.serve(t, "left", func(ctx context.Context, c *Call) ([]byte, error) { left.Store(int64(c.Left())); return nil, nil })
	for _, limit := range []time.Duration{time.Hour, 1000 * time.Hour} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		if _, err := a.p.Call(ctx, ep, "left", nil); err != nil || left.Load() > int64(time.Second) {
			t.Errorf("with %v: %v left, %v", limit, time.Duration(left.Load()), err)
		}
		cancel()
	}
}
