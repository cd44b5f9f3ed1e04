package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// LineError is a line that cannot be loaded.
type LineError struct {
	File   string
	Line   int64  // from 1; of raw records the record's number, from 0
	Column string // "" if the line as a whole is wrong
	Err    error  // what is wrong, with the value
	record bool
}

func (e *LineError) Error() string {
	unit := "line"
	if e.record {
		unit = "record"
	}
	at := fmt.Sprintf("%s: %s %d: ", e.File, unit, e.Line)
	if e.Column != "" {
		at += "column " + e.Column + ": "
	}
	return at + e.Err.Error()
}

// Unwrap makes errors.Is hold for what is wrong, such as schema.ErrArgument.
func (e *LineError) Unwrap() error { return e.Err }

// MaxBadShown is how many bad lines a report shows; all are counted.
const MaxBadShown = 10

// BadLines is a report about lines that were left out.
type BadLines struct {
	Count int64        `json:"count"`
	First []*LineError `json:"-"` // at most MaxBadShown
}

// note takes one more bad line in; an error means that it is one too many.
func (b *BadLines) note(err *LineError, allowed int64) error {
	if allowed == 0 {
		return err
	}
	b.Count++
	if len(b.First) < MaxBadShown {
		b.First = append(b.First, err)
	}
	if allowed > 0 && b.Count > allowed {
		return TooManyBad(allowed, b.First[0])
	}
	return nil
}

// TooManyBad is the error of a load that would leave out more bad lines than are allowed.
func TooManyBad(allowed int64, first error) error {
	lines := "lines"
	if allowed == 1 {
		lines = "line"
	}
	return fmt.Errorf("%w: more than %d bad %s (--skip-bad); the first: %w", ErrInput, allowed, lines, first)
}

// lineReader hands out the lines of an input, without their ends.
type lineReader struct {
	file  string
	r     *bufio.Reader
	line  int64 // number of the line handed out last
	max   int
	again []byte     // lines to hand out once more before r goes on, each with an end
	late  *LineError // what comes after them: a line that was too long
}

func newLineReader(file string, r io.Reader, max int) *lineReader {
	l := &lineReader{file: file, r: bufio.NewReaderSize(r, max+2), max: max}
	if mark, err := l.r.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = l.r.Discard(3) // a byte order mark, as some spreadsheets write it
	}
	return l
}

var errLongLine = errors.New("the line is longer than allowed (--line-bytes)")

// next returns the next line, valid until the following call, and io.EOF after the
// last. A line that is too long is a LineError and is passed over.
func (l *lineReader) next() ([]byte, error) {
	if len(l.again) > 0 {
		line, rest, _ := bytes.Cut(l.again, []byte{'\n'})
		l.again = rest
		l.line++
		return line, nil
	}
	if late := l.late; late != nil {
		l.line, l.late = late.Line, nil
		return nil, late
	}
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > l.max+2 {
		l.line++
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		return nil, l.errorf("", "%w: it has more than %d bytes", errLongLine, l.max)
	}
	if err == io.EOF && len(line) == 0 {
		return nil, io.EOF
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	l.line++
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}

// back has what came after the given line handed out again: lines, each with an end, which it
// keeps, then late if that is not nil.
func (l *lineReader) back(line int64, lines []byte, late *LineError) {
	l.line, l.again = line, append(lines, l.again...)
	if late != nil {
		l.late = late
	}
}

// errorf is a LineError for the line handed out last.
func (l *lineReader) errorf(column, format string, args ...any) *LineError {
	return &LineError{File: l.file, Line: l.line, Column: column, Err: fmt.Errorf(format, args...)}
}
