package fabric

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/internal/layer"
)

// A Scheduler is what a simulator has in place of the runtime's goroutines, timers and time: one
// goroutine of an element runs at a time, on the simulator's clock. All methods may be called from
// any of its goroutines, Go also from handlers.
type Scheduler interface {
	// Go runs fn as a go statement does.
	Go(fn func())
	// Rest lets other goroutines run. A waiting loop calls it again and again.
	Rest()
	// Timeout is context.WithTimeoutCause.
	Timeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc)
	// Zero is when the element's clock was 0, on the clock of contexts' deadlines.
	Zero() time.Time
}

// Layer is an Element as the protocols on top of it see it, which its users do not: inject, rpc and the simulator. What they need of the
// runtime (goroutines, timers, the time) they ask of it too, so that a simulator can run them.
type Layer Element

// Layer is for the packages of this module, which alone can name a layer.Pass.
func (e *Element) Layer(layer.Pass) *Layer { return (*Layer)(e) }

// Go runs fn on a goroutine of its own, soon: the polling goroutine lets it have the processor first.
func (y *Layer) Go(fn func()) {
	if s := y.cfg.Scheduler; s != nil {
		s.Go(fn)
		return
	}
	y.leader.woken.Store(true)
	y.workers.run(fn)
}

// Compute is Go for what computes, and seldom waits, as functions do: a leader that falls asleep beside it gives its processor up at once.
func (y *Layer) Compute(fn func()) {
	y.Go(func() {
		y.leader.computing.Add(1)
		defer y.leader.computing.Add(-1)
		fn()
	})
}

// Await waits until done is closed, or the context ends, and does not drive progress.
func (y *Layer) Await(ctx context.Context, done <-chan struct{}) error {
	s := y.cfg.Scheduler
	if s == nil {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.Rest()
	}
}

// Timeout is context.WithTimeoutCause on the element's clock.
func (y *Layer) Timeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if s := y.cfg.Scheduler; s != nil {
		return s.Timeout(ctx, d, cause)
	}
	return context.WithTimeoutCause(ctx, d, cause)
}

// farthest bounds how far ahead a time on an element's clock can be, so that sums do not overflow.
const farthest = 1 << 61

// At is a time on the element's clock.
func (y *Layer) At(t time.Time) int64 {
	switch s := y.cfg.Scheduler; {
	case s != nil:
		return int64(min(t.Sub(s.Zero()), farthest))
	case y.cfg.Now == nil && t != t.Round(0): // it has a monotonic reading: the wall clock may have been set since the start
		return int64(min(t.Sub(y.start), farthest))
	}
	return y.now() + int64(min(time.Until(t), farthest))
}

// Time is when the element's clock is at, as contexts' deadlines say it.
func (y *Layer) Time(at int64) time.Time {
	if s := y.cfg.Scheduler; s != nil {
		return s.Zero().Add(time.Duration(at))
	}
	return time.Now().Add(time.Duration(at - y.now()))
}

// CoarseNow is the element's clock as its leader last read it: for handlers,
// which can do with tens of microseconds. It is fresh within that only while a
// leader polls.
func (y *Layer) CoarseNow() int64 { return y.leader.coarse.Load() }

// RecentNow is the element's clock as it was within about a millisecond: for
// callers that begin something and cannot afford to read the clock.
// While anybody led a moment ago, the background goroutine sees to that; a leader that sleeps does not.
func (y *Layer) RecentNow() int64 {
	if y.cfg.Manual || y.leader.role() == roleAsleep {
		return y.now()
	}
	return y.leader.coarse.Load()
}

// OnTick registers a duty of the element's leader: fn is called with the
// element's clock and returns when it wants to be called next. Between it and the call
// up to a millisecond may pass, more if a handler holds the leader.
func (y *Layer) OnTick(fn func(now int64) (next int64)) {
	y.leader.mu.Lock()
	y.leader.tickers = append(append([]*ticker(nil), y.leader.tickers...), &ticker{fn: fn})
	y.leader.mu.Unlock()
	y.TickSoon()
}

