package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

func TestMain(m *testing.M) {
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// patience is what a test waits for what should take a moment.
const patience = time.Minute

// side is an element with a Peer.
type side struct {
	el *fabric.Element
	p  *Peer
}

// newSide makes an element with a Peer.
func newSide(t testing.TB, name string, limits Limits) *side {
	t.Helper()
	return newSideOf(t, fabric.Config{Name: name}, limits)
}

func newSideOf(t testing.TB, cfg fabric.Config, limits Limits) *side {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sh, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &side{}
	cfg.Transports = []fabric.Transport{tr, sh}
	s.el, err = fabric.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.p, err = New(s.el, Config{Limits: limits}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.p.Close()
		s.el.Close()
	})
	return s
}

// schemes are the transports that every test of behaviour runs over.
func schemes(t *testing.T, fn func(t *testing.T, addr string)) {
	t.Run("tcp", func(t *testing.T) { fn(t, "tcp://127.0.0.1:0") })
	t.Run("shm", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "wherry")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		fn(t, "shm://"+filepath.Join(dir, "s.sock"))
	})
}

// conns is what a side keeps for its endpoints.
func (s *side) conns() []*conn {
	s.p.mu.RLock()
	defer s.p.mu.RUnlock()
	return slices.Clone(s.p.order)
}

func connect(t testing.TB, from, to *side, addr string) *fabric.Endpoint {
	t.Helper()
	bound, err := to.el.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ep, err := from.el.Dial(ctx, bound)
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

func (s *side) serve(t testing.TB, name string, fn Handler) {
	t.Helper()
	if err := s.p.Register(name, fn, Options{}); err != nil {
		t.Fatal(err)
	}
}

func echo(_ context.Context, c *Call) ([]byte, error) { return c.Req, nil }

func TestCallBothWaysAndSizes(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		b.serve(t, "echo", echo)
		a.serve(t, "whoami", func(ctx context.Context, c *Call) ([]byte, error) { return []byte("a for " + c.From.Name()), nil })
		b.serve(t, "ask back", func(ctx context.Context, c *Call) ([]byte, error) {
			return b.p.Call(ctx, c.From, "whoami", nil)
		})
		for _, n := range []int{0, 1, 55, 4096, defaultEagerBytes, defaultEagerBytes + 1, 200_000, 5 << 20} {
			req := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
			got, err := a.p.Call(t.Context(), ep, "echo", req)
			if err != nil || !bytes.Equal(got, req) {
				t.Fatalf("%d bytes: %d bytes back, %v", n, len(got), err)
			}
		}
		got, err := a.p.Call(t.Context(), ep, "ask back", nil)
		if err != nil || string(got) != "a for b" {
			t.Fatalf("%q, %v", got, err)
		}
		waitFor(t, "payload segments are freed", func() bool {
			return a.p.Stats().BulkBytes == a.p.Stats().PoolBytes && b.p.Stats().BulkBytes == b.p.Stats().PoolBytes
		})
	})
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for tries, end := 0, time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if tries++; tries > 3000 && time.Now().After(end) { // a machine that stood still has not looked
			t.Fatal("not in time: " + what)
		}
	}
}

