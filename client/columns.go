package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// maxDirectoryBytes bounds what is read of a part's directory at once.
const maxDirectoryBytes = 256 << 20

// Batches reads the rows from first to first+count-1 of a dataset of columns, or of records, which are one column (cluster.Table.Readable): a
// chunk of at most part.ChunkRows at a time.
// A batch is the loop's until its next turn. The first error ends the loop.
func (r *Reader) Batches(ctx context.Context, first, count uint64) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		if err := r.batches(ctx, first, count, yield); err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// errStopped says that a loop has ended early.
var errStopped = errors.New("client: the loop has ended")

func (r *Reader) batches(ctx context.Context, first, count uint64, yield func(arrow.RecordBatch, error) bool) error {
	t := r.Table
	columns, ok := t.Readable()
	if !ok {
		return fmt.Errorf("dataset %s: %w: it is of kind %v, which has no batches: read it with Rows or Write", t.Name, ErrKind, t.Kind)
	}
	if first > t.Rows || count > t.Rows-first {
		return fmt.Errorf("%w: dataset %s has %d rows, there are no %d from %d", control.ErrRequest, t.Name, t.Rows, count, first)
	}
	if t.Kind == cluster.Records {
		return r.fixedBatches(ctx, columns, first, count, yield)
	}
	for e := range t.Shards {
		at := t.Shards[e].FirstRow
		for i, p := range t.Shards[e].Parts {
			if from, to := max(first, at), min(first+count, at+p.Rows); from < to {
				if err := r.readPart(ctx, e, i, from-at, to-at, yield); err != nil {
					return err
				}
			}
			at += p.Rows
		}
	}
	return nil
}

// fixedBatches reads records, in the order of their numbers, wherever they are.
func (r *Reader) fixedBatches(ctx context.Context, columns column.Schema, first, count uint64, yield func(arrow.RecordBatch, error) bool) error {
	t, size := columns[0].Type, uint64(columns[0].Type.Size())
	step := min(part.ChunkRows, max(1, batchBytes/size))
	for done := uint64(0); done < count; done += step {
		rows, err := r.Rows(ctx, first+done, min(step, count-done))
		if err != nil {
			return err
		}
		values := make([]byte, 0, uint64(rows.Len())*size)
		for i := range rows.Len() {
			values = append(values, rows.Record(i)...)
		}
		a := part.Fixed(t, values)
		rec := array.NewRecordBatch(part.ArrowSchema(columns), []arrow.Array{a}, int64(a.Len()))
		a.Release()
		more := yield(rec, nil)
		rec.Release()
		if !more {
			return errStopped
		}
	}
	return nil
}

// readPart reads rows of a part, numbered from its first.
func (r *Reader) readPart(ctx context.Context, element, i int, from, to uint64, yield func(arrow.RecordBatch, error) bool) error {
	wrong := func(err error) error {
		return fmt.Errorf("dataset %s: part %d of node %s: %w", r.Table.Name, i, r.Table.Shards[element].Element, err)
	}
	chunks, err := r.chunks(ctx, element, i)
	if err != nil {
		return wrong(err)
	}
	window := cluster.PartWindows*i + cluster.PartFile
	f, err := part.OpenFile(&remoteFile{ctx: ctx, r: r, element: element, window: window, size: r.Table.Shards[element].Windows[window].Size})
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	if differs := r.Table.Columns.Differs(f.Columns); differs != "" {
		return wrong(fmt.Errorf("%w: %s", part.ErrPart, differs))
	}
	for c, has := range chunks {
		first, end := max(from, has.First), min(to, has.First+has.Rows)
		if first >= end {
			continue
		}
		rec, err := f.Chunk(c)
		if err == nil && uint64(rec.NumRows()) != has.Rows {
			err = fmt.Errorf("%w: chunk %d has %d rows, its directory says %d", part.ErrPart, c, rec.NumRows(), has.Rows)
		}
		if err != nil {
			return wrong(err)
		}
		cut := rec.NewSlice(int64(first-has.First), int64(end-has.First))
		rec.Release()
		more := yield(cut, nil)
		cut.Release()
		if !more {
			return errStopped
		}
	}
	return nil
}

// chunks reads a part's directory.
func (r *Reader) chunks(ctx context.Context, element, i int) ([]part.Range, error) {
	window := cluster.PartWindows*i + cluster.PartDirectory
	size := r.Table.Shards[element].Windows[window].Size
	if size > maxDirectoryBytes {
		return nil, fmt.Errorf("%w: its directory has %d bytes, at most %d are read", part.ErrLimit, size, maxDirectoryBytes)
	}
	dir := make([]byte, size)
	if err := r.ReadAt(ctx, element, window, dir, 0); err != nil {
		return nil, err
	}
	return part.ChunksOf(dir)
}

// remoteFile is a window as a file.
type remoteFile struct {
	ctx             context.Context
	r               *Reader
	element, window int
	size            uint64
	at              int64
}

// ReadAt reads one-sided.
func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || uint64(off) >= f.size {
		return 0, io.EOF
	}
	n := min(uint64(len(p)), f.size-uint64(off))
	if err := f.r.ReadAt(f.ctx, f.element, f.window, p[:n], uint64(off)); err != nil {
		return 0, err
	}
	if n < uint64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Read reads what comes next.
func (f *remoteFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
	return n, err
}

// Seek sets what comes next.
func (f *remoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += int64(f.size)
	}
	f.at = offset
	return offset, nil
}

// WriteBatches writes rows of a dataset that has Batches: o.Count of them from o.First on, or all that follow. o.Format is not used.
func (r *Reader) WriteBatches(ctx context.Context, o ReadOptions, format batch.Format, w io.Writer) error {
	t := r.Table
	if o.First > t.Rows {
		return fmt.Errorf("%w: dataset %s has %d rows, there is none with number %d", control.ErrRequest, t.Name, t.Rows, o.First)
	}
	total := t.Rows - o.First
	if o.Count > 0 {
		total = min(total, o.Count)
	}
	columns, ok := t.Readable()
	if !ok {
		return fmt.Errorf("dataset %s: %w: it is of kind %v, which has no columns", t.Name, ErrKind, t.Kind)
	}
	out, err := batch.NewWriter(w, format, columns)
	if err != nil {
		return err
	}
	done := uint64(0)
	for rec, err := range r.Batches(ctx, o.First, total) {
		if err == nil {
			err = out.Write(rec.Columns(), int(rec.NumRows()))
		}
		if err != nil {
			return err
		}
		if done += uint64(rec.NumRows()); o.Progress != nil {
			o.Progress(done, total)
		}
	}
	return out.Close()
}
