package rpctest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

// turnChecks are about calls that cannot run when they come.
func turnChecks() []check {
	return []check{
		{"more calls than may run", turnsTaken},
		{"more calls than may wait", turnsRefused},
		{"cancelled and late", turnsGivenUp},
		{"served anew", turnsServedAnew},
		{"in a circle", turnsInACircle},
		{"answers in the way", turnsStalled},
		{"where answers wait", turnsBesideHeld},
		{"the callee closes", calleeCloses},
		{"the caller closes", callerCloses},
	}
}

// turnsTaken makes hundreds of calls at once where few may run: each runs once, and never more than may.
func turnsTaken(r *rig) {
	const peers, n = 2, 200
	limits := rpc.Limits{CallsPerPeer: 3, Calls: 4}
	a, b, ep := r.pair(rpc.Config{Limits: limits})
	eps := [peers]*fabric.Endpoint{ep, r.dial(a, b)}
	var ran [peers * n]atomic.Int32
	var all [peers]atomic.Int64 // that run
	var total, single, most atomic.Int64
	run := func(_ context.Context, c *rpc.Call) ([]byte, error) {
		i := int(c.Req[0])<<8 | int(c.Req[1])
		if now := all[i/n].Add(1); now > int64(limits.CallsPerPeer) {
			r.Errorf("%d calls of a peer run", now)
		}
		if now := total.Add(1); now > int64(limits.Calls) {
			r.Errorf("%d calls run", now)
		} else if now > most.Load() {
			most.Store(now)
		}
		time.Sleep(50 * time.Microsecond)
		ran[i].Add(1)
		total.Add(-1)
		all[i/n].Add(-1)
		return append([]byte(nil), c.Req...), nil
	}
	r.serve(b, "block", blocking(), run)
	r.serve(b, "one by one", rpc.Options{Concurrent: 1}, func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		if now := single.Add(1); now != 1 {
			r.Errorf("%d run at once", now)
		}
		defer single.Add(-1)
		return run(ctx, c)
	})
	var wg sync.WaitGroup
	for i := range peers * n {
		wg.Go(func() {
			name := "block"
			if i%5 == 0 {
				name = "one by one"
			}
			req := append([]byte{byte(i >> 8), byte(i)}, suite.Pattern(i%3*4000+i%7/6*40_000, uint32(i))...)
			if got, err := a.Call(r.Ctx, eps[i/n], name, req); err != nil || !bytes.Equal(got, req) {
				r.Errorf("%s %d: %d bytes, %v", name, i, len(got), err)
			}
		})
	}
	wg.Wait()
	for i := range ran {
		if got := ran[i].Load(); got != 1 {
			r.Errorf("%d ran %d times", i, got)
		}
	}
	if most.Load() < 2 {
		r.Errorf("%d calls ran at once, at most", most.Load())
	}
	r.settled(a, b)
}

// held is a handler that many calls wait for.
func (r *rig) held(b *side, name string, o rpc.Options) (ran *atomic.Int64, open func()) {
	gate := make(chan struct{})
	open = sync.OnceFunc(func() { close(gate) })
	r.AtEnd(open) // also if the check fails before: Close waits for handlers
	ran = new(atomic.Int64)
	r.serve(b, name, o, func(context.Context, *rpc.Call) ([]byte, error) { ran.Add(1); <-gate; return nil, nil })
	return ran, open
}

func turnsRefused(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 1, Queued: 3, QueuedBytes: 8 * 18_000}})
	for round := range 5 { // what has waited counts no more
		name := fmt.Sprintf("hold %d", round)
		ran, open := r.held(b, name, blocking())
		defer open()
		var futures []rpc.Future
		begin := func(n int) rpc.Future {
			f := r.start(a, ep, name, make([]byte, n))
			futures = append(futures, f)
			return f
		}
		begin(0)
		r.Eventually("one runs", func() bool { return b.Stats().Active == 1 })
		begin(8000)
		begin(0)
		r.Eventually("two wait", func() bool { return b.Stats().Parked == 2 })
		if _, err := begin(8192).Wait(r.Ctx); !errors.Is(err, rpc.ErrBusy) {
			r.Errorf("one that is too large to wait: %v", err)
		}
		begin(100_000) // what it lends stays with its caller
		r.Eventually("three wait", func() bool { return b.Stats().Parked == 3 })
		if _, err := begin(0).Wait(r.Ctx); !errors.Is(err, rpc.ErrBusy) {
			r.Errorf("one too many: %v", err)
		}
		open()
		for i, f := range []rpc.Future{futures[0], futures[1], futures[2], futures[4]} {
			if _, err := f.Wait(r.Ctx); err != nil {
				r.Errorf("%d: %v", i, err)
			}
		}
		if ran.Load() != 4 {
			r.Errorf("%d have run", ran.Load())
		}
		r.settled(a, b)
	}
	turnsShared(r)
}

