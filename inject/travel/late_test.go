package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// storm is an invocation whose branches all end at the third desk, while what that says to the origin is held up.
type storm struct {
	*town
	id   travel.FutureID
	root placed
	runs []placed
	held []sentMsg
}

func newStorm(t *testing.T, n int, l travel.Limits) *storm {
	l.Running = 2 * window
	s := &storm{town: newTown(t, 3, l)}
	s.id = s.start(t, travel.StartArgs{Deadline: s.now + 3*second}, 2)
	s.root = s.one(t, s.settle(t, nil))
	s.fork(t, n)
	return s
}

// fork has n branches run at the third desk.
func (s *storm) fork(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if _, err := s.root.d.core.Fork(s.now, s.root.r, 3, nil, []byte("go")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 || i == n-1 { // the third desk acknowledges them
			s.deliver(t)
		}
	}
	if len(s.runs) != n {
		t.Fatalf("%d of %d branches run", len(s.runs), n)
	}
}

// deliver lets everything arrive except what goes from the third desk to the origin.
func (s *storm) deliver(t *testing.T) {
	t.Helper()
	for range 2 {
		s.now += second / 20
		for _, d := range s.desks {
			d.core.Tick(s.now)
		}
		s.carry(t)
	}
}

// carry does so without time passing.
func (s *storm) carry(t *testing.T) {
	t.Helper()
	s.runs = append(s.runs, s.settle(t, func(from int, m sentMsg) bool {
		if from == 2 && m.to == 1 {
			s.held = append(s.held, m)
			return true
		}
		return false
	})...)
}

// release lets what was held up arrive, and what it leads to.
func (s *storm) release(t *testing.T) {
	t.Helper()
	late := s.desks[2].core.Sizes().LateReports
	s.desks[0].deliverFrom(t, s.now, 3, s.held)
	s.held = nil
	s.settle(t, nil) // 256 reports are acknowledged at once
	if now := s.desks[2].core.Sizes().LateReports; late > 0 && now == late {
		t.Errorf("%d reports still wait after those before them were acknowledged", now)
	}
	for range 4 {
		if more := s.pass(t, second/20); len(more) != 0 {
			t.Fatalf("%d runs too many", len(more))
		}
	}
}

const (
	window = travel.WindowTransfers
	beyond = 300
)

// TestLateReports: reports that find no room in the window wait for the origin's acknowledgements, and none is lost.
func TestLateReports(t *testing.T) {
	s := newStorm(t, window+beyond, travel.Limits{})
	for _, p := range s.runs {
		p.finish(s.town, travel.End{HasResult: true, Result: []byte("some result")})
	}
	core := s.desks[2].core
	if n := core.Counters().PutOff; n < beyond {
		t.Errorf("%d reports were put off, want at least %d", n, beyond)
	}
	if n := core.Sizes().Running; n != 0 {
		t.Errorf("%d of the runs that were given back count as running", n)
	}
	s.root.finish(s.town, travel.End{})
	s.release(t)
	if n := core.Sizes().Invocations; n != 0 {
		t.Errorf("%d invocations are left before their deadline", n)
	}
	if len(s.desks[2].sever) != 0 {
		t.Errorf("severed %v", s.desks[2].sever)
	}
	if err := s.outcome(t); err != nil {
		t.Errorf("the future ended with %v", err)
	}
	s.empty(t)
}

// TestLateFailures: a branch that fails while the window is full reports it once, whether the runtime gives it
// back before there is room or afterwards.
func TestLateFailures(t *testing.T) {
	for _, first := range []bool{true, false} {
		s := newStorm(t, window+1, travel.Limits{Parts: 1})
		last := s.runs[window]
		for _, p := range s.runs[:window] {
			p.finish(s.town, travel.End{})
		}
		core := last.d.core
		if err := core.Part(s.now, last.r, nil); err == nil {
			t.Fatal("a part found room in a full window")
		}
		if _, err := core.Fork(s.now, last.r, 9, nil, nil); err == nil || core.Counters().PutOff != 1 {
			t.Fatalf("a fork to nobody: %v, %d reports put off", err, core.Counters().PutOff)
		}
		if first {
			last.finish(s.town, travel.End{})
		}
		s.release(t)
		if !first {
			last.finish(s.town, travel.End{})
		}
		s.settle(t, nil)
		if err := s.outcome(t); err == nil || !strings.Contains(err.Error(), "has no endpoint") {
			t.Errorf("given back first %v: the future ended with %v", first, err)
		}
		s.root.finish(s.town, travel.End{})
		s.pass(t, second)
		s.empty(t)
	}
}

