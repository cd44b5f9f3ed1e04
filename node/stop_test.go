package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

// TestStopsWhateverRuns: a node that is told to stop does not wait for what cannot be interrupted.
func TestStopsWhateverRuns(t *testing.T) {
	n, err := New(Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: tokens(t, cluster.CapMember, "node"), StopTime: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	compiles := make(chan struct{})
	n.work.Go(func() { <-compiles })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); !errors.Is(err, ErrStillCloses) {
		t.Errorf("%v", err)
	}
	close(compiles)
	if err := n.Close(); err != nil { // which waits for the one that is under way
		t.Error(err)
	}
}
