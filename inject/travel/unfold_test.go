package travel

import (
	"testing"
	"time"
)

// TestUnfold: a relay becomes the records that it stands for, whether the next element has the branch by then or not.
func TestUnfold(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		h := &hostile{t: t, now: 1, store: map[ID][]byte{testID(1): make([]byte, 100)}}
		c, err := New(Config{Self: 10, Name: "middle", Store: h, Effects: h})
		if err != nil {
			t.Fatal(err)
		}
		h.c = c
		h.up(1)
		h.up(2)
		from, to := c.peer(1), c.peer(2)
		ack := func(low uint64) {
			if _, err := c.Recv(h.now, 2, KindAck, appendAck(nil, low, nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(2) {
			m := injectMsg{hops: 9, left: encodeTime(Instant(time.Second)), transfer: i, seq: i, flags: flagExt}
			r, err := c.Recv(h.now, 1, KindInject, injectBytes(m, &injectExt{declared: true, image: testID(1)}, nil, "payload"))
			if err != nil || r == nil {
				t.Fatalf("%v, %v", r, err)
			}
			h.runs = append(h.runs, r)
			if h.leave(0, 2, CodeOK); i == 0 || accepted {
				ack(i + 1)
			}
			audit(t, c)
		}
		if c.relays != 1 || to.relayed(1) == nil {
			t.Fatalf("%d relays, want that of transfer 1", c.relays)
		}
		released := from.acks.count
		c.unfold(h.now)
		audit(t, c)
		r := to.records.get(1, 0)
		if r == nil || c.relays != 0 || r.accepted != accepted || (r.hold == nil) != accepted || r.inv.id.Seq != 1 {
			t.Fatalf("accepted %v: %d relays are left, the record is %+v", accepted, c.relays, r)
		}
		if ack(2); !accepted {
			released++
		}
		audit(t, c)
		if !r.accepted || r.hold != nil || from.acks.count != released {
			t.Errorf("accepted %v: after another ACK %d reports are pending, want %d, and the record is %+v", accepted, from.acks.count, released, r)
		}
		h.finish()
	}
}
