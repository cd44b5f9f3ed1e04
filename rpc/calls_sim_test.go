package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// callHead is what every request of a trial begins with: the call's number, the answer's size, the time that
// the handler takes in microseconds. Then there is a pattern.
const callHead = 16

// simCall is one call, and what is known of it.
type simCall struct {
	t      *simTrial
	id     uint64
	name   string
	from   *simLife
	ep     *fabric.Endpoint
	size   int
	answer int
	takes  time.Duration
	began  int64

	limit    time.Duration // the caller's own; 0: none
	canceled bool          // or forgotten, by the caller
	oneWay   bool
	sent     bool // one way
	must     bool // it must succeed
	nested   bool // made by a handler
	ended    bool
	blamed   bool // its connection was, which the endpoint says a moment later
}

func (c *simCall) String() string {
	return fmt.Sprintf("call %d of %q with %d bytes for %d from %s to %s", c.id, c.name, c.size, c.answer, c.from.h.Name, c.ep.Name())
}

func (t *simTrial) newCall(l *simLife, ep *fabric.Endpoint, name string, size int) *simCall {
	c := &simCall{t: t, id: uint64(len(t.calls)), name: name, from: l, ep: ep, size: max(size, callHead), began: t.w.Now()}
	t.calls = append(t.calls, c)
	return c
}

func (c *simCall) request() []byte {
	b := binary.LittleEndian.AppendUint64(nil, c.id)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.answer))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.takes/us))
	return append(b, suite.Pattern(c.size-callHead, uint32(c.id))...)
}

func answerTo(id uint64, n int) []byte { return suite.Pattern(n, uint32(id)+1<<20) }

// sizes are around each of the limits that make a difference.
func (t *simTrial) bytes() int {
	r := t.w.Rand
	switch n := r.IntN(10); {
	case n < 4:
		return r.IntN(300)
	case n < 7:
		return r.IntN(3000)
	case n < 9:
		return r.IntN(70_000)
	default:
		return r.IntN(280_000)
	}
}

// act does one of the things that callers do.
func (l *simLife) act(ep *fabric.Endpoint) {
	t, r := l.t, l.t.w.Rand
	names := []string{"inline", "inline", "work", "work", "later", "nest", "odd", "hold"}
	c := t.newCall(l, ep, names[r.IntN(len(names))], t.bytes())
	c.answer, c.takes = t.bytes(), t.w.Between(0, 3*ms)
	if r.IntN(6) == 0 || c.name == "hold" {
		c.limit = t.w.Between(us, 6*ms)
	}
	switch n := r.IntN(12); {
	case n < 5 || c.name == "hold":
		l.h.Fork(c.wait)
	case n < 8:
		c.start()
	case n == 8:
		c.oneWay, c.answer = true, 0
		l.h.Fork(c.send)
	case n == 9:
		c.ended = true
		away := r.IntN(2) == 0
		for range 10 + r.IntN(150) {
			c := t.newCall(l, ep, []string{"inline", "work"}[r.IntN(2)], r.IntN(900))
			if c.oneWay = away; away {
				l.h.Fork(c.send)
			} else {
				c.start()
			}
		}
	case n == 10:
		c.name, c.answer = "move", 0
		l.h.Fork(c.move)
	default:
		c.ended = true
		l.h.Fork(l.change)
	}
}

// context is the call's own, with its limit.
func (c *simCall) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.limit == 0 {
		return ctx, func() {}
	}
	return c.from.p.layer.Timeout(ctx, c.limit, nil)
}

// wait calls and waits for the answer.
func (c *simCall) wait(life context.Context) {
	ctx, cancel := c.context(life)
	defer cancel()
	got, err := c.from.p.CallNotes(ctx, c.ep, c.name, c.request(), c.note)
	c.end(got, err)
}

func (c *simCall) note(note []byte) {
	if string(note) != fmt.Sprint(c.name, c.id) {
		c.t.fail("%v: the note %q", c, note)
	}
}

// send sends it one way.
func (c *simCall) send(life context.Context) {
	ctx, cancel := c.context(life)
	defer cancel()
	c.end(nil, c.from.p.Send(ctx, c.ep, c.name, c.request()))
}

// start starts it, and waits for it later, cancels or forgets it.
func (c *simCall) start() {
	l, t := c.from, c.t
	f, err := l.p.Start(context.Background(), c.ep, c.name, c.request())
	if err != nil {
		c.end(nil, err)
		return
	}
	later := t.w.Between(0, 4*ms)
	switch t.w.Rand.IntN(6) {
	case 0:
		c.canceled = true
		l.h.Do(later, func() {
			f.Cancel()
			l.h.Fork(func(ctx context.Context) { // a large answer that came before is fetched
				got, err := f.Wait(ctx)
				c.end(got, err)
			})
		})
	case 1:
		c.canceled = true
		l.h.Do(later, func() {
			f.Forget()
			c.end(nil, ErrCanceled)
		})
	default:
		l.h.Do(later, func() {
			l.h.Fork(func(ctx context.Context) {
				got, err := f.WaitAppend(ctx, []byte("x"))
				if string(got[:1]) != "x" {
					t.fail("%v: what stood before the answer is gone", c)
				}
				c.end(got[1:], err)
			})
		})
	}
}

