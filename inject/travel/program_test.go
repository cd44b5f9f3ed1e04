package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// newShop is a town of three whose desk 1 has so many places for runs; what it gave back is counted.
func newShop(t *testing.T, l travel.Limits) (w *town, unreserved *int) {
	unreserved = new(int)
	w = newTown(t, 3, l)
	w.desks[1].unreserve = func(r *travel.Run) {
		if r.User == nil {
			t.Error("a run that waited has lost its User")
		}
		*unreserved++
	}
	return w, unreserved
}

// unready has desk 1 get one run from desk 0 and give it back until its program is ready.
func unready(t *testing.T, w *town, a travel.StartArgs) *travel.Run {
	t.Helper()
	w.start(t, a, 2)
	p := w.one(t, w.settle(t, nil))
	p.r.User = "host"
	if !p.d.core.AwaitProgram(w.now, p.r) {
		t.Fatal("a run was not taken back")
	}
	return p.r
}

// TestProgramWait: a run that waits for its program holds no place, and goes on when that is ready.
func TestProgramWait(t *testing.T) {
	w, unreserved := newShop(t, travel.Limits{Running: 1})
	r := unready(t, w, travel.StartArgs{})
	if s := w.desks[1].core.Sizes(); s.Running != 0 || s.Unready != 1 || s.HeldRuns != 1 {
		t.Errorf("while it waits: %+v", s)
	}
	w.start(t, travel.StartArgs{}, 2) // another one has the only place meanwhile
	other := w.one(t, w.settle(t, nil))
	other.finish(w, travel.End{})
	w.settle(t, nil)
	w.outcome(t)
	w.desks[1].core.ProgramReady(r)
	again := w.one(t, w.settle(t, nil))
	if again.r != r || again.r.User != "host" {
		t.Error("it is another run than the one that waited, or has another User")
	}
	if n := w.desks[1].core.Counters().Runs; n != 2 {
		t.Errorf("%d runs are counted, want 2", n)
	}
	again.finish(w, travel.End{})
	w.settle(t, nil)
	for _, o := range w.desks[0].ended {
		if o.Err != nil {
			t.Error(o.Err)
		}
	}
	if *unreserved != 0 {
		t.Error("a run that began was given up")
	}
	w.empty(t)
}

// TestProgramsHeld: of one principal no more wait for their programs than may wait; then its origin is told to keep further ones back.
func TestProgramsHeld(t *testing.T) {
	const held = 3
	w, _ := newShop(t, travel.Limits{PrincipalHeldRuns: held})
	for range held + 1 {
		unready(t, w, travel.StartArgs{})
	}
	if s := w.desks[1].core.Sizes(); s.HeldRuns != held || s.Paced != 1 {
		t.Errorf("while they wait: %+v", s)
	}
	a := travel.StartArgs{Binding: w.bind, Deadline: w.now + second, Roots: []travel.Root{{To: 2, Payload: []byte("go")}}}
	if _, err := w.desks[0].core.Start(w.now, &a); !errors.Is(err, travel.ErrBackpressure) {
		t.Errorf("one more: %v, want it to be kept back", err)
	}
}

// TestProgramEnds: a run that waits for its program ends with its error, with its time and with its caller's patience; each gives it up once.
func TestProgramEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *town, r *travel.Run)
		want error
		says string
	}{
		"program fails": {func(w *town, r *travel.Run) {
			w.desks[1].core.ProgramFailed(w.now, r, travel.CodeRefused, "no such relocation")
		}, travel.ErrRefused, "no such relocation"},
		"time is over": {func(w *town, r *travel.Run) {
			w.now += 2 * second
			w.desks[1].core.Tick(w.now) // before its origin gives up
		}, travel.ErrDeadline, "waited for its program"},
		"origin is lost": {func(w *town, r *travel.Run) { w.desks[1].core.PeerLost(w.now, 1, errors.New("gone")) }, nil, ""},
		"it is drained":  {func(w *town, r *travel.Run) { w.desks[1].core.EndAll(w.now, "it stops") }, travel.ErrStopping, "it stops"},
	} {
		w, unreserved := newShop(t, travel.Limits{})
		r := unready(t, w, travel.StartArgs{Stateful: name == "time is over"})
		c.end(w, r)
		w.settle(t, nil)
		if *unreserved != 1 {
			t.Errorf("%s: it was given up %d times", name, *unreserved)
		}
		if s := w.desks[1].core.Sizes(); s.Unready != 0 || s.HeldRuns != 0 {
			t.Errorf("%s: %+v is left", name, s)
		}
		if c.want != nil {
			if err := w.outcome(t); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestProgramCancel: a call that is canceled while its program is made ready lets go of it, also if the run is told before it is given back.
func TestProgramCancel(t *testing.T) {
	w, unreserved := newShop(t, travel.Limits{})
	f := w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	p.r.User = "host"
	p.d.core.AwaitProgram(w.now, p.r)
	if err := w.desks[0].core.Cancel(w.now, f); err != nil {
		t.Fatal(err)
	}
	w.settle(t, nil)
	if *unreserved != 1 {
		t.Errorf("it was given up %d times", *unreserved)
	}
	f = w.start(t, travel.StartArgs{}, 2)
	p = w.one(t, w.settle(t, nil))
	p.r.User = "host"
	if err := w.desks[0].core.Cancel(w.now, f); err != nil {
		t.Fatal(err)
	}
	w.settle(t, nil)
	if p.d.core.AwaitProgram(w.now, p.r) {
		t.Error("a run waits whose call was canceled")
	}
	w.empty(t)
}

// TestProgramTurn: of a stateful invocation the branch that waits for its program keeps its turn.
func TestProgramTurn(t *testing.T) {
	w, _ := newShop(t, travel.Limits{})
	w.start(t, travel.StartArgs{Stateful: true}, 2, 2)
	p := w.one(t, w.settle(t, nil))
	p.r.User = "host"
	p.d.core.AwaitProgram(w.now, p.r)
	if runs := w.settle(t, nil); len(runs) != 0 {
		t.Errorf("%d branches begin before it", len(runs))
	}
	p.d.core.ProgramReady(p.r)
	w.one(t, w.settle(t, nil)).finish(w, travel.End{})
	w.one(t, w.settle(t, nil)).finish(w, travel.End{})
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Error(err)
	}
}
