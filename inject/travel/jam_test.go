package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// mutual is a stateful invocation with a run at each of two desks, which each have sent the other so many branches; two of them may be
// held at each.
func mutual(t *testing.T, forks int, l travel.Limits) (w *town, runs []placed) {
	l.PrincipalHeldRuns = 2
	w = newTown(t, 3, l)
	w.start(t, travel.StartArgs{Stateful: true, Deadline: w.now + 100*second}, 2, 3)
	if runs = w.settle(t, nil); len(runs) != 2 {
		t.Fatalf("%d runs may begin, want 2", len(runs))
	}
	for i, p := range runs {
		p.fork(t, w, travel.Peer(3-i), forks)
	}
	if more := w.settle(t, nil); len(more) != 0 {
		t.Fatalf("%d more run beside the first", len(more))
	}
	return w, runs
}

func (p placed) fork(t *testing.T, w *town, to travel.Peer, n int) {
	t.Helper()
	for range n {
		if _, err := p.d.core.Fork(w.now, p.r, to, nil, []byte("much")); err != nil {
			t.Fatal(err)
		}
	}
}

// waitInForks has all runs wait in a fork for the other's desk, trying again four times in a row and passing each time.
func (w *town) waitInForks(t *testing.T, runs []placed, each travel.Instant) {
	t.Helper()
	for range 4 {
		for i, p := range runs {
			if p.r.Ended() {
				continue
			}
			p.d.full = true
			if _, err := p.d.core.Fork(w.now, p.r, travel.Peer(3-i), nil, []byte("more")); !errors.Is(err, travel.ErrBackpressure) {
				t.Fatalf("a fork where there is no room: %v", err)
			}
			p.d.full = false
			p.d.core.Wait(w.now, p.r)
		}
		w.pass(t, each)
		for _, p := range runs {
			p.d.core.Awake(p.r)
		}
	}
}

// finishAll ends runs until none is left.
func (w *town) finishAll(t *testing.T, runs []placed) {
	t.Helper()
	for ; len(runs) > 0; runs = w.settle(t, nil) {
		for _, p := range runs {
			p.finish(w, travel.End{})
		}
	}
}

// kept checks how many branches keep their senders' credit at each of some desks, how many were taken in instead, and how many
// members were told to send no more of them.
func (w *town) kept(t *testing.T, desks []*desk, kept, backlog, paced int) {
	t.Helper()
	for _, d := range desks {
		if n := d.core.Sizes(); n.Kept != kept || d.kept != kept || n.Backlog != backlog || (n.BacklogBytes > 0) != (backlog > 0) || n.Paced != paced {
			t.Fatalf("%d messages keep their credit, want %d; %+v, want %d in the backlog and %d paced", d.kept, kept, n, backlog, paced)
		}
	}
}

// TestJam: runs that wait in forks for each other's elements get on, because these take in what arrives meanwhile; and only until the
// runs have ended.
func TestJam(t *testing.T) {
	w, runs := mutual(t, 4, travel.Limits{})
	here := w.desks[1:]
	w.kept(t, here, 0, 2, 1)
	w.waitInForks(t, runs, 4e6)
	w.kept(t, here, 0, 2, 1)
	w.waitInForks(t, runs, 5e6)
	w.kept(t, here, 0, 2, 0)
	for i, p := range runs {
		p.fork(t, w, travel.Peer(3-i), 3) // there is room again, and the run goes on
	}
	w.settle(t, nil)
	w.kept(t, here, 0, 5, 0)
	for _, p := range runs {
		p.finish(w, travel.End{})
	}
	next := w.settle(t, nil)
	for i, p := range next { // of these nothing waits
		p.fork(t, w, travel.Peer(3-i), 3)
	}
	w.settle(t, nil)
	w.kept(t, here, 0, 7, 1)
	w.finishAll(t, next)
	if err := w.outcome(t); err != nil {
		t.Error(err)
	}
	if n := w.desks[1].core.Counters(); n.TakenIn != 7 || n.Stuck != 0 || n.Waits != 1 {
		t.Errorf("%+v", n)
	}
	w.empty(t)
}

// TestJamIsBounded: when no more can be taken in, what comes keeps its sender's credit, and a run that waits for ten seconds more is
// ended long before the deadline: it is said what was too much.
func TestJamIsBounded(t *testing.T) {
	w, runs := mutual(t, 5, travel.Limits{BacklogBytes: 2 * (4 + 512), PrincipalBacklogBytes: 4 + 512})
	w.waitInForks(t, runs, second)
	w.kept(t, w.desks[1:], 2, 1, 1)
	w.waitInForks(t, runs, second)
	if n := len(w.desks[0].ended); n != 0 {
		t.Fatalf("after 8 seconds it has ended: %v", w.desks[0].ended[0].Err)
	}
	w.waitInForks(t, runs, second)
	err := w.outcome(t)
	if !errors.Is(err, travel.ErrBackpressure) || !strings.Contains(err.Error(), "516 bytes (of 1032 in all)") || !strings.Contains(err.Error(), "2 messages") {
		t.Errorf("it ended with %v", err)
	}
	stuck := uint64(0)
	for i, d := range w.desks[1:] {
		stuck += d.core.Counters().Stuck
		if len(d.stops) != 1 || d.stops[0] != runs[i].r {
			t.Errorf("desk %d was asked to stop %d runs, want its own, once", i+1, len(d.stops))
		}
	}
	if stuck == 0 {
		t.Error("no branch counts as stuck")
	}
	for _, p := range runs {
		p.finish(w, travel.End{})
	}
	w.pass(t, 200*second) // tombstones stay for as long as the invocation might have taken
	w.empty(t)
}

