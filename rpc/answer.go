package rpc

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// Answers on their way out. One for which there is no room stays here, with its call
// counted as one of its peer's, until the caller asks for it: he does when he waits for it, or
// has room to fetch it. What he asks for he fetches, so its segment is soon free again.

// reply sends what a call came to. Before it is sent the call is struck from the
// books, so that whoever has the answer can call again.
func (k *Call) reply(code Code, body []byte) {
	c := k.c
	eager := c.eager
	if k.small {
		eager = smallAnswerBytes
	}
	if len(body) <= eager {
		k.leave()
		if c.answer(&k.head, k.id, code, body) {
			k.free()
			return
		}
	}
	seg, err := c.lendUnasked(len(body))
	if isNoRoom(err) {
		if err = k.hold(code, body); err == nil {
			return
		}
	}
	k.replyLent(code, body, seg, err)
}

// answer sends a response that fits into a message; false if there is no room for it. head is room for its head: on
// the stack it would be allocated for each call.
func (c *conn) answer(head *[responseBytes]byte, id exchange.ID, code Code, body []byte) bool {
	kind := IDResponse
	if len(body) > smallAnswerBytes {
		kind = IDAnswer
	}
	return c.post(head, kind, &response{id: id, code: code}, body) == nil || kind == IDResponse // which has room until the endpoint's end
}

// replyLent sends an answer that a segment was found for, or the reason why there is none.
func (k *Call) replyLent(code Code, body []byte, seg *lentSegment, err error) {
	c := k.c
	var at []byte
	if err == nil {
		at = k.write(seg, body)
	}
	k.leave()
	k.free() // the answer was copied
	if err != nil {
		text := clipText(fmt.Sprintf("%v: %v", ErrAnswer, err), smallAnswerBytes)
		c.post(&k.head, IDResponse, &response{id: k.id, code: CodeAnswer}, []byte(text))
		return
	}
	now := c.p.el.CoarseNow()
	until := max(k.deadline, now) + int64(c.p.limits.LingerTime) // whoever gives up before says so
	c.mu.Lock()
	kept := c.lending.Lend(k.id, exchange.Theirs, seg, now, until)
	c.mu.Unlock()
	if !kept {
		seg.close()
		return
	}
	c.post(&k.head, IDResponse, &response{id: k.id, code: code, lent: true}, at)
}

func (c *conn) post(head *[responseBytes]byte, id fabric.FrameID, r *response, body []byte) error {
	r.put(head)
	return c.ep.Post(id, head[:], body)
}

// hold keeps an answer until the caller asks for it, on a goroutine of its own; not longer than to the call's deadline.
func (k *Call) hold(code Code, body []byte) error {
	if err := k.keep(len(body)); err != nil {
		return err
	}
	k.c.p.unpark(&k.c.p.queue.line)
	k.mu.Lock()
	detached := k.detached
	k.detached = true // who runs the handler leaves the record alone
	asked := make(chan struct{})
	if k.held = asked; k.cause != nil || k.evicted != nil {
		k.wake()
	}
	k.mu.Unlock()
	if detached || k.borrowed || k.leads.Load() { // it is the caller's of Reply again, or part of a message that ends with the handler
		body = append([]byte(nil), body...)
	}
	k.scratch = nil // only what counts is kept: the answer, and a large request's memory
	if k.buf == nil {
		k.Req = nil
	}
	c := k.c
	wait := func() {
		ctx, cancel := c.p.el.Timeout(context.Background(), k.Left(), ErrDeadline)
		defer cancel()
		var b [heldBytes]byte
		c.ep.Post(IDHeld, putHeld(&b, k.id, uint64(len(body))), nil) // at the endpoint's end, stop ends the wait
		var seg *lentSegment
		err := c.p.el.Await(ctx, asked)
		if err != nil {
			err = fmt.Errorf("its caller did not ask for it: %w", err)
		} else if err = k.unwanted(); err == nil {
			seg, err = c.lendWaiting(ctx, c.lendAsked, len(body), k.unwanted)
		}
		k.replyLent(code, body, seg, err)
	}
	if !c.p.goWork(wait) {
		return ErrClosed
	}
	return nil
}

// evictTries is how often nothing may be found to give up, before an answer is not held.
const evictTries = 8

