package client

import (
	"bytes"
	"io"
	"testing"

	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/schema"
)

// BenchmarkLoad loads 32 MiB of raw records to two nodes, and BenchmarkRead
// reads them back; the dataset's parsing takes next to nothing.
func benchData(b *testing.B, scheme string) (*Client, LoadSpec) {
	s := newBench(b, scheme)
	s.peers = newPeers(b, s, "n1", "n2")
	for _, m := range s.peers {
		s.start(b, m, func(c *node.Config) { c.Memory = 256 << 20 })
	}
	raw := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	return s.connect(b, tokenOwner), LoadSpec{Name: "x", Replace: true, Input: dataset.NewText("x.raw", raw),
		Options: dataset.Options{Format: dataset.RawFile, Schema: &schema.Schema{Fields: []schema.Field{{Name: "a", Type: "bytes16"}}}}}
}

func BenchmarkLoad(b *testing.B) {
	for _, scheme := range []string{"tcp", "shm"} {
		b.Run(scheme, func(b *testing.B) {
			c, spec := benchData(b, scheme)
			b.SetBytes(32 << 20)
			for b.Loop() {
				if _, err := c.Load(b.Context(), spec, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, scheme := range []string{"tcp", "shm"} {
		b.Run(scheme, func(b *testing.B) {
			c, spec := benchData(b, scheme)
			if _, err := c.Load(b.Context(), spec, nil); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(32 << 20)
			for b.Loop() {
				if err := c.ReadWindow(b.Context(), "x", 0, 0, io.Discard); err != nil {
					b.Fatal(err)
				}
				if err := c.ReadWindow(b.Context(), "x", 1, 0, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
