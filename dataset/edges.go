package dataset

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
)

// The lines that begin the parts of an edge list with a header; docs/datasets.md.
const (
	verticesMark = "@vertices"
	edgesMark    = "@edges"
)

// edgeReader reads an edge list once.
type edgeReader struct {
	stream Stream // that close closes
	lines  *lineReader
	o      *Options
	names  *nameTable // nil if vertices have numbers
	lookUp bool       // names are known: an unknown one means that the input changed

	header   bool
	vertices uint64 // that the header declares
	edges    int64  // that the header declares, -1 if it does not
	read     int64  // edges so far
	pending  []byte // a first line that was no header
	bad      error  // what was wrong with the first line
}

// nameTable numbers names in the order in which they are first seen.
type nameTable struct {
	ids   map[string]uint32 // nil if names come with numbers
	names []string
	bytes int64 // memory taken
}

// perName is what a name costs beside its text: a string, and a map's entry.
const perName = 16 + 48

func (t *nameTable) add(name []byte) uint32 {
	id := uint32(len(t.names))
	s := string(name)
	t.names = append(t.names, s)
	if t.ids != nil {
		t.ids[s] = id
	}
	t.bytes += int64(len(s)) + perName
	return id
}

// newEdgeReader reads the header, if there is one. Its names are put into table if
// that is empty, else passed over.
func newEdgeReader(lines *lineReader, o *Options, table *nameTable, memory func(*nameTable) error) (*edgeReader, error) {
	r := &edgeReader{lines: lines, o: o, edges: -1}
	if o.Names {
		r.names, r.lookUp = table, len(table.names) > 0
	}
	line, err := r.content()
	if err == io.EOF {
		return r, nil
	} else if err != nil {
		r.bad = err
		return r, nil
	}
	count, ok := bytes.CutPrefix(line, []byte(verticesMark))
	if !ok {
		r.pending = append([]byte{}, line...)
		return r, nil
	}
	if o.Names {
		return nil, r.fail("a file that declares its vertices uses their numbers in edges, so it is not read by names")
	}
	r.header = true
	if r.vertices, err = strconv.ParseUint(string(bytes.TrimSpace(count)), 10, 64); err != nil || r.vertices > MaxVertices {
		return nil, r.fail("%q is not %s and a number up to %d", clip(line), verticesMark, uint64(MaxVertices))
	}
	known := len(table.names) > 0
	for i := range r.vertices {
		name, err := lines.next()
		if err == io.EOF {
			return nil, r.fail("the file ends after %d of %d vertices", i, r.vertices)
		} else if err != nil {
			return nil, err
		}
		if len(name) > MaxVertexNameBytes {
			return nil, r.fail("a vertex's name has %d bytes, at most %d are allowed", len(name), MaxVertexNameBytes)
		}
		if known {
			continue
		}
		table.add(name)
		if err := memory(table); err != nil {
			return nil, err
		}
	}
	return r, r.edgesLine()
}

// declared is the number of vertices in the header.
func (r *edgeReader) declared() uint64 { return r.vertices }

func (r *edgeReader) close() { r.stream.Close() }

// edgesLine reads the line between vertices and edges.
func (r *edgeReader) edgesLine() error {
	line, err := r.content()
	if err != nil && err != io.EOF {
		return err
	}
	count, ok := bytes.CutPrefix(line, []byte(edgesMark))
	if !ok {
		return r.fail("after the %d vertices comes %q, want %s", r.vertices, clip(line), edgesMark)
	}
	if count = bytes.TrimSpace(count); len(count) == 0 {
		return nil
	}
	if r.edges, err = strconv.ParseInt(string(count), 10, 64); err != nil || r.edges < 0 {
		return r.fail("%q is not %s and a number", clip(line), edgesMark)
	}
	return nil
}

// fail is an error about the file, not about one edge.
func (r *edgeReader) fail(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInput, r.lines.errorf("", format, args...))
}

// content returns the next line that is neither empty nor a comment.
func (r *edgeReader) content() ([]byte, error) {
	for {
		line, err := r.lines.next()
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return line, nil
		}
	}
}

// edge is one of a list.
type edge struct {
	from, to uint32
	weight   float64 // 0 without weights
}

