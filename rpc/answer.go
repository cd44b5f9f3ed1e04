package rpc

import (
	"context"
	"fmt"
	"math"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// Answers on their way out. One that is too large for a message is lent in a segment if its caller has said that he has room for it, as
// he does when he waits, and otherwise stays here until he asks for it: when he waits for it, or has room. So what is lent is being read, and its segment is soon free again.

// reply sends what a call came to. Before it is sent the call is struck from the
// books, so that a caller with its answer can call again.
func (k *Call) reply(code Code, body []byte) {
	c := k.c
	granted := int64(len(body)) <= k.room
	if len(body) <= smallAnswerBytes || granted && len(body) <= c.eager {
		k.leave()
		if c.answer(&k.head, k.id, code, body) {
			k.free()
			return
		}
	}
	var seg *lentSegment
	var err error
	if granted {
		seg, err = c.lend(nil, lentAnswer, len(body))
	}
	if !granted || isNoRoom(err) {
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
	until := c.p.layer.CoarseNow() + c.readTime()
	c.mu.Lock()
	kept := c.lending.Lend(k.id, exchange.Theirs, seg, until)
	c.mu.Unlock()
	if !kept {
		seg.revoke()
		return
	}
	c.post(&k.head, IDResponse, &response{id: k.id, code: code, lent: true}, at)
}

// readTime is how long an answer that is lent may lie: its caller waits for it, and reads it and what lies for him already.
func (c *conn) readTime() int64 {
	n := 1 + c.lent[lentAnswer].inUse()/c.p.limits.largest()
	return n * min(int64(c.p.limits.LingerTime), int64(longest)/n)
}

func (c *conn) post(head *[responseBytes]byte, id fabric.FrameID, r *response, body []byte) error {
	r.put(head)
	return c.ep.Post(id, head[:], body)
}

// hold keeps an answer until the caller asks for it, unless he has room for it, and then until there is room to lend it, on a goroutine of
// its own; not longer than to the call's deadline.
func (k *Call) hold(code Code, body []byte) error {
	if err := k.keep(len(body)); err != nil {
		return err
	}
	k.c.left()
	timed, stop := k.c.p.layer.Timeout(context.Background(), k.Left(), ErrDeadline)
	ctx, cancel := context.WithCancelCause(timed)
	k.mu.Lock()
	detached := k.detached
	k.detached = true // the goroutine that runs the handler leaves the record alone
	asked := make(chan struct{})
	granted := int64(len(body)) <= k.room
	if k.held = asked; granted {
		k.ask()
	}
	if k.cancel = cancel; k.cause != nil {
		cancel(k.cause)
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
		defer stop()
		defer cancel(nil)
		if !granted {
			var b [heldBytes]byte
			c.ep.Post(IDHeld, putHeld(&b, k.id, uint64(len(body))), nil) // at the endpoint's end, Call.stop ends the wait
		}
		var seg *lentSegment
		err := c.p.layer.Await(ctx, asked)
		if err != nil {
			err = fmt.Errorf("its caller did not ask for it: %w", err)
		} else {
			seg, err = c.lend(ctx, lentAnswer, len(body))
		}
		k.replyLent(code, body, seg, err)
	}
	if !c.p.goWork(wait) {
		cancel(nil)
		stop()
		return ErrClosed
	}
	return nil
}

// heldCost is what an answer that is held takes besides its bytes: a record, and a goroutine with its timer.
const heldCost = 4 << 10

// keep puts a call into the books that has run and whose answer, of n bytes, is held. It has no place any more.
func (k *Call) keep(n int) error {
	c, p := k.c, k.c.p
	cost := int64(n+cap(k.buf)) + heldCost
	if !c.kept.take(cost) {
		return fmt.Errorf("answers that wait to be fetched may take %d bytes here (Limits.HeldBytes), and this peer's as much as they leave to others; wait for them, or start fewer calls", p.limits.HeldBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		c.kept.give(cost)
		return c.ended
	}
	k.kept = cost
	c.held.Add(1)
	p.held.Add(1)
	k.holds = true
	if k.entered {
		c.leaves() // it does not run any more
	}
	c.callee.Hold(k.id, k)
	return nil
}

// unkeep is called when an answer is not held any more; c.mu is held.
func (k *Call) unkeep() {
	if k.kept > 0 {
		k.c.kept.give(k.kept)
		k.kept = 0
	}
}

// crowds reports whether the caller is to fetch answers before it makes a call that it does not wait for.
func (k *Call) crowds() bool {
	return k.room < math.MaxInt64 && k.c.held.Load() > 0 && k.c.kept.crowded()
}

// ask ends a held answer's wait for its caller; k.mu is held.
func (k *Call) ask() {
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
	c.mu.Unlock()
	if running {
		k.mu.Lock()
		k.ask()
		k.mu.Unlock()
	}
	return nil
}
