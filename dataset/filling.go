package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// filling writes parts as they become full.
type filling struct {
	plan    *Plan
	large   bool // parts are as large as they may be
	before  func(context.Context, uint32, func([]arrow.Array)) error
	in      columnar
	sink    Sink
	memory  uint64 // that a part may take while it grows
	element uint32 // of ranges of rows: the one that gets the next row
	key     int    // the column whose hash says where a row goes; -1: ranges
	drafts  []*part.Draft
	shards  []uint64 // bytes so far
	rows    []uint64
	chosen  [][]int32 // of a chunk: the rows of each element
}

// fillColumns reads rows once. A part is kept in memory until it is full; then its text is shortened, its size is known, memory is lent for it,
// and it is written. In ranges of rows one part grows at a time; by a key one for each element, which share the memory.
func (p *Plan) fillColumns(ctx context.Context, in columnar, sink Sink, o *Options) error {
	n := p.Sharding.Elements
	p.Joined = make([]bool, n)
	f := &filling{plan: p, large: o.LargeParts, before: o.Before, in: in, sink: sink, memory: uint64(o.MemoryBytes) / 4,
		key: -1, drafts: make([]*part.Draft, n), shards: make([]uint64, n), rows: make([]uint64, n)}
	p.Sizes, p.Parts, p.Stats = make([][]uint64, n), make([][]cluster.Part, n), make([]part.Stats, len(in.Columns()))
	if o.Spread.Key != "" {
		f.key, f.memory, f.chosen = in.Columns().Index(o.Spread.Key), f.memory/uint64(n), make([][]int32, n)
	}
	defer func() {
		for _, d := range f.drafts {
			if d != nil {
				d.Release()
			}
		}
	}()
	if err := f.read(ctx); err != nil {
		return err
	}
	for e := range n {
		if f.drafts[e] == nil && len(p.Parts[e]) == 0 && len(o.Like) == 0 { // a shard without rows has columns too
			f.drafts[e] = part.NewDraft()
		}
		if err := f.flush(ctx, e); err != nil {
			return err
		}
	}
	p.Columns = in.Columns()
	p.shard(f.rows)
	return p.Sharding.Validate()
}

// shard is the sharding that so many rows of each element make.
func (p *Plan) shard(rows []uint64) {
	if key := p.Sharding.Key; key != "" {
		p.Sharding = cluster.KeyedOf(key, rows)
	} else {
		p.Sharding = cluster.BlockOf(rows)
		even := cluster.Sharding{Kind: cluster.Block, Elements: uint32(len(rows)), Rows: p.Sharding.Rows}
		same := true
		for e, n := range rows {
			_, count := even.ElementRows(uint32(e))
			same = same && count == n
		}
		if same {
			p.Sharding = even
		}
	}
	p.Rows = p.Sharding.Rows
}

// read deals all chunks out.
func (f *filling) read(ctx context.Context) error {
	for before := int64(0); ; {
		columns, err := f.in.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		done, total := f.in.Place()
		if f.key >= 0 {
			err = f.dealByKey(ctx, columns)
		} else {
			err = f.deal(ctx, columns, before, done, total)
		}
		releaseAll(columns)
		if err != nil {
			return err
		}
		before = done
	}
}

// dealByKey gives each row of a chunk to the element that its key's hash names.
func (f *filling) dealByKey(ctx context.Context, columns []arrow.Array) error {
	keyOf, err := part.KeyOf(columns[f.key])
	if err != nil {
		return err
	}
	for e := range f.chosen {
		f.chosen[e] = f.chosen[e][:0]
	}
	var key []byte
	for row := range columns[0].Len() {
		key = keyOf(row, key[:0])
		e := f.plan.Sharding.KeyOwner(key)
		f.chosen[e] = append(f.chosen[e], int32(row))
	}
	for e, rows := range f.chosen {
		if len(rows) == 0 {
			continue
		}
		picked, err := part.Pick(columns, rows)
		if err != nil {
			return err
		}
		err = f.add(ctx, uint32(e), picked, 0, len(rows))
		releaseAll(picked)
		if err != nil {
			return err
		}
	}
	return nil
}

