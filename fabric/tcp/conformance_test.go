package tcp

import (
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/fabrictest"
)

func conform(t *testing.T, cfg Config) {
	var traits fabrictest.Traits
	if cfg.TLS != nil {
		traits.Allocs = 1 + pooledAllocs // crypto/tls allocates a reader of 24 bytes for each record that it takes
	}
	fabrictest.RunWith(t, func() (fabric.Transport, string, error) {
		tr, err := New(cfg)
		return tr, "tcp://127.0.0.1:0", err
	}, traits)
}

func TestConformance(t *testing.T) { conform(t, Config{}) }

// TestConformanceTight is the same with links that are full soon.
func TestConformanceTight(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformance runs the same checks with room to spare; this one is left out of -short")
	}
	conform(t, Config{OutBytes: fabric.MaxFrameBytes + headerBytes})
}

// TestConformanceTLS is the same over TLS: who uses the fabric sees no difference.
func TestConformanceTLS(t *testing.T) { conform(t, Config{TLS: shared(t)}) }

// TestConformanceTLSTight is the same with links that are full soon.
func TestConformanceTLSTight(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformanceTLS runs the same checks with room to spare; this one is left out of -short")
	}
	conform(t, Config{TLS: shared(t), OutBytes: fabric.MaxFrameBytes + headerBytes})
}
