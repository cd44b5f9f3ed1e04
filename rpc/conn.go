package rpc

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/stream"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// conn is what is kept for one endpoint. Its locks are held over Endpoint.TrySend and Post,
// which never block nor call back.
type conn struct {
	p      *Peer
	ep     *fabric.Endpoint
	tenant *tenant
	eager  int // payloads up to it travel in the message

	mu       sync.Mutex
	caller   exchange.Caller
	callee   exchange.Callee[*Call]
	lending  exchange.Lending[*lentSegment]
	records  []*record // by slot
	head     [requestBytes + extHead + traceBytes + MaxTraceStateBytes]byte
	waiting  int           // callers that wait to send a request
	slots    fabric.Waiter // of them, those that wait for a slot,
	oneWays  fabric.Waiter // and those that wait for the end of one-way calls
	ended    error
	segments pool[*lentSegment] // for payloads to the peer
	buffers  pool[buffer]       // for its requests
	copier   stream.Copier      // of large payloads to the peer

	life context.Context // until the endpoint's end
	kill context.CancelCauseFunc

	remotes remoteCache

	// Its calls that wait until they may run: how many, and under queue.mu those that lack one of its places, and what all count as.
	queued       atomic.Int64
	line         list.List
	queuedBytes  int64
	queuedOneWay int64 // of them, those that are one-way

	due    atomic.Int64 // no deadline of its calls is before it; 0: there is none. Written under mu
	trimAt int64        // when the sweep looks at records that are free, under mu

	inline *Call        // the leader's: the record for handlers that end at once
	warnAt atomic.Int64 // when a refused one-way call is written to the log again
	held   atomic.Int32 // answers that wait until the peer asks for them

	lent        [lentKinds]portion // of Peer's
	kept, ahead portion            // of Peer's; ahead is taken and given under mu
	expected    int64              // what of ahead is for calls that are under way, under mu
	usual       uint8              // what large answers to started calls come to, as a grant says it, under mu; 0: there are none
}

func newConn(p *Peer, ep *fabric.Endpoint) *conn {
	c := &conn{p: p, ep: ep, caller: exchange.NewCaller(p.limits.Outgoing), callee: exchange.NewCallee[*Call](p.limits.CallsPerPeer)}
	if c.eager = p.limits.EagerBytes; p.eagerSockets && ep != nil && !ep.Shared() {
		c.eager = min(mostEager, p.limits.MaxBytes)
	}
	c.segments.idle, c.buffers.idle = &p.idle, &p.idleBuffers
	for i := range c.lent {
		c.lent[i].b = &p.lent[i]
	}
	c.kept.b, c.ahead.b = &p.kept, &p.ahead
	c.slots.Init(p.el)
	c.oneWays.Init(p.el)
	c.life, c.kill = context.WithCancelCause(context.Background())
	return c
}

// States of a record.
const (
	recFree uint32 = iota
	recWaiting
	recHeld // the call has run, and its answer waits at the callee to be asked for
	recDone
	recTaken // its waiter is at its answer
)

// record is a call of ours, from its beginning until its maker was told of its end.
type record struct {
	c      *conn
	waiter fabric.Waiter
	state  atomic.Uint32 // stage and gen (stateOf); publishes what the answer set
	news   atomic.Bool   // there is a note, or more of the answer
	gen    atomic.Uint32 // raised at each reuse

	// Under conn.mu.
	id       exchange.ID
	name     string
	note     []byte  // the newest that was not delivered
	written  written // the newest of the answer that was not read
	done     chan struct{}
	ends     []func(error)
	awaited  bool  // its caller waits for it, and will fetch a large answer himself
	deadline int64 // of the call; 0: its waiter's affair
	kept     int64 // bytes of body that it keeps beyond keptShort while it is free, for further answers
	since    int64 // when it became free, if so
	room     int64 // bytes of its answer that may be here, or are, before anybody waits for it
	ahead    bool  // it is fetched as soon as it is lent
	fetching bool  // a goroutine is at it, and room counts until its end

	// Set before state is recDone.
	code Code
	lent bool // the answer lies at the peer, for the waiter to fetch
	body []byte
	err  error // ended without an answer
}

// stageBits are those of a state that say how far a record is. The others are of its gen, so that no goroutine takes another call's stage for its own call's.
const stageBits = 3

func stateOf(stage, gen uint32) uint32 { return gen<<stageBits | stage }

func (r *record) stage() uint32 { return r.state.Load() & (1<<stageBits - 1) }

// record takes a slot's record for a new call. c.mu is held.
func (c *conn) record(id exchange.ID, name string) *record {
	for len(c.records) <= id.Slot() {
		r := &record{c: c}
		r.waiter.Init(c.p.el)
		c.records = append(c.records, r)
	}
	r := c.records[id.Slot()]
	if r.kept != 0 {
		c.p.idleBodies.Add(-r.kept)
		r.kept = 0
	}
	r.id, r.name, r.err, r.done, r.note, r.written, r.ends = id, name, nil, nil, nil, written{}, nil
	r.news.Store(false)
	r.state.Store(stateOf(recWaiting, r.gen.Load()))
	return r
}

