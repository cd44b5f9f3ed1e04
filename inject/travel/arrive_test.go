package travel

import (
	"testing"
	"time"
)

// relaying is a core that has sent a branch on from peer 1 to peer 2, which peer 2 has not acknowledged.
func relaying(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{t: t, now: 1, store: map[ID][]byte{testID(1): make([]byte, 100)}}
	c, err := New(Config{Self: 10, Name: "middle", Store: h, Effects: h})
	if err != nil {
		t.Fatal(err)
	}
	h.c = c
	h.up(1)
	h.up(2)
	for i := range uint64(2) { // the first declares the function
		m := injectMsg{hops: 9, left: encodeTime(Instant(time.Second)), transfer: i, seq: i, flags: flagExt}
		r, err := c.Recv(h.now, 1, KindInject, injectBytes(m, &injectExt{declared: true, what: What{Image: testID(1)}}, nil, "payload"))
		if err != nil || r == nil {
			t.Fatalf("%v, %v", r, err)
		}
		h.runs = append(h.runs, r)
		if h.leave(0, 2, CodeOK); i == 0 {
			h.ack(1)
		}
		audit(t, c)
	}
	if c.records != 1 || c.peer(2).sentAt(1) == nil {
		t.Fatalf("%d messages are under way, want transfer 1", c.records)
	}
	return h
}

// ack has peer 2 accept all transfers below low.
func (h *hostile) ack(low uint64) {
	h.t.Helper()
	if _, err := h.c.Recv(h.now, 2, KindAck, appendAck(nil, low, nil)); err != nil {
		h.t.Fatal(err)
	}
}

// TestArriveFor: a visit for another origin takes a sender that may speak for it, an origin that may inject, and a
// binding that is still what the handle says and is ready.
func TestArriveFor(t *testing.T) {
	h := relaying(t)
	c, p := h.c, h.c.peer(1)
	m := injectMsg{hops: 9, left: encodeTime(Instant(time.Second)), seq: 7}
	send := func() []byte {
		m.transfer = p.recvLow
		m.seq++
		return injectBytes(m, nil, nil, "payload")
	}
	r, err := c.Recv(h.now, 1, KindInject, send()) // by the handle alone
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	b := r.Binding()
	c.Finish(h.now, r, End{})
	m.flags, m.origin = flagOrigin, c.peer(2).Incarnation
	for name, change := range map[string]func(undo bool){
		"no member":        func(undo bool) { p.Member = undo },
		"no injector":      func(undo bool) { c.peer(2).Injector = undo },
		"another's slot":   func(undo bool) { b.gen = map[bool]uint32{false: b.gen + 1, true: b.gen - 1}[undo] },
		"not at hand":      func(undo bool) { b.pinned = undo },
		"a newer handle":   func(undo bool) { p.handles[0].gen = map[bool]uint8{false: 1, true: 0}[undo] },
		"a full house":     func(undo bool) { c.running = map[bool]int{false: c.lim.Running, true: 0}[undo] },
		"an unknown one":   func(undo bool) { m.origin = map[bool]uint64{false: 99, true: c.peer(2).Incarnation}[undo] },
		"with scratch":     func(undo bool) { m.flags ^= flagState },
		"no time":          func(undo bool) { m.left = map[bool]uint16{false: 0, true: 1000}[undo] },
		"another's future": func(undo bool) { m.origin = map[bool]uint64{false: c.cfg.Self, true: c.peer(2).Incarnation}[undo] },
	} {
		change(false)
		if c.Arrive(h.now, 1, send()) != nil {
			t.Fatalf("%s: it became a visit", name)
		}
		change(true)
	}
	h.now += 1000
	m.flags, m.branch = m.flags|flagBranch, 5
	r = c.Arrive(h.now, 1, send())
	if r == nil || r.Origin() != 2 || b.used != h.now {
		t.Fatalf("light run %+v; its binding was used at %d, and it is %d", r, b.used, h.now)
	}
	audit(t, c)
	if c.Answer(r, nil, false) {
		t.Error("an answer to an element that did not send it")
	}
	if c.expand(); r.branch != 5 || r.hops != 9 || r.from != p || r.inv.originPeer != c.peer(2) || r.Deadline() <= h.now || r.state != runRunning {
		t.Errorf("it became %+v", r)
	}
	c.Finish(h.now, r, End{})
	audit(t, c)
}