// turnsShared has one peer's calls wait until it is lost, and their room be there for others then.
func turnsShared(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 1, QueuedBytes: 8 * 5000}})
	_, open := r.held(b, "hold", blocking())
	defer open()
	for round := range 12 { // eight of whom would have it all
		c, err := newSide(r.make, fmt.Sprintf("guest %d", round), rpc.Config{})
		r.Must(err)
		other := r.dial(c, b)
		runs := r.start(c, other, "hold", nil)
		r.Eventually("one runs", func() bool { return b.Stats().Active == 1+int64(round) })
		waits := r.start(c, other, "hold", make([]byte, 3900))
		r.Eventually("one waits", func() bool { return b.Stats().Parked == 1 })
		r.Must(other.Close()) // without a word on either
		r.Eventually("none waits", func() bool { return b.Stats().Parked == 0 })
		runs.Forget()
		waits.Forget()
		c.Peer.Close()
		r.Must(c.el.Close())
	}
	f := r.start(a, ep, "hold", nil)
	open()
	if _, err := f.Wait(r.Ctx); err != nil {
		r.Error(err)
	}
	r.settled(a, b)
}

// turnsGivenUp gives up calls that wait: they leave at once, and never run.
func turnsGivenUp(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 1}})
	ran, open := r.held(b, "hold", blocking())
	defer open()
	first := r.start(a, ep, "hold", nil)
	r.Eventually("one runs", func() bool { return b.Stats().Active == 1 })
	var futures []rpc.Future
	for i := range 30 {
		futures = append(futures, r.start(a, ep, "hold", make([]byte, i%3*30_000)))
	}
	r.Eventually("the others wait", func() bool { return b.Stats().Parked == 30 })
	for i, f := range futures {
		f.Cancel()
		if _, err := f.Wait(r.Ctx); !errors.Is(err, rpc.ErrCanceled) {
			r.Errorf("%d: %v", i, err)
		}
	}
	r.Eventually("none waits", func() bool { return b.Stats().Parked == 0 })
	late, cancel := context.WithTimeout(r.Ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := a.Call(late, ep, "hold", nil); !errors.Is(err, rpc.ErrDeadline) {
		r.Errorf("one without time: %v", err)
	}
	r.Eventually("it is gone", func() bool { return b.Stats().Parked == 0 })
	last := r.start(a, ep, "hold", make([]byte, 30_000))
	open()
	for _, f := range []rpc.Future{first, last} {
		if _, err := f.Wait(r.Ctx); err != nil {
			r.Error(err)
		}
	}
	if ran.Load() != 2 {
		r.Errorf("%d have run", ran.Load())
	}
	r.settled(a, b)
}

// turnsServedAnew takes a name away for which calls wait, and serves it again for others that wait for a place of their peer.
func turnsServedAnew(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 2}})
	_, open := r.held(b, "name", rpc.Options{Concurrent: 1})
	defer open()
	_, openOther := r.held(b, "other", blocking())
	defer openOther()
	short, cancel := context.WithCancel(r.Ctx)
	cancel()
	gone := func() {
		if err := b.Deregister(short, "name"); err == nil {
			r.Error("no handler of it runs")
		}
	}
	first := r.start(a, ep, "name", nil)
	r.Eventually("it runs", func() bool { return b.Stats().Active == 1 })
	waits := r.start(a, ep, "name", nil)
	r.Eventually("one waits", func() bool { return b.Stats().Parked == 1 })
	gone()
	if _, err := waits.Wait(r.Ctx); !errors.Is(err, rpc.ErrNoSuchCall) {
		r.Errorf("one that waited for what is not served any more: %v", err)
	}
	serves := func(answer string) {
		r.serve(b, "name", rpc.Options{Concurrent: 1}, func(context.Context, *rpc.Call) ([]byte, error) { return []byte(answer), nil })
	}
	serves("second")
	other := r.start(a, ep, "other", nil)
	r.Eventually("two run", func() bool { return b.Stats().Active == 2 })
	waits = r.start(a, ep, "name", nil)
	r.Eventually("one waits for a place", func() bool { return b.Stats().Parked == 1 })
	r.Must(b.Deregister(r.Ctx, "name"))
	serves("third")
	openOther()
	if got, err := waits.Wait(r.Ctx); string(got) != "third" {
		r.Errorf("one that waited for a place while its name was served anew: %q, %v", got, err)
	}
	open()
	for _, f := range []rpc.Future{first, other} {
		if _, err := f.Wait(r.Ctx); err != nil {
			r.Error(err)
		}
	}
	r.settled(a, b)
}

// turnsInACircle has handlers call each other until there is no place left: that fails, and does not wait for itself.
func turnsInACircle(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 2}})
	var deep atomic.Int64
	for _, s := range slices.Compact([]*side{a, b}) {
		r.serve(s, "circle", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
			deep.Add(1)
			return s.Call(ctx, c.From, "circle", nil)
		})
	}
	if _, err := a.Call(r.Ctx, ep, "circle", nil); errors.Is(err, rpc.ErrDeadline) || err == nil || !strings.Contains(err.Error(), "from within a handler") {
		r.Errorf("a circle: %v", err)
	}
	if deep.Load() < 2 {
		r.Errorf("%d calls deep", deep.Load())
	}
	r.settled(a, b)
}

