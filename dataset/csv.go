package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/wherry-fabric/wherry/schema"
)

var (
	errBareQuote = errors.New(`a quote (") stands inside of a field that does not start with one`)
	errQuote     = errors.New(`a field's closing quote (") must be followed by a separator or the line's end`)
	errOpenQuote = errors.New(`a quoted field is not closed before the end of the file`)
	errFields    = fmt.Errorf("it has more than %d columns", maxFields)
)

// maxFields bounds the fields of a record: the places of those in a line as long as Options.LineBytes may be would take gigabytes.
const maxFields = 64 << 10

// csvReader splits lines into fields by the rules of encoding/csv, but for one: after
// a bad quote it goes on at the line after the record's first. What an open quote took for
// text is rows as a rule.
type csvReader struct {
	lines  *lineReader
	comma  byte
	lone   bool // records have one field: an empty line is one that is missing
	split  splitter
	fields [][]byte
	first  int64  // number of the record's first line
	buf    []byte // the fields of a record with quotes
	ends   []int  // of the fields in buf
	quoted []bool // of the fields in buf: it stood in quotes
	bytes  int    // of the record's lines so far
	more   []byte // its lines after the first, each with an end
}

// record returns the next record's fields, valid until the next call. Empty
// lines are passed over, unless records have one field.
func (c *csvReader) record() ([][]byte, error) {
	if c.plain() {
		c.fields = c.fields[:0]
		for _, f := range c.split.spans {
			c.fields = append(c.fields, c.at(f))
		}
		return c.fields, nil
	}
	for {
		line, err := c.lines.next()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 && !c.lone {
			continue
		}
		c.first = c.lines.line
		if bytes.IndexByte(line, '"') >= 0 {
			return c.inQuotes(line)
		}
		c.fields, c.quoted = c.fields[:0], c.quoted[:0]
		for {
			i := bytes.IndexByte(line, c.comma)
			if i < 0 {
				c.fields = append(c.fields, line)
				return c.fields, nil
			}
			if len(c.fields) == maxFields-1 {
				return nil, c.fail(errFields, nil)
			}
			c.fields = append(c.fields, line[:i])
			line = line[i+1:]
		}
	}
}

// inQuotes splits a record that has quotes, and maybe goes on in further lines.
func (c *csvReader) inQuotes(line []byte) ([][]byte, error) {
	c.buf, c.ends, c.quoted, c.bytes, c.more = c.buf[:0], c.ends[:0], c.quoted[:0], len(line), c.more[:0]
	for more := true; more; {
		if len(c.quoted) == maxFields {
			return nil, c.fail(errFields, nil)
		}
		if len(line) == 0 || line[0] != '"' {
			i := bytes.IndexByte(line, c.comma)
			field := line
			if more = i >= 0; more {
				field, line = line[:i], line[i+1:]
			}
			if bytes.IndexByte(field, '"') >= 0 {
				return nil, c.fail(errBareQuote, nil)
			}
			c.buf = append(c.buf, field...)
			c.ends, c.quoted = append(c.ends, len(c.buf)), append(c.quoted, false)
			continue
		}
		c.quoted = append(c.quoted, true)
		var err error
		if line, more, err = c.quotedField(line[1:]); err != nil {
			return nil, err
		}
	}
	c.fields = c.fields[:0]
	start := 0
	for _, end := range c.ends {
		c.fields = append(c.fields, c.buf[start:end])
		start = end
	}
	return c.fields, nil
}

// fail is an error about the record as a whole, of whose lines those after the first
// are read again, and after them late, if one was too long. That costs each line one more
// reading at most: a line that opens a quote has an odd number of them, and the next such line
// ends the record, rightly or not.
func (c *csvReader) fail(err error, late *LineError) error {
	if c.lines.line > c.first {
		c.lines.back(c.first, c.more, late)
		c.more = nil // lines has it
	}
	return &LineError{File: c.lines.file, Line: c.first, Err: err}
}

// nextLine reads one more line of the record.
func (c *csvReader) nextLine() ([]byte, error) {
	line, err := c.lines.next()
	if err == nil {
		c.more = append(append(c.more, line...), '\n')
		if c.bytes += 1 + len(line); c.bytes <= c.lines.max {
			return line, nil
		}
	}
	late := (*LineError)(nil)
	switch {
	case err == io.EOF:
		return nil, c.fail(errOpenQuote, nil)
	case err != nil && !errors.As(err, &late):
		return nil, err
	}
	return nil, c.fail(fmt.Errorf("%w: a quoted field makes it more than %d bytes, if its quote is meant to be open", errLongLine, c.lines.max), late)
}

// quotedField reads a field whose opening quote is taken off already. It
// returns what follows its separator; more says that there was one.
func (c *csvReader) quotedField(line []byte) (rest []byte, more bool, err error) {
	for {
		i := bytes.IndexByte(line, '"')
		if i < 0 {
			c.buf = append(append(c.buf, line...), '\n')
			if line, err = c.nextLine(); err != nil {
				return nil, false, err
			}
			continue
		}
		c.buf = append(c.buf, line[:i]...)
		line = line[i+1:]
		switch {
		case len(line) == 0:
			c.ends = append(c.ends, len(c.buf))
			return nil, false, nil
		case line[0] == '"':
			c.buf = append(c.buf, '"')
			line = line[1:]
		case line[0] == c.comma:
			c.ends = append(c.ends, len(c.buf))
			return line[1:], true, nil
		default:
			return nil, false, c.fail(errQuote, nil)
		}
	}
}

func newCSVReader(lines *lineReader, comma byte) csvReader {
	return csvReader{lines: lines, comma: comma, split: splitter{commas: uint64(comma) * eachByte, from: -1}}
}

// fieldName makes a column's title a field's name.
func fieldName(title []byte) string { return schema.Identifier(string(bytes.TrimSpace(title))) }

// looksHeader reports whether a record may be a header that was not declared: each of its fields could be a column's name, and none a number.
func looksHeader(fields [][]byte, known func(string) bool) bool {
	if len(fields) < 2 && !known(fieldName(fields[0])) {
		return false
	}
	for _, text := range fields {
		title := bytes.TrimSpace(text)
		if len(title) == 0 || title[0] >= '0' && title[0] <= '9' || title[0] == '-' || title[0] == '.' || title[0] == '+' {
			return false
		}
	}
	return true
}
