package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"github.com/wherry-fabric/wherry/cluster"
)

// arrowText is an Arrow stream, or a file, of batches with so many rows each. A row is in JSON, as the Arrow library reads it.
func arrowText(t testing.TB, file bool, schema *arrow.Schema, size int, rows ...string) Input {
	t.Helper()
	var out bytes.Buffer
	var w interface {
		Write(arrow.RecordBatch) error
		io.Closer
	}
	if w = ipc.NewWriter(&out, ipc.WithSchema(schema)); file {
		var err error
		if w, err = ipc.NewFileWriter(&out, ipc.WithSchema(schema)); err != nil {
			t.Fatal(err)
		}
	}
	for len(rows) > 0 {
		n := min(size, len(rows))
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(rows[:n], ",")+"]"))
		if err == nil {
			err = w.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return NewText("in", out.Bytes())
}

// fieldsOf is a schema of names and types in turn, all of which may miss values.
func fieldsOf(all ...any) *arrow.Schema {
	var fields []arrow.Field
	for i := 0; i < len(all); i += 2 {
		fields = append(fields, arrow.Field{Name: all[i].(string), Type: all[i+1].(arrow.DataType), Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// sameGraph compares what two loads made: all windows.
func sameGraph(t *testing.T, what string, wantPlan, plan *Plan, want, got *Buffers) {
	t.Helper()
	if plan.Kind != cluster.CSR || plan.Rows != wantPlan.Rows || plan.Edges != wantPlan.Edges {
		t.Fatalf("%s: %v, %d vertices and %d edges, want %d and %d", what, plan.Kind, plan.Rows, plan.Edges, wantPlan.Rows, wantPlan.Edges)
	}
	for e := range plan.Sharding.Elements {
		for w := range plan.Sizes[e] {
			if !bytes.Equal(want.Memory(e, w), got.Memory(e, w)) {
				t.Fatalf("%s: window %d of element %d differs from that of the text", what, w, e)
			}
		}
	}
}

// A graph is the same from text, from Parquet and from Arrow, in one pass or in several.
func TestEdgeColumns(t *testing.T) {
	const vertices, count = 700, 80_000
	type row struct {
		Src    int64   `parquet:"src"`
		Dst    uint32  `parquet:"dst"`
		Weight float32 `parquet:"weight"`
	}
	u32, i64, u8, f64, utf8 := arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String
	word := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: utf8}
	rng := rand.New(rand.NewPCG(1, 5))
	var plain, weighted, named strings.Builder
	var rows []row
	var pairs, swapped, heavy, words []string
	for range count {
		r := row{rng.Int64N(vertices), rng.Uint32N(200), float32(rng.IntN(4000)) / 4}
		rows = append(rows, r)
		fmt.Fprintln(&plain, r.Src, r.Dst)
		fmt.Fprintln(&weighted, r.Src, r.Dst, r.Weight)
		fmt.Fprintf(&named, "v%d v%d\n", r.Src, r.Dst)
		pairs = append(pairs, fmt.Sprintf(`{"a":%d,"b":%d}`, r.Src, r.Dst))
		swapped = append(swapped, fmt.Sprintf(`{"to":%d,"x":"left out","from":%d}`, r.Dst, r.Src))
		heavy = append(heavy, fmt.Sprintf(`{"source":%d,"cost":%g,"target":%d}`, r.Src, r.Weight, r.Dst))
		words = append(words, fmt.Sprintf(`{"a":"v%d","b":"v%d"}`, r.Src, r.Dst))
	}
	groups := parquet.MaxRowsPerRowGroup(30_000)
	for _, c := range []struct {
		what string
		text string
		o    Options
		in   Input
	}{
		{"Parquet", plain.String(), Options{ExtraColumns: true}, parquetInput(t, rows, groups)},
		{"Parquet with weights", weighted.String(), Options{Weights: true}, parquetInput(t, rows, groups)},
		{"an Arrow stream, the first two columns", plain.String(), Options{}, arrowText(t, false, fieldsOf("a", u32, "b", u8), 70_000, pairs...)},
		{"an Arrow file, columns by name", plain.String(), Options{ExtraColumns: true}, arrowText(t, true, fieldsOf("to", i64, "x", utf8, "from", arrow.PrimitiveTypes.Int16), 7000, swapped...)},
		{"an Arrow file with weights", weighted.String(), Options{Weights: true}, arrowText(t, true, fieldsOf("source", i64, "cost", f64, "target", u8), 50_000, heavy...)},
		{"names", named.String(), Options{Names: true}, arrowText(t, false, fieldsOf("a", utf8, "b", word), count, words...)},
		{"numbers as names", plain.String(), Options{Names: true}, arrowText(t, false, fieldsOf("a", i64, "b", u32), count, pairs...)},
	} {
		c.o.Format = Edges
		for _, mapped := range []bool{true, false} {
			c.o.Spread = Spread{Kind: cluster.Cyclic, Elements: 3}
			wantPlan, want := load(t, NewText("text", []byte(c.text)), c.o, mapped)
			o := c.o
			o.MemoryBytes = map[bool]int64{true: 0, false: 16 << 20}[mapped]
			last, passes := int64(-1), int64(0)
			o.Progress = func(ph Phase, done, total int64) {
				if ph == PhaseFill && (done < last || done > total || total%c.in.Size() != 0) {
					t.Fatalf("%s: %d of %d after %d", c.what, done, total, last)
				} else if ph == PhaseFill {
					last, passes = done, total/c.in.Size()
				}
			}
			plan, got := load(t, c.in, o, mapped)
			sameGraph(t, c.what, wantPlan, plan, want, got)
			if passes < 1 {
				t.Errorf("%s: %d passes", c.what, passes)
			}
		}
	}
	// Less memory than the targets take: the file is read once for each portion.
	o := Options{Format: Edges, Weights: true, Spread: Spread{Elements: 2}}
	wantPlan, want := load(t, NewText("text", []byte(weighted.String())), o, false)
	passes := int64(0)
	in := arrowText(t, false, fieldsOf("source", i64, "cost", f64, "target", u8), 5000, heavy...)
	o.MemoryBytes, o.Progress = 1<<20, func(ph Phase, _, total int64) { passes = total / in.Size() }
	plan, got := load(t, in, o, false)
	if sameGraph(t, "in portions", wantPlan, plan, want, got); passes < 2 {
		t.Errorf("%d passes", passes)
	}
}

// A row for each vertex has the list of its targets: as a graph is written, and as other programs do.
func TestEdgeLists(t *testing.T) {
	large, edges := arrow.LargeListOf(arrow.PrimitiveTypes.Uint32), arrow.LargeListOf(arrow.StructOf(arrow.Field{Name: "to", Type: arrow.PrimitiveTypes.Uint32}, arrow.Field{Name: "weight", Type: arrow.PrimitiveTypes.Float64}))
	named := "@vertices 4\na\nb\nc d\n\n@edges\n"
	plain := []string{`{"name":"a","out":[1,2],"in":[]}`, `{"name":"b","out":[2,1],"in":[7]}`, `{"name":"c d","out":null,"in":[]}`, `{"name":"","out":[0],"in":[]}`}
	for what, c := range map[string]struct {
		text string
		o    Options
		in   Input
	}{
		"a graph as it is written": {named + "0 1\n0 2\n1 2\n1 1\n3 0\n", Options{}, arrowText(t, false, fieldsOf("name", arrow.BinaryTypes.String, "out", large, "in", large), 3, plain...)},
		"weights": {named + "0 1 0.5\n0 2 -1\n3 3 7\n", Options{Weights: true}, arrowText(t, true, fieldsOf("name", arrow.BinaryTypes.String, "out", edges), 2,
			`{"name":"a","out":[{"to":1,"weight":0.5},{"to":2,"weight":-1}]}`, `{"name":"b","out":[]}`, `{"name":"c d","out":[]}`, `{"name":"","out":[{"to":3,"weight":7}]}`)},
		"weights that are ignored": {"0 1\n1 1\n", Options{ExtraColumns: true}, arrowText(t, true, fieldsOf("out", edges), 2, `{"out":[{"to":1,"weight":0.5}]}`, `{"out":[{"to":1,"weight":1}]}`)},
		"one column of lists":      {"@vertices 3\n\n\n\n@edges\n0 1\n1 1\n", Options{}, arrowText(t, false, fieldsOf("next", arrow.ListOf(arrow.PrimitiveTypes.Int64)), 2, `{"next":[1]}`, `{"next":[1]}`, `{"next":[]}`)},
	} {
		c.o.Format, c.o.Spread = Edges, Spread{Elements: 2}
		wantPlan, want := load(t, NewText("text", []byte(c.text)), c.o, true)
		plan, got := load(t, c.in, c.o, true)
		if what == "one column of lists" { // its vertices have no names, those of the text have
			if text := graphText(plan, got); strings.Join(text, ";") != "0  [1] [];1  [1] [0 1];2  [] []" {
				t.Errorf("%s: %q", what, text)
			}
			continue
		}
		sameGraph(t, what, wantPlan, plan, want, got)
	}
	none := arrowText(t, true, fieldsOf("out", large), 1)
	if p, _ := load(t, none, Options{Format: Edges}, true); p.Rows != 0 {
		t.Errorf("a file without rows has %d vertices", p.Rows)
	}
	var many []string
	for v := range 70_000 { // more than are read at once
		many = append(many, fmt.Sprintf(`{"out":[%d]}`, v/2))
	}
	p, b := load(t, arrowText(t, false, fieldsOf("out", large), len(many), many...), Options{Format: Edges}, true)
	if out, in, _ := vertexOf(p, b, 34_999); p.Rows != 70_000 || fmt.Sprint(out, in) != "[17499] [69998 69999]" {
		t.Errorf("%d vertices; of one: %d, %d", p.Rows, out, in)
	}
}

func TestEdgeColumnErrors(t *testing.T) {
	u32, i64, f64, utf8 := arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String
	list, lists := arrow.ListOf(i64), fieldsOf("out", arrow.ListOf(i64))
	pair, three := fieldsOf("src", i64, "dst", i64), fieldsOf("src", i64, "dst", i64, "weight", f64)
	good := `{"src":0,"dst":1}`
	type edgeRow struct {
		Src int64  `parquet:"src"`
		Dst *int64 `parquet:"dst,optional"`
	}
	negative, one := []edgeRow{}, int64(1)
	for i := range 10 {
		negative = append(negative, edgeRow{int64(i), &one})
	}
	missing := append([]edgeRow{}, negative...)
	negative[7].Src, missing[9].Dst = -5, nil
	for _, c := range []struct {
		o    Options
		in   Input
		want string
	}{
		{Options{}, arrowText(t, false, pair, 2, good, good, `{"src":3,"dst":-1}`), `in: record batch 1, row 2 of the file, column "dst": -1 is not a vertex number (0 to 4294967294): number the vertices from 0, or load the numbers as names (--names)`},
		{Options{}, arrowText(t, true, pair, 9, good, `{"src":4294967295,"dst":1}`), `record batch 0, row 1 of the file, column "src": 4294967295 is not a vertex number`},
		{Options{}, arrowText(t, true, pair, 9, good, `{"src":4294967296,"dst":1}`), `column "src": 4294967296 is not a vertex number`},
		{Options{}, arrowText(t, true, fieldsOf("a", arrow.PrimitiveTypes.Uint64, "b", u32), 9, `{"a":18446744073709551615,"b":1}`), `18446744073709551615 is not a vertex number`},
		{Options{}, parquetInput(t, negative, parquet.MaxRowsPerRowGroup(5)), `x.parquet: row group 1, row 7 of the file, column "src": -5 is not a vertex number`},
		{Options{}, parquetInput(t, missing, parquet.MaxRowsPerRowGroup(5)), `x.parquet: row group 1, row 9 of the file, column "dst": a value is missing: an edge has two vertices`},
		{Options{}, arrowText(t, false, pair, 9, `{"src":null,"dst":1}`), `column "src": a value is missing`},
		{Options{}, arrowText(t, false, fieldsOf("src", f64, "dst", i64), 9), `column "src" is f64: an edge's vertices are whole numbers`},
		{Options{}, arrowText(t, false, fieldsOf("a", i64, "b", utf8), 9), `column "b" is text: load by names (--names)`},
		{Options{Names: true}, arrowText(t, false, fieldsOf("a", i64, "b", f64), 9), `column "b" is f64: an edge's vertices are whole numbers (i8 to u64), or text with --names`},
		{Options{Names: true}, arrowText(t, false, fieldsOf("a", i64, "b", utf8), 9, `{"a":1,"b":"`+strings.Repeat("b", 1025)+`"}`), `column "b": a vertex's name has 1025 bytes`},
		{Options{}, arrowText(t, false, fieldsOf("src", i64), 9), `its only column is "src", i64: an edge list has two columns`},
		{Options{}, arrowText(t, false, three, 9), `column "weight" is neither of the two vertices; --weights takes it as the edge's weight, --extra-columns ignores it`},
		{Options{Weights: true}, arrowText(t, false, fieldsOf("src", i64, "dst", i64, "weight", f64, "x", i64), 9), `column "x" is no part of the graph; --extra-columns`},
		{Options{Weights: true}, arrowText(t, false, pair, 9), `it has no third column: --weights takes`},
		{Options{Weights: true}, arrowText(t, false, fieldsOf("a", i64, "b", i64, "c", utf8), 9), `column "c" is utf8: an edge's weight (--weights) is a number`},
		{Options{Weights: true}, arrowText(t, false, three, 9, `{"src":1,"dst":1,"weight":null}`), `column "weight": the edge's weight is missing`},
		{Options{SkipBad: 1}, arrowText(t, false, pair, 9), `in is of format arrow: bad lines can be left out (--skip-bad) of text only`},
		{Options{Comma: ';'}, arrowText(t, false, pair, 9), `leave out the separator (--separator)`},
		{Options{}, arrowText(t, false, fieldsOf("a", list, "b", list), 9), `2 of its columns are lists: call the one with the targets of each vertex "out"`},
		{Options{}, arrowText(t, false, fieldsOf("a", arrow.ListOf(utf8)), 9), `column "a" is list<utf8>: the targets of a vertex are a list of whole numbers`},
		{Options{Names: true}, arrowText(t, false, lists, 9), `leave out --names; names are in a column called "name"`},
		{Options{Weights: true}, arrowText(t, false, lists, 9), `column "out" is list<i64>, which has no weights (--weights)`},
		{Options{}, arrowText(t, false, fieldsOf("out", arrow.ListOf(arrow.StructOf(arrow.Field{Name: "to", Type: u32}, arrow.Field{Name: "w", Type: f64}))), 9), `column "out" has weights: --weights takes them`},
		{Options{}, arrowText(t, false, lists, 9, `{"out":[0]}`, `{"out":[1,null]}`), `record batch 0, row 1 of the file, column "out": a value of the list is missing`},
		{Options{}, arrowText(t, false, lists, 9, `{"out":[0]}`, `{"out":[-1]}`), `row 1 of the file, column "out": -1 is not a vertex number`},
		{Options{}, arrowText(t, false, lists, 1, `{"out":[0]}`, `{"out":[2]}`), `row 1 of the file, column "out": there is no vertex 2: the file has 2 rows, each a vertex`},
		{Options{}, arrowText(t, false, fieldsOf("out", list, "name", i64), 1), `column "name" is i64: names of vertices are text`},
		{Options{}, arrowText(t, false, fieldsOf("out", list, "name", utf8), 1, `{"out":[0],"name":null}`), `column "name": the vertex's name is missing`},
		{Options{}, arrowText(t, false, fieldsOf("out", list, "age", utf8), 1), `column "age" is no part of the graph; --extra-columns`},
		{Options{}, NewText("in", []byte("PAR1\x15\x00 and no end")), `in: it is no Parquet file, or is cut off`},
		{Options{}, NewText("in", []byte("\xff\xff\xff\xff\x10")), `in: part: bad part: it is no Arrow stream`},
		{Options{MemoryBytes: 1 << 20}, arrowText(t, false, pair, 99, `{"src":60000,"dst":1}`), `60001 vertices need 960016 bytes of memory here, 786432 are allowed`},
	} {
		c.o.Format = Edges
		_, err := Scan(context.Background(), c.in, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want …%s…", err, c.want)
			continue
		}
		if !errors.Is(err, ErrInput) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v is of no kind", err)
		}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, three) // JSON has no such numbers
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	b.Field(1).(*array.Int64Builder).Append(1)
	b.Field(2).(*array.Float64Builder).Append(math.Inf(1))
	rec := b.NewRecordBatch()
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(three))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Scan(context.Background(), NewText("in", out.Bytes()), Options{Format: Edges, Weights: true}); err == nil || !strings.Contains(err.Error(), "the edge's weight is +Inf, which is no finite number") {
		t.Error(err)
	}
}

// A list of edges by name may begin as a Parquet file does.
func TestEdgesOfNamesLikeFormats(t *testing.T) {
	for _, text := range []string{"PAR1\tx\n", "PAR1 ARROW1\n", "ARROW1 PAR1\n"} {
		if p, _ := load(t, NewText("in", []byte(text)), Options{Format: Edges, Names: true}, true); p.Rows != 2 || p.Edges != 1 {
			t.Errorf("%q: %d vertices, %d edges", text, p.Rows, p.Edges)
		}
	}
}