// next returns the next edge, io.EOF after the last. After a *LineError the
// next edge can be read.
func (r *edgeReader) next() (e edge, err error) {
	if err, r.bad = r.bad, nil; err != nil {
		return e, err
	}
	line := r.pending
	if r.pending = nil; line == nil {
		if line, err = r.content(); err == io.EOF && r.edges >= 0 && r.read != r.edges {
			return e, r.fail("the file has %d edges, its header says %d", r.read, r.edges)
		} else if err != nil {
			return e, err
		}
	}
	r.read++
	a, rest := r.word(line)
	b, rest := r.word(rest)
	if len(a) == 0 || len(b) == 0 {
		hint := ""
		if r.o.Comma == 0 {
			if i := bytes.IndexAny(line, ",;|"); i > 0 {
				hint = fmt.Sprintf("; if a %q separates them, say so (--separator '%c')", line[i], line[i])
			}
		}
		return e, r.lines.errorf("", "%q is not two vertices%s", clip(line), hint)
	}
	if r.o.Weights {
		if rest, err = r.weight(rest, &e); err != nil {
			return e, err
		}
	}
	if len(rest) > 0 && !r.o.ExtraColumns {
		return e, r.tooMuch(rest)
	}
	// Both are checked before either gets a number, so that a bad line leaves nothing behind.
	for _, w := range [][]byte{a, b} {
		if err := r.check(w); err != nil {
			return e, err
		}
	}
	if e.from, err = r.vertex(a); err != nil {
		return e, err
	}
	e.to, err = r.vertex(b)
	return e, err
}

// weight takes an edge's weight off what follows its vertices.
func (r *edgeReader) weight(line []byte, e *edge) (rest []byte, err error) {
	word, rest := r.word(line)
	v, ok := readFloat(word)
	if !ok {
		v, err = strconv.ParseFloat(string(word), 64)
	}
	if len(word) == 0 || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, r.lines.errorf("", "the edge's weight is %q, which is no finite number: each line has two vertices and a weight (--weights)", clip(word))
	}
	e.weight = v
	return rest, nil
}

// tooMuch is the error of what follows an edge.
func (r *edgeReader) tooMuch(rest []byte) error {
	if r.o.Weights {
		return r.lines.errorf("", "%q follows the weight; --extra-columns ignores that, if it is right", clip(rest))
	}
	return r.lines.errorf("", "%q follows the two vertices; --weights takes it as the edge's weight, --extra-columns ignores it", clip(rest))
}

// word takes the first column off a line.
func (r *edgeReader) word(line []byte) (word, rest []byte) {
	if c := r.o.Comma; c != 0 {
		word, rest, _ = bytes.Cut(line, []byte{c})
		return bytes.TrimSpace(word), bytes.TrimSpace(rest)
	}
	i := bytes.IndexAny(line, " \t")
	if i < 0 {
		return line, nil
	}
	return line[:i], bytes.TrimLeft(line[i:], " \t")
}

func (r *edgeReader) check(word []byte) error {
	if r.names != nil {
		if len(word) > MaxVertexNameBytes {
			return r.lines.errorf("", "a vertex's name has %d bytes, at most %d are allowed", len(word), MaxVertexNameBytes)
		}
		return nil
	}
	_, err := r.number(word)
	return err
}

// vertex is the number of a vertex that check accepted.
func (r *edgeReader) vertex(word []byte) (uint32, error) {
	if r.names == nil {
		return r.number(word)
	}
	if id, ok := r.names.ids[string(word)]; ok {
		return id, nil
	}
	if r.lookUp {
		return 0, fmt.Errorf("%w: %s: line %d has the new vertex %q", ErrChanged, r.lines.file, r.lines.line, clip(word))
	}
	if len(r.names.names) >= MaxVertices {
		return 0, fmt.Errorf("%w: %s: more than %d vertices", ErrTooLarge, r.lines.file, uint64(MaxVertices))
	}
	return r.names.add(word), nil
}

func (r *edgeReader) number(word []byte) (uint32, error) {
	v := uint64(0)
	for _, c := range word {
		if c < '0' || c > '9' || v > MaxVertices {
			return 0, r.badNumber(word)
		}
		v = v*10 + uint64(c-'0')
	}
	if v >= MaxVertices {
		return 0, r.badNumber(word)
	}
	if r.header && v >= r.vertices {
		return 0, r.lines.errorf("", "there is no vertex %d: the header declares %d, from 0", v, r.vertices)
	}
	return uint32(v), nil
}

func (r *edgeReader) badNumber(word []byte) error {
	return r.lines.errorf("", "%q is not a vertex number (0 to %d); load by names (--names) if vertices have names", clip(word), uint64(MaxVertices-1))
}

// clipShown is how much of a bad line a message shows.
const clipShown = 64

func clip(b []byte) string {
	if len(b) <= clipShown {
		return string(b)
	}
	return string(b[:clipShown]) + "…"
}
