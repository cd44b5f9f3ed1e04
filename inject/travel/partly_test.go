package travel_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

const partlyRoots = 12

// startPartly starts more roots than there is room for.
func startPartly(t *testing.T) (*town, travel.StartArgs, travel.FutureID) {
	t.Helper()
	w := newTown(t, 2, travel.Limits{Records: 10}) // room for 6
	a := travel.StartArgs{Binding: w.bind, Deadline: w.now + second, Partly: true}
	for range partlyRoots {
		a.Roots = append(a.Roots, travel.Root{To: 2, Payload: []byte("go")})
	}
	id, err := w.desks[0].core.Start(w.now, &a)
	if id == 0 || !errors.Is(err, travel.ErrBackpressure) || a.Sent != 6 {
		t.Fatalf("%d sent as %d: %v", a.Sent, id, err)
	}
	return w, a, id
}

// TestPartly covers: a start that finds room for some of its roots only goes
// on with the others, and ends as any other if it is given up or a root fails.
func TestPartly(t *testing.T) {
	const roots = partlyRoots
	w, a, id := startPartly(t)
	seen := map[uint64]int{}
	for round := 0; a.Sent < roots; round++ {
		if round == 10 {
			t.Fatalf("only %d of %d roots are sent after %d rounds", a.Sent, roots, round)
		}
		for _, p := range w.settle(t, nil) {
			seen[p.r.Branch()]++
			p.d.core.Finish(w.now, p.r, travel.End{HasResult: true, Result: []byte("answer")})
		}
		w.settle(t, nil)
		if len(w.desks[0].ended) > 0 {
			t.Fatal("complete before all roots were sent")
		}
		if err := w.desks[0].core.Resume(w.now, id, &a); err != nil && !errors.Is(err, travel.ErrBackpressure) {
			t.Fatal(err)
		}
	}
	for _, p := range w.settle(t, nil) {
		seen[p.r.Branch()]++
		p.d.core.Finish(w.now, p.r, travel.End{HasResult: true, Result: []byte("answer")})
	}
	w.settle(t, nil)
	if err := w.outcome(t); err != nil || len(seen) != roots || len(w.desks[0].parts) != roots {
		t.Errorf("%v; branches ran %v, %d answers", err, seen, len(w.desks[0].parts))
	}
	for b, n := range seen {
		if n != 1 {
			t.Errorf("branch %d ran %d times", b, n)
		}
	}
	if err := w.desks[0].core.Resume(w.now, id, &a); !errors.Is(err, travel.ErrNoFuture) {
		t.Errorf("after its end: %v", err)
	}
}

// TestPartlyEnds covers: what becomes of such a start that does not go on.
func TestPartlyEnds(t *testing.T) {
	// A root fails.
	w, a, id := startPartly(t)
	p := w.settle(t, nil)[0]
	p.d.core.Finish(w.now, p.r, travel.End{Code: travel.CodeTrap})
	w.settle(t, nil)
	if err := w.outcome(t); !errors.Is(err, travel.ErrRemote) {
		t.Errorf("ended with %v", err)
	}
	if err := w.desks[0].core.Resume(w.now, id, &a); !errors.Is(err, travel.ErrNoFuture) {
		t.Errorf("after a root failed: %v", err)
	}

	// It is given up.
	w, a, id = startPartly(t)
	if err := w.desks[0].core.Cancel(w.now, id); err != nil {
		t.Fatal(err)
	}
	w.settle(t, nil)
	if err := w.outcome(t); !errors.Is(err, travel.ErrCanceled) {
		t.Errorf("ended with %v", err)
	}

	// Its peer is lost, and whoever starts tries all the same.
	w, a, id = startPartly(t)
	w.desks[0].core.PeerLost(w.now, 2, nil)
	if err := w.desks[0].core.Resume(w.now, id, &a); !errors.Is(err, travel.ErrNoFuture) {
		t.Errorf("after the peer was lost: %v", err)
	}

	// What is wrong with a later root ends all.
	w, a, id = startPartly(t)
	for _, p := range w.settle(t, nil) {
		p.d.core.Finish(w.now, p.r, travel.End{})
	}
	w.settle(t, nil)
	a.Roots[a.Sent].To = 77
	if err := w.desks[0].core.Resume(w.now, id, &a); !errors.Is(err, travel.ErrNoPeer) {
		t.Errorf("a root for nobody: %v", err)
	}
	if len(w.desks[0].ended) != 0 || w.desks[0].core.Sizes().Futures != 0 {
		t.Error("the future did not end, or Complete was called")
	}
}

// TestResumeKeepsAge: all roots of a start say the same time of it, also those that go with arguments made anew for Resume.
func TestResumeKeepsAge(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.now = 12345
	d := w.desks[0]
	args := func() travel.StartArgs {
		return travel.StartArgs{Binding: w.bind, Deadline: w.now + second, Stateful: true, Partly: true, Roots: []travel.Root{{To: 2}, {To: 3}}}
	}
	a := args()
	d.fits = 1
	id, err := d.core.Start(w.now, &a)
	if id == 0 || !errors.Is(err, travel.ErrBackpressure) || a.Sent != 1 {
		t.Fatalf("%d sent as %d: %v", a.Sent, id, err)
	}
	d.fits = 0
	again := args()
	again.Sent = a.Sent
	if err := d.core.Resume(w.now+1000, id, &again); err != nil {
		t.Fatal(err)
	}
	msgs := d.take()
	if len(msgs) != 2 {
		t.Fatalf("%d messages, want one for each root", len(msgs))
	}
	for _, m := range msgs {
		at := 14 // the head that all have
		if m.body[1]>>4&2 != 0 {
			at += 8 // the branch
		}
		if born := binary.LittleEndian.Uint64(m.body[at:]); born != 12345 {
			t.Errorf("to %d: started at %d, want 12345", m.to, born)
		}
	}
}
