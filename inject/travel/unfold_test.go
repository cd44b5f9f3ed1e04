package travel

import (
	"testing"
	"time"
)

// relaying is a core with one relay: of transfer 1, from peer 1 to peer 2.
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
		h.runs = append(h.runs, &r)
		if h.leave(0, 2, CodeOK); i == 0 {
			h.ack(1)
		}
		audit(t, c)
	}
	if c.relays != 1 || c.peer(2).relayed(1) == nil {
		t.Fatalf("%d relays, want that of transfer 1", c.relays)
	}
	return h
}

// ack has peer 2 accept all transfers below low, and release some.
func (h *hostile) ack(low uint64, released ...span) {
	h.t.Helper()
	if _, err := h.c.Recv(h.now, 2, KindAck, appendAck(nil, low, nil, released)); err != nil {
		h.t.Fatal(err)
	}
}

// TestUnfold: a relay becomes the records that it stands for, whether the next element has the branch by then or not.
func TestUnfold(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		h := relaying(t)
		c, from, to := h.c, h.c.peer(1), h.c.peer(2)
		if accepted {
			h.ack(2)
		}
		released := from.acks.count
		c.unfold(h.now)
		audit(t, c)
		r := to.records.get(1, 0)
		if r == nil || c.relays != 0 || r.accepted != accepted || (r.hold == nil) != accepted || r.inv.id.Seq != 1 {
			t.Fatalf("accepted %v: %d relays are left, the record is %+v", accepted, c.relays, r)
		}
		if h.ack(2); !accepted {
			released++
		}
		audit(t, c)
		if !r.accepted || r.hold != nil || from.acks.count != released {
			t.Errorf("accepted %v: after another ACK %d reports are pending, want %d, and the record is %+v", accepted, from.acks.count, released, r)
		}
		h.finish()
	}
}

// TestRelayEnds: a relay that is released leaves nothing, accepted before or by the same ACK.
func TestRelayEnds(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		h := relaying(t)
		pending := h.c.peer(1).acks.count
		if accepted {
			h.ack(2)
		}
		h.ack(2, span{1, 1})
		audit(t, h.c)
		if h.c.relays != 0 || h.c.records != 1 || h.c.peer(1).acks.count != pending+1 {
			t.Errorf("accepted before %v: %d relays and %d records are left, %d reports are pending, want 0, 1 and %d",
				accepted, h.c.relays, h.c.records, h.c.peer(1).acks.count, pending+1)
		}
		h.finish()
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
	h.runs = append(h.runs, &r)
	h.leave(0, 2, CodeOK)
	audit(t, c)
	h.finish()
}
