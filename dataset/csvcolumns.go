package dataset

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

// csvFormat reads CSV as columns.
type csvFormat struct {
	o     *Options
	infer *Inference
	bad   *BadLines
}

// csvFile is one reading of a file, behind its header.
type csvFile struct {
	*textInput
	csvReader
	names []string
	first [][]byte // the first record, if it is no header
	blank int64    // records in front of it: empty lines, if there is one column
	quote bool     // the first record's first field stood in quotes
	given bool     // Options.Schema says which columns there are: others are left out
	head  bool     // there is a header
}

// start opens a file and reads its header. Without one, columns are called c1, c2, ….
func (f *csvFormat) start(ctx context.Context, in Input, phase Phase) (*csvFile, error) {
	t, err := openText(ctx, in, f.o, phase)
	if err != nil {
		return nil, err
	}
	c := &csvFile{textInput: t, csvReader: newCSVReader(t.lines, f.o.Comma), given: f.o.fields != nil, head: f.o.Header || f.o.fields == nil && !f.o.NoHeader}
	if !c.head && c.given { // even of an empty file
		c.names = f.o.fields.Names()
	} else if err := c.begin(f.o); err != nil {
		t.Close()
		return nil, err
	}
	c.lone = len(c.names) == 1 && f.o.Columnar()
	return c, nil
}

// begin reads the first record, which says what the columns are called, or how many there are.
func (c *csvFile) begin(o *Options) error {
	record, err := c.record()
	if err == io.EOF {
		return fmt.Errorf("%w: %s is empty: not even a header is there", ErrInput, c.in.Name())
	}
	if err != nil {
		return err
	}
	return c.header(record, o)
}

func (c *csvFile) header(record [][]byte, o *Options) error {
	if len(record) > column.MaxColumns {
		return fmt.Errorf("%w: %s: its first line has %d columns, at most %d are allowed", ErrInput, c.in.Name(), len(record), column.MaxColumns)
	}
	if !c.head {
		for i, text := range record {
			c.names = append(c.names, fmt.Sprintf("c%d", i+1))
			c.first = append(c.first, bytes.Clone(text))
		}
		if len(record) == 1 && o.Columnar() {
			c.blank, c.quote = c.csvReader.first-1, c.inQuotesAt(0)
		}
		return nil
	}
	for i, text := range record {
		text = bytes.TrimSpace(text)
		if e := (&evidence{}); !o.Header && len(text) > 0 {
			if e.see(text); e.is != guessText {
				return fmt.Errorf("%w: %s: its first line should have the columns' names, and column %d is called %s, which looks like a value: if the file has no header say so (--header=false), if it is a name say that (--header)",
					ErrInput, c.in.Name(), i+1, clipped(text))
			}
		}
		name := string(text)
		if !c.given {
			if err := checkTitle(i+1, text); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrInput, c.in.Name(), err)
			}
		} else if o.fields.Index(name) < 0 { // which has names of C
			name = schema.Identifier(name)
		}
		c.names = append(c.names, name)
	}
	return nil
}

// checkTitle finds a name in a header that no column can have.
func checkTitle(n int, name []byte) error {
	switch {
	case len(name) == 0:
		return fmt.Errorf("column %d of its header has no name: write one there, or give the columns that are to be loaded (--schema)", n)
	case !utf8.Valid(name):
		return fmt.Errorf("column %d of its header: %w", n, notUTF8(name))
	}
	return nil
}

// next reads a record, valid until the next call.
func (c *csvFile) next() ([][]byte, error) {
	if c.blank > 0 {
		c.blank--
		c.quoted = c.quoted[:0]
		return [][]byte{nil}, nil
	}
	if first := c.first; first != nil {
		if c.first = nil; c.quote {
			c.quoted = append(c.quoted[:0], true)
		}
		return first, nil
	}
	return c.record()
}

// look infers types from the first file's first rows; of others it reads the header.
func (f *csvFormat) look(ctx context.Context, in Input, first column.Schema) (column.Schema, error) {
	c, err := f.start(ctx, in, PhaseScan)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	switch {
	case f.o.Types != nil && (first == nil || len(f.o.Like) > 0):
		s, err := typed(c, f.o.Types)
		if err == nil {
			err = f.o.checkLike(s)
		}
		if err != nil || first == nil {
			return s, err
		}
	case first != nil:
	case f.o.fields != nil:
		first = slices.Clone(f.o.fields)
	default:
		return f.inferred(c, in)
	}
	_, err = c.places(first)
	return first, err
}

// typed are the columns of a header, of these types.
func typed(c *csvFile, types []schema.Type) (s column.Schema, err error) {
	if len(c.names) != len(types) {
		return nil, fmt.Errorf("%w: %s: its header has %d columns, and types are given for %d: --types has one for each column, or names them (name:type); --schema picks columns by name", ErrInput, c.in.Name(), len(c.names), len(types))
	}
	for i, name := range c.names {
		t, err := fieldType(types[i])
		if err != nil {
			return nil, fmt.Errorf("%w: %s: column %q: %w", ErrOptions, c.in.Name(), name, err)
		}
		s = append(s, column.Column{Name: name, Type: t, Nullable: true})
	}
	return s, nil
}

// inferred reads as many rows as types are inferred from.
func (f *csvFormat) inferred(c *csvFile, in Input) (column.Schema, error) {
	for _, g := range f.o.ColumnTypes {
		if !slices.Contains(c.names, g.Name) {
			return nil, unknownType(in, g.Name, c.names)
		}
	}
	seen := make([]evidence, len(c.names))
	rows := int64(0)
	var sample sampling
	for sample.goesOn(c.consumed(), seen, func(i int) bool { return f.o.ColumnTypes.Index(c.names[i]) >= 0 }) {
		record, err := c.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			if _, err = lineOf(err); err != nil {
				return nil, err
			}
			continue // the reading of rows reports it
		}
		if len(record) != len(seen) {
			continue // it too
		}
		for i, text := range record {
			if sample.sees(i) && !missingText(text, c.inQuotesAt(i), f.o.Nulls) {
				seen[i].see(text)
			}
		}
		rows++
	}
	s := known(c.names, seen, f.o.ColumnTypes)
	f.infer.note(rows, s, seen, f.o.ColumnTypes)
	return s, nil
}

