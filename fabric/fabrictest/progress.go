package fabrictest

import (
	"bytes"
	"errors"
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
		{"calls inside a handler", progressNested},
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

// progressWakeUps sends to elements that sleep or are about to: an answer whose wake-up is lost never comes.
func progressWakeUps(r *rig) {
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient} {
		r.wakeUps(p)
	}
}

func (r *rig) wakeUps(p fabric.Policy) {
	r.Helper()
	a, b, ab, ba := r.untoldPair(func(c *fabric.Config) { c.Policy = p; smallWindow(c) })
	got := make(chan struct{}, 1)
	done := func(fabric.Message) { got <- struct{}{} }
	b.Handle(idEcho, func(m fabric.Message) { m.From.Post(idReply, nil, nil) })
	a.Handle(idReply, done)
	for i := range 250 {
		// Around the times at which a leader goes to sleep and a waiter comes back.
		time.Sleep(time.Duration(i%50) * 30 * time.Microsecond)
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
			r.Fatalf("policy %v: answer %d never came", p, i)
		}
	}
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
