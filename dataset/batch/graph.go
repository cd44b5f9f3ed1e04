package batch

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"github.com/wherry-fabric/wherry/dataset/part"
)

// Vertex is a vertex of a graph with its edges.
type Vertex struct {
	Name    string // "" where vertices have none
	Out, In []Edge
}

// Edge is one end of an edge: the vertex at the other, and the edge's weight, 0 where edges have none.
type Edge struct {
	To     uint32  `parquet:"to"`
	Weight float64 `parquet:"weight"`
}

// GraphWriter writes vertices with their edges, in the columns of a graph's Arrow file: name, if vertices have some, out and in. One goroutine uses it.
type GraphWriter struct {
	named, weighted bool
	vertices        uint64
	stream          *ipc.Writer
	schema          *arrow.Schema
	parquet         graphParquet
}

// NewGraphWriter starts writing a graph, as Arrow or Parquet.
func NewGraphWriter(w io.Writer, format Format, named, weighted bool) (*GraphWriter, error) {
	g := &GraphWriter{named: named, weighted: weighted}
	switch format {
	case Arrow:
		g.schema = graphSchema(named, weighted)
		g.stream = ipc.NewWriter(w, ipc.WithSchema(g.schema))
	case Parquet:
		g.parquet = newGraphParquet(w, named, weighted)
	default:
		return nil, fmt.Errorf("%w: a graph is written as arrow or parquet, not as %s", ErrFormat, format)
	}
	return g, nil
}

func graphSchema(named, weighted bool) *arrow.Schema {
	item := arrow.Field{Name: part.GraphTo, Type: arrow.PrimitiveTypes.Uint32}
	if weighted {
		item = arrow.Field{Name: part.GraphEdge, Type: arrow.StructOf(item, arrow.Field{Name: part.GraphWeight, Type: arrow.PrimitiveTypes.Float64})}
	}
	list := arrow.LargeListOfField(item)
	fields := []arrow.Field{{Name: part.GraphOut, Type: list}, {Name: part.GraphIn, Type: list}}
	if named {
		fields = append([]arrow.Field{{Name: part.GraphName, Type: arrow.BinaryTypes.String}}, fields...)
	}
	return arrow.NewSchema(fields, nil)
}

// Write writes the vertices that follow.
func (g *GraphWriter) Write(vertices []Vertex) error {
	for i := range vertices {
		if !utf8.ValidString(vertices[i].Name) {
			return fmt.Errorf("batch: the name of vertex %d, %q, is not UTF-8, as text in other programs is: read the windows one by one (--element and --window)", g.vertices+uint64(i), vertices[i].Name)
		}
	}
	g.vertices += uint64(len(vertices))
	if g.parquet != nil {
		return g.parquet.write(vertices)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, g.schema)
	defer b.Release()
	lists := b.Fields()
	if g.named {
		names := lists[0].(*array.StringBuilder)
		for i := range vertices {
			names.Append(vertices[i].Name)
		}
		lists = lists[1:]
	}
	for i := range vertices {
		appendEdges(lists[0].(*array.LargeListBuilder), vertices[i].Out, g.weighted)
		appendEdges(lists[1].(*array.LargeListBuilder), vertices[i].In, g.weighted)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	return g.stream.Write(rec)
}

func appendEdges(list *array.LargeListBuilder, edges []Edge, weighted bool) {
	list.Append(true)
	if !weighted {
		to := list.ValueBuilder().(*array.Uint32Builder)
		for _, e := range edges {
			to.Append(e.To)
		}
		return
	}
	pair := list.ValueBuilder().(*array.StructBuilder)
	for _, e := range edges {
		pair.Append(true)
		pair.FieldBuilder(0).(*array.Uint32Builder).Append(e.To)
		pair.FieldBuilder(1).(*array.Float64Builder).Append(e.Weight)
	}
}

// Close writes what is left.
func (g *GraphWriter) Close() error {
	if g.parquet != nil {
		return g.parquet.close()
	}
	return g.stream.Close()
}

// graphParquet writes vertices to a Parquet file.
type graphParquet interface {
	write([]Vertex) error
	close() error
}

// The rows of Parquet files: of vertices with names and without, of edges with weights and without.
type (
	plainRow struct {
		Out []uint32 `parquet:"out,list"`
		In  []uint32 `parquet:"in,list"`
	}
	namedRow struct {
		Name string   `parquet:"name"`
		Out  []uint32 `parquet:"out,list"`
		In   []uint32 `parquet:"in,list"`
	}
	weightedRow struct {
		Out []Edge `parquet:"out,list"`
		In  []Edge `parquet:"in,list"`
	}
	namedWeightedRow struct {
		Name string `parquet:"name"`
		Out  []Edge `parquet:"out,list"`
		In   []Edge `parquet:"in,list"`
	}
)

func newGraphParquet(w io.Writer, named, weighted bool) graphParquet {
	switch {
	case named && weighted:
		return rowsOf(w, func(v *Vertex) namedWeightedRow { return namedWeightedRow{v.Name, v.Out, v.In} })
	case named:
		return rowsOf(w, func(v *Vertex) namedRow { return namedRow{v.Name, targets(v.Out), targets(v.In)} })
	case weighted:
		return rowsOf(w, func(v *Vertex) weightedRow { return weightedRow{v.Out, v.In} })
	}
	return rowsOf(w, func(v *Vertex) plainRow { return plainRow{targets(v.Out), targets(v.In)} })
}

func targets(edges []Edge) []uint32 {
	out := make([]uint32, len(edges))
	for i, e := range edges {
		out[i] = e.To
	}
	return out
}

type parquetVertices[T any] struct {
	w   *parquet.GenericWriter[T]
	row func(*Vertex) T
}

func rowsOf[T any](w io.Writer, row func(*Vertex) T) *parquetVertices[T] {
	return &parquetVertices[T]{parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd)), row}
}

// write makes a row group of vertices.
func (p *parquetVertices[T]) write(vertices []Vertex) error {
	rows := make([]T, len(vertices))
	for i := range vertices {
		rows[i] = p.row(&vertices[i])
	}
	if _, err := p.w.Write(rows); err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	return p.w.Flush()
}

func (p *parquetVertices[T]) close() error { return p.w.Close() }
