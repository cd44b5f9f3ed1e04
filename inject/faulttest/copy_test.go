package faulttest

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestLongCopies covers: a function that has the host copy megabytes, over and over. It takes few instructions for that, but its
// run time is used up by it, and nobody else has to wait for its end.
func TestLongCopies(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	f := g.prepare(g.client, guestImage(t, "copier", withLimits(func(l *abi.Limits) {
		l.HeapBytes, l.ScratchBytes, l.RunTime = 20<<20, 0, time.Millisecond
	})), g.table(2<<20, fabric.RightRead, number))
	said := g.nodes[0].own.log
	for range 3 { // the first time it has to be compiled, so that others drive the fabric anyway
		before := said.bytes()
		_, err := run(within(t, patience), f, g.at(0, nil))
		if n := said.bytes() - before; !errors.Is(err, travel.ErrRemote) || n > 20 {
			t.Errorf("after %d copies of 16 MiB in a run time of 1 ms: %v", n, err)
		}
		says(t, err, "n0", "copier", "run_time_ns")
	}
	g.serves()
}