// heldCost is what an answer that is held takes besides its bytes: a record, and a goroutine with its timer.
const heldCost = 4 << 10

// keep puts a call into the books that has run and whose answer, of n bytes, is held. It counts as one of its peer's, but
// is not refused: that the peer's next calls are instead. Where the answers held for all peers take
// up all they may, whoever has most loses as much for it.
func (k *Call) keep(n int) error {
	c, p := k.c, k.c.p
	cost := int64(n+cap(k.buf)) + heldCost
	for vain := 0; !take(&p.heldBytes, cost, p.limits.HeldBytes); {
		most := p.holdsMost()
		if most == nil || most.keptBytes.Load() <= c.keptBytes.Load() || vain == evictTries {
			return fmt.Errorf("answers that wait to be asked for may take %d bytes here (Limits.HeldBytes), and this peer's take the most of them", p.limits.HeldBytes)
		}
		if most.evict(p.heldBytes.Load()+cost-p.limits.HeldBytes, c.keptBytes.Load()) == 0 { // others took them meanwhile, or the room that they left
			vain++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		p.heldBytes.Add(-cost)
		return c.ended
	}
	c.keptBytes.Add(cost)
	k.kept = cost
	c.held.Add(1)
	p.held.Add(1)
	k.holds = true
	if k.entered {
		p.active.Add(-1) // it does not run any more
	}
	c.callee.Keep(k.id, k)
	return nil
}

// unkeep is called when an answer is not held any more; c.mu is held.
func (k *Call) unkeep() {
	k.c.keptBytes.Add(-k.kept)
	k.c.p.heldBytes.Add(-k.kept)
	k.kept = 0
}

// holdsMost is the connection for which most bytes of answers are held; nil if there is none.
func (p *Peer) holdsMost() (most *conn) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range p.order {
		if n := c.keptBytes.Load(); n > 0 && (most == nil || n > most.keptBytes.Load()) {
			most = c
		}
	}
	return most
}

// evict gives up answers that are held, until they had taken need bytes or no more than least are left, and says how
// much they had: first those that were not asked for, and of these the ones to the earliest calls.
func (c *conn) evict(need, least int64) (freed int64) {
	why := fmt.Errorf("it was not fetched, and others needed the room that answers can be held in (Limits.HeldBytes, %d)", c.p.limits.HeldBytes)
	for freed < need && c.keptBytes.Load() > least {
		var first *Call
		c.mu.Lock()
		c.callee.Each(func(_ exchange.ID, k *Call) {
			if k.kept > 0 && (first == nil || k.givesWay(first)) {
				first = k
			}
		})
		if first != nil {
			freed += first.kept
			first.unkeep()
		}
		c.mu.Unlock()
		if first == nil {
			break
		}
		first.mu.Lock()
		first.evicted = why
		first.wake()
		first.mu.Unlock()
	}
	if c.p.cramped.Load() > 0 { // they may be waiting for room to be lent in
		c.p.el.Wake()
	}
	return freed
}

// givesWay reports whether a held answer is given up before another; c.mu is held.
func (k *Call) givesWay(other *Call) bool {
	if k.asked != other.asked {
		return !k.asked
	}
	return k.id.Number() < other.id.Number()
}

// full reports whether the peer shall fetch answers before it calls again: as many calls of it are under way or answers held as
// may be, or these take half of what all may.
func (c *conn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callee.Full() || c.keptBytes.Load() >= c.p.limits.HeldBytes/2
}

// wake ends a held answer's wait; k.mu is held.
func (k *Call) wake() {
	if k.held != nil {
		close(k.held)
		k.held = nil
	}
}

// onWant hears that the caller is about to fetch an answer that is held.
func (c *conn) onWant(b []byte) error {
	id, err := decodeBare(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	k, running := c.callee.Find(id)
	if running {
		k.asked = true
	}
	c.mu.Unlock()
	if running {
		k.mu.Lock()
		k.wake()
		k.mu.Unlock()
	}
	return nil
}

// unwanted is why nobody wants a call's answer any more, or why it cannot be had; nil if it can.
func (k *Call) unwanted() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.evicted != nil {
		return k.evicted
	}
	return k.cause
}
