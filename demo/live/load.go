package live

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

const (
	// ChaseIndices is the length of the pointer chase's table: 8 MiB, in equal blocks on any power of two of elements. It is
	// larger than a chase, as data is that somebody would not fetch for one question.
	ChaseIndices = 1 << 20
	// chaseSeed makes the same permutation every time.
	chaseSeed = 2208_01154
	// removeTime bounds taking the demo's datasets away again.
	removeTime = 10 * time.Second
)

// Loaded is the demo's data on nodes.
type Loaded struct {
	Data   demo.Data
	client *client.Client
	names  []string // of datasets
	opened []*Backend
}

// Layouts cut a graph and the chase's table for so many elements.
func Layouts(g *debgraph.Graph, elements int) (graph, chase demo.Layout, err error) {
	if graph, err = demo.GraphLayout(g, elements); err == nil {
		chase, err = demo.ChaseLayout(ChaseIndices, elements)
	}
	return graph, chase, err
}

// Need is the memory that the element with the most data lends: whole segments, in which the windows of a shard lie together.
func Need(layouts ...demo.Layout) uint64 {
	most := uint64(0)
	for e := range layouts[0].Elements {
		sum := uint64(0)
		for _, l := range layouts {
			windows := l.WindowBytes[e]
			_, file := column.Places(windows)
			sum += segmentBytes(file)
			if len(windows) == 1 { // the chase's rows, which have a directory
				sum += segmentBytes(part.FixedDirectoryBytes(windows[0] / 8))
			}
		}
		most = max(most, sum)
	}
	return most
}

func segmentBytes(n uint64) uint64 {
	return (max(n, 1) + fabric.SegmentAlign - 1) / fabric.SegmentAlign * fabric.SegmentAlign
}

// Load puts a graph and the chase's table on nodes, a block each, under names of their own. Close takes
// them away.
func Load(ctx context.Context, c *client.Client, nodes []string, g *debgraph.Graph) (*Loaded, error) {
	var b [4]byte
	rand.Read(b[:])
	prefix := "demo-" + hex.EncodeToString(b[:])
	l := &Loaded{client: c, Data: demo.Data{Graph: g}}
	err := l.graph(ctx, prefix+"-graph", nodes)
	if err == nil {
		err = l.chase(ctx, prefix+"-chase", nodes)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Loaded) graph(ctx context.Context, name string, nodes []string) error {
	g := l.Data.Graph
	csr := &dataset.CSR{Offsets: g.Fwd.Off, Targets: g.Fwd.Dst, RevOffsets: g.Rev.Off, RevTargets: g.Rev.Dst}
	plan, err := dataset.PlanCSR(csr, dataset.Spread{Elements: uint32(len(nodes))})
	if err != nil {
		return err
	}
	if l.Data.GraphLayout, err = demo.GraphLayout(g, len(nodes)); err != nil {
		return err
	}
	at, err := l.load(ctx, client.LoadSpec{Name: name, Nodes: nodes, Plan: plan}, l.Data.GraphLayout, nil)
	if err == nil {
		l.Data.GraphAt = at
	}
	return err
}

func (l *Loaded) chase(ctx context.Context, name string, nodes []string) error {
	var err error
	if l.Data.Next, err = demo.Permutation(ChaseIndices, chaseSeed); err != nil {
		return err
	}
	if l.Data.ChaseLayout, err = demo.ChaseLayout(ChaseIndices, len(nodes)); err != nil {
		return err
	}
	rows, err := schema.Parse("next:u64")
	if err != nil {
		return err
	}
	spec := client.LoadSpec{Name: name, Nodes: nodes, Writable: true, Input: dataset.NewText("permutation", demo.ChaseBytes(l.Data.Next)),
		Options: dataset.Options{Format: dataset.RawFile, Schema: rows}}
	at, err := l.load(ctx, spec, l.Data.ChaseLayout, l.Data.Next)
	if err == nil {
		l.Data.ChaseAt, l.Data.SetNext = at, at.setNext
	}
	return err
}

func (l *Loaded) load(ctx context.Context, spec client.LoadSpec, layout demo.Layout, next []uint64) (*Backend, error) {
	if _, err := l.client.Load(ctx, spec, nil); err != nil {
		return nil, err
	}
	l.names = append(l.names, spec.Name)
	b, err := Open(ctx, l.client, spec.Name, layout, next)
	if err != nil {
		return nil, err
	}
	l.opened = append(l.opened, b)
	return b, nil
}

// Close removes what was loaded.
func (l *Loaded) Close() error {
	for _, b := range l.opened {
		b.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	var first error
	for _, name := range l.names {
		if err := l.client.Remove(ctx, name); err != nil && first == nil {
			first = fmt.Errorf("live: dataset %s stays on its nodes: %w", name, err)
		}
	}
	l.names, l.opened = nil, nil
	return first
}
