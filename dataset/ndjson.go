package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
)

// ndjsonRows reads an object per line.
type ndjsonRows struct {
	cells
	lines *lineReader
	index map[string]int // of a field's name
	seen  []bool         // fields of this row
	tmp   []byte
}

func newNDJSONRows(lines *lineReader, o *Options) (*ndjsonRows, error) {
	l, err := o.Schema.Layout()
	if err != nil {
		return nil, err
	}
	r := &ndjsonRows{cells: cells{schema: o.Schema, layout: l, emptyIsZero: o.EmptyIsZero}, lines: lines,
		index: map[string]int{}, seen: make([]bool, len(o.Schema.Fields))}
	for i, f := range o.Schema.Fields {
		r.index[f.Name] = i
	}
	return r, nil
}

var (
	errNoObject = errors.New("it is not a JSON object")
	errHalf     = errors.New(`it has an escape from \ud800 to \udfff that is half a character, or bytes that are no UTF-8`)
	errMissing  = errors.New("it is missing, or null; such fields can be loaded as zero (--empty-is-zero)")
	errNested   = errors.New("it is an object or a list, want a single value")
	errTwice    = errors.New("it stands twice")
)

func (r *ndjsonRows) next(record []byte) error {
	for {
		line, err := r.lines.next()
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] != '{' || !json.Valid(line) {
			return r.lines.errorf("", "%w", errNoObject)
		}
		return r.object(line, record)
	}
}

// object reads a line that is known to be a valid object, so that finding its
// way needs no checks.
func (r *ndjsonRows) object(line, record []byte) error {
	clear(record)
	clear(r.seen)
	expect := 0 // members mostly come in the order of the fields
	for i := skipSpace(line, 1); line[i] != '}'; {
		end := skipString(line, i)
		name := line[i+1 : end-1]
		f := r.field(name, line[i:end], expect)
		i = skipSpace(line, skipSpace(line, end)+1) // the colon
		end = skipValue(line, i)
		if f >= 0 {
			var err error
			if r.seen[f] {
				err = errTwice
			} else {
				err = r.member(record, f, line[i:end])
			}
			if err != nil {
				return r.lines.errorf(r.schema.Fields[f].Name, "%w", err)
			}
			expect = f + 1
		}
		if i = skipSpace(line, end); line[i] == ',' {
			i = skipSpace(line, i+1)
		}
	}
	for f, seen := range r.seen {
		if seen || r.emptyIsZero {
			continue
		}
		return r.lines.errorf(r.schema.Fields[f].Name, "%w", errMissing)
	}
	return nil
}

// field finds the field that a member's name means, -1 if none.
func (r *ndjsonRows) field(name, quoted []byte, expect int) int {
	if expect < len(r.schema.Fields) && string(name) == r.schema.Fields[expect].Name {
		return expect
	}
	if bytes.IndexByte(name, '\\') >= 0 {
		var s string
		if json.Unmarshal(quoted, &s) != nil {
			return -1
		}
		name = []byte(s)
	}
	if f, ok := r.index[string(name)]; ok {
		return f
	}
	return -1
}

// escapedReplacement is U+FFFD as an escape: encoding/json puts that character where there is none, too.
var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

func replaced(s string) int { return strings.Count(s, "\ufffd") }

// member puts a member's value into field f.
func (r *ndjsonRows) member(record []byte, f int, value []byte) error {
	switch value[0] {
	case '{', '[':
		return errNested
	case 'n': // null: as if it were not there
		return nil
	case '"':
		text := value[1 : len(value)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return err
			}
			if replaced(s) > replaced(string(text))+len(escapedReplacement.FindAll(text, -1)) {
				return errHalf
			}
			r.tmp = append(r.tmp[:0], s...)
			text = r.tmp
		}
		value = text
	}
	r.seen[f] = true
	return r.set(record, f, value)
}

// The following walk over JSON that is known to be valid.

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skipString returns the place behind the string that starts at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the place behind the value that starts at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = skipString(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	return i
}