// TestLateReportsEnd: reports that wait go with their invocation, and with the origin.
func TestLateReportsEnd(t *testing.T) {
	for name, end := range map[string]func(s *storm){
		"canceled": func(s *storm) { s.desks[0].core.Cancel(s.now, s.id) },
		"expired":  func(s *storm) { s.now += 20 * second },
		"lost": func(s *storm) {
			s.desks[0].core.PeerLost(s.now, 3, errors.New("cut"))
			s.desks[2].core.PeerLost(s.now, 1, errors.New("cut"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorm(t, window+beyond, travel.Limits{})
			for _, p := range s.runs[:window+beyond-1] {
				p.finish(s.town, travel.End{})
			}
			last := s.runs[window+beyond-1] // its report waits while the runtime has it
			if _, err := last.d.core.Fork(s.now, last.r, 9, nil, nil); err == nil {
				t.Fatal("a fork to nobody was taken")
			}
			if n := last.d.core.Counters().PutOff; n != beyond {
				t.Fatalf("%d reports were put off, want %d", n, beyond)
			}
			end(s)
			s.carry(t)
			if n := last.d.core.Sizes().LateReports; n != 0 && name != "expired" {
				t.Errorf("%d reports still wait", n)
			}
			s.deliver(t)
			last.finish(s.town, travel.End{})
			s.root.finish(s.town, travel.End{})
			if name != "lost" {
				s.release(t)
			}
			s.pass(t, second)
			if err := s.outcome(t); err == nil {
				t.Error("the future ended without an error")
			}
			if n := s.desks[2].core.Sizes(); n.Invocations+n.Running+n.Records > 0 {
				t.Errorf("left at the third desk: %+v", n)
			}
		})
	}
}

// TestLateAfterOthers: a report that waits goes out as soon as there is room, also where that is not because the
// origin has acknowledged others but because their time is up.
func TestLateAfterOthers(t *testing.T) {
	s := newStorm(t, window, travel.Limits{})
	storms := s.runs
	s.runs = nil
	s.start(t, travel.StartArgs{Deadline: s.now + 100*second}, 2)
	s.carry(t)
	root := s.one(t, s.runs)
	if err := root.d.core.Forward(s.now, root.r, 3, nil); err != nil {
		t.Fatal(err)
	}
	root.finish(s.town, travel.End{})
	s.runs = nil
	s.carry(t)
	last := s.one(t, s.runs)
	for _, p := range storms {
		p.finish(s.town, travel.End{})
	}
	last.finish(s.town, travel.End{HasResult: true, Result: []byte("worth waiting for")})
	third := s.desks[2]
	if n := third.core.Sizes().LateReports; n != 1 {
		t.Fatalf("%d reports wait, want 1", n)
	}
	third.take()
	s.now += 4 * second // the storm's time, not the other's
	third.core.Tick(s.now)
	if kinds(third.take(), 1, travel.KindDone) != 1 || third.core.Sizes().LateReports != 0 {
		t.Error("the report still waits")
	}
}

// TestLateBound: an origin that acknowledges nothing is given up when its reports take more than a sender may hold.
func TestLateBound(t *testing.T) {
	s := newStorm(t, window+beyond, travel.Limits{PrincipalHeldBytes: 4096})
	for _, p := range s.runs {
		p.finish(s.town, travel.End{})
	}
	if got := s.desks[2].sever; len(got) != 1 || got[0] != 1 {
		t.Fatalf("severed %v, want peer 1, once", got)
	}
	if n := s.desks[2].core.Counters().PutOff; n > 4096/512 {
		t.Errorf("%d reports were put off, room was for 8", n)
	}
}
