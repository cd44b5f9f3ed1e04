package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// another starts a second future, whose root goes on from the second desk to the third, where it is all that still
// runs: the others' reports fill the window to the origin.
func (s *storm) another(t *testing.T) (last placed) {
	t.Helper()
	s.start(t, travel.StartArgs{Deadline: s.now + 100*second}, 2)
	s.carry(t)
	root := s.runs[len(s.runs)-1]
	s.runs = s.runs[:len(s.runs)-1]
	if err := root.d.core.Forward(s.now, root.r, 3, nil); err != nil {
		t.Fatal(err)
	}
	root.finish(s.town, travel.End{})
	s.deliver(t)
	last = s.runs[len(s.runs)-1]
	for _, p := range s.runs[:len(s.runs)-1] {
		p.finish(s.town, travel.End{})
	}
	return last
}

// TestSeveredReport: a branch whose report could not even be kept is lost with the endpoint to its origin, who sees
// that loss, and does not wait for the deadline.
func TestSeveredReport(t *testing.T) {
	s := newStorm(t, window, travel.Limits{PrincipalHeldBytes: 4096})
	last := s.another(t)
	last.finish(s.town, travel.End{HasResult: true, Result: make([]byte, 5000)})
	if got := s.desks[2].sever; len(got) != 1 || got[0] != 1 {
		t.Fatalf("severed %v, want peer 1, once", got)
	}
	s.held = nil
	s.desks[2].core.PeerLost(s.now, 1, errors.New("severed"))
	s.desks[0].core.PeerLost(s.now, 3, errors.New("severed"))
	s.deliver(t)
	s.deliver(t)
	if n := len(s.desks[0].ended); n != 2 {
		t.Fatalf("%d of 2 futures ended before their deadline", n)
	}
	for _, o := range s.desks[0].ended {
		if !errors.Is(o.Err, travel.ErrPeerLost) {
			t.Error(o.Err)
		}
	}
}
