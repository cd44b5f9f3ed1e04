package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// Peer is one element's part in calls: it serves and it calls. Its methods may
// be called from any goroutine.
type Peer struct {
	el     *fabric.Element
	layer  *fabric.Layer
	limits Limits
	cfg    Config
	log    *slog.Logger
	// eagerSockets has payloads travel in messages, up to the largest, where the peer cannot map memory.
	eagerSockets bool

	methods atomic.Pointer[registry]
	last    atomic.Pointer[conn] // that was used last: most have one peer at a time

	mu      sync.RWMutex
	conns   map[*fabric.Endpoint]*conn
	tenants map[string]*tenant           // by principal: those that have endpoints, and some of those that had
	order   []*conn                      // the same, oldest first
	owners  map[fabric.Incarnation]*conn // of the endpoints to each peer the one for bulks
	dials   map[fabric.Incarnation]*dial // to owners of bulks
	closed  atomic.Bool                  // set before Close takes mu

	work        sync.WaitGroup    // goroutines of ours
	active      atomic.Int64      // calls that are served and did not end at once
	queue       queue             // calls that wait until they may be
	held        atomic.Int64      // calls that were, and whose answers wait until they are asked for
	lent        [lentKinds]budget // bytes of segments with payloads that peers have not read
	kept        budget            // what answers count as that are held
	requests    budget            // large requests of peers
	ahead       budget            // bytes that answers to started calls may take here
	idle        atomic.Int64      // bytes of segments, kept to be used again
	idleBuffers atomic.Int64      // bytes of buffers for requests, kept to be used again
	idleBodies  atomic.Int64      // and of memory for answers
	sweepAt     atomic.Int64      // when the sweep looks at all endpoints
	bufs        sync.Pool         // of *[]byte: requests being encoded
	stats       counters
}

// drainEvery is how often Drain looks.
const drainEvery = 5 * time.Millisecond

// sweepEvery is how often the Peer looks for expired payloads and for deadlines without a waiter.
const sweepEvery = 250 * time.Millisecond

// New makes an element able to call and to serve. It must be called before the
// element listens or dials, and once per element.
func New(el *fabric.Element, cfg Config) (*Peer, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	if el == nil {
		return nil, errors.New("rpc: no element to call from")
	}
	eagerSockets := cfg.Limits.EagerBytes == 0
	cfg.Limits.defaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Peer{el: el, layer: el.Layer(layer.Pass{}), limits: cfg.Limits, cfg: cfg, log: cfg.Log, eagerSockets: eagerSockets,
		conns: map[*fabric.Endpoint]*conn{}, tenants: map[string]*tenant{}, owners: map[fabric.Incarnation]*conn{}, dials: map[fabric.Incarnation]*dial{}}
	for i := range p.lent {
		p.lent[i].init(el, p.limits.BulkBytes)
	}
	p.kept.init(el, p.limits.HeldBytes)
	p.requests.init(el, p.limits.RequestBytes)
	p.ahead.init(el, p.limits.BulkBytes)
	p.methods.Store(&registry{})
	p.bufs.New = func() any { return new([]byte) }
	for _, h := range []struct {
		id fabric.FrameID
		fn func(*conn, []byte) error
	}{
		{IDRequest, (*conn).onRequest}, {IDResponse, (*conn).onResponse}, {IDAnswer, (*conn).onResponse}, {IDNote, (*conn).onNote}, {IDWritten, (*conn).onWritten},
		{IDCancel, (*conn).onCancel}, {IDAck, (*conn).onAck}, {IDTaken, (*conn).onTaken},
		{IDHeld, (*conn).onHeld}, {IDWant, (*conn).onWant}, {IDEnded, (*conn).onEnded},
	} {
		if err := el.Handle(h.id, func(m fabric.Message) { p.receive(m, h.fn) }); err != nil {
			return nil, fmt.Errorf("rpc: %s has a Peer already, and needs but one: %w", el.Name(), err)
		}
		p.layer.Describe(h.id, "rpc's own messages")
	}
	if err := p.layer.HandleReturned(IDRequest, func(m fabric.Message) { p.receive(m, (*conn).onReturned) }); err != nil {
		return nil, err
	}
	el.Watch(p.up, p.lost)
	p.layer.OnTick(p.sweep)
	return p, nil
}

