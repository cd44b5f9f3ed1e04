package invoke

import (
	"fmt"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// Columns are an answer's columns: of a query those that it asked for, of a function's rows a field each, in which no value is missing. Text is
// utf8, or binary if one of its values is no UTF-8. An answer of plain bytes has none.
func (a *Answer) Columns() (column.Schema, error) {
	out, err := a.textColumns()
	if err != nil || a.Found != nil {
		return out, err
	}
	for i, c := range out {
		if c.Type.ID == column.UTF8 && !a.utf8(i) {
			out[i].Type = column.Type{ID: column.Binary}
		}
	}
	return out, nil
}

// textColumns are the columns where text is written as text, whatever its bytes.
func (a *Answer) textColumns() (column.Schema, error) {
	switch {
	case a.Found != nil:
		return a.Found.Columns, nil
	case a.Schema == nil:
		return nil, fmt.Errorf("%w: raw bytes have no columns", ErrRequest)
	}
	return batch.Fields(a.Schema)
}

// utf8 reports whether a field's text is UTF-8 everywhere.
func (a *Answer) utf8(field int) bool {
	for _, p := range a.Parts {
		for i := range p.Len() {
			if !utf8.Valid(p.Text(i, field)) {
				return false
			}
		}
	}
	return true
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
		for rec := range a.batches(columns) {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// batches are the rows in these columns: those of Columns, or of textColumns.
func (a *Answer) batches(columns column.Schema) iter.Seq[arrow.RecordBatch] {
	return func(yield func(arrow.RecordBatch) bool) {
		give := func(arrays []arrow.Array, rows int) bool {
			rec := array.NewRecordBatch(part.ArrowSchema(columns), arrays, int64(rows))
			defer rec.Release()
			return yield(rec)
		}
		if a.Found != nil {
			a.Found.cuts(give)
			return
		}
		for _, p := range a.Parts {
			for arrays, rows := range batch.OfRows(columns, &p) {
				if !give(arrays, rows) {
					return
				}
			}
		}
	}
}

// writeBatches writes the answer in any format but raw.
func (a *Answer) writeBatches(w io.Writer, format batch.Format) error {
	columns, err := a.textColumns()
	if format == batch.Arrow || format == batch.Parquet {
		columns, err = a.Columns()
	}
	if err != nil {
		return err
	}
	out, err := batch.NewWriter(w, format, columns)
	if err != nil {
		return err
	}
	for rec := range a.batches(columns) {
		if err := out.Write(rec.Columns(), int(rec.NumRows())); err != nil {
			return err
		}
	}
	return out.Close()
}