// move has the callee pull memory of the caller's, and push it back changed.
func (c *simCall) move(life context.Context) {
	t, p := c.t, c.from.p
	n := 1 + t.bytes()
	seg, err := p.el.NewSegment(uint64(n), fabric.Writable)
	if err != nil {
		t.fail("%v: %v", c, err)
	}
	defer seg.Close()
	copy(seg.Bytes(), suite.Pattern(n, uint32(c.id)))
	half := uint64(t.w.Rand.IntN(n))
	var spans []Span
	for _, s := range []Span{{Segment: seg, Size: half}, {Segment: seg, Offset: half, Size: uint64(n) - half}} {
		if s.Size > 0 {
			spans = append(spans, s)
		}
	}
	b, err := p.Expose(fabric.RightRead|fabric.RightWrite, BulkOptions{}, spans...)
	if err != nil {
		t.fail("%v: %v", c, err)
	}
	defer b.Close()
	req := binary.LittleEndian.AppendUint64(nil, c.id)
	if req, err = b.Append(req); err != nil {
		t.fail("%v: %v", c, err)
	}
	ctx, cancel := c.context(life)
	defer cancel()
	got, err := p.Call(ctx, c.ep, c.name, req)
	c.end(got, err)
	if err == nil && !bytes.Equal(seg.Bytes()[:n], suite.Pattern(n, uint32(c.id)+1)) {
		t.fail("%v: the memory is not what was pushed", c)
	}
}

// change takes "odd" away while it may be in use, or puts it back.
func (l *simLife) change(ctx context.Context) {
	switch {
	case l.changes:
	case l.oddGone:
		l.oddGone = false
		if err := l.p.Register("odd", l.runOdd, Options{}); err != nil {
			l.t.fail("register: %v", err)
		}
	default:
		l.changes = true
		err := l.p.Deregister(ctx, "odd")
		if l.changes = false; l.dead {
			return
		}
		if l.oddGone = true; err != nil || l.odd != 0 {
			l.t.fail("%s: deregistered with %d calls that run: %v", l.h.Name, l.odd, err)
		}
	}
}

// end judges how a call ended.
func (c *simCall) end(got []byte, err error) {
	t := c.t
	if c.ended {
		t.fail("%v ended twice", c)
	}
	c.ended = true
	if c.from.dead {
		return
	}
	ran := t.ran(c.id)
	var remote *RemoteError
	isRemote := errors.As(err, &remote)
	late := c.limit > 0 && t.w.Now()-c.began >= int64(c.limit)/2
	switch {
	case err == nil && c.oneWay:
		t.good++
		c.sent = true
	case err == nil:
		t.good++
		if ran != 1 || !bytes.Equal(got, answerTo(c.id, c.answer)) {
			t.fail("%v succeeded, ran %d times and came back with %d bytes", c, ran, len(got))
		}
	case c.must:
		t.fail("%v failed though nothing is in the way any more: %v", c, err)
	case errors.Is(err, ErrCanceled) && !isRemote:
		if !c.canceled {
			t.fail("%v: %v, and nobody did", c, err)
		}
	case errors.Is(err, ErrDeadline):
		if !late {
			t.fail("%v: %v, after %v of %v", c, err, time.Duration(t.w.Now()-c.began), c.limit)
		}
	case errors.Is(err, ErrOutcomeUnknown) && !isRemote:
		c.blamed = true
	case errors.Is(err, fabric.ErrPeerLost) || errors.Is(err, fabric.ErrClosed) || errors.Is(err, ErrClosed):
		if c.blamed = true; ran > 0 && !strings.Contains(err.Error(), "its answer") {
			t.fail("%v: %v; it ran %d times", c, err, ran)
		}
	case errors.Is(err, ErrBusy) || errors.Is(err, fabric.ErrBackpressure):
		t.refused++
		if ran > 0 && c.name != "nest" {
			t.fail("%v: %v, but it ran", c, err)
		}
	case errors.Is(err, fabric.ErrRevoked) && t.k.faults.Descriptors && t.lifeOf(c.ep.Incarnation()).dead: // see fabric/sim
	case isRemote:
		c.judge(remote, ran)
	default:
		t.fail("%v: %v", c, err)
	}
	if t.k.reliable && (c.blamed || c.ep.Err() != nil) {
		t.fail("%v: the connection was lost without a fault: %v", c, err)
	}
}

