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
// them be: their memory counts until nobody fills it any more.
func TestGivenUpWhileFetched(t *testing.T) {
	const size = 1 << 20
	a := newSide(t, "a", Limits{MaxBytes: size, BulkBytes: 2 * size})
	ep := connect(t, a, &side{el: mutePeer(t, true)}, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
	comes := func() Future { // and what is said of its answer
		f, err := a.p.Start(t.Context(), ep, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		at := ref{fabric.Key{Owner: ep.Incarnation(), Size: size, Rights: fabric.RightRead}, size}
		var head [responseBytes]byte
		(&response{id: f.r.id, lent: true}).put(&head)
		if err := c.onResponse(at.append(head[:])); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for range 2 {
		comes().Forget()
	}
	left := comes()
	if n := a.p.ahead.Load(); n != 2*size || !left.Poll() {
		t.Errorf("%d bytes are being fetched for nobody, which count as %d; the third answer: fetched too: %v", 2*size, n, !left.Poll())
	}
	time.AfterFunc(20*time.Millisecond, func() { ep.Close() })
	if _, err := left.Wait(t.Context()); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("the third: %v", err)
	}
	waitFor(t, "nothing counts at the end", func() bool { return a.p.ahead.Load() == 0 })
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
		if got := a.p.ahead.Load(); got != 0 || f.r.stage() != recHeld {
			t.Errorf("%d bytes that are held count as %d, in state %d", n, got, f.r.stage())
		}
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
		if n := b.p.Stats().BulkBytes; n > 3*size { // one that it has not asked for, one that it has, and ours
			t.Errorf("%d bytes are lent", n)
		}
	}
}

// TestAskedInVain: one that is about to be lent, and then is not, does not keep a smaller one from it.
func TestAskedInVain(t *testing.T) {
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	c := a.p.conn(connect(t, a, b, "tcp://127.0.0.1:0"))
	c.asking.Lock() // as lendAsked does
	c.asked.Add(a.p.limits.largest())
	lent := make(chan error)
	go func() {
		s, err := c.lendAsked(100_000)
		c.reuse(s)
		lent <- err
	}()
	time.Sleep(10 * time.Millisecond)
	c.asked.Add(-a.p.limits.largest()) // it finds no room
	c.asking.Unlock()
	if err := <-lent; err != nil || c.asked.Load() != 0 {
		t.Errorf("%v, %d bytes are lent", err, c.asked.Load())
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
		return c.held.Load() == 0 && c.callee.Running() == 0 && a.p.active.Load() == 0 && a.p.heldBytes.Load() == 0
	}
	for what, edit := range map[string]func(k *Call){
		"given up before it is held": func(k *Call) { k.cause = errGaveUp },
		"given up while it is held":  func(k *Call) { time.AfterFunc(10*time.Millisecond, func() { k.stop(errGaveUp, true) }) },
		"it gives way before":        func(k *Call) { k.evicted = errors.New("others needed the room") },
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

// TestAnswersTakenBack: a large answer that goes with the peer before it was fetched is lost with the peer, also
// where that is not known yet; one that nobody waited for until long after its call's deadline came too late.
func TestAnswersTakenBack(t *testing.T) {
	const size = 1 << 20
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{MaxBytes: size, BulkBytes: size}), newSide(t, "b", Limits{LingerTime: time.Millisecond})
		ep := connect(t, a, b, addr)
		b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
		comes := func(ctx context.Context, mode sendMode) Future {
			f, err := a.p.begin(ctx, ep, named("large"), nil, mode)
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "its answer is there", func() bool { return f.r.stage() == recDone })
			return f
		}
		comes(t.Context(), sendStarts) // is fetched ahead, and takes the room for that
		var late Future
		for limit := 800 * time.Millisecond; ; limit *= 4 { // until its answer comes before its deadline
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if late = comes(ctx, sendStarts); ctx.Err() == nil {
				break
			}
			late.Forget()
		}
		waitFor(t, "its answer is taken back", func() bool { return b.p.Stats().Unfetched > 0 })
		if _, err := late.Wait(t.Context()); !errors.Is(err, ErrDeadline) || errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("waited for too late: %v", err)
		}
		waits := comes(t.Context(), sendWaits) // as Call does
		b.p.Close()                            // and the endpoint stays
		if _, err := waits.Wait(t.Context()); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, fabric.ErrPeerLost) || errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("of a peer that closes: %v", err)
		}
	})
}

// holder is an element that calls and never asks for an answer that is held. It counts those that were given up.
type holder struct {
	el       *fabric.Element
	ep       *fabric.Endpoint
	calls    uint64
	evicted  atomic.Int64
	recalled atomic.Int64
	last     atomic.Value // of them: its response
}

