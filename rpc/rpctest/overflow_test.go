package rpctest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func overflowChecks() []check {
	return []check{
		{"in", overflowIn},
		{"out", overflowOut},
		{"in and out", overflowBoth},
		{"one-way", overflowOneWay},
		{"released early", overflowReleased},
		{"bounded pool", overflowBounded},
		{"no room for the answer", overflowCrowded},
		{"no room for the request", overflowWaits},
		{"awaited in any order", overflowOrder},
		{"beside a caller who never waits", overflowBeside},
		{"more answers than are held", overflowHeld},
		{"refused before it is fetched", overflowRefused},
		{"caller gives up", overflowGivenUp},
		{"awaited in an inline handler", overflowInline},
		{"awaited late", overflowLate},
		{"fetched ahead", overflowAhead},
	}
}

// eachKind runs fn for handlers of either kind.
func eachKind(fn func(name string, o rpc.Options)) {
	fn("inline", inline())
	fn("blocking", blocking())
}

func overflowIn(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			if len(c.Req) != c.Bytes || !bytes.Equal(c.Req, suite.Pattern(c.Bytes, 7)) {
				return nil, errors.New("another request")
			}
			return []byte("ok"), nil
		})
		for _, n := range []int{9000, 70_000, 70_000, 300_000, 5 << 20, 9000} {
			if got, err := a.Call(r.Ctx, ep, name, suite.Pattern(n, 7)); err != nil || string(got) != "ok" {
				r.Fatalf("%s, %d bytes: %q, %v", name, n, got, err)
			}
		}
	})
	r.settled(a, b)
}

func overflowOut(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			return suite.Pattern(int(c.Req[0])*70_000, 9), nil
		})
		buf := []byte("kept")
		for _, n := range []byte{1, 2, 1, 40} {
			got, err := a.CallAppend(r.Ctx, ep, name, []byte{n}, buf)
			if err != nil || !bytes.Equal(got[4:], suite.Pattern(int(n)*70_000, 9)) || string(got[:4]) != "kept" {
				r.Fatalf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	})
	r.settled(a, b)
}

func overflowBoth(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "echo", inline(), echo)
	for i := range 20 {
		r.echoes(a, ep, suite.Pattern(8193+i*31_000, uint32(i)))
	}
	// Many at once.
	var futures []rpc.Future
	for i := range 16 {
		f := r.start(a, ep, "echo", suite.Pattern(100_000+i, uint32(i)))
		futures = append(futures, f)
	}
	for i, f := range futures {
		if got, err := f.Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(100_000+i, uint32(i))) {
			r.Errorf("call %d: %d bytes, %v", i, len(got), err)
		}
	}
	r.settled(a, b)
}

func overflowOneWay(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	var good atomic.Int64
	r.serve(b, "take", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		if bytes.Equal(c.Req, suite.Pattern(200_000, 3)) {
			good.Add(1)
		}
		return nil, nil
	})
	for range 20 {
		r.Must(a.Send(r.Ctx, ep, "take", suite.Pattern(200_000, 3)))
	}
	r.Eventually("all were taken", func() bool { return b.Stats().Served == 20 })
	if good.Load() != 20 {
		r.Errorf("%d of 20 requests were whole", good.Load())
	}
	r.settled(a, b)
}

// overflowReleased looks whether a request's segment is free while its handler still runs.
func overflowReleased(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	gate := make(chan struct{})
	r.serve(b, "hold", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		<-gate
		return nil, nil
	})
	f := r.start(a, ep, "hold", make([]byte, 1<<20))
	r.Eventually("the request's segment is free", func() bool {
		s := a.Stats()
		return s.PoolBytes == 1<<20 && s.BulkBytes == s.PoolBytes
	})
	close(gate)
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
}

