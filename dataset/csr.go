package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
)

// CSR is a whole graph in memory, in compressed sparse rows: for a loader that
// has a file format of its own.
type CSR struct {
	Offsets []uint64 // one more than vertices; from 0, ascending, to the number of edges
	Targets []uint32 // of vertex v: Targets[Offsets[v]:Offsets[v+1]]
	// RevOffsets and RevTargets are the same for the reversed edges; both nil
	// to have them computed.
	RevOffsets []uint64
	RevTargets []uint32
	// Name is the name of vertex v, at most MaxVertexNameBytes; nil if vertices have none.
	Name func(v uint64) string
}

// ErrGraph says that a CSR is not valid.
var ErrGraph = errors.New("dataset: bad graph")

// vertices is how many vertices there are.
func (g *CSR) vertices() uint64 { return uint64(max(len(g.Offsets), 1) - 1) }

// Validate checks offsets and targets.
func (g *CSR) Validate() error {
	if g.vertices() > MaxVertices {
		return fmt.Errorf("%w: %d vertices, at most %d are allowed", ErrGraph, g.vertices(), uint64(MaxVertices))
	}
	if err := checkCSR("forward", g.vertices(), g.Offsets, g.Targets); err != nil {
		return err
	}
	if g.RevOffsets == nil && g.RevTargets == nil {
		return nil
	}
	if len(g.RevOffsets) != len(g.Offsets) || len(g.RevTargets) != len(g.Targets) {
		return fmt.Errorf("%w: forward it has %d offsets and %d targets, reversed %d and %d", ErrGraph,
			len(g.Offsets), len(g.Targets), len(g.RevOffsets), len(g.RevTargets))
	}
	return checkCSR("reverse", g.vertices(), g.RevOffsets, g.RevTargets)
}

func checkCSR(way string, vertices uint64, offsets []uint64, targets []uint32) error {
	if len(offsets) == 0 {
		return fmt.Errorf("%w: no %s offsets; a graph without vertices has one, 0", ErrGraph, way)
	}
	if offsets[0] != 0 || offsets[vertices] != uint64(len(targets)) {
		return fmt.Errorf("%w: %s offsets go from %d to %d, want 0 to %d", ErrGraph, way, offsets[0], offsets[vertices], len(targets))
	}
	for v := range vertices {
		if offsets[v] > offsets[v+1] {
			return fmt.Errorf("%w: %s offsets of vertex %d are %d and %d", ErrGraph, way, v, offsets[v], offsets[v+1])
		}
	}
	for i, t := range targets {
		if uint64(t) >= vertices {
			return fmt.Errorf("%w: %s target %d is vertex %d of %d", ErrGraph, way, i, t, vertices)
		}
	}
	return nil
}

// reversed returns g with the reversed edges computed, each vertex's in ascending order of their sources.
func (g *CSR) reversed() *CSR {
	r := *g
	r.RevOffsets = make([]uint64, len(g.Offsets))
	r.RevTargets = make([]uint32, len(g.Targets))
	for _, t := range g.Targets {
		r.RevOffsets[t+1]++
	}
	for v := range g.vertices() {
		r.RevOffsets[v+1] += r.RevOffsets[v]
	}
	next := append([]uint64{}, r.RevOffsets...)
	for v := range g.vertices() {
		for _, t := range g.Targets[g.Offsets[v]:g.Offsets[v+1]] {
			r.RevTargets[next[t]] = uint32(v)
			next[t]++
		}
	}
	return &r
}

