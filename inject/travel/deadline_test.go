package travel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestDeadlineNamesElements: when time is over, and no element has said so, the error names those that may still have branches: of a function that
// goes nowhere those that have not answered, of one that moves on all that it may have gone to.
func TestDeadlineNamesElements(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, w *town)
		at   []string
	}{
		{"it stays, and one of two has answered", func(t *testing.T, w *town) {
			w.bind.Elements = nil
			w.start(t, travel.StartArgs{}, 2, 3)
			runs := w.settle(t, nil)
			if len(runs) != 2 {
				t.Fatalf("%d runs", len(runs))
			}
			for _, p := range runs {
				if p.d == w.desks[1] {
					p.finish(w, travel.End{})
				}
			}
		}, []string{"c"}},
		{"one stays, the only record short", func(t *testing.T, w *town) {
			w.bind.Elements = nil
			ask := func() travel.FutureID { return w.desks[0].core.Ask(w.now, w.bind, 3, w.now+second, []byte("go")) }
			if ask() == 0 { // the element does not know the function yet
				w.start(t, travel.StartArgs{}, 3)
				w.one(t, w.settle(t, nil)).finish(w, travel.End{})
				w.settle(t, nil)
				w.desks[0].ended = nil
				if ask() == 0 {
					t.Fatal("the function does not start")
				}
			}
		}, []string{"c"}},
		{"it moves, and began elsewhere", func(t *testing.T, w *town) {
			w.start(t, travel.StartArgs{}, 2)
			w.one(t, w.settle(t, nil)).onward(t, w, 3)
		}, []string{"b", "c"}},
		{"it is here", func(t *testing.T, w *town) {
			w.start(t, travel.StartArgs{}, travel.Self)
			w.one(t, w.settle(t, nil))
		}, []string{"a"}},
		{"it went from here to where the caller does not know that it goes", func(t *testing.T, w *town) {
			w.bind.Elements = nil
			w.start(t, travel.StartArgs{}, travel.Self)
			w.one(t, w.settle(t, nil)).onward(t, w, 3)
		}, []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTown(t, 3, travel.Limits{})
			c.run(t, w)
			w.settle(t, nil)
			w.desks[0].core.Tick(w.now + 10*second) // nobody else notices
			var late *travel.DeadlineError
			if err := w.outcome(t); !errors.As(err, &late) || !errors.Is(err, travel.ErrDeadline) {
				t.Fatalf("it ended with %v", err)
			}
			if !slices.Equal(late.Elements, c.at) {
				t.Errorf("it names %v, want %v", late.Elements, c.at)
			}
			if text := late.Error(); !strings.Contains(text, strings.Join(c.at, ", ")) {
				t.Errorf("it says %q", text)
			}
		})
	}
}

// TestDeadlineOfMany: an error stays short, whatever there is to name.
func TestDeadlineOfMany(t *testing.T) {
	w := newTown(t, 20, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	w.desks[0].core.Tick(w.now + 10*second)
	var late *travel.DeadlineError
	if err := w.outcome(t); !errors.As(err, &late) || len(late.Elements) != 8 || late.More != 11 || !strings.Contains(err.Error(), "and 11 more") {
		t.Errorf("it ended with %v", err)
	}
}

// TestDeadlineWithoutBranches: an error that can name no branch has no empty list.
func TestDeadlineWithoutBranches(t *testing.T) {
	const want = "travel: no time is left; 2 branches had not ended; they were at a"
	if text := (&travel.DeadlineError{Pending: 2, Elements: []string{"a"}}).Error(); text != want {
		t.Errorf("it says %q, want %q", text, want)
	}
}