// overflowBounded has more large answers at once than there may be memory for: they
// wait for one another, none is lost, and the bound holds.
func overflowBounded(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 2 << 20, PoolBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	var ran atomic.Int64
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			ran.Add(1)
			return suite.Pattern(1<<20, uint32(c.Req[0])), nil
		})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if got, err := a.Call(r.Ctx, ep, name, []byte{byte(i)}); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, uint32(i))) {
					r.Errorf("%s %d: %d bytes, %v", name, i, len(got), err)
				}
				if s := b.Stats(); s.BulkBytes > limits.BulkBytes+limits.PoolBytes || s.PoolBytes > limits.PoolBytes {
					r.Errorf("%+v", s)
				}
			})
		}
		wg.Wait()
		if n := ran.Swap(0); n != 8 {
			r.Errorf("%s: 8 calls ran %d times", name, n)
		}
	})
	r.settled(a, b)
	// Idle segments of one size make room for another.
	r.serve(b, "echo", inline(), echo)
	for _, n := range []int{1 << 20, 100_000, 300_000, 1 << 20} {
		r.echoes(a, ep, suite.Pattern(n, 1))
	}
}

// jam is a Config whose callees do not read the requests of calls named "stuck" until the gate opens: so
// the memory of who sends one is taken up.
func jam(limits rpc.Limits, gate <-chan struct{}) rpc.Config {
	return rpc.Config{Limits: limits, Servers: []rpc.ServerInterceptor{func(ctx context.Context, c *rpc.Call) (context.Context, func(error), error) {
		if c.Name == "stuck" {
			<-gate
		}
		return ctx, nil, nil
	}}}
}

// hoarder has an element ask b for an answer of n bytes, and not read it until it leaves.
func (r *rig) hoarder(b *side, n int64) (leave func()) {
	r.Helper()
	tr, _, err := r.make()
	r.Must(err)
	el, err := fabric.New(fabric.Config{Name: "hoarder", Transports: []fabric.Transport{tr}})
	r.Must(err)
	leave = sync.OnceFunc(func() { r.Must(el.Close()) })
	r.AtEnd(leave)
	r.Must(el.Handle(rpc.IDResponse, func(fabric.Message) {}))
	ep, err := el.Dial(r.Ctx, b.addr)
	r.Must(err)
	r.serve(b, "hoarded", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { return make([]byte, n), nil })
	r.Must(ep.Send(r.Ctx, rpc.IDRequest, nil, appendRequest(nil, rpc.HashName("hoarded"), 1<<16, time.Minute)))
	r.Eventually("it is lent", func() bool { s := b.Stats(); return s.BulkBytes-s.PoolBytes == n && s.Active == 0 })
	return leave
}

// overflowCrowded has the callee's memory for answers taken up by one that is not read: whoever waits
// for an answer is told at his deadline, and not that the call did not run, and can cancel before.
func overflowCrowded(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20, LingerTime: time.Hour}})
	leave := r.hoarder(b, 1<<20)
	waiting := int64(1)
	var late []rpc.Future
	eachKind(func(name string, o rpc.Options) {
		var ran atomic.Int64
		runs := func(what string, before int64) {
			r.Helper()
			r.Eventually(what+" has run", func() bool { return ran.Load() > before })
		}
		r.serve(b, name, o, func(context.Context, *rpc.Call) ([]byte, error) { ran.Add(1); return make([]byte, 1<<20), nil })
		late = append(late, r.start(a, ep, name, nil)) // has all the time
		runs("the first", 0)
		for limit := 100 * time.Millisecond; ran.Load() == 1; limit *= 4 { // until there was time for it to be sent
			ctx, cancel := context.WithTimeout(r.Ctx, limit)
			_, err := a.Call(ctx, ep, name, nil)
			cancel()
			if !errors.Is(err, rpc.ErrDeadline) && !errors.Is(err, rpc.ErrAnswer) || errors.Is(err, rpc.ErrBusy) || r.Ctx.Err() != nil {
				r.Fatalf("%s: no room until its deadline: %v", name, err)
			}
		}
		r.Eventually("only those wait that have time", func() bool {
			s := b.Stats()
			return s.Active+s.Held == waiting
		})
		before := ran.Load()
		gone := r.start(a, ep, name, nil)
		runs("the last", before)
		gone.Cancel()
		if _, err := gone.Wait(r.Ctx); !errors.Is(err, rpc.ErrCanceled) {
			r.Errorf("%s: cancelled: %v", name, err)
		}
		r.Eventually("only one waits", func() bool {
			s := b.Stats()
			return s.Active+s.Held == waiting
		})
		waiting++
	})
	leave()
	for _, f := range late {
		if got, err := f.Wait(r.Ctx); err != nil || len(got) != 1<<20 {
			r.Errorf("%d bytes, %v", len(got), err)
		}
	}
	r.settled(a, b)
}

