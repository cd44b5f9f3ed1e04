package rpc

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/share"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// Call is one call at its handler.
type Call struct {
	Name   string           // it was registered under
	From   *fabric.Endpoint // who calls
	Req    []byte           // the request; the handler's while it runs, or until Reply: its memory is used again
	Bytes  int              // of the request, also where it is not there yet
	OneWay bool             // no answer will be sent
	Trace  TraceContext     // the caller's; zero if it sent none

	c        *conn
	m        *method
	id       exchange.ID
	deadline int64          // on the element's clock
	at       ref            // where Req is, if it did not travel in the message
	mem      *fabric.Remote // at, if it is mapped
	lent     bool
	buf      buffer      // of a request that was lent, once it is here; Req lies in it
	charged  int64       // for that
	leads    atomic.Bool // it runs on the goroutine that drives the fabric
	nested   bool        // its caller is a handler
	room     int64       // its caller has for the answer; a larger one waits to be asked for
	borrowed bool        // its answer is the handler's own memory, which it may use again
	entered  bool        // it is in conn.callee, and runs
	holds    bool        // it is, and has run: its answer is held
	kept     int64       // what that counts as; under conn.mu
	ends     []func(error)
	head     [responseBytes]byte
	scratch  []byte // typed answers are encoded here

	// While it is queued, under queue.mu.
	line   *list.List
	place  *list.Element
	queued int64 // what it counts as

	mu       sync.Mutex
	note     []byte // waits for NoteEvery
	noted    int64  // when one was sent, on the element's clock
	gaveUp   bool   // the caller wants no answer
	cause    error  // why the context ended
	inner    context.Context
	cancel   func(cause error)
	detached bool
	over     bool
	held     chan struct{} // its answer waits for this, to be asked for
}

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
	if len(k.note) == 0 || k.gaveUp || k.OneWay {
		return
	}
	var b [numberBytes]byte
	if k.From.TrySend(IDNote, putNumber(&b, k.id), k.note) == nil {
		k.c.p.stats.notes.Add(1)
	}
	k.note, k.noted = k.note[:0], max(now, 1)
}

// Detach lets the handler return without an answer: Reply gives it later, from
// any goroutine, and must be called; the first counts. Call, context and request stay valid until then;
// what the handler returns is not looked at. It fails, and the handler should return the error,
// where as many calls are under way as there may be.
func (k *Call) Detach() error {
	if k.leads.Load() {
		enter := k.enter
		if k.OneWay { // which the caller's window bounds: no caller would hear of a refusal
			enter = k.force
		}
		if err := enter(); err != nil {
			return err
		}
		if k.buf == nil { // it is part of a message
			k.Req = append([]byte(nil), k.Req...)
		}
		k.leads.Store(false) // a goroutine that calls on with this context from now on may wait
	}
	k.mu.Lock()
	k.detached = true
	k.mu.Unlock()
	return nil
}

// Reply answers a call that was detached.
func (k *Call) Reply(body []byte, err error) {
	k.mu.Lock()
	answers := k.detached && !k.over
	k.over = k.over || answers // here, so that of two at once one does
	k.mu.Unlock()
	if answers {
		k.finish(body, err)
	}
}

// onRequest takes a call: it is served at once, on a goroutine, or refused.
func (c *conn) onRequest(b []byte) error {
	var r request
	if err := decodeRequest(b, &r); err != nil {
		return err
	}
	p := c.p
	if !c.callee.Arrive(r.id, r.low) { // the leader's alone, like Cancel: no lock
		p.stats.duplicates.Add(1)
		return nil
	}
	if r.oneWay() && !c.arriveOneWay() {
		return fmt.Errorf("%w: more than %d one-way calls under way", ErrWire, exchange.MaxOneWay)
	}
	if p.closed.Load() {
		c.refuse(&r, CodeCanceled, stopping)
		return nil
	}
	m := p.methods.Load().find(r.method)
	if m == nil {
		c.refuse(&r, CodeNoSuchCall, "")
		return nil
	}
	ok, busy := m.enter()
	switch {
	case busy: // it waits
	case !ok:
		c.refuse(&r, CodeNoSuchCall, "")
		return nil
	}
	k := c.newCall(&r, m)
	if len(r.ext) > 0 {
		if err := decodeExt(r.ext, &k.Trace); err != nil {
			if ok {
				p.depart(m)
			}
			return err
		}
	}
	switch code, text := c.check(&r, k); {
	case code != codeOK:
		if ok {
			p.depart(m)
		}
		c.refuse(&r, code, text)
	case ok:
		c.serve(&r, k)
	default:
		c.keepRequest(k)
		c.park(k, fmt.Sprintf("%d calls of %s are under way, the limit for it", m.opts.Concurrent, m.name))
	}
	return nil
}

