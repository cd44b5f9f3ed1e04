package dataset

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// edgeStream hands out the edges of a file, in its order.
type edgeStream interface {
	// next is the next edge, io.EOF after the last. After a *LineError the one behind it can be read.
	next() (edge, error)
	// declared is how many vertices the file says there are, once all edges were read; 0 if it does not say.
	declared() uint64
	close()
}

// edgeRows is a file whose columns are read for edges.
type edgeRows interface {
	columnar
	// where names what the rows were read from last.
	where() string
}

// edgeChunkRows is how many rows are read at once: lists may be long, and what a chunk has of them is bounded.
const edgeChunkRows = 64 << 10

// columnsFormat is the format of a file that begins so, if it has columns and is not text.
func columnsFormat(head []byte) (Format, bool) {
	text := string(head)
	switch {
	case text == parquetMagic, len(text) > 4 && strings.HasPrefix(text, "PAR1") && text[4] < ' ' && !strings.ContainsRune("\t\n\r", rune(text[4])):
		return Parquet, true
	case strings.HasPrefix(text, "ARROW1\x00\x00"), strings.HasPrefix(text, "\xff\xff\xff\xff"): // a file, a stream
		return Arrow, true
	}
	return "", false
}

// columnsHead is how much of a file columnsFormat looks at.
const columnsHead = 8

// vertexPairs are the names that the two columns of an edge list go by.
var vertexPairs = [][2]string{{"src", "dst"}, {"source", "target"}, {"from", "to"}}

// edgeChoice says which columns have what, by number; -1: none has it.
type edgeChoice struct {
	from, to, weight int // a row for each edge
	list, label      int // a row for each vertex; label: its name
}

// edgeColumns hands out the edges of a Parquet or Arrow file.
type edgeColumns struct {
	ctx    context.Context
	name   string // of the file
	o      *Options
	rows   edgeRows
	schema column.Schema
	edgeChoice
	weighted bool                   // the lists' values have weights
	names    *nameTable             // of all vertices
	known    bool                   // names are: a new one means that the input changed
	fits     func(*nameTable) error // checks the memory of names

	chunk    []arrow.Array
	before   int64 // rows in front of the chunk
	row, end int   // of the chunk
	sources  vertexValues
	targets  vertexValues
	weights  weightValues
	lists    *array.List
	item     int // of the row's list: the next one, and where it ends
	itemEnd  int

	highest   uint32 // of the lists' targets, and its row
	highestAt int64
}

// openEdgeColumns begins to read a file's edges.
func openEdgeColumns(ctx context.Context, in Input, f Format, o *Options, names *nameTable, fits func(*nameTable) error) (*edgeColumns, error) {
	if o.SkipBad != 0 {
		return nil, fmt.Errorf("%w: %s is of format %s: bad lines can be left out (--skip-bad) of text only", ErrInput, in.Name(), f)
	}
	if o.Comma != 0 {
		return nil, fmt.Errorf("%w: %s is of format %s: leave out the separator (--separator), which is for text", ErrInput, in.Name(), f)
	}
	r := &edgeColumns{ctx: ctx, name: in.Name(), o: o, names: names, known: len(names.names) > 0, fits: fits}
	if f == Parquet {
		rows, err := parquetFormat{o}.start(in, PhaseScan)
		if err != nil {
			return nil, err
		}
		r.rows, r.schema = rows, rows.schema
		rows.chunkRows = edgeChunkRows
	} else {
		rows, err := arrowFormat{o}.start(ctx, in, PhaseScan)
		if err != nil {
			return nil, err
		}
		r.rows, r.schema = rows, rows.schema
		rows.chunkRows = edgeChunkRows
	}
	if err := r.choose(); err != nil {
		r.close()
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Name(), err)
	}
	return r, nil
}

func (r *edgeColumns) close() {
	releaseAll(r.chunk)
	r.chunk = nil
	r.rows.Close()
}

// declared is the number of rows where each is a vertex.
func (r *edgeColumns) declared() uint64 {
	if r.list < 0 {
		return 0
	}
	return uint64(r.before)
}

