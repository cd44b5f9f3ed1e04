package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// Call is one call at its handler.
type Call struct {
	Name string           // it was registered under
	From *fabric.Endpoint // who calls
	Req  []byte           // the request; the handler's

	c      *conn
	id     uint64
	ref    []byte // where Req is, if it did not travel in the message
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	note   []byte // waits for NoteEvery
	noted  int64  // when one was sent, on the element's clock
	gaveUp bool   // the caller cancelled: it wants no answer
}

// errCanceled is why a handler's context ends when its caller cancels.
var errCanceled = fmt.Errorf("rpc: cancelled by the caller: %w", context.Canceled)

// Note sends the caller a note on the call's progress. Notes are for people:
// one that follows within Limits.NoteEvery waits for the next one, which replaces
// it, and one for which the caller has no room is left out. The last is
// sent before the answer. A note beyond Limits.NoteBytes is cut.
func (k *Call) Note(note []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.c.p
	k.note = append(k.note[:0], note[:min(len(note), p.limits.NoteBytes)]...)
	if now := p.el.Now(); k.noted == 0 || now-k.noted >= int64(p.limits.NoteEvery) {
		k.sendNote(now)
	}
}

// sendNote sends the note that waits; k.mu is held.
func (k *Call) sendNote(now int64) {
	if len(k.note) == 0 || k.gaveUp {
		return
	}
	if k.From.TrySend(IDNote, appendNumber(nil, k.id), k.note) == nil {
		k.c.p.stats.notes.Add(1)
	}
	k.note, k.noted = k.note[:0], max(now, 1)
}

// onRequest takes a call: it checks, copies and starts a goroutine, or refuses.
func (c *conn) onRequest(b []byte) error {
	r, err := decodeRequest(b)
	if err != nil {
		return err
	}
	p := c.p
	p.mu.RLock()
	m, closed := p.methods[r.method], p.closed
	p.mu.RUnlock()
	c.mu.Lock()
	fresh := c.seen.add(r.id, r.low)
	busy := len(c.serving) >= p.limits.CallsPerPeer
	c.mu.Unlock()
	switch {
	case !fresh:
		p.stats.duplicates.Add(1)
		return nil
	case closed:
		c.refuse(r.id, CodeCanceled, ErrCanceled.Error())
	case m == nil:
		c.refuse(r.id, CodeNoSuchCall, fmt.Sprintf("no call with hash %016x is served here", r.method))
	case busy:
		c.refuse(r.id, CodeBusy, fmt.Sprintf("%d calls of this peer are under way, the limit for one", p.limits.CallsPerPeer))
	default:
		c.start(&r, m)
	}
	return nil
}

func (c *conn) refuse(id uint64, code Code, text string) {
	c.p.stats.refused.Add(1)
	c.post(&response{id: id, code: code, body: []byte(text)})
}

func (c *conn) post(r *response) error {
	var head [responseBytes]byte
	return c.ep.Post(IDResponse, r.appendHead(head[:0]), r.body)
}

func (c *conn) start(r *request, m *method) {
	p := c.p
	if p.active.Add(1) > int64(p.limits.Calls) {
		p.active.Add(-1)
		c.refuse(r.id, CodeBusy, fmt.Sprintf("%d calls are under way here, the limit for all peers", p.limits.Calls))
		return
	}
	k := &Call{Name: m.name, From: c.ep, c: c, id: r.id}
	body := append([]byte(nil), r.body...)
	if r.bulk {
		k.ref = body
	} else {
		k.Req = body
	}
	ctx, stop := context.WithTimeoutCause(c.ctx, min(r.left, p.limits.MaxTime), ErrDeadline)
	ctx, k.cancel = context.WithCancelCause(ctx)
	c.mu.Lock()
	c.serving[r.id] = k
	c.mu.Unlock()
	p.mu.RLock()
	closed := p.closed
	if !closed {
		p.running.Add(1)
	}
	p.mu.RUnlock()
	if closed {
		stop()
		k.over()
		c.refuse(r.id, CodeCanceled, ErrCanceled.Error())
		return
	}
	go func() {
		defer p.running.Done()
		defer stop()
		k.serve(ctx, m.fn)
	}()
}

// over ends the call's record.
func (k *Call) over() {
	c := k.c
	k.cancel(nil)
	c.mu.Lock()
	delete(c.serving, k.id)
	c.mu.Unlock()
	c.p.active.Add(-1)
}

func (k *Call) serve(ctx context.Context, fn Handler) {
	defer k.over()
	p := k.c.p
	body, err := k.run(ctx, fn)
	p.stats.served.Add(1)
	k.mu.Lock()
	k.sendNote(p.el.Now())
	gaveUp := k.gaveUp
	k.gaveUp = true // no note after the answer
	k.mu.Unlock()
	r := &response{id: k.id, body: body}
	if err == nil && len(body) > p.limits.EagerBytes {
		err = k.lend(r)
	}
	if err != nil {
		p.stats.handlerErrors.Add(1)
		code, text := remoteCode(ctx, err)
		r.code, r.body = code, []byte(clipText(text, maxTextBytes))
	}
	if gaveUp || k.From.Err() != nil {
		k.c.acked(k.id)
		return
	}
	k.c.post(r)
}

func (k *Call) run(ctx context.Context, fn Handler) ([]byte, error) {
	if k.ref != nil {
		var err error
		if k.Req, err = k.c.fetch(ctx, k.ref); err != nil {
			code := CodeBulk
			if errors.Is(err, ErrTooLarge) {
				code = CodeTooLarge
			}
			return nil, &Error{code, fmt.Sprintf("the request's payload: %v", err)}
		}
	}
	body, err := fn(ctx, k)
	if err == nil && len(body) > k.c.p.limits.MaxBytes {
		err = &Error{CodeTooLarge, fmt.Sprintf("the answer has %d bytes, at most %d are sent", len(body), k.c.p.limits.MaxBytes)}
	}
	return body, err
}

// lend puts an answer into a segment, until the caller has fetched it.
func (k *Call) lend(r *response) error {
	p := k.c.p
	seg, ref, err := p.lend(r.body)
	if err != nil {
		return &Error{CodeBusy, err.Error()}
	}
	c := k.c
	c.mu.Lock()
	lost := c.lent == nil
	if !lost {
		c.lent[k.id] = lingering{seg, p.el.Now() + int64(p.limits.LingerTime)}
	}
	c.mu.Unlock()
	if lost {
		p.unlend(seg)
		return fabric.ErrPeerLost
	}
	r.bulk, r.body = true, ref.append(nil)
	return nil
}

// acked frees the answer of a call.
func (c *conn) acked(id uint64) {
	c.mu.Lock()
	l, ok := c.lent[id]
	delete(c.lent, id)
	c.mu.Unlock()
	if ok {
		c.p.unlend(l.seg)
	}
}

func (c *conn) onAck(b []byte) error {
	id, _, err := decodeNumber(b)
	if err == nil {
		c.acked(id)
	}
	return err
}

func (c *conn) onCancel(b []byte) error {
	id, _, err := decodeNumber(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	k := c.serving[id]
	c.mu.Unlock()
	if k != nil {
		k.mu.Lock()
		k.gaveUp = true
		k.mu.Unlock()
		k.cancel(errCanceled)
	}
	return nil
}