// turnsStalled has all places taken by answers that their caller does not fetch, while it waits for a call that waits for a place.
func turnsStalled(r *rig) {
	const most = 4
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20, CallsPerPeer: most}})
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	r.serve(b, "large", blocking(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		<-gate
		return suite.Pattern(1<<20, uint32(c.Req[0])), nil
	})
	var futures []rpc.Future
	for i := range 3 * most {
		futures = append(futures, r.start(a, ep, "large", []byte{byte(i)}))
	}
	r.Eventually("most wait", func() bool { s := b.Stats(); return s.Active == most && s.Parked == 2*most })
	open()
	answered := 0
	for i := range futures {
		i = len(futures) - 1 - i // those that wait first
		switch got, err := futures[i].Wait(r.Ctx); {
		case err == nil && bytes.Equal(got, suite.Pattern(1<<20, uint32(i))):
			answered++
		case !errors.Is(err, rpc.ErrBusy) || i < most:
			r.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
	}
	if answered < most {
		r.Errorf("%d were answered", answered)
	}
	r.settled(a, b)
}

// turnsBesideHeld has a call take the place, of all, that another has left whose answer waits to be asked for.
func turnsBesideHeld(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20, Calls: 1}})
	other := r.dial(a, b)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	r.serve(b, "large", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		if string(c.Req) == "waits" {
			<-gate
		}
		return make([]byte, 1<<20), nil
	})
	first := r.start(a, ep, "large", nil) // whose answer takes all the room for answers that nobody waits for
	<-first.Done()
	held := r.start(a, ep, "large", []byte("waits"))
	r.Eventually("it runs", func() bool { return b.Stats().Active == 1 })
	waits := r.start(a, other, "large", nil)
	r.Eventually("another waits", func() bool { return b.Stats().Parked == 1 })
	open()
	r.Eventually("both have run", func() bool { return b.Stats().Served == 3 })
	for _, f := range []rpc.Future{waits, held, first} {
		if got, err := f.Wait(r.Ctx); len(got) != 1<<20 {
			r.Errorf("%d bytes, %v", len(got), err)
		}
	}
	r.settled(a, b)
}

// calleeCloses closes the callee while its element lives: whoever has called it, or will, hears so.
func calleeCloses(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 1}})
	if a == b {
		return // whose calls end with it
	}
	r.serve(b, "hold", blocking(), func(ctx context.Context, _ *rpc.Call) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
	r.serve(b, "echo", inline(), echo)
	runs := r.start(a, ep, "hold", nil)
	r.Eventually("one runs", func() bool { return b.Stats().Active == 1 })
	waits := r.start(a, ep, "hold", nil)
	r.Eventually("one waits", func() bool { return b.Stats().Parked == 1 })
	r.Must(b.Peer.Close())
	canceled := func(what string, f rpc.Future) {
		var remote *rpc.RemoteError
		if _, err := f.Wait(r.Ctx); !errors.As(err, &remote) || remote.Code != rpc.CodeCanceled {
			r.Errorf("%s: %v", what, err)
		}
	}
	canceled("the one that waited", waits)
	canceled("the one that ran", runs)
	canceled("a new one", r.start(a, ep, "hold", nil))
	canceled("one that would be served at once", r.start(a, ep, "echo", nil))
	canceled("a large one", r.start(a, ep, "hold", make([]byte, 100_000)))
	canceled("one over a new connection", r.start(a, r.dial(a, b), "hold", nil))
	r.Must(a.Send(r.Ctx, ep, "hold", nil))
	r.settled(a, b)
}

// callerCloses closes the caller while its element lives: handlers hear that nobody waits.
func callerCloses(r *rig) {
	a, b, ep := r.pair(rpc.Config{Limits: rpc.Limits{CallsPerPeer: 1}})
	if a == b {
		return // who serves too, and waits for the handler
	}
	r.serve(b, "hold", blocking(), func(ctx context.Context, _ *rpc.Call) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
	runs, waits := r.start(a, ep, "hold", nil), r.start(a, ep, "hold", nil)
	r.Eventually("one runs, one waits", func() bool { s := b.Stats(); return s.Active == 1 && s.Parked == 1 })
	r.Must(a.Peer.Close())
	for _, f := range []rpc.Future{runs, waits} {
		if _, err := f.Wait(r.Ctx); !errors.Is(err, rpc.ErrClosed) || !errors.Is(err, rpc.ErrOutcomeUnknown) {
			r.Errorf("of who has closed: %v", err)
		}
	}
	if _, err := a.Call(r.Ctx, ep, "hold", nil); !errors.Is(err, rpc.ErrClosed) {
		r.Errorf("a new one: %v", err)
	}
	r.settled(a, b)
	if err := ep.Err(); err != nil {
		r.Errorf("the endpoint: %v", err)
	}
}