// PlanCSR plans the shards of a graph that is in memory. g must not change
// until the plan is filled.
func PlanCSR(g *CSR, spread Spread) (*Plan, error) {
	o := Options{Format: Edges, Spread: spread}
	if err := o.prepare(); err != nil {
		return nil, err
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if g.RevOffsets == nil {
		g = g.reversed()
	}
	offsets, targets := [2][]uint64{g.Offsets, g.RevOffsets}, [2][]uint32{g.Targets, g.RevTargets}
	shape := graphShape{vertices: g.vertices(), edges: uint64(len(g.Targets)), name: g.Name,
		degree: func(dir int, v uint64) uint64 { return offsets[dir][v+1] - offsets[dir][v] }}
	p, err := shape.plan(o.sharding(shape.vertices))
	if err != nil {
		return nil, err
	}
	p.fill = func(ctx context.Context, sink Sink) error {
		if err := shape.fill(ctx, p, sink); err != nil {
			return err
		}
		var cells []byte
		for dir := range offsets {
			err := shape.each(ctx, p, sink, targetsWindow(dir), func(w *windowWriter, v uint64) error {
				cells = cells[:0]
				for _, t := range targets[dir][offsets[dir][v]:offsets[dir][v+1]] {
					cells = binary.LittleEndian.AppendUint32(cells, t)
				}
				return w.write(ctx, cells)
			}, nil)
			if err != nil {
				return err
			}
		}
		return nil
	}
	return p, nil
}

// maxNamesBytes bounds the names of one element: Arrow's text has signed offsets of 32 bits.
const maxNamesBytes = 1<<31 - 1

func offsetsWindow(dir int) int {
	return []int{cluster.FwdOffsetsWindow, cluster.RevOffsetsWindow}[dir]
}

func targetsWindow(dir int) int {
	return []int{cluster.FwdTargetsWindow, cluster.RevTargetsWindow}[dir]
}

func weightsWindow(dir int) int {
	return []int{cluster.FwdWeightsWindow, cluster.RevWeightsWindow}[dir]
}

// graphShape is what the sizes of a graph's windows, and all but its targets, follow from.
type graphShape struct {
	vertices, edges uint64
	degree          func(dir int, v uint64) uint64
	name            func(v uint64) string // nil if vertices have no names
	weighted        bool                  // edges have weights
}

// plan computes the windows' sizes.
func (g *graphShape) plan(s cluster.Sharding) (*Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{Kind: cluster.CSR, Sharding: s, Rows: g.vertices, Edges: g.edges}
	for e := range s.Elements {
		_, n := s.ElementRows(e)
		sizes := make([]uint64, cluster.GraphFileWindows)
		sizes[cluster.FwdOffsetsWindow], sizes[cluster.RevOffsetsWindow] = 8*(n+1), 8*(n+1)
		if g.name != nil {
			sizes[cluster.NameOffsetsWindow] = 4 * (n + 1)
		}
		p.Sizes = append(p.Sizes, sizes)
	}
	for v := range g.vertices {
		e, _, _ := s.Owner(v)
		sizes := p.Sizes[e]
		sizes[cluster.FwdTargetsWindow] += 4 * g.degree(forward, v)
		sizes[cluster.RevTargetsWindow] += 4 * g.degree(reverse, v)
		if g.weighted {
			sizes[cluster.FwdWeightsWindow], sizes[cluster.RevWeightsWindow] = 2*sizes[cluster.FwdTargetsWindow], 2*sizes[cluster.RevTargetsWindow]
		}
		if g.name == nil {
			continue
		}
		n := len(g.name(v))
		if n > MaxVertexNameBytes {
			return nil, fmt.Errorf("%w: the name of vertex %d has %d bytes, at most %d are allowed", ErrGraph, v, n, MaxVertexNameBytes)
		}
		if sizes[cluster.NamesWindow] += uint64(n); sizes[cluster.NamesWindow] > maxNamesBytes {
			return nil, fmt.Errorf("%w: the names of element %d have more than %d bytes; spread the graph over more elements", ErrTooLarge, e, uint64(maxNamesBytes))
		}
	}
	for _, sizes := range p.Sizes {
		_, sizes[cluster.GraphFile] = column.Places(sizes[:cluster.GraphFile])
	}
	return p, nil
}

// each goes through the vertices of every element in order, writing one window; end
// is called behind the last of an element.
func (g *graphShape) each(ctx context.Context, p *Plan, sink Sink, window int, row func(w *windowWriter, v uint64) error, end func(w *windowWriter) error) error {
	for e, sizes := range p.Sizes {
		if sizes[window] == 0 {
			continue
		}
		w := newWindowWriter(sink, uint32(e), window, sizes[window], bufferBytes)
		_, n := p.Sharding.ElementRows(uint32(e))
		for local := range n {
			if local%(1<<16) == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v, _ := p.Sharding.GlobalRow(uint32(e), local)
			if err := row(w, v); err != nil {
				return err
			}
		}
		if end != nil {
			if err := end(w); err != nil {
				return err
			}
		}
		if err := w.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// offsets writes a window of sums, in cells of width bytes: what the rows before have together, for each row of an
// element and for its end.
func (g *graphShape) offsets(ctx context.Context, p *Plan, sink Sink, window, width int, of func(v uint64) uint64) error {
	var cell [8]byte
	at := uint64(0)
	put := func(w *windowWriter) error {
		binary.LittleEndian.PutUint64(cell[:], at)
		return w.write(ctx, cell[:width])
	}
	return g.each(ctx, p, sink, window, func(w *windowWriter, v uint64) error {
		err := put(w)
		at += of(v)
		return err
	}, func(w *windowWriter) error {
		err := put(w)
		at = 0
		return err
	})
}

// fill writes offsets and names.
func (g *graphShape) fill(ctx context.Context, p *Plan, sink Sink) error {
	for dir := range 2 {
		if err := g.offsets(ctx, p, sink, offsetsWindow(dir), 8, func(v uint64) uint64 { return g.degree(dir, v) }); err != nil {
			return err
		}
	}
	if g.name == nil {
		return nil
	}
	if err := g.offsets(ctx, p, sink, cluster.NameOffsetsWindow, 4, func(v uint64) uint64 { return uint64(len(g.name(v))) }); err != nil {
		return err
	}
	return g.each(ctx, p, sink, cluster.NamesWindow, func(w *windowWriter, v uint64) error {
		return w.write(ctx, []byte(g.name(v)))
	}, nil)
}