// finish publishes a call's end. c.mu is held.
func (r *record) finish() { r.become(recDone) }

func (r *record) become(stage uint32) {
	r.state.Store(stateOf(stage, r.gen.Load()))
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
	r.waiter.Wake()
}

// end frees a record and its slot: nobody asks any more. What was wanted of it was taken out. It is false if that has happened before, or somebody else
// has claimed it; ends are the interceptors' that hear of it.
func (c *conn) end(r *record, gen uint32, claimed bool) (name string, ends []func(error), ended bool) {
	c.mu.Lock()
	if r.gen.Load() != gen || r.stage() == recTaken && !claimed {
		c.mu.Unlock()
		return "", nil, false
	}
	name, ends = r.name, r.ends
	id, unread := r.id, r.lent
	waited := c.caller.End(id)
	if c.lending.Len() > 0 {
		c.lending.Leave(id, exchange.Ours, c.p.layer.CoarseNow()+int64(c.p.limits.LingerTime))
	}
	r.gen.Add(1)
	if !r.fetching {
		c.expectLess(r.room, c.spare())
	}
	r.lent, r.ends, r.err, r.ahead, r.fetching, r.room = false, nil, nil, false, false, 0
	if n := int64(cap(r.body)); n > keptShort {
		c.keepBody(r, n)
	}
	r.become(recFree)
	wake := c.waiting > 0
	c.mu.Unlock()
	if waited {
		c.tell(IDCancel, id)
	} else if unread {
		c.tell(IDAck, id)
	}
	if wake {
		c.slots.Wake()
	}
	return name, ends, true
}

// keepBody keeps a free record's memory of n bytes for further answers, if there is room. c.mu is held.
func (c *conn) keepBody(r *record, n int64) {
	if c.ended != nil || n > keptBytes || !take(&c.p.idleBodies, n, c.p.limits.PoolBytes) {
		r.body = nil
		return
	}
	r.kept, r.since = n, c.p.layer.CoarseNow()
}

// trimBodies lets go of what free records keep and have not used since before; c.mu is held.
func (c *conn) trimBodies(before int64) {
	for _, r := range c.records {
		if r.kept != 0 && r.since < before {
			c.p.idleBodies.Add(-r.kept)
			r.kept, r.body = 0, nil
		}
	}
}

// drop ends what is under way on an endpoint that has ended.
func (c *conn) drop(err error) {
	if err == nil {
		err = fabric.ErrPeerLost
	}
	c.cease(err, false)
}

// shut ends what is under way on an endpoint that goes on, where the Peer does not: those who were called hear that nobody waits any
// more, and those who called get what their handlers come to.
func (c *conn) shut() { c.cease(ErrClosed, true) }

func (c *conn) cease(err error, lives bool) {
	var waited []exchange.ID
	var running []*Call
	c.mu.Lock()
	c.ended = err
	c.caller.Drop(func(id exchange.ID) {
		r := c.records[id.Slot()]
		r.err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		r.finish()
		waited = append(waited, id)
	})
	c.callee.Each(func(_ exchange.ID, k *Call) { running = append(running, k) })
	c.lending.Close((*lentSegment).revoke)
	c.segments.close()
	c.buffers.close()
	c.trimBodies(math.MaxInt64)
	c.expectLess(0, 0)
	c.mu.Unlock()
	c.forsake()
	if lives {
		c.tellRest() // and of each end from now on, as no sweep comes any more
		for _, id := range waited {
			c.tell(IDCancel, id)
		}
	}
	c.kill(err)
	for _, k := range running {
		k.stop(err, !lives)
	}
	for i := range c.lent {
		c.lent[i].fail(err)
	}
	c.wakeSenders()
}

// wakeSenders has all callers that wait to send a request look whether they still can.
func (c *conn) wakeSenders() {
	c.slots.Wake()
	c.oneWays.Wake()
	c.p.el.Wake() // waiters for the fabric's credit
}

// sweep ends what is over by now, and says when to look next, 0 if at nothing in particular.
func (c *conn) sweep(now int64) (next int64) {
	var late []exchange.ID
	c.mu.Lock()
	c.caller.Expire(now, func(id exchange.ID) {
		r := c.records[id.Slot()]
		r.err = ErrDeadline
		r.finish()
		late = append(late, id)
	})
	ended, tell := c.callee.TellRest()
	next = c.caller.Soonest()
	c.due.Store(next)
	c.lending.Expire(now, func(s *lentSegment) {
		c.p.stats.unfetched.Add(1)
		s.revoke()
	})
	c.segments.trim(now)
	c.buffers.trim(now)
	if c.expected == 0 {
		c.expectLess(0, 0)
	}
	if now >= c.trimAt {
		c.trimBodies(now - int64(poolTime))
		c.trimAt = now + int64(poolTime)
	}
	c.mu.Unlock()
	c.remotes.trim(now)
	if tell {
		c.tellEnded(ended)
	}
	for _, id := range late {
		c.tell(IDCancel, id)
	}
	return next
}