// deal gives each element its rows of a chunk, which lies from one place of the input to another: an element gets an even part of the whole.
func (f *filling) deal(ctx context.Context, columns []arrow.Array, from, to, total int64) error {
	rows := columns[0].Len()
	whole := cluster.Sharding{Kind: cluster.Block, Elements: f.plan.Sharding.Elements, Rows: uint64(max(total, 0))}
	for first := 0; first < rows; {
		end := rows
		if f.element+1 < whole.Elements {
			if begin, count := whole.ElementRows(f.element); int64(begin+count) < to {
				end = first
				if next := int64(begin + count); next > from {
					hi, lo := bits.Mul64(uint64(rows), uint64(next-from))
					share, rest := bits.Div64(hi, lo, uint64(to-from))
					end = max(first, int(share+min(rest, 1)))
				}
			}
		}
		if err := f.add(ctx, f.element, columns, first, end-first); err != nil {
			return err
		}
		if first = end; first < rows {
			if err := f.flush(ctx, f.element); err != nil {
				return err
			}
			f.element++
		}
	}
	return nil
}

// draft is an element's part that grows.
func (f *filling) draft(e uint32) *part.Draft {
	if f.drafts[e] == nil {
		f.drafts[e] = part.NewDraft()
	}
	return f.drafts[e]
}

// add puts rows into an element's part.
func (f *filling) add(ctx context.Context, e uint32, columns []arrow.Array, first, count int) error {
	if count == 0 {
		return nil
	}
	if err := f.again(ctx, e); err != nil {
		return err
	}
	f.draft(e).Add(columns, first, count)
	if f.rows[e] += uint64(count); f.rows[e] > cluster.MaxRows {
		return fmt.Errorf("%w: more than %d rows", ErrTooLarge, uint64(cluster.MaxRows))
	}
	return f.flushFull(ctx, e)
}

func (f *filling) flushFull(ctx context.Context, e uint32) error {
	most := min(max(f.shards[e]/partShare, minPartBytes), maxPartBytes, f.memory)
	if f.large {
		most = min(maxPartBytes, f.memory)
	}
	if d := f.draft(e); d.Bytes() >= most || d.Rows() >= maxPartRows {
		return f.flush(ctx, e)
	}
	return nil
}

// again puts what an element has already, and is to be written again, in front of its first new row.
func (f *filling) again(ctx context.Context, e uint32) error {
	if f.before == nil || f.plan.Joined[e] {
		return nil
	}
	f.plan.Joined[e] = true
	var failed error
	err := f.before(ctx, e, func(columns []arrow.Array) {
		if failed == nil {
			f.draft(e).Add(columns, 0, columns[0].Len())
			failed = f.flushFull(ctx, e)
		}
		releaseAll(columns)
	})
	return errors.Join(err, failed)
}

// flush writes an element's part.
func (f *filling) flush(ctx context.Context, e uint32) error {
	d, p := f.drafts[e], f.plan
	if d == nil {
		return nil
	}
	schema := f.in.Columns()
	if err := d.Seal(schema); err != nil {
		return err
	}
	sizes := []uint64{d.Size(), part.DirectoryBytes(len(schema), d.Chunks())}
	if err := CheckShard(append(slices.Clone(p.Sizes[e]), sizes...)); err != nil {
		if f.key >= 0 && f.memory < maxPartBytes { // more nodes would make each part smaller
			err = fmt.Errorf("%w: a shard has at most %d parts, and by a key those of %d nodes grow at the same time, to %d KiB each: load it without --key, or as several datasets",
				ErrTooLarge, cluster.MaxParts, len(f.drafts), f.memory>>10)
		}
		return err
	}
	if err := create(ctx, f.sink, e, len(p.Sizes[e]), sizes); err != nil {
		return err
	}
	window := len(p.Sizes[e]) + cluster.PartFile
	w := newWindowWriter(f.sink, e, window, sizes[cluster.PartFile], bufferBytes)
	if err := d.Write(contextWriter{ctx, w}); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	p.Sizes[e], p.Parts[e] = append(p.Sizes[e], sizes...), append(p.Parts[e], cluster.Part{Rows: d.Rows(), Chunks: d.Chunks()})
	for c, s := range d.Stats() {
		p.Stats[c].Add(schema[c].Type, s)
	}
	f.shards[e] += d.Bytes()
	d.Release()
	f.drafts[e] = nil
	return nil
}
