package rpctest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func callChecks() []check {
	return []check{
		{"unregistered at the caller", unregisteredCaller},
		{"unregistered at the callee", unregisteredCallee},
		{"null call with zero bytes", nullCall},
		{"exact payload sizes", exactSizes},
		{"32 times connect, call, drop", connectCallDrop},
		{"one-way", oneWay},
		{"more one-way calls than may run", oneWays},
		{"start and await", startAndAwait},
		{"typed", typed},
		{"nested call", nested},
		{"nested call from an inline handler", nestedInline},
		{"detached answer", detached},
		{"deadline travels", deadlineTravels},
		{"errors in full", errorsInFull},
		{"notes", notes},
		{"deregister while in use", deregister},
		{"corrupted frame", corrupted},
		{"at most once", atMostOnce},
	}
}

func unregisteredCaller(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	var m rpc.Method[[]byte, []byte]
	if _, err := m.Call(r.Ctx, a.Peer, ep, nil); !errors.Is(err, rpc.ErrName) {
		r.Errorf("a method that was never defined: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("x", rpc.MaxNameBytes+1)} {
		if _, err := a.Call(r.Ctx, ep, name, nil); !errors.Is(err, rpc.ErrName) {
			r.Errorf("a name of %d bytes: %v", len(name), err)
		}
	}
	if s := b.Stats(); s.Served+s.Refused != 0 {
		r.Errorf("something was sent: %+v", s)
	}
}

func unregisteredCallee(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	for _, n := range []int{0, 100_000} {
		_, err := a.Call(r.Ctx, ep, "absent", make([]byte, n))
		var re *rpc.RemoteError
		if !errors.Is(err, rpc.ErrNoSuchCall) || !errors.As(err, &re) || re.Call != "absent" || re.Peer != b.el.Name() {
			r.Errorf("with %d bytes: %v", n, err)
		}
		r.Must(a.Send(r.Ctx, ep, "absent", make([]byte, n)))
	}
	r.echoes(a, ep, []byte("still there"))
	r.settled(a, b)
	if got := b.Stats().Refused; got != 4 {
		r.Errorf("%d refused", got)
	}
}

func nullCall(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	var runs atomic.Int64
	for name, o := range map[string]rpc.Options{"inline": inline(), "blocking": blocking()} {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			if len(c.Req) != 0 {
				return nil, fmt.Errorf("%d bytes", len(c.Req))
			}
			runs.Add(1)
			return nil, nil
		})
		got, err := a.Call(r.Ctx, ep, name, nil)
		if err != nil || len(got) != 0 {
			r.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if runs.Load() != 2 {
		r.Errorf("%d runs", runs.Load())
	}
}

func exactSizes(r *rig) {
	limits := rpc.Limits{EagerBytes: 4096, MaxBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	r.serve(b, "echo", inline(), echo)
	for _, n := range []int{1, 7, 8, 20, 21, 47, 48, 49, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 1<<20 - 1, 1 << 20} {
		r.echoes(a, ep, suite.Pattern(n, uint32(n)))
	}
	if _, err := a.Call(r.Ctx, ep, "echo", make([]byte, 1<<20+1)); !errors.Is(err, rpc.ErrTooLarge) {
		r.Errorf("a byte more than the limit: %v", err)
	}
	r.settled(a, b)
}

func connectCallDrop(r *rig) {
	a := r.side(rpc.Config{})
	b := a
	if !r.self {
		b = r.side(rpc.Config{})
	}
	r.serve(b, "echo", inline(), echo)
	for i := range 32 {
		ep := r.dial(a, b)
		r.echoes(a, ep, suite.Pattern(1000*i, uint32(i)))
		ep.Close()
		if _, err := a.Call(r.Ctx, ep, "echo", nil); err == nil {
			r.Fatal("a call over a dropped endpoint succeeded")
		}
	}
	r.Eventually("all endpoints are gone", func() bool { return len(a.el.Endpoints()) == 0 && len(b.el.Endpoints()) == 0 })
	r.Eventually("their segments are gone", func() bool { return a.Stats().BulkBytes == 0 && b.Stats().BulkBytes == 0 })
}

func oneWay(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	var sum atomic.Int64
	r.serve(b, "add", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		if !c.OneWay {
			return nil, errors.New("not one-way")
		}
		sum.Add(int64(c.Req[0]))
		return []byte("for nobody"), nil
	})
	for i := range 100 {
		r.Must(a.Send(r.Ctx, ep, "add", []byte{byte(i)}))
	}
	r.Eventually("all have run", func() bool { return b.Stats().Served == 100 })
	if sum.Load() != 4950 {
		r.Errorf("the sum is %d", sum.Load())
	}
	if s := a.Stats(); s.Malformed != 0 || s.Failed != 0 {
		r.Errorf("%+v", s)
	}
}

// oneWays makes more one-way calls than may run, or be under way: whoever makes them waits, and each runs, of every sort of
// handler, small and large, also beside calls that are answered and take all the room there is for them.
func oneWays(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 3, Calls: 4}})
	const n = 300
	var ran [5][n]atomic.Int32 // of each of four handlers, and those that had to wait at first
	var running atomic.Int64
	var crowded atomic.Bool
	at := func(c *rpc.Call) *atomic.Int32 {
		return &ran[c.Req[0]][binary.LittleEndian.Uint16(c.Req[1:])]
	}
	block := func(_ context.Context, c *rpc.Call) ([]byte, error) {
		if running.Add(1) > 3 {
			crowded.Store(true)
		}
		time.Sleep(100 * time.Microsecond)
		at(c).Add(1)
		running.Add(-1)
		return nil, nil
	}
	r.serve(b, "block", blocking(), block)
	r.serve(b, "one by one", rpc.Options{Concurrent: 1}, block)
	r.serve(b, "inline", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) { at(c).Add(1); return nil, nil })
	r.serve(b, "later", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		if err := c.Detach(); err != nil {
			return nil, err
		}
		at(c).Add(1)
		go c.Reply(nil, nil)
		return nil, nil
	})
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	r.serve(b, "gate", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { <-gate; return nil, nil })
	for range 3 { // as many as may run
		r.start(a, ep, "gate", nil)
	}
	r.Eventually("there is no room", func() bool { return b.Stats().Active == 3 })
	for i := range 20 { // none of them can run yet
		r.Must(a.Send(r.Ctx, ep, "block", binary.LittleEndian.AppendUint16([]byte{4}, uint16(i))))
	}
	r.Eventually("they wait", func() bool { return b.Stats().Parked == 20 })
	open()
	var wg sync.WaitGroup
	for who, to := range []struct {
		name  string
		bytes int
	}{{"block", 0}, {"one by one", 0}, {"inline", 100_000}, {"later", 0}} {
		wg.Go(func() {
			for i := range n {
				req := binary.LittleEndian.AppendUint16([]byte{byte(who)}, uint16(i))
				if err := a.Send(r.Ctx, ep, to.name, append(req, make([]byte, to.bytes)...)); err != nil {
					r.Errorf("%s %d: %v", to.name, i, err)
				}
			}
		})
	}
	wg.Wait()
	r.Eventually("all have run", func() bool { return b.Stats().Served == 3+20+4*n })
	for who := range ran {
		for i := range ran[who] {
			if got := ran[who][i].Load(); got != 1 && (who < 4 || i < 20) {
				r.Errorf("%d of handler %d ran %d times", i, who, got)
			}
		}
	}
	if s := b.Stats(); s.Refused != 0 || s.Parked != 0 || crowded.Load() {
		r.Errorf("%+v, more at once than may be: %v", s, crowded.Load())
	}
	r.settled(a, b)
}