// judge looks at what a callee said was wrong.
func (c *simCall) judge(err *RemoteError, ran int) {
	t := c.t
	switch {
	case err.Code == CodeNoSuchCall && c.name == "odd" && ran == 0:
	case err.Code == CodeAnswer && ran == 1: // there was no room for it
	case c.name == "nest" && ran == 1: // the inner call failed, and was judged
	case err.Code == CodeCanceled && t.lifeOf(c.ep.Incarnation()).dead:
	case !t.k.reliable && c.name == "move": // the way back to the caller's memory may have been another
	default:
		t.fail("%v: code %d: %v; it ran %d times", c, err.Code, err, ran)
	}
}

// serve registers what a life serves.
func (l *simLife) serve() error {
	blocking := Options{}
	return errors.Join(
		l.p.Register("inline", l.runInline, Options{Inline: true}),
		l.p.Register("work", l.runWork, blocking),
		l.p.Register("later", l.runLater, Options{Inline: true}),
		l.p.Register("nest", l.runNest, blocking),
		l.p.Register("odd", l.runOdd, blocking),
		l.p.Register("hold", l.runHold, blocking),
		l.p.Register("move", l.runMove, blocking))
}

// enter looks at a request, and counts it.
func (l *simLife) enter(k *Call) *simCall {
	t := l.t
	if len(k.Req) < 8 || binary.LittleEndian.Uint64(k.Req) >= uint64(len(t.calls)) {
		t.fail("%s: a request of %d bytes is none of ours", k.Name, len(k.Req))
	}
	c := t.calls[binary.LittleEndian.Uint64(k.Req)]
	if l.runs[c.id]++; t.ran(c.id) > 1 {
		t.fail("%v ran twice", c)
	}
	if k.Name != c.name || k.OneWay != c.oneWay || c.ep.Incarnation() != l.p.el.Incarnation() {
		t.fail("%v arrived at %s %v as %q, one way %v", c, l.h.Name, l.p.el.Incarnation(), k.Name, k.OneWay)
	}
	if c.name != "move" && !bytes.Equal(k.Req, c.request()) {
		t.fail("%v arrived with %d other bytes", c, len(k.Req))
	}
	return c
}

func (l *simLife) runInline(_ context.Context, k *Call) ([]byte, error) {
	c := l.enter(k)
	return answerTo(c.id, c.answer), nil
}

// runWork takes its time, and says so.
func (l *simLife) runWork(ctx context.Context, k *Call) ([]byte, error) {
	c := l.enter(k)
	k.Note(fmt.Append(nil, c.name, c.id))
	l.h.Sleep(c.takes)
	if !bytes.Equal(k.Req, c.request()) {
		l.t.fail("%v: the request changed while its handler ran", c)
	}
	return answerTo(c.id, c.answer), nil
}

// runLater answers after its handler has returned.
func (l *simLife) runLater(_ context.Context, k *Call) ([]byte, error) {
	c := l.enter(k)
	if err := k.Detach(); err != nil {
		delete(l.runs, c.id) // it is refused like one that did not run
		return nil, err
	}
	l.h.Do(c.takes, func() { k.Reply(answerTo(c.id, c.answer), nil) })
	return nil, nil
}

// runNest calls the caller back before it answers.
func (l *simLife) runNest(ctx context.Context, k *Call) ([]byte, error) {
	c := l.enter(k)
	inner := l.t.newCall(l, k.From, "inline", l.t.bytes())
	inner.answer, inner.nested, inner.limit, inner.canceled = l.t.bytes(), true, c.limit, true
	inner.began = c.began // its limit is what is left of the outer call's
	got, err := l.p.Call(ctx, k.From, inner.name, inner.request())
	if inner.end(got, err); err != nil {
		return nil, err
	}
	return answerTo(c.id, c.answer), nil
}

func (l *simLife) runOdd(_ context.Context, k *Call) ([]byte, error) {
	c := l.enter(k)
	l.odd++
	l.h.Sleep(c.takes)
	l.odd--
	return answerTo(c.id, c.answer), nil
}

// runHold never answers: it waits until nobody wants it to.
func (l *simLife) runHold(ctx context.Context, k *Call) ([]byte, error) {
	l.enter(k)
	return nil, l.until(ctx)
}

// runMove pulls the caller's memory, looks at it and pushes something else.
func (l *simLife) runMove(ctx context.Context, k *Call) ([]byte, error) {
	c := l.enter(k)
	b, _, err := DecodeBulk(k.Req[8:])
	if err != nil {
		l.t.fail("%v: %v", c, err)
	}
	data := make([]byte, b.Size())
	if _, err := k.Pull(ctx, b, 0, Memory{data}); err != nil {
		return nil, err
	}
	if !c.from.dead && !c.ended && !bytes.Equal(data, suite.Pattern(len(data), uint32(c.id))) {
		l.t.fail("%v: %d other bytes were pulled", c, len(data))
	}
	_, err = k.Push(ctx, b, 0, Memory{suite.Pattern(len(data), uint32(c.id)+1)})
	return nil, err
}