func TestErrors(t *testing.T) {
	a, b := newSide(t, "a", Limits{CallsPerPeer: 2}), newSide(t, "b", Limits{CallsPerPeer: 2, MaxBytes: 1 << 20})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	b.serve(t, "plain", func(context.Context, *Call) ([]byte, error) { return nil, errors.New("no\x1b[2J luck") })
	b.serve(t, "coded", func(context.Context, *Call) ([]byte, error) {
		return nil, fmt.Errorf("outer: %w", &Error{FirstCode + 7, "full"})
	})
	b.serve(t, "long", func(context.Context, *Call) ([]byte, error) { return nil, errors.New(strings.Repeat("x", 1<<20)) })
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, 2<<20), nil })
	b.serve(t, "slow", func(ctx context.Context, _ *Call) ([]byte, error) { <-ctx.Done(); return nil, context.Cause(ctx) })
	b.serve(t, "echo", echo)

	_, err := a.p.Call(t.Context(), ep, "plain", nil)
	var re *RemoteError
	if !errors.As(err, &re) || re.Code != CodeFailed || re.Peer != "b" || re.Call != "plain" || strings.Contains(re.Text, "\x1b") {
		t.Errorf("plain: %#v", err)
	}
	if _, err = a.p.Call(t.Context(), ep, "coded", nil); !errors.As(err, &re) || re.Code != FirstCode+7 || re.Text != "outer: full" {
		t.Errorf("coded: %#v", err)
	}
	if _, err = a.p.Call(t.Context(), ep, "long", nil); !errors.As(err, &re) || len(re.Text) > maxTextBytes || !strings.HasSuffix(re.Text, "(1048576 bytes in all)") {
		t.Errorf("long: %d bytes", len(re.Text))
	}
	for name, want := range map[string]error{"absent": ErrNoSuchCall, "large": ErrTooLarge} {
		if _, err := a.p.Call(t.Context(), ep, name, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := a.p.Call(t.Context(), ep, "echo", make([]byte, 2<<20)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a request above the callee's limit: %v", err)
	}
	if _, err := a.p.Call(t.Context(), ep, "echo", make([]byte, 17<<20)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a request above the caller's limit: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := a.p.Call(ctx, ep, "slow", nil); !errors.Is(err, ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("slow: %v", err)
	}
}

func TestBusy(t *testing.T) {
	a, b := newSide(t, "a", Limits{Outgoing: 3}), newSide(t, "b", Limits{CallsPerPeer: 2, Queued: -1})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	gate := make(chan struct{})
	b.serve(t, "gate", func(ctx context.Context, _ *Call) ([]byte, error) { <-gate; return nil, nil })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := a.p.Call(t.Context(), ep, "gate", nil); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, "both calls run", func() bool { return b.p.Stats().Active == 2 })
	if _, err := a.p.Call(t.Context(), ep, "gate", nil); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "limit for one") {
		t.Errorf("the third call: %v", err)
	}
	close(gate)
	wg.Wait()
	waitFor(t, "no call runs", func() bool { return b.p.Stats().Active == 0 })
	if _, err := a.p.Call(t.Context(), ep, "gate", nil); err != nil {
		t.Errorf("after the others: %v", err)
	}
	if s := b.p.Stats(); s.Refused != 1 || s.Served != 3 {
		t.Errorf("%+v", s)
	}
}

func TestCancelEndsTheHandler(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		b.serve(t, "wait", func(ctx context.Context, _ *Call) ([]byte, error) {
			cancel() // now that it runs: what was cancelled before would have no handler
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return make([]byte, 1<<20), nil // an answer that nobody wants
		})
		if _, err := a.p.Call(ctx, ep, "wait", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller: %v", err)
		}
		if err := <-ended; !errors.Is(err, errGaveUp) {
			t.Errorf("the handler: %v", err)
		}
		waitFor(t, "the unwanted answer is freed", func() bool { return b.p.Stats().Active == 0 && b.p.Stats().BulkBytes == b.p.Stats().PoolBytes })
	})
}

func TestPeerLost(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		ended := make(chan error, 1)
		b.serve(t, "wait", func(ctx context.Context, c *Call) ([]byte, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		a.serve(t, "cut", func(ctx context.Context, c *Call) ([]byte, error) { return nil, nil })
		done := make(chan error, 1)
		go func() {
			_, err := a.p.Call(t.Context(), ep, "wait", nil)
			done <- err
		}()
		waitFor(t, "the call runs", func() bool { return b.p.Stats().Active == 1 })
		for _, e := range b.el.Endpoints() {
			e.Close()
		}
		if err := <-done; !errors.Is(err, fabric.ErrPeerLost) || !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the caller: %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the handler's context has no cause")
		}
		if _, err := a.p.Call(t.Context(), ep, "wait", nil); !errors.Is(err, fabric.ErrPeerLost) {
			t.Errorf("a call on the lost endpoint: %v", err)
		}
		waitFor(t, "the conns are gone", func() bool {
			a.p.mu.RLock()
			defer a.p.mu.RUnlock()
			return len(a.p.conns) == 0
		})
	})
}