// choose finds the columns that edges are read from.
func (r *edgeColumns) choose() error {
	r.edgeChoice = edgeChoice{-1, -1, -1, -1, -1}
	for _, pair := range vertexPairs {
		if from, to := r.schema.Index(pair[0]), r.schema.Index(pair[1]); from >= 0 && to >= 0 {
			r.from, r.to = from, to
			return r.choosePairs()
		}
	}
	lists := []int{}
	for i, c := range r.schema {
		if c.Type.ID == column.List {
			lists = append(lists, i)
		}
	}
	out := r.schema.Index(part.GraphOut)
	switch {
	case out >= 0 && r.schema[out].Type.ID == column.List:
		return r.chooseList(out)
	case len(lists) == 1:
		return r.chooseList(lists[0])
	case len(lists) > 1:
		return fmt.Errorf("%d of its columns are lists: call the one with the targets of each vertex %q", len(lists), part.GraphOut)
	case len(r.schema) < 2:
		return fmt.Errorf("its only column is %q, %v: an edge list has two columns, src and dst (or the first two), and a list for each vertex is one column of lists of whole numbers", r.schema[0].Name, r.schema[0].Type)
	}
	r.from, r.to = 0, 1
	return r.choosePairs()
}

// choosePairs checks the columns of a file with a row for each edge.
func (r *edgeColumns) choosePairs() error {
	for _, i := range []int{r.from, r.to} {
		c := r.schema[i]
		switch {
		case isInteger(c.Type), r.o.Names && c.Type.ID == column.UTF8:
		case c.Type.ID == column.UTF8:
			return fmt.Errorf("column %q is text: load by names (--names) if vertices have names, or write their numbers as whole numbers", c.Name)
		default:
			return fmt.Errorf("column %q is %v: an edge's vertices are whole numbers (i8 to u64), or text with --names, in columns called src and dst or else the first two", c.Name, c.Type)
		}
	}
	if r.o.Weights {
		if r.weight = r.schema.Index(part.GraphWeight); r.weight < 0 {
			for i := len(r.schema) - 1; i >= 0; i-- { // the first one
				if i != r.from && i != r.to {
					r.weight = i
				}
			}
		}
		if r.weight < 0 {
			return fmt.Errorf("it has no third column: --weights takes the edge's weight from a column called %q, or else from the one behind the two vertices", part.GraphWeight)
		}
		if c := r.schema[r.weight]; !isWeight(c.Type) {
			return fmt.Errorf("column %q is %v: an edge's weight (--weights) is a number, in a column called %q or else the one behind the two vertices", c.Name, c.Type, part.GraphWeight)
		}
	}
	return r.noMore(r.from, r.to, r.weight)
}

// noMore refuses columns beside those that are read.
func (r *edgeColumns) noMore(read ...int) error {
	for i, c := range r.schema {
		used := r.o.ExtraColumns
		for _, n := range read {
			used = used || n == i
		}
		if used {
			continue
		}
		if r.o.Weights || r.list >= 0 {
			return fmt.Errorf("column %q is no part of the graph; --extra-columns ignores it", c.Name)
		}
		return fmt.Errorf("column %q is neither of the two vertices; --weights takes it as the edge's weight, --extra-columns ignores it", c.Name)
	}
	return nil
}

// chooseList checks the columns of a file with a row for each vertex.
func (r *edgeColumns) chooseList(list int) error {
	r.list, r.label = list, r.schema.Index(part.GraphName)
	c := r.schema[list]
	item := c.Type.Fields()[0].Type
	if fields := item.Fields(); item.ID == column.Struct && len(fields) == 2 && isWeight(fields[1].Type) {
		r.weighted, item = true, fields[0].Type
	}
	switch {
	case !isInteger(item):
		return fmt.Errorf("column %q is %v: the targets of a vertex are a list of whole numbers (i8 to u64), or of structs of such a number and a weight", c.Name, c.Type)
	case r.o.Names:
		return fmt.Errorf("column %q has the targets of each vertex, which are numbers of rows: leave out --names; names are in a column called %q", c.Name, part.GraphName)
	case r.o.Weights && !r.weighted:
		return fmt.Errorf("column %q is %v, which has no weights (--weights): its values would be structs of a whole number and a weight", c.Name, c.Type)
	case r.weighted && !r.o.Weights && !r.o.ExtraColumns:
		return fmt.Errorf("column %q has weights: --weights takes them, --extra-columns ignores them", c.Name)
	}
	if r.label >= 0 && r.schema[r.label].Type.ID != column.UTF8 && r.schema[r.label].Type.ID != column.Binary {
		return fmt.Errorf("column %q is %v: names of vertices are text", part.GraphName, r.schema[r.label].Type)
	}
	backwards := -1
	if c.Name == part.GraphOut {
		backwards = r.schema.Index(part.GraphIn)
	}
	return r.noMore(r.list, r.label, backwards)
}