// newCall makes a call's record.
func (c *conn) newCall(r *request, m *method) *Call {
	k := c.inline
	if k == nil {
		k = &Call{c: c, From: c.ep}
		c.inline = k
	}
	k.Name, k.m, k.id, k.Req, k.Bytes, k.OneWay = m.name, m, r.id, r.body, len(r.body), r.oneWay()
	k.nested, k.room = r.nested(), r.room()
	k.lent, k.mem, k.Trace = r.lent(), nil, TraceContext{}
	k.deadline = c.p.after(min(r.left, c.p.limits.MaxTime))
	return k
}

// check says why a call cannot be served, if so.
func (c *conn) check(r *request, k *Call) (Code, string) {
	if r.left <= 0 {
		return CodeDeadline, ErrDeadline.Error()
	}
	if allow := k.m.opts.Allow; allow != nil {
		if err := allow(k.From); err != nil {
			return remoteCode(err), errorText(err.Error())
		}
	}
	if r.lent() {
		var err error
		if k.at, err = decodeRef(r.body, c.p.limits.MaxBytes); err != nil {
			code := CodeBulk
			if errors.Is(err, ErrTooLarge) {
				code = CodeTooLarge
			}
			return code, fmt.Sprintf("the request's payload: %v", err)
		}
		k.Req, k.Bytes = nil, int(k.at.size)
	}
	if k.Bytes > k.m.opts.MaxBytes {
		return CodeTooLarge, k.tooLarge()
	}
	return codeOK, ""
}

func (k *Call) tooLarge() string {
	return fmt.Sprintf("the request has %d bytes, at most %d are taken", k.Bytes, k.m.opts.MaxBytes)
}

// Why calls are refused.
const (
	lostCaller       = "the caller is lost"
	stopping         = "this element is stopping"
	unfetchedAnswers = "answers to calls that this peer has started wait for it to ask for them, and take half of what they may (Limits.HeldBytes): wait for some first"
)

// inlineFetchBytes is the most that is copied from mapped memory on the
// goroutine that drives the fabric: some ten microseconds.
const inlineFetchBytes = 256 << 10

// serve runs a call here, or on a goroutine of its own if it may wait.
func (c *conn) serve(r *request, k *Call) {
	if k.crowds() {
		c.p.depart(k.m)
		c.refuse(r, CodeBusy, unfetchedAnswers)
		return
	}
	if k.m.opts.Inline {
		if k.lent && k.Bytes <= inlineFetchBytes {
			if mem := c.remotes.find(k.at.key); mem != nil && mem.Mapped() {
				k.mem = mem
			}
		}
		if !k.lent || k.mem != nil {
			c.lead(k)
			return
		}
	}
	c.keepRequest(k)
	if err := k.enter(); err != nil {
		c.p.depart(k.m)
		c.park(k, err.Text)
		return
	}
	c.fork(k)
}

// keepRequest has a call outlive the message that it came in.
func (c *conn) keepRequest(k *Call) {
	c.inline = nil // the record goes with the call
	switch n := len(k.Req); {
	case k.lent:
	case n <= int(classBytes(0)/2):
		k.Req = append([]byte(nil), k.Req...)
	default: // into memory of an earlier one, which is not much larger
		k.buf = c.buffer(n)
		k.Req = append(k.buf[:0:n], k.Req...)
	}
}

