package rpc

import (
	"cmp"
	"container/list"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/internal/share"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// queue has the calls that cannot run yet. Each waits in the line of the first thing that it lacked: a place of its method
// (Options.Concurrent), of its peer (Limits.CallsPerPeer), of its principal, or of all peers (Limits.Calls). It has none of them while it waits, so
// queued calls cannot block each other. A place that is given back lets the first call in its line try again; a call that lacks another place by now goes to the end of that line.
type queue struct {
	n atomic.Int64 // calls in it; raised before a new one tries for the last time, and read after a place was given back

	mu    sync.Mutex // taken before conn.mu, never within
	line  list.List  // of *Call: those that lack a place of all peers
	calls map[*conn]map[exchange.ID]*Call
	bytes int64 // what they count as
}

// waiting counts the calls in the queue, without one that is just trying for the last time.
func (q *queue) waiting() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n.Load()
}

// queuedCost is what a queued call takes besides its request.
const queuedCost = 1 << 10

// endpointShare is the part of Limits.QueuedBytes that one endpoint's calls may take.
const endpointShare = 8

// turn is a call that has left its line: to run, or to be refused.
type turn struct {
	k    *Call
	code Code
	text string
}

// park queues a call that has outlived its message, and could not enter.
func (c *conn) park(k *Call, lacks string) {
	p := c.p
	q := &p.queue
	q.mu.Lock()
	cost := int64(max(len(k.Req), cap(k.buf))) + queuedCost
	if k.OneWay { // which the caller's window bounds
		cost = 0
	}
	if why := c.turnedAway(k, cost); why != "" {
		q.mu.Unlock()
		c.refuse(k.request(), CodeBusy, lacks+"; "+why)
		return
	}
	q.n.Add(1) // from now on a goroutine that gives a place back waits for q.mu
	q.bytes += cost
	c.queuedBytes += cost
	c.tenant.queuedBytes += cost
	if q.calls[c] == nil {
		if q.calls == nil {
			q.calls = map[*conn]map[exchange.ID]*Call{}
		}
		q.calls[c] = map[exchange.ID]*Call{}
	}
	q.calls[c][k.id] = k
	c.queued.Add(1)
	if k.OneWay {
		c.queuedOneWay++
	}
	k.queued = cost
	k.join(&c.line)
	turns := p.advance(&c.line, nil)
	q.mu.Unlock()
	p.dispatch(turns)
}

// turnedAway says why a call may not wait, if so. One-way calls may. queue.mu is held.
func (c *conn) turnedAway(k *Call, cost int64) string {
	l, q := &c.p.limits, &c.p.queue
	switch {
	case k.OneWay:
		return ""
	case k.nested:
		return "one from within a handler does not wait, as that could be what it waits for"
	case l.Queued <= 0:
		return "none wait here (Limits.Queued)"
	case c.queued.Load()-c.queuedOneWay >= int64(l.Queued):
		return fmt.Sprintf("%d wait already, the limit for one peer (Limits.Queued)", l.Queued)
	case c.queuedBytes+cost > l.QueuedBytes/endpointShare || c.tenant.queuedBytes+cost > share.Of(l.QueuedBytes) || q.bytes+cost > l.QueuedBytes:
		return fmt.Sprintf("those that wait take %d bytes, %d of this peer and %d of its principal, the limit (Limits.QueuedBytes, %d for a peer, %d for a principal)",
			q.bytes, c.queuedBytes, c.tenant.queuedBytes, l.QueuedBytes/endpointShare, share.Of(l.QueuedBytes))
	}
	return ""
}

// join puts a call at the end of a line; queue.mu is held.
func (k *Call) join(line *list.List) {
	if k.line != nil {
		k.line.Remove(k.place)
	}
	k.line, k.place = line, line.PushBack(k)
}

// strike takes a call out of the queue; mu is held.
func (q *queue) strike(k *Call) {
	c := k.c
	k.line.Remove(k.place)
	k.line, k.place = nil, nil
	if delete(q.calls[c], k.id); len(q.calls[c]) == 0 {
		delete(q.calls, c)
	}
	q.bytes -= k.queued
	c.queuedBytes -= k.queued
	c.tenant.queuedBytes -= k.queued
	c.queued.Add(-1)
	if k.OneWay {
		c.queuedOneWay--
	}
	q.n.Add(-1)
}

// advance lets those in a line try, until the first lacks what the line is for; queue.mu is held.
func (p *Peer) advance(line *list.List, turns []turn) []turn {
	for e := line.Front(); e != nil; e = line.Front() {
		k := e.Value.(*Call)
		lacks, t := k.admit()
		switch lacks {
		case line:
			return turns
		case nil:
			p.queue.strike(k)
			turns = append(turns, t)
		default:
			k.join(lacks)
		}
	}
	return turns
}

