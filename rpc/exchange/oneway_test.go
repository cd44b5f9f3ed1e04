package exchange

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOneWayWindow: a caller never has more one-way requests under way than the callee takes, whenever it hears of their ends and
// in whatever order it hears; and whatever was sent and has ended, it can go on.
func TestOneWayWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		caller, callee := NewCaller(4), NewCallee[int](1)
		var wire, running, sent int
		var words []uint64
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				id, ok := caller.OneWay()
				if !ok {
					if wire+running+len(words)*tellEvery+tellEvery <= MaxOneWay-tellEvery {
						t.Fatalf("no room with %d on the wire, %d that run and %d words to come", wire, running, len(words))
					}
					continue
				}
				if rapid.IntRange(0, 5).Draw(t, "no credit") == 0 {
					caller.Undo(id)
					continue
				}
				wire++
				sent++
			case 2:
				if wire > 0 {
					wire--
					running++
					if !callee.ArriveOneWay() {
						t.Fatalf("with %d running there is one too many", running)
					}
				}
			case 3:
				if running > 0 {
					running--
					if total, tell := callee.EndOneWay(); tell {
						words = append(words, total)
					}
				}
			case 5: // nobody takes it there
				if wire > 0 {
					wire--
					sent--
					if !caller.OneWayReturned() {
						t.Fatalf("none of %d can come back", sent)
					}
				}
			case 4:
				if len(words) > 0 {
					i := rapid.IntRange(0, len(words)-1).Draw(t, "which")
					if !caller.OneWaysEnded(words[i]) {
						t.Fatalf("%d of %d cannot have ended", words[i], sent)
					}
					words = append(words[:i], words[i+1:]...)
				}
			}
		}
		if caller.OneWaysEnded(uint64(sent) + 1) {
			t.Fatal("more have ended than were sent")
		}
		endOneWays(t, &caller, &callee, wire, running, words)
	})
}

// endOneWays lets all that is under way end: then there is room again.
func endOneWays(t *rapid.T, caller *Caller, callee *Callee[int], wire, running int, words []uint64) {
	for range wire {
		callee.ArriveOneWay()
	}
	for range wire + running {
		if total, tell := callee.EndOneWay(); tell {
			words = append(words, total)
		}
	}
	for _, total := range words {
		caller.OneWaysEnded(total)
	}
	for i := range MaxOneWay - tellEvery + 1 {
		if _, ok := caller.OneWay(); !ok {
			t.Fatalf("all have ended, and after %d there is no room", i)
		}
	}
}

// TestOneWayReturned: no more can come back than are under way.
func TestOneWayReturned(t *testing.T) {
	caller := NewCaller(4)
	for range 3 {
		caller.OneWay()
	}
	caller.OneWaysEnded(1)
	if !caller.OneWayReturned() || !caller.OneWayReturned() || caller.OneWayReturned() {
		t.Error("of three that were sent and one that ended, two can come back")
	}
}

// TestOneWayTooMany: a caller that does not keep to the window is found out.
func TestOneWayTooMany(t *testing.T) {
	callee := NewCallee[int](1)
	for i := range MaxOneWay {
		if !callee.ArriveOneWay() {
			t.Fatalf("number %d is one too many", i+1)
		}
	}
	if total, tell := callee.TellRest(); tell {
		t.Errorf("nothing has ended, and the caller is told of %d", total)
	}
	callee.EndOneWay()
	if total, tell := callee.TellRest(); !tell || total != 1 {
		t.Errorf("one has ended, and the caller is told of %d: %v", total, tell)
	}
	if !callee.ArriveOneWay() || callee.ArriveOneWay() {
		t.Error("after one has ended there is room for one")
	}
}

// TestLowOfOneWay: the number of a one-way request is not below what is to be forgotten when it comes.
func TestLowOfOneWay(t *testing.T) {
	caller, callee := NewCaller(4), NewCallee[int](1)
	for range 3 * lowEvery {
		id, _ := caller.OneWay()
		low := caller.Low()
		if low > id.Number() {
			t.Fatalf("%v: low is %d", id, low)
		}
		if !callee.Arrive(id, low) {
			t.Fatalf("%v is not handled", id)
		}
		caller.OneWaysEnded(id.Number())
	}
	if caller.Low() < 2*lowEvery {
		t.Errorf("low stays at %d", caller.Low())
	}
}
