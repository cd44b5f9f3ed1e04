package component

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/pool"
)

// TestPullTurns: one principal's copies leave turns to others; who waits in vain is told of what.
func TestPullTurns(t *testing.T) {
	var p pulls
	ctx := t.Context()
	for range principalPulls {
		if err := p.begin(ctx, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	over, stop := context.WithCancel(ctx)
	stop()
	if err := p.begin(over, "ann"); !errors.Is(err, pool.ErrMemory) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"ann" has 4 copies`) {
		t.Errorf("a fifth: %v", err)
	}
	if err := p.begin(ctx, "bob"); err != nil {
		t.Error(err)
	}
	turn := make(chan error)
	go func() { turn <- p.begin(ctx, "ann") }()
	p.end("ann")
	if err := <-turn; err != nil {
		t.Error(err)
	}
	p.end("bob")
	for range principalPulls {
		p.end("ann")
	}
	if p.all != 0 || len(p.by) != 0 {
		t.Errorf("%d, %v are left", p.all, p.by)
	}
}
