package shm

import (
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/fabrictest"
)

func conform(t *testing.T, cfg Config) {
	fabrictest.Run(t, func() (fabric.Transport, string, error) {
		tr, err := New(cfg)
		return tr, "shm://" + uniqueName(), err
	})
}

func TestConformance(t *testing.T) { conform(t, Config{}) }

// TestConformanceTight is the same with rings that are full soon.
func TestConformanceTight(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformance runs the same checks with room to spare; this one is left out of -short")
	}
	conform(t, Config{Slots: minSlots, DataBytes: minDataBytes})
}