// TestLongWaitInFork: a fork may wait for long if nobody's credit is withheld for it, or if the run gets on.
func TestLongWaitInFork(t *testing.T) {
	for name, forks := range map[string]int{"nobody's credit is kept": 2, "something leaves": 4} {
		t.Run(name, func(t *testing.T) {
			w, runs := mutual(t, forks, travel.Limits{BacklogBytes: 1})
			for range 5 {
				w.waitInForks(t, runs, 2*second)
				for _, p := range runs {
					if forks > 2 {
						p.fork(t, w, 1, 1)
						w.finishAll(t, w.settle(t, nil))
					}
				}
			}
			w.finishAll(t, runs)
			if err := w.outcome(t); err != nil {
				t.Error(err)
			}
			w.empty(t)
		})
	}
}

// TestJamByStowed: an element whose branches find no room to go on takes in what arrives, too. Those that came first leave first.
func TestJamByStowed(t *testing.T) {
	w := newTown(t, 3, travel.Limits{PrincipalHeldRuns: 4})
	w.start(t, travel.StartArgs{}, 2, 2)
	b := w.desks[1]
	b.full = true
	for i, p := range w.settle(t, nil) {
		if err := b.core.Forward(w.now, p.r, 3, []byte{byte('0' + i)}); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
	}
	w.start(t, travel.StartArgs{Stateful: true}, 2, 2, 2, 2, 2)
	p := w.one(t, w.settle(t, nil))
	w.kept(t, []*desk{b}, 0, 2, 1)
	w.pass(t, 15e6)
	w.kept(t, []*desk{b}, 0, 2, 1)
	w.pass(t, 15e6)
	w.kept(t, []*desk{b}, 0, 2, 0)
	b.full = false
	if _, err := b.core.Fork(w.now, p.r, 3, nil, []byte("2")); !errors.Is(err, travel.ErrBackpressure) {
		t.Fatalf("a fork before those that wait: %v", err)
	}
	next := w.pass(t, 2e6)
	p.fork(t, w, 3, 1)
	next = append(next, w.settle(t, nil)...)
	got := ""
	for _, n := range next {
		got += string(n.r.Payload)
	}
	if got != "01much" {
		t.Errorf("at the next element they came as %q", got)
	}
	w.finishAll(t, append(next, p))
	for _, o := range w.desks[0].ended {
		if o.Err != nil {
			t.Error(o.Err)
		}
	}
	w.empty(t)
}

// TestForkToItself: a run has more branches for its own element than may be held there, and all wait for its end.
func TestForkToItself(t *testing.T) {
	w := newTown(t, 2, travel.Limits{PrincipalHeldRuns: 2})
	w.start(t, travel.StartArgs{Stateful: true}, 2)
	p := w.one(t, w.settle(t, nil))
	p.fork(t, w, travel.Self, 2)
	waits := 0
	for {
		_, err := p.d.core.Fork(w.now, p.r, travel.Self, nil, []byte("here"))
		if err == nil {
			break
		}
		if waits++; !errors.Is(err, travel.ErrBackpressure) || waits > 10 {
			t.Fatalf("fork %d where there is no room: %v", waits, err)
		}
		p.d.core.Wait(w.now, p.r)
		w.pass(t, 7e6)
		p.d.core.Awake(p.r)
	}
	if waits < 3 {
		t.Errorf("it found room after %d tries", waits)
	}
	p.fork(t, w, travel.Self, 3)
	w.finishAll(t, []placed{p})
	if err := w.outcome(t); err != nil {
		t.Error(err)
	}
	w.empty(t)
}

// TestStuckBesideReports: a run whose forks wait where nothing more can be taken in is found to be stuck though other numbered messages,
// reports of other invocations, go to the same element all the time.
func TestStuckBesideReports(t *testing.T) {
	w, runs := mutual(t, 4, travel.Limits{BacklogBytes: 1})
	for second := 0; len(w.desks[0].ended) == 0; second++ {
		if second == 15 {
			t.Fatalf("after %d s nothing has ended", second)
		}
		w.waitInForks(t, runs, 25e7)
		for k := 1; k <= 2; k++ { // a branch that desk k starts at desk 0 goes on to the other one, which numbers its answer
			core := w.desks[k].core
			b, err := core.Bind(w.now, w.image, travel.ID{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := core.Start(w.now, &travel.StartArgs{Binding: b, Roots: []travel.Root{{To: 1}}, Deadline: w.now + 5e9}); err != nil {
				t.Fatal(err)
			}
			core.Unbind(b)
			at := w.one(t, w.settle(t, nil))
			if err := at.d.core.Forward(w.now, at.r, travel.Peer(4-k), nil); err != nil {
				t.Fatal(err)
			}
			at.finish(w, travel.End{})
			w.finishAll(t, w.settle(t, nil))
		}
	}
	if err := w.outcome(t); !errors.Is(err, travel.ErrBackpressure) {
		t.Errorf("it ended with %v", err)
	}
}