// fork runs a call that has entered, on a goroutine.
func (c *conn) fork(k *Call) {
	if !c.p.goWork(func() {
		if body, err := k.run(); !k.isDetached() {
			k.finish(body, err)
		}
	}) {
		c.p.depart(k.m)
		k.leave()
		c.refuse(k.request(), CodeCanceled, stopping)
	}
}

// lead runs a handler on the goroutine that drives the fabric.
func (c *conn) lead(k *Call) {
	k.leads.Store(true)
	c.p.layer.Handling(k.Name)
	c.inline = nil // whatever the handler does, it meets another record
	body, err := k.run()
	if k.isDetached() {
		return
	}
	k.finish(body, err)
	if k.inner != nil || k.isDetached() { // the handler may have passed the context on, or the answer waits for room
		return
	}
	if cap(k.scratch) > keptScratch {
		k.scratch = nil
	}
	*k = Call{c: c, From: c.ep, scratch: k.scratch[:0], ends: k.ends[:0], note: k.note[:0]}
	c.inline = k
}

func (k *Call) isDetached() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.detached
}

// enter puts a call that does not end at once into the books.
func (k *Call) enter() *Error {
	c, p := k.c, k.c.p
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return &Error{CodeCanceled, lostCaller}
	}
	switch k.begin() {
	case nil:
		return nil
	case &c.line:
		return &Error{CodeBusy, fmt.Sprintf("%d calls of this peer are under way, the limit for one (Limits.CallsPerPeer)", p.limits.CallsPerPeer)}
	case &c.tenant.line:
		return &Error{CodeBusy, fmt.Sprintf("%d calls of principal %q are under way, the limit for one (three quarters of Limits.Calls)", share.Of(p.limits.Calls), c.ep.Principal().Name)}
	}
	return &Error{CodeBusy, fmt.Sprintf("%d calls are under way here, the limit for all peers (Limits.Calls)", p.limits.Calls)}
}

// begin is enter where that is possible; otherwise it is nil, and says which place is lacking. conn.mu is held.
func (k *Call) begin() (lacks *list.List) {
	c := k.c
	if c.callee.Full() {
		return &c.line
	}
	if lacks = c.enters(); lacks != nil {
		return lacks
	}
	c.callee.Begin(k.id, k)
	k.entered = true
	return nil
}

// force is enter for a call that runs already and cannot be refused.
func (k *Call) force() *Error {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return &Error{CodeCanceled, lostCaller}
	}
	c.forces()
	c.callee.Keep(k.id, k)
	k.entered = true
	return nil
}

// leave takes it out again.
func (k *Call) leave() {
	if !k.entered && !k.holds {
		return
	}
	c := k.c
	c.mu.Lock()
	c.callee.End(k.id, k.holds)
	k.unkeep()
	c.mu.Unlock()
	if k.holds {
		c.held.Add(-1)
		c.p.held.Add(-1)
	} else {
		c.leaves()
	}
	k.entered, k.holds = false, false
	c.left()
}

// run asks the interceptors, fetches a large request and calls the handler.
func (k *Call) run() ([]byte, error) {
	var ctx context.Context = (*handlerContext)(k)
	for _, fn := range k.c.p.cfg.Servers {
		inner, end, err := fn(ctx, k)
		if end != nil {
			k.ends = append(k.ends, end)
		}
		if err != nil {
			k.took()
			return nil, err
		}
		if inner != nil {
			ctx = inner
		}
	}
	if k.lent {
		err := k.fetch(ctx)
		k.took()
		if err != nil {
			return nil, err
		}
	}
	return k.m.fn(ctx, k)
}

