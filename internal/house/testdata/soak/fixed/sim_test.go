// Package fixed is what scripts/soak.sh is tried on.
package fixed

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestSimFresh takes rapid's seed.
func TestSimFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.Int().Draw(t, "n") })
}

// TestSimFixed is the same each time, whatever it is told.
func TestSimFixed(t *testing.T) {
	if rand.New(rand.NewPCG(1, 1)).Uint64() == 0 {
		t.Error("unlikely")
	}
}
