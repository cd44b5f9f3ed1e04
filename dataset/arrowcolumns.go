package dataset

import (
	"context"
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
	if differs := s.Differs(r.schema); differs != "" {
		r.Close()
		return nil, fmt.Errorf("%w: %s: %s", ErrChanged, in.Name(), differs)
	}
	return r, nil
}

func (f arrowFormat) start(ctx context.Context, in Input, phase Phase) (*arrowReader, error) {
	pass, err := read(ctx, in, f.o, phase, 0, in.Size())
	if err != nil {
		return nil, err
	}
	r := &arrowReader{in: in, pass: pass, most: uint64(f.o.MemoryBytes) / 2, chunkRows: part.ChunkRows}
	if r.stream, err = part.NewStream(pass.tracked, r.most); err != nil {
		pass.stream.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Name(), err)
	}
	r.schema = r.stream.Columns
	return r, nil
}

// arrowReader reads the batches of a file, cut into chunks.
type arrowReader struct {
	in        Input
	pass      *reading
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
	if err != nil {
		return nil, fmt.Errorf("%w: %s: record batch %d: %w", ErrInput, r.in.Name(), r.n-1, err)
	}
	if r.from = to; to == rows {
		releaseAll(r.batch)
		r.batch = nil
	}
	return out, nil
}

// where is the batch that was read from last.
func (r *arrowReader) where() string { return fmt.Sprintf("record batch %d", r.n-1) }

func (r *arrowReader) Place() (done, total int64) { return r.pass.stream.Done(), r.in.Size() }

func (r *arrowReader) Close() {
	releaseAll(r.batch)
	r.stream.Close()
	r.pass.stream.Close()
}