// isInteger reports types whose values can be vertices.
func isInteger(t column.Type) bool { return t.ID >= column.I8 && t.ID <= column.U64 }

// isWeight reports types whose values can be weights.
func isWeight(t column.Type) bool {
	return isInteger(t) || t.ID == column.F32 || t.ID == column.F64
}

// fail is an error about a row of the chunk.
func (r *edgeColumns) fail(row, in int, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s, row %d of the file, column %q: %w", ErrInput, r.name, r.rows.where(), r.before+int64(row), r.schema[in].Name, fmt.Errorf(format, args...))
}

func (r *edgeColumns) next() (edge, error) {
	for {
		if r.lists == nil && r.row < r.end {
			r.row++
			return r.edge(r.row - 1)
		}
		if r.item < r.itemEnd {
			r.item++
			return r.target(r.item - 1)
		}
		if r.lists != nil && r.row+1 < r.end {
			r.row++
			from, to := r.lists.ValueOffsets(r.row)
			r.item, r.itemEnd = int(from), int(to)
			continue
		}
		if err := r.more(); err != nil {
			return edge{}, err
		}
	}
}

// more reads the next chunk.
func (r *edgeColumns) more() error {
	releaseAll(r.chunk)
	r.chunk = nil
	r.before += int64(r.end)
	r.row, r.end = 0, 0
	chunk, err := r.rows.Next(r.ctx)
	if err == io.EOF && r.list >= 0 && int64(r.highest) >= r.before && r.before > 0 {
		return fmt.Errorf("%w: %s: row %d of the file, column %q: there is no vertex %d: the file has %d rows, each a vertex, numbered from 0",
			ErrInput, r.name, r.highestAt, r.schema[r.list].Name, r.highest, r.before)
	}
	if err != nil {
		return err
	}
	r.chunk, r.end = chunk, chunk[0].Len()
	if r.list < 0 {
		r.sources, r.targets = valuesOf(chunk[r.from]), valuesOf(chunk[r.to])
		if r.weight >= 0 {
			r.weights = weightsOf(chunk[r.weight])
		}
		return nil
	}
	if r.before+int64(r.end) > MaxVertices {
		return fmt.Errorf("%w: %s: more than %d vertices", ErrTooLarge, r.name, uint64(MaxVertices))
	}
	r.row, r.lists = -1, chunk[r.list].(*array.List)
	items := r.lists.ListValues()
	if pair, ok := items.(*array.Struct); ok {
		r.weights = weightsOf(pair.Field(1))
		items = pair.Field(0)
	}
	r.targets = valuesOf(items)
	return r.addNames()
}

// addNames takes the names of the chunk's vertices in.
func (r *edgeColumns) addNames() error {
	if r.label < 0 || r.known {
		return nil
	}
	names := chunkText(r.chunk[r.label])
	for i := range r.end {
		if r.chunk[r.label].IsNull(i) {
			return r.fail(i, r.label, "the vertex's name is missing: write an empty text, or leave the column out")
		}
		if n := len(names(i)); n > MaxVertexNameBytes {
			return r.fail(i, r.label, "a vertex's name has %d bytes, at most %d are allowed", n, MaxVertexNameBytes)
		}
		r.names.add(names(i))
	}
	return r.fits(r.names)
}

// edge is the edge of a row.
func (r *edgeColumns) edge(row int) (e edge, err error) {
	if e.from, err = r.vertex(&r.sources, row, r.from); err != nil {
		return e, err
	}
	if e.to, err = r.vertex(&r.targets, row, r.to); err != nil {
		return e, err
	}
	if r.weight >= 0 {
		e.weight, err = r.weightAt(row, row, r.weight)
	}
	return e, err
}

