package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// target is a call's name and what travels instead of it.
type target struct {
	name string
	id   uint64
}

func named(name string) target { return target{name, HashName(name)} }

// Call calls the function registered under name at the peer, and returns its
// answer. The context bounds all of it; if it has no deadline, Limits.CallTime does. When it
// ends first, the call is cancelled, and may or may not have happened.
func (p *Peer) Call(ctx context.Context, ep *fabric.Endpoint, name string, req []byte) ([]byte, error) {
	return p.call(ctx, ep, named(name), req, nil, nil)
}

// CallAppend is Call that appends the answer to dst, so that a caller who
// gives the same buffer each time allocates nothing.
func (p *Peer) CallAppend(ctx context.Context, ep *fabric.Endpoint, name string, req, dst []byte) ([]byte, error) {
	return p.call(ctx, ep, named(name), req, dst, nil)
}

// CallNotes is Call for calls that report progress: onNote gets each note that
// arrives, on this goroutine, before CallNotes returns. Notes that come faster than they are taken replace
// each other.
func (p *Peer) CallNotes(ctx context.Context, ep *fabric.Endpoint, name string, req []byte, onNote func(note []byte)) ([]byte, error) {
	return p.call(ctx, ep, named(name), req, nil, onNote)
}

func (p *Peer) call(ctx context.Context, ep *fabric.Endpoint, to target, req, dst []byte, onNote func([]byte)) ([]byte, error) {
	f, err := p.begin(ctx, ep, to, req, sendWaits)
	if err != nil {
		return dst, err
	}
	return f.wait(ctx, dst, onNote)
}

// Start starts a call and returns at once: where there is no room for it, it
// fails with ErrBusy or fabric.ErrBackpressure. req is the caller's again when Start returns. The context's
// deadline is the call's (Limits.CallTime if it has none); its end otherwise does not touch the call.
func (p *Peer) Start(ctx context.Context, ep *fabric.Endpoint, name string, req []byte) (Future, error) {
	return p.begin(ctx, ep, named(name), req, sendStarts)
}

// Send sends a one-way call: it returns when the request is on its way, and
// nothing comes back, no error either. It runs at most once; once, if the peer lives, serves the call, lets this principal make
// it, and has room for it to run before its deadline (Limits.CallTime without one in the context). Where
// exchange.MaxOneWay of them have not ended, or the peer's credit is used up, it waits, except with the
// context of an inline handler, where it fails with fabric.ErrBackpressure or ErrBusy instead. Handlers on both sides that
// make one-way calls to each other can all wait so, until their deadlines.
func (p *Peer) Send(ctx context.Context, ep *fabric.Endpoint, name string, req []byte) error {
	_, err := p.begin(ctx, ep, named(name), req, sendOneWay)
	return err
}

type sendMode uint8

const (
	sendWaits  sendMode = iota // for room, and then for the answer
	sendStarts                 // and does not wait
	sendOneWay                 // waits for room
)

// sending is a request on its way out.
type sending struct {
	to       target
	req      request
	deadline int64 // when the book ends the call; 0: its waiter does
	seg      *lentSegment
	ends     []func(error)
	leads    bool // it comes from an inline handler, which cannot wait
	waits    bool // its sender waits for the answer
}

// within is the call whose handler's context this is; nil if it is none's.
func within(ctx context.Context) *Call {
	k, _ := ctx.Value(callKey{}).(*Call)
	return k
}

// leads reports whether a context is that of a handler that runs on the goroutine
// which drives the fabric.
func leads(ctx context.Context) bool {
	k := within(ctx)
	return k != nil && k.leads.Load()
}

// begin sends a request.
func (p *Peer) begin(ctx context.Context, ep *fabric.Endpoint, to target, req []byte, mode sendMode) (Future, error) {
	p.stats.calls.Add(1)
	c := p.conn(ep)
	if c == nil {
		return p.failed(ep, to, p.gone(ep))
	}
	s := sending{to: to, req: request{method: to.id, body: req}, waits: mode == sendWaits}
	if err := c.prepare(ctx, &s, mode); err != nil {
		return p.failed(ep, to, err)
	}
	r, err := c.try(&s)
	if err == fabric.ErrBackpressure && s.seg == nil && mode != sendOneWay && len(req) > p.limits.EagerBytes {
		// The window is used up; a segment takes hardly any of it.
		if err = c.lendRequest(ctx, &s, mode); err == nil {
			r, err = c.try(&s)
		}
	}
	if isFull(err) && mode != sendStarts && !s.leads {
		r, err = c.trySlow(ctx, s)
	}
	if err != nil {
		c.reuse(s.seg)
		endAll(s.ends, err)
		return p.failed(ep, to, err)
	}
	if r == nil { // one-way
		endAll(s.ends, nil)
		return Future{}, nil
	}
	if mode == sendStarts {
		p.layer.TickBy(s.deadline)
	}
	return Future{r, r.gen.Load()}, nil
}