func TestNotes(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{NoteEvery: time.Millisecond})
		ep := connect(t, a, b, addr)
		b.serve(t, "work", func(ctx context.Context, c *Call) ([]byte, error) {
			for i := range 1000 {
				c.Note(fmt.Appendf(nil, "%d", i))
				if i%100 == 0 {
					time.Sleep(2 * time.Millisecond)
				}
			}
			return []byte("done"), nil
		})
		var notes []string
		got, err := a.p.CallNotes(t.Context(), ep, "work", nil, func(n []byte) { notes = append(notes, string(n)) })
		if err != nil || string(got) != "done" {
			t.Fatalf("%q, %v", got, err)
		}
		if len(notes) < 2 || len(notes) > 1000 {
			t.Errorf("%d notes", len(notes))
		}
	})
}

func TestUnfetchedAnswerExpires(t *testing.T) {
	b := newSide(t, "b", Limits{LingerTime: time.Millisecond})
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "mute", Transports: []fabric.Transport{tr}}) // it has no Peer, and acknowledges nothing
	if err != nil {
		t.Fatal(err)
	}
	defer el.Close()
	ep := connect(t, &side{el: el}, b, "tcp://127.0.0.1:0")
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, 1<<20), nil })
	r := request{method: HashName("large"), id: exchange.NewID(7, 0), low: 7, left: 300 * time.Millisecond}
	if err := ep.Send(t.Context(), IDRequest, r.append(nil), nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the answer is freed", func() bool { return b.p.Stats().Unfetched == 1 && b.el.LentBytes() == 0 && b.p.lentBytes() == 0 })
}

// TestIdleSegmentsGo keeps one size of segments busy: those of other sizes go all the same.
func TestIdleSegmentsGo(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
	base := a.el.Now() + int64(time.Hour) // out of reach of the element's own sweeps
	idleFrom := func(n int, at int64) {
		s, err := c.lend(nil, lentAnswer, n)
		if err != nil {
			t.Fatal(err)
		}
		c.reuse(s)
		c.mu.Lock()
		defer c.mu.Unlock()
		list := c.segments.free[s.class]
		list[len(list)-1].since = at
	}
	pool := func(now int64) int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.segments.trim(now)
		return a.p.idle.Load()
	}
	for _, n := range []int{1 << 20, 100_000, 200_000} {
		idleFrom(n, base)
	}
	if got := pool(base + int64(poolTime)); got != 1<<20+128<<10+256<<10 {
		t.Errorf("%d bytes are idle, and none for long", got)
	}
	idleFrom(1<<20, base+int64(poolTime))
	if got := pool(base + int64(poolTime) + 1); got != 1<<20 {
		t.Errorf("%d bytes are idle; only what was used just now may stay", got)
	}
	if got := pool(base + 3*int64(poolTime)); got != 0 || a.p.lentBytes() != 0 {
		t.Errorf("%d bytes are idle after a long time, of %d", got, a.p.lentBytes())
	}
}

