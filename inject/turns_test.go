package inject

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestTurns: as many turns as may be begin at once; then the principal that has fewest is next, in its own order, as one ends or none has begun for
// turnWait; and whoever gives up leaves nothing behind.
func TestTurns(t *testing.T) {
	tu := &turns{most: 2}
	now := travel.Instant(1)
	waiting := map[string]chan struct{}{}
	take := func(name string, principal string) {
		t.Helper()
		if ch, _ := tu.take(now, principal); ch != nil {
			waiting[name] = ch
		}
	}
	begun := func(want string) {
		t.Helper()
		got := ""
		for _, name := range []string{"a3", "a4", "a5", "b1", "b2", "c1"} {
			select {
			case <-waiting[name]:
				got += name + " "
				delete(waiting, name)
			default:
			}
		}
		if got != want {
			t.Errorf("begun: %q, want %q", got, want)
		}
	}
	for i := range 5 {
		take(fmt.Sprint("a", i+1), "alice")
	}
	take("b1", "bob")
	take("b2", "bob")
	begun("")
	if len(waiting) != 5 {
		t.Fatalf("%d wait", len(waiting))
	}
	tu.give(now, "alice") // alice has one left, bob none
	begun("b1 ")
	if again := tu.late(now + travel.Instant(turnWait) - 1); again != 1 {
		t.Errorf("ask again in %v", again)
	}
	begun("")
	now += travel.Instant(turnWait)
	if again := tu.late(now); again != turnWait {
		t.Errorf("ask again in %v", again)
	}
	begun("a3 ") // each had one, and alice came first
	take("c1", "carol")
	tu.give(now, "alice") // back to two, as many as may be
	begun("")
	tu.give(now, "bob")
	begun("b2 ") // bob has none, nor has carol, who came later
	if !tu.abandon("alice", waiting["a4"]) {
		t.Error("who waits cannot give up")
	}
	delete(waiting, "a4")
	tu.give(now, "alice")
	tu.give(now, "bob")
	begun("a5 c1 ")
	if tu.abandon("bob", make(chan struct{})) {
		t.Error("a turn that has begun was given up")
	}
	tu.give(now, "alice")
	tu.give(now, "carol")
	if again := tu.late(now + travel.Instant(turnWait)); again != 0 || len(tu.by) != 0 || tu.computing != 0 || tu.waiting != 0 {
		t.Errorf("in the end: ask again in %v, %+v", again, tu)
	}
}
