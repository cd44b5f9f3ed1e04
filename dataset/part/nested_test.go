package part

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

// nestedColumns are lists and structs, some missing.
func nestedColumns(t testing.TB, rows int) (column.Schema, []arrow.Array) {
	t.Helper()
	s, err := column.ParseList("tags:list<utf8>,at:struct<x:i64,ok:list<bool>>")
	if err != nil {
		t.Fatal(err)
	}
	tags, at := NewBuilder(s[0].Type, rows), NewBuilder(s[1].Type, rows)
	for r := range rows {
		if r%4 == 3 {
			tags.Null()
			at.Null()
			continue
		}
		for range r % 3 {
			err = errors.Join(err, tags.Within(0).Bytes([]byte("tag")))
		}
		at.Within(0).Bits(uint64(r))
		at.Within(1).Within(0).Bool(r%2 == 0)
		if err = errors.Join(err, tags.Close(), at.Within(1).Close(), at.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return s, []arrow.Array{tags.Finish(), at.Finish()}
}

func writtenNested(t testing.TB, rows int) []byte {
	t.Helper()
	s, columns := nestedColumns(t, rows)
	d := NewDraft()
	defer d.Release()
	d.Add(columns, 1, rows-1)
	if err := d.Seal(s); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A part's lists and structs are those that were put into it, wherever they are cut; any byte of it that changes is found, or does no harm.
func TestNestedPart(t *testing.T) {
	b := writtenNested(t, 20)
	p, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	_, want := nestedColumns(t, 20)
	rec := p.Chunk(0)
	for i, a := range rec.Columns() {
		if !array.Equal(a, array.NewSlice(want[i], 1, 20)) {
			t.Errorf("column %d: %v, want %v", i, a, want[i])
		}
	}
	if n := len(p.Directory()); uint64(n) != DirectoryBytes(2, 1) {
		t.Errorf("a directory of %d bytes", n)
	}
	for at := range b {
		bad := bytes.Clone(b)
		bad[at] ^= 0x41
		if p, err := Open(bad); err == nil {
			for _, a := range p.Chunk(0).Columns() {
				_ = a.String() // reads all that it has
			}
			p.Directory()
		}
	}
}

// Cut drops rows that are not whole.
func TestCutNested(t *testing.T) {
	s, _ := nestedColumns(t, 4)
	b := NewBuilder(s[1].Type, 4)
	for range 2 {
		b.Within(0).Bits(1)
		b.Within(1).Null()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.Within(1).Within(0).Bool(true)
	b.Within(0).Bits(2)
	b.Cut(2)
	b.Null()
	b.Cut(1)
	a := b.Finish()
	if err := array.ValidateFull(a); err != nil || a.Len() != 1 || a.NullN() != 0 || a.(*array.Struct).Field(1).Len() != 1 {
		t.Errorf("%v, %v", a, err)
	}
}

func TestBadNested(t *testing.T) {
	lists := func(offsets []int32, valid byte, nulls int) arrow.Array {
		values := NewBuilder(column.Type{ID: column.I8}, 4)
		for range 4 {
			values.Bits(7)
		}
		data := array.NewData(arrow.ListOf(arrow.PrimitiveTypes.Int8), 2, []*memory.Buffer{memory.NewBufferBytes([]byte{valid}),
			memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}, []arrow.ArrayData{values.Finish().Data()}, nulls, 0)
		return array.MakeFromData(data)
	}
	number := NewBuilder(column.Type{ID: column.I8}, 2)
	number.Bits(1)
	number.Bits(2)
	st := array.NewData(arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8, Nullable: true}), 2, []*memory.Buffer{memory.NewBufferBytes([]byte{1})},
		[]arrow.ArrayData{number.Finish().Data()}, 1, 0)
	deep := arrow.DataType(arrow.PrimitiveTypes.Int8)
	for range column.MaxNesting + 3 {
		deep = arrow.ListOf(deep)
	}
	null := array.MakeArrayOfNull(memory.DefaultAllocator, deep, 1)
	for want, a := range map[string]arrow.Array{
		"the values 1 to 4 of 4":               lists([]int32{1, 2, 4}, 3, 0),
		"row 0 is missing, and has 2 values":   lists([]int32{0, 2, 4}, 2, 1),
		"row 1 is missing, and its field 0 is": array.MakeFromData(st),
	} {
		if err := checkColumn(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Open(raw(t, arrow.Field{Name: "l", Type: deep, Nullable: true}, null)); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), "more than 8 deep") {
		t.Error(err)
	}
	if err := checkColumn(lists([]int32{0, 3, 2}, 3, 0)); err == nil {
		t.Error("offsets that fall are taken")
	}
}

// Rows of a part's lists without any value, as an append copies them: the file has no buffer for what is not there.
func TestRowsOfEmptyLists(t *testing.T) {
	s, err := column.ParseList("n:list<i64>,at:list<struct<x:f64,ok:bool,name:utf8>>")
	if err != nil {
		t.Fatal(err)
	}
	n, at := NewBuilder(s[0].Type, 2), NewBuilder(s[1].Type, 2)
	if err := errors.Join(n.Close(), at.Close()); err != nil {
		t.Fatal(err)
	}
	n.Null()
	at.Null()
	d := NewDraft()
	defer d.Release()
	columns := []arrow.Array{n.Finish(), at.Finish()}
	d.Add(columns, 0, 2)
	var b bytes.Buffer
	if err := errors.Join(d.Seal(s), d.Write(&b)); err != nil {
		t.Fatal(err)
	}
	p, err := Open(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Rows(p.Chunk(0).Columns(), 0, 2, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range rows {
		if !array.Equal(a, columns[i]) {
			t.Errorf("column %d: %v, want %v", i, a, columns[i])
		}
	}
}
