package inject_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestVisit: whatever a function does that only a general run can, it does as one, though it began as a visit. What it
// needs no more for than a visit leaves it one.
func TestVisit(t *testing.T) {
	s := &streets{t: t, transport: "tcp"}
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

// TestVisitMapped: what is near enough to be mapped takes no time, and leaves a visit one.
func TestVisitMapped(t *testing.T) {
	all := &streets{t: t, transport: "shm"}
	for _, c := range []struct {
		steps [][]step
		stays bool
	}{
		{[][]step{one(opGet, 1, 1)}, true},
		{[][]step{one(opPut, 1, 1), one(opAdd, 2, 1), one(opAdd, 1, 1), one(opGet, 2, 1)}, true},
		{[][]step{one(opAdd, 1, 1), on(1, one(opAdd, 0, 1)...)}, true},
		{[][]step{one(opAdd, 1, 1), on(1, padding...)}, false},
		{[][]step{one(opAdd, 1, 1), fork(1)}, false},
		{[][]step{one(opAdd, 1, 1), one(opFail, 0, 5)}, true},
		{[][]step{one(opAdd, 1, 1), one(opTrap, 0, 0)}, true},
	} {
		for range 2 { // also with what the first one leaves
			s := all.get() // whose n0 is to have mapped the others' words
			if _, err := wait(t, s.start(within(t, patience), 0, payload(1, one(opGet, 1, 0), one(opGet, 2, 0)))); err != nil {
				t.Fatal(err)
			}
			if got := visited(t, all, 0, payload(1, c.steps...)).stays; got != c.stays {
				t.Errorf("%v: a visit as the function returns: %v, want %v", c.steps, got, c.stays)
			}
		}
	}
	all.get().quiet()
}

// path makes three elements know that the next one has the function, so that a branch that goes around is a visit at each.
func (s *street) path() {
	s.t.Helper()
	eventually(s.t, func() string {
		s.idle()
		s.clear()
		if _, err := wait(s.t, s.start(within(s.t, patience), 0, payload(1, on(1, on(2, on(0)...)...)))); err != nil {
			s.t.Fatal(err)
		}
		s.idle()
		for i := range s.spies {
			if seen := s.spies[i].runs(); len(seen) == 0 || !seen[len(seen)-1].stays {
				return fmt.Sprintf("n%d makes no visits", i)
			}
		}
		return ""
	})
	s.idle()
	s.clear()
}

// TestVisitHops: a visit that has no hops left cannot go on, and says so as a run does.
func TestVisitHops(t *testing.T) {
	s := newStreet(t)
	s.path()
	for _, c := range []struct {
		hops  uint16
		steps []step
	}{
		{1, on(1)}, {2, on(1, on(2)...)}, {1, on(1, padding...)}, // enough
		{1, on(1, on(2)...)}, {2, on(1, on(2, on(0)...)...)}, {1, on(1, fork(2)...)}, {1, on(1, on(1)...)}, {1, on(1, on(2, padding...)...)},
	} {
		fut, err := s.f.Start(within(t, patience), []inject.Root{{Payload: payload(1, c.steps)}}, inject.Options{Hops: c.hops})
		if err != nil {
			t.Fatal(err)
		}
		moves := 0
		for _, x := range c.steps {
			if x.op == opForward || x.op == opFork {
				moves++
			}
		}
		_, err = wait(t, fut)
		var remote *travel.RemoteError
		if moves > int(c.hops) && (!errors.Is(err, travel.ErrHopLimit) || !errors.As(err, &remote) || remote.Element != fmt.Sprintf("n%d", c.hops)) {
			t.Errorf("%v with %d hops: %v", c.steps, c.hops, err)
		} else if moves <= int(c.hops) && err != nil {
			t.Errorf("%v with %d hops: %v", c.steps, c.hops, err)
		}
	}
	s.quiet()
}

// TestVisitNeedsCode: a visit goes on to, or forks at, an element that has not seen the function: its code goes along, or
// is fetched from here if it is long.
func TestVisitNeedsCode(t *testing.T) {
	for name, long := range map[string]int{"short": 0, "long": 100_000} {
		for how, steps := range map[string][][]step{
			"onward": {on(1, on(2)...)}, "onward with more": {on(1, padding...)}, "a fork": {fork(1)}, "home": {on(1, on(0)...)},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				for end := time.Now().Add(patience); ; {
					s := newStreet(t)
					s.f = s.prepareImage(s.client, paddedImage(t, "another", long))
					s.ready(0)
					program := payload(1, steps...)
					want := newModel(houses).play(0, program)
					results, err := wait(t, s.start(within(t, patience), 0, program))
					if d := want.matches(results, err); d != "" {
						t.Error(d)
					}
					if needs := s.nodes[1].rt.Stats().Needs; (needs > 0) != (long > 0) {
						t.Errorf("n1 has asked %d times", needs)
					}
					s.quiet()
					if s.spies[0].runs()[0].began {
						return
					}
					if time.Now().After(end) {
						t.Fatal("no run began as a visit")
					}
				}
			})
		}
	}
}