// Element is the element that the Peer belongs to.
func (p *Peer) Element() *fabric.Element { return p.el }

// up hears of a new endpoint, before any of its messages.
func (p *Peer) up(ep *fabric.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := newConn(p, ep)
	c.tenant = p.tenantOf(ep.Principal().Name)
	p.conns[ep] = c
	if p.closed.Load() { // which it is there to say
		c.ended = ErrClosed
		return
	}
	p.order = append(p.order, c)
	p.settle(ep.Incarnation())
}

// settle chooses the endpoint over which bulks of an incarnation are moved, whoever they came from: one of which the fabric says that it
// leads there. It stays the one that it was if it can. That can change when an endpoint to it comes or goes. mu is held.
func (p *Peer) settle(inc fabric.Incarnation) {
	was, next := p.owners[inc], (*conn)(nil)
	for _, ep := range p.el.EndpointsTo(inc) {
		if c := p.conns[ep]; c != nil && p.mayOwn(ep) && ep.Err() == nil && (next == nil || c == was) {
			next = c
		}
	}
	if next == nil {
		delete(p.owners, inc)
	} else {
		p.owners[inc] = next
	}
}

// mayOwn reports whether Bulks of an endpoint's incarnation are moved over it, whoever they came from.
func (p *Peer) mayOwn(ep *fabric.Endpoint) bool { return !p.cfg.Members || ep.Principal().Member() }

// lost hears that an endpoint is gone.
func (p *Peer) lost(ep *fabric.Endpoint, err error) {
	p.mu.Lock()
	c := p.conns[ep]
	if delete(p.conns, ep); c != nil {
		c.tenant.conns--
	}
	p.order = slices.DeleteFunc(p.order, func(other *conn) bool { return other == c })
	if !p.closed.Load() {
		p.settle(ep.Incarnation())
	}
	p.last.CompareAndSwap(c, nil)
	p.mu.Unlock()
	if c != nil {
		c.drop(err)
	}
}

// conn is what is kept for an endpoint; nil if it is gone.
func (p *Peer) conn(ep *fabric.Endpoint) *conn {
	if c := p.last.Load(); c != nil && c.ep == ep {
		return c
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := p.conns[ep]
	if c != nil {
		p.last.Store(c) // under mu: lost has not taken it off yet, or will
	}
	return c
}

// receive handles one message, on the goroutine that drives the fabric.
func (p *Peer) receive(m fabric.Message, fn func(*conn, []byte) error) {
	c := p.conn(m.From)
	if c == nil {
		return
	}
	if err := fn(c, m.Body); err != nil {
		p.log.Warn("peer broke the call protocol", "peer", m.From.String(), "err", err)
		p.stats.malformed.Add(1)
		m.From.Close()
	}
}

// sweep ends calls and payloads whose time is up.
func (p *Peer) sweep(now int64) int64 {
	next := p.sweepConns(now)
	p.sweepQueue(now)
	return next
}

func (p *Peer) sweepConns(now int64) int64 {
	whole := now >= p.sweepAt.Load()
	if whole {
		p.sweepAt.Store(now + int64(sweepEvery))
	}
	next := min(now+int64(sweepEvery), p.sweepAt.Load())
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range p.order {
		at := c.due.Load()
		if whole || at != 0 && at <= now { // in between only those with a deadline that has come
			at = c.sweep(now)
		}
		if at != 0 {
			next = min(next, at)
		}
	}
	return next
}

// Close ends all calls, both ways, and waits for the handlers, whose contexts end; but one that runs on the goroutine
// which drives the fabric may be in its last moments still. Until the element is closed, which is to be done after it, and not before
// (that waits for those too), peers hear of their calls that this element is stopping.
func (p *Peer) Close() error {
	p.closed.Store(true)
	p.sweepQueue(p.el.Now()) // their callers hear that they have not run
	p.mu.Lock()
	conns := p.order
	p.order = nil
	clear(p.owners)
	p.mu.Unlock()
	for _, c := range conns {
		c.shut()
	}
	p.work.Wait()
	return nil
}

// Drain waits until no handler runs, no call waits to run and no answer to be asked for, or the context ends.
func (p *Peer) Drain(ctx context.Context) error {
	for p.active.Load()+p.queue.n.Load()+p.held.Load() > 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("rpc: %d calls still run, %d wait to, and the answers to %d were not asked for: %w",
				p.active.Load(), p.queue.n.Load(), p.held.Load(), context.Cause(ctx))
		}
		pause, cancel := p.layer.Timeout(ctx, drainEvery, nil)
		_ = p.layer.Await(pause, nil)
		cancel()
	}
	return nil
}

