package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// pending is a call of ours that waits for its answer.
type pending struct {
	id   uint64
	done atomic.Bool // publishes answer and body
	// news says that the waiter has something to look at besides done.
	news atomic.Bool

	mu   sync.Mutex
	note []byte // the newest that was not delivered

	answer response
}

// Call calls the function registered under name at the peer, and returns its
// answer. The context bounds all of it; if it has no deadline, Limits.CallTime does. When it
// ends first, the call is cancelled, and may or may not have happened.
func (p *Peer) Call(ctx context.Context, ep *fabric.Endpoint, name string, req []byte) ([]byte, error) {
	return p.CallNotes(ctx, ep, name, req, nil)
}

// CallNotes is Call for calls that report progress: onNote gets each note that
// arrives, on this goroutine, before CallNotes returns. Notes that come faster than they are taken replace
// each other.
func (p *Peer) CallNotes(ctx context.Context, ep *fabric.Endpoint, name string, req []byte, onNote func(note []byte)) ([]byte, error) {
	p.stats.calls.Add(1)
	body, err := p.call(ctx, ep, name, req, onNote)
	if err != nil {
		p.stats.failed.Add(1)
	}
	return body, err
}

func (p *Peer) call(ctx context.Context, ep *fabric.Endpoint, name string, req []byte, onNote func([]byte)) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("%s at %s: %w", name, ep.Name(), err) }
	if len(req) > p.limits.MaxBytes {
		return fail(fmt.Errorf("%w: the request has %d bytes, at most %d are sent", ErrTooLarge, len(req), p.limits.MaxBytes))
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.limits.CallTime)
		defer cancel()
	}
	c := p.conn(ep)
	if c == nil {
		return fail(p.gone(ep))
	}
	w, err := c.begin()
	if err != nil {
		return fail(err)
	}
	defer c.end(w)
	r := request{method: hashName(name), id: w.id, body: req}
	if len(req) > p.limits.EagerBytes {
		seg, ref, err := p.lend(req)
		if err != nil {
			return fail(err)
		}
		defer p.unlend(seg)
		r.bulk, r.body = true, ref.append(nil)
	}
	if err := c.send(ctx, &r); err != nil {
		return fail(timedOut(err))
	}
	if err := c.await(ctx, w, onNote); err != nil {
		return fail(err)
	}
	a := &w.answer
	if a.code != codeOK {
		e := &RemoteError{Code: a.code, Text: printable(a.body), Peer: ep.Name(), Call: name}
		if a.code == CodeNoSuchCall { // the peer knows the hash only
			e.Text = fmt.Sprintf("it does not serve the call %q", name)
		}
		return nil, e
	}
	if !a.bulk {
		return a.body, nil
	}
	body, err := c.fetch(ctx, a.body)
	ep.Post(IDAck, appendNumber(nil, w.id), nil) // at the endpoint's end the segment goes anyway
	if err != nil {
		return fail(fmt.Errorf("its answer: %w", timedOut(err)))
	}
	return body, nil
}

// gone is why there is no conn.
func (p *Peer) gone(ep *fabric.Endpoint) error {
	if err := ep.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// begin gives a call its number.
func (c *conn) begin() (*pending, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) >= c.p.limits.Outgoing {
		return nil, fmt.Errorf("%w: %d to this peer, the limit here", ErrBusy, len(c.calls))
	}
	w := &pending{id: c.next}
	c.next++
	c.calls[w.id] = w
	return w, nil
}

// end forgets a call, and moves the lowest number up.
func (c *conn) end(w *pending) {
	c.mu.Lock()
	delete(c.calls, w.id)
	for c.low < c.next && c.calls[c.low] == nil {
		c.low++
	}
	c.mu.Unlock()
}

func (c *conn) send(ctx context.Context, r *request) error {
	c.mu.Lock()
	r.low = c.low
	c.mu.Unlock()
	deadline, _ := ctx.Deadline()
	if r.left = time.Until(deadline); r.left <= 0 {
		return ErrDeadline
	}
	var head [requestBytes]byte
	return c.ep.Send(ctx, IDRequest, r.appendHead(head[:0]), r.body)
}

// await waits for the answer, driving the fabric meanwhile.
func (c *conn) await(ctx context.Context, w *pending, onNote func([]byte)) error {
	ready := func() bool { return w.done.Load() || w.news.Load() || c.ep.Err() != nil }
	for {
		err := c.p.el.WaitFor(ctx, ready)
		if w.news.CompareAndSwap(true, false) && onNote != nil {
			w.mu.Lock()
			note := w.note
			w.note = nil
			w.mu.Unlock()
			if note != nil {
				onNote(note)
			}
		}
		switch {
		case w.done.Load() && !w.news.Load():
			return nil
		case w.done.Load():
		case c.ep.Err() != nil:
			return c.ep.Err()
		case err != nil:
			c.ep.Post(IDCancel, appendNumber(nil, w.id), nil)
			if errors.Is(err, fabric.ErrClosed) {
				return err
			}
			return timedOut(context.Cause(ctx))
		}
	}
}

// find is the call that an answer is for; nil if it is over.
func (c *conn) find(id uint64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

func (c *conn) onResponse(b []byte) error {
	r, err := decodeResponse(b)
	if err != nil {
		return err
	}
	w := c.find(r.id)
	if w == nil || w.done.Load() {
		if r.bulk { // the caller gave up: nobody will fetch it
			c.ep.Post(IDAck, appendNumber(nil, r.id), nil)
		}
		return nil
	}
	r.body = append([]byte(nil), r.body...)
	w.answer = r
	w.done.Store(true)
	c.p.el.Wake()
	return nil
}

func (c *conn) onNote(b []byte) error {
	id, note, err := decodeNumber(b)
	if err != nil {
		return err
	}
	if w := c.find(id); w != nil && !w.done.Load() {
		w.mu.Lock()
		w.note = append([]byte(nil), note...)
		w.mu.Unlock()
		w.news.Store(true)
		c.p.el.Wake()
	}
	return nil
}
