package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

const (
	// sampleBytes are how much of a text file its columns' types are inferred from, and longSampleBytes for columns that have no value
	// in it: reading these is a fraction of a second.
	sampleBytes     = 4 << 20
	longSampleBytes = 64 << 20
	// maxChunkText bounds the text that becomes one chunk.
	maxChunkText = 32 << 20
)

// textInput is one reading of a text file, whose place is known by the line.
type textInput struct {
	in    Input
	pass  *reading
	lines *lineReader
	plain int64 // bytes that were handed to lines
	at    int64 // the last Place
}

func openText(ctx context.Context, in Input, o *Options, phase Phase) (*textInput, error) {
	pass, err := read(ctx, in, o, phase, 0, in.Size())
	if err != nil {
		return nil, err
	}
	t := &textInput{in: in, pass: pass}
	t.lines = newLineReader(in.Name(), t, o.LineBytes)
	return t, nil
}

// Read is for lines.
func (t *textInput) Read(p []byte) (int, error) {
	n, err := t.pass.tracked.Read(p)
	if t.plain == 0 {
		if format, ok := columnsFormat(p[:n]); ok {
			return 0, fmt.Errorf("%w: %s is a file of format %s, not text: give it that format (--format %[3]s), or its name the ending .%[3]s", ErrInput, t.in.Name(), format)
		}
		if why := strange(p[:n]); why != "" {
			return 0, fmt.Errorf("%w: %s: %s", ErrInput, t.in.Name(), why)
		}
	}
	t.plain += int64(n)
	return n, err
}

// objectsApart are two objects with a carriage return between them, which none has within it.
var objectsApart = regexp.MustCompile(`}[ \t]*\r\s*{`)

// compressed are beginnings of compressed files, and what is to be done.
var compressed = map[string]string{
	"\x1f\x8b": "gzip: give its name the ending .gz", "\x28\xb5\x2f\xfd": "zstd: give its name the ending .zst",
	"BZh9": "bzip2: decompress it (bunzip2)", "\xfd7zXZ": "xz: decompress it (unxz)", "PK\x03\x04": "zip: decompress it (unzip)",
}

// strange says why the start of a file is no text as it is read here; "": it may be.
func strange(start []byte) string {
	for magic, by := range compressed {
		if bytes.HasPrefix(start, []byte(magic)) {
			return "it is compressed by " + by
		}
	}
	switch {
	case bytes.HasPrefix(start, []byte("\xff\xfe")) || bytes.HasPrefix(start, []byte("\xfe\xff")):
		return "it is UTF-16: convert it (iconv -f UTF-16 -t UTF-8)"
	case bytes.Count(start, []byte("\r")) > 1 && !bytes.ContainsAny(start, "\n\""), !bytes.Contains(start, []byte("\n")) && objectsApart.Match(start):
		return `its lines end with a carriage return alone: convert them (tr '\r' '\n')`
	}
	return ""
}

// consumed is how much text was taken out of lines.
func (t *textInput) consumed() int64 { return t.plain - int64(t.lines.buffered()) }

// Place scales what lines has read to bytes of the file, which may be compressed.
func (t *textInput) Place() (done, total int64) {
	if t.plain > 0 {
		done = int64(float64(t.pass.stream.Done()) * float64(t.consumed()) / float64(t.plain))
	}
	t.at = max(t.at, done) // what is read ahead makes it jump
	return t.at, max(t.in.Size(), t.at)
}

func (t *textInput) Close() { t.pass.stream.Close() }

// sampling is how far a file is read to infer types from.
type sampling struct {
	end  int64  // of the text
	open []bool // by column, whether its values are looked at: at first all are, further on those that had none
}

// sees reports whether a column's values are looked at.
func (s *sampling) sees(c int) bool { return c >= len(s.open) || s.open[c] }

