package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// Answers that are lent and that nobody fetches are taken back when somebody waits for room that is used up: not before they
// have been there for Limits.LingerTime, from who has most, and no more than what a payload of any size needs.

// shortage is whether one who waits for room waits for what all peers have together. It counts while it is one.
type shortage struct {
	c  *conn
	is bool
}

// note takes in how the last attempt ended.
func (s *shortage) note(err error) {
	var e *noRoom
	is := errors.As(err, &e) && e.whose == roomOfAll
	if is == s.is {
		return
	}
	p := s.c.p
	if s.is = is; is {
		s.c.short.Add(1)
		p.starved.Add(1)
		p.line.Store(nil) // it may be first
		return
	}
	s.c.short.Add(-1)
	p.starved.Add(-1)
	p.line.Store(nil) // it may have gone
	p.hasRoom()       // it may be another's turn
}

// turn reports whether the endpoint may have room that all peers have together: where several wait for that, first those that
// fetch their answers soon, and of these whoever has waited for longest since the last.
func (c *conn) turn() bool {
	if c.p.starved.Load() == 0 {
		return true
	}
	first := c.p.firstInLine()
	return first == nil || first == c || !first.before(c)
}

// before reports whether the endpoint is to have room before another.
func (c *conn) before(o *conn) bool {
	if slow := c.slow.Load(); slow != o.slow.Load() {
		return !slow
	}
	return c.granted.Load() < o.granted.Load()
}

// inLine is who is first in line since there was room last. Without it each of thousands who wait would look for itself.
type inLine struct {
	roomy uint64 // Peer.roomy when it was looked for
	first *conn
}

// firstInLine is the endpoint that is to have room that all peers have together; nil if nobody waits for that.
func (p *Peer) firstInLine() *conn {
	roomy := p.roomy.Load()
	if l := p.line.Load(); l != nil && l.roomy == roomy {
		return l.first
	}
	l := &inLine{roomy: roomy}
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range p.order {
		if c.short.Load() > 0 && (l.first == nil || c.before(l.first)) {
			l.first = c
		}
	}
	p.line.Store(l)
	return l.first
}

// slowPart is what part of Limits.LingerTime an answer may lie unfetched before its endpoint is one of the slow.
const slowPart = 4

// recall takes answers back, as there is no room for others. Where it has, it does not again for a while: who waits
// has not looked yet, and duties may be due much more often.
func (p *Peer) recall(now int64) {
	if now < p.recallAt.Load() {
		return
	}
	conns := slices.Clone(p.order)
	slices.SortStableFunc(conns, func(a, b *conn) int { return cmp.Compare(b.lentBytes(), a.lentBytes()) })
	need := p.limits.largest()
	for _, c := range conns {
		if need <= 0 || c.lentBytes() == 0 {
			return
		}
		if freed := c.recall(now-int64(p.limits.LingerTime), need); freed > 0 {
			need -= freed
			p.recallAt.Store(now + int64(sweepEvery))
		}
	}
}

// lentBytes is how much memory holds answers to the peer.
func (c *conn) lentBytes() int64 { return c.unasked.Load() + c.asked.Load() }

// recall takes answers back that have been lent since before, from the first on, until they had taken need bytes. It
// says how much they had.
func (c *conn) recall(before, need int64) (freed int64) {
	for freed < need {
		c.mu.Lock()
		id, s, ok := c.lending.Recall(exchange.Theirs, before)
		c.mu.Unlock()
		if !ok {
			break
		}
		c.p.stats.unfetched.Add(1)
		freed += s.bytes()
		c.tell(IDRecalled, id) // before its key is revoked
		s.close()
	}
	return freed
}

// onRecalled hears that an answer is not lent any more.
func (c *conn) onRecalled(b []byte) error {
	id, err := decodeBare(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slot := id.Slot(); slot < len(c.records) && c.records[slot].id == id {
		c.records[slot].recalled.Store(true)
	}
	return nil
}

// errRecalled says that an answer was lent for too long.
var errRecalled = fmt.Errorf("%w: it lay there unfetched for a while, and others needed the room", ErrAnswer)

// fetch fetches an answer that is lent. Who may not wait does not hear why there is none any more, unless that is known.
func (r *record) fetch(ctx context.Context, refBody []byte, limit int, dst []byte, have written) ([]byte, error) {
	if r.recalled.Load() {
		return dst, errRecalled
	}
	dst, err := r.c.fetch(ctx, refBody, limit, dst, have)
	if errors.Is(err, fabric.ErrRevoked) && !leads(ctx) {
		// Memory that is mapped shows it before the message is here that says so.
		if r.c.ep.Flush(ctx) != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil && r.recalled.Load() {
		return dst, errRecalled
	}
	return dst, err
}