func startAndAwait(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	gate := make(chan struct{})
	r.serve(b, "gate", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { <-gate; return []byte("open"), nil })
	slow := r.start(a, ep, "gate", nil)
	if slow.Poll() {
		r.Error("it ended before it could")
	}
	fast := r.start(a, ep, "echo", []byte("x"))
	<-fast.Done()
	if got, err := fast.Wait(r.Ctx); err != nil || string(got) != "x" {
		r.Errorf("%q, %v", got, err)
	}
	if _, err := fast.Wait(r.Ctx); !errors.Is(err, rpc.ErrEnded) {
		r.Errorf("waited for twice: %v", err)
	}
	close(gate)
	if got, err := slow.WaitAppend(r.Ctx, []byte("it is ")); err != nil || string(got) != "it is open" {
		r.Errorf("%q, %v", got, err)
	}
	slow.Forget() // has ended: nothing
}

func typed(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	length := rpc.Define("test.length", rpc.Text{}, rpc.Bytes{})
	r.Must(length.Serve(b.Peer, func(_ context.Context, _ *rpc.Call, s string) ([]byte, error) {
		return []byte{byte(len(s))}, nil
	}, inline()))
	none := rpc.Define("test.length", rpc.Bytes{}, rpc.Nothing{}) // another answer than is sent
	if got, err := length.Call(r.Ctx, a.Peer, ep, "seven b"); err != nil || got[0] != 7 {
		r.Errorf("%v, %v", got, err)
	}
	if _, err := none.Call(r.Ctx, a.Peer, ep, []byte("x")); !errors.Is(err, rpc.ErrRequest) {
		r.Errorf("an answer of another type: %v", err)
	}
	s, err := length.Start(r.Ctx, a.Peer, ep, strings.Repeat("x", 200))
	r.Must(err)
	if got, err := s.Wait(r.Ctx); err != nil || got[0] != 200 {
		r.Errorf("%v, %v", got, err)
	}
	r.Must(length.Send(r.Ctx, a.Peer, ep, "one-way"))
	later := rpc.Define("test.later", rpc.Text{}, rpc.Text{})
	r.Must(later.Serve(b.Peer, func(_ context.Context, c *rpc.Call, s string) (string, error) {
		later.Reply(c, later.Name()+" answers "+s, nil) // not detached: nothing
		err := c.Detach()
		go func() {
			if s == "bad" {
				later.Reply(c, "not this", errors.New("too late"))
				return
			}
			later.Reply(c, later.Name()+" answers "+s, nil)
		}()
		return "nor this", err
	}, inline()))
	if got, err := later.Call(r.Ctx, a.Peer, ep, "me"); err != nil || got != "test.later answers me" {
		r.Errorf("%q, %v", got, err)
	}
	if got, err := later.Call(r.Ctx, a.Peer, ep, "bad"); err == nil || !strings.Contains(err.Error(), "too late") {
		r.Errorf("%q, %v", got, err)
	}
	strict := rpc.Define("test.strict", rpc.Nothing{}, rpc.Nothing{})
	r.Must(strict.Serve(b.Peer, func(context.Context, *rpc.Call, struct{}) (struct{}, error) { return struct{}{}, nil }, blocking()))
	if _, err := a.Call(r.Ctx, ep, "test.strict", []byte("x")); !errors.Is(err, rpc.ErrRequest) {
		r.Errorf("a request of another type: %v", err)
	}
}

