package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/demo/debgraph"
)

// Style is how a baseline reads.
type Style uint8

const (
	// OneAtATime waits for every read before it starts the next.
	OneAtATime Style = iota
	// Batched has all reads of one breadth-first level under way at once: first the
	// offsets, then the targets that they point at.
	Batched
	// FetchAll reads the windows whole, all at once, and computes here.
	FetchAll
)

// Baseline answers questions by one-sided reads alone. One goroutine uses it.
type Baseline struct {
	Backend Backend
	Layout  Layout
	Style   Style
	// Trips counts how often the client waited, one wait after the other;
	// Operations counts the reads.
	Trips, Operations uint64
}

// get reads in the baseline's style.
func (b *Baseline) get(ctx context.Context, reads []Read) error {
	if len(reads) == 0 {
		return nil
	}
	b.Operations += uint64(len(reads))
	if b.Style != OneAtATime {
		b.Trips++
		return b.Backend.GetMany(ctx, reads)
	}
	for _, r := range reads {
		b.Trips++
		if err := b.Backend.Get(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// step is how many vertices of a level are read together. One at a time can
// stop in the middle of a level; a batch takes the level as a whole.
func (b *Baseline) step(level int) int {
	if b.Style == OneAtATime {
		return 1
	}
	return max(1, level)
}

// rows reads the rows of some vertices.
func (b *Baseline) rows(ctx context.Context, d debgraph.Direction, ids []uint32) ([][]uint32, error) {
	offsets, targets := FwdOffsets, FwdTargets
	if d == debgraph.NeededBy {
		offsets, targets = RevOffsets, RevTargets
	}
	pairs := make([]byte, 16*len(ids))
	reads := make([]Read, len(ids))
	for i, v := range ids {
		e, row := b.Layout.Owner(uint64(v))
		reads[i] = Read{e, offsets, 8 * row, pairs[16*i : 16*i+16]}
	}
	if err := b.get(ctx, reads); err != nil {
		return nil, err
	}
	lengths := make([]int, len(ids))
	reads = reads[:0]
	total := 0
	for i, v := range ids {
		e, _ := b.Layout.Owner(uint64(v))
		from, to := binary.LittleEndian.Uint64(pairs[16*i:]), binary.LittleEndian.Uint64(pairs[16*i+8:])
		if from > to || to > b.Layout.WindowBytes[e][targets]/4 {
			return nil, fmt.Errorf("%w: vertex %d: its row is said to go from %d to %d", ErrBadData, v, from, to)
		}
		lengths[i] = int(to - from)
		total += lengths[i]
		if to > from {
			reads = append(reads, Read{Element: e, Window: targets, Offset: 4 * from})
		}
	}
	slab := make([]byte, 4*total)
	rest := slab
	k := 0
	for _, n := range lengths {
		if n > 0 {
			reads[k].Dst, rest = rest[:4*n], rest[4*n:]
			k++
		}
	}
	if err := b.get(ctx, reads); err != nil {
		return nil, err
	}
	flat, err := vertexIDs(slab, b.Layout.Vertices)
	if err != nil {
		return nil, err
	}
	out := make([][]uint32, len(ids))
	for i, n := range lengths {
		out[i], flat = flat[:n:n], flat[n:]
	}
	return out, nil
}

// vertexIDs decodes targets and checks them.
func vertexIDs(raw []byte, vertices uint64) ([]uint32, error) {
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
		if uint64(out[i]) >= vertices {
			return nil, fmt.Errorf("%w: it names vertex %d of %d", ErrBadData, out[i], vertices)
		}
	}
	return out, nil
}

// Closure lists what is reachable from start, start itself left out, ascending.
func (b *Baseline) Closure(ctx context.Context, start uint32, d debgraph.Direction) ([]uint32, error) {
	if b.Style == FetchAll {
		g, err := b.fetch(ctx, d)
		if err != nil {
			return nil, err
		}
		return g.Closure(start, d), nil
	}
	seen := make([]bool, b.Layout.Vertices)
	seen[start] = true
	reached, level := []uint32{}, []uint32{start}
	for len(level) > 0 {
		var next []uint32
		for part := range slices.Chunk(level, b.step(len(level))) {
			rows, err := b.rows(ctx, d, part)
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				for _, t := range row {
					if !seen[t] {
						seen[t] = true
						next = append(next, t)
					}
				}
			}
		}
		reached = append(reached, next...)
		level = next
	}
	slices.Sort(reached)
	return reached, nil
}

// Path finds a shortest path along Needs; nil if there is none. It stops as soon as
// it has seen the goal. Levels are read in ascending order, so the path is the one that debgraph's own Path gives.
func (b *Baseline) Path(ctx context.Context, from, to uint32) ([]uint32, error) {
	if from == to {
		return []uint32{from}, nil
	}
	rowsOf := b.rows
	if b.Style == FetchAll {
		g, err := b.fetch(ctx, debgraph.Needs)
		if err != nil {
			return nil, err
		}
		rowsOf = func(_ context.Context, d debgraph.Direction, ids []uint32) ([][]uint32, error) {
			rows := make([][]uint32, len(ids))
			for i, v := range ids {
				rows[i] = g.Side(d).Row(v)
			}
			return rows, nil
		}
	}
	const none = ^uint32(0)
	parent := slices.Repeat([]uint32{none}, int(b.Layout.Vertices))
	parent[from] = from
	for level := []uint32{from}; len(level) > 0; {
		var next []uint32
		for part := range slices.Chunk(level, b.step(len(level))) {
			rows, err := rowsOf(ctx, debgraph.Needs, part)
			if err != nil {
				return nil, err
			}
			for i, row := range rows {
				for _, t := range row {
					if parent[t] == none {
						parent[t] = part[i]
						next = append(next, t)
					}
				}
			}
			if parent[to] != none {
				return trace(parent, from, to), nil
			}
		}
		slices.Sort(next)
		level = next
	}
	return nil, nil
}

// trace follows parents back. Every parent was set before its child, so it ends.
func trace(parent []uint32, from, to uint32) []uint32 {
	path := []uint32{to}
	for v := to; v != from; {
		v = parent[v]
		path = append(path, v)
	}
	slices.Reverse(path)
	return path
}

// Top ranks the vertices that most others need. Everything has to be read for
// that; the styles differ in how.
func (b *Baseline) Top(ctx context.Context, n int) ([]debgraph.Ranked, error) {
	if b.Style == FetchAll {
		g, err := b.fetch(ctx, debgraph.NeededBy)
		if err != nil {
			return nil, err
		}
		return g.Top(n), nil
	}
	g := b.emptyGraph()
	all := make([]uint32, b.Layout.Vertices)
	for v := range all {
		all[v] = uint32(v)
	}
	for part := range slices.Chunk(all, b.step(len(all))) {
		rows, err := b.rows(ctx, debgraph.NeededBy, part)
		if err != nil {
			return nil, err
		}
		for i, row := range rows {
			g.Rev.Dst = append(g.Rev.Dst, row...)
			g.Rev.Off[part[i]+1] = uint64(len(g.Rev.Dst))
		}
	}
	return g.Top(n), nil
}

// Chase follows a permutation. There is no way to batch it: every index is the answer to the read before.
func (b *Baseline) Chase(ctx context.Context, start, hops uint64) (uint64, error) {
	if b.Style == FetchAll {
		table := make([]byte, 8*b.Layout.Vertices)
		if err := b.get(ctx, b.whole(ChaseNext, table)); err != nil {
			return 0, err
		}
		for range hops {
			if start = binary.LittleEndian.Uint64(table[8*start:]); start >= b.Layout.Vertices {
				return 0, fmt.Errorf("%w: index %d of %d follows", ErrBadData, start, b.Layout.Vertices)
			}
		}
		return start, nil
	}
	var next [8]byte
	for range hops {
		e, row := b.Layout.Owner(start)
		if err := b.get(ctx, []Read{{e, ChaseNext, 8 * row, next[:]}}); err != nil {
			return 0, err
		}
		if start = binary.LittleEndian.Uint64(next[:]); start >= b.Layout.Vertices {
			return 0, fmt.Errorf("%w: index %d of %d follows", ErrBadData, start, b.Layout.Vertices)
		}
	}
	return start, nil
}

// whole makes the reads that put one window of all elements into dst, in order.
func (b *Baseline) whole(w Window, dst []byte) []Read {
	var reads []Read
	for e := range b.Layout.Elements {
		n := b.Layout.WindowBytes[e][w]
		if n > 0 {
			reads = append(reads, Read{e, w, 0, dst[:n]})
		}
		dst = dst[n:]
	}
	return reads
}

// emptyGraph has as many vertices as the layout, without names: only rows are asked of it.
func (b *Baseline) emptyGraph() *debgraph.Graph {
	n := b.Layout.Vertices
	return &debgraph.Graph{
		Names: make([]string, n),
		Fwd:   debgraph.CSR{Off: make([]uint64, n+1)},
		Rev:   debgraph.CSR{Off: make([]uint64, n+1)},
	}
}

// fetch reads one direction of the whole graph in a single round trip.
func (b *Baseline) fetch(ctx context.Context, d debgraph.Direction) (*debgraph.Graph, error) {
	offsets, targets := FwdOffsets, FwdTargets
	if d == debgraph.NeededBy {
		offsets, targets = RevOffsets, RevTargets
	}
	var offsetBytes, targetBytes uint64
	for _, w := range b.Layout.WindowBytes {
		offsetBytes += w[offsets]
		targetBytes += w[targets]
	}
	rawOffsets, rawTargets := make([]byte, offsetBytes), make([]byte, targetBytes)
	if err := b.get(ctx, append(b.whole(offsets, rawOffsets), b.whole(targets, rawTargets)...)); err != nil {
		return nil, err
	}
	g := b.emptyGraph()
	side := g.Side(d)
	var err error
	if side.Dst, err = vertexIDs(rawTargets, b.Layout.Vertices); err != nil {
		return nil, err
	}
	v, base := 0, uint64(0)
	for e := range b.Layout.Elements {
		_, rows := b.Layout.Block(e)
		last := uint64(0)
		for i := range rows + 1 {
			o := binary.LittleEndian.Uint64(rawOffsets[8*i:])
			if o < last || base+o > uint64(len(side.Dst)) {
				return nil, fmt.Errorf("%w: element %d: offset %d after %d", ErrBadData, e, o, last)
			}
			last = o
			side.Off[v+int(i)] = base + o
		}
		rawOffsets = rawOffsets[8*(rows+1):]
		v += int(rows)
		base += last
	}
	return g, nil
}
