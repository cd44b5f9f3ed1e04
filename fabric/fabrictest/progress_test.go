package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// progressCore is what the fabric does with progresss, whatever the transport.
func progressCore() []check {
	return []check{
		{"wait for", progressWaitFor},
		{"a condition holds once", progressOnce},
		{"hand off", progressHandOff},
		{"hand off on a waiter", progressHandOffWaiter},
		{"ticks", progressTicks},
		{"ticks beside calls", progressTicksBusy},
	}
}

func progressWaitFor(r *rig) {
	n := r.node(func(c *fabric.Config) { c.Limits.OpTime = 150 * time.Millisecond })
	var flag atomic.Bool
	ctx, cancel := context.WithTimeout(r.Ctx, 30*time.Millisecond)
	defer cancel()
	if err := n.WaitFor(ctx, flag.Load); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("past its deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(r.Ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	if err := n.WaitFor(ctx, flag.Load); !errors.Is(err, context.Canceled) {
		r.Errorf("cancelled: %v", err)
	}
	if err := n.WaitFor(context.Background(), flag.Load); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("without a deadline, past Limits.OpTime: %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		r.Errorf("giving up took %v", d)
	}
	time.AfterFunc(10*time.Millisecond, func() { flag.Store(true); n.Wake() })
	r.Must(n.WaitFor(r.Ctx, flag.Load))
	r.Must(n.WaitFor(ctx, flag.Load)) // holds already: the context does not matter
}

// progressOnce: what a condition does when it holds, it does once.
func progressOnce(r *rig) {
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient} {
		n := r.node(func(c *fabric.Config) { c.Policy = p })
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() {
				for i := range 60 {
					var ready atomic.Bool
					held := 0
					go func() {
						time.Sleep(time.Duration((i*7+w*13)%120) * time.Microsecond)
						ready.Store(true)
						n.Wake()
					}()
					err := n.WaitFor(r.Ctx, func() bool {
						if ready.Load() {
							held++
						}
						return held > 0
					})
					if err != nil || held != 1 {
						r.Errorf("the condition held and was asked again: %d times; %v", held, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func progressHandOff(r *rig) {
	a, b, ab, _ := r.pair(smallWindow)
	serveEcho(b)
	var replies atomic.Int64
	a.Handle(idReply, func(fabric.Message) { replies.Add(1) })
	rem := r.served(ab, r.segment(b, 1<<20))
	release := make(chan struct{})
	var inside, left atomic.Int64
	b.Handle(idData, func(m fabric.Message) {
		m.HandOff()
		m.HandOff() // the second time does nothing
		inside.Add(1)
		<-release
		left.Add(1)
	})
	const blocked = 5
	for range blocked {
		r.Must(ab.Send(r.Ctx, idData, nil, []byte("stay")))
	}
	r.Eventually("all are inside", func() bool { return inside.Load() == blocked })
	for i := range int64(300) {
		r.Must(ab.Send(r.Ctx, idEcho, nil, make([]byte, 900)))
		r.Must(a.WaitFor(r.Ctx, func() bool { return replies.Load() > i }))
	}
	r.Must(rem.Put(r.Ctx, make([]byte, 300_000), 0))
	close(release)
	r.Eventually("all leave", func() bool { return left.Load() == blocked })
	r.Must(ab.Flush(r.Ctx))
}

// progressHandOffWaiter: handlers that block take the goroutine of whoever
// waits, and others go on.
func progressHandOffWaiter(r *rig) {
	a, b, ab, _ := r.pair()
	serveEcho(b)
	var replies, inside atomic.Int64
	a.Handle(idReply, func(fabric.Message) { replies.Add(1) })
	release := make(chan struct{})
	b.Handle(idData, func(m fabric.Message) {
		m.HandOff()
		inside.Add(1)
		<-release
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := b.WaitFor(r.Ctx, func() bool { return inside.Load() >= 3 }); err != nil {
				r.Error(err)
			}
		})
	}
	for i := range int64(3) {
		r.Must(ab.Send(r.Ctx, idData, nil, nil))
		r.Eventually("the handler runs", func() bool { return inside.Load() > i })
		start := time.Now()
		for j := range int64(100) {
			r.Must(ab.Send(r.Ctx, idEcho, nil, nil))
			r.Must(a.WaitFor(r.Ctx, func() bool { return replies.Load() > i*100+j }))
		}
		if d := time.Since(start); d > 5*time.Second {
			r.Errorf("100 answers beside a blocked waiter took %v", d)
		}
	}
	close(release)
	wg.Wait()
}

func progressTicks(r *rig) {
	const period, whole = 5 * time.Millisecond, 300 * time.Millisecond
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient} {
		n := r.node(func(c *fabric.Config) { c.Policy = p })
		var ticks, rare atomic.Int64
		n.Layer(layer.Pass{}).OnTick(func(now int64) int64 {
			ticks.Add(1)
			return now + int64(period)
		})
		n.Layer(layer.Pass{}).OnTick(func(now int64) int64 {
			rare.Add(1)
			return now + int64(time.Hour)
		})
		suite.Steady(r, func() string {
			start, before := time.Now(), ticks.Load()
			time.Sleep(whole)
			return tooFew(p, ticks.Load()-before, period, time.Since(start), 4)
		})
		before := rare.Load()
		if before > 3 {
			r.Errorf("policy %v: a duty for every hour ran %d times", p, before)
		}
		n.Layer(layer.Pass{}).TickSoon()
		r.Eventually("TickSoon", func() bool { return rare.Load() > before })
		before = rare.Load()
		n.Layer(layer.Pass{}).TickBy(n.Now() + int64(10*time.Millisecond))
		r.Eventually("TickBy", func() bool { return rare.Load() > before })
	}
}

// tooFew says so if there were fewer ticks in a time than a part of those that are due, or more than are.
func tooFew(p fabric.Policy, ticks int64, period, took time.Duration, part int64) string {
	if due := int64(took / period); ticks < due/part || ticks > due+10 {
		return fmt.Sprintf("policy %v: %d ticks in the time of %d", p, ticks, due)
	}
	return ""
}

// progressTicksBusy: duties are done while a caller leads again and again, each
// time for a moment.
func progressTicksBusy(r *rig) {
	const period, whole = 5 * time.Millisecond, 300 * time.Millisecond
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Latency} {
		a, far := r.node(func(c *fabric.Config) { c.Policy = p }), r.peer()
		ep, err := a.Dial(r.Ctx, far.addr)
		r.Must(err)
		rem := r.importBoth(ep, far)[1]
		var ticks atomic.Int64
		a.Layer(layer.Pass{}).OnTick(func(now int64) int64 {
			ticks.Add(1)
			return now + int64(period)
		})
		buf := make([]byte, 8)
		suite.Steady(r, func() string {
			start, before := time.Now(), ticks.Load()
			for time.Since(start) < whole {
				r.Must(rem.Get(r.Ctx, buf, 0))
			}
			return tooFew(p, ticks.Load()-before, period, time.Since(start), 6)
		})
	}
}