// nested has a handler call back its caller, which calls the callee once more.
func nested(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(a, "leaf", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) { return append([]byte("leaf of "), c.Req...), nil })
	r.serve(b, "twig", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) { return b.Call(ctx, c.From, "leaf", c.Req) })
	r.serve(a, "branch", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) { return a.Call(ctx, c.From, "twig", c.Req) })
	r.serve(b, "root", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) { return b.Call(ctx, c.From, "branch", c.Req) })
	for _, n := range []int{1, 50_000} {
		req := strings.Repeat("y", n)
		got, err := a.Call(r.Ctx, ep, "root", []byte(req))
		if err != nil || string(got) != "leaf of "+req {
			r.Errorf("%d bytes: %d back, %v", n, len(got), err)
		}
	}
	r.settled(a, b)
}

func nestedInline(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(a, "leaf", inline(), echo)
	r.serve(b, "waits", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) { return b.Call(ctx, c.From, "leaf", c.Req) })
	_, err := a.Call(r.Ctx, ep, "waits", nil)
	if err == nil || !strings.Contains(err.Error(), "inline handler cannot wait") {
		r.Errorf("an inline handler that waits: %v", err)
	}
	r.serve(b, "awaits", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		f, err := b.Start(ctx, c.From, "leaf", c.Req)
		if err != nil {
			return nil, err
		}
		defer f.Forget()
		return f.Wait(ctx)
	})
	if _, err := a.Call(r.Ctx, ep, "awaits", nil); err == nil || !strings.Contains(err.Error(), "inline handler cannot wait") {
		r.Errorf("an inline handler that awaits: %v", err)
	}
	r.serve(b, "starts", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		f, err := b.Start(ctx, c.From, "leaf", c.Req)
		if err != nil {
			return nil, err
		}
		if err := c.Detach(); err != nil {
			f.Forget()
			return nil, err
		}
		go func() { c.Reply(f.Wait(ctx)) }()
		return nil, nil
	})
	got, err := a.Call(r.Ctx, ep, "starts", []byte("x"))
	if err != nil || string(got) != "x" {
		r.Errorf("%q, %v", got, err)
	}
}

func detached(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	calls := make(chan *rpc.Call, 2)
	for name, o := range map[string]rpc.Options{"inline": inline(), "blocking": blocking()} {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			err := c.Detach()
			calls <- c
			return []byte("not this"), err
		})
		f := r.start(a, ep, name, []byte("kept"))
		c := <-calls
		if b.Stats().Active != 1 {
			r.Errorf("%s: %d active", name, b.Stats().Active)
		}
		c.Reply(append([]byte("this, and "), c.Req...), nil)
		c.Reply(nil, errors.New("a second time"))
		if got, err := f.Wait(r.Ctx); err != nil || string(got) != "this, and kept" {
			r.Errorf("%s: %q, %v", name, got, err)
		}
	}
	r.settled(a, b)
}