// goesOn reports whether more is to be read: it is while some column has no value, twice as far each time.
func (s *sampling) goesOn(consumed int64, seen []evidence, given func(c int) bool) bool {
	s.end = max(s.end, sampleBytes)
	if consumed < s.end {
		return true
	}
	if s.end >= longSampleBytes {
		return false
	}
	s.end *= 2
	s.open = make([]bool, len(seen))
	some := false
	for c := range seen {
		s.open[c] = seen[c].is == guessNothing && !given(c)
		some = some || s.open[c]
	}
	return some
}

// textRows gathers rows of text into chunks.
type textRows struct {
	schema column.Schema
	from   []*evidence // by column, what its type was inferred from; nil: it was given
	open   []bool      // columns that are text because no value was seen; nil: none is
	json   bool        // what is written is JSON, where a string is something else than a number
	whole  bool        // no value is missing
	typed  bool        // types of some columns are given, and none of a schema
	zero   bool        // whole: a missing one is zero
	put    []textPutter
	infer  *Inference
	bad    *BadLines
	added  bool  // to a dataset, which has given the types
	most   int64 // bad lines that may be left out
	room   int   // rows of a chunk
	cols   []*part.Builder
	rows   int
	text   []int // what the columns' text took in the chunk before
}

func newTextRows(s column.Schema, o *Options, in Input, infer *Inference, bad *BadLines) (*textRows, error) {
	r := &textRows{schema: s, infer: infer, bad: bad, added: len(o.Like) > 0, typed: o.Schema == nil && len(o.ColumnTypes) > 0, most: o.SkipBad, room: part.ChunkRows, whole: !o.Columnar(), zero: o.EmptyIsZero}
	width := 0
	for i, c := range s {
		seen := infer.of(c)
		r.from = append(r.from, seen)
		put, err := putterOf(c.Type, seen != nil)
		if r.whole {
			put = putFixed(o.Schema.Fields[i].Type, put)
		}
		if err != nil && (o.Format != NDJSON || !c.Type.Nested()) { // whose values are no text
			return nil, err
		}
		r.put = append(r.put, put)
		if seen != nil && seen.is == guessNothing { // which makes it text
			if r.open == nil {
				r.open = make([]bool, len(s))
			}
			r.open[len(r.put)-1] = true
		}
		width += max(c.Type.Size(), 4)
	}
	r.room = max(1, min(r.room, maxChunkBytes/width))
	if plain, ok := in.(plainSizer); ok {
		if size, ok := plain.plainSize(); ok { // each value takes a separator at least
			r.room = int(min(int64(r.room), size/int64(len(s))+1))
		}
	}
	return r, nil
}

// begin starts a chunk.
func (r *textRows) begin() {
	r.rows, r.cols = 0, make([]*part.Builder, len(r.schema))
	for i, c := range r.schema {
		r.cols[i] = part.NewBuilder(c.Type, r.room)
		if r.text != nil {
			r.cols[i].Reserve(r.text[i] + r.text[i]/16)
		}
	}
}

// value adds a value to the row that is being read: text, for which the file has what is written.
func (r *textRows) value(c int, text, written []byte) error {
	if r.open != nil && r.open[c] {
		if err := r.decide(c, written); err != nil {
			return err
		}
	}
	if err := r.put[c](r.cols[c], text); err != nil {
		if r.schema[c].Type.ID == column.UTF8 { // no other type takes what is no text
			return err
		}
		return r.refused(c, written, err)
	}
	return nil
}