// failed counts and names a failure of a call that was not sent.
func (p *Peer) failed(ep *fabric.Endpoint, to target, err error) (Future, error) {
	p.stats.failed.Add(1)
	return Future{}, callError(ep, to.name, err)
}

func callError(ep *fabric.Endpoint, name string, err error) error {
	name = clipText(name, MaxNameBytes)
	if ep == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s at %s: %w", name, ep.Name(), err)
}

// prepare settles everything about a request but its number.
func (c *conn) prepare(ctx context.Context, s *sending, mode sendMode) error {
	p := c.p
	n := len(s.req.body)
	if s.to.name == "" || len(s.to.name) > MaxNameBytes {
		return fmt.Errorf("%w: %q: a name has 1 to %d bytes (is the Method not from Define?)", ErrName, clipText(s.to.name, MaxNameBytes), MaxNameBytes)
	}
	if n > p.limits.MaxBytes {
		return fmt.Errorf("%w: the request has %d bytes, at most %d are sent", ErrTooLarge, n, p.limits.MaxBytes)
	}
	if ctx.Err() != nil {
		return timedOut(context.Cause(ctx))
	}
	if k := within(ctx); k != nil {
		s.req.flags |= flagNested
		if s.leads = k.leads.Load(); s.leads && mode == sendWaits {
			return ErrInline
		}
	}
	if mode == sendOneWay {
		s.req.flags |= flagOneWay
	}
	at, has := ctx.Deadline()
	switch {
	case !has:
		s.req.left = p.limits.CallTime
		s.deadline = p.after(s.req.left)
	default:
		now, until := p.el.Now(), p.layer.At(at)
		if s.req.left = time.Duration(until - now); mode != sendWaits {
			s.deadline = until
		}
	}
	if s.req.left <= 0 {
		return ErrDeadline
	}
	if len(p.cfg.Callers) > 0 {
		if err := c.intercept(ctx, s); err != nil {
			endAll(s.ends, err)
			return err
		}
	}
	eager := c.eager
	if mode == sendOneWay { // many of them may wait to run, and those that are lent wait where they are
		eager = p.limits.EagerBytes
	}
	if n > eager {
		if err := c.lendRequest(ctx, s, mode); err != nil {
			endAll(s.ends, err)
			return err
		}
	}
	return nil
}

// lendRequest puts a large request into a segment, and what names that into its place.
func (c *conn) lendRequest(ctx context.Context, s *sending, mode sendMode) error {
	seg, err := c.lendFor(ctx, s, mode)
	if err != nil {
		return err
	}
	c.copier.Copy(seg.seg.Bytes(), s.req.body)
	s.seg, s.req.body = seg, seg.ref.append(nil)
	s.req.flags |= flagLent
	return nil
}

// lendFor is lend for a request. Where the call may wait, it waits for room.
func (c *conn) lendFor(ctx context.Context, s *sending, mode sendMode) (*lentSegment, error) {
	kind := lentRequest
	if s.req.nested() && !s.req.oneWay() {
		kind = lentNested
	}
	seg, err := c.lend(nil, kind, len(s.req.body))
	if !isNoRoom(err) || mode == sendStarts || s.leads {
		return seg, err
	}
	start := c.p.el.Now()
	bounded, cancel := c.p.layer.Timeout(ctx, s.req.left, ErrDeadline)
	defer cancel()
	seg, err = c.lend(bounded, kind, len(s.req.body))
	if s.req.left -= time.Duration(c.p.el.Now() - start); err == nil && s.req.left <= 0 {
		c.reuse(seg)
		return nil, ErrDeadline
	}
	return seg, err
}

// gone is why nothing can be sent any more, or nil.
func (c *conn) gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// errBusy says that all slots are in use.
var errBusy = fmt.Errorf("%w to this peer, the limit here (Limits.Outgoing)", ErrBusy)

// isFull reports whether there was no room for a request, and may be later.
func isFull(err error) bool {
	return err == errBusy || err == errOneWays || err == fabric.ErrBackpressure
}