func deadlineTravels(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	ended := make(chan error, 1)
	r.serve(b, "wait", blocking(), untilDone(ended))
	r.serve(b, "echo", inline(), echo)
	left := make(chan time.Duration, 1)
	r.serve(a, "left", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		at, ok := ctx.Deadline()
		if !ok {
			return nil, errors.New("no deadline")
		}
		left <- time.Until(at)
		return nil, nil
	})
	r.serve(b, "relay", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) { return b.Call(ctx, c.From, "left", nil) })
	ctx, cancel := context.WithTimeout(r.Ctx, 20*time.Second)
	defer cancel()
	if _, err := a.Call(ctx, ep, "relay", nil); err != nil {
		r.Fatal(err)
	}
	if d := <-left; d <= 0 || d > 20*time.Second {
		r.Errorf("after two hops %v are left of 20 s", d)
	}
	err := r.outOfTime(a, b, ep, ended, func(ctx context.Context) {
		if _, err := a.Call(ctx, ep, "wait", nil); !errors.Is(err, rpc.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("the caller: %v", err)
		}
	})
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		r.Errorf("the handler: %v", err)
	}
	// The book ends a started call that nobody waits for.
	r.outOfTime(a, b, ep, ended, func(ctx context.Context) {
		f, err := a.Start(ctx, ep, "wait", nil)
		if errors.Is(err, rpc.ErrDeadline) {
			return
		}
		r.Must(err)
		<-f.Done()
		if _, err := f.Wait(r.Ctx); !errors.Is(err, rpc.ErrDeadline) {
			r.Errorf("a started call: %v", err)
		}
	})
	ctx, cancel = context.WithTimeout(r.Ctx, 0)
	defer cancel()
	if _, err := a.Call(ctx, ep, "wait", nil); !errors.Is(err, rpc.ErrDeadline) {
		r.Errorf("a call whose time was up before it began: %v", err)
	}
}

// outOfTime makes a call with little time, and with ever more of it until the time is up in the handler, and not before the
// call was sent. It says why the handler's context ended.
func (r *rig) outOfTime(a, b *side, ep *fabric.Endpoint, ended <-chan error, call func(context.Context)) error {
	r.Helper()
	for limit := 50 * time.Millisecond; r.Ctx.Err() == nil; limit *= 4 {
		ctx, cancel := context.WithTimeout(r.Ctx, limit)
		call(ctx)
		cancel()
		r.echoes(a, ep, nil) // is behind the other call, if that was sent
		r.settled(b)
		select {
		case err := <-ended:
			return err
		default:
		}
	}
	r.Fatal("no handler ran")
	return nil
}

func errorsInFull(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	long := strings.Repeat("a reason, and ", 3000)
	r.serve(b, "long", inline(), func(context.Context, *rpc.Call) ([]byte, error) { return nil, errors.New(long) })
	r.serve(b, "coded", blocking(), func(context.Context, *rpc.Call) ([]byte, error) {
		return []byte("ignored"), fmt.Errorf("outer: %w", &rpc.Error{Code: rpc.FirstCode + 7, Text: "full"})
	})
	_, err := a.Call(r.Ctx, ep, "long", nil)
	var re *rpc.RemoteError
	if !errors.As(err, &re) || re.Text != long || re.Peer != b.el.Name() || re.Call != "long" || !strings.HasPrefix(err.Error(), "long at "+b.el.Name()+": a reason") {
		r.Errorf("an error of %d bytes came back as %.200v", len(long), err)
	}
	if _, err := a.Call(r.Ctx, ep, "coded", nil); !errors.As(err, &re) || re.Code != rpc.FirstCode+7 || re.Text != "outer: full" {
		r.Errorf("%v", err)
	}
	r.settled(a, b)
}

func notes(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{NoteEvery: time.Millisecond}})
	r.serve(b, "work", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		for i := range 100 {
			c.Note(fmt.Appendf(nil, "%d", i))
			if i%10 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
		}
		return []byte("done"), nil
	})
	var got []string
	answer, err := a.CallNotes(r.Ctx, ep, "work", nil, func(n []byte) { got = append(got, string(n)) })
	if err != nil || string(answer) != "done" || len(got) < 1 || len(got) > 100 {
		r.Errorf("%q, %d notes, %v", answer, len(got), err)
	}
}

