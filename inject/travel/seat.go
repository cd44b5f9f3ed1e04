package travel

import "github.com/wherry-fabric/wherry/internal/invariants"

// MaxWorkers is how many workers one invocation can have at an element: each has an instance and scratch of its own, and sends
// messages to all the others.
const MaxWorkers = 16

// seats are the workers of a stateful invocation at this element. A worker runs one branch at a time and keeps its own state;
// several run at once, up to Limits.Workers. Most invocations have one.
type seats struct {
	first seat
	more  []*seat // of workers 1, 2, …; they stay with the record
	busy  int     // seats that are taken
	held  int     // seats with state
	last  int     // whose turn it was last
}

type seat struct {
	active  *Run      // whose turn it is
	waiting list[Run] // for their turn
	holds   bool
	state   any
}

// at is a worker's seat, nil if none has had one.
func (s *seats) at(worker int) *seat {
	switch {
	case worker == 0:
		return &s.first
	case worker <= len(s.more):
		return s.more[worker-1]
	}
	return nil
}

// of is the seat of a run's worker.
func (s *seats) of(r *Run) *seat {
	for int(r.worker) > len(s.more) {
		s.more = append(s.more, new(seat))
	}
	return s.at(int(r.worker))
}

func (s *seats) all(f func(*seat)) {
	for i := 0; i <= len(s.more); i++ {
		f(s.at(i))
	}
}

// vacant reports whether a run's worker may begin: it does nothing else, and there are not as many at work as may be.
func (s *seats) vacant(r *Run, most int) bool { return s.of(r).active == nil && s.busy < most }

// take makes it a run's turn, which it may have already.
func (s *seats) take(r *Run) {
	seat := s.of(r)
	if seat.active == nil {
		s.busy++
	} else if invariants.Enabled && seat.active != r {
		panic("travel: two runs have one worker's turn")
	}
	seat.active = r
}

// leave ends a run's turn, if it has it.
func (s *seats) leave(r *Run) bool {
	seat := s.at(int(r.worker))
	if seat == nil || seat.active != r {
		return false
	}
	seat.active = nil
	s.busy--
	return true
}

// next is the branch that waits longest for a seat that is vacant; the seats take turns.
func (s *seats) next(most int) *Run {
	if s.busy >= most {
		return nil
	}
	for i := range len(s.more) + 1 {
		n := (s.last + 1 + i) % (len(s.more) + 1)
		if seat := s.at(n); seat.active == nil && seat.waiting.n > 0 {
			s.last = n
			return seat.waiting.first.v
		}
	}
	return nil
}

// hold keeps the state of a run's worker.
func (s *seats) hold(r *Run, state any) {
	seat := s.of(r)
	if !seat.holds {
		s.held++
	}
	seat.holds, seat.state = true, state
}

// clear forgets who had a turn; nobody waits and nothing is held any more.
func (s *seats) clear() {
	s.all(func(seat *seat) { seat.active = nil })
	s.busy, s.last = 0, 0
}
