package part

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

// A value of more text than a chunk may have is refused as such, with its row: fewer rows do not mend it.
func TestLargeValue(t *testing.T) {
	const want = "a value of 129 MiB, at most 128 MiB are loaded: split it into several, or leave its column out"
	large := make([]byte, MaxTextBytes+1)
	if err := NewBuilder(column.Type{ID: column.Binary}, 1).Bytes(large); !errors.Is(err, ErrLimit) || errors.Is(err, ErrText) || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	le := binary.LittleEndian
	offsets := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 0), 0), uint32(len(large)))
	data := array.NewData(arrow.BinaryTypes.Binary, 2, []*memory.Buffer{nil, memory.NewBufferBytes(offsets), memory.NewBufferBytes(large)}, nil, 0, 0)
	_, err := Rows([]arrow.Array{array.MakeFromData(data)}, 0, 2, 1<<40)
	if bad := (*RowError)(nil); !errors.As(err, &bad) || bad.Column != 0 || bad.Row != 1 || !strings.Contains(err.Error(), "column 0: row 1: ") || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// Text of a stream that is not UTF-8 is shown as it is, with its row, in plain text and in dictionaries.
func TestStreamNotUTF8(t *testing.T) {
	b := NewBuilder(column.Type{ID: column.UTF8}, 3)
	for _, v := range []string{"a", "b", "c\xff"} {
		if err := b.Bytes([]byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	words := b.Finish()
	codes := NewBuilder(column.Type{ID: column.U8}, 1)
	codes.Bits(2)
	coded := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.String}
	for want, a := range map[string]arrow.Array{
		`column "s": row 2 of the batch: "c\xff" is not UTF-8: write the column as binary, or mend the text where it comes from`:       words,
		`column "s": word 2 of its dictionary: "c\xff" is not UTF-8: write the column as binary, or mend the text where it comes from`: array.NewDictionaryArray(coded, codes.Finish(), words),
	} {
		s, err := NewStream(strings.NewReader(string(raw(t, arrow.Field{Name: "s", Type: a.DataType()}, a))), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		s.Close()
	}
}
