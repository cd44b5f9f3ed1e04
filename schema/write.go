package schema

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format is a way to write rows out.
type Format string

const (
	// FormatCSV is RFC 4180 with a header line and "\n" line ends.
	FormatCSV Format = "csv"
	// FormatJSON is one array of objects, fields in order.
	FormatJSON Format = "json"
	// FormatNDJSON is an object per line.
	FormatNDJSON Format = "ndjson"
	// FormatTable is columns padded with spaces, for people.
	FormatTable Format = "table"
	// FormatRaw is the encoded part itself, byte for byte.
	FormatRaw Format = "raw"
)

var formats = []string{string(FormatCSV), string(FormatJSON), string(FormatNDJSON), string(FormatTable), string(FormatRaw)}

// ParseFormat checks a format's name.
func ParseFormat(name string) (Format, error) {
	for _, f := range formats {
		if f == name {
			return Format(f), nil
		}
	}
	return "", fmt.Errorf("there is no format %q; %s", clip(name), Suggest(name, formats))
}

// flushBytes is how much text a Writer gathers before it writes.
const flushBytes = 64 << 10

// Writer writes rows of one schema in one format, part after part. One
// goroutine uses it. In CSV the header comes first, even if no row follows. In
// FormatTable all rows are kept until Close, for the columns' widths.
type Writer struct {
	w      io.Writer
	format Format
	schema *Schema
	buf    []byte
	rows   int
	table  tableText
	err    error
}

// NewWriter starts writing rows of schema s to w.
func NewWriter(w io.Writer, format Format, s *Schema) (*Writer, error) {
	if _, err := ParseFormat(string(format)); err != nil {
		return nil, err
	}
	if err := s.ValidateResult(); err != nil {
		return nil, err
	}
	out := &Writer{w: w, format: format, schema: s}
	switch format {
	case FormatCSV:
		for i, f := range s.Fields {
			out.buf = appendComma(out.buf, i)
			out.buf = append(out.buf, f.Name...)
		}
		out.buf = append(out.buf, '\n')
	case FormatJSON:
		out.buf = append(out.buf, '[')
	case FormatTable:
		out.table.header(s)
	}
	return out, nil
}

// Write writes all rows of r, which must have the writer's fields.
func (w *Writer) Write(r Rows) error {
	if w.err != nil {
		return w.err
	}
	if r.schema == nil {
		return nil
	}
	if r.schema != w.schema && r.schema.String() != w.schema.String() {
		return fmt.Errorf("%w: rows of %s cannot be written as rows of %s", ErrArgument, r.schema, w.schema)
	}
	if w.format == FormatRaw {
		_, w.err = w.w.Write(r.part)
		return w.err
	}
	for i := range r.n {
		w.appendRow(&r, i)
		w.rows++
		if len(w.buf) >= flushBytes {
			w.flush()
		}
	}
	return w.err
}

func (w *Writer) appendRow(r *Rows, i int) {
	switch w.format {
	case FormatCSV:
		for f, c := range r.layout.Codecs {
			w.buf = appendComma(w.buf, f)
			if c.IsStr() {
				w.buf = appendCSV(w.buf, r.Text(i, f), len(r.schema.Fields) == 1)
			} else {
				w.buf = c.AppendText(w.buf, r.Cell(i, f))
			}
		}
		w.buf = append(w.buf, '\n')
	case FormatJSON:
		if w.rows > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, "\n "...)
		w.buf = r.AppendJSON(w.buf, i)
	case FormatNDJSON:
		w.buf = append(r.AppendJSON(w.buf, i), '\n')
	case FormatTable:
		w.table.row(r, i)
	}
}

func (w *Writer) flush() {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.w.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// Close writes what is left. It does not close the underlying writer.
func (w *Writer) Close() error {
	switch {
	case w.format == FormatJSON && w.rows > 0:
		w.buf = append(w.buf, "\n]\n"...)
	case w.format == FormatJSON:
		w.buf = append(w.buf, "]\n"...)
	case w.format == FormatTable:
		w.buf = w.table.appendTo(w.buf)
	}
	w.flush()
	return w.err
}

func appendComma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// appendCSV quotes text if a reader needs it: encoding/csv's rules, so that
// what it reads back is the same text. alone says that the field is the line's
// only one, where an empty line would be skipped.
func appendCSV(dst, text []byte, alone bool) []byte {
	if len(text) == 0 {
		if alone {
			return append(dst, `""`...)
		}
		return dst
	}
	first, _ := utf8.DecodeRune(text)
	quote := unicode.IsSpace(first) || string(text) == `\.`
	for _, c := range text {
		quote = quote || c == '"' || c == ',' || c == '\n' || c == '\r'
	}
	if !quote {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for _, c := range text {
		if c == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// AppendJSON appends row i as a JSON object, fields in order: integers and
// floats as numbers (NaN and infinities as strings, JSON has none), bytesN as
// hex strings. Text that is not UTF-8 has U+FFFD in place of each bad byte.
func (r *Rows) AppendJSON(dst []byte, i int) []byte {
	dst = append(dst, '{')
	for f, c := range r.layout.Codecs {
		dst = appendComma(dst, f)
		dst = append(dst, '"')
		dst = append(dst, r.schema.Fields[f].Name...)
		dst = append(dst, `":`...)
		switch {
		case c.IsStr():
			dst = appendJSONString(dst, r.Text(i, f))
		case c.float() && !finite(r.Float(i, f)), c.code > codeBytes:
			dst = append(dst, '"')
			dst = append(c.AppendText(dst, r.Cell(i, f)), '"')
		default:
			dst = c.AppendText(dst, r.Cell(i, f))
		}
	}
	return append(dst, '}')
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func appendJSONString(dst, text []byte) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for len(text) > 0 {
		c := text[0]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(text)
			switch r {
			case utf8.RuneError:
				dst = append(dst, "\ufffd"...)
			case '\u2028', '\u2029': // line ends for JavaScript
				dst = append(dst, `\u202`...)
				dst = append(dst, hexDigits[r&15])
			default:
				dst = append(dst, text[:n]...)
			}
			text = text[n:]
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c < ' ' || c == 0x7f:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
		text = text[1:]
	}
	return append(dst, '"')
}

// tableText gathers cells for FormatTable.
type tableText struct {
	cells  []string
	widths []int // in runes
	right  []bool
}

func (t *tableText) header(s *Schema) {
	t.widths = make([]int, len(s.Fields))
	for i, f := range s.Fields {
		t.add(i, f.Name)
		t.right = append(t.right, f.Type.IsInteger() || f.Type.IsFloat())
	}
}

func (t *tableText) row(r *Rows, i int) {
	for f := range r.schema.Fields {
		t.add(f, Printable(string(r.AppendCell(nil, i, f))))
	}
}

func (t *tableText) add(column int, cell string) {
	t.cells = append(t.cells, cell)
	t.widths[column] = max(t.widths[column], utf8.RuneCountInString(cell))
}

func (t *tableText) appendTo(dst []byte) []byte {
	for i, cell := range t.cells {
		column := i % len(t.widths)
		pad := strings.Repeat(" ", t.widths[column]-utf8.RuneCountInString(cell))
		last := column == len(t.widths)-1
		if column > 0 {
			dst = append(dst, "  "...)
		}
		switch {
		case t.right[column]:
			dst = append(append(dst, pad...), cell...)
		case last:
			dst = append(dst, cell...)
		default:
			dst = append(append(dst, cell...), pad...)
		}
		if last {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// Printable keeps a cell from moving a terminal's cursor.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}
