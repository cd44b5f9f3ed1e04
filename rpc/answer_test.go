package rpc

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// mutePeer is an element that listens over tcp and is driven by hand.
func mutePeer(t testing.TB, manual bool) *fabric.Element {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "mute", Transports: []fabric.Transport{tr}, Manual: manual})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return el
}

// TestGivenUpWhileFetched gives calls up whose large answers are being fetched, from a peer that does not let
// them be: their memory counts until nobody fills it any more, and no more is fetched than there is room for.
func TestGivenUpWhileFetched(t *testing.T) {
	const size = 1 << 20
	a := newSide(t, "a", Limits{MaxBytes: size, BulkBytes: 8 * size})
	ep := connect(t, a, &side{el: mutePeer(t, true)}, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
	at := ref{fabric.Key{Owner: ep.Incarnation(), Size: size, Rights: fabric.RightRead}, size}
	comes := func() (f Future, fetched bool) { // and what is said of its answer
		f, err := a.p.Start(t.Context(), ep, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		var held [heldBytes]byte
		if err := c.onHeld(putHeld(&held, f.r.id, size)); err != nil {
			t.Fatal(err)
		}
		var head [responseBytes]byte
		(&response{id: f.r.id, lent: true}).put(&head)
		if fetched = f.r.ahead; fetched {
			if err := c.onResponse(at.append(head[:])); err != nil {
				t.Fatal(err)
			}
		}
		return f, fetched
	}
	counts := func() int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.expected
	}
	n := int64(0)
	for f, fetched := comes(); ; f, fetched = comes() {
		f.Forget()
		if !fetched {
			break
		}
		n++
	}
	if got := counts(); n == 0 || n > 4 || got != n*size { // one endpoint has half
		t.Errorf("%d answers of %d bytes are being fetched for nobody, which count as %d", n, size, got)
	}
	ep.Close()
	waitFor(t, "nothing counts at the end", func() bool { return counts() == 0 && a.p.ahead.inUse() == 0 })
}

// TestHeldSizes: a peer's word on how large an answer is that it holds is not counted if it cannot be.
func TestHeldSizes(t *testing.T) {
	const size = 1 << 20
	a := newSide(t, "a", Limits{MaxBytes: size, BulkBytes: 2 * size})
	ep := connect(t, a, &side{el: mutePeer(t, true)}, "tcp://127.0.0.1:0")
	for _, n := range []uint64{size + 1, 1 << 62, 1 << 63, 1<<64 - 1} {
		f, err := a.p.Start(t.Context(), ep, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		var b [heldBytes]byte
		if err := a.p.conn(ep).onHeld(putHeld(&b, f.r.id, n)); err != nil {
			t.Fatal(err)
		}
		c := a.p.conn(ep)
		if c.mu.Lock(); c.expected != 0 || f.r.stage() != recHeld {
			t.Errorf("%d bytes that are held count as %d, in state %d", n, c.expected, f.r.stage())
		}
		c.mu.Unlock()
		f.Forget()
	}
}

// TestNeverFetched has a peer ask for all the large answers that it can, for an hour, and fetch none:
// others get theirs all the same.
func TestNeverFetched(t *testing.T) {
	const size = 1 << 20
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: 4 * size})
	mute := mutePeer(t, false)
	if err := mute.Handle(IDHeld, func(m fabric.Message) { m.From.Post(IDWant, nil, m.Body[:numberBytes]) }); err != nil {
		t.Fatal(err)
	}
	from := connect(t, &side{el: mute}, b, "tcp://127.0.0.1:0")
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
	const calls = 16
	for n := range uint64(calls) {
		r := request{method: HashName("large"), id: exchange.NewID(n+1, int(n)), low: 1, left: time.Hour}
		if err := from.Send(t.Context(), IDRequest, r.append(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all have run", func() bool { return b.p.Stats().Served == calls })
	a := newSide(t, "a", Limits{})
	ep, err := a.el.Dial(t.Context(), b.el.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 10 {
		if got, err := a.p.Call(ctx, ep, "large", nil); err != nil || len(got) != size {
			t.Fatalf("call %d: %d bytes, %v; %+v", i, len(got), err, b.p.Stats())
		}
		if n := b.p.lentBytes(); n > 3*size { // half of the room, and ours
			t.Errorf("%d bytes are lent", n)
		}
	}
}

// TestHeldEnds: an answer is held no longer than anybody may want it, whenever its caller is lost.
func TestHeldEnds(t *testing.T) {
	a, mute := newSide(t, "a", Limits{}), mutePeer(t, false)
	for _, id := range []fabric.FrameID{IDHeld, IDResponse} { // it does not say that it has no such call
		if err := mute.Handle(id, func(fabric.Message) {}); err != nil {
			t.Fatal(err)
		}
	}
	ep := connect(t, a, &side{el: mute}, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
	held := func(edit func(k *Call)) error {
		k := &Call{c: c, From: ep, id: exchange.NewID(1, 0), deadline: a.el.Now() + int64(time.Hour)}
		k.Req, k.scratch = make([]byte, 5000), make([]byte, 100_000)
		edit(k)
		large := k.buf != nil
		err := k.hold(codeOK, k.scratch)
		if err == nil && (k.Req != nil && !large || k.scratch != nil) {
			t.Error("more is kept than the answer, which is all that counts")
		}
		return err
	}
	ended := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.held.Load() == 0 && c.callee.Running() == 0 && a.p.active.Load() == 0 && a.p.kept.inUse() == 0
	}
	for what, edit := range map[string]func(k *Call){
		"given up before it is held": func(k *Call) { k.cause = errGaveUp },
		"given up while it is held":  func(k *Call) { time.AfterFunc(10*time.Millisecond, func() { k.stop(errGaveUp, true) }) },
		"out of time":                func(k *Call) { k.deadline = a.el.Now() + int64(10*time.Millisecond) },
	} {
		if err := held(edit); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		waitFor(t, what, ended)
	}
	const request = 64 << 10
	if err := held(func(k *Call) { k.buf = make(buffer, request) }); err != nil {
		t.Error(err)
	}
	if n := a.p.Stats().HeldBytes; n != 100_000+request+heldCost {
		t.Errorf("an answer and its request's memory count as %d bytes", n)
	}
	ep.Close()
	waitFor(t, "the caller is lost", ended)
	if err := held(func(*Call) {}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("its caller was lost before: %v", err)
	}
	waitFor(t, "the caller was lost before", ended)
}

// TestHeldIsCopied has inline handlers answer with their requests, which are part of messages, and
// with memory that is used again as soon as Reply has returned.
func TestHeldIsCopied(t *testing.T) {
	const eager, size = 32 << 10, 20_000
	limits := Limits{EagerBytes: eager, MaxBytes: 1 << 20, BulkBytes: 1 << 20}
	a := newSide(t, "a", limits)
	limits.EagerBytes = 4 << 10 // at the callee such an answer is large, and is held
	b := newSide(t, "b", limits)
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	for name, fn := range map[string]Handler{"echo": echo, "later": func(_ context.Context, c *Call) ([]byte, error) {
		if err := c.Detach(); err != nil {
			return nil, err
		}
		buf := bytes.Clone(c.Req)
		c.Reply(buf, nil)
		clear(buf)
		return nil, nil
	}} {
		if err := b.p.Register(name, fn, Options{Inline: true}); err != nil {
			t.Fatal(err)
		}
		var all []Future
		for i := range 60 {
			req := bytes.Repeat([]byte{byte(i + 1)}, size)
			f, err := a.p.Start(t.Context(), ep, name, req)
			for ; errors.Is(err, fabric.ErrBackpressure); f, err = a.p.Start(t.Context(), ep, name, req) {
				time.Sleep(time.Millisecond)
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, f)
		}
		for i, f := range all {
			if got, err := f.Wait(t.Context()); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, size)) {
				t.Errorf("%s, call %d: %d bytes, %v", name, i, len(got), err)
			}
		}
	}
}

// TestReplyTwice: a call is answered once, also if somebody replies while another is at it.
func TestReplyTwice(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	entered, on := make(chan struct{}, 2), make(chan struct{})
	b.p.cfg.Servers = []ServerInterceptor{func(ctx context.Context, _ *Call) (context.Context, func(error), error) {
		return ctx, func(error) { entered <- struct{}{}; <-on }, nil
	}}
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	b.serve(t, "x", func(_ context.Context, c *Call) ([]byte, error) {
		err := c.Detach()
		go c.Reply([]byte("first"), nil)
		go func() {
			<-entered
			time.AfterFunc(20*time.Millisecond, func() { close(on) })
			c.Reply([]byte("second"), nil)
		}()
		return nil, err
	})
	if got, err := a.p.Call(t.Context(), ep, "x", nil); err != nil || string(got) != "first" {
		t.Errorf("%q, %v", got, err)
	}
	if n := b.p.Stats().Served; n != 1 || len(entered) > 0 {
		t.Errorf("a call was answered %d times, and %d others are at it", n, len(entered))
	}
}

// TestAnswersTakenBack: a large answer that lies for too long, or whose peer closes, is taken back, and who comes for it then
// hears that the call has run.
func TestAnswersTakenBack(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{LingerTime: 50 * time.Millisecond})
		ep := connect(t, a, b, addr)
		b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, 1<<20), nil })
		comes := func() Future {
			f, err := a.p.begin(t.Context(), ep, named("large"), nil, sendWaits) // as Call does
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "its answer is there", func() bool { return f.r.stage() == recDone })
			return f
		}
		late := comes()
		waitFor(t, "its answer is taken back", func() bool { return b.p.Stats().Unfetched > 0 })
		_, err := late.Wait(t.Context())
		if !errors.Is(err, ErrAnswer) || errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("waited for too late: %v", err)
		}
		waits := comes()
		b.p.Close() // and the endpoint stays
		if _, err := waits.Wait(t.Context()); !errors.Is(err, ErrAnswer) || errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("of a peer that closes: %v", err)
		}
	})
}

