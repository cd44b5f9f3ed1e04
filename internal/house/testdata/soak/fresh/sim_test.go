// Package fresh is what scripts/soak.sh is tried on.
package fresh

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSimFresh takes rapid's seed.
func TestSimFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.Int().Draw(t, "n") })
}
