package dataset

import (
	"errors"
	"fmt"
	"io"

	"github.com/wherry-fabric/wherry/schema"
)

// rawRows reads records of fixed size.
type rawRows struct {
	file  string
	r     io.Reader
	n     int64
	bools []uint32 // offsets: the only fields that not every byte is right for
	names []string // of bools
}

func newRawRows(file string, r io.Reader, s *schema.Schema) (*rawRows, error) {
	l, err := s.Layout()
	if err != nil {
		return nil, err
	}
	rows := &rawRows{file: file, r: r}
	for i, f := range s.Fields {
		if f.Type == schema.Bool {
			rows.bools = append(rows.bools, l.Offsets[i])
			rows.names = append(rows.names, f.Name)
		}
	}
	return rows, nil
}

func (r *rawRows) next(record []byte) error {
	n, err := io.ReadFull(r.r, record)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %s: its last %d bytes are no whole record of %d bytes", ErrInput, r.file, n, len(record))
	} else if err != nil {
		return err
	}
	r.n++
	for i, at := range r.bools {
		if v := record[at]; v > 1 {
			return &LineError{File: r.file, Line: r.n - 1, Column: r.names[i], Err: fmt.Errorf("%d is not a bool (0 or 1)", v), record: true}
		}
	}
	return nil
}
