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
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

const (
	// minPartBytes and maxPartBytes bound what a part has before the next one begins; in between it is a partShare of its shard. A part is in
	// memory while it grows: so that is little beside the data, and a shard has few parts all the same.
	minPartBytes = 16 << 20
	maxPartBytes = 448 << 20
	partShare    = 5
	// maxShardBytes bounds a shard's parts, so that they fit into the address space of a function.
	maxShardBytes = 8 * maxPartBytes
	// maxPartRows bounds a part's chunks.
	maxPartRows = 1 << 32
	// MaxFiles bounds the files of one load.
	MaxFiles = 4096
)

// columnar reads columns, chunk by chunk.
type columnar interface {
	// Columns are the same but for values that turn out to be missing.
	Columns() column.Schema
	// Next is the next rows, at most part.ChunkRows, as an array for each column; io.EOF ends it. The caller releases them.
	Next(ctx context.Context) ([]arrow.Array, error)
	// Place is how much was read of how much there is. Rows go to elements by it. A total below 0 is not known.
	Place() (done, total int64)
	// Close ends the reading.
	Close()
}

// filling writes parts as they become full.
type filling struct {
	plan    *Plan
	large   bool // parts are as large as they may be
	before  func(context.Context, uint32, func([]arrow.Array)) error
	in      columnar
	sink    Sink
	memory  uint64 // that a part may take while it grows
	element uint32 // whose part grows
	draft   *part.Draft
	shards  []uint64 // bytes so far
	rows    []uint64
}

// fillColumns reads rows once. A part is kept in memory until it is full; then its text is shortened, its size is known, memory is lent for it,
// and it is written.
func (p *Plan) fillColumns(ctx context.Context, in columnar, sink Sink, o *Options) error {
	n := p.Sharding.Elements
	p.Joined = make([]bool, n)
	f := &filling{plan: p, large: o.LargeParts, before: o.Before, in: in, sink: sink, memory: uint64(o.MemoryBytes) / 4, shards: make([]uint64, n), rows: make([]uint64, n)}
	p.Sizes, p.Parts, p.Stats = make([][]uint64, n), make([][]cluster.Part, n), make([]part.Stats, len(in.Columns()))
	defer func() {
		if f.draft != nil {
			f.draft.Release()
		}
	}()
	if err := f.read(ctx); err != nil {
		return err
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	for f.element = range n {
		if len(p.Parts[f.element]) == 0 && len(o.Like) == 0 { // a shard without rows has columns too
			f.draft = part.NewDraft()
		}
		if err := f.flush(ctx); err != nil {
			return err
		}
	}
	p.Columns = in.Columns()
	p.Sharding = cluster.BlockOf(f.rows)
	even := cluster.Sharding{Kind: cluster.Block, Elements: n, Rows: p.Sharding.Rows}
	same := true
	for e := range n {
		_, rows := even.ElementRows(e)
		same = same && rows == f.rows[e]
	}
	if same {
		p.Sharding = even
	}
	p.Rows = p.Sharding.Rows
	return p.Sharding.Validate()
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
		err = f.deal(ctx, columns, before, done, total)
		releaseAll(columns)
		if err != nil {
			return err
		}
		before = done
	}
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
		if err := f.add(ctx, columns, first, end-first); err != nil {
			return err
		}
		if first = end; first < rows {
			if err := f.flush(ctx); err != nil {
				return err
			}
			f.element++
		}
	}
	return nil
}

// add puts rows into the part that grows.
func (f *filling) add(ctx context.Context, columns []arrow.Array, first, count int) error {
	if count == 0 {
		return nil
	}
	if f.draft == nil {
		f.draft = part.NewDraft()
	}
	if err := f.again(ctx); err != nil {
		return err
	}
	f.draft.Add(columns, first, count)
	if f.rows[f.element] += uint64(count); f.rows[f.element] > cluster.MaxRows {
		return fmt.Errorf("%w: more than %d rows", ErrTooLarge, uint64(cluster.MaxRows))
	}
	return f.flushFull(ctx)
}

func (f *filling) flushFull(ctx context.Context) error {
	most := min(max(f.shards[f.element]/partShare, minPartBytes), maxPartBytes, f.memory)
	if f.large {
		most = min(maxPartBytes, f.memory)
	}
	if f.draft != nil && (f.draft.Bytes() >= most || f.draft.Rows() >= maxPartRows) {
		return f.flush(ctx)
	}
	return nil
}

// again puts what an element has already, and is to be written again, in front of its first new row.
func (f *filling) again(ctx context.Context) error {
	if f.before == nil || f.plan.Joined[f.element] {
		return nil
	}
	f.plan.Joined[f.element] = true
	var failed error
	err := f.before(ctx, f.element, func(columns []arrow.Array) {
		if failed == nil {
			if f.draft == nil {
				f.draft = part.NewDraft()
			}
			f.draft.Add(columns, 0, columns[0].Len())
			failed = f.flushFull(ctx)
		}
		releaseAll(columns)
	})
	if f.draft == nil {
		f.draft = part.NewDraft()
	}
	return errors.Join(err, failed)
}

