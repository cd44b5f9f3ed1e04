package batch

import (
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

// rowsTextBytes bounds the text in a batch of more than one row. A result part does not bound it: all of its rows may refer to the same text.
const rowsTextBytes = 16 << 20

// Fields are the columns of rows of C structs: one for each field, in which no value is missing. Text is utf8.
func Fields(s *schema.Schema) (column.Schema, error) {
	out := make(column.Schema, len(s.Fields))
	for i, f := range s.Fields {
		name := string(f.Type)
		if f.Type == schema.Str {
			name = "utf8"
		}
		t, err := column.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		out[i] = column.Column{Name: f.Name, Type: t}
	}
	return out, nil
}

// OfRows are rows of C structs as batches of at most part.ChunkRows rows: the arrays, and how many rows they have. columns are those of Fields. A column
// of text may be binary instead; in one that is utf8 each byte that is not UTF-8 becomes \x and two hexadecimal digits. The arrays are the loop's until its
// next turn.
func OfRows(columns column.Schema, rows *schema.Rows) iter.Seq2[[]arrow.Array, int] {
	return func(yield func([]arrow.Array, int) bool) {
		for first, end := 0, 0; first < rows.Len(); first = end {
			end = rowsEnd(columns, rows, first)
			arrays := make([]arrow.Array, len(columns))
			for f, c := range columns {
				arrays[f] = fieldArray(rows, f, c.Type, first, end)
			}
			more := yield(arrays, end-first)
			for _, a := range arrays {
				a.Release()
			}
			if !more {
				return
			}
		}
	}
}

// rowsEnd is where a batch ends that begins with row first.
func rowsEnd(columns column.Schema, rows *schema.Rows, first int) int {
	end, size := min(first+part.ChunkRows, rows.Len()), 0
	for i := first; i < end; i++ {
		for f, c := range columns {
			if isText(c.Type) {
				size += len(rows.Text(i, f))
			}
		}
		if size > rowsTextBytes && i > first {
			return i
		}
	}
	return end
}

func isText(t column.Type) bool { return t.ID == column.UTF8 || t.ID == column.Binary }

// fieldArray is a field of rows first to end-1 as an array.
func fieldArray(rows *schema.Rows, f int, t column.Type, first, end int) arrow.Array {
	switch {
	case t.ID == column.Bool:
		b := array.NewBooleanBuilder(memory.DefaultAllocator)
		defer b.Release()
		b.Reserve(end - first)
		for i := first; i < end; i++ {
			b.UnsafeAppend(rows.Cell(i, f)[0] != 0)
		}
		return b.NewArray()
	case isText(t):
		return textArray(rows, f, t, first, end)
	}
	values := make([]byte, 0, (end-first)*t.Size())
	for i := first; i < end; i++ {
		values = append(values, rows.Cell(i, f)...)
	}
	return part.Fixed(t, values)
}

// textArray is fieldArray, of text.
func textArray(rows *schema.Rows, f int, t column.Type, first, end int) arrow.Array {
	size := 0
	for i := first; i < end; i++ {
		size += len(rows.Text(i, f))
	}
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
	finish := b.NewArray
	if t.ID == column.UTF8 {
		s := array.NewStringBuilder(memory.DefaultAllocator)
		b, finish = s.BinaryBuilder, s.NewArray
	}
	defer b.Release()
	b.Reserve(end - first)
	b.ReserveData(size)
	for i := first; i < end; i++ {
		text := rows.Text(i, f)
		if t.ID == column.UTF8 && !utf8.Valid(text) {
			text = escaped(text)
		}
		b.Append(text)
	}
	return finish()
}

// escaped is text with each byte that is not UTF-8 as \x and two hexadecimal digits.
func escaped(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			out = fmt.Appendf(out, `\x%02x`, text[0])
		} else {
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}