// TestVisitConcealed: a function that may keep scratch, of an origin that does not say so, gets none, and it is not
// the element's loss.
func TestVisitConcealed(t *testing.T) {
	s := newStreet(t)
	s.f = s.prepareImage(s.client, stepsImage(t, "another", func(m *image.Manifest) { m.Limits.ScratchBytes = 64 << 10 }))
	s.f.Conceal()
	all := &streets{t: t, transport: "tcp", now: s}
	for _, steps := range [][][]step{
		{one(opScratch, 0, 0)}, {one(opScratch, 0, 0), on(0)}, {one(opScratch, 0, 0), one(opTrap, 0, 0)}, {one(opScratch, 0, 0), fork(1, one(opScratch, 0, 0)...)},
	} {
		all.now = s
		if visited(t, all, 0, payload(1, steps...)).stays {
			t.Errorf("%v left it a visit", steps)
		}
	}
	s.quiet()
}

// TestVisitRevoked: a key ends while a visit uses its window: the next one has to be a run that is refused.
func TestVisitRevoked(t *testing.T) {
	s := newStreet(t)
	s.ready(0)
	begun := s.begun(0)
	fut := s.start(within(t, patience), 0, payload(1, one(opWait, 0, gate), one(opLoad, 0, 1), one(opGet, 0, 1), one(opReply, 0, 8)))
	await(t, begun)
	if err := s.nodes[0].el.Revoke(s.table.Shards[0].Windows[0].Key); err != nil {
		t.Fatal(err)
	}
	s.open(0)
	if _, err := wait(t, fut); err != nil { // it has the window, and its get says that the key was revoked
		t.Error(err)
	}
	for range 2 {
		if _, err := wait(t, s.start(within(t, patience), 0, payload(1))); err == nil || !strings.Contains(err.Error(), "window 0 of words") {
			t.Errorf("without a key: %v", err)
		}
	}
	s.quiet()
}

// tracer counts spans.
type tracer struct{ begun, ended, failed atomic.Int32 }

func (r *tracer) StartRun(parent travel.Trace, _ inject.RunInfo) (own travel.Trace, end func(error)) {
	r.begun.Add(1)
	parent.Span[0]++
	return parent, func(err error) {
		if r.ended.Add(1); err != nil {
			r.failed.Add(1)
		}
	}
}

// TestVisitTraced: where runs are traced there are no visits, and each run of a traced invocation has its span.
func TestVisitTraced(t *testing.T) {
	spans := &tracer{}
	s := newStreet(t, func(c *inject.Config) { c.Tracer = spans })
	for _, c := range []struct {
		steps [][]step
		runs  int32
		fails int32
	}{
		{[][]step{one(opReply, 0, 8)}, 1, 0}, {[][]step{on(1, on(2)...)}, 3, 0}, {[][]step{fork(0), fork(1), one(opPart, 0, 8)}, 3, 0},
		{[][]step{one(opTrap, 0, 0)}, 1, 1}, {[][]step{on(1, one(opFail, 0, 3)...)}, 2, 1},
	} {
		for _, trace := range []*travel.Trace{nil, {TraceID: [16]byte{1}, Span: [8]byte{2}, Flags: 1}} {
			s.clear()
			spans.begun.Store(0)
			spans.ended.Store(0)
			spans.failed.Store(0)
			program := payload(1, c.steps...)
			want := newModel(houses).play(0, program)
			fut, err := s.f.Start(within(t, patience), []inject.Root{{Payload: program}}, inject.Options{Trace: trace})
			if err != nil {
				t.Fatal(err)
			}
			results, err := wait(t, fut)
			s.idle()
			if d := want.matches(results, err); d != "" {
				t.Error(d)
			}
			runs, fails := c.runs, c.fails
			if trace == nil {
				runs, fails = 0, 0
			}
			if spans.begun.Load() != runs || spans.ended.Load() != runs || spans.failed.Load() != fails {
				t.Errorf("%v: %d spans begun, %d ended, %d failed; want %d and %d", c.steps, spans.begun.Load(), spans.ended.Load(), spans.failed.Load(), runs, fails)
			}
			for i := range s.spies {
				for _, one := range s.spies[i].runs() {
					if one.began {
						t.Error("a visit that nobody could trace")
					}
				}
			}
		}
	}
	s.quiet()
}

// TestVisitNotWhereItWaits: a branch that comes to a goroutine which waits for something of its own runs on another, as
// no visit: it may last longer than what is waited for.
func TestVisitNotWhereItWaits(t *testing.T) {
	s := newStreet(t)
	own := s.prepare(s.nodes[0], "steps")
	for end := time.Now().Add(patience); ; {
		s.ready(0)
		clear(s.memory[1].Bytes())
		begun := s.begun(1)
		first := make(chan error, 1)
		go func() {
			_, err := own.Do(within(t, patience), inject.Root{Element: 1, Payload: payload(1, one(opWait, 0, gate))}, nil)
			first <- err
		}()
		await(t, begun) // and n0 waits for it
		time.Sleep(5 * time.Millisecond)
		second := s.begun(0)
		fut := s.start(within(t, patience), 0, payload(1, one(opWait, 0, gate)))
		await(t, second)
		one := s.spies[0].runs()[0]
		s.open(1)
		if err := <-first; err != nil { // while the other one still runs
			t.Error(err)
		}
		if s.spies[0].runs()[0].ended {
			t.Error("it ended before it could")
		}
		s.open(0)
		if _, err := wait(t, fut); err != nil {
			t.Error(err)
		}
		if !one.leads && !one.began {
			break
		}
		if time.Now().After(end) {
			t.Fatal("n0 never drove the fabric while it waited")
		}
	}
	s.idle()
	s.quiet()
}
