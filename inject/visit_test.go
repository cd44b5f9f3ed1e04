package inject_test

import (
	"testing"
)

// TestVisit: whatever a function does that only a general run can, it does as one, though it began as a visit. What it
// needs no more for than a visit leaves it one.
func TestVisit(t *testing.T) {
	s := &streets{t: t}
	const stays, unfolds, either = 's', 'u', '?' // the last: others look at an element that waits or runs long
	for _, c := range []struct {
		name  string
		steps [][]step
		when  rune
	}{
		{"a short reply", [][]step{one(opReply, 0, 8)}, stays},
		{"an empty reply", [][]step{one(opReply, 0, 0)}, stays},
		{"no reply", [][]step{one(opEnd, 0, 0)}, stays},
		{"a longer reply", [][]step{one(opReply, 0, 300)}, stays},
		{"a reply in parts", [][]step{one(opReply, 0, 60000)}, unfolds},
		{"a part", [][]step{one(opPart, 0, 100)}, unfolds},
		{"parts and a reply", [][]step{one(opPart, 0, 10), one(opPart, 0, 5000), one(opReply, 0, 10)}, unfolds},
		{"a part and no reply", [][]step{one(opPart, 0, 10), one(opEnd, 0, 0)}, unfolds},
		{"a part after the reply", [][]step{one(opReply, 0, 10), one(opPart, 0, 10), one(opPut, 0, 1)}, stays},
		{"onward", [][]step{on(1)}, stays},
		{"onward and back", [][]step{on(1, on(0)...)}, stays},
		{"onward to itself", [][]step{on(0)}, stays},
		{"onward, and more to do", [][]step{on(1), one(opPut, 0, 1)}, unfolds},
		{"onward with more than fits the mailbox", [][]step{on(1, padding...)}, unfolds},
		{"onward to itself with more", [][]step{on(0, padding...)}, unfolds},
		{"onward after a part", [][]step{one(opPart, 0, 10), on(1)}, unfolds},
		{"onward after the reply", [][]step{one(opReply, 0, 8), on(1)}, stays},
		{"a fork here", [][]step{fork(0)}, unfolds},
		{"a fork elsewhere", [][]step{fork(1)}, unfolds},
		{"forks, and onward", [][]step{fork(0), fork(1), on(2)}, unfolds},
		{"a fork after the reply", [][]step{one(opReply, 0, 8), fork(1)}, unfolds},
		{"a fork after it went on", [][]step{on(1), fork(2), one(opPut, 0, 1)}, unfolds},
		{"scratch", [][]step{one(opScratch, 0, 0)}, unfolds}, // which is refused: its origin has not said that it wants any
		{"words here", [][]step{one(opPut, 0, 1), one(opGet, 0, 1), one(opAdd, 0, 1), one(opGet, 0, 1), one(opLoad, 0, 1)}, stays},
		{"a word elsewhere", [][]step{one(opGet, 1, 1)}, either},
		{"words elsewhere", [][]step{one(opPut, 1, 1), one(opAdd, 1, 1), one(opGet, 1, 1)}, either},
		{"a word elsewhere, and a reply", [][]step{one(opPut, 1, 1), one(opReply, 0, 8)}, either},
		{"a word elsewhere, and onward", [][]step{one(opGet, 1, 1), on(1, one(opTime, 0, 3600)...)}, either},
		{"a word elsewhere, and a fork", [][]step{one(opAdd, 1, 1), fork(1, one(opAdd, 1, 2)...)}, either},
		{"a line", [][]step{one(opLog, 0, 0)}, stays},
		{"a line, and onward", [][]step{one(opLog, 0, 0), on(1)}, stays},
		{"some time", [][]step{one(opSpin, 0, 300)}, either},
		{"some time, and a part", [][]step{one(opSpin, 0, 300), one(opPart, 0, 8)}, unfolds},
		{"some time, and a fork", [][]step{one(opSpin, 0, 300), fork(0)}, unfolds},
		{"some time, and onward", [][]step{one(opSpin, 0, 300), on(1, one(opTime, 0, 3600)...)}, either},
		{"a trap", [][]step{one(opTrap, 0, 0)}, stays},
		{"a trap after the reply", [][]step{one(opReply, 0, 8), one(opTrap, 0, 0)}, stays},
		{"a trap after a part", [][]step{one(opPart, 0, 8), one(opTrap, 0, 0)}, unfolds},
		{"a trap after it went on", [][]step{on(1, one(opHang, 0, 0)...), one(opTrap, 0, 0)}, unfolds},
		{"a trap after forks", [][]step{fork(0), fork(1), one(opTrap, 0, 0)}, unfolds},
		{"a trap after a line", [][]step{one(opLog, 0, 0), one(opTrap, 0, 0)}, stays},
		{"a trap after words here", [][]step{one(opAdd, 0, 1), one(opTrap, 0, 0)}, stays},
		{"a trap after a word elsewhere", [][]step{one(opAdd, 1, 1), one(opTrap, 0, 0)}, either},
		{"a trap after some time", [][]step{one(opSpin, 0, 300), one(opTrap, 0, 0)}, either},
		{"a trap where it went", [][]step{on(1, one(opTrap, 0, 0)...)}, stays},
		{"a trap of a fork", [][]step{fork(1, one(opTrap, 0, 0)...), one(opHang, 0, 0)}, unfolds},
		{"a failure", [][]step{one(opFail, 0, 7)}, stays},
		{"a failure after the reply", [][]step{one(opReply, 0, 8), one(opFail, 0, 7)}, stays},
		{"a failure after it went on", [][]step{on(1), one(opFail, 0, 7)}, stays}, // and so it does not
		{"a failure after it went on with more", [][]step{on(1, append(padding, step{op: opHang})...), one(opFail, 0, 7)}, unfolds},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := visited(t, s, 0, payload(1, c.steps...))
			if c.when != either && one.stays != (c.when == stays) {
				t.Errorf("a visit as the function returns: %v, want %v", one.stays, c.when == stays)
			}
			if !one.leads {
				t.Error("it did not begin on the goroutine that the message came to")
			}
		})
	}
	s.get().quiet()
}
