// Package failing is what scripts/soak.sh is tried on.
package failing

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSimFresh takes rapid's seed.
func TestSimFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.Int().Draw(t, "n") })
}

// TestSimFailing finds something after checks that passed.
func TestSimFailing(t *testing.T) {
	checks := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "drawn")
		if checks++; checks > 20 {
			t.Fatalf("found with %d", n)
		}
	})
}
