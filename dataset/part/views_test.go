package part

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// viewOf is a list view with so many lists, each of all values.
func viewOf(values arrow.Array, lists int) arrow.Array {
	offsets, sizes := make([]int64, lists), make([]int64, lists)
	for i := range sizes {
		sizes[i] = int64(values.Len())
	}
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(offsets)), memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(sizes))}
	return array.MakeFromData(array.NewData(arrow.LargeListViewOf(values.DataType()), lists, buffers, []arrow.ArrayData{values.Data()}, 0, 0))
}

// structOf has the same values in each of so many fields.
func structOf(values arrow.Array, fields int) arrow.Array {
	var of []arrow.Field
	var data []arrow.ArrayData
	for i := range fields {
		of, data = append(of, arrow.Field{Name: string(rune('a' + i)), Type: values.DataType(), Nullable: true}), append(data, values.Data())
	}
	return array.MakeFromData(array.NewData(arrow.StructOf(of...), values.Len(), []*memory.Buffer{nil}, data, 0, 0))
}

// The lists of a view may have the same values, so a few bytes can stand for any number of them: they are bounded before they are made.
func TestManyViews(t *testing.T) {
	const most = 1 << 20
	bytes8 := func(n int) arrow.Array {
		return array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Uint8, n, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, n))}, nil, 0, 0))
	}
	bits := array.MakeFromData(array.NewData(arrow.FixedWidthTypes.Boolean, 1<<22, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, 1<<19))}, nil, 0, 0))
	for name, c := range map[string]struct {
		column arrow.Array
		want   error
	}{
		"few":             {viewOf(bytes8(100), 1000), nil},
		"many":            {viewOf(bytes8(10_000), 1000), ErrLimit},
		"of views":        {viewOf(viewOf(bytes8(1000), 1000), 1000), ErrLimit},
		"of empty views":  {viewOf(viewOf(bytes8(0), 10_000), 10_000), ErrLimit},
		"in a struct":     {viewOf(structOf(viewOf(bytes8(10_000), 1), 26), 10), ErrLimit},
		"of bits":         {viewOf(bits, 100), ErrText},
		"of many values":  {viewOf(array.NewNull(MaxTextBytes+1), 1), ErrLimit},
		"of types null":   {viewOf(array.NewNull(10_000), 1000), ErrLimit},
		"of few of these": {viewOf(array.NewNull(10), 1000), nil},
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: c.column.DataType(), Nullable: true}}, nil)
		var file bytes.Buffer
		w := ipc.NewWriter(&file, ipc.WithSchema(schema))
		if err := w.Write(array.NewRecordBatch(schema, []arrow.Array{c.column}, int64(c.column.Len()))); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := NewStream(&file, most)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		columns, err := s.Next()
		if err == nil {
			columns, err = Rows(columns, 0, columns[0].Len(), most)
		}
		if !errors.Is(err, c.want) || err == nil && array.ValidateFull(columns[0]) != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}