// try sends a request if there is room: isFull knows the errors that say that there is none.
func (c *conn) try(s *sending) (r *record, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, c.ended
	}
	oneWay := s.req.oneWay()
	var ok bool
	if oneWay {
		if s.req.id, ok = c.caller.OneWay(); !ok {
			return nil, errOneWays
		}
	} else if s.req.id, ok = c.caller.Begin(s.deadline); !ok {
		return nil, errBusy
	} else if s.deadline != 0 && c.due.Load() != c.caller.Soonest() {
		c.due.Store(c.caller.Soonest())
	}
	s.req.low = c.caller.Low()
	room := int64(0)
	if !s.waits && !oneWay {
		room, s.req.grant = c.grant()
	}
	s.req.put((*[requestBytes]byte)(c.head[:]))
	n := requestBytes + copy(c.head[requestBytes:], s.req.ext)
	if err := c.ep.TrySend(IDRequest, c.head[:n], s.req.body); err != nil {
		c.caller.Undo(s.req.id)
		c.expectLess(room, c.spare())
		return nil, err
	}
	if s.seg != nil {
		until := int64(0)
		if oneWay { // no answer ends it
			until = c.p.layer.CoarseNow() + int64(s.req.left+c.p.limits.LingerTime)
		}
		c.lending.Lend(s.req.id, exchange.Ours, s.seg, until)
	}
	if oneWay {
		return nil, nil
	}
	r = c.record(s.req.id, s.to.name)
	r.ends, r.deadline, r.awaited, r.room = s.ends, s.deadline, s.waits, room
	return r, nil
}

// trySlow waits for room; apart from begin, so that begin allocates nothing.
func (c *conn) trySlow(ctx context.Context, s sending) (r *record, err error) {
	c.mu.Lock()
	c.waiting++
	c.mu.Unlock()
	start := c.p.el.Now()
	left := s.req.left
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = c.p.layer.Timeout(ctx, left, ErrDeadline)
		defer cancel()
	}
	err = fabric.ErrBackpressure
	var werr error
	for isFull(err) && werr == nil {
		lacks, wait := err, c.p.el.WaitFor // the fabric's credit, of which it does not say when there is some
		switch lacks {
		case errBusy:
			wait = c.slots.Wait
		case errOneWays:
			wait = c.oneWays.Wait
		}
		werr = wait(ctx, func() bool {
			if s.req.left = left - time.Duration(c.p.el.Now()-start); s.req.left <= 0 {
				r, err = nil, ErrDeadline
				return true
			}
			r, err = c.try(&s)
			return err != lacks
		})
		if werr != nil && lacks != fabric.ErrBackpressure {
			c.wakeSenders() // it may have been woken, and another have to be instead
		}
	}
	c.mu.Lock()
	c.waiting--
	c.mu.Unlock()
	if werr != nil {
		return nil, fmt.Errorf("it was not sent: %w: %w", err, timedOut(werr))
	}
	return r, err
}

// Future is a call that was started. Exactly one of Wait and Forget ends it.
type Future struct {
	r   *record
	gen uint32
}

// Poll reports whether the call has ended, so that Wait returns without waiting for its handler. A
// large answer may have to be fetched then.
func (f Future) Poll() bool {
	return f.r == nil || f.r.stage() != recWaiting || f.r.gen.Load() != f.gen
}

// Done is closed when the call has ended. It is for select; the background
// goroutine then drives progress.
func (f Future) Done() <-chan struct{} {
	ch := make(chan struct{})
	if f.r != nil {
		f.r.c.mu.Lock()
		defer f.r.c.mu.Unlock()
		if !f.Poll() {
			if f.r.done == nil {
				f.r.done = ch
			}
			return f.r.done
		}
	}
	close(ch)
	return ch
}

// Wait drives progress until the call has ended, and returns its answer or its
// error. When the context ends first, the call is cancelled. With the context of an inline handler it
// fails with ErrInline, and the call goes on, unless the answer is at hand; a large one may have to be fetched first.
func (f Future) Wait(ctx context.Context) ([]byte, error) { return f.wait(ctx, nil, nil) }

// WaitAppend is Wait that appends the answer to dst.
func (f Future) WaitAppend(ctx context.Context, dst []byte) ([]byte, error) {
	return f.wait(ctx, dst, nil)
}

// Cancel ends the call: all present and later waiters get ErrCanceled, unless
// the answer has come already. The callee is told; its handler's context ends.
func (f Future) Cancel() {
	if f.r == nil {
		return
	}
	c := f.r.c
	c.mu.Lock()
	if f.r.gen.Load() != f.gen || !c.caller.Answer(f.r.id) {
		c.mu.Unlock()
		return
	}
	id := f.r.id
	f.r.err = ErrCanceled
	f.r.finish()
	c.mu.Unlock()
	c.tell(IDCancel, id)
}

// Forget gives the call up without waiting for its end.
func (f Future) Forget() {
	if f.r == nil || f.r.gen.Load() != f.gen {
		return
	}
	f.over(ErrCanceled, false)
}

