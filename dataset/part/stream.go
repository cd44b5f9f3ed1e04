package part

import (
	"encoding/binary"
	"fmt"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"

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
	if err := checkFooter(at); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
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

const (
	// maxFooterBytes bounds a part's footer: its columns, and 24 bytes a chunk.
	maxFooterBytes = 16 << 20
	// maxChunkBytes bounds what is read of a chunk at once: a few columns with as much text as a chunk may have.
	maxChunkBytes = 2 << 30
)

// checkFooter looks at a file's footer before the Arrow library does, which follows references that lead back until the stack is used up, and makes
// room for batches of any size.
func checkFooter(at ipc.ReadAtSeeker) error {
	size, err := at.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size < int64(len(fileMagic)+2+fileTail) {
		return fmt.Errorf("it is no Arrow file: it has %d bytes", size)
	}
	tail := make([]byte, fileTail)
	if _, err := at.ReadAt(tail, size-int64(fileTail)); err != nil && err != io.EOF {
		return err
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if string(tail[4:]) != fileMagic || length > maxFooterBytes || length < 4 || length > size-int64(len(fileMagic)+2+fileTail) {
		return fmt.Errorf("it is no Arrow file: its footer would have %d bytes, and end with %q", length, tail[4:])
	}
	foot := make([]byte, length)
	if _, err := at.ReadAt(foot, size-int64(fileTail)-length); err != nil && err != io.EOF {
		return err
	}
	footer := flatbuffers.Table{Bytes: foot, Pos: flatbuffers.GetUOffsetT(foot)}
	if err := checkLists(footer, 4); err != nil { // metadata
		return err
	}
	schema, ok := table(footer, 1)
	if !ok {
		return fmt.Errorf("it has no schema")
	}
	if err := checkFields(schema); err != nil {
		return err
	}
	for _, slot := range []int{2, 3} {
		list, n := vector(footer, slot)
		if n > len(foot)/blockBytes {
			return fmt.Errorf("its footer lists %d batches, more than it has room for", n)
		}
		for i := range n {
			block := foot[int(list)+i*blockBytes:]
			begin, head, body := binary.LittleEndian.Uint64(block), uint64(binary.LittleEndian.Uint32(block[8:])), binary.LittleEndian.Uint64(block[16:])
			if begin > uint64(size) || head > maxMessageHead || body > maxChunkBytes || head+body > uint64(size)-begin {
				return fmt.Errorf("batch %d lies at %d, %d and %d bytes long, in %d", i, begin, head, body, size)
			}
		}
	}
	_, err = at.Seek(0, io.SeekStart)
	return err
}

// recovered makes an error of a panic: the Arrow library panics on some malformed files.
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