// TickBy makes the leader run its duties at the time at, on the element's
// clock, if not sooner.
func (y *Layer) TickBy(at int64) {
	l := &y.leader
	if !l.early.Load() {
		l.early.Store(true) // also where others tick sooner: a duty is asked only when it is due, or all are
	}
	for {
		next := l.nextTick.Load()
		if next <= at {
			return
		}
		if l.nextTick.CompareAndSwap(next, at) {
			if l.role() == roleAsleep {
				l.ring() // it sleeps for longer than that
			}
			return
		}
	}
}

// TickEvery sets the coarsest timer. Tests of wake-ups make it an hour: what is lost then stays lost, and is not just late.
func (y *Layer) TickEvery(d time.Duration) {
	y.leader.tick.Store(int64(d))
	y.TickSoon()
}

// TickSoon makes the leader run its duties at the next opportunity.
func (y *Layer) TickSoon() {
	y.leader.early.Store(true)
	y.leader.nextTick.Store(0)
	y.leader.kick()
}

// HandleReturned registers what hears of messages of normal class that a peer has no handler for, so that
// a caller that waits for an answer need not wait until the deadline. Body is the message's beginning, of at most 32 bytes, and From the peer.
func (y *Layer) HandleReturned(id FrameID, fn Handler) error {
	if id < FirstMessageID || id >= FirstReservedID {
		return fmt.Errorf("fabric: message id %d: between %d and %d come back", id, FirstMessageID, FirstReservedID-1)
	}
	if fn == nil {
		return errNoHandler
	}
	if !y.returned[id-FirstMessageID].CompareAndSwap(nil, &fn) {
		return fmt.Errorf("fabric: message id %d has a handler for those that come back already", id)
	}
	return nil
}

// Describe says what the messages of an id are, which has a handler: for the log where that takes long. It is for layers
// whose handlers the program's author cannot change, and who is told therefore but not warned.
func (y *Layer) Describe(id FrameID, what string) {
	if h := y.handlers[id].Load(); h != nil {
		y.handlers[id].CompareAndSwap(h, &handlerEntry{h.fn, h.retain, what})
	}
}

// Handling says what the message that is handled now is about, for the log where that takes long. Handlers call it.
func (y *Layer) Handling(name string) { y.leader.handling = name }

// KeyEnds counts this element's keys that have ended: while it stays the same,
// every key that held (Holds) after it was read holds.
func (y *Layer) KeyEnds() uint64 { return y.keys.ends.Load() }

// SetTag keeps a number with an endpoint, for the data plane; Tag returns it, 0 at first.
func (y *Layer) SetTag(ep *Endpoint, n uint32) { ep.tag.Store(n) }

// Tag is what SetTag kept.
func (y *Layer) Tag(ep *Endpoint) uint32 { return ep.tag.Load() }

// Attach makes an endpoint of a link that needs no HELLO, because both ends are
// in this process: the simulator's. start is called with the endpoint's Receiver.
func (y *Layer) Attach(peer PeerHello, start func(Receiver) (Link, error)) (*Endpoint, error) {
	e := (*Element)(y)
	peer.Limits.defaults()
	h := &hello{features: featurePause, name: peer.Name, incarnation: peer.Incarnation, window: uint32(peer.Limits.WindowBytes), ops: uint32(peer.Limits.OpsPerEndpoint)}
	ep := newEndpoint(e, &peerInfo{hello: h, principal: peer.Principal}, "attached:"+peer.Name)
	ep.opening.Lock()
	defer ep.opening.Unlock()
	link, err := start(ep.receiver())
	if err != nil {
		return nil, err
	}
	if err := e.adopt(ep, link); err != nil {
		return nil, err
	}
	return ep, nil
}