// admit has a queued call enter, or be refused, if it lacks nothing; queue.mu is held.
func (k *Call) admit() (lacks *list.List, t turn) {
	c, p := k.c, k.c.p
	if p.closed.Load() {
		return nil, turn{k, CodeCanceled, stopping}
	}
	if p.el.Now() >= k.deadline {
		return nil, turn{k, CodeDeadline, ErrDeadline.Error()}
	}
	if c.gone() != nil { // forsake has been here, or waits for queue.mu
		return nil, turn{k, CodeCanceled, lostCaller}
	}
	m := p.methods.Load().find(k.m.id) // it may be another by now
	if m == nil {
		return nil, turn{k, CodeNoSuchCall, ""}
	}
	if k.m, k.Name = m, m.name; k.Bytes > m.opts.MaxBytes {
		return nil, turn{k, CodeTooLarge, k.tooLarge()}
	}
	switch ok, busy := m.enter(); {
	case busy:
		return &m.line, turn{}
	case !ok:
		return nil, turn{k, CodeNoSuchCall, ""}
	}
	c.mu.Lock()
	switch {
	case c.ended != nil:
		t = turn{k, CodeCanceled, lostCaller}
	case k.crowds():
		t = turn{k, CodeBusy, unfetchedAnswers}
	default:
		lacks, t = k.begin(), turn{k: k}
	}
	c.mu.Unlock()
	if lacks != nil || t.code != codeOK {
		m.leave() // a call that found it busy meanwhile waits for queue.mu, and tries again
	}
	return lacks, t
}

// unpark lets those in lines try in which a place has become free.
func (p *Peer) unpark(lines ...*list.List) {
	if p.queue.n.Load() == 0 {
		return
	}
	var turns []turn
	p.queue.mu.Lock()
	for _, line := range lines {
		turns = p.advance(line, turns)
	}
	p.queue.mu.Unlock()
	p.dispatch(turns)
}

// dispatch runs calls whose turn it is, and refuses those that cannot run.
func (p *Peer) dispatch(turns []turn) {
	for _, t := range turns {
		if t.code == codeOK {
			t.k.c.fork(t.k)
		} else {
			t.k.c.refuse(t.k.request(), t.code, t.text)
		}
	}
}

// depart gives a method's place back.
func (p *Peer) depart(m *method) {
	m.leave()
	if m.opts.Concurrent > 0 || m.gone.Load() {
		p.unpark(&m.line)
	}
}

// withdraw takes a call out of the queue whose caller has given it up; false if it is not there.
func (c *conn) withdraw(id exchange.ID) bool {
	q := &c.p.queue
	q.mu.Lock()
	k := q.calls[c][id]
	if k != nil {
		q.strike(k)
	}
	q.mu.Unlock()
	if k != nil {
		k.took()
	}
	return k != nil
}

// queuedOf is an endpoint's queued calls in the order in which they were made; mu is held.
func (q *queue) queuedOf(c *conn) []*Call {
	return slices.SortedFunc(maps.Values(q.calls[c]), func(a, b *Call) int { return cmp.Compare(a.id.Number(), b.id.Number()) })
}

// forsake forgets the queued calls of an endpoint that has ended.
func (c *conn) forsake() {
	q := &c.p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range q.queuedOf(c) {
		q.strike(k)
	}
}

// sweepQueue refuses queued calls that have no time left.
func (p *Peer) sweepQueue(now int64) {
	if p.queue.n.Load() == 0 {
		return
	}
	p.mu.RLock()
	conns := slices.Clone(p.order)
	p.mu.RUnlock()
	var turns []turn
	p.queue.mu.Lock()
	for _, c := range conns {
		if c.queued.Load() == 0 {
			continue
		}
		for _, k := range p.queue.queuedOf(c) {
			t := turn{k: k}
			switch {
			case p.closed.Load():
				t.code, t.text = CodeCanceled, stopping
			case now >= k.deadline:
				t.code, t.text = CodeDeadline, ErrDeadline.Error()
			default:
				continue
			}
			p.queue.strike(k)
			turns = append(turns, t)
		}
	}
	p.queue.mu.Unlock()
	p.dispatch(turns)
}

// request is the head that a call came with, as far as a refusal needs it.
func (k *Call) request() *request {
	r := &request{id: k.id}
	if k.OneWay {
		r.flags |= flagOneWay
	}
	if k.lent {
		r.flags |= flagLent
	}
	return r
}
