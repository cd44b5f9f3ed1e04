package dataset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

// ndjsonFormat reads an object per line as columns: a member is a column.
type ndjsonFormat struct {
	o      *Options
	infer  *Inference
	bad    *BadLines
	looked bool            // the columns are those of the first rows
	empty  error           // what is wrong if no file has a row: of the first
	met    map[string]bool // columns that some row has
}

// look infers columns and types from the first file's first rows.
func (f *ndjsonFormat) look(ctx context.Context, in Input, first column.Schema) (column.Schema, error) {
	if first == nil && f.o.fields != nil {
		first = slices.Clone(f.o.fields)
	}
	if first != nil {
		return first, nil
	}
	t, err := openText(ctx, in, f.o, PhaseScan)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	var names []string
	var seen []evidence
	index := map[string]int{}
	rows, w := int64(0), &objects{lines: t.lines}
	var sample sampling
	var bad *LineError // the first
	for sample.goesOn(t.consumed(), seen, func(c int) bool { return f.o.ColumnTypes.Index(names[c]) >= 0 }) {
		err := w.next(func(name []byte, value []byte) error {
			c, ok := index[string(name)]
			if !ok {
				if err := w.another(name, len(names)); err != nil {
					return err
				}
				c = len(names)
				index[string(name)] = c
				names, seen = append(names, string(name)), append(seen, evidence{})
			}
			if !sample.sees(c) || f.o.ColumnTypes.Index(names[c]) >= 0 {
				return nil
			}
			if err := checkWithin(value, 0); err != nil {
				return w.lines.errorf(names[c], "%w", err)
			}
			seen[c].seeJSON(value, f.o.Nulls, 0)
			return nil
		})
		if err == io.EOF {
			break
		}
		if err != nil {
			if bad, err = firstLine(bad, err); err != nil {
				return nil, err
			}
			continue // the reading of rows reports it
		}
		rows++
	}
	if rows == 0 { // members of bad lines say nothing
		names, seen = nil, nil
	}
	for _, g := range f.o.ColumnTypes { // it may come later
		if !slices.Contains(names, g.Name) {
			names, seen = append(names, g.Name), append(seen, evidence{})
		}
	}
	if len(names) == 0 {
		rows, f.empty = 0, cmp.Or(f.empty, rowless(in, bad)) // a later file may have some
	}
	for i := range seen {
		if f.o.ColumnTypes.Index(names[i]) < 0 && seen[i].isTorn() {
			return nil, torn(in, names[i])
		}
	}
	s := known(names, seen, f.o.ColumnTypes)
	f.infer.note(rows, s, seen, f.o.ColumnTypes)
	f.looked = true
	return s, nil
}

// torn is the error of a member that is no column of lists or structs.
func torn(in Input, name string) error {
	return fmt.Errorf("%w: %s: the member %q, or one within it, is a list or an object in some rows and not in others, or goes more than %d deep, or has more than %d members, or one whose name is empty or longer than %d bytes: give its type, or take it as text (--types '%s')",
		ErrInput, in.Name(), name, column.MaxNesting, maxInferredFields, column.MaxNameBytes, column.Schema{{Name: name, Type: column.Type{ID: column.UTF8}}}.List())
}

// firstLine keeps the first bad line; any other error is handed back.
func firstLine(bad *LineError, err error) (*LineError, error) {
	line, err := lineOf(err)
	if bad == nil {
		bad = line
	}
	return bad, err
}

// rowless says why a file has no row, by its first bad line if there is one.
func rowless(in Input, bad *LineError) error {
	if bad != nil {
		return fmt.Errorf("%w: no line holds a row: %w", ErrInput, bad)
	}
	return fmt.Errorf("%w: %s has no row from which columns could be inferred: give their types (--types name:type, …)", ErrInput, in.Name())
}

// unmet are the columns with given types that no row has.
func (f *ndjsonFormat) unmet() (out []string) {
	for _, g := range f.o.ColumnTypes {
		if !f.met[g.Name] {
			out = append(out, g.Name)
		}
	}
	return out
}

// objects reads the members of an object per line.
type objects struct {
	lines *lineReader
	name  []byte // unescaped
}

// another checks a member that becomes a column behind others.
func (w *objects) another(name []byte, others int) error {
	if err := checkName(name); err != nil {
		return w.lines.errorf("", "%w", err)
	}
	if others == column.MaxColumns {
		return fmt.Errorf("%w: its objects have more than %d members, the most columns there can be", ErrInput, column.MaxColumns)
	}
	return nil
}

// next hands a line's members out, as they are written but for names, which are unescaped. Both are valid until the following call.
// A line that is no object is a LineError.
func (w *objects) next(member func(name, value []byte) error) error {
	for {
		line, err := w.lines.next()
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] != '{' || !json.Valid(line) {
			return w.lines.errorf("", "%w", noObject(line))
		}
		return w.members(line, member)
	}
}

// noObject says why a line is no object, and what mends it.
func noObject(line []byte) error {
	if line[0] == '[' {
		return fmt.Errorf("%w, but a list: write one object a line", errNoObject)
	}
	var wrong *json.SyntaxError
	if line[0] != '{' || !errors.As(json.Unmarshal(line, new(json.RawMessage)), &wrong) {
		return errNoObject
	}
	if wrong.Offset >= int64(len(line)) && strings.HasSuffix(wrong.Error(), "end of JSON input") {
		return fmt.Errorf("%w: it ends within one, behind %d bytes: the line is cut off, or the object goes on in the next: write one object a line", errNoObject, len(line))
	}
	return fmt.Errorf("%w: byte %d: %w", errNoObject, wrong.Offset, wrong)
}