// overflowOrder starts more calls with large answers than both sides have memory for, and waits for them in the
// order in which they were started, though the first answers last, in the opposite one, and in another.
func overflowOrder(r *rig) {
	n := 24
	if testing.Short() { // the race detector makes them long
		n = 12
	}
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 3 << 20, PoolBytes: 1 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	var ran atomic.Int64
	large := func(_ context.Context, c *rpc.Call) ([]byte, error) {
		ran.Add(1)
		return suite.Pattern(1<<20-int(c.Req[0]), uint32(c.Req[0])), nil
	}
	r.serve(b, "last", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		for ran.Load() < int64(n-1) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // the others' answers are wherever they can be
		return large(ctx, c)
	})
	eachKind(func(name string, o rpc.Options) {
		r.serve(b, name, o, large)
		for by, order := range map[string]func(i int) int{
			"started": func(i int) int { return i },
			"last":    func(i int) int { return n - 1 - i },
			"mixed":   func(i int) int { return i * 7 % n },
		} {
			ran.Store(0)
			var futures []rpc.Future
			for i := range n {
				to := name
				if i == 0 {
					to = "last"
				}
				futures = append(futures, r.start(a, ep, to, []byte{byte(i)}))
			}
			for i := range n {
				at := order(i)
				if got, err := futures[at].Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(1<<20-at, uint32(at))) {
					r.Errorf("%s, %s first, call %d: %d bytes, %v", name, by, at, len(got), err)
				}
				if s := b.Stats(); s.BulkBytes > limits.BulkBytes+limits.PoolBytes {
					r.Errorf("%+v", s)
				}
			}
			r.settled(a, b)
		}
	})
}

// overflowBeside has a caller who starts calls with large answers and looks at none, and others beside him, on his
// endpoint and on one of their own, who call and get theirs.
func overflowBeside(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 2 << 20}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	r.serve(b, "large", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		return suite.Pattern(1<<20, uint32(c.Req[0])), nil
	})
	r.serve(b, "echo", blocking(), echo)
	var left []rpc.Future
	for i := range 10 {
		f := r.start(a, ep, "large", []byte{byte(i)})
		<-f.Done() // it has run, wherever its answer is
		left = append(left, f)
	}
	c := r.side(rpc.Config{Limits: limits})
	for who, from := range map[string]*side{"himself": a, "another": c} {
		to := ep
		if from == c {
			to = r.dial(c, b)
		}
		for i := range 5 {
			if got, err := from.Call(r.Ctx, to, "large", []byte{byte(i)}); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, uint32(i))) {
				r.Errorf("%s: %d bytes, %v", who, len(got), err)
			}
			if got, err := from.Call(r.Ctx, to, "echo", suite.Pattern(1<<20, uint32(i))); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, uint32(i))) {
				r.Errorf("%s: echo of %d bytes, %v", who, len(got), err)
			}
		}
	}
	for i, f := range left {
		switch {
		case i%3 == 0:
			f.Forget()
		case i%3 == 1:
			f.Cancel()
			if _, err := f.Wait(r.Ctx); err != nil && !errors.Is(err, rpc.ErrCanceled) {
				r.Errorf("cancelled: %v", err)
			}
		default:
			if got, err := f.Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, uint32(i))) {
				r.Errorf("%d: %d bytes, %v", i, len(got), err)
			}
		}
	}
	r.settled(a, b, c)
}

