package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// halfway is an invocation that keeps scratch at the second desk. Its root ended there, or still runs. Its traveller runs at the third desk,
// and will come to the second one.
type halfway struct {
	*town
	d               *desk // the second
	root, traveller placed
	last            []placed // to be given back at the end
}

func newHalfway(t *testing.T, l travel.Limits) *halfway {
	t.Helper()
	w := &halfway{town: newTown(t, 4, l)}
	w.d = w.desks[1]
	w.d.reserve = func(*travel.Run) travel.Room { return travel.RoomShort }
	w.d.unreserve = func(*travel.Run) {}
	w.start(t, travel.StartArgs{Stateful: true, Deadline: w.now + 10*second}, 2)
	w.root = w.one(t, w.settle(t, nil))
	if err := w.d.core.HoldState(w.root.r, "scratch"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.d.core.Fork(w.now, w.root.r, 3, nil, []byte("go")); err != nil {
		t.Fatal(err)
	}
	w.traveller = w.one(t, w.settle(t, nil))
	w.pass(t, second/20) // all is acknowledged
	return w
}

// another sends one more branch of the invocation to the second desk. It returns the run, if one begins.
func (w *halfway) another(t *testing.T, b *travel.Binding) []placed {
	t.Helper()
	if _, err := w.traveller.d.core.Fork(w.now, w.traveller.r, 2, b, []byte("another")); err != nil {
		t.Fatal(err)
	}
	return w.settle(t, func(_ int, m sentMsg) bool { return m.kind == travel.KindNeed })
}

// occupy has another invocation run at the second desk, until the end.
func (w *halfway) occupy(t *testing.T) placed {
	t.Helper()
	w.start(t, travel.StartArgs{Deadline: w.now + 100*second}, 2)
	p := w.one(t, w.settle(t, nil))
	w.last = append(w.last, p)
	return p
}

// states are what a branch that is where its invocation keeps scratch can wait for, or do, when that goes.
var states = map[string]struct {
	limits travel.Limits
	enter  func(t *testing.T, w *halfway)
	is     func(s travel.Sizes) bool
}{
	"nobody is there": {travel.Limits{}, func(t *testing.T, w *halfway) { w.root.finish(w.town, travel.End{}) },
		func(s travel.Sizes) bool { return s.Running+s.HeldRuns == 0 }},
	"it runs": {travel.Limits{}, func(t *testing.T, w *halfway) { w.last = append(w.last, w.root) },
		func(s travel.Sizes) bool { return s.Running == 1 }},
	"it waits for its turn": {travel.Limits{}, func(t *testing.T, w *halfway) {
		w.last = append(w.last, w.root)
		w.another(t, nil)
	}, func(s travel.Sizes) bool { return s.Running == 1 && s.HeldRuns == 1 }},
	"it waits to begin": {travel.Limits{Running: 1}, func(t *testing.T, w *halfway) {
		w.root.finish(w.town, travel.End{})
		w.occupy(t)
		w.another(t, nil)
	}, func(s travel.Sizes) bool { return s.Queued == 1 }},
	"it waits for code": {travel.Limits{}, func(t *testing.T, w *halfway) {
		w.root.finish(w.town, travel.End{})
		b, err := w.desks[2].core.Bind(w.now, w.desks[2].put(make([]byte, 40<<10)), travel.ID{})
		if err != nil {
			t.Fatal(err)
		}
		w.another(t, b)
		w.desks[2].core.Unbind(b)
	}, func(s travel.Sizes) bool { return s.Fetches == 1 && s.HeldRuns == 1 }},
	"it waits for its program": {travel.Limits{}, func(t *testing.T, w *halfway) {
		w.root.finish(w.town, travel.End{})
		if p := w.one(t, w.another(t, nil)); !p.d.core.AwaitProgram(w.now, p.r) {
			t.Fatal("it does not wait")
		}
	}, func(s travel.Sizes) bool { return s.Unready == 1 }},
	"it waits for room": {travel.Limits{}, func(t *testing.T, w *halfway) {
		w.root.finish(w.town, travel.End{})
		if p := w.one(t, w.another(t, nil)); !p.d.core.Await(w.now, p.r, 1) {
			t.Fatal("it does not wait")
		}
	}, func(s travel.Sizes) bool { return s.Awaiting == 1 }},
	"it waits to leave": {travel.Limits{}, func(t *testing.T, w *halfway) {
		w.root.finish(w.town, travel.End{})
		p := w.one(t, w.another(t, nil))
		w.d.full = true
		p.onward(t, w.town, 4)
		w.d.full = false
	}, func(s travel.Sizes) bool { return s.Stowed == 1 }},
	"its report waits": {travel.Limits{Records: 8}, func(t *testing.T, w *halfway) {
		w.root.finish(w.town, travel.End{})
		w.pass(t, second/20)
		other := w.occupy(t)
		for range 5 { // nothing is acknowledged while no time passes
			if _, err := w.d.core.Fork(w.now, other.r, 4, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.last = append(w.last, w.settle(t, nil)...)
		for range 2 {
			w.one(t, w.another(t, nil)).finish(w.town, travel.End{})
		}
	}, func(s travel.Sizes) bool { return s.LateReports == 1 }},
}

// lapses are the ways in which scratch goes without its origin's word.
var lapses = map[string]struct {
	lapse func(t *testing.T, w *halfway)
	is    error
}{
	"deadline": {func(t *testing.T, w *halfway) { w.lateAt(w.d) }, travel.ErrDeadline},
	"origin":   {func(t *testing.T, w *halfway) { w.lostAt(t, 1, 0) }, travel.ErrPeerLost},
	"stopping": {func(t *testing.T, w *halfway) { w.d.core.EndAll(w.now, "the node is closing") }, travel.ErrStopping},
}

// TestLapsedInEveryState: whatever a branch does where its invocation's scratch goes, the next one that comes there does not run, and the future
// fails. What the element says of the first branch is lost, so that the tombstone is all that tells.
func TestLapsedInEveryState(t *testing.T) {
	for cause, l := range lapses {
		for state, s := range states {
			if cause == "stopping" && state == "nobody is there" {
				continue // such scratch stays while the element lives
			}
			t.Run(cause+"/"+state, func(t *testing.T) {
				w := newHalfway(t, s.limits)
				s.enter(t, w)
				if n := w.d.core.Sizes(); !s.is(n) {
					t.Fatalf("the second desk has %+v", n)
				}
				l.lapse(t, w)
				w.d.take()
				if n := w.d.core.Sizes(); n.Lapsed != 1 {
					t.Fatalf("the second desk has %+v, want a tombstone", n)
				}
				w.arrives(t, l.is, func() []placed {
					w.traveller.onward(t, w.town, 2)
					return w.settle(t, nil)
				})
			})
		}
	}
}

// TestLapsedMeanwhile: the same for a branch that was on its way when the scratch went, or waited to leave for there.
func TestLapsedMeanwhile(t *testing.T) {
	for cause, l := range lapses {
		if cause == "stopping" {
			continue
		}
		t.Run(cause+"/on its way", func(t *testing.T) {
			w := newHalfway(t, travel.Limits{})
			w.root.finish(w.town, travel.End{})
			w.settle(t, nil)
			w.traveller.onward(t, w.town, 2)
			sent := w.desks[2].take()
			l.lapse(t, w)
			w.d.take()
			w.arrives(t, l.is, func() (runs []placed) {
				for _, r := range w.d.deliverFrom(t, w.now, 3, sent) {
					runs = append(runs, placed{w.d, r})
				}
				return append(runs, w.settle(t, nil)...)
			})
		})
		t.Run(cause+"/waits to leave", func(t *testing.T) {
			w := newHalfway(t, travel.Limits{})
			w.root.finish(w.town, travel.End{})
			w.settle(t, nil)
			w.desks[2].full = true
			w.traveller.onward(t, w.town, 2)
			l.lapse(t, w)
			w.d.take()
			w.desks[2].full = false
			w.arrives(t, l.is, func() []placed { return w.pass(t, 2e6) })
		})
	}
}

// TestLapsedEarly: of ten seconds an element was given a second less, as rounding at many hops may have it. The tombstone stays until the
// invocation is over at its origin.
func TestLapsedEarly(t *testing.T) {
	w := newHalfway(t, travel.Limits{})
	w.root.finish(w.town, travel.End{})
	w.settle(t, nil)
	w.lateAt(w.d)
	w.d.core.Tick(w.now + 12*second)
	w.arrives(t, travel.ErrDeadline, func() []placed {
		w.traveller.onward(t, w.town, 2)
		return w.settle(t, nil)
	})
}

// arrives has a branch come to where its invocation lapsed.
func (w *halfway) arrives(t *testing.T, want error, come func() []placed) {
	t.Helper()
	for _, p := range come() {
		if p.d == w.d && p.r.Stateful() {
			t.Error("a branch runs where its scratch is gone")
		}
	}
	if n := len(w.desks[0].ended); n == 0 || !errors.Is(w.desks[0].ended[0].Err, want) {
		t.Errorf("the future ended with %v, want %v", w.desks[0].ended, want)
	}
	if errors.Is(want, travel.ErrPeerLost) { // the origin notices too
		w.lostAt(t, 0, 1)
	}
	for _, p := range w.last {
		p.finish(w.town, travel.End{})
	}
	w.pass(t, 150*second) // the other invocation's time
	w.pass(t, 150*second) // its tombstones'
	w.empty(t)
}
