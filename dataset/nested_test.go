package dataset

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	writer "github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// loadedAs loads files as columns over elements, and writes what the parts hold in a format, in their order.
func loadedAs(t testing.TB, format writer.Format, elements int, o Options, ins ...Input) (*Plan, string, error) {
	t.Helper()
	o.Spread.Elements = uint32(elements)
	p, err := ScanFiles(t.Context(), ins, o)
	if err != nil {
		return nil, "", err
	}
	var sink Buffers
	if err := p.Fill(t.Context(), &sink); err != nil {
		return p, "", err
	}
	return p, partsAs(t, format, p, &sink), nil
}

// partsAs writes what the parts of a filled plan hold.
func partsAs(t fatal, format writer.Format, p *Plan, sink *Buffers) string {
	t.Helper()
	var out bytes.Buffer
	w, err := writer.NewWriter(&out, format, p.Columns)
	if err != nil {
		t.Fatal(err)
	}
	for e := range p.Parts {
		for i, want := range p.Parts[e] {
			file, err := part.Open(sink.Memory(uint32(e), cluster.PartWindows*i+cluster.PartFile))
			if err != nil {
				t.Fatal(err)
			}
			if file.Rows != want.Rows || file.Chunks() != int(want.Chunks) {
				t.Fatalf("part %d of %d: %d rows, %d chunks, want %+v", i, e, file.Rows, file.Chunks(), want)
			}
			for c := range file.Chunks() {
				rec := file.Chunk(c)
				if err := w.Write(rec.Columns(), int(rec.NumRows())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const nestedRows = `{"id":1,"tags":["a","b"],"at":{"x":1,"y":2.5},"deep":[[{"n":1,"t":["2026-01-01"]}],null,[]]}
{"id":2,"tags":[],"at":null,"deep":[]}
{"id":3,"tags":null,"at":{"x":null,"y":3},"deep":null}
{"id":4,"tags":[null,"d"],"at":{"x":-7,"y":null},"deep":[[{"n":null,"t":null}]]}
`

// Lists and objects of NDJSON are columns: inferred, cut over elements, and written as they were.
func TestNestedColumns(t *testing.T) {
	want := strings.Repeat(nestedRows, 50)
	for _, elements := range []int{1, 3} {
		for _, key := range []string{"", "id"} {
			p, got, err := loadedAs(t, writer.NDJSON, elements, Options{Format: NDJSON, Spread: Spread{Key: key}}, text("x.ndjson", want))
			if err != nil {
				t.Fatal(err)
			}
			if s := p.Columns.List(); s != "id:i64,tags:list<utf8>,at:struct<x:i64,y:f64>,deep:list<list<struct<n:i64,t:list<date32>>>>" {
				t.Fatal(s)
			}
			if elements == 1 && got != want {
				t.Errorf("%s", got)
			}
			if sortLines(got) != sortLines(want) {
				t.Errorf("%d elements, key %q: %s", elements, key, got)
			}
		}
	}
	_, got, err := loadedAs(t, writer.Parquet, 1, Options{Format: NDJSON}, text("x.ndjson", want))
	if err != nil {
		t.Fatal(err)
	}
	p, again, err := loadedAs(t, writer.NDJSON, 2, Options{Format: Parquet}, text("x.parquet", got))
	if err != nil || again != want {
		t.Errorf("by parquet: %v, %s", err, again)
	}
	_, got, err = loadedAs(t, writer.Arrow, 2, Options{Format: Parquet}, text("x.parquet", got))
	if err != nil {
		t.Fatal(err)
	}
	q, again, err := loadedAs(t, writer.NDJSON, 1, Options{Format: Arrow}, text("x.arrows", got))
	if err != nil || again != want || p.Columns.Differs(q.Columns) != "" {
		t.Errorf("by arrow: %v, %s", err, again)
	}
}

// Files of columns in another order than the first one's, or the dataset's, are read by name.
func TestColumnsInAnotherOrder(t *testing.T) {
	for _, f := range []struct {
		written writer.Format
		format  Format
	}{{writer.Parquet, Parquet}, {writer.Arrow, Arrow}} {
		var ins []Input
		for _, rows := range []string{`{"a":1,"b":10,"c":"x"}`, `{"b":20,"c":"y","a":2}`, `{"c":"z","a":null,"b":30}`} {
			_, file, err := loadedAs(t, f.written, 1, Options{Format: NDJSON, ColumnTypes: column.Schema{{Name: "a", Type: column.Type{ID: column.I64}}}}, text("x.ndjson", rows))
			if err != nil {
				t.Fatal(err)
			}
			ins = append(ins, text("x."+string(f.format), file))
		}
		p, got, err := loadedAs(t, writer.CSV, 1, Options{Format: f.format}, ins...)
		if err != nil || got != "a,b,c\n1,10,x\n2,20,y\n,30,z\n" {
			t.Fatalf("%s: %q, %v", f.format, got, err)
		}
		if _, got, err = loadedAs(t, writer.CSV, 1, Options{Format: f.format, Like: p.Columns}, ins[1]); err != nil || got != "a,b,c\n2,20,y\n" {
			t.Errorf("%s, added: %q, %v", f.format, got, err)
		}
		_, other, err := loadedAs(t, f.written, 1, Options{Format: NDJSON}, text("x.ndjson", `{"c":"z","b":"text","a":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadedAs(t, writer.CSV, 1, Options{Format: f.format}, ins[0], text("x."+string(f.format), other)); err == nil || !strings.Contains(err.Error(), `column "b" is utf8, not i64`) {
			t.Errorf("%s: %v", f.format, err)
		}
	}
}

func sortLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines { // a few lines, often
		for k := i; k > 0 && lines[k] < lines[k-1]; k-- {
			lines[k], lines[k-1] = lines[k-1], lines[k]
		}
	}
	return strings.Join(lines, "\n")
}

// A value that does not fit says where in the row it is. Such rows can be left out.
func TestNestedBadValues(t *testing.T) {
	o := Options{Format: NDJSON, ColumnTypes: types(t, "id:i64,tags:list<utf8>,at:struct<x:i64,y:f64>,deep:list<list<struct<n:i64,t:list<date32>>>>")}
	for row, want := range map[string]string{
		`{"id":5,"tags":"a"}`:                            `column tags: "\"a\"": it is no list`,
		`{"id":5,"at":{"x":"one","y":1}}`:                `column at: .x: "one" `,
		`{"id":5,"at":{"x":1,"z":true}}`:                 `column at: it has a member "z", and its type has no such field`,
		`{"id":5,"at":{"x":1,"x":2}}`:                    `column at: x: `,
		`{"id":5,"at":[1]}`:                              `column at: "[1]": it is no object`,
		`{"id":5,"at":{"x":[1]}}`:                        `column at: .x: it is an object or a list`,
		`{"id":{"a":1}}`:                                 `column id: it is an object or a list`,
		`{"id":5,"deep":[[{"n":1,"t":["2026-01-99"]}]]}`: `column deep: [0]: [0]: .t: [0]: "2026-01-99"`,
	} {
		_, _, err := loadedAs(t, writer.NDJSON, 1, o, text("x.ndjson", nestedRows+row+"\n"))
		if err == nil || !strings.Contains(err.Error(), "x.ndjson: line 5: "+want) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
		skip := o
		skip.SkipBad = 1
		_, got, err := loadedAs(t, writer.NDJSON, 1, skip, text("x.ndjson", nestedRows+row+"\n"+nestedRows))
		if err != nil || got != nestedRows+nestedRows {
			t.Errorf("%s: left out: %v, %s", row, err, got)
		}
	}
	_, _, err := loadedAs(t, writer.NDJSON, 1, Options{Format: CSV, ColumnTypes: types(t, "a:list<i64>")}, text("x.csv", "a\n1\n"))
	if err == nil || !strings.Contains(err.Error(), "lists and structs are loaded from ndjson, parquet and arrow") {
		t.Error(err)
	}
	if _, err := writer.NewWriter(nil, writer.CSV, o.ColumnTypes); err == nil || !strings.Contains(err.Error(), `column "tags", which is list<utf8>: csv has no lists`) {
		t.Error(err)
	}
}

// A value behind the sample that the type does not hold says which would take it.
func TestNestedLateValues(t *testing.T) {
	sample := strings.Repeat(nestedRows, sampleBytes/len(nestedRows)+1)
	for row, want := range map[string]string{
		`{"tags":["a",7]}`:       "--types 'tags:list<utf8>'", // which takes it as it is written
		`{"tags":7}`:             "--types 'tags:utf8'",
		`{"at":{"x":1,"z":[7]}}`: "--types 'at:struct<x:i64,y:f64,z:list<i64>>'",
		`{"at":{"x":1.5}}`:       "--types 'at:struct<x:f64,y:f64>'",
		`{"id":[1]}`:             "--types 'id:utf8'",
	} {
		_, _, err := loadedAs(t, writer.NDJSON, 1, Options{Format: NDJSON, SkipBad: 1}, text("x.ndjson", sample+row+"\n"+row+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
	}
}

// Lists of all of Arrow's kinds become lists; text within is plain.
func TestArrowLists(t *testing.T) {
	mem := memory.DefaultAllocator
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "large", Type: arrow.LargeListOf(arrow.PrimitiveTypes.Uint32), Nullable: true},
		{Name: "pair", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16), Nullable: true},
		{Name: "map", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), Nullable: true},
		{Name: "words", Type: arrow.ListOf(dict), Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	for i := range 3 {
		large := b.Field(0).(*array.LargeListBuilder)
		pair := b.Field(1).(*array.FixedSizeListBuilder)
		m := b.Field(2).(*array.MapBuilder)
		words := b.Field(3).(*array.ListBuilder)
		if i == 1 {
			for _, f := range b.Fields() {
				f.AppendNull()
			}
			continue
		}
		large.Append(true)
		large.ValueBuilder().(*array.Uint32Builder).AppendValues([]uint32{uint32(i), 4_000_000_000}, nil)
		pair.Append(true)
		pair.ValueBuilder().(*array.Int16Builder).AppendValues([]int16{int16(-i), 7}, nil)
		m.Append(true)
		m.KeyBuilder().(*array.StringBuilder).Append("k")
		m.ItemBuilder().(*array.Int64Builder).AppendNull()
		words.Append(true)
		w := words.ValueBuilder().(*array.BinaryDictionaryBuilder)
		for range 2 {
			if err := w.AppendString("word"); err != nil {
				t.Fatal(err)
			}
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	cut := rec.NewSlice(1, 3)
	defer cut.Release()
	var file bytes.Buffer
	w := ipc.NewWriter(&file, ipc.WithSchema(schema))
	for _, r := range []arrow.RecordBatch{rec, cut} {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p, got, err := loadedAs(t, writer.NDJSON, 1, Options{Format: Arrow}, text("x.arrows", file.String()))
	if err != nil {
		t.Fatal(err)
	}
	const none = `{"large":null,"pair":null,"map":null,"words":null}` + "\n"
	const last = `{"large":[2,4000000000],"pair":[-2,7],"map":[{"key":"k","value":null}],"words":["word","word"]}` + "\n"
	if want := strings.ReplaceAll(strings.ReplaceAll(last, "[2,", "[0,"), "[-2,", "[0,") + none + last + none + last; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s := p.Columns.List(); s != "large:list<u32>,pair:list<i16>,map:list<struct<key:utf8,value:i64>>,words:list<utf8>" {
		t.Error(s)
	}
}

// onlyColumns is an input of which only the columns are asked.
type onlyColumns struct{ columnar }

func (onlyColumns) Columns() column.Schema {
	return column.Schema{{Name: "a", Type: column.Type{ID: column.I8}}}
}

// By a key, parts are the smaller the more nodes there are: what has too many is told so, and not to use more nodes.
func TestTooManyKeyedParts(t *testing.T) {
	for key, want := range map[int]string{-1: "spread the dataset over more nodes", 0: "without --key"} {
		p := &Plan{Sizes: [][]uint64{make([]uint64, cluster.MaxWindows)}}
		f := filling{plan: p, in: onlyColumns{}, key: key, memory: 1 << 20, drafts: []*part.Draft{part.NewDraft()}}
		if err := f.flush(t.Context(), 0); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), want) {
			t.Errorf("key %d: %v, want %q", key, err, want)
		}
	}
}
