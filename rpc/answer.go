package rpc

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// Answers on their way out. One for which there is no room stays here, with its call
// counted as under way, until the caller asks for it: he does when he waits for it, or
// has room to fetch it. What he asks for he fetches, so its segment is soon free again.

// reply sends what a call came to. Before it is sent the call is struck from the
// books, so that whoever has the answer can call again.
func (k *Call) reply(code Code, body []byte) {
	c := k.c
	if len(body) <= c.p.limits.EagerBytes {
		k.leave()
		if c.answer(&k.head, k.id, code, body) {
			k.free()
			return
		}
	}
	seg, err := c.lendUnasked(body)
	if isNoRoom(err) {
		if err = k.hold(code, body); err == nil {
			return
		}
	}
	k.replyLent(code, seg, err)
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

// replyLent sends an answer that is in a segment, or the reason why it is not.
func (k *Call) replyLent(code Code, seg *lentSegment, err error) {
	k.leave()
	k.free() // the answer was copied
	c := k.c
	if err != nil {
		text := clipText(fmt.Sprintf("%v: %v", ErrAnswer, err), smallAnswerBytes)
		c.post(&k.head, IDResponse, &response{id: k.id, code: CodeAnswer}, []byte(text))
		return
	}
	at := seg.ref.append(nil)                                                   // once it is lent it may be taken, and be another's
	until := max(k.deadline, c.p.el.CoarseNow()) + int64(c.p.limits.LingerTime) // whoever gives up before says so
	c.mu.Lock()
	kept := c.lending.Lend(k.id, exchange.Theirs, seg, until)
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
	if err := k.keep(); err != nil {
		return err
	}
	k.mu.Lock()
	detached := k.detached
	k.detached = true // who runs the handler leaves the record alone
	asked := make(chan struct{})
	if k.held = asked; k.cause != nil {
		k.wake()
	}
	k.mu.Unlock()
	if detached || k.leads.Load() { // it is the caller's of Reply again, or part of a message that ends with the handler
		body = append([]byte(nil), body...)
	}
	c := k.c
	c.held.Add(1)
	wait := func() {
		ctx, cancel := c.p.el.Timeout(context.Background(), k.Left(), ErrDeadline)
		defer cancel()
		var b [heldBytes]byte
		c.ep.Post(IDHeld, putHeld(&b, k.id, uint64(len(body))), nil) // at the endpoint's end, stop ends the wait
		var seg *lentSegment
		err := c.p.el.Await(ctx, asked)
		if err == nil {
			seg, err = c.lendWaiting(ctx, c.lendAsked, body, k.ended)
		} else {
			err = fmt.Errorf("its caller did not ask for it: %w", err)
		}
		c.held.Add(-1)
		k.replyLent(code, seg, err)
	}
	if !c.p.goWork(wait) {
		c.held.Add(-1)
		return ErrClosed
	}
	return nil
}

// keep puts a call into the books that has run and whose answer is held. It counts, but is not refused: that
// its peer's next calls are instead.
func (k *Call) keep() error {
	if k.entered {
		return nil
	}
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	c.callee.Keep(k.id, k)
	c.p.active.Add(1)
	k.entered = true
	return nil
}

// full reports whether no more calls of the peer can be under way.
func (c *conn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callee.Full() || c.p.active.Load() >= int64(c.p.limits.Calls)
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
	c.mu.Unlock()
	if running {
		k.mu.Lock()
		k.wake()
		k.mu.Unlock()
	}
	return nil
}

// ended is why nobody wants a call's answer any more, or nil.
func (k *Call) ended() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cause
}
