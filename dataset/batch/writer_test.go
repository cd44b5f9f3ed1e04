package batch

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/parquet-go/parquet-go"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

func TestFormats(t *testing.T) {
	columns := column.Schema{
		{Name: "user id", Type: column.Type{ID: column.I64}},
		{Name: "name", Type: column.Type{ID: column.UTF8}, Nullable: true},
		{Name: "when", Type: column.Type{ID: column.Timestamp, Unit: column.Millisecond, Zone: "+02:00"}, Nullable: true},
		{Name: "v", Type: column.Type{ID: column.F64}},
	}
	id, name := part.NewBuilder(columns[0].Type, 2), part.NewBuilder(columns[1].Type, 2)
	when, v := part.NewBuilder(columns[2].Type, 2), part.NewBuilder(columns[3].Type, 2)
	minusOne := int64(-1)
	id.Bits(uint64(minusOne))
	id.Bits(2)
	if err := name.Bytes([]byte(`a "b", c`)); err != nil {
		t.Fatal(err)
	}
	name.Null()
	when.Bits(uint64(minusOne))
	when.Null()
	v.Float(0.5)
	v.Float(2)
	rows := []arrow.Array{id.Finish(), name.Finish(), when.Finish(), v.Finish()}
	write := func(f Format) string {
		var b bytes.Buffer
		w, err := NewWriter(&b, f, columns)
		if err == nil {
			err = w.Write(rows, 2)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for f, want := range map[Format]string{
		CSV:    "user id,name,when,v\n-1,\"a \"\"b\"\", c\",1970-01-01T01:59:59.999+02:00,0.5\n2,,,2\n",
		NDJSON: "{\"user id\":-1,\"name\":\"a \\\"b\\\", c\",\"when\":\"1970-01-01T01:59:59.999+02:00\",\"v\":0.5}\n{\"user id\":2,\"name\":null,\"when\":null,\"v\":2}\n",
		JSON:   "[\n {\"user id\":-1,\"name\":\"a \\\"b\\\", c\",\"when\":\"1970-01-01T01:59:59.999+02:00\",\"v\":0.5},\n {\"user id\":2,\"name\":null,\"when\":null,\"v\":2}\n]\n",
		Table:  "user id  name      when                             v\n     -1  a \"b\", c  1970-01-01T01:59:59.999+02:00  0.5\n      2                                             2\n",
	} {
		if got := write(f); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", f, got, want)
		}
	}
	r, err := ipc.NewReader(bytes.NewReader([]byte(write(Arrow))))
	if err != nil || !r.Next() {
		t.Fatal(err)
	}
	for i, a := range r.RecordBatch().Columns() {
		if !array.Equal(a, rows[i]) {
			t.Errorf("column %d came back as %v", i, a)
		}
	}
	if _, err := ParseFormat("xml"); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

// Parquet counts no seconds, and has no durations: the first become milliseconds, the others plain numbers.
func TestParquetSeconds(t *testing.T) {
	columns := column.Schema{{Name: "z", Type: column.Type{ID: column.Timestamp}}, {Name: "a", Type: column.Type{ID: column.Time32}, Nullable: true}, {Name: "d", Type: column.Type{ID: column.Duration}}}
	var rows []arrow.Array
	for _, c := range columns {
		b := part.NewBuilder(c.Type, 1)
		b.Bits(7)
		rows = append(rows, b.Finish())
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, Parquet, columns)
	if err == nil {
		err = errors.Join(w.Write(rows, 1), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]parquet.Row, 1)
	r := parquet.NewReader(f)
	if n, err := r.ReadRows(got); n != 1 || err != nil && err != io.EOF {
		t.Fatal(n, err)
	}
	if got[0][0].Int64() != 7000 || got[0][1].Int32() != 7000 || got[0][2].Int64() != 7 {
		t.Errorf("%v", got[0])
	}
	if names := f.Schema().Columns(); names[0][0] != "z" || names[1][0] != "a" {
		t.Errorf("columns %v", names)
	}
}

// A table is for a terminal: no name and no value moves its cursor, or makes a row two lines.
func TestTableIsPrintable(t *testing.T) {
	columns := column.Schema{{Name: "a\x1b[2J", Type: column.Type{ID: column.UTF8}}}
	cells := part.NewBuilder(columns[0].Type, 1)
	if err := cells.Bytes([]byte("red\x1b[31m\nnext\u009b\x7f")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, Table, columns)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write([]arrow.Array{cells.Finish()}, 1), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "a\ufffd[2J\nred\ufffd[31m\ufffdnext\ufffd\ufffd\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A table of many rows is written in pieces; what is wider in a later piece widens that piece only.
func TestLongTable(t *testing.T) {
	columns := column.Schema{{Name: "n", Type: column.Type{ID: column.I64}}, {Name: "half", Type: column.Type{ID: column.UTF8}}}
	n, half := part.NewBuilder(columns[0].Type, tableRows+2), part.NewBuilder(columns[1].Type, tableRows+2)
	for i := range tableRows + 2 {
		n.Bits(uint64(1000 * i))
		if err := half.Bytes([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, Table, columns)
	if err == nil {
		err = errors.Join(w.Write([]arrow.Array{n.Finish(), half.Finish()}, tableRows+2), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != tableRows+4 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, want := range map[int]string{0: "      n  half", 1: "      0  x", tableRows: "9999000  x", tableRows + 1: "10000000  x", tableRows + 2: "10001000  x"} {
		if lines[i] != want {
			t.Errorf("line %d: %q, want %q", i, lines[i], want)
		}
	}
}