// fetch fetches a request that was lent.
func (k *Call) fetch(ctx context.Context) error {
	if err := k.charge(ctx, int64(k.at.size)); err != nil {
		return err
	}
	mem, err := k.mem, error(nil)
	if mem == nil { // whose owner has to answer
		timed, stop := k.c.p.layer.Timeout(ctx, k.c.p.limits.LingerTime, errFetch)
		defer stop()
		ctx = timed
		mem, err = k.c.remotes.get(ctx, k.From, k.at.key)
	}
	if err == nil {
		n := int(k.at.size)
		b := k.c.buffer(n)
		var body []byte
		if body, err = k.c.read(ctx, mem, k.at, b[:0:n], 0); err == nil { // what else is in b cannot be reached from there
			k.buf, k.Req = b, body
			return nil
		}
	}
	k.uncharge()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errFetch) {
		return timedOut(cause)
	}
	return &Error{CodeBulk, fmt.Sprintf("the request's payload: %v", err)}
}

var errFetch = errors.New("its owner has not sent it (Limits.LingerTime)")

// took tells the caller that its segment is not read any more.
func (k *Call) took() {
	if k.lent {
		k.lent = false
		k.c.tell(IDTaken, k.id)
	}
}

// finish ends a call: it sends the answer, and closes the record.
func (k *Call) finish(body []byte, err error) {
	p := k.c.p
	p.stats.served.Add(1)
	if err == nil && len(body) > p.limits.MaxBytes {
		err = &Error{CodeTooLarge, fmt.Sprintf("the answer has %d bytes, at most %d are sent", len(body), p.limits.MaxBytes)}
	}
	if len(k.ends) > 0 {
		endAll(k.ends, err)
	}
	k.mu.Lock()
	k.sendNote(p.layer.CoarseNow())
	wanted := !k.gaveUp && !k.OneWay
	k.gaveUp, k.over = true, true // no note after the answer
	if k.cancel != nil {
		k.cancel(nil)
	}
	k.mu.Unlock()
	if err != nil {
		p.stats.handlerErrors.Add(1)
		if k.OneWay {
			p.log.Debug("one-way call failed", "call", k.Name, "from", k.From.Name(), "err", err)
		}
	}
	p.depart(k.m)
	if !wanted || k.From.Err() != nil {
		k.leave()
		k.free()
		if k.OneWay {
			k.c.endOneWay()
		}
		return
	}
	code := codeOK
	if err != nil {
		code, body = remoteCode(err), []byte(errorText(err.Error()))
	}
	k.reply(code, body)
}

// refuse answers a call that is not served.
func (c *conn) refuse(r *request, code Code, text string) {
	c.p.stats.refused.Add(1)
	if !r.oneWay() {
		text = clipText(text, smallAnswerBytes)
		c.post(new([responseBytes]byte), IDResponse, &response{id: r.id, code: code}, []byte(text)) // which also says that the payload is not read
		return
	}
	if r.lent() {
		c.tell(IDTaken, r.id)
	}
	c.warn(code, text)
	c.endOneWay()
}

func (c *conn) onAck(b []byte) error { return c.release(b, exchange.Theirs) }

func (c *conn) onTaken(b []byte) error { return c.release(b, exchange.Ours) }

// release takes the peer's word that it has read a payload.
func (c *conn) release(b []byte, side exchange.Side) error {
	id, err := decodeBare(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	seg, _ := c.lending.Taken(id, side)
	c.mu.Unlock()
	c.reuse(seg)
	return nil
}

func (c *conn) onCancel(b []byte) error {
	id, err := decodeBare(b)
	if err != nil {
		return err
	}
	queued := c.queued.Load() > 0 // before it is looked for among those that run, where it may be by then
	c.mu.Lock()
	k, running := c.callee.Cancel(id)
	c.mu.Unlock()
	if !running && queued && !c.withdraw(id) { // it may have left the queue just now
		c.mu.Lock()
		k, running = c.callee.Find(id)
		c.mu.Unlock()
	}
	if running {
		k.stop(errGaveUp, true)
	}
	return nil
}

// Left is the time until the call's deadline.
func (k *Call) Left() time.Duration { return time.Duration(k.deadline - k.c.p.el.Now()) }
