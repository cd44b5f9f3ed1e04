package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// TestTie: two elements that dial each other, several times each and at any moment, over wires that lose and reorder, have one
// connection, and every dial gets it; so again after it was lost, also if one end has noticed and the other has not.
func TestTie(t *testing.T) {
	trials.Each(t, few(200), func(seed uint64, fail seeds.Fail) {
		w := sim.New(seed, sim.Faults{})
		f := quiet
		f.Loss, f.Duplicate, f.Pieces = 0.1, 0.1, 0.5
		n := sim.NewNetwork(w, f)
		defer n.Close()
		var hosts [2]*sim.Host
		for i, name := range []string{"a", "b"} {
			var err error
			if hosts[i], err = n.Add(name, sim.Program{Start: func(h *sim.Host) error {
				_, err := h.Element().Listen("sim://" + h.Name)
				return err
			}}); err != nil {
				fail("%v", err)
			}
		}
		var before [2]*fabric.Endpoint // that end, or have ended
		for round := range 4 {
			var got [2][]*fabric.Endpoint
			const each = 3
			for i, h := range hosts {
				for range each {
					h.Fork(func(ctx context.Context) {
						h.Sleep(w.Between(0, 500*time.Microsecond))
						ep, err := h.Element().Dial(ctx, "sim://"+hosts[1-i].Name)
						if err != nil {
							fail("round %d: %s dials: %v", round, h.Name, err)
						}
						got[i] = append(got[i], ep)
					})
				}
			}
			w.Run(time.Second)
			for i, h := range hosts {
				eps := h.Element().Endpoints()
				if len(eps) != 1 || len(got[i]) != each {
					fail("round %d: %s has %v after %d dials", round, h.Name, eps, len(got[i]))
				}
				if before[i] != nil && (before[i] == eps[0] || before[i].Err() == nil) {
					fail("round %d: %s still has %v", round, h.Name, before[i])
				}
				for _, ep := range got[i] {
					if ep != eps[0] && ep != before[i] { // which it had while it had not noticed
						fail("round %d: %s has %v, and a dial got %v", round, h.Name, eps, ep)
					}
				}
			}
			for i, h := range hosts {
				before[i] = h.Element().Endpoints()[0]
			}
			before[w.Rand.IntN(2)].Close()
			if round%2 == 0 {
				w.Run(time.Second)
			}
		}
	})
}
