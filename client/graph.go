package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset/batch"
)

// graphRows is how many vertices are read at a time, of all elements together; each may have any number of edges.
const graphRows = 16 << 10

// adjacency is what one element has of a range of vertices: the lists of one kind.
type adjacency struct {
	offsets []byte
	width   uint64
	values  []byte // from the first on
	weights []byte
}

// list is the range of row i's values, in values and weights.
func (a *adjacency) list(i uint64) (from, to uint64) {
	at := func(i uint64) uint64 {
		if a.width == 4 {
			return uint64(binary.LittleEndian.Uint32(a.offsets[4*i:]))
		}
		return binary.LittleEndian.Uint64(a.offsets[8*i:])
	}
	return at(i) - at(0), at(i+1) - at(0)
}

// adjacency reads the lists of some of an element's rows. unit is the bytes of a value; weights is the window of their weights, or -1.
func (r *Reader) adjacency(ctx context.Context, element, offsets, weights int, width, unit, first, count uint64) (*adjacency, error) {
	a := &adjacency{offsets: make([]byte, width*(count+1)), width: width}
	if err := r.ReadAt(ctx, element, offsets, a.offsets, width*first); err != nil {
		return nil, err
	}
	values, err := a.count(count, unit)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: element %d, rows from %d: %w", r.Table.Name, element, first, err)
	}
	start := uint64(binary.LittleEndian.Uint32(a.offsets))
	if width == 8 {
		start = binary.LittleEndian.Uint64(a.offsets)
	}
	a.values = make([]byte, values*unit)
	if err := r.ReadAt(ctx, element, offsets+1, a.values, start*unit); err != nil || weights < 0 {
		return a, err
	}
	a.weights = make([]byte, values*8)
	return a, r.ReadAt(ctx, element, weights, a.weights, start*8)
}

// count is how many values so many rows have, each of unit bytes. The node may say any number.
func (a *adjacency) count(rows, unit uint64) (values uint64, err error) {
	for i := range rows {
		from, to := a.list(i)
		if from != values || to < from {
			return 0, fmt.Errorf("the edges or the name of row %d are from %d to %d", i, from, to)
		}
		values = to
	}
	if values > MaxReadBytes/unit {
		return 0, errEdges
	}
	return values, nil
}

// errEdges says that vertices have more edges than are fetched at once.
var errEdges = fmt.Errorf("%w: more than %d bytes of edges to read at once", control.ErrRequest, MaxReadBytes)

// edges appends row i's.
func (a *adjacency) edges(to []batch.Edge, i uint64) []batch.Edge {
	first, end := a.list(i)
	for ; first < end; first++ {
		e := batch.Edge{To: binary.LittleEndian.Uint32(a.values[4*first:])}
		if a.weights != nil {
			_, _ = binary.Decode(a.weights[8*first:], binary.LittleEndian, &e.Weight)
		}
		to = append(to, e)
	}
	return to
}

// named reports whether a graph's vertices have names.
func named(t *cluster.Table) bool {
	for _, s := range t.Shards {
		if s.Windows[cluster.NameOffsetsWindow].Size > 0 {
			return true
		}
	}
	return false
}

// Vertices reads the vertices from first to first+count-1 of a graph, in the order of their numbers. Their edges each way may take MaxReadBytes at each element.
func (r *Reader) Vertices(ctx context.Context, first, count uint64) ([]batch.Vertex, error) {
	t := r.Table
	if t.Kind != cluster.CSR {
		return nil, fmt.Errorf("dataset %s: vertices: %w (%v)", t.Name, ErrKind, t.Kind)
	}
	if first > t.Rows || count > t.Rows-first || count > graphRows {
		return nil, fmt.Errorf("%w: dataset %s has %d vertices: %d from %d cannot be read at once, at most %d", control.ErrRequest, t.Name, t.Rows, count, first, graphRows)
	}
	weights := [2]int{-1, -1}
	if t.Weighted() {
		weights = [2]int{cluster.FwdWeightsWindow, cluster.RevWeightsWindow}
	}
	shares := r.split(first, count)
	parts := map[uint32]*[3]*adjacency{}
	for e := range shares {
		parts[e] = &[3]*adjacency{}
	}
	if err := eachShare(shares, func(e uint32, s *share) (err error) {
		p := parts[e]
		for dir, window := range []int{cluster.FwdOffsetsWindow, cluster.RevOffsetsWindow} {
			if p[dir], err = r.adjacency(ctx, int(e), window, weights[dir], 8, 4, s.first, s.count); err != nil {
				return err
			}
		}
		if t.Shards[e].Windows[cluster.NameOffsetsWindow].Size > 0 {
			p[2], err = r.adjacency(ctx, int(e), cluster.NameOffsetsWindow, -1, 4, 1, s.first, s.count)
		}
		return err
	}); err != nil {
		return nil, err
	}
	out := make([]batch.Vertex, count)
	for i := range out {
		e, _, _ := t.Owner(first + uint64(i))
		s, p := shares[e], parts[e]
		out[i].Out, out[i].In = p[0].edges(nil, s.next), p[1].edges(nil, s.next)
		if p[2] != nil {
			from, to := p[2].list(s.next)
			out[i].Name = string(p[2].values[from:to])
		}
		s.next++
	}
	return out, nil
}

// WriteGraph writes vertices of a graph with their edges, in the columns of a shard's Arrow file: name, if they have some, out and in. o.Format is not used.
func (r *Reader) WriteGraph(ctx context.Context, o ReadOptions, format batch.Format, w io.Writer) error {
	t := r.Table
	if t.Kind != cluster.CSR {
		return fmt.Errorf("dataset %s: vertices: %w (%v)", t.Name, ErrKind, t.Kind)
	}
	total, err := o.rows(t, "vertices")
	if err != nil {
		return err
	}
	out, err := batch.NewGraphWriter(w, format, named(t), t.Weighted())
	if err != nil {
		return err
	}
	step := uint64(graphRows)
	for done := uint64(0); done < total; {
		n := min(step, total-done)
		vertices, err := r.Vertices(ctx, o.First+done, n)
		if errors.Is(err, errEdges) && n > 1 {
			step = max(1, n/2)
			continue
		}
		if err == nil {
			err = out.Write(vertices)
		}
		if err != nil {
			return err
		}
		if done += n; o.Progress != nil {
			o.Progress(done, total)
		}
	}
	return out.Close()
}