// goWork runs fn on a goroutine that Close waits for; false if the Peer is closed.
func (p *Peer) goWork(fn func()) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed.Load() {
		return false
	}
	p.work.Add(1)
	p.layer.Go(func() {
		defer p.work.Done()
		fn()
	})
	return true
}

// gone is why there is no conn for an endpoint.
func (p *Peer) gone(ep *fabric.Endpoint) error {
	if ep == nil {
		return errors.New("rpc: no endpoint to call: Element.Dial gives one")
	}
	if err := ep.Err(); err != nil {
		return err
	}
	if !p.closed.Load() {
		return fmt.Errorf("rpc: %s is not an endpoint of this element, or was made before the Peer", ep)
	}
	return ErrClosed
}

// coarseTime is how much shorter a time may be than asked for, before a precise
// clock is worth its fifty nanoseconds.
const coarseTime = time.Second

// after is the element's clock d from now.
func (p *Peer) after(d time.Duration) int64 {
	if d < coarseTime {
		return p.el.Now() + int64(d)
	}
	return p.layer.CoarseNow() + int64(d)
}

// timedOut makes a context's end the package's own error.
func timedOut(err error) error {
	switch {
	case errors.Is(err, ErrDeadline) || errors.Is(err, ErrCanceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return ErrDeadline
	case errors.Is(err, context.Canceled):
		return ErrCanceled
	}
	return err
}

// counters are what Stats shows.
type counters struct {
	calls, failed                  atomic.Uint64
	served, refused, handlerErrors atomic.Uint64
	duplicates, malformed          atomic.Uint64
	unfetched, notes               atomic.Uint64
	overflows, reused              atomic.Uint64
	followed                       atomic.Uint64 // pieces of answers, read before the last was written
}

// Stats are a Peer's counters and levels, for metrics.
type Stats struct {
	Calls, Failed         uint64 // made here; those that returned an error
	Served, Refused       uint64 // of peers: handled; turned away (busy, unknown)
	HandlerErrors         uint64 // handled, with an error
	Duplicates, Malformed uint64
	Unfetched             uint64 // payloads that were not fetched in time
	Notes                 uint64 // sent
	Overflows             uint64 // payloads that were too large for a message, of either side
	Reused                uint64 // of them, requests of peers that were fetched into memory of an earlier one
	Active                int64  // calls being served that did not end at once
	Parked                int64  // calls that wait until there is room for them to run
	Held, HeldBytes       int64  // answers for which there was no room to send them, and that wait to be asked for; what they count as
	BulkBytes             int64  // segments for payloads, in use and kept
	PoolBytes             int64  // those kept
	BufferBytes           int64  // memory of requests and answers, kept for further ones
}

// Stats returns what has happened so far.
func (p *Peer) Stats() Stats {
	s := &p.stats
	return Stats{Calls: s.calls.Load(), Failed: s.failed.Load(), Served: s.served.Load(), Refused: s.refused.Load(),
		HandlerErrors: s.handlerErrors.Load(), Duplicates: s.duplicates.Load(), Malformed: s.malformed.Load(),
		Unfetched: s.unfetched.Load(), Notes: s.notes.Load(), Overflows: s.overflows.Load(), Reused: s.reused.Load(),
		Active: p.active.Load(), Parked: p.queue.waiting(), Held: p.held.Load(), HeldBytes: p.kept.inUse(),
		BulkBytes: p.lentBytes() + p.idle.Load(), PoolBytes: p.idle.Load(), BufferBytes: p.idleBuffers.Load() + p.idleBodies.Load()}
}

// lentBytes is what payloads take that peers have not read.
func (p *Peer) lentBytes() (n int64) {
	for i := range p.lent {
		n += p.lent[i].inUse()
	}
	return n
}
