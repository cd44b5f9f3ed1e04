package shm

import (
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/fabrictest"
)

func TestConformance(t *testing.T) {
	fabrictest.Run(t, func() (fabric.Transport, string, error) {
		tr, err := New(Config{})
		return tr, "shm://" + uniqueName(), err
	})
}