// flush writes the part that grew.
func (f *filling) flush(ctx context.Context) error {
	d, e, p := f.draft, f.element, f.plan
	if d == nil {
		return nil
	}
	if len(p.Parts[e]) == cluster.MaxParts || f.shards[e] > maxShardBytes {
		return fmt.Errorf("%w: a shard has at most %d parts and %d MiB: spread the dataset over more nodes", ErrTooLarge, cluster.MaxParts, maxShardBytes>>20)
	}
	schema := f.in.Columns()
	if err := d.Seal(schema); err != nil {
		return err
	}
	sizes := []uint64{d.Size(), part.DirectoryBytes(len(schema), d.Chunks())}
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
	f.draft = nil
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

// FileStats is what a load found in one file.
type FileStats struct {
	Node  string `json:"node,omitempty"` // where it lies; "": at the client
	Name  string `json:"name"`
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes"` // of the file
}

// columnFormat reads files of one format as columns.
type columnFormat interface {
	// look finds a file's columns. Those of the first file are known when another is looked at, and are the same; see agree.
	look(ctx context.Context, in Input, known column.Schema) (column.Schema, error)
	// open reads the rows.
	open(ctx context.Context, in Input, s column.Schema) (columnar, error)
}

// files reads one file after the other.
type files struct {
	ctx     context.Context
	format  columnFormat
	inputs  []Input
	schema  column.Schema
	against string // whose columns they are
	total   int64  // bytes of all
	passed  int64  // of those that are read
	next    int
	now     columnar
	stats   []FileStats
}

// scanColumns looks at the files, of which the first says what the columns are.
func scanColumns(ctx context.Context, ins []Input, o *Options) (*Plan, error) {
	infer := &Inference{}
	bad := &BadLines{}
	f := &files{inputs: ins}
	switch o.Format {
	case Parquet:
		f.format = parquetFormat{o}
	case Arrow:
		f.format = arrowFormat{o}
	case NDJSON:
		f.format = &ndjsonFormat{o: o, infer: infer, bad: bad}
	default:
		f.format = &csvFormat{o: o, infer: infer, bad: bad}
	}
	f.schema, f.against = slices.Clone(o.Like), "the dataset"
	for _, in := range ins {
		s, err := f.format.look(ctx, in, f.schema)
		if err != nil {
			return nil, failed(in, err)
		}
		if f.schema == nil {
			f.schema, f.against = s, in.Name()
		} else if err := f.agree(in, s); err != nil {
			return nil, err
		}
		f.total += max(in.Size(), 0)
	}
	if err := f.schema.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, ins[0].Name(), err)
	}
	p := &Plan{Kind: cluster.Columns, Columns: f.schema, Sharding: o.sharding(0)}
	if infer.Rows > 0 {
		p.Inferred = infer
	}
	p.fill = func(ctx context.Context, sink Sink) error {
		f.ctx = ctx
		defer f.Close()
		err := p.fillColumns(ctx, f, sink, o)
		p.Files, p.Bad = f.stats, *bad
		return err
	}
	return p, nil
}

// agree compares a file's columns with the first one's.
func (f *files) agree(in Input, s column.Schema) error {
	if differs := f.schema.Differs(s); differs != "" {
		return fmt.Errorf("%w: the columns differ: %s against %s: %s", ErrInput, in.Name(), f.against, differs)
	}
	for c := range s { // one of the files may miss values where others miss none
		f.schema[c].Nullable = f.schema[c].Nullable || s[c].Nullable
	}
	return nil
}

func (f *files) Columns() column.Schema { return f.schema }

func (f *files) Next(ctx context.Context) ([]arrow.Array, error) {
	for {
		if f.now == nil {
			if f.next == len(f.inputs) {
				return nil, io.EOF
			}
			in := f.inputs[f.next]
			now, err := f.format.open(ctx, in, f.schema)
			if err != nil {
				return nil, failed(in, err)
			}
			f.now = now
			f.next++
			f.stats = append(f.stats, FileStats{Name: in.Name(), Bytes: in.Size()})
		}
		columns, err := f.now.Next(ctx)
		if err == nil {
			f.stats[len(f.stats)-1].Rows += uint64(columns[0].Len())
			return columns, nil
		}
		in := f.inputs[f.next-1]
		if err != io.EOF { // an error that has it in itself is none of the end
			return nil, failed(in, err)
		}
		f.now.Close()
		f.now = nil
		f.passed += max(in.Size(), 0)
	}
}

// Place is of one file as that has it, which may count rows; of several in bytes.
func (f *files) Place() (done, total int64) {
	if len(f.inputs) == 1 {
		if f.now == nil {
			return f.passed, f.total
		}
		return f.now.Place()
	}
	if f.now != nil {
		if at, of := f.now.Place(); of > 0 {
			done = int64(float64(max(f.inputs[f.next-1].Size(), 0)) * float64(at) / float64(of))
		}
	}
	return f.passed + done, f.total
}

func (f *files) Close() {
	if f.now != nil {
		f.now.Close()
	}
}

const (
	// smallPart is a part that is written again when its shard is added to.
	smallPart = minPartBytes / 2
	// ManyParts are so many that those of usual size are written again too, as fewer and larger ones (Options.LargeParts).
	ManyParts = 24
)

// JoinFrom says which parts of a shard, of these sizes, are written again when it is added to: those from the number it returns on. Small
// ones are joined so, and a shard that is added to for ever has few parts all the same.
func JoinFrom(sizes []uint64) int {
	all, from := uint64(0), len(sizes)
	for _, n := range sizes {
		all += n
	}
	small := uint64(smallPart)
	if len(sizes) >= ManyParts {
		small = max(all/partShare, minPartBytes)
	}
	for from > 0 && sizes[from-1] < small {
		from--
	}
	return from
}
