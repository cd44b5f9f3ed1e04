package invoke

import (
	"fmt"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

// Columns are an answer's columns: of a query those that it asked for, of a function's rows a field each, in which no value is missing. Text is
// utf8, or binary if one of its values is no UTF-8. An answer of plain bytes has none.
func (a *Answer) Columns() (column.Schema, error) {
	switch {
	case a.Found != nil:
		return a.Found.Columns, nil
	case a.Schema == nil:
		return nil, fmt.Errorf("%w: raw bytes have no columns", ErrRequest)
	}
	out := make(column.Schema, len(a.Schema.Fields))
	for i, f := range a.Schema.Fields {
		name := string(f.Type)
		if f.Type == schema.Str {
			name = a.text(i)
		}
		t, err := column.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		out[i] = column.Column{Name: f.Name, Type: t}
	}
	return out, nil
}

// text is the type of a field of text.
func (a *Answer) text(field int) string {
	for _, p := range a.Parts {
		for i := range p.Len() {
			if !utf8.Valid(p.Text(i, field)) {
				return "binary"
			}
		}
	}
	return "utf8"
}

// Batches are the answer's rows as Arrow has them, in batches of part.ChunkRows rows at most. Each is valid until the next one is asked for: Retain it to
// keep it.
func (a *Answer) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		columns, err := a.Columns()
		if err != nil {
			yield(nil, err)
			return
		}
		give := func(arrays []arrow.Array, rows int) bool {
			rec := array.NewRecordBatch(part.ArrowSchema(columns), arrays, int64(rows))
			defer rec.Release()
			for _, a := range arrays {
				a.Release()
			}
			return yield(rec, nil)
		}
		if a.Found != nil {
			a.Found.cuts(give)
			return
		}
		for _, p := range a.Parts {
			for first := 0; first < p.Len(); first += part.ChunkRows {
				end := min(first+part.ChunkRows, p.Len())
				arrays := make([]arrow.Array, len(columns))
				for f, c := range columns {
					arrays[f] = fieldArray(&p, f, c.Type, first, end)
				}
				if !give(arrays, end-first) {
					return
				}
			}
		}
	}
}

// fieldArray is a field of rows first to end-1 as an array.
func fieldArray(p *schema.Rows, f int, t column.Type, first, end int) arrow.Array {
	switch t.ID {
	case column.Bool:
		b := array.NewBooleanBuilder(memory.DefaultAllocator)
		defer b.Release()
		b.Reserve(end - first)
		for i := first; i < end; i++ {
			b.UnsafeAppend(p.Cell(i, f)[0] != 0)
		}
		return b.NewArray()
	case column.UTF8, column.Binary:
		size := 0
		for i := first; i < end; i++ {
			size += len(p.Text(i, f))
		}
		b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		if t.ID == column.UTF8 {
			b = array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.String)
		}
		defer b.Release()
		b.Reserve(end - first)
		b.ReserveData(size)
		for i := first; i < end; i++ {
			b.Append(p.Text(i, f))
		}
		return b.NewArray()
	}
	values := make([]byte, 0, (end-first)*t.Size())
	for i := first; i < end; i++ {
		values = append(values, p.Cell(i, f)...)
	}
	return part.Fixed(t, values)
}

// writeBatches writes the answer as an Arrow stream or a Parquet file.
func (a *Answer) writeBatches(w io.Writer, format batch.Format) error {
	columns, err := a.Columns()
	if err != nil {
		return err
	}
	out, err := batch.NewWriter(w, format, columns)
	if err != nil {
		return err
	}
	for rec, err := range a.Batches() {
		if err != nil {
			return err
		}
		if err := out.Write(rec.Columns(), int(rec.NumRows())); err != nil {
			return err
		}
	}
	return out.Close()
}
