package excache

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/pool"
)

// TestReleaseOfLost: a component that does not answer is waited for once, not once for each room.
func TestReleaseOfLost(t *testing.T) {
	asked := 0
	s := NewRegions(nil, "n1")
	s.forget = func(*pool.Region) error {
		asked++
		return errors.New("no answer in time")
	}
	for range 64 {
		s.rooms = append(s.rooms, new(pool.Region))
	}
	for r := range 64 {
		s.Release(r)
	}
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}
