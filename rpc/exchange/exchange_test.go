package exchange

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSeenAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s seen
		model := map[uint64]bool{}
		low := uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "raise") == 0 {
				low += uint64(rapid.IntRange(0, 8).Draw(t, "by"))
			}
			id := low + uint64(rapid.IntRange(0, 40).Draw(t, "id"))
			told := min(low, id)
			if rapid.Bool().Draw(t, "late") && id > 10 {
				id, told = id-10, 0
			}
			want := !model[id] && id >= s.low && id >= told
			if got := s.add(id, told); got != want {
				t.Fatalf("add(%d, %d) = %v with low %d, ranges %v", id, told, got, s.low, s.ranges)
			}
			if want {
				model[id] = true
			}
			for i, r := range s.ranges {
				if r.first > r.last || r.first <= s.low || i > 0 && s.ranges[i-1].last+1 >= r.first {
					t.Fatalf("ranges %v with low %d", s.ranges, s.low)
				}
			}
		}
	})
}

func TestSeenIsBounded(t *testing.T) {
	var s seen
	for i := range uint64(maxSeenRanges) {
		if !s.add(2*i+1, 0) {
			t.Fatalf("gap %d is refused", i)
		}
	}
	if s.add(1<<40, 0) || len(s.ranges) != maxSeenRanges {
		t.Errorf("%d ranges", len(s.ranges))
	}
	if !s.add(1<<40, 1<<39) || len(s.ranges) != 1 {
		t.Errorf("after the peer said that the gaps will not be filled: %d ranges", len(s.ranges))
	}
}

func TestCallerSlots(t *testing.T) {
	c := NewCaller(2)
	a, _ := c.Begin(0)
	b, _ := c.Begin(0)
	if _, ok := c.Begin(0); ok || a.Slot() == b.Slot() || a.Number() != 1 || b.Number() != 2 {
		t.Fatalf("ids %v and %v, and a third", a, b)
	}
	if !c.Answer(a) || c.Answer(a) || c.End(a) {
		t.Error("an answer counts once, and ends the wait")
	}
	again, ok := c.Begin(0)
	if !ok || again.Slot() != a.Slot() || again.Number() != 3 {
		t.Errorf("the freed slot: %v", again)
	}
	if c.Answer(a) || c.Waiting(a) || !c.Waiting(again) {
		t.Error("a late answer met the slot's next call")
	}
	if c.Undo(again); c.Waiting(again) || c.Live() != 1 {
		t.Error("an undone call waits")
	}
	if id, _ := c.OneWay(); id.Number() != 3 || id.Slot() != NoSlot {
		t.Errorf("after undoing number 3: %v", id)
	}
	if !c.End(b) || c.Live() != 0 {
		t.Error("a call that was given up had been waiting")
	}
}

func TestCallerDeadlines(t *testing.T) {
	c := NewCaller(8)
	late, _ := c.Begin(300)
	none, _ := c.Begin(0)
	soon, _ := c.Begin(100)
	var due []ID
	note := func(id ID) { due = append(due, id) }
	if c.Expire(99, note); len(due) != 0 {
		t.Fatalf("before any deadline: %v", due)
	}
	if c.Expire(100, note); len(due) != 1 || due[0] != soon {
		t.Fatalf("at the first: %v", due)
	}
	if c.Due(299) || !c.Due(300) {
		t.Error("the next deadline is at 300")
	}
	due = nil
	if c.Drop(note); len(due) != 2 || c.Waiting(late) || c.Waiting(none) {
		t.Errorf("at the end: %v", due)
	}
}

func TestLowFollows(t *testing.T) {
	c := NewCaller(4)
	stuck, _ := c.Begin(0)
	for range 3 * lowEvery {
		id, _ := c.Begin(0)
		c.Answer(id)
		c.End(id)
		if c.Low() > stuck.Number() {
			t.Fatalf("low is %d while %v waits", c.Low(), stuck)
		}
	}
	c.End(stuck)
	for range lowEvery {
		id, _ := c.Begin(0)
		c.End(id)
	}
	if c.Low() < lowEvery {
		t.Errorf("low stays at %d", c.Low())
	}
}

func TestCalleeCancelBeforeArrival(t *testing.T) {
	c := NewCallee[string](1)
	if _, ok := c.Cancel(NewID(5, 0)); ok {
		t.Error("what has not come runs")
	}
	if c.Arrive(NewID(5, 0), 1) {
		t.Error("a call that was cancelled before it came is handled")
	}
	if !c.Arrive(NewID(4, 0), 1) || !c.Begin(NewID(4, 0), "four") || c.Begin(NewID(6, 0), "six") {
		t.Error("one call may run")
	}
	if got, ok := c.Cancel(NewID(4, 0)); !ok || got != "four" {
		t.Errorf("%q, %v", got, ok)
	}
	if c.End(NewID(4, 0), false); c.Running() != 0 {
		t.Error("it still runs")
	}
}

func TestLendingStates(t *testing.T) {
	var l Lending[int]
	a, b := NewID(1, 0), NewID(2, 0)
	l.Lend(a, Ours, 1, 0)
	l.Lend(a, Theirs, 2, 50)
	l.Lend(b, Ours, 3, 0)
	if got, ok := l.Taken(a, Ours); !ok || got != 1 {
		t.Fatalf("%d, %v", got, ok)
	}
	if _, ok := l.Taken(a, Ours); ok {
		t.Error("a payload was given back twice")
	}
	l.Leave(b, Ours, 20)
	l.Leave(a, Theirs, 10) // has its time already
	var gone []int
	note := func(n int) { gone = append(gone, n) }
	for _, now := range []int64{19, 20, 49, 50} {
		l.Expire(now, note)
		if want := map[int64]int{19: 0, 20: 1, 49: 1, 50: 2}[now]; len(gone) != want {
			t.Fatalf("at %d: %v", now, gone)
		}
	}
	l.Lend(b, Ours, 4, 0)
	if l.Close(note); len(gone) != 3 || l.Len() != 0 || l.Lend(b, Ours, 5, 0) {
		t.Errorf("after the end: %v", gone)
	}
}

func TestCalleeKeeps(t *testing.T) {
	c := NewCallee[string](1)
	if c.Full() || !c.Begin(1, "one") || !c.Full() || c.Begin(2, "two") {
		t.Error("there is not room for one, or for two")
	}
	c.Keep(3, "three") // has run
	if r, ok := c.Find(3); !ok || r != "three" || c.Running() != 2 {
		t.Errorf("%q, %v, %d run", r, ok, c.Running())
	}
	c.End(1, false)
	if _, ok := c.Find(1); ok || c.Begin(4, "four") {
		t.Error("what was kept does not count")
	}
	c.End(3, false)
	if !c.Begin(4, "four") {
		t.Error("no room when all have ended")
	}
	if c.Hold(4, "four"); c.Full() || !c.Begin(5, "five") || c.Running() != 2 {
		t.Error("a call that has run has its place still")
	}
	if c.End(4, true); !c.Full() || c.Running() != 1 {
		t.Error("the end of one that has run gives a place")
	}
}