// inQuotesAt reports whether a field of the record that was read last stood in quotes.
func (c *csvReader) inQuotesAt(i int) bool { return i < len(c.quoted) && c.quoted[i] }

// places finds the columns of a schema in a file's header, which may have them in another order.
func (c *csvFile) places(s column.Schema) ([]int, error) {
	at := make([]int, len(c.names))
	found := map[string]bool{}
	for i, name := range c.names {
		if at[i] = s.Index(name); at[i] < 0 && c.given {
			continue
		} else if at[i] < 0 {
			return nil, fmt.Errorf("%w: the columns differ: the header of %s has a column %q, which there is not in the first file, or the dataset; %s; a column that only some files have is left out by --schema, which names the others", ErrInput, c.in.Name(), name, schema.Suggest(name, s.Names()))
		}
		if found[name] {
			return nil, fmt.Errorf("%w: %s: its header has the column %q twice: rename one", ErrInput, c.in.Name(), name)
		}
		found[name] = true
	}
	for _, col := range s {
		if !found[col.Name] && c.given {
			return nil, fmt.Errorf("%w: %s: its header has no column %q; %s", ErrInput, c.in.Name(), col.Name, schema.Suggest(col.Name, c.names))
		}
		if !found[col.Name] {
			return nil, fmt.Errorf("%w: the columns differ: the header of %s has no column %q, which the first file, or the dataset, has; %s", ErrInput, c.in.Name(), col.Name, schema.Suggest(col.Name, c.names))
		}
	}
	return at, nil
}

// csvColumns reads the rows of a file.
type csvColumns struct {
	*csvFile
	*textRows
	to    []int // the column of each field
	nulls []string
}

func (f *csvFormat) open(ctx context.Context, in Input, phase Phase, s column.Schema) (columnar, error) {
	c, err := f.start(ctx, in, phase)
	if err != nil {
		return nil, err
	}
	r := &csvColumns{csvFile: c, nulls: f.o.Nulls}
	if r.to, err = c.places(s); err == nil {
		r.textRows, err = newTextRows(s, f.o, in, f.infer, f.bad)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return r, nil
}

func (r *csvColumns) Columns() column.Schema { return r.schema }

func (r *csvColumns) Next(ctx context.Context) ([]arrow.Array, error) {
	return r.chunk(ctx, r.textInput, r.row)
}

// row reads one row; bad says why it is to be left out.
func (r *csvColumns) row() (bad *LineError, err error) {
	if r.csvFile.first == nil && r.csvReader.plain() {
		if bad := r.width(len(r.split.spans), nil); bad != nil {
			return bad, nil
		}
		for i, f := range r.split.spans {
			if bad := r.field(i, r.csvReader.at(f), nil); bad != nil {
				return bad, nil
			}
		}
		return nil, nil
	}
	fields, err := r.next()
	if err != nil {
		return lineOf(err)
	}
	if bad := r.width(len(fields), fields); bad != nil {
		return bad, nil
	}
	for i, text := range fields {
		if bad := r.field(i, text, fields); bad != nil {
			return bad, nil
		}
	}
	return nil, nil
}

// width checks how many fields a row has. Of a plain record nobody has made fields yet: they are nil.
func (r *csvColumns) width(n int, fields [][]byte) *LineError {
	if n == len(r.to) {
		return nil
	}
	err := fmt.Errorf("it has %d columns, want %d", n, len(r.to))
	switch {
	case r.mayBeHeader(fields):
		err = fmt.Errorf("%w; if this line has the columns' names, say so (--header): columns that the schema does not name are then left out", err)
	case len(r.to) == 1 || r.given && n == 1 && r.csvReader.first == 1:
		err = fmt.Errorf("%w; if another byte than %q separates them, name it (--separator)", err, r.comma)
	}
	return r.badRow("", err)
}

// field adds a field of a row to its column, if it has one.
func (r *csvColumns) field(i int, text []byte, fields [][]byte) *LineError {
	c := r.to[i]
	if c < 0 {
		return nil
	}
	err := error(nil)
	if missingText(text, r.inQuotesAt(i) && !r.zero, r.nulls) {
		err = r.missing(c)
	} else {
		err = r.value(c, text, text)
	}
	if err != nil {
		if r.mayBeHeader(fields) {
			err = fmt.Errorf("%w; if this line has the columns' names, say so (--header)", err)
		}
		return r.badRow(r.schema[c].Name, err)
	}
	return nil
}

// mayBeHeader reports whether the record read last may be a header that was not declared.
func (r *csvColumns) mayBeHeader(fields [][]byte) bool {
	if r.head || r.csvReader.first != 1 {
		return false
	}
	if fields == nil {
		for _, f := range r.split.spans {
			fields = append(fields, r.csvReader.at(f))
		}
	}
	return looksHeader(fields, func(name string) bool { return r.schema.Index(name) >= 0 })
}

// badRow is a LineError for the record read last, of which quotes may have made several lines.
func (r *csvColumns) badRow(name string, err error) *LineError {
	if last := r.csvReader.lines.line; last > r.csvReader.first {
		err = fmt.Errorf("%w; quotes make it go on to line %d", err, last)
	}
	return &LineError{File: r.in.Name(), Line: r.csvReader.first, Column: name, Err: err}
}