func TestAtMostOnce(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	var runs atomic.Int64
	b.serve(t, "count", func(context.Context, *Call) ([]byte, error) { runs.Add(1); return nil, nil })
	r := request{method: HashName("count"), left: time.Minute}
	for _, n := range []uint64{100, 100, 102, 101, 102, 99, 100} {
		r.id, r.low = exchange.NewID(n, 0), min(n, 100)
		if err := ep.Send(t.Context(), IDRequest, r.append(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all requests are taken", func() bool { s := b.p.Stats(); return s.Served+s.Duplicates == 7 })
	if runs.Load() != 3 {
		t.Errorf("%d runs of 3 calls", runs.Load())
	}
}

func TestRegister(t *testing.T) {
	a := newSide(t, "a", Limits{})
	for _, bad := range []string{"", strings.Repeat("x", MaxNameBytes+1)} {
		if err := a.p.Register(bad, echo, Options{Inline: true}); !errors.Is(err, ErrName) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	a.serve(t, "x", echo)
	if err := a.p.Register("x", echo, Options{Inline: true}); !errors.Is(err, ErrName) {
		t.Error("a name could be registered twice")
	}
	// 64-bit FNV-1a has known collisions; make one by hand.
	a.p.methods.Store(a.p.methods.Load().changed(&method{name: "z", id: HashName("y"), fn: echo}, nil))
	if err := a.p.Register("y", echo, Options{Inline: true}); err == nil || !strings.Contains(err.Error(), "same hash") {
		t.Errorf("a collision: %v", err)
	}
}

func TestMalformedMessagesEndTheEndpoint(t *testing.T) {
	for _, id := range []fabric.FrameID{IDRequest, IDResponse, IDNote, IDCancel, IDAck} {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, "tcp://127.0.0.1:0")
		ep.Post(id, nil, []byte("short"))
		waitFor(t, "the endpoint ends", func() bool { return ep.Err() != nil })
		if b.p.Stats().Malformed != 1 {
			t.Errorf("id %d: %+v", id, b.p.Stats())
		}
	}
}

func TestCloseWaitsForHandlers(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	var ended atomic.Bool
	b.serve(t, "wait", func(ctx context.Context, _ *Call) ([]byte, error) {
		<-ctx.Done()
		time.Sleep(10 * time.Millisecond)
		ended.Store(true)
		return nil, ctx.Err()
	})
	done := make(chan error, 1)
	go func() { _, err := a.p.Call(t.Context(), ep, "wait", nil); done <- err }()
	waitFor(t, "the call runs", func() bool { return b.p.Stats().Active == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.p.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	b.p.Close()
	if !ended.Load() {
		t.Error("Close came back before the handler")
	}
	b.el.Close()
	if err := <-done; err == nil {
		t.Error("the call succeeded")
	}
}

func TestLimits(t *testing.T) {
	for _, l := range []Limits{{EagerBytes: 8}, {EagerBytes: 1 << 20}, {MaxBytes: 100}, {MaxBytes: 1 << 40}, {BulkBytes: 1 << 20},
		{Calls: -1}, {Outgoing: 1 << 20}, {NoteBytes: -1}, {CallTime: -1}, {MaxTime: -1}, {LingerTime: -1}, {NoteEvery: -1}} {
		if l.Validate() == nil {
			t.Errorf("%+v is valid", l)
		}
	}
	for name, set := range map[string]func(l *Limits, n int64){
		"RequestBytes": func(l *Limits, n int64) { l.RequestBytes = n },
		"HeldBytes":    func(l *Limits, n int64) { l.HeldBytes = n },
		"QueuedBytes":  func(l *Limits, n int64) { l.QueuedBytes = n },
		"BulkBytes":    func(l *Limits, n int64) { l.BulkBytes = n },
	} {
		var most, over Limits
		set(&most, maxLimitBytes)
		set(&over, maxLimitBytes+1)
		if err := most.Validate(); err != nil {
			t.Errorf("the greatest %s: %v", name, err)
		}
		if segments, heap := most.Memory(); segments < 0 || heap < 0 || segments+heap < 0 {
			t.Errorf("the greatest %s: %d and %d bytes of memory", name, segments, heap)
		}
		if err := over.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a greater %s: %v", name, err)
		}
	}
	all := Limits{RequestBytes: maxLimitBytes, HeldBytes: maxLimitBytes, QueuedBytes: maxLimitBytes, BulkBytes: maxLimitBytes, PoolBytes: maxLimitBytes}
	if segments, heap := all.Memory(); segments+heap < maxLimitBytes {
		t.Errorf("all of them: %d and %d bytes of memory", segments, heap)
	}
	if err := (Limits{}).Validate(); err != nil {
		t.Error(err)
	}
}

// allocPaths are the ways to call that must not allocate, and how much they may for
// what the caller is given to keep. Both sides are in one process, and are counted together.
func allocPaths(x, y *side, ep *fabric.Endpoint) map[string]struct {
	most float64
	call func() error
} {
	ctx, req, dst := context.Background(), make([]byte, 16), make([]byte, 0, 64)
	typed := Define("typed", Bytes{}, Bytes{})
	y.p.Register("echo", echo, Options{Inline: true})
	typed.Serve(y.p, func(_ context.Context, _ *Call, b []byte) ([]byte, error) { return b, nil }, Options{Inline: true})
	batch := make([]Future, 64)
	return map[string]struct {
		most float64
		call func() error
	}{
		"append": {0, func() error { _, err := x.p.CallAppend(ctx, ep, "echo", req, dst); return err }},
		"call":   {1, func() error { _, err := x.p.Call(ctx, ep, "echo", req); return err }},
		"typed":  {2, func() error { _, err := typed.CallInto(ctx, x.p, ep, req, dst); return err }}, // the request and the answer, copied for whoever keeps them
		"64 in flight": {0, func() error {
			for i := range batch {
				f, err := x.p.Start(ctx, ep, "echo", req)
				if err != nil {
					return err
				}
				batch[i] = f
			}
			for _, f := range batch {
				if _, err := f.WaitAppend(ctx, dst); err != nil {
					return err
				}
			}
			return nil
		}},
		"one-way": {0, func() error { return x.p.Send(ctx, ep, "echo", req) }},
	}
}

func TestAllocations(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		x, y := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, x, y, addr)
		for name, path := range allocPaths(x, y, ep) {
			var err error
			run := func() {
				if e := path.call(); e != nil {
					err = e
				}
			}
			for range 100 {
				run()
			}
			// Sleeps and timers of the background allocate now and then: look at the best of a few.
			best := 1e9
			for range 5 {
				best = min(best, testing.AllocsPerRun(200, run))
			}
			if err != nil || best > path.most {
				t.Errorf("%s: %v allocations, at most %v; %v", name, best, path.most, err)
			}
		}
	})
}

func BenchmarkPaths(b *testing.B) {
	for _, scheme := range []string{"tcp://127.0.0.1:0", "shm://" + filepath.Join(b.TempDir(), "s.sock")} {
		x, y := newSide(b, "a", Limits{}), newSide(b, "b", Limits{})
		ep := connect(b, x, y, scheme)
		for name, path := range allocPaths(x, y, ep) {
			b.Run(scheme[:3]+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := path.call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkCall(b *testing.B) {
	for _, n := range []int{8, 4096, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, y := newSide(b, "a", Limits{}), newSide(b, "b", Limits{})
			ep := connect(b, x, y, "tcp://127.0.0.1:0")
			y.serve(b, "echo", echo)
			req := make([]byte, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.p.Call(b.Context(), ep, "echo", req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFarDeadlines: a deadline beyond all times is none.
func TestFarDeadlines(t *testing.T) {
	for name, limits := range map[string]Limits{
		"default": {},
		"longest": {CallTime: math.MaxInt64, MaxTime: math.MaxInt64, LingerTime: math.MaxInt64, NoteEvery: math.MaxInt64},
	} {
		a, b := newSide(t, "a", limits), newSide(t, "b", limits)
		ep := connect(t, a, b, "tcp://127.0.0.1:0")
		b.serve(t, "echo", echo)
		far, cancel := context.WithDeadline(t.Context(), time.Unix(1<<40, 0))
		defer cancel()
		for _, ctx := range []context.Context{far, t.Context()} {
			for _, n := range []int{0, 100_000} {
				req := make([]byte, n)
				got, err := a.p.Call(ctx, ep, "echo", req)
				if err != nil || len(got) != n {
					t.Errorf("%s: a call: %d bytes, %v", name, len(got), err)
				}
				f, err := a.p.Start(ctx, ep, "echo", req)
				if err != nil {
					t.Errorf("%s: a call that is started: %v", name, err)
				} else if got, err := f.Wait(ctx); err != nil || len(got) != n {
					t.Errorf("%s: a call that was started: %d bytes, %v", name, len(got), err)
				}
				if err := a.p.Send(ctx, ep, "echo", req); err != nil {
					t.Errorf("%s: one way: %v", name, err)
				}
			}
		}
		b.p.Drain(t.Context())
		if s := b.p.Stats(); s.HandlerErrors != 0 || s.Refused != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
