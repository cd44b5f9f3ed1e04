package part

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/column"
)

// readAligned writes a file around buffers, and reads it by the Arrow library: as a file, and as a stream from its start.
func readAligned(t *testing.T, a *Aligned, err error, buffers [][]byte) arrow.RecordBatch {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var sizes []uint64
	for _, b := range buffers {
		sizes = append(sizes, uint64(len(b)))
	}
	at, size := column.Places(sizes)
	file := bytes.Repeat([]byte{0xee}, int(size))
	for i, b := range buffers {
		if at[i]%Align != 0 {
			t.Errorf("buffer %d begins at %d", i, at[i])
		}
		if len(b) > 0 {
			copy(file[at[i]:], b)
		}
	}
	if err := a.Write(file); err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rec, err := r.RecordBatchAt(0)
	if err != nil || r.NumRecords() != 1 {
		t.Fatalf("%d batches, %v", r.NumRecords(), err)
	}
	for _, c := range rec.Columns() {
		if err := array.ValidateFull(c); err != nil {
			t.Error(err)
		}
	}
	stream, err := ipc.NewReader(bytes.NewReader(file[8:]))
	if err != nil || !stream.Next() || !array.RecordEqual(rec, stream.RecordBatch()) || stream.Next() {
		t.Errorf("as a stream: %v, %v", err, stream.Err())
	}
	return rec
}

func cells[T any](v ...T) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// A column of each type that can be a window is read from its file as it was written.
func TestFixedFile(t *testing.T) {
	for _, tc := range []struct {
		typ    string
		values []byte
		want   string
	}{
		{"u64", cells[uint64](1, math.MaxUint64, 3), "[1 18446744073709551615 3]"},
		{"i64", cells[int64](-1, 2, 3), "[-1 2 3]"},
		{"i8", cells[int8](-1, 2, 3), "[-1 2 3]"},
		{"u16", cells[uint16](65535, 2, 3), "[65535 2 3]"},
		{"f32", cells[float32](1.5, 2, 3), "[1.5 2 3]"},
		{"f64", cells(1.5, 2, -3), "[1.5 2 -3]"},
		{"bytes3", []byte("abcdefghi"), `["abc" "def" "ghi"]`},
	} {
		typ, err := column.Parse(tc.typ)
		if err != nil {
			t.Fatal(err)
		}
		a, err := FixedFile(column.Column{Name: "next row", Type: typ}, 3)
		rec := readAligned(t, a, err, [][]byte{tc.values})
		if got := fmt.Sprint(rec.Column(0)); got != tc.want || rec.NumRows() != 3 || rec.ColumnName(0) != "next row" {
			t.Errorf("%s: %s, %d rows of %q", tc.typ, got, rec.NumRows(), rec.ColumnName(0))
		}
		if f := rec.Schema().Field(0); f.Nullable || !arrow.TypeEqual(f.Type, ArrowType(typ)) {
			t.Errorf("%s: %v", tc.typ, f)
		}
		if a, err = FixedFile(column.Column{Name: "none", Type: typ}, 0); err != nil {
			t.Fatal(err)
		}
		if rec = readAligned(t, a, err, [][]byte{nil}); rec.NumRows() != 0 {
			t.Errorf("%s: %d rows of none", tc.typ, rec.NumRows())
		}
	}
	if _, err := FixedFile(column.Column{Name: "a", Type: column.Type{ID: column.UTF8}}, 1); err == nil {
		t.Error("text is no column of fixed width")
	}
}

// A graph's buffers are the lists of its file, with names and weights and without.
func TestGraphFile(t *testing.T) {
	buffers := [][]byte{
		cells[uint64](0, 2, 2, 3), cells[uint32](1, 2, 0), // 0 → 1, 2; 2 → 0
		cells[uint64](0, 1, 2, 3), cells[uint32](2, 0, 0),
		nil, nil, nil, nil,
	}
	named := append([][]byte(nil), buffers...)
	named[nameOffsets], named[nameBytes] = cells[uint32](0, 1, 1, 3), []byte("aüxx")[:3]
	weighted := append([][]byte(nil), named...)
	weighted[outWeights], weighted[inWeights] = cells(0.5, 1, 2), cells(2, 0.5, 1)
	empty := [][]byte{cells[uint64](0), nil, cells[uint64](0), nil, nil, nil, nil, nil}
	for name, tc := range map[string]struct {
		rows    uint64
		buffers [][]byte
		weights bool
		want    string
	}{
		"plain":    {3, buffers, false, "[[1 2] [] [0]]|[[2] [0] [0]]"},
		"named":    {3, named, false, `["a" "" "ü"]|[[1 2] [] [0]]|[[2] [0] [0]]`},
		"weighted": {3, weighted, true, `["a" "" "ü"]|[{[1 2] [0.5 1]} {[] []} {[0] [2]}]|[{[2] [2]} {[0] [0.5]} {[0] [1]}]`},
		"empty":    {0, empty, false, "[]|[]"},
	} {
		g := Graph{Rows: tc.rows, Weighted: tc.weights, Text: true}
		for _, b := range tc.buffers {
			g.Sizes = append(g.Sizes, uint64(len(b)))
		}
		a, err := g.File()
		rec := readAligned(t, a, err, tc.buffers)
		got := ""
		for i, c := range rec.Columns() {
			if i > 0 {
				got += "|"
			}
			got += fmt.Sprint(c)
		}
		if got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
