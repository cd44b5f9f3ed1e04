package dataset

import (
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

const (
	// maxPartBytes is about what a part has before the next one begins: with cluster.MaxParts of them a shard fits
	// into the address space of a function.
	maxPartBytes = 448 << 20
	// maxPartRows bounds a part's chunks.
	maxPartRows = 1 << 32
)

// columnar reads an input that says itself which columns it has, chunk by chunk.
type columnar interface {
	// Columns are known from the start.
	Columns() column.Schema
	// Rows is how many there are in all.
	Rows() uint64
	// Next is the next rows, at most part.ChunkRows, as an array for each column; io.EOF ends it. The caller releases them.
	Next(ctx context.Context) ([]arrow.Array, error)
}

// planColumns reads all rows, once, and keeps them as parts: their text is shortened, and their sizes are known, before memory is
// lent for them.
func planColumns(ctx context.Context, in columnar, o *Options) (*Plan, error) {
	if err := in.Columns().Validate(); err != nil {
		return nil, err
	}
	s := o.sharding(in.Rows())
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	p := &Plan{Kind: cluster.Columns, Columns: in.Columns(), Sharding: s, Rows: in.Rows()}
	d := &drafts{plan: p, shards: make([][]*part.Draft, s.Elements), most: uint64(o.MemoryBytes)}
	if err := d.read(ctx, in); err != nil {
		d.release()
		return nil, err
	}
	if err := d.seal(); err != nil {
		d.release()
		return nil, err
	}
	p.fill = func(ctx context.Context, sink Sink) error {
		defer d.release()
		return d.fill(ctx, sink)
	}
	return p, nil
}

// drafts are the parts of all shards in the making.
type drafts struct {
	plan   *Plan
	shards [][]*part.Draft
	bytes  uint64
	most   uint64
}

func (d *drafts) release() {
	for _, parts := range d.shards {
		for _, p := range parts {
			p.Release()
		}
	}
}

// read deals chunks out to the shards.
func (d *drafts) read(ctx context.Context, in columnar) error {
	row := uint64(0)
	for {
		columns, err := in.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		count := uint64(columns[0].Len())
		err = d.deal(columns, row, count)
		for _, a := range columns {
			a.Release()
		}
		if err != nil {
			return err
		}
		row += count
	}
	if row != d.plan.Rows {
		return fmt.Errorf("%w: it has %d rows, and said it would have %d", ErrInput, row, d.plan.Rows)
	}
	return nil
}

// deal gives each shard its rows of a chunk.
func (d *drafts) deal(columns []arrow.Array, row, count uint64) error {
	for done := uint64(0); done < count; {
		element, local, ok := d.plan.Sharding.Owner(row + done)
		if !ok {
			return fmt.Errorf("%w: it has more than the %d rows that it said", ErrInput, d.plan.Rows)
		}
		_, held := d.plan.Sharding.ElementRows(element)
		n := min(count-done, held-local)
		p, err := d.open(element)
		if err != nil {
			return err
		}
		before := p.Bytes()
		p.Add(columns, int(done), int(n))
		if d.bytes += p.Bytes() - before; d.bytes > d.most {
			return tooLarge(d.most)
		}
		done += n
	}
	return nil
}

func tooLarge(most uint64) error {
	return fmt.Errorf("%w: its columns take more than %d bytes in memory while they are loaded: load it as several files", ErrTooLarge, most)
}

// open is the part of a shard that rows are added to.
func (d *drafts) open(element uint32) (*part.Draft, error) {
	parts := d.shards[element]
	if n := len(parts); n > 0 && parts[n-1].Bytes() < maxPartBytes && parts[n-1].Rows() < maxPartRows {
		return parts[n-1], nil
	}
	if len(parts) == cluster.MaxParts {
		return nil, fmt.Errorf("%w: a shard has at most %d parts of about %d MiB: spread the dataset over more nodes", ErrTooLarge, cluster.MaxParts, maxPartBytes>>20)
	}
	p := part.NewDraft(d.plan.Columns)
	d.shards[element] = append(parts, p)
	return p, nil
}

// seal decides how all parts are stored, and plans their windows.
func (d *drafts) seal() error {
	for e := range d.shards {
		if len(d.shards[e]) == 0 { // a shard without rows has columns too
			d.shards[e] = []*part.Draft{part.NewDraft(d.plan.Columns)}
		}
		var sizes []uint64
		var parts []cluster.Part
		for _, p := range d.shards[e] {
			if err := p.Seal(); err != nil {
				return err
			}
			sizes = append(sizes, p.Size(), part.DirectoryBytes(len(d.plan.Columns), p.Chunks()))
			parts = append(parts, cluster.Part{Rows: p.Rows(), Chunks: p.Chunks()})
		}
		d.plan.Sizes, d.plan.Parts = append(d.plan.Sizes, sizes), append(d.plan.Parts, parts)
	}
	return nil
}

// fill writes the parts. Their directories are the node's to write, once it has checked them.
func (d *drafts) fill(ctx context.Context, sink Sink) error {
	buffer := bufferFor(len(d.shards))
	for e, parts := range d.shards {
		for i, p := range parts {
			window := cluster.PartWindows*i + cluster.PartFile
			w := newWindowWriter(sink, uint32(e), window, d.plan.Sizes[e][window], buffer)
			if err := p.Write(contextWriter{ctx, w}); err != nil {
				return err
			}
			if err := w.finish(ctx); err != nil {
				return err
			}
			p.Release()
		}
	}
	return nil
}

// contextWriter is an io.Writer for what takes one.
type contextWriter struct {
	ctx context.Context
	w   *windowWriter
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return len(p), c.w.write(c.ctx, p)
}
