package rpc

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Peer is one element's part in calls: it serves and it calls. Its methods may
// be called from any goroutine.
type Peer struct {
	el     *fabric.Element
	limits Limits
	log    *slog.Logger

	mu      sync.RWMutex
	methods map[uint64]*method
	conns   map[*fabric.Endpoint]*conn
	closed  bool

	ctx     context.Context // of all handlers
	cancel  context.CancelFunc
	running sync.WaitGroup
	active  atomic.Int64
	bulk    atomic.Int64 // bytes of own payloads in segments
	stats   counters
}

type method struct {
	name string
	fn   Handler
}

// Handler serves one call. The context ends at the call's deadline, when the
// caller cancels or is lost, and when the Peer closes. The answer is the Peer's once it is returned.
type Handler func(ctx context.Context, c *Call) ([]byte, error)

// conn is what is kept for one endpoint.
type conn struct {
	p      *Peer
	ep     *fabric.Endpoint
	ctx    context.Context // of the handlers of its calls
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	next    uint64 // our next call's number
	low     uint64 // our lowest call under way
	calls   map[uint64]*pending
	seen    seen
	serving map[uint64]*Call
	lent    map[uint64]lingering
}

// lingering is an answer in a segment that the caller has not fetched yet.
type lingering struct {
	seg   *fabric.Segment
	until int64 // on the element's clock
}

// sweepEvery is how often expired answers and lost endpoints are looked for.
const sweepEvery = 250 * time.Millisecond

