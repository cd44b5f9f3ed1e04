package travel

import (
	"testing"
	"time"
)

// TestStateLater: an invocation that has a branch here keeps scratch from its first one on, or never. Branches of it that begin with and without
// a turn would be at work in the same instance at once.
func TestStateLater(t *testing.T) {
	h := relaying(t)
	c, p := h.c, h.c.peer(1)
	inject := func(flags uint8, branch uint64) *Run {
		t.Helper()
		r, err := c.Recv(h.now, 1, KindInject, injectBytes(injectMsg{hops: 9, left: encodeTime(Instant(time.Second)), transfer: p.recvLow, seq: 7, branch: branch, flags: flags | flagBranch}, nil, nil, ""))
		if err != nil {
			t.Fatal(err)
		}
		audit(t, c)
		return r
	}
	before := c.stats.Refused
	first := inject(0, 1)
	if first == nil || inject(flagState, 2) != nil || c.stats.Refused != before+1 || first.Stateful() || first.inv.runs.n != 1 {
		t.Fatalf("%d were refused; what runs is %+v", c.stats.Refused-before, first)
	}
	c.Finish(h.now, first, End{})
	first = inject(flagState, 3)
	if first == nil || inject(0, 4) != nil || c.stats.Refused != before+1 || first.inv.runs.n != 2 {
		t.Fatal("a branch without STATE of an invocation that keeps scratch did not wait for its turn")
	}
	c.Finish(h.now, first, End{})
	audit(t, c)
	if r := c.NextRun(); r == nil || r.Branch() != 4 {
		t.Errorf("%+v begins", r)
	}
}
