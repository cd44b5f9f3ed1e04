package dataset

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// arrowFormat reads Arrow IPC files and streams.
type arrowFormat struct{ o *Options }

func (f arrowFormat) look(ctx context.Context, in Input, _ column.Schema) (column.Schema, error) {
	r, err := f.start(ctx, in, PhaseScan)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.schema, nil
}

func (f arrowFormat) open(ctx context.Context, in Input, phase Phase, s column.Schema) (columnar, error) {
	r, err := f.start(ctx, in, phase)
	if err != nil {
		return nil, err
	}
	return inOrder(in, r, s)
}

func (f arrowFormat) start(ctx context.Context, in Input, phase Phase) (*arrowReader, error) {
	pass, err := read(ctx, in, f.o, phase, 0, in.Size())
	if err != nil {
		return nil, err
	}
	r := &arrowReader{in: in, pass: pass, most: uint64(f.o.MemoryBytes) / 2, chunkRows: part.ChunkRows}
	start := bufio.NewReader(pass.tracked)
	if file := arrowFile(in, pass); file != nil {
		r.stream, err = part.NewFileStream(file, r.most)
	} else if part.NeedsFooter(start) {
		defer pass.stream.Close()
		return f.unpacked(ctx, in, start, phase)
	} else {
		r.stream, err = part.NewStream(start, r.most)
	}
	if err != nil {
		pass.stream.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Name(), err)
	}
	r.schema = r.stream.Columns
	return r, nil
}

// maxUnpackedBytes bounds the disk that an unpacked copy takes: a shard has less. A node reads one file of columns at a time.
const maxUnpackedBytes = 16 << 30

// unpacked reads an Arrow file that is compressed as a whole, and has to be read by its footer: from a copy without a name, in the folder for temporary files.
func (f arrowFormat) unpacked(ctx context.Context, in Input, from io.Reader, phase Phase) (*arrowReader, error) {
	spool, err := NewSpool(ctx, in.Name(), from, "", maxUnpackedBytes, nil)
	if errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("%w: %s: it is compressed as a whole, and has more than %d GiB unpacked: decompress it", ErrTooLarge, in.Name(), maxUnpackedBytes>>30)
	}
	if err != nil {
		return nil, err
	}
	r, err := f.start(ctx, spool, phase)
	if err != nil {
		spool.Close()
		return nil, err
	}
	r.spool = spool
	return r, nil
}

// arrowFile is an input that is an Arrow file and can be read anywhere; nil: it is a stream, or is read from its start.
func arrowFile(in Input, pass *reading) *placedReader {
	at, size, ok := randomAccess(in, pass.stream)
	if !ok {
		return nil
	}
	magic := make([]byte, len(arrowMagic))
	if n, _ := at.ReadAt(magic, 0); string(magic[:n]) != arrowMagic {
		return nil
	}
	return &placedReader{SectionReader: io.NewSectionReader(at, 0, size), s: pass.stream.(*stream), tracked: pass.tracked}
}

const arrowMagic = "ARROW1"

// placedReader counts what is read at any place.
type placedReader struct {
	*io.SectionReader
	s       *stream
	tracked *trackedReader
}

func (p *placedReader) ReadAt(b []byte, off int64) (int, error) {
	if err := context.Cause(p.tracked.ctx); err != nil {
		return 0, err
	}
	n, err := p.SectionReader.ReadAt(b, off)
	p.s.done = min(p.s.done+int64(n), p.Size())
	if p.tracked.progress != nil {
		p.tracked.progress(p.tracked.phase, p.tracked.before+p.s.done, p.tracked.total)
	}
	return n, err
}

// arrowReader reads the batches of a file, cut into chunks.
type arrowReader struct {
	in        Input
	pass      *reading
	spool     *Spool // nil: in is not unpacked to be read
	stream    *part.Stream
	schema    column.Schema
	batch     []arrow.Array
	from      int // rows of it that are done
	n         int // batches
	most      uint64
	chunkRows int // the most that are handed out at once
}

func (r *arrowReader) Columns() column.Schema { return r.schema }

func (r *arrowReader) Next(context.Context) ([]arrow.Array, error) {
	for r.batch == nil {
		columns, err := r.stream.Next()
		if err == io.EOF {
			return nil, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: record batch %d: %w", ErrInput, r.in.Name(), r.n, err)
		}
		r.n++
		if columns[0].Len() == 0 {
			releaseAll(columns)
			continue
		}
		r.batch, r.from = columns, 0
	}
	rows := r.batch[0].Len()
	to := min(rows, r.from+r.chunkRows)
	out, err := part.Rows(r.batch, r.from, to, r.most)
	for errors.Is(err, part.ErrText) && to-r.from > 1 {
		r.chunkRows = (to - r.from + 1) / 2
		to = r.from + r.chunkRows
		out, err = part.Rows(r.batch, r.from, to, r.most)
	}
	if bad := (*part.RowError)(nil); errors.As(err, &bad) {
		err = fmt.Errorf("column %q: row %d of the batch: %w", r.schema[bad.Column].Name, bad.Row, bad.Err)
		if errors.Is(err, part.ErrText) { // one row, of lists or structs
			err = fmt.Errorf("%w: %s", err, part.SplitRow)
		}
	}
	if err == nil {
		err = r.inRange(out)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: record batch %d: %w", ErrInput, r.in.Name(), r.n-1, err)
	}
	if r.from = to; to == rows {
		releaseAll(r.batch)
		r.batch = nil
	}
	return out, nil
}

// inRange finds a value that its column's type does not have, in columns made of the rows from r.from on. It releases them then.
func (r *arrowReader) inRange(columns []arrow.Array) error {
	for c, a := range columns {
		if stray := (*part.RangeError)(nil); errors.As(part.CheckRange(a), &stray) {
			releaseAll(columns)
			return fmt.Errorf("column %q: row %d of the batch: %s", r.schema[c].Name, r.from+stray.Row, stray.Why)
		}
	}
	return nil
}

// where is the batch that was read from last.
func (r *arrowReader) where() string { return fmt.Sprintf("record batch %d", r.n-1) }

func (r *arrowReader) Place() (done, total int64) { return r.pass.stream.Done(), r.in.Size() }

func (r *arrowReader) Close() {
	releaseAll(r.batch)
	r.stream.Close()
	r.pass.stream.Close()
	if r.spool != nil {
		r.spool.Close()
	}
}
