package dataset

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/wherry-fabric/wherry/schema"
)

// rawRows reads records as they lie in memory.
type rawRows struct {
	in      Input
	pass    *reading
	r       io.Reader
	n       int64
	bad     *BadLines
	allowed int64    // of bad
	bools   []uint32 // offsets: the only fields that not every byte is right for
	names   []string // of bools
}

func openRaw(ctx context.Context, in Input, o *Options, phase Phase, bad *BadLines) (*rawRows, error) {
	l, err := o.Schema.Layout()
	if err != nil {
		return nil, err
	}
	pass, err := read(ctx, in, o, phase, 0, in.Size())
	if err != nil {
		return nil, err
	}
	rows := &rawRows{in: in, pass: pass, r: bufio.NewReaderSize(pass.tracked, readBytes), bad: bad, allowed: o.SkipBad}
	for i, f := range o.Schema.Fields {
		if f.Type == schema.Bool {
			rows.bools = append(rows.bools, l.Offsets[i])
			rows.names = append(rows.names, f.Name)
		}
	}
	return rows, nil
}

func (r *rawRows) Close() { r.pass.stream.Close() }

func (r *rawRows) next(record []byte) error {
	for {
		n, err := io.ReadFull(r.r, record)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %s: its last %d bytes are no whole record of %d bytes", ErrInput, r.in.Name(), n, len(record))
		} else if err == io.EOF {
			return err
		} else if err != nil {
			return failed(r.in, err)
		}
		r.n++
		bad := r.check(record)
		if bad == nil {
			return nil
		}
		if err := r.bad.note(bad, r.allowed); err != nil {
			return err
		}
	}
}

// check says what is wrong with a record.
func (r *rawRows) check(record []byte) *LineError {
	for i, at := range r.bools {
		if v := record[at]; v > 1 {
			return &LineError{File: r.in.Name(), Line: r.n - 1, Column: r.names[i], Err: fmt.Errorf("%d is not a bool (0 or 1)", v), record: true}
		}
	}
	return nil
}