// tell sends a message that is an id and nothing more. At the endpoint's end, what it
// is about goes anyway.
func (c *conn) tell(kind fabric.FrameID, id exchange.ID) {
	var b [numberBytes]byte
	c.ep.Post(kind, putNumber(&b, id), nil)
}

func (c *conn) onResponse(b []byte) error {
	var r response
	if err := decodeResponse(b, &r); err != nil {
		return err
	}
	c.mu.Lock()
	var taken *lentSegment
	if c.lending.Len() > 0 { // a callee that answers has read the request, or never will
		taken, _ = c.lending.Taken(r.id, exchange.Ours)
	}
	if !c.caller.Answer(r.id) {
		c.mu.Unlock()
		c.reuse(taken)
		if r.lent { // the caller gave up, and will not fetch it
			c.tell(IDAck, r.id)
		}
		return nil
	}
	rec := c.records[r.id.Slot()]
	rec.code, rec.lent = r.code, r.lent
	rec.body = append(rec.body[:0], r.body...)
	if !rec.awaited {
		if err := c.arrived(rec); err != nil {
			rec.body, rec.err = nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
			rec.finish()
			c.mu.Unlock()
			c.reuse(taken)
			return err
		}
	}
	ahead := r.lent && rec.ahead
	if ahead {
		rec.lent, rec.fetching = false, true
	} else {
		rec.finish()
	}
	gen, limit, deadline := rec.gen.Load(), rec.room, rec.deadline
	c.mu.Unlock()
	c.reuse(taken)
	if ahead {
		c.fetchAhead(rec, r.id, gen, bytes.Clone(r.body), limit, deadline)
	}
	return nil
}

// nobody is what a call fails with at a peer that serves none at all.
const nobody = "it serves no calls: its program has made no rpc.Peer"

// onReturned hears that the peer has nothing that takes requests: the call has not run.
func (c *conn) onReturned(b []byte) error {
	id, err := decodeReturned(b)
	if err != nil {
		return err
	}
	if id.Slot() != exchange.NoSlot {
		var head [responseBytes]byte
		(&response{id: id, code: CodeNoSuchCall}).put(&head)
		return c.onResponse(append(head[:], nobody...))
	}
	c.mu.Lock()
	taken, _ := c.lending.Taken(id, exchange.Ours)
	possible, wake := c.caller.OneWayReturned(), c.waiting > 0
	c.mu.Unlock()
	c.reuse(taken)
	if !possible {
		return errTooManyEnded
	}
	if wake {
		c.oneWays.Wake()
	}
	return nil
}

// onHeld hears that a call has run, and that its answer waits to be asked for. That is done
// at once if there is room to fetch it, and otherwise by the goroutine that waits for the call.
func (c *conn) onHeld(b []byte) error {
	id, size, err := decodeHeld(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	taken, _ := c.lending.Taken(id, exchange.Ours)
	ask := false
	waits := c.caller.Waiting(id)
	if waits {
		r := c.records[id.Slot()]
		if ask = !r.awaited && !r.ahead && c.waits(r, size); !ask && !r.ahead {
			r.become(recHeld)
		}
	}
	c.mu.Unlock()
	c.reuse(taken)
	if !waits { // it was given up, and that passed its answer on the way, or the other side took it for sent
		c.tell(IDCancel, id)
		return nil
	}
	if ask {
		c.tell(IDWant, id)
	}
	return nil
}

// fetchAhead fetches an answer of at most limit bytes that there is room for, on a goroutine of its own.
func (c *conn) fetchAhead(r *record, id exchange.ID, gen uint32, refBody []byte, limit, deadline int64) {
	p := c.p
	done := func(body []byte, err error) {
		c.tell(IDAck, id)
		c.mu.Lock()
		if r.gen.Load() != gen { // it was given up meanwhile
			c.expectLess(limit, c.spare())
		} else {
			if r.body, r.fetching = body, false; err != nil {
				r.err = r.unfetched(err)
			}
			r.finish()
		}
		c.mu.Unlock()
	}
	left := time.Duration(deadline - p.el.Now()) // that of a started call, which has one
	if !p.goWork(func() {
		ctx, cancel := p.layer.Timeout(c.life, left, ErrDeadline)
		defer cancel()
		done(c.fetch(ctx, refBody, int(limit), nil, written{}))
	}) {
		done(nil, ErrClosed)
	}
}

func (c *conn) onNote(b []byte) error {
	id, note, err := decodeNumber(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	waits := c.caller.Waiting(id)
	if waits {
		r := c.records[id.Slot()]
		r.note = append([]byte(nil), note...)
		r.news.Store(true)
		r.waiter.Wake()
	}
	c.mu.Unlock()
	return nil
}