// overflowHeld starts more calls with large answers than can be held: those that are refused
// did not run, and all others are answered.
func overflowHeld(r *rig) {
	const n, least, most = 40, 4, 5 // a third of what may be held, and one before that is known
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20, HeldBytes: 12 << 20}})
	var ran atomic.Int64
	eachKind(func(name string, o rpc.Options) {
		ran.Store(0)
		r.serve(b, name, o, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			ran.Add(1)
			return suite.Pattern(1<<20, uint32(c.Req[0])), nil
		})
		var futures []rpc.Future
		for i := range n {
			f := r.start(a, ep, name, []byte{byte(i)})
			<-f.Done()
			futures = append(futures, f)
		}
		if s := b.Stats(); s.Active+s.Held > most {
			r.Errorf("%s: %d answers are held", name, s.Active+s.Held)
		}
		if name == "inline" { // what has no answer needs no room for one
			before := ran.Load()
			r.Must(a.Send(r.Ctx, ep, name, []byte{0}))
			r.Eventually("a one-way call has run", func() bool { return ran.Load() == before+1 })
			ran.Store(before)
		}
		answered := int64(0)
		for i, f := range futures {
			switch got, err := f.Wait(r.Ctx); {
			case err == nil && bytes.Equal(got, suite.Pattern(1<<20, uint32(i))):
				answered++
			case !errors.Is(err, rpc.ErrBusy):
				r.Errorf("%s %d: %d bytes, %v", name, i, len(got), err)
			}
		}
		if ran.Load() != answered || answered < least || answered == n {
			r.Errorf("%s: of %d calls %d ran and %d were answered", name, n, ran.Load(), answered)
		}
		r.settled(a, b)
	})
}

// overflowWaits has more large requests at once than there may be memory for: Call
// and Send wait for room, and Start says that there is none.
func overflowWaits(r *rig) {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	a, b, ep := r.pair(jam(rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20}, gate))
	r.AtEnd(open) // before they are closed
	r.serve(b, "length", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		time.Sleep(time.Millisecond)
		return fmt.Append(nil, len(c.Req)), nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := a.Call(r.Ctx, ep, "length", make([]byte, 1<<20)); err != nil || string(got) != "1048576" {
				r.Errorf("Call: %q, %v", got, err)
			}
			if err := a.Send(r.Ctx, ep, "length", make([]byte, 1<<20)); err != nil {
				r.Errorf("Send: %v", err)
			}
		})
	}
	wg.Wait()
	r.Eventually("all have run", func() bool { return b.Stats().Served == 16 })
	r.settled(a, b)
	// All of the memory is taken by a request that nobody reads.
	r.serve(b, "stuck", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { return nil, nil })
	stuck := r.start(a, ep, "stuck", make([]byte, 1<<20))
	if _, err := a.Start(r.Ctx, ep, "length", make([]byte, 1<<20)); !errors.Is(err, rpc.ErrBusy) {
		r.Errorf("Start: %v", err)
	}
	for limit, busy := 50*time.Millisecond, false; !busy; limit *= 4 { // until there was time to look for room
		ctx, cancel := context.WithTimeout(r.Ctx, limit)
		_, err := a.Call(ctx, ep, "length", make([]byte, 1<<20))
		cancel()
		if busy = errors.Is(err, rpc.ErrBusy); !errors.Is(err, rpc.ErrDeadline) || r.Ctx.Err() != nil {
			r.Fatalf("Call: %v", err)
		}
	}
	open()
	if _, err := a.Call(r.Ctx, ep, "length", make([]byte, 1<<20)); err != nil {
		r.Errorf("once there is room: %v", err)
	}
	if _, err := stuck.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
	r.settled(a, b)
}

func overflowRefused(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "small", rpc.Options{Inline: true, MaxBytes: 10_000}, echo)
	if _, err := a.Call(r.Ctx, ep, "small", make([]byte, 10_001)); !errors.Is(err, rpc.ErrTooLarge) {
		r.Errorf("a request above the method's limit: %v", err)
	}
	if got, err := a.Call(r.Ctx, ep, "small", make([]byte, 10_000)); err != nil || len(got) != 10_000 {
		r.Errorf("%d bytes, %v", len(got), err)
	}
	r.settled(a, b)
}

func overflowGivenUp(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{LingerTime: 200 * time.Millisecond}})
	entered := make(chan struct{}, 1)
	r.serve(b, "late", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return make([]byte, 1<<20), nil // an answer that nobody wants
	})
	f := r.start(a, ep, "late", make([]byte, 1<<20))
	<-entered
	f.Forget()
	r.settled(a, b)
}

