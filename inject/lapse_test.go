package inject_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestCutBesideScratch: the connection to the client ends, and is made again, while an element has nothing of its function but
// scratch. The branch that comes back there ends the call with an error: it does not go on with new scratch.
func TestCutBesideScratch(t *testing.T) {
	for _, transport := range []string{"tcp", "shm"} {
		t.Run(transport, func(t *testing.T) {
			s := newStreetOver(t, transport)
			s.f = s.prepareImage(s.client, stepsImage(t, "keeper", func(m *image.Manifest) { m.Limits.ScratchBytes = 64 << 10 }))
			s.clear()
			begun := s.begun(2)
			again := one(opScratch, 0, 0)
			fut := s.start(within(t, patience), 0, payload(1, one(opScratch, 0, 0), on(1, on(2, append(one(opWait, 0, gate), on(0, again...)...)...)...)))
			await(t, begun)
			eventually(t, func() string {
				z, origin := s.nodes[0].rt.Stats().Sizes, s.client.rt.Stats().Sizes
				if z.Records+z.Running+origin.Records > 0 || z.Stateful != 1 {
					return fmt.Sprintf("n0 keeps more than scratch, or the client keeps records: %+v, %+v", z, origin)
				}
				return ""
			})
			s.client.eps["n0"].Close()
			eventually(t, func() string {
				if z := s.nodes[0].rt.Stats().Sizes; z.Lapsed != 1 {
					return fmt.Sprintf("n0 has not noticed: %+v", z)
				}
				return ""
			})
			if _, err := s.client.el.Dial(within(t, patience), s.nodes[0].addr); err != nil {
				t.Fatal(err)
			}
			runs := len(s.spies[0].runs())
			s.open(2)
			if got, err := wait(t, fut); !errors.Is(err, travel.ErrPeerLost) || !strings.Contains(err.Error(), "n0") {
				t.Errorf("it ended with %q, %v", got, err)
			}
			if n := len(s.spies[0].runs()); n != runs {
				t.Errorf("%d more runs at n0", n-runs)
			}
			s.quiet()
		})
	}
}
