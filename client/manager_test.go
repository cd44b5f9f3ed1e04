package client

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// TestNextManager: the next manager is asked where the first cannot have done anything, and whatever only asks also where it gave no answer in time;
// who answers is asked first from then on.
func TestNextManager(t *testing.T) {
	for _, c := range []struct {
		err          error
		asks, goesOn bool
	}{
		{control.ErrNotConnected, false, true}, {manager.ErrBusy, false, true}, {cluster.ErrAway, false, true}, {cluster.ErrAway, true, true},
		{fmt.Errorf("%w: %w", manager.ErrTime, cluster.ErrAway), false, false}, {fmt.Errorf("%w: %w", manager.ErrTime, cluster.ErrAway), true, true},
		{manager.ErrTime, true, true}, {manager.ErrTime, false, false}, {pool.ErrNoRegion, true, false}, {pool.ErrExists, false, false},
	} {
		cl := Client{links: &control.Links{}}
		cl.managers.heardOf([]string{"a", "b"})
		var asked []string
		err := cl.withManager(t.Context(), c.asks, func(name string) error {
			// as it comes over a connection
			if asked = append(asked, name); name == "a" {
				return fmt.Errorf("node a: %w", c.err)
			}
			return nil
		})
		if (err == nil) != c.goesOn || err != nil && !errors.Is(err, c.err) || (len(asked) == 2) != c.goesOn {
			t.Errorf("%v, only asking: %v: %q were asked: %v", c.err, c.asks, asked, err)
		}
		if first := slices.Index(cl.managers.names, "b"); (first == 0) != c.goesOn {
			t.Errorf("%v: %q", c.err, cl.managers.names)
		}
	}
}
