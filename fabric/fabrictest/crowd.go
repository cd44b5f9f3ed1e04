package fabrictest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// crowd is goroutines that wait on one element for different things at once.
type crowd struct {
	r       *rig
	policy  fabric.Policy
	a       *node
	ep      *fabric.Endpoint
	rem     remote
	heard   [16]atomic.Int64 // answers, by goroutine
	pending sync.WaitGroup
}

// progressCrowd has many goroutines wait for answers from handlers that return, from handlers that hand off, for one-sided
// operations, and for what other goroutines complete, with pauses in which the background goroutine leads or sleeps.
// None of them may miss what it waits for.
func progressCrowd(r *rig) {
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient} {
		c := r.crowd(p)
		for _, many := range []int{1, 2, 16} {
			var wg sync.WaitGroup
			for who := range many {
				wg.Go(func() { c.wait(who, rand.New(rand.NewPCG(uint64(who), uint64(many)))) })
			}
			wg.Wait()
			c.pending.Wait()
		}
	}
}

// crowd connects two elements for one.
func (r *rig) crowd(p fabric.Policy) *crowd {
	r.Helper()
	a, b, ab, _ := r.untoldPair(func(c *fabric.Config) { c.Policy = p })
	c := &crowd{r: r, policy: p, a: a, ep: ab, rem: r.served(ab, r.segment(b, 1<<20))}
	a.Handle(idReply, func(m fabric.Message) { c.heard[m.Body[0]%16].Add(1) })
	b.Handle(idEcho, func(m fabric.Message) { m.From.Post(idReply, nil, m.Body) })
	b.Handle(idData, func(m fabric.Message) {
		who, from := m.Body[0], m.From
		m.HandOff()
		time.Sleep(time.Duration(who) * 10 * time.Microsecond)
		if err := from.Post(idReply, nil, []byte{who}); err != nil {
			r.Error(err)
		}
	})
	return c
}

// wait waits for one thing after the other.
func (c *crowd) wait(who int, rnd *rand.Rand) {
	ctx := c.r.Ctx
	buf := make([]byte, 64)
	for range 80 {
		if rnd.IntN(3) == 0 { // long enough for whoever leads to fall asleep, or nearly
			time.Sleep(time.Duration(rnd.IntN(400)) * time.Microsecond)
		}
		var err error
		switch rnd.IntN(5) {
		case 0, 1:
			id, n := []fabric.FrameID{idEcho, idData}[rnd.IntN(2)], c.heard[who].Load()
			err = errors.Join(c.ep.Send(ctx, id, nil, []byte{byte(who)}),
				c.a.WaitFor(ctx, func() bool { return c.heard[who].Load() > n }))
		case 2:
			err = c.rem.Get(ctx, buf, uint64(who*64))
		default:
			err = c.completed(ctx, time.Duration(rnd.IntN(300))*time.Microsecond)
		}
		if err != nil {
			c.r.Errorf("policy %v: %v", c.policy, err)
			return
		}
	}
}

// completed waits for what another goroutine completes after d.
func (c *crowd) completed(ctx context.Context, d time.Duration) error {
	var ready atomic.Bool
	c.pending.Go(func() {
		time.Sleep(d)
		ready.Store(true)
		c.a.Wake()
	})
	return c.a.WaitFor(ctx, ready.Load)
}
