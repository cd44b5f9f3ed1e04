package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

func TestOneHop(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	trace := &travel.Trace{TraceID: [16]byte{1}, Flags: 1}
	w.start(t, travel.StartArgs{Trace: trace, Hops: 9}, 2)
	p := w.one(t, w.settle(t, nil))
	if got, ok := p.r.Trace(); !ok || got != *trace || p.r.Hops() != 9 || string(p.r.Payload) != "go" || p.r.Origin() != 1 || p.r.Branch() != 0 {
		t.Errorf("the run has trace %v %v, hops %d, payload %q, origin %d", got, ok, p.r.Hops(), p.r.Payload, p.r.Origin())
	}
	p.finish(w, travel.End{HasResult: true, Result: []byte("answer")})
	sent := p.d.take()
	if len(sent) != 1 || sent[0].kind != travel.KindDone || len(sent[0].body) != 9+len("answer") {
		t.Fatalf("the target sent %v, want one DONE of 9 bytes and the answer", sent)
	}
	w.desks[0].deliverFrom(t, w.now, 2, sent)
	if err := w.outcome(t); err != nil || string(w.desks[0].parts[0]) != "answer" {
		t.Fatalf("ended with %v and %q", err, w.desks[0].parts)
	}
	if s := w.desks[0].core.Sizes(); s != (travel.Sizes{}) {
		t.Errorf("the origin still holds %+v", s)
	}
	if s := w.desks[1].core.Sizes(); s != (travel.Sizes{}) {
		t.Errorf("the target still holds %+v", s)
	}
	w.empty(t)
	if c := w.desks[1].core.Counters(); c.Acks != 0 || c.Runs != 1 {
		t.Errorf("a one-hop injection cost %d ACKs and %d runs", c.Acks, c.Runs)
	}
}

// TestCustody: until a branch has arrived its sender knows of it.
func TestCustody(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	for i, to := range []travel.Peer{3, 4, 2, 3} {
		if err := p.d.core.Forward(w.now, p.r, to, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		from := p.d
		p.finish(w, travel.End{})
		p = w.one(t, w.settle(t, nil))
		if n := from.core.Sizes().Records; n != 1 {
			t.Errorf("after hop %d %d messages of its element are under way, want 1", i, n)
		}
		w.pass(t, 25e6) // it is acknowledged
		for k, d := range w.desks {
			if n := d.core.Sizes().Records; n != 0 {
				t.Errorf("after hop %d desk %d knows of %d messages under way, want none", i, k, n)
			}
		}
	}
	p.finish(w, travel.End{})
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Error(err)
	}
	w.empty(t)
}

// TestLostWithItsHolder: the origin sees that the element is lost where a branch is, though it never sent anything there itself.
func TestLostWithItsHolder(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	for _, to := range []travel.Peer{3, 4} {
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, to, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
	}
	w.one(t, w.settle(t, nil))
	w.pass(t, 2e6)
	w.pass(t, 2e6)
	w.desks[0].core.PeerLost(w.now, 4, errors.New("power cut"))
	var lost *travel.PeerLostError
	if err := w.outcome(t); !errors.As(err, &lost) || lost.Element != "d" || lost.Incarnation != 4 || !lost.MayHaveRun {
		t.Fatalf("ended with %v", err)
	}
}

// TestState: scratch is one branch's at a time, and is freed when the future
// ends, also where no branch ended.
func TestState(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		w := newTown(t, 3, travel.Limits{})
		f := w.start(t, travel.StartArgs{Stateful: true}, 2, 2)
		runs := w.settle(t, nil)
		p := w.one(t, runs)
		if err := p.d.core.HoldState(p.r, "mine"); err != nil || p.r.State() != "mine" || !p.r.Stateful() {
			t.Fatal(err, p.r.State())
		}
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.d.core.HoldState(p.r, "late"); !errors.Is(err, travel.ErrEnded) {
			t.Errorf("holding state after the branch moved gives %v", err)
		}
		there := w.one(t, w.settle(t, nil)) // at the third element
		p.finish(w, travel.End{})
		next := w.one(t, w.settle(t, nil))
		if next.d != p.d || next.r.State() != "mine" {
			t.Fatal("the second branch did not get its turn")
		}
		if err := next.d.core.Forward(w.now, next.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		next.finish(w, travel.End{})
		if n := len(w.settle(t, nil)); n != 0 {
			t.Fatal("two branches run at once")
		}
		if err := there.d.core.HoldState(there.r, "theirs"); err != nil {
			t.Fatal(err)
		}
		if cancel {
			if err := w.desks[0].core.Cancel(w.now, f); err != nil {
				t.Fatal(err)
			}
		}
		last := w.settle(t, nil)
		if there.d.freed > 0 {
			t.Error("freed under a run")
		}
		there.finish(w, travel.End{})
		for _, q := range append(last, w.settle(t, nil)...) {
			q.finish(w, travel.End{})
		}
		w.settle(t, nil)
		if there.d.freed != 1 {
			t.Errorf("cancel=%v: state freed %d times at the last element", cancel, there.d.freed)
		}
		_ = w.outcome(t)
		if w.desks[1].freed != 1 {
			t.Errorf("cancel=%v: state freed %d times at the first element", cancel, w.desks[1].freed)
		}
		w.empty(t)
	}
}
