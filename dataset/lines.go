package dataset

import (
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
	file    string
	r       io.Reader
	buf     []byte // what was read, as long as a line may be with its end; buf[at:end] is to be handed out
	at, end int
	failed  error // of r, once buf[at:end] is handed out
	line    int64 // number of the line handed out last
	max     int
	again   []byte     // lines to hand out once more before r goes on, each with an end
	late    *LineError // what comes after them: a line that was too long
}

func newLineReader(file string, r io.Reader, max int) *lineReader {
	l := &lineReader{file: file, r: r, buf: make([]byte, max+2), max: max}
	for l.end < 3 && l.fill() {
	}
	if bytes.HasPrefix(l.buf[:l.end], []byte("\xef\xbb\xbf")) {
		l.at = 3 // a byte order mark, as some spreadsheets write it
	}
	return l
}

// head is what the input begins with, at most n bytes, before a line is handed out.
func (l *lineReader) head(n int) []byte {
	for l.end-l.at < n && l.fill() {
	}
	return l.buf[l.at:min(l.end, l.at+n)]
}

// lineStep is the most that is read at once: what is split into fields then is still in the processor's cache.
const lineStep = 256 << 10

// emptyReads is how often a reader may return nothing at all before it is given up.
const emptyReads = 100

// fill reads more behind what is there; false: there is no room, or no more.
func (l *lineReader) fill() bool {
	if l.at > 0 {
		l.at, l.end = 0, copy(l.buf, l.buf[l.at:l.end])
	}
	for range emptyReads {
		if l.end == len(l.buf) || l.failed != nil {
			return false
		}
		n, err := l.r.Read(l.buf[l.end:min(l.end+lineStep, len(l.buf))])
		l.end += n
		l.failed = err
		if n > 0 {
			return true
		}
	}
	l.failed = io.ErrNoProgress
	return false
}

// take is the next line with its end, or as much of it as there is room for; whole says which. The error is that of the reader, with what it left.
func (l *lineReader) take() (line []byte, whole bool, err error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(l.buf[l.at+seen:l.end], '\n'); i >= 0 {
			line = l.buf[l.at : l.at+seen+i+1]
			l.at += len(line)
			return line, true, nil
		}
		seen = l.end - l.at
		if !l.fill() {
			line = l.buf[l.at:l.end]
			l.at = l.end
			return line, false, l.failed
		}
	}
}

// buffered is what was read and is not handed out.
func (l *lineReader) buffered() int { return l.end - l.at }

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
	line, whole, err := l.take()
	if !whole && err == nil { // it fills the buffer
		l.line++
		for !whole && err == nil {
			_, whole, err = l.take()
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		return nil, l.errorf("", "%w: it has more than %d bytes", errLongLine, l.max)
	}
	if err == io.EOF && len(line) == 0 || err != nil && err != io.EOF {
		return nil, err
	}
	l.line++
	return withoutEnd(line), nil
}

// withoutEnd is a line without the bytes that end it.
func withoutEnd(line []byte) []byte {
	n := len(line)
	if n > 0 && line[n-1] == '\n' {
		n--
	}
	if n > 0 && line[n-1] == '\r' {
		n--
	}
	return line[:n]
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