// target is the edge to a value of the row's list.
func (r *edgeColumns) target(item int) (e edge, err error) {
	if r.targets.array.IsNull(item) {
		return e, r.fail(r.row, r.list, "a value of the list is missing: write lists without missing values")
	}
	to := r.targets.number(item)
	if to >= MaxVertices {
		return e, r.fail(r.row, r.list, "%s is not a vertex number (0 to %d): number the vertices as the rows, from 0", r.targets.array.ValueStr(item), uint64(MaxVertices-1))
	}
	e.from, e.to = uint32(r.before+int64(r.row)), uint32(to)
	if e.to >= r.highest {
		r.highest, r.highestAt = e.to, int64(e.from)
	}
	if r.o.Weights {
		e.weight, err = r.weightAt(r.row, item, r.list)
	}
	return e, err
}

// vertex is the number of a vertex that a row has in a column.
func (r *edgeColumns) vertex(v *vertexValues, row, in int) (uint32, error) {
	if v.array.IsNull(row) {
		return 0, r.fail(row, in, "a value is missing: an edge has two vertices; leave rows without them out when the file is written")
	}
	if !r.o.Names {
		n := v.number(row)
		if n >= MaxVertices {
			return 0, r.fail(row, in, "%s is not a vertex number (0 to %d): number the vertices from 0, or load the numbers as names (--names)", v.array.ValueStr(row), uint64(MaxVertices-1))
		}
		return uint32(n), nil
	}
	name := v.text(row)
	if len(name) > MaxVertexNameBytes {
		return 0, r.fail(row, in, "a vertex's name has %d bytes, at most %d are allowed", len(name), MaxVertexNameBytes)
	}
	if id, ok := r.names.ids[string(name)]; ok {
		return id, nil
	}
	if r.known {
		return 0, fmt.Errorf("%w: %s: row %d has the new vertex %q", ErrChanged, r.name, r.before+int64(row), clip(name))
	}
	if len(r.names.names) >= MaxVertices {
		return 0, fmt.Errorf("%w: %s: more than %d vertices", ErrTooLarge, r.name, uint64(MaxVertices))
	}
	return r.names.add(name), nil
}

// weightAt is a weight: value i, of a row, in a column.
func (r *edgeColumns) weightAt(row, i, in int) (float64, error) {
	w := &r.weights
	if w.array.IsNull(i) {
		return 0, r.fail(row, in, "the edge's weight is missing: with --weights each edge has one")
	}
	v := w.number(i)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, r.fail(row, in, "the edge's weight is %s, which is no finite number (--weights)", w.array.ValueStr(i))
	}
	return v, nil
}

// vertexValues reads vertices from a column: integers, or text.
type vertexValues struct {
	array  arrow.Array
	number func(i int) uint64 // of integers; those below 0 are larger than any vertex
	text   func(i int) []byte
}

func valuesOf(a arrow.Array) vertexValues {
	v := vertexValues{array: a, text: chunkText(a)}
	switch a := a.(type) {
	case *array.Int8:
		v.number = numbers(a.Int8Values())
	case *array.Int16:
		v.number = numbers(a.Int16Values())
	case *array.Int32:
		v.number = numbers(a.Int32Values())
	case *array.Int64:
		v.number = numbers(a.Int64Values())
	case *array.Uint8:
		v.number = numbers(a.Uint8Values())
	case *array.Uint16:
		v.number = numbers(a.Uint16Values())
	case *array.Uint32:
		v.number = numbers(a.Uint32Values())
	case *array.Uint64:
		v.number = numbers(a.Uint64Values())
	}
	return v
}

func numbers[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](values []T) func(int) uint64 {
	return func(i int) uint64 { return uint64(values[i]) }
}

// chunkText reads values as text.
func chunkText(a arrow.Array) func(i int) []byte {
	switch a := a.(type) {
	case *array.String:
		return func(i int) []byte { return []byte(a.Value(i)) }
	case *array.Binary:
		return a.Value
	}
	return func(i int) []byte { return []byte(a.ValueStr(i)) }
}

// weightValues reads numbers as weights.
type weightValues struct {
	array  arrow.Array
	number func(i int) float64
}

func weightsOf(a arrow.Array) weightValues {
	w := weightValues{array: a}
	switch a := a.(type) {
	case *array.Float64:
		w.number = a.Value
	case *array.Float32:
		w.number = func(i int) float64 { return float64(a.Value(i)) }
	case *array.Uint64:
		w.number = func(i int) float64 { return float64(a.Value(i)) }
	default:
		whole := valuesOf(a).number
		w.number = func(i int) float64 { return float64(int64(whole(i))) }
	}
	return w
}
