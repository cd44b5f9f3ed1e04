package control

import (
	"fmt"

	"github.com/wherry-fabric/wherry/dataset"
)

// Options are a file's options for package dataset, its format guessed from the
// path where none is given.
func (o *FileOptions) Options(path string) (*dataset.Options, error) {
	out := &dataset.Options{Format: dataset.Format(o.Format), Schema: o.Schema, Packed: o.Packed, Types: o.Types, Header: o.Header, EmptyIsZero: o.EmptyIsZero,
		SkipBad: o.SkipBad, Names: o.Names, ExtraColumns: o.ExtraColumns, Weights: o.Weights, LineBytes: o.LineBytes,
		NoHeader: o.NoHeader, ColumnTypes: o.ColumnTypes, Nulls: o.Nulls, Like: o.Like}
	if len(o.Comma) > 1 {
		return nil, fmt.Errorf("%w: the separator %q must be one byte", dataset.ErrOptions, o.Comma)
	}
	if o.Comma != "" {
		out.Comma = o.Comma[0]
	}
	if o.Format == "" {
		format, comma, ok := dataset.FormatOf(path)
		if !ok {
			return nil, fmt.Errorf("%w: the name of %s does not tell its format; give it (csv, ndjson, edges, parquet, arrow or raw)", dataset.ErrOptions, path)
		}
		out.Format = format
		if out.Comma == 0 {
			out.Comma = comma
		}
	}
	return out, nil
}

// BadLinesOf is a report of package dataset as it is sent and printed.
func BadLinesOf(b *dataset.BadLines) []BadLine {
	var out []BadLine
	for _, e := range b.First {
		out = append(out, BadLine{File: e.File, Line: e.Line, Column: e.Column, Error: e.Error()})
	}
	return out
}