func (w *objects) members(line []byte, member func(name, value []byte) error) error {
	for i := skipSpace(line, 1); line[i] != '}'; {
		end := skipString(line, i)
		name := line[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			text, err := unquote(line[i:end], nil)
			if err != nil {
				return w.lines.errorf("", "the name of a member: %w", err)
			}
			name = text
		}
		i = skipSpace(line, skipSpace(line, end)+1) // the colon
		end = skipValue(line, i)
		if err := member(name, line[i:end]); err != nil {
			return err
		}
		if i = skipSpace(line, end); line[i] == ',' {
			i = skipSpace(line, i+1)
		}
	}
	return nil
}

// unquote is the text of a JSON string that is known to be valid.
func unquote(quoted, buf []byte) ([]byte, error) {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text, nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, notUTF8(text)
	}
	if replaced(s) > replaced(string(text))+len(escapedReplacement.FindAll(text, -1)) {
		return nil, errHalf
	}
	return append(buf[:0], s...), nil
}

// ndjsonColumns reads the rows of a file.
type ndjsonColumns struct {
	*textInput
	*textRows
	objects
	f      *ndjsonFormat
	index  map[string]int
	within []jsonPutter // of columns that are lists or structs
	seen   []int64      // the row that has the column already, from 1
	row    int64
	tmp    []byte
	next   int // the column that comes next, mostly
}

func (f *ndjsonFormat) open(ctx context.Context, in Input, phase Phase, s column.Schema) (columnar, error) {
	t, err := openText(ctx, in, f.o, phase)
	if err != nil {
		return nil, err
	}
	r := &ndjsonColumns{textInput: t, objects: objects{lines: t.lines}, f: f, index: map[string]int{}, seen: make([]int64, len(s))}
	for i, c := range s {
		r.index[c.Name] = i
	}
	if r.textRows, err = newTextRows(s, f.o, in, f.infer, f.bad); err != nil {
		t.Close()
		return nil, err
	}
	r.json = true
	if r.within, err = withinOf(s, f.o.Nulls, r.from); err != nil {
		t.Close()
		return nil, err
	}
	return r, nil
}

// withinOf makes what adds values to columns that are lists or structs.
func withinOf(s column.Schema, nulls []string, from []*evidence) (out []jsonPutter, err error) {
	out = make([]jsonPutter, len(s))
	for c := range s {
		if s[c].Type.Nested() && err == nil {
			out[c], err = jsonPutterOf(s[c].Type, nulls, from[c])
		}
	}
	return out, err
}

func (r *ndjsonColumns) Columns() column.Schema { return r.schema }

// Close ends the reading.
func (r *ndjsonColumns) Close() {
	for c, row := range r.seen {
		if row > 0 {
			r.f.met[r.schema[c].Name] = true
		}
	}
	r.textInput.Close()
}

func (r *ndjsonColumns) Next(ctx context.Context) ([]arrow.Array, error) {
	return r.chunk(ctx, r.textInput, r.read)
}

// read reads one row; bad says why it is to be left out.
func (r *ndjsonColumns) read() (bad *LineError, err error) {
	r.row++
	r.next = 0
	if err := r.objects.next(r.member); err != nil {
		return lineOf(err)
	}
	for c, row := range r.seen {
		if row == r.row {
			continue
		}
		if err := r.without(c); err != nil {
			return lineOf(err)
		}
	}
	return nil, nil
}

// member adds a member's value to its column.
func (r *ndjsonColumns) member(name, value []byte) error {
	c := r.next
	if c >= len(r.schema) || string(name) != r.schema[c].Name {
		var ok bool
		if c, ok = r.index[string(name)]; !ok && r.f.o.fields != nil {
			return nil
		}
		if err := checkName(name); !ok && err != nil {
			return r.objects.lines.errorf("", "%w", err)
		} else if !ok && !r.f.looked {
			return r.objects.lines.errorf("", "it has a member %s, and the dataset has no such column; %s", clipped(name), schema.Suggest(string(name), r.schema.Names()))
		} else if !ok {
			return r.objects.lines.errorf("", "it has a member %s, which the first %d rows have not: give its type (--types '%s')", clipped(name), max(r.infer.Rows, 1),
				column.Schema{{Name: string(name), Type: column.Type{ID: column.UTF8}}}.List())
		}
	}
	r.next = c + 1
	if r.seen[c] == r.row {
		return r.objects.lines.errorf(r.schema[c].Name, "%w", errTwice)
	}
	r.seen[c] = r.row
	if put := r.within[c]; put != nil {
		if err := put(r.cols[c], value); err != nil {
			return r.objects.lines.errorf(r.schema[c].Name, "%w", r.refused(c, value, err))
		}
		return nil
	}
	text, t := value, r.schema[c].Type
	switch value[0] {
	case 'n':
		return r.without(c)
	case '"':
		var err error
		if text, err = unquote(value, r.tmp); err != nil {
			return r.objects.lines.errorf(r.schema[c].Name, "%w", err)
		}
		if missingText(text, !r.zero, r.f.o.Nulls) {
			return r.without(c)
		}
	case '{', '[':
		if t.ID != column.UTF8 {
			return r.objects.lines.errorf(r.schema[c].Name, "%w", r.refused(c, value, errNested))
		}
	}
	if from := r.from[c]; from != nil && from.is != guessNothing {
		if err := from.takes(value, t); err != nil {
			return r.objects.lines.errorf(r.schema[c].Name, "%w", r.refused(c, value, err))
		}
	}
	if err := r.value(c, text, value); err != nil {
		return r.objects.lines.errorf(r.schema[c].Name, "%w", err)
	}
	return nil
}

// without adds a missing value.
func (r *ndjsonColumns) without(c int) error {
	if err := r.missing(c); err != nil {
		return r.objects.lines.errorf(r.schema[c].Name, "%w", err)
	}
	return nil
}
