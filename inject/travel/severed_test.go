package travel_test

import (
	"errors"
	"strings"
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

// TestSeveredReport: a branch whose report could not even be kept is lost with the endpoint to its origin, who hears it
// from the element that handed the branch on, and not by the deadline.
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

// TestLostWithoutRoom: that a branch was lost is reported by the element before, if there is no room for a report
// that is certain to arrive.
func TestLostWithoutRoom(t *testing.T) {
	s := newStorm(t, window, travel.Limits{})
	last := s.another(t)
	s.deliver(t)
	// The third desk fills its window to the origin and sends the branch back to the second, which takes it not.
	if err := last.d.core.Forward(s.now, last.r, 2, nil); err != nil {
		t.Fatal(err)
	}
	last.finish(s.town, travel.End{})
	var sent *sentMsg
	for i, m := range s.desks[2].sent {
		if m.to == 2 && m.kind == travel.KindInject {
			sent = &s.desks[2].sent[i]
		}
	}
	if sent == nil {
		t.Fatal("no branch on its way")
	}
	no, err := travel.Refusal(sent.body, travel.CodeRefused, "no")
	if err != nil {
		t.Fatal(err)
	}
	*sent = s.desks[2].sent[len(s.desks[2].sent)-1]
	s.desks[2].sent = s.desks[2].sent[:len(s.desks[2].sent)-1]
	if _, err := s.desks[2].core.Recv(s.now, 2, travel.KindRefused, no); err != nil {
		t.Fatal(err)
	}
	s.held = nil // and its endpoint to the origin is lost before anything of that arrives
	s.deliver(t)
	s.deliver(t)
	ended := s.desks[0].ended
	if len(ended) != 1 || !strings.Contains(ended[0].Err.Error(), "no") {
		t.Fatalf("%d futures ended (%v), want the one whose branch was refused", len(ended), ended)
	}
}

// TestSeveredRoot is the same where the origin itself handed the branch over, and what the branch forked is accepted
// before the endpoint ends: the origin is not told that nothing is left to be lost.
func TestSeveredRoot(t *testing.T) {
	s := newStorm(t, window, travel.Limits{PrincipalHeldBytes: 4096})
	s.start(t, travel.StartArgs{Deadline: s.now + 100*second}, 3)
	s.carry(t)
	root := s.runs[len(s.runs)-1]
	for _, p := range s.runs[:len(s.runs)-1] {
		p.finish(s.town, travel.End{})
	}
	if _, err := root.d.core.Fork(s.now, root.r, 2, nil, nil); err != nil {
		t.Fatal(err)
	}
	root.finish(s.town, travel.End{HasResult: true, Result: make([]byte, 5000)})
	if got := s.desks[2].sever; len(got) != 1 || got[0] != 1 {
		t.Fatalf("severed %v, want peer 1, once", got)
	}
	s.deliver(t) // the second desk accepts what was forked
	s.deliver(t)
	s.desks[0].deliverFrom(t, s.now, 3, s.held)
	s.deliver(t)
	s.held = nil
	s.desks[2].core.PeerLost(s.now, 1, errors.New("severed"))
	s.desks[0].core.PeerLost(s.now, 3, errors.New("severed"))
	s.deliver(t)
	s.deliver(t)
	if ended := s.desks[0].ended; len(ended) != 1 || !errors.Is(ended[0].Err, travel.ErrPeerLost) {
		t.Errorf("%d futures ended (%v), want the one whose branch was lost", len(ended), ended)
	}
}
