package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
)

// perVertex is the memory that a vertex takes in the loader: two degrees.
const perVertex = 16

// forward and reverse index what a graph has twice.
const (
	forward = 0
	reverse = 1
)

// graphScan is what the loader of an edge list knows of the graph.
type graphScan struct {
	in     Input
	o      *Options
	names  nameTable
	degree [2][]uint64 // by vertex: out, in; later where its next target goes
	edges  uint64
	bad    BadLines
	format Format   // of the file, where it is not text
	chunks *Options // how that is read
}

func scanEdges(ctx context.Context, in Input, o *Options) (*Plan, error) {
	g := &graphScan{in: in, o: o}
	if o.Names {
		g.names.ids = map[string]uint32{}
	}
	declared, err := g.pass(ctx, PhaseScan, 0, in.Size(), &g.bad, func(e edge) error {
		if err := g.ensure(uint64(max(e.from, e.to)) + 1); err != nil {
			return err
		}
		g.degree[forward][e.from]++
		g.degree[reverse][e.to]++
		g.edges++
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := g.ensure(declared); err != nil {
		return nil, err
	}
	vertices := uint64(len(g.degree[forward]))
	shape := graphShape{vertices: vertices, edges: g.edges, weighted: o.Weights}
	shape.degree = func(dir int, v uint64) uint64 { return g.degree[dir][v] }
	if o.Names || len(g.names.names) > 0 {
		g.names.ids, shape.name = keepIDs(o.Names, g.names.ids), func(v uint64) string { return g.names.names[v] }
	}
	p, err := shape.plan(o.sharding(vertices))
	if err != nil {
		return nil, err
	}
	p.Bad = g.bad
	p.fill = func(ctx context.Context, sink Sink) error {
		if err := shape.fill(ctx, p, sink); err != nil {
			return err
		}
		g.startTargets(p)
		return g.fillTargets(ctx, p, sink)
	}
	return p, nil
}

// keepIDs drops the map from names to numbers if no pass needs it any more.
func keepIDs(needed bool, ids map[string]uint32) map[string]uint32 {
	if needed {
		return ids
	}
	return nil
}

// ensure makes room for n vertices, within the memory budget.
func (g *graphScan) ensure(n uint64) error {
	have := uint64(len(g.degree[forward]))
	if n <= have {
		return nil
	}
	if err := g.checkMemory(n, &g.names); err != nil {
		return err
	}
	for dir := range g.degree {
		g.degree[dir] = append(g.degree[dir], make([]uint64, n-have)...)
	}
	return nil
}

func (g *graphScan) checkMemory(vertices uint64, names *nameTable) error {
	if need := int64(vertices)*perVertex + names.bytes; need > g.o.MemoryBytes {
		return fmt.Errorf("%w: %s: %d vertices need %d bytes of memory here, %d are allowed; if the vertices' numbers have gaps, load by names (--names)",
			ErrTooLarge, g.in.Name(), vertices, need, g.o.MemoryBytes)
	}
	return nil
}

// pass reads all edges once. It returns how many vertices a header declares.
func (g *graphScan) pass(ctx context.Context, phase Phase, before, total int64, bad *BadLines, each func(edge) error) (uint64, error) {
	r, err := g.open(ctx, phase, before, total)
	if err != nil {
		return 0, failed(g.in, err)
	}
	defer r.close()
	for {
		e, err := r.next()
		if err == io.EOF {
			return r.declared(), nil
		}
		line := (*LineError)(nil)
		if errors.As(err, &line) && !errors.Is(err, ErrInput) {
			if err = bad.note(line, g.o.SkipBad); err != nil {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, failed(g.in, err)
		}
		if err := each(e); err != nil {
			return 0, err
		}
	}
}

// open begins a pass. What the file is like shows at its first bytes.
func (g *graphScan) open(ctx context.Context, phase Phase, before, total int64) (edgeStream, error) {
	fits := func(t *nameTable) error { return g.checkMemory(uint64(len(t.names)), t) }
	if g.format == "" {
		reading, err := read(ctx, g.in, g.o, phase, before, total)
		if err != nil {
			return nil, err
		}
		lines := newLineReader(g.in.Name(), reading.tracked, g.o.LineBytes)
		f, columns := columnsFormat(lines.head(columnsHead))
		if !columns {
			r, err := newEdgeReader(lines, g.o, &g.names, fits)
			if err != nil {
				reading.stream.Close()
				return nil, err
			}
			r.stream = reading.stream
			return r, nil
		}
		reading.stream.Close()
		g.readChunks(f)
	}
	o := *g.chunks
	o.Progress = func(_ Phase, done, _ int64) { g.o.Progress(phase, before+done, total) }
	return openEdgeColumns(ctx, g.in, g.format, &o, &g.names, fits)
}

// readChunks notes that the file has columns. A quarter of the memory is for the chunk that is read of them.
func (g *graphScan) readChunks(f Format) {
	graph, chunks := *g.o, *g.o
	chunks.MemoryBytes /= 2 // a chunk has half of it
	graph.MemoryBytes -= chunks.MemoryBytes / 2
	g.format, g.o, g.chunks = f, &graph, &chunks
}

// startTargets turns degrees into the place of each vertex's first target in
// its window.
func (g *graphScan) startTargets(p *Plan) {
	for dir := range g.degree {
		next := make([]uint64, p.Sharding.Elements)
		for v, n := range g.degree[dir] {
			e, _, _ := p.Sharding.Owner(uint64(v))
			g.degree[dir][v] = next[e]
			next[e] += n
		}
	}
}

// target is a part of a targets window that is filled in one pass: that of a
// range of the element's rows.
type target struct {
	element    uint32
	window     int
	first, end uint64 // rows of the element
	from       uint64 // place of mem in the window, in bytes
	mem        []byte
	weights    []byte // the same of their weights, if they have some: twice as long
	left       uint64 // targets that are still to come
	mapped     bool
}

// batch is the targets filled in one pass, by direction and element.
type batch [2][]*target

// fillTargets reads the edges, as often as memory makes it necessary, and
// writes the targets of both directions.
func (g *graphScan) fillTargets(ctx context.Context, p *Plan, sink Sink) error {
	room := max(g.o.MemoryBytes-int64(p.Rows)*perVertex-g.names.bytes, minTargetBytes)
	if g.o.Weights { // 12 bytes for each target, not 4
		room /= 3
	}
	batches := g.split(p, sink, uint64(room))
	for i := range batches {
		b := &batches[i]
		b.open(g.o.Weights)
		size := g.in.Size()
		bad, edges := BadLines{}, uint64(0)
		_, err := g.pass(ctx, PhaseFill, int64(i)*size, int64(len(batches))*size, &bad, func(e edge) error {
			if uint64(max(e.from, e.to)) >= p.Rows {
				return fmt.Errorf("%w: %s has the new vertex %d", ErrChanged, g.in.Name(), max(e.from, e.to))
			}
			if edges++; edges > p.Edges {
				return fmt.Errorf("%w: %s has more than %d edges", ErrChanged, g.in.Name(), p.Edges)
			}
			if err := g.place(p, b, forward, e.from, e.to, e.weight); err != nil {
				return err
			}
			return g.place(p, b, reverse, e.to, e.from, e.weight)
		})
		if err != nil {
			return err
		}
		if err := b.finish(ctx, sink); err != nil {
			return fmt.Errorf("%s: %w", g.in.Name(), err)
		}
	}
	return nil
}

// place writes one target, if this pass is its row's.
func (g *graphScan) place(p *Plan, b *batch, dir int, row, to uint32, weight float64) error {
	e, local, _ := p.Sharding.Owner(uint64(row))
	t := b[dir][e]
	if t == nil || local < t.first || local >= t.end {
		return nil // of another pass
	}
	at := 4*g.degree[dir][row] - t.from
	if at >= uint64(len(t.mem)) || t.left == 0 {
		return fmt.Errorf("%w: %s has more edges at vertex %d", ErrChanged, g.in.Name(), row)
	}
	binary.LittleEndian.PutUint32(t.mem[at:], to)
	if t.weights != nil {
		binary.LittleEndian.PutUint64(t.weights[2*at:], math.Float64bits(weight))
	}
	g.degree[dir][row]++
	t.left--
	return nil
}

// minTargetBytes is what targets are filled in at least, if vertices take all memory.
const minTargetBytes = 1 << 20

// split cuts the targets windows into batches: those mapped are filled in the
// first pass, in place; of the others as much at a time as there is room, in
// whole rows, and at least one.
func (g *graphScan) split(p *Plan, sink Sink, room uint64) []batch {
	newBatch := func() (b batch) {
		for dir := range b {
			b[dir] = make([]*target, p.Sharding.Elements)
		}
		return b
	}
	batches := []batch{newBatch()}
	free := room
	mapped, _ := sink.(Mapped)
	for dir := range g.degree {
		window := targetsWindow(dir)
		for e := range p.Sharding.Elements {
			size := p.Sizes[e][window]
			_, rows := p.Sharding.ElementRows(e)
			if mapped != nil && size > 0 {
				if t := g.inPlace(mapped, e, dir, size); t != nil {
					t.end, batches[0][dir][e] = rows, t
					continue
				}
			}
			for first := uint64(0); first < rows && size > 0; {
				from := g.rowStart(p, dir, e, first)
				end := g.rowsWithin(p, dir, e, from+free)
				if end <= first && free < room {
					batches, free = append(batches, newBatch()), room
					continue
				}
				end = max(end, first+1) // a row may be larger than the room
				bytes := g.rowStart(p, dir, e, end) - from
				if bytes > 0 {
					batches[len(batches)-1][dir][e] = &target{element: e, window: window, first: first, end: end, from: from, left: bytes / 4}
				}
				free -= min(bytes, free)
				first = end
			}
		}
	}
	return batches
}

// inPlace is a whole window of an element, which the sink has mapped, and its weights' window; nil: it has not.
func (g *graphScan) inPlace(sink Mapped, e uint32, dir int, size uint64) *target {
	t := &target{element: e, window: targetsWindow(dir), left: size / 4, mapped: true}
	if t.mem = sink.Memory(e, t.window); t.mem == nil {
		return nil
	}
	t.mem = t.mem[:size]
	if g.o.Weights {
		if t.weights = sink.Memory(e, weightsWindow(dir)); t.weights == nil {
			return nil
		}
		t.weights = t.weights[:2*size]
	}
	return t
}

// rowStart is where the targets of an element's row start in their window, in
// bytes; of the row behind the last, where the window ends.
func (g *graphScan) rowStart(p *Plan, dir int, e uint32, local uint64) uint64 {
	v, ok := p.Sharding.GlobalRow(e, local)
	if !ok {
		return p.Sizes[e][targetsWindow(dir)]
	}
	return 4 * g.degree[dir][v]
}

// rowsWithin is how many of an element's rows end at limit or before.
func (g *graphScan) rowsWithin(p *Plan, dir int, e uint32, limit uint64) uint64 {
	_, rows := p.Sharding.ElementRows(e)
	return uint64(sort.Search(int(rows), func(i int) bool { return g.rowStart(p, dir, e, uint64(i)+1) > limit }))
}

// open allocates the memory of targets that are not mapped.
func (b *batch) open(weights bool) {
	for dir := range b {
		for _, t := range b[dir] {
			if t != nil && !t.mapped {
				t.mem = make([]byte, 4*t.left)
				if weights {
					t.weights = make([]byte, 8*t.left)
				}
			}
		}
	}
}

// finish checks that all targets came, and writes those that are not mapped.
func (b *batch) finish(ctx context.Context, sink Sink) error {
	for dir := range b {
		for _, t := range b[dir] {
			if t == nil {
				continue
			}
			if t.left > 0 {
				return fmt.Errorf("%w: element %d lacks %d edges", ErrChanged, t.element, t.left)
			}
			if t.mapped {
				continue
			}
			if err := writePieces(ctx, sink, t.element, t.window, t.mem, t.from); err != nil {
				return err
			}
			if err := writePieces(ctx, sink, t.element, weightsWindow(dir), t.weights, 2*t.from); err != nil {
				return err
			}
			t.mem, t.weights = nil, nil
		}
	}
	return nil
}

// writePieces writes a part of a window.
func writePieces(ctx context.Context, sink Sink, element uint32, window int, p []byte, from uint64) error {
	for at := 0; at < len(p); at += bufferBytes {
		if err := sink.WriteAt(ctx, element, window, p[at:min(at+bufferBytes, len(p))], from+uint64(at)); err != nil {
			return err
		}
	}
	return nil
}