// over ends a call of which nobody wants to know more, and returns its error with its name. It is ErrEnded if somebody else has
// ended it, or is about to.
func (f Future) over(err error, claimed bool) error {
	c := f.r.c
	name, ends, ended := c.end(f.r, f.gen, claimed)
	if !ended {
		return ErrEnded
	}
	if err != nil {
		c.p.stats.failed.Add(1)
		if _, remote := err.(*RemoteError); !remote {
			err = callError(c.ep, name, err)
		}
	}
	endAll(ends, err)
	return err
}

// wait waits for a call's end and appends the answer to dst.
func (f Future) wait(ctx context.Context, dst []byte, onNote func([]byte)) ([]byte, error) {
	r := f.r
	if r == nil || r.gen.Load() != f.gen {
		return dst, ErrEnded
	}
	if leads(ctx) && !f.atHand() {
		return dst, ErrInline // the call goes on
	}
	in := incoming{dst: dst}
	err := f.await(ctx, onNote, &in)
	if err == ErrEnded {
		return dst, err
	}
	claimed := err == nil
	if claimed {
		dst, err = r.take(ctx, in)
	}
	return dst, f.over(err, claimed)
}

// atHand reports whether the call has ended and its answer is here, or in memory
// that is mapped here: where it lies at the peer, to fetch it is to wait.
func (f Future) atHand() bool {
	r := f.r
	if r.stage() != recDone {
		return false
	}
	if r.err != nil || !r.lent {
		return true
	}
	at, err := decodeRef(r.body, r.c.p.limits.MaxBytes)
	if err != nil {
		return true // which is what the waiter gets
	}
	mem := r.c.remotes.find(at.key)
	return mem != nil && mem.Mapped()
}

// await waits until the record is done, and claims its answer. It fails with ErrEnded if the call is not this one any more, or another has claimed it.
func (f Future) await(ctx context.Context, onNote func([]byte), in *incoming) error {
	r, waiting := f.r, stateOf(recWaiting, f.gen)
	for {
		err := r.waiter.Wait(ctx, func() bool { return r.state.Load() != waiting || r.news.Load() })
		if r.gen.Load() != f.gen || r.stage() == recTaken {
			return ErrEnded
		}
		if r.news.Load() {
			f.tell(onNote, in)
		}
		switch {
		case r.state.CompareAndSwap(stateOf(recDone, f.gen), stateOf(recTaken, f.gen)):
			return nil
		case r.ask(): // and it comes now
		case err == nil: // a note
		case ctx.Err() != nil:
			return timedOut(context.Cause(ctx))
		default:
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
	}
}

// ask asks the callee for an answer that it holds; false if it holds none.
func (r *record) ask() bool {
	gen := r.gen.Load()
	if !r.state.CompareAndSwap(stateOf(recHeld, gen), stateOf(recWaiting, gen)) {
		return false
	}
	r.c.tell(IDWant, r.id)
	return true
}

// tell hands over the note that came last, and reads what is there of the answer.
func (f Future) tell(onNote func([]byte), in *incoming) {
	r := f.r
	r.c.mu.Lock()
	if r.gen.Load() != f.gen { // they are another call's
		r.c.mu.Unlock()
		return
	}
	note, w := r.note, r.written
	r.note, r.written = nil, written{}
	r.news.Store(false)
	r.c.mu.Unlock()
	if w.n > 0 {
		in.follow(r.c, w)
	}
	if note != nil && onNote != nil {
		onNote(note)
	}
}

// unfetched is why a large answer could not be fetched.
func (r *record) unfetched(err error) error {
	if errors.Is(err, fabric.ErrRevoked) {
		return fmt.Errorf("%w: the peer took it back before it was read, as it does when it closes, and after some time (Limits.LingerTime there)", ErrAnswer)
	}
	return fmt.Errorf("its answer: %w", timedOut(err))
}

// take appends a done record's answer to what it came in for.
func (r *record) take(ctx context.Context, in incoming) ([]byte, error) {
	dst := in.dst
	if r.err != nil {
		return dst, r.err
	}
	start, c := len(dst), r.c
	if r.lent {
		body, err := c.fetch(ctx, r.body, c.p.limits.MaxBytes, dst, in.have)
		r.lent = false
		c.tell(IDAck, r.id) // at the endpoint's end the segment goes anyway
		if err != nil {
			return dst, r.unfetched(err)
		}
		dst = body
	} else if r.code == codeOK {
		if dst == nil && r.ahead { // it has memory of its own
			dst, r.body = r.body, nil
			return dst, nil
		}
		return append(dst, r.body...), nil
	} else {
		dst = append(dst, r.body...)
	}
	if r.code == codeOK {
		return dst, nil
	}
	e := &RemoteError{Code: r.code, Text: printable(dst[start:]), Peer: c.ep.Name(), Call: r.name}
	if r.code == CodeNoSuchCall && e.Text == "" { // the peer knows the hash only
		e.Text = "it does not serve this call"
	}
	return dst[:start], e
}