// refused says what mends it that a column does not hold a value.
func (r *textRows) refused(c int, written []byte, err error) error {
	if errors.Is(err, errHalf) || errors.Is(err, errNotUTF8) {
		return err // whatever the type
	}
	if t := r.schema[c].Type; r.added && t.Nested() {
		return fmt.Errorf("%w; the dataset has the column as %v: write such values as it has them, or leave such lines out (--skip-bad)", err, t)
	}
	if r.added {
		return fmt.Errorf("%w, as which the dataset has the column: if it means a missing value say so (--null), or leave such lines out (--skip-bad)", err)
	}
	if r.infer.of(r.schema[c]) != nil {
		return r.infer.late(r.schema[c], written, r.json, err)
	}
	if !r.typed {
		return err
	}
	other := "say that such text is a missing value (--null)"
	if r.json && written[0] != '"' {
		other = "leave such lines out (--skip-bad)"
	}
	return fmt.Errorf("%w; that type was given: give another (utf8 takes any text), or %s", err, other)
}

var errMissing = errors.New("it is missing; such fields can be loaded as zero (--empty-is-zero)")

// missing adds a missing value to the row that is being read.
func (r *textRows) missing(c int) error {
	if r.whole && !r.zero {
		return errMissing
	}
	r.cols[c].Null()
	return nil
}

// decide looks at the first value of a column of which none was seen: text it is, or its type must be given. Rows without it may be
// at nodes already.
func (r *textRows) decide(c int, written []byte) error {
	if err := r.from[c].decide(written, r.json); err != nil {
		return r.infer.late(r.schema[c], written, r.json, err)
	}
	r.open[c] = false
	return nil
}

// lineOf tells a bad line from an error that ends the load. (In a function of its own, or each row would take memory for bad.)
func lineOf(err error) (bad *LineError, other error) {
	if errors.As(err, &bad) {
		return bad, nil
	}
	return nil, err
}

// end completes a row, or drops it.
func (r *textRows) end(bad *LineError) error {
	if bad == nil {
		r.rows++
		return nil
	}
	for _, b := range r.cols {
		b.Cut(r.rows)
	}
	return r.bad.note(bad, r.most)
}

// finish makes the chunk's arrays; io.EOF if it has no rows.
func (r *textRows) finish() ([]arrow.Array, error) {
	if r.rows == 0 {
		return nil, io.EOF
	}
	out := make([]arrow.Array, len(r.cols))
	r.text = make([]int, len(r.cols))
	for i, b := range r.cols {
		r.text[i] = b.TextBytes()
		out[i] = b.Finish()
	}
	r.cols = nil
	return out, nil
}

// chunk reads rows until a chunk is full, or the file ends.
func (r *textRows) chunk(ctx context.Context, t *textInput, row func() (bad *LineError, err error)) ([]arrow.Array, error) {
	r.begin()
	for from := t.consumed(); r.rows < r.room && (r.rows == 0 || t.consumed()-from < maxChunkText); {
		bad, err := row()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = r.end(bad)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// known takes the types that were given, for columns of that name, and infers the others.
func known(names []string, seen []evidence, given column.Schema) column.Schema {
	s := make(column.Schema, len(names))
	for i, name := range names {
		s[i] = column.Column{Name: name, Type: seen[i].columnType(), Nullable: true}
		if g := given.Index(name); g >= 0 {
			s[i].Type = given[g].Type
		}
	}
	return s
}

// note keeps what types were inferred from.
func (n *Inference) note(rows int64, s column.Schema, seen []evidence, given column.Schema) {
	n.Rows, n.seen = rows, map[string]*evidence{}
	var open column.Schema
	for i, c := range s {
		if given.Index(c.Name) < 0 {
			open = append(open, c)
			n.seen[c.Name] = &seen[i]
		}
	}
	n.Types = open.List()
}

// missingText reports text that means a missing value.
func missingText(text []byte, quoted bool, nulls []string) bool {
	if len(text) == 0 && !quoted {
		return true
	}
	for _, n := range nulls {
		if string(text) == n {
			return true
		}
	}
	return false
}

// unknownType is the error of a type for a column that is not there.
func unknownType(in Input, name string, names []string) error {
	return fmt.Errorf("%w: %s: --types has a type for %q, and there is no such column; %s", ErrInput, in.Name(), name, schema.Suggest(name, names))
}
