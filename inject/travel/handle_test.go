package travel_test

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestHandleAfterDerived: however many derived functions a slot has had, of which a peer keeps nothing, the next function's handle means that function there.
func TestHandleAfterDerived(t *testing.T) {
	for turns := range 33 {
		w := newTown(t, 2, travel.Limits{Bindings: 1})
		other := travel.ID{}
		for _, d := range w.desks {
			other = d.put([]byte("other"))
		}
		call := func(what string, want travel.What) {
			t.Helper()
			w.desks[0].ended = nil
			w.start(t, travel.StartArgs{}, 2)
			for _, p := range w.settle(t, nil) {
				if p.r.Binding().What != want {
					t.Errorf("%s after %d derived functions: %v ran", what, turns, p.r.Binding().What)
				}
				p.finish(w, travel.End{})
			}
			w.pass(t, second/100)
			if err := w.outcome(t); err != nil {
				t.Errorf("%s after %d derived functions: %v", what, turns, err)
			}
		}
		is := func(what travel.What) {
			t.Helper()
			w.desks[0].core.Unbind(w.bind)
			var err error
			if w.bind, err = w.desks[0].core.BindAs(w.now, what); err != nil {
				t.Fatal(err)
			}
		}
		call("the first function", w.bind.What)
		call("the first function by its handle", w.bind.What)
		for i := range turns {
			is(travel.What{Image: w.image, Constants: fmt.Sprint(i)})
			call("a derived function", w.bind.What)
		}
		is(travel.What{Image: other})
		call("another function", w.bind.What)
		call("another function by its handle", w.bind.What)
	}
}