// holder is an element that calls and never asks for an answer that is held. It counts those for which there was no room.
type holder struct {
	el       *fabric.Element
	ep       *fabric.Endpoint
	calls    uint64
	grant    uint8 // of its requests
	unplaced atomic.Int64
	last     atomic.Value // of them: its response
}

// newHolder connects one to b. If it waits for answers, they are lent to it, and it reads none.
func newHolder(t *testing.T, b *side, waits bool) *holder {
	t.Helper()
	h := &holder{el: mutePeer(t, false), grant: leastGrant}
	if waits {
		h.grant = 0
	}
	if err := h.el.Handle(IDHeld, func(fabric.Message) {}); err != nil {
		t.Fatal(err)
	}
	if err := h.el.Handle(IDResponse, func(m fabric.Message) {
		var r response
		if decodeResponse(m.Body, &r) == nil && r.code == CodeAnswer {
			h.last.Store(response{id: r.id, body: bytes.Clone(r.body)})
			h.unplaced.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.ep, err = h.el.Dial(t.Context(), b.el.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	return h
}

// call makes n calls.
func (h *holder) call(t *testing.T, name string, n int) {
	for range n {
		r := request{method: HashName(name), id: exchange.NewID(h.calls+1, int(h.calls)), low: 1, left: time.Hour, grant: h.grant}
		h.calls++
		if err := h.ep.Send(t.Context(), IDRequest, r.append(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeldTakesNoPlace: calls whose answers are held for peers that do not ask for them are not among those that run, of the
// peer or of all.
func TestHeldTakesNoPlace(t *testing.T) {
	const size, holders = 100_000, 3
	limits := Limits{MaxBytes: 1 << 20, BulkBytes: 1 << 20, Calls: 8, CallsPerPeer: 4}
	b := newSide(t, "b", limits)
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"inline": {Inline: true}, "blocking": {}} {
		if err := b.p.Register(name, func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil }, o); err != nil {
			t.Fatal(err)
		}
	}
	for i := range holders {
		h := newHolder(t, b, false)
		h.call(t, "inline", 5)
		h.call(t, "blocking", 5)
		waitFor(t, "all answers are held", func() bool { return b.p.Stats().Held == int64(i+1)*10 })
	}
	if s := b.p.Stats(); s.Active != 0 || s.Served != holders*10 || s.Refused != 0 || s.HeldBytes != holders*10*(size+heldCost) {
		t.Errorf("with answers held and nothing running: %+v", s)
	}
	a := newSide(t, "a", Limits{})
	ep, err := a.el.Dial(t.Context(), b.el.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if got, err := a.p.Call(t.Context(), ep, "blocking", nil); err != nil || len(got) != size {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// TestHeldLeavesRoom: answers that one peer does not ask for leave room for others', and who has too much of them is told so.
func TestHeldLeavesRoom(t *testing.T) {
	const size = 1 << 20
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: size, HeldBytes: 8 * (size + heldCost)})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	entered, gate := new(atomic.Int64), make(chan struct{})
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { entered.Add(1); <-gate; return make([]byte, size), nil })
	var all []*holder
	for range 3 {
		h := newHolder(t, b, false)
		h.call(t, "large", 6)
		all = append(all, h)
	}
	waitFor(t, "all run", func() bool { return entered.Load() == 18 })
	close(gate)
	waitFor(t, "all have run", func() bool { return b.p.Stats().Active == 0 })
	held := b.p.Stats().Held
	if held < 6 || held > 7 { // four of the first, two of the next, and one of the last, if they come one after the other
		t.Errorf("%d answers are held", held)
	}
	waitFor(t, "the others are told", func() bool {
		told := int64(0)
		for _, h := range all {
			told += h.unplaced.Load()
		}
		return told == 18-held
	})
	for i, h := range all {
		if n := h.unplaced.Load(); n < 2 || n > 5 {
			t.Errorf("peer %d lost %d answers of 6", i, n)
		}
		if text := h.last.Load().(response).body; !strings.Contains(string(text), "as much as they leave to others") {
			t.Errorf("it was told %q", text)
		}
	}
	refused := b.p.Stats().Refused
	all[0].call(t, "large", 1)
	waitFor(t, "one that has its share is refused", func() bool { return b.p.Stats().Refused == refused+1 })
	for _, h := range all {
		h.ep.Close()
	}
	waitFor(t, "nothing is held for who is gone", func() bool { return b.p.Stats().HeldBytes == 0 })
}

// TestGivenUpWhileSent: a call that is given up where its answer was taken for sent, and is held after all, is not
// held for long.
func TestGivenUpWhileSent(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	c := b.p.conn(connect(t, b, a, "tcp://127.0.0.1:0"))
	k := &Call{c: c, From: c.ep, id: exchange.NewID(1, 0), deadline: a.el.Now() + int64(time.Hour)}
	if err := k.hold(codeOK, make([]byte, 100_000)); err != nil { // a has no such call any more
		t.Fatal(err)
	}
	waitFor(t, "it is given up", func() bool { return b.p.Stats().Held == 0 && b.p.Stats().HeldBytes == 0 })
}

// TestStartedBytes: answers to calls that were started take no more memory here than they may, for one endpoint and for all,
// whatever the calls are, until somebody waits for them.
func TestStartedBytes(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		const calls, limit = 40, 256 << 10
		a := newSide(t, "a", Limits{MaxBytes: 128 << 10, BulkBytes: limit})
		held := func() (of []int64, all int64) {
			for _, c := range a.conns() {
				n := int64(0)
				c.mu.Lock()
				for _, r := range c.records {
					n += int64(cap(r.body))
				}
				c.mu.Unlock()
				of, all = append(of, n), all+n
			}
			return of, all
		}
		var futures []Future
		var wanted []byte
		for i := range byte(3) {
			b := newSide(t, string('b'+rune(i)), Limits{})
			var size atomic.Int64
			b.serve(t, "large", func(_ context.Context, c *Call) ([]byte, error) { return bytes.Repeat(c.Req, int(size.Load())), nil })
			place := addr
			if strings.HasPrefix(addr, "shm") {
				place += string('0' + rune(i))
			}
			ep := connect(t, a, b, place)
			size.Store(int64(a.p.conn(ep).eager))
			for j := range byte(calls) {
				f, err := a.p.Start(t.Context(), ep, "large", []byte{j})
				if err != nil {
					t.Fatal(err)
				}
				futures, wanted = append(futures, f), append(wanted, j)
			}
			waitFor(t, "the calls have run", func() bool { return b.p.Stats().Served == calls })
		}
		waitFor(t, "their answers are here, or wait", func() bool {
			ended := 0
			for _, f := range futures {
				if f.Poll() {
					ended++
				}
			}
			return ended == len(futures)
		})
		of, all := held()
		if most := slices.Max(of); most > limit*5/8 || all > limit*5/4 { // and what small ones take
			t.Errorf("answers that nobody waits for take %d bytes, and %d of one endpoint", all, most)
		}
		for i, f := range futures {
			got, err := f.Wait(t.Context())
			if err != nil || len(got) == 0 || !bytes.Equal(got, bytes.Repeat(wanted[i:i+1], len(got))) {
				t.Fatalf("call %d: %d bytes, %v", i, len(got), err)
			}
		}
		waitFor(t, "the room is given back", func() bool { return a.p.ahead.inUse() == 0 })
		for _, c := range a.conns() {
			c.mu.Lock()
			if c.expected != 0 {
				t.Errorf("%d bytes are expected from %s still", c.expected, c.ep.Name())
			}
			c.mu.Unlock()
		}
	})
}

// TestStartedLeave: a callee that sends more than it has leave for loses the endpoint, and its call the answer.
func TestStartedLeave(t *testing.T) {
	a := newSide(t, "a", Limits{MaxBytes: 64 << 10, BulkBytes: 64 << 10})
	ep := connect(t, a, &side{el: mutePeer(t, true)}, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
	if _, err := a.p.Start(t.Context(), ep, "x", nil); err != nil { // it has the room for the only one there is
		t.Fatal(err)
	}
	for n, fits := range map[int]bool{smallAnswerBytes: true, smallAnswerBytes + 1: false} {
		f, err := a.p.Start(t.Context(), ep, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		err = c.onResponse((&response{id: f.r.id, body: make([]byte, n)}).append(nil))
		if fits != (err == nil) || err != nil && !errors.Is(err, ErrWire) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if got, err := f.Wait(t.Context()); fits && len(got) != n || !fits && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("of %d bytes %d came, %v", n, len(got), err)
		}
	}
}
