package client

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
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

// BenchmarkCall makes the same call of a ready function again and again, as a program does: invoke.Run on a table that it
// keeps. The functions have little to do, so what is measured is what a call costs its caller.
func BenchmarkCall(b *testing.B) {
	s := newBench(b, "tcp")
	s.peers = newPeers(b, s, "n1", "n2")
	for _, m := range s.peers {
		s.start(b, m, nil)
	}
	c := s.connect(b, tokenOwner)
	for name, spec := range map[string]LoadSpec{
		"log": {Input: dataset.NewText("log.csv", []byte(strings.Repeat("warn,404\n", 20))),
			Options: dataset.Options{Format: dataset.CSV, Schema: &schema.Schema{Fields: []schema.Field{{Name: "level", Type: schema.Str}, {Name: "status", Type: schema.U16}}}}},
		"web": {Input: dataset.NewText("web.edges", []byte("0 1\n1 2\n2 3\n")), Options: dataset.Options{Format: dataset.Edges}},
	} {
		spec.Name = name
		if _, err := c.Load(b.Context(), spec, nil); err != nil {
			b.Fatal(err)
		}
	}
	for _, f := range []struct {
		name, on string
		args     map[string]string
	}{
		{"count", "log", map[string]string{"column": "status", "op": "ge", "value": "400"}},
		{"closure", "web", map[string]string{"vertices": "0"}},
	} {
		b.Run(f.name, func(b *testing.B) {
			table, err := c.Table(b.Context(), f.on, "r")
			if err != nil {
				b.Fatal(err)
			}
			img, err := xrdma.Lookup(f.name)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := invoke.Run(b.Context(), c.Runtime(), invoke.Request{Image: img, Table: table, Args: f.args}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
