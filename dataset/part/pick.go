package part

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

// Pick makes columns of some rows of arrays that were found to be right.
func Pick(arrays []arrow.Array, rows []int32) ([]arrow.Array, error) {
	out := make([]arrow.Array, 0, len(arrays))
	for _, a := range arrays {
		t, err := ColumnType(a.DataType())
		if err == nil {
			var b *Builder
			if b, err = pickOne(t, a, rows); err == nil {
				out = append(out, b.Finish())
				continue
			}
		}
		for _, done := range out {
			done.Release()
		}
		return nil, err
	}
	return out, nil
}

func pickOne(t column.Type, a arrow.Array, rows []int32) (*Builder, error) {
	b := NewBuilder(t, len(rows))
	put, err := b.copier(a)
	for i := 0; i < len(rows) && err == nil; i++ {
		if r := int(rows[i]); a.IsNull(r) {
			b.Null()
		} else {
			err = put(r)
		}
	}
	return b, err
}

// KeyOf appends a row's key, as column.KeyBytes has it, of a column whose values may be keys.
func KeyOf(a arrow.Array) (func(row int, to []byte) []byte, error) {
	t, err := ColumnType(a.DataType())
	if err != nil {
		return nil, err
	}
	value, err := keyValue(t, a)
	return func(row int, to []byte) []byte {
		if a.IsNull(row) {
			return to
		}
		return value(row, to)
	}, err
}

func keyValue(t column.Type, a arrow.Array) (func(row int, to []byte) []byte, error) {
	switch a := a.(type) {
	case *array.String:
		return func(r int, to []byte) []byte { return append(to, a.Value(r)...) }, nil
	case *array.Binary:
		return func(r int, to []byte) []byte { return append(to, a.Value(r)...) }, nil
	case *array.Boolean:
		return func(r int, to []byte) []byte {
			if a.Value(r) {
				return column.KeyBytes(to, 1)
			}
			return column.KeyBytes(to, 0)
		}, nil
	}
	size := t.Size()
	if size == 0 || t.ID == column.F32 || t.ID == column.F64 {
		return nil, fmt.Errorf("%w: a column of type %v is no key", ErrPart, t)
	}
	values := a.Data().Buffers()[1].Bytes()[a.Data().Offset()*size:]
	if t.ID == column.Bytes || size > 8 {
		return func(r int, to []byte) []byte { return append(to, values[r*size:(r+1)*size]...) }, nil
	}
	shift := 64 - 8*size
	signed := t.ID < column.U8 || t.ID > column.U64
	return func(r int, to []byte) []byte {
		var word [8]byte
		copy(word[:], values[r*size:(r+1)*size])
		bits := binary.LittleEndian.Uint64(word[:])
		if signed {
			bits = uint64(int64(bits<<shift) >> shift)
		}
		return column.KeyBytes(to, bits)
	}, nil
}