// overflowInline has an inline handler take large answers that have come already: it must
// not wait for what only its own goroutine could bring. What it has no room for the callee holds.
func overflowInline(r *rig) {
	for _, bulk := range []int64{4, 8} {
		a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{MaxBytes: 1 << 20, BulkBytes: bulk << 20}})
		r.serve(b, "large", inline(), func(context.Context, *rpc.Call) ([]byte, error) { return suite.Pattern(1<<20, 1), nil })
		var f atomic.Pointer[rpc.Future]
		r.serve(a, "take", inline(), func(ctx context.Context, _ *rpc.Call) ([]byte, error) {
			got, err := f.Load().Wait(ctx)
			return got[:min(len(got), 10)], err
		})
		back := ep
		if !r.self {
			back = r.dial(b, a)
		}
		var ahead []rpc.Future
		for b.Stats().Held == 0 {
			next := r.start(a, ep, "large", nil)
			<-next.Done()
			ahead = append(ahead, next)
		}
		far := ahead[len(ahead)-1]
		ahead = ahead[:len(ahead)-1]
		if len(ahead) == 0 {
			r.Error("none was fetched ahead")
		}
		f.Store(&far) // has come, and lies at the peer
		if got, err := b.Call(r.Ctx, back, "take", nil); err == nil || !strings.Contains(err.Error(), "inline handler cannot wait") {
			r.Errorf("what would have to be fetched: %q, %v", got, err)
		}
		for i := range ahead {
			f.Store(&ahead[i])
			if got, err := b.Call(r.Ctx, back, "take", nil); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, 1)[:10]) {
				r.Errorf("what was fetched ahead: %q, %v", got, err)
			}
		}
		if got, err := far.Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, 1)) {
			r.Errorf("later: %d bytes, %v", len(got), err)
		}
		r.settled(a, b)
	}
}

// overflowLate waits for large answers long after they came, but before the calls' deadline: they are
// there, wherever they wait.
func overflowLate(r *rig) {
	limits := rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 3 << 20, LingerTime: time.Second}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	r.serve(b, "large", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		return suite.Pattern(1<<20, uint32(c.Req[0])), nil
	})
	var futures []rpc.Future
	for i := range 7 { // some are fetched ahead, and the others are held
		f := r.start(a, ep, "large", []byte{byte(i)})
		<-f.Done()
		futures = append(futures, f)
	}
	time.Sleep(1300 * time.Millisecond) // with time for a look at what has lingered for too long
	for i, f := range futures {
		if got, err := f.Wait(r.Ctx); err != nil || !bytes.Equal(got, suite.Pattern(1<<20, uint32(i))) {
			r.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
	}
	r.settled(a, b)
}

// overflowAhead starts calls with large answers, and looks whether the callee has its memory back
// before anybody waits for them.
func overflowAhead(r *rig) {
	a, b, ep := r.pair(rpc.Config{})
	r.serve(b, "large", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		return suite.Pattern(1<<20+int(c.Req[0]), uint32(c.Req[0])), nil
	})
	var futures []rpc.Future
	for i := range 8 {
		futures = append(futures, r.start(a, ep, "large", []byte{byte(i)}))
	}
	for _, f := range futures {
		<-f.Done()
	}
	r.settled(a, b)
	for i, f := range futures {
		var buf []byte
		if i%2 == 0 {
			buf = []byte("kept")
		}
		got, err := f.WaitAppend(r.Ctx, buf)
		if err != nil || string(got[:len(buf)]) != string(buf) || !bytes.Equal(got[len(buf):], suite.Pattern(1<<20+i, uint32(i))) {
			r.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
	}
	// What was fetched ahead and is not wanted counts no more: these are more than there can be at once.
	for range 70 {
		f := r.start(a, ep, "large", []byte{1})
		<-f.Done()
		f.Forget()
	}
	f := r.start(a, ep, "large", []byte{1})
	<-f.Done()
	r.settled(a, b)
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
}