// TestAskUse: what a light future ran counts as used when it ends, so that it stays at hand; numbers do not run over.
func TestAskUse(t *testing.T) {
	h := relaying(t)
	c := h.c
	h.ended = map[FutureID]bool{}
	b := c.bindings[0]
	c.peer(2).told = []uint32{b.gen<<2 | toldAccepted}
	id := c.Ask(h.now, b, 2, h.now+Instant(time.Second), nil)
	audit(t, c)
	h.now += 5000
	m := doneMsg{flags: doneFinal, seq: uint64(id), final: c.peer(2).next - 1}
	if _, err := c.Recv(h.now, 2, KindDone, m.append(nil, nil)); err != nil || !h.ended[FutureID(id)] {
		t.Fatalf("not ended: %v", err)
	}
	audit(t, c)
	if b.used != h.now {
		t.Errorf("used at %d, and it is %d", b.used, h.now)
	}
	c.nextID = maxSeq
	if c.Ask(h.now, b, 2, h.now+Instant(time.Second), nil) != 0 {
		t.Error("a number too many")
	}
}

// TestAnswerSays: the answer of a visit is the message that a run's end would be.
func TestAnswerSays(t *testing.T) {
	for _, has := range []bool{false, true} {
		for _, branch := range []uint64{0, 5} {
			var said [2]string
			for i, quick := range []bool{false, true} {
				h := relaying(t)
				m := injectMsg{hops: 9, left: encodeTime(Instant(time.Second)), seq: 7, transfer: 2}
				if _, err := h.c.Recv(h.now, 1, KindInject, injectBytes(m, nil, nil, "")); err != nil { // the handle is looked up
					t.Fatal(err)
				}
				h.c.Sizes()
				if m.transfer, m.seq, m.branch = 3, 8, branch; branch != 0 {
					m.flags |= flagBranch
				}
				body := injectBytes(m, nil, nil, "")
				if quick {
					if r := h.c.Arrive(h.now, 1, body); r == nil || !h.c.Answer(r, []byte("result"), has) {
						t.Fatal("this takes a run")
					}
				} else if r, err := h.c.Recv(h.now, 1, KindInject, body); err != nil || r == nil {
					t.Fatalf("%v, %v", r, err)
				} else {
					h.c.Finish(h.now, r, End{Result: []byte("result"), HasResult: has})
				}
				said[i] = h.log[len(h.log)-1]
			}
			if said[0] != said[1] {
				t.Errorf("a visit says %s, a run %s", said[1], said[0])
			}
		}
	}
}

// TestForkIsNoForward: an origin that foresees the number of a fork and gives it to the branch that forks gains
// nothing by it.
func TestForkIsNoForward(t *testing.T) {
	h := relaying(t)
	c := h.c
	m := injectMsg{hops: 9, left: encodeTime(Instant(time.Second)), transfer: 2, seq: 2, flags: flagExt | flagBranch, branch: mix(c.cfg.Self+1) | 1<<63}
	r, err := c.Recv(h.now, 1, KindInject, injectBytes(m, &injectExt{declared: true, what: What{Image: testID(1)}}, nil, "payload"))
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	if branch, err := c.Fork(h.now, r, 2, nil, nil); err != nil || branch == r.branch {
		t.Errorf("branch %x forked %x, %v", r.branch, branch, err)
	}
	h.runs = append(h.runs, r)
	h.leave(0, 2, CodeOK)
	audit(t, c)
	h.finish()
}
