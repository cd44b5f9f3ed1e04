package dataset

import (
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
)

// Chunks are rows that a program has, as columns.
type Chunks struct {
	Name    string // for messages
	Columns column.Schema
	// Next is the next rows, at most part.ChunkRows, as an array for each column; io.EOF ends it. The load releases them.
	Next func(ctx context.Context) ([]arrow.Array, error)
}

// ScanChunks plans the load of rows that a program has, which it asks for once. All are gathered here, for their number
// decides which go where: no node has anything to wait for meanwhile, however long the program takes.
func ScanChunks(ctx context.Context, in *Chunks, o Options) (*Plan, error) {
	o.Format = Arrow
	if o.Schema != nil || o.Packed {
		return nil, fmt.Errorf("%w: %s: rows of a program are loaded as columns, without a schema", ErrOptions, in.Name)
	}
	if err := o.prepare(); err != nil {
		return nil, err
	}
	if err := in.Columns.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Name, err)
	}
	if o.Spread.Key != "" {
		if err := in.Columns.ValidateKey(o.Spread.Key); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
	}
	if differs := o.Like.Differs(in.Columns); len(o.Like) > 0 && differs != "" {
		return nil, fmt.Errorf("%w: the columns differ: %s against the dataset: %s", ErrInput, in.Name, differs)
	}
	g := &gathered{columns: in.Columns}
	for {
		chunk, err := in.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			g.Close()
			return nil, err
		}
		g.chunks = append(g.chunks, chunk)
		g.total += int64(chunk[0].Len())
		o.Progress(PhaseScan, g.total, -1)
	}
	p := &Plan{Kind: cluster.Columns, Columns: in.Columns, Sharding: o.sharding(0)}
	p.fill = func(ctx context.Context, sink Sink) error {
		defer g.Close()
		return p.fillColumns(ctx, g, sink, &o)
	}
	return p, nil
}

// gathered are chunks of a known number.
type gathered struct {
	columns     column.Schema
	chunks      [][]arrow.Array
	done, total int64
}

func (g *gathered) Columns() column.Schema { return g.columns }

func (g *gathered) Next(context.Context) ([]arrow.Array, error) {
	if len(g.chunks) == 0 {
		return nil, io.EOF
	}
	chunk := g.chunks[0]
	g.chunks = g.chunks[1:]
	g.done += int64(chunk[0].Len())
	return chunk, nil
}

func (g *gathered) Place() (done, total int64) { return g.done, g.total }

func (g *gathered) Close() {
	for _, chunk := range g.chunks {
		releaseAll(chunk)
	}
}
