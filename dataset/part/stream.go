package part

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/column"
)

// File reads a part's chunks from where it lies, one at a time. What it reads may come from a node that is not to be trusted: each
// chunk is checked.
type File struct {
	Columns column.Schema
	r       *ipc.FileReader
}

// OpenFile reads the footer and the dictionaries.
func OpenFile(at ipc.ReadAtSeeker) (f *File, err error) {
	defer recovered(&err)
	r, err := ipc.NewFileReader(at)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
	f = &File{r: r}
	if f.Columns, err = Columns(r.Schema()); err != nil {
		r.Close()
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
	return f, nil
}

// recovered makes an error of a panic: the Arrow library panics on some of what is wrong.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", ErrPart, r)
	}
}

// Chunk reads one chunk. The caller releases it.
func (f *File) Chunk(i int) (rec arrow.RecordBatch, err error) {
	defer recovered(&err)
	if i >= f.r.NumRecords() {
		return nil, fmt.Errorf("%w: there is no chunk %d of %d", ErrPart, i, f.r.NumRecords())
	}
	if rec, err = f.r.RecordBatchAt(i); err != nil {
		return nil, fmt.Errorf("%w: chunk %d: %w", ErrPart, i, err)
	}
	for c, a := range rec.Columns() {
		if err := checkColumn(a); err != nil {
			rec.Release()
			return nil, fmt.Errorf("%w: chunk %d, column %q: %w", ErrPart, i, f.Columns[c].Name, err)
		}
	}
	return rec, nil
}

// Close lets go of the dictionaries.
func (f *File) Close() error { return f.r.Close() }
