package travel_test

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestManyBranchesInTurn: an invocation may have any number of branches, if few are under way at once; with a
// budget of its own, that many in all. Hops that are not counted never run out.
func TestManyBranchesInTurn(t *testing.T) {
	for _, budget := range []uint32{0, 40} {
		w := newTown(t, 3, travel.Limits{Branches: 40})
		w.start(t, travel.StartArgs{Hops: travel.MaxHops, Branches: budget}, 2)
		const steps = 5000 // beyond 12 bits
		p := w.one(t, w.settle(t, nil))
		n := 1
		for ; n < steps && len(w.desks[0].ended) == 0; n++ {
			to := travel.Peer(3)
			if p.d == w.desks[2] {
				to = 2
			}
			if _, err := p.d.core.Fork(w.now, p.r, to, nil, []byte("next")); err != nil {
				t.Fatalf("branch %d: %v", n, err)
			}
			p.finish(w, travel.End{})
			runs := w.settle(t, nil)
			if n%200 == 0 {
				runs = append(runs, w.pass(t, 3e7)...) // acknowledgements
			}
			if len(runs) == 0 {
				break
			}
			p = runs[0]
		}
		if budget == 0 {
			p.finish(w, travel.End{})
			w.settle(t, nil)
		}
		err := w.outcome(t)
		if budget == 0 && (err != nil || n != steps || w.desks[0].ended[0].Branches != steps) {
			t.Errorf("%d branches, one at a time: %v", n, err)
		}
		if budget > 0 && (!errors.Is(err, travel.ErrForkLimit) || n > 50) {
			t.Errorf("a budget of %d: after %d it ended with %v", budget, n, err)
		}
	}
}