func deregister(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	entered, gate := make(chan struct{}, 8), make(chan struct{})
	r.serve(b, "x", blocking(), func(context.Context, *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		<-gate
		return []byte("old"), nil
	})
	f := r.start(a, ep, "x", nil)
	<-entered
	r.serve(b, "drop", inline(), func(ctx context.Context, _ *rpc.Call) ([]byte, error) { return nil, b.Deregister(ctx, "y") })
	r.serve(b, "y", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { entered <- struct{}{}; <-gate; return nil, nil })
	y := r.start(a, ep, "y", nil)
	<-entered
	if _, err := a.Call(r.Ctx, ep, "drop", nil); err == nil || !strings.Contains(err.Error(), "inline handler cannot wait") {
		r.Errorf("an inline handler that waits for others: %v", err)
	}
	short, cancel := context.WithTimeout(r.Ctx, 20*time.Millisecond)
	defer cancel()
	if err := b.Deregister(short, "x"); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("a handler runs: %v", err)
	}
	if _, err := a.Call(r.Ctx, ep, "x", nil); !errors.Is(err, rpc.ErrNoSuchCall) {
		r.Errorf("a new call: %v", err)
	}
	r.serve(b, "x", inline(), func(context.Context, *rpc.Call) ([]byte, error) { return []byte("new"), nil })
	if got, err := a.Call(r.Ctx, ep, "x", nil); err != nil || string(got) != "new" {
		r.Errorf("%q, %v", got, err)
	}
	close(gate)
	if got, err := f.Wait(r.Ctx); err != nil || string(got) != "old" {
		r.Errorf("the call that ran: %q, %v", got, err)
	}
	if _, err := y.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
	r.Must(b.Deregister(r.Ctx, "x"))
	if err := b.Deregister(r.Ctx, "x"); !errors.Is(err, rpc.ErrName) {
		r.Errorf("once more: %v", err)
	}
}

func corrupted(r *rig) {
	for _, id := range []fabric.FrameID{rpc.IDRequest, rpc.IDNote, rpc.IDAnswer, rpc.IDResponse, rpc.IDCancel, rpc.IDAck, rpc.IDTaken, rpc.IDHeld, rpc.IDWant, rpc.IDRecalled} {
		for _, body := range [][]byte{nil, []byte("short"), suite.Pattern(100, uint32(id))} {
			if len(body) == 100 && id == rpc.IDNote {
				continue // a note to a call that is over: nothing is wrong with it
			}
			a, b, ep := r.pair(rpc.Config{})
			r.serve(b, "echo", inline(), echo)
			f := r.start(a, ep, "echo", []byte("before"))
			r.Must(ep.Post(id, nil, body))
			r.Eventually(fmt.Sprintf("frame %d of %d bytes ends the endpoint", id, len(body)), func() bool { return ep.Err() != nil })
			if b.Stats().Malformed == 0 {
				r.Errorf("frame %d of %d bytes: %+v", id, len(body), b.Stats())
			}
			f.Wait(r.Ctx)
			r.echoes(a, r.dial(a, b), []byte("another endpoint works"))
		}
	}
}

func atMostOnce(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	var runs atomic.Int64
	r.serve(b, "count", inline(), func(context.Context, *rpc.Call) ([]byte, error) { runs.Add(1); return nil, nil })
	// What a transport that repeats frames would deliver: number and slot, lag unknown, a minute left.
	for _, number := range []uint64{100, 100, 102, 101, 102, 99, 100} {
		b := appendRequest(nil, rpc.HashName("count"), number<<16, time.Minute)
		r.Must(ep.Send(r.Ctx, rpc.IDRequest, nil, b))
	}
	r.Eventually("all have come", func() bool { s := b.Stats(); return s.Served+s.Duplicates == 7 })
	if runs.Load() != 4 {
		r.Errorf("%d runs of 4 calls", runs.Load())
	}
	// Answers to calls that nobody made are no harm.
	if a.Stats().Malformed != 0 || ep.Err() != nil {
		r.Errorf("%+v, %v", a.Stats(), ep.Err())
	}
	// A cancellation that comes before its request keeps it from running.
	id := uint64(200) << 16
	r.Must(ep.Post(rpc.IDCancel, nil, appendID(nil, id)))
	r.Must(ep.Send(r.Ctx, rpc.IDRequest, nil, appendRequest(nil, rpc.HashName("count"), id, time.Minute)))
	r.Eventually("it has come", func() bool { return b.Stats().Duplicates == 4 })
	if runs.Load() != 4 {
		r.Error("a call ran that was cancelled before it came")
	}
}