// newHolder connects one to b. If it wants answers, it asks for each that is held, and reads none.
func newHolder(t *testing.T, b *side, wants bool) *holder {
	t.Helper()
	h := &holder{el: mutePeer(t, false)}
	if err := h.el.Handle(IDHeld, func(m fabric.Message) {
		if wants {
			m.From.Post(IDWant, nil, m.Body[:numberBytes])
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.el.Handle(IDRecalled, func(fabric.Message) { h.recalled.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := h.el.Handle(IDResponse, func(m fabric.Message) {
		var r response
		if decodeResponse(m.Body, &r) == nil && r.code == CodeAnswer {
			h.last.Store(response{id: r.id, body: bytes.Clone(r.body)})
			h.evicted.Add(1)
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
		r := request{method: HashName(name), id: exchange.NewID(h.calls+1, int(h.calls)), low: 1, left: time.Hour}
		h.calls++
		if err := h.ep.Send(t.Context(), IDRequest, r.append(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeldCountsForItsPeer: calls whose answers are held for peers that do not ask for them are not among those that run,
// of which there may be few for all peers.
func TestHeldCountsForItsPeer(t *testing.T) {
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
		h.call(t, "inline", 2)
		h.call(t, "blocking", 2)
		waitFor(t, "all answers are held", func() bool { return b.p.Stats().Held == int64(i+1)*4 })
		h.call(t, "inline", 1)
		h.call(t, "blocking", 1)
		waitFor(t, "more are refused", func() bool { return b.p.Stats().Refused == uint64(i+1)*2 })
	}
	if s := b.p.Stats(); s.Active != 0 || s.Served != holders*4 || s.HeldBytes != holders*4*(size+heldCost) {
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

// TestMostHeldGoesFirst: where there is no room to hold another answer, the peer for which most is held loses
// the answer to its earliest call; and where that is the one who needs room, it does not get it.
func TestMostHeldGoesFirst(t *testing.T) {
	const size = 1 << 20
	limits := Limits{MaxBytes: size, BulkBytes: size, HeldBytes: 4 * (size + heldCost)}
	b := newSide(t, "b", limits)
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
	var entered atomic.Int64
	gate := make(chan struct{})
	if err := b.p.Register("gated", func(ctx context.Context, _ *Call) ([]byte, error) {
		entered.Add(1)
		<-gate
		return make([]byte, size), nil
	}, Options{}); err != nil {
		t.Fatal(err)
	}
	most, other := newHolder(t, b, false), newHolder(t, b, false)
	most.call(t, "gated", 5)
	waitFor(t, "five run", func() bool { return entered.Load() == 5 })
	close(gate)
	waitFor(t, "four are held, and the fifth is not", func() bool { return b.p.Stats().Held == 4 && most.evicted.Load() == 1 })
	none := most.last.Load().(response)
	if !strings.Contains(string(none.body), "this peer's take the most") {
		t.Errorf("it was told %q", none.body)
	}
	first := uint64(1)
	for i := range int64(2) {
		other.call(t, "large", 1)
		waitFor(t, "another's is held instead of one", func() bool { return most.evicted.Load() == 2+i && b.p.Stats().Held == 4 })
		if first == none.id.Number() {
			first++
		}
		if n := most.last.Load().(response).id.Number(); n != first {
			t.Errorf("the answer to call %d gave way before that to call %d", n, first)
		}
		first++
	}
	other.call(t, "large", 1)
	waitFor(t, "one that has half of the room is refused", func() bool { return b.p.Stats().Refused == 1 })
	if n := other.evicted.Load(); n != 0 {
		t.Errorf("who has least lost %d answers", n)
	}
	most.ep.Close()
	waitFor(t, "the other's are left", func() bool { return b.p.Stats().HeldBytes == 2*(size+heldCost) })
}

// TestGivesWayWhileItWaits: an answer that was asked for, and waits for room to be lent in, gives way as well, after those
// that were not asked for.
func TestGivesWayWhileItWaits(t *testing.T) {
	const size = 1 << 20
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: size, HeldBytes: 4 * (size + heldCost)})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { <-gate; return make([]byte, size), nil })
	b.p.bulk.Add(size) // there is no room
	defer b.p.bulk.Add(-size)
	most, other := newHolder(t, b, false), newHolder(t, b, false)
	most.call(t, "large", 4)
	waitFor(t, "all run", func() bool { return b.p.Stats().Active == 4 })
	close(gate)
	waitFor(t, "all are held", func() bool { return b.p.Stats().Held == 4 })
	ask := func(n uint64) {
		var id [numberBytes]byte
		if err := most.ep.Post(IDWant, putNumber(&id, exchange.NewID(n, int(n-1))), nil); err != nil {
			t.Fatal(err)
		}
	}
	gives := func(n int64, call uint64) {
		t.Helper()
		other.call(t, "large", 1)
		waitFor(t, "one gives way", func() bool { return most.evicted.Load() == n && b.p.Stats().Held == 4 })
		if got := most.last.Load().(response).id.Number(); got != call {
			t.Errorf("the answer to call %d gave way, not that to %d", got, call)
		}
	}
	ask(1)
	waitFor(t, "one waits for room", func() bool { return b.p.cramped.Load() == 1 })
	gives(1, 2) // it is not wanted
	ask(3)
	ask(4)
	waitFor(t, "all wait for room", func() bool { return b.p.cramped.Load() == 3 })
	gives(2, 1)
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
		const calls, limit = 200, 1 << 20
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
		if most := slices.Max(of); most > limit*2 || all > limit*5/2 { // what came by itself, and what was fetched ahead; and what small ones take
			t.Errorf("answers that nobody waits for take %d bytes, and %d of one endpoint", all, most)
		}
		for i, f := range futures {
			got, err := f.Wait(t.Context())
			if err != nil || len(got) == 0 || !bytes.Equal(got, bytes.Repeat(wanted[i:i+1], len(got))) {
				t.Fatalf("call %d: %d bytes, %v", i, len(got), err)
			}
		}
		waitFor(t, "the room is given back", func() bool { return a.p.allotted.Load() == 0 })
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
	a := newSide(t, "a", Limits{MaxBytes: 64 << 10, BulkBytes: 64 << 10}) // too little for one that comes by itself
	ep := connect(t, a, &side{el: mutePeer(t, true)}, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
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