// New makes an element able to call and to serve. It must be called before the
// element listens or dials, and once per element.
func New(el *fabric.Element, limits Limits, log *slog.Logger) (*Peer, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	limits.defaults()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Peer{el: el, limits: limits, log: log, methods: map[uint64]*method{}, conns: map[*fabric.Endpoint]*conn{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for id, fn := range map[fabric.FrameID]func(*conn, []byte) error{
		IDRequest: (*conn).onRequest, IDResponse: (*conn).onResponse, IDNote: (*conn).onNote,
		IDCancel: (*conn).onCancel, IDAck: (*conn).onAck,
	} {
		if err := el.Handle(id, func(m fabric.Message) { p.receive(m, fn) }); err != nil {
			return nil, fmt.Errorf("rpc: %w", err)
		}
	}
	el.OnTick(p.sweep)
	return p, nil
}

// Element is the element that the Peer belongs to.
func (p *Peer) Element() *fabric.Element { return p.el }

// hashName is what travels instead of a name: 64-bit FNV-1a.
func hashName(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// Register serves calls of the given name. Two names with one hash are refused,
// so that a call can never reach the wrong handler.
func (p *Peer) Register(name string, fn Handler) error {
	if name == "" || len(name) > MaxNameBytes || fn == nil {
		return fmt.Errorf("%w: %q: a name has 1 to %d bytes and a handler", ErrName, clipText(name, MaxNameBytes), MaxNameBytes)
	}
	h := hashName(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch other := p.methods[h]; {
	case other != nil && other.name == name:
		return fmt.Errorf("%w: %q is registered already", ErrName, name)
	case other != nil:
		return fmt.Errorf("%w: %q and %q have the same hash: rename one", ErrName, name, other.name)
	case len(p.methods) >= maxNames:
		return fmt.Errorf("%w: %d calls are registered, the most there can be", ErrName, maxNames)
	}
	p.methods[h] = &method{name, fn}
	return nil
}

// conn finds or makes what is kept for an endpoint; nil if the endpoint is gone.
func (p *Peer) conn(ep *fabric.Endpoint) *conn {
	p.mu.RLock()
	c := p.conns[ep]
	p.mu.RUnlock()
	if c != nil {
		return c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[ep]; c != nil {
		return c
	}
	if p.closed {
		return nil
	}
	c = &conn{p: p, ep: ep, calls: map[uint64]*pending{}, serving: map[uint64]*Call{}, lent: map[uint64]lingering{}}
	c.ctx, c.cancel = context.WithCancelCause(p.ctx)
	p.conns[ep] = c
	// An endpoint's end is on record before PeerLost hears of it, so either this
	// look finds it or PeerLost finds the conn.
	if ep.Err() != nil {
		delete(p.conns, ep)
		c.cancel(ep.Err())
		return nil
	}
	return c
}

// PeerLost says that an endpoint is gone: fabric.Config.OnLost calls it. Without
// it the Peer notices by itself, a moment later.
func (p *Peer) PeerLost(ep *fabric.Endpoint, err error) {
	p.mu.Lock()
	c := p.conns[ep]
	delete(p.conns, ep)
	p.mu.Unlock()
	if c != nil {
		c.drop(err)
	}
}

// drop ends what was under way on an endpoint. Callers notice by themselves.
func (c *conn) drop(err error) {
	if err == nil {
		err = fabric.ErrPeerLost
	}
	c.cancel(err)
	c.mu.Lock()
	lent := c.lent
	c.lent = nil
	c.mu.Unlock()
	for _, l := range lent {
		c.p.unlend(l.seg)
	}
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

// sweep frees what nobody fetched, and forgets endpoints that are gone.
func (p *Peer) sweep(now int64) int64 {
	var gone []*conn
	var expired []*fabric.Segment
	p.mu.RLock()
	for ep, c := range p.conns {
		if ep.Err() != nil {
			gone = append(gone, c)
			continue
		}
		c.mu.Lock()
		for id, l := range c.lent {
			if l.until < now {
				expired = append(expired, l.seg)
				delete(c.lent, id)
			}
		}
		c.mu.Unlock()
	}
	p.mu.RUnlock()
	for _, c := range gone {
		p.PeerLost(c.ep, c.ep.Err())
	}
	for _, s := range expired {
		p.stats.unfetched.Add(1)
		p.unlend(s)
	}
	return now + int64(sweepEvery)
}

// Close ends all handlers and waits for them. Calls under way here end when
// the element is closed, which belongs right after.
func (p *Peer) Close() error {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = map[*fabric.Endpoint]*conn{}
	p.mu.Unlock()
	p.cancel()
	for _, c := range conns {
		c.drop(ErrClosed)
	}
	p.running.Wait()
	return nil
}

// Drain waits until no handler runs, or the context ends.
func (p *Peer) Drain(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.active.Load() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("rpc: %d calls still run: %w", p.active.Load(), context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// lend puts a payload into a segment of its own.
func (p *Peer) lend(body []byte) (*fabric.Segment, bulk, error) {
	n := int64(len(body))
	if p.bulk.Add(n) > p.limits.BulkBytes {
		p.bulk.Add(-n)
		return nil, bulk{}, fmt.Errorf("%w: its payload of %d bytes would exceed the %d that may lie in segments", ErrBusy, n, p.limits.BulkBytes)
	}
	seg, err := p.el.NewSegment(uint64(n), fabric.Sealed)
	if err != nil {
		p.bulk.Add(-n)
		return nil, bulk{}, fmt.Errorf("rpc: payload: %w", err)
	}
	copy(seg.Bytes(), body)
	key, err := seg.Key(fabric.RightRead)
	if err != nil {
		p.unlend(seg)
		return nil, bulk{}, fmt.Errorf("rpc: payload: %w", err)
	}
	return seg, bulk{key, uint64(n)}, nil
}

func (p *Peer) unlend(seg *fabric.Segment) {
	p.bulk.Add(-int64(seg.Size()))
	seg.Close()
}

// fetch reads a payload that lies at the peer.
func (c *conn) fetch(ctx context.Context, ref []byte) ([]byte, error) {
	k, err := decodeBulk(ref, c.p.limits.MaxBytes)
	if err != nil {
		return nil, err
	}
	r, err := c.ep.Import(ctx, k.key)
	if err != nil {
		return nil, err
	}
	body := make([]byte, k.size)
	if err := r.Get(ctx, body, 0); err != nil {
		return nil, err
	}
	return body, nil
}

// timedOut makes a context's end the package's own error.
func timedOut(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrDeadline
	}
	return err
}

// counters are what Stats shows.
type counters struct {
	calls, failed                  atomic.Uint64
	served, refused, handlerErrors atomic.Uint64
	duplicates, malformed          atomic.Uint64
	unfetched, notes               atomic.Uint64
}

// Stats are a Peer's counters and levels, for metrics.
type Stats struct {
	Calls, Failed         uint64 // made here; those that returned an error
	Served, Refused       uint64 // of peers: handled; turned away (busy, unknown)
	HandlerErrors         uint64 // handled, with an error
	Duplicates, Malformed uint64
	Unfetched             uint64 // answers that nobody fetched in time
	Notes                 uint64 // sent
	Active                int64  // handlers that run
	BulkBytes             int64  // payloads in segments
}

// Stats returns what has happened so far.
func (p *Peer) Stats() Stats {
	s := &p.stats
	return Stats{Calls: s.calls.Load(), Failed: s.failed.Load(), Served: s.served.Load(), Refused: s.refused.Load(),
		HandlerErrors: s.handlerErrors.Load(), Duplicates: s.duplicates.Load(), Malformed: s.malformed.Load(),
		Unfetched: s.unfetched.Load(), Notes: s.notes.Load(), Active: p.active.Load(), BulkBytes: p.bulk.Load()}
}
