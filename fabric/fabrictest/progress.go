package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

func progressChecks() []check {
	return []check{
		{"policy balanced", func(r *rig) { progressPolicy(r, fabric.Balanced) }},
		{"policy latency", func(r *rig) { progressPolicy(r, fabric.Latency) }},
		{"policy efficient", func(r *rig) { progressPolicy(r, fabric.Efficient) }},
		{"many waiters", progressManyWaiters},
		{"nobody waits", progressBackground},
		{"no wake-up is lost", progressWakeUps},
		{"a crowd of waiters", progressCrowd},
		{"wait for", progressWaitFor},
		{"a condition holds once", progressOnce},
		{"hand off", progressHandOff},
		{"hand off on a waiter", progressHandOffWaiter},
		{"calls inside a handler", progressNested},
		{"ticks", progressTicks},
		{"ticks beside calls", progressTicksBusy},
		{"manual", progressManual},
	}
}

func progressPolicy(r *rig, p fabric.Policy) {
	a, b, ab, ba := r.pair(func(c *fabric.Config) { c.Policy = p })
	serveEcho(b)
	serveEcho(a)
	var replies [2]atomic.Int64
	a.Handle(idReply, func(fabric.Message) { replies[0].Add(1) })
	b.Handle(idReply, func(fabric.Message) { replies[1].Add(1) })
	var wg sync.WaitGroup
	for i, ep := range []*fabric.Endpoint{ab, ba} {
		peer := []*node{b, a}[i]
		routes := r.routes(ep, r.segment(peer, 1<<20))
		wg.Go(func() {
			for n := range int64(150) {
				if err := errors.Join(ep.Send(r.Ctx, idEcho, nil, []byte("x")),
					ep.Element().WaitFor(r.Ctx, func() bool { return replies[i].Load() > n })); err != nil {
					r.Error(err)
					return
				}
			}
		})
		for _, rem := range routes {
			wg.Go(func() {
				buf := make([]byte, 100_000)
				for n := range 60 {
					size := []int{8, 5000, 100_000}[n%3]
					if err := errors.Join(rem.Put(r.Ctx, buf[:size], 0), rem.Get(r.Ctx, buf[:size], 0)); err != nil {
						r.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

func progressManyWaiters(r *rig) {
	_, b, ab, _ := r.pair()
	rem := r.served(ab, r.segment(b, 1<<20))
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			buf := make([]byte, 64)
			for range 100 {
				if err := rem.Get(r.Ctx, buf, uint64(w*64)); err != nil {
					r.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func progressBackground(r *rig) {
	_, b, ab, _ := r.pair()
	rem := r.served(ab, r.segment(b, 1<<20))
	for range 20 {
		op := rem.StartPut(make([]byte, 300_000), 0)
		select {
		case <-op.Done():
			r.Must(op.Wait(r.Ctx))
		case <-r.Ctx.Done():
			r.Fatal("nobody makes progress for those who select")
		}
	}
}

// progressWakeUps sends to elements that sleep or are about to. A lost wake-up
// is healed by the next tick, a quarter of a second later: it shows as a delay.
func progressWakeUps(r *rig) {
	const rounds, late = 250, 200 * time.Millisecond
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient} {
		suite.Steady(r, func() string {
			if slow := r.wakeUps(p, rounds, late); slow > 3 {
				return fmt.Sprintf("policy %v: %d of %d answers took more than %v", p, slow, rounds, late)
			}
			return ""
		})
	}
}

// wakeUps counts the answers that came late.
func (r *rig) wakeUps(p fabric.Policy, rounds int, late time.Duration) (slow int) {
	r.Helper()
	a, b, ab, ba := r.pair(func(c *fabric.Config) { c.Policy = p; smallWindow(c) })
	got := make(chan struct{}, 1)
	done := func(fabric.Message) { got <- struct{}{} }
	b.Handle(idEcho, func(m fabric.Message) { m.From.Post(idReply, nil, nil) })
	a.Handle(idReply, done)
	for i := range rounds {
		// Around the times at which a leader goes to sleep and a waiter comes back.
		time.Sleep(time.Duration(i%50) * 30 * time.Microsecond)
		start := time.Now()
		switch i % 3 {
		case 0:
			r.Must(ab.Post(idEcho, nil, nil))
		case 1:
			r.Must(ab.Send(r.Ctx, idEcho, nil, nil))
		case 2: // a waiter comes and goes between
			go ba.Flush(r.Ctx)
			r.Must(ab.Flush(r.Ctx))
			r.Must(ab.Send(r.Ctx, idEcho, nil, nil))
		}
		select {
		case <-got:
		case <-r.Ctx.Done():
			r.Fatalf("answer %d never came", i)
		}
		if time.Since(start) > late {
			slow++
		}
	}
	return slow
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

func progressNested(r *rig) {
	a, b, ab, ba := r.pair()
	there, here := r.segment(a, 1<<20), r.segment(b, 1<<20)
	toA, toB := r.served(ba, there), r.served(ab, here)
	copy(toA.mem, suite.Pattern(300_000, 5))
	done := make(chan error, 64)
	for i, n := range []*node{a, b} {
		rem, ep := []remote{toB, toA}[i], []*fabric.Endpoint{ab, ba}[i]
		n.Handle(idData, func(m fabric.Message) {
			depth := m.Body[0]
			m.HandOff()
			buf := make([]byte, 300_000)
			err := rem.Get(r.Ctx, buf, 0)
			if n == b && !bytes.Equal(buf, suite.Pattern(300_000, 5)) {
				err = errors.Join(err, errors.New("bytes differ"))
			}
			if depth > 0 {
				err = errors.Join(err, ep.Send(r.Ctx, idData, nil, []byte{depth - 1}), ep.Flush(r.Ctx))
			}
			done <- err
		})
	}
	for range 4 {
		r.Must(ab.Send(r.Ctx, idData, nil, []byte{7}))
	}
	for range 4 * 8 {
		select {
		case err := <-done:
			r.Must(err)
		case <-r.Ctx.Done():
			r.Fatal("calls inside handlers hang")
		}
	}
}

func progressTicks(r *rig) {
	const period, whole = 5 * time.Millisecond, 300 * time.Millisecond
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient} {
		n := r.node(func(c *fabric.Config) { c.Policy = p })
		var ticks, rare atomic.Int64
		n.OnTick(func(now int64) int64 {
			ticks.Add(1)
			return now + int64(period)
		})
		n.OnTick(func(now int64) int64 {
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
		n.TickSoon()
		r.Eventually("TickSoon", func() bool { return rare.Load() > before })
		before = rare.Load()
		n.TickBy(n.Now() + int64(10*time.Millisecond))
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
		a.OnTick(func(now int64) int64 {
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

// progressManual: an element that the caller drives.
func progressManual(r *rig) {
	a := r.node()
	b := r.node(func(c *fabric.Config) { c.Manual = true })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if b.Progress() == 0 {
					time.Sleep(20 * time.Microsecond)
				}
			}
		}
	})
	r.AtEnd(func() {
		close(stop)
		wg.Wait()
	})
	r.echo(a, b)
	ab, ba := a.Endpoints()[0], b.Endpoints()[0]
	r.Must(r.served(ab, r.segment(b, 1<<20)).Put(r.Ctx, make([]byte, 200_000), 0))
	r.Must(r.served(ba, r.segment(a, 1<<20)).Put(r.Ctx, make([]byte, 200_000), 0))
}
