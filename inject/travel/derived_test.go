package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// derive binds the town's function with constants, at an element.
func (w *town) derive(t *testing.T, p placed, constants string) *travel.Binding {
	t.Helper()
	what := w.bind.What
	what.Constants = constants
	b, err := p.d.core.BindAs(w.now, what)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDerived: a branch that goes on as a derived function brings the constants, though everything else is as large as it may be, and
// the code is there already; the branches that it forks bring theirs. The call is complete when all have ended.
func TestDerived(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{Trace: &travel.Trace{TraceID: [16]byte{1}}}, 2)
	p := w.one(t, w.settle(t, nil))
	var runs []placed
	const forks = 300
	for range forks {
		b := w.derive(t, p, "leaf")
		if _, err := p.d.core.Fork(w.now, p.r, 3, b, nil); err != nil {
			t.Fatal(err)
		}
		p.d.core.Unbind(b)
	}
	if err := p.d.core.Part(w.now, p.r, []byte("part")); err != nil {
		t.Fatal(err)
	}
	long, payload := strings.Repeat("c", travel.MaxConstantsBytes), make([]byte, travel.MaxDataBytes)
	b := w.derive(t, p, long)
	if err := p.d.core.ForwardAs(w.now, p.r, 3, 0, b, payload); err != nil {
		t.Fatal(err)
	}
	p.d.core.Unbind(b)
	p.finish(w, travel.End{})
	seen := map[string]int{}
	for runs = w.settle(t, nil); len(runs) > 0; runs = w.settle(t, nil) {
		for _, q := range runs {
			what := q.r.Binding().What
			seen[what.Constants]++
			if what.Constants = ""; what != w.bind.What {
				t.Errorf("%v ran", what)
			}
			q.finish(w, travel.End{})
		}
	}
	if err := w.outcome(t); err != nil || len(seen) != 2 || seen["leaf"] != forks || seen[long] != 1 {
		t.Errorf("%d functions ran, leaf %d times: %v", len(seen), seen["leaf"], err)
	}
	if n := w.desks[0].ended[0].Branches; n != forks+1 {
		t.Errorf("%d branches, want %d", n, forks+1)
	}
	w.empty(t)
}

// TestDerivedBrings: the code of a derived function goes along only where nobody knows it.
func TestDerivedBrings(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	p.d.take()
	for i, want := range []bool{true, false, false} { // whether the message has the code: the second has the same constants, the third has others
		b := w.derive(t, p, []string{"one", "one", "two"}[i])
		if i == 2 {
			if _, err := p.d.core.Fork(w.now, p.r, 3, nil, nil); err != nil {
				t.Fatal(err)
			}
			w.settle(t, nil)
		}
		if _, err := p.d.core.Fork(w.now, p.r, 3, b, nil); err != nil {
			t.Fatal(err)
		}
		msg := p.d.sent[p.d.n-1]
		code := string(w.desks[0].store[w.bind.Image])
		if has := strings.Contains(string(msg.body), code); msg.kind != travel.KindInject || has != want || !strings.Contains(string(msg.body), b.Constants) {
			t.Errorf("message %d brings the code: %v, want %v; %q", i, has, want, msg.body)
		}
		w.settle(t, nil)
	}
}

// TestTooManyConstants: the bound is named.
func TestTooManyConstants(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	what := w.bind.What
	what.Constants = strings.Repeat("c", travel.MaxConstantsBytes+1)
	if _, err := w.desks[0].core.BindAs(w.now, what); !errors.Is(err, travel.ErrTooLarge) || !strings.Contains(err.Error(), "4096") {
		t.Error(err)
	}
}
