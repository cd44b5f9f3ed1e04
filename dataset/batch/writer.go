package batch

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// Format is a way to write batches.
type Format string

// Formats.
const (
	Arrow  Format = "arrow" // an IPC stream
	CSV    Format = "csv"   // with a header line
	JSON   Format = "json"  // one array of objects, each on a line
	NDJSON Format = "ndjson"
	Table  Format = "table" // for people

	Parquet Format = "parquet" // a file

	// Raw is the bytes as they are, of rows of C structs or of an answer without columns. No Writer writes it, and ParseFormat refuses it.
	Raw Format = "raw"
)

var formats = []Format{Arrow, CSV, JSON, NDJSON, Table, Parquet}

// ErrFormat says that there is no such format.
var ErrFormat = errors.New("batch: no such format")

// ParseFormat checks a format's name.
func ParseFormat(name string) (Format, error) {
	if slices.Contains(formats, Format(name)) {
		return Format(name), nil
	}
	return "", fmt.Errorf("%w: %.40q; there are arrow, csv, json, ndjson, parquet and table", ErrFormat, name)
}

const (
	// flushBytes is how much text is gathered before it is written.
	flushBytes = 64 << 10
	// tableRows is how many rows of a table are kept for the columns' widths. After so many the columns of those that follow may be wider.
	tableRows = 10_000
)

// Writer writes batches. One goroutine uses it.
type Writer struct {
	w       io.Writer
	format  Format
	columns column.Schema
	stream  *ipc.Writer
	parquet *parquetWriter
	buf     []byte
	rows    int
	table   [][]string
	widths  []int // of a table's columns, in runes
	cells   []cell
}

// NewWriter starts writing batches with these columns.
func NewWriter(w io.Writer, format Format, columns column.Schema) (*Writer, error) {
	if _, err := ParseFormat(string(format)); err != nil {
		return nil, err
	}
	out := &Writer{w: w, format: format, columns: columns, cells: make([]cell, len(columns))}
	switch format {
	case Arrow:
		out.stream = ipc.NewWriter(w, ipc.WithSchema(part.ArrowSchema(columns)))
	case Parquet:
		var err error
		if out.parquet, err = newParquetWriter(w, columns); err != nil {
			return nil, err
		}
	case JSON:
		out.buf = append(out.buf, '[')
	case CSV:
		for i, c := range columns {
			if c.Type.Nested() {
				return nil, fmt.Errorf("%w for column %q, which is %v: csv has no lists and structs; take arrow, parquet, ndjson or json", ErrFormat, c.Name, c.Type)
			}
			out.buf = appendComma(out.buf, i)
			out.buf = closeField(append(out.buf, c.Name...), len(out.buf))
		}
		out.buf = append(out.buf, '\n')
	case Table:
		names := make([]string, len(columns))
		for i, c := range columns {
			names[i] = Printable(c.Name)
		}
		out.table, out.widths = append(out.table, names), make([]int, len(columns))
	}
	return out, nil
}

// Write writes a batch: a column for each of the writer's, text plain or as numbers into a dictionary.
func (w *Writer) Write(columns []arrow.Array, rows int) error {
	if w.format == Arrow || w.format == Parquet {
		return w.writePlain(columns, rows)
	}
	for i, a := range columns {
		w.cells[i] = cellOf(w.columns[i].Type, a)
	}
	for r := range rows {
		w.row(columns, r)
		w.rows++
		if len(w.table) > tableRows {
			w.writeTable()
		}
		if len(w.buf) >= flushBytes {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writePlain writes a batch with text as text.
func (w *Writer) writePlain(columns []arrow.Array, rows int) error {
	plain := make([]arrow.Array, len(columns))
	for i, a := range columns {
		plain[i] = part.Plain(a)
		defer plain[i].Release()
	}
	if w.format == Parquet {
		return w.parquet.write(plain, rows)
	}
	rec := array.NewRecordBatch(part.ArrowSchema(w.columns), plain, int64(rows))
	defer rec.Release()
	return w.stream.Write(rec)
}

func (w *Writer) row(columns []arrow.Array, r int) {
	switch w.format {
	case CSV:
		for i, a := range columns {
			w.buf = appendComma(w.buf, i)
			if a.IsNull(r) {
				continue
			}
			at := len(w.buf)
			if w.buf = w.cells[i].text(w.buf, r); !w.cells[i].bare {
				w.buf = closeField(w.buf, at)
			}
		}
		w.buf = append(w.buf, '\n')
	case JSON, NDJSON:
		w.object(columns, r)
	case Table:
		row := make([]string, len(columns))
		for i, a := range columns {
			if !a.IsNull(r) {
				row[i] = Printable(string(w.cells[i].text(nil, r)))
			}
		}
		w.table = append(w.table, row)
	}
}

// object writes a row as JSON has it.
func (w *Writer) object(columns []arrow.Array, r int) {
	if w.format == JSON {
		if w.rows > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, "\n "...)
	}
	w.buf = append(w.buf, '{')
	for i, a := range columns {
		w.buf = appendComma(w.buf, i)
		w.buf = append(appendJSON(w.buf, w.columns[i].Name), ':')
		w.buf = w.cells[i].append(w.buf, a, r)
	}
	w.buf = append(w.buf, '}')
	if w.format == NDJSON {
		w.buf = append(w.buf, '\n')
	}
}

func (w *Writer) flush() error {
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// Close writes what is left.
func (w *Writer) Close() error {
	switch w.format {
	case Arrow:
		return w.stream.Close()
	case Parquet:
		return w.parquet.w.Close()
	case JSON:
		if w.rows > 0 {
			w.buf = append(w.buf, '\n')
		}
		w.buf = append(w.buf, "]\n"...)
	case Table:
		w.writeTable()
	}
	return w.flush()
}

// writeTable pads the columns of the rows that were kept to their widest cell.
func (w *Writer) writeTable() {
	for _, row := range w.table {
		for i, text := range row {
			w.widths[i] = max(w.widths[i], utf8.RuneCountInString(text))
		}
	}
	for _, row := range w.table {
		var line strings.Builder
		for i, text := range row {
			pad := strings.Repeat(" ", w.widths[i]-utf8.RuneCountInString(text))
			if i > 0 {
				line.WriteString("  ")
			}
			if w.columns[i].Type.ID >= column.I8 && w.columns[i].Type.ID <= column.F64 {
				line.WriteString(pad + text)
			} else {
				line.WriteString(text + pad)
			}
		}
		w.buf = append(append(w.buf, strings.TrimRight(line.String(), " ")...), '\n')
	}
	w.table = w.table[:0]
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// closeField ends the field of CSV that b[at:] is, and quotes it where a reader needs that: where encoding/csv does, and if it is empty, because a missing
// value is nothing at all.
func closeField(b []byte, at int) []byte {
	text := b[at:]
	first, _ := utf8.DecodeRune(text)
	quote := len(text) == 0 || unicode.IsSpace(first) || string(text) == `\.`
	for _, c := range text {
		quote = quote || c == '"' || c == ',' || c == '\n' || c == '\r'
	}
	if !quote {
		return b
	}
	inside := strings.ReplaceAll(string(text), `"`, `""`)
	return append(append(append(b[:at], '"'), inside...), '"')
}
