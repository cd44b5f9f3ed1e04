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

// A few bytes of a file can stand for any number of values of type null: they are bounded as other values are.
func TestManyNulls(t *testing.T) {
	const most = 1 << 20
	for _, c := range []struct {
		nulls int
		ok    bool
	}{{most / 8, true}, {most, false}, {1 << 30, false}} {
		nulls := array.NewNull(c.nulls)
		offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, int32(c.nulls)}))
		list := array.NewListData(array.NewData(arrow.ListOf(arrow.Null), 1, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{nulls.Data()}, 0, 0))
		for _, column := range []arrow.Array{nulls, list} {
			schema := arrow.NewSchema([]arrow.Field{{Name: "none", Type: column.DataType(), Nullable: true}}, nil)
			var file bytes.Buffer
			w := ipc.NewWriter(&file, ipc.WithSchema(schema))
			if err := w.Write(array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			s, err := NewStream(&file, most)
			if err != nil {
				t.Fatal(err)
			}
			columns, err := s.Next()
			if c.ok && (err != nil || columns[0].Len() != column.Len()) || !c.ok && !errors.Is(err, ErrLimit) {
				t.Errorf("%d of %v: %v", c.nulls, column.DataType(), err)
			}
			s.Close()
		}
	}
}
