package dataset

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
)

const (
	// minPartBytes and maxPartBytes bound what a part has before the next one begins; in between it is a partShare of its shard. A part is in
	// memory while it grows: so that is little beside the data, and a shard has few parts all the same.
	minPartBytes = 16 << 20
	maxPartBytes = 448 << 20
	partShare    = 4
	// MaxShardBytes bounds a shard's windows: so that, written again, they are fewer than ManyParts.
	MaxShardBytes = (ManyParts - 1) * maxPartBytes
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

// CheckShard checks that a shard's windows, of these sizes, are no more than one has.
func CheckShard(sizes []uint64) error {
	all := uint64(0)
	for _, n := range sizes {
		all += min(n, MaxShardBytes+1)
	}
	if len(sizes) > cluster.PartWindows*cluster.MaxParts || all > MaxShardBytes {
		return fmt.Errorf("%w: a shard has at most %d parts and %d MiB: spread the dataset over more nodes", ErrTooLarge, cluster.MaxParts, MaxShardBytes>>20)
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

// FileStats is what a load found in one file.
type FileStats struct {
	Node  string `json:"node,omitempty"` // where it lies; "": at the client
	Name  string `json:"name"`
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes"` // of the file
	// Sampled is how many of the rows, from the first, types were inferred from.
	Sampled int64 `json:"sampled,omitempty"`
}

// columnFormat reads files of one format as columns.
type columnFormat interface {
	// look finds a file's columns; none if it has no row that names one. Those of the first file are known when another is looked at, and are the same; see agree.
	look(ctx context.Context, in Input, known column.Schema) (column.Schema, error)
	// open reads the rows.
	open(ctx context.Context, in Input, phase Phase, s column.Schema) (columnar, error)
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
	first   int    // the file that says what the columns are
	sampled int64  // rows of it
	next    int
	now     columnar
	stats   []FileStats
}

// scanColumns looks at the files, of which the first says what the columns are; where types are inferred, the first with rows.
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
		f.format = &ndjsonFormat{o: o, infer: infer, bad: bad, met: map[string]bool{}}
	default:
		f.format = &csvFormat{o: o, infer: infer, bad: bad}
	}
	f.schema, f.against = slices.Clone(o.Like), "the dataset"
	for i, in := range ins {
		known := f.schema
		if infer.rowless() {
			known = nil
		}
		s, err := f.format.look(ctx, in, known)
		if err != nil {
			return nil, failed(in, err)
		}
		if known == nil {
			f.schema, f.against, f.first = s, in.Name(), i
		} else if err := f.agree(in, s); err != nil {
			return nil, err
		}
		f.total += max(in.Size(), 0)
	}
	if nd, ok := f.format.(*ndjsonFormat); ok && len(f.schema) == 0 {
		return nil, nd.empty
	}
	if err := f.schema.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, ins[0].Name(), err)
	}
	if o.Spread.Key != "" {
		if err := f.schema.ValidateKey(o.Spread.Key); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
	}
	p := &Plan{Kind: cluster.Columns, Columns: f.schema, Sharding: o.sharding(0)}
	if f.sampled = infer.Rows; f.sampled > 0 {
		p.Inferred = infer
	}
	p.fill = func(ctx context.Context, sink Sink) error {
		f.ctx = ctx
		defer f.Close()
		err := p.fillColumns(ctx, f, sink, o)
		p.Files, p.Bad = f.stats, *bad
		if nd, ok := f.format.(*ndjsonFormat); ok && p.Rows > 0 {
			p.Unmet = nd.unmet()
		}
		return err
	}
	return p, nil
}

// agree compares a file's columns with the first one's, which may be in another order.
func (f *files) agree(in Input, s column.Schema) error {
	if like, _ := s.InOrder(f.schema); like != nil {
		s = like
	}
	if differs := f.schema.Differs(s); differs != "" {
		return fmt.Errorf("%w: the columns differ: %s against %s: %s; write it again with the same columns, or load it as a dataset of its own", ErrInput, in.Name(), f.against, differs)
	}
	for c := range s { // one of the files may miss values where others miss none
		f.schema[c].Nullable = f.schema[c].Nullable || s[c].Nullable
	}
	return nil
}

func (f *files) Columns() column.Schema { return f.schema }

// inOrder reads a file's columns in the order of s. If they are others than when the file was looked at, it closes the file.
func inOrder(in Input, r columnar, s column.Schema) (columnar, error) {
	own, from := r.Columns().InOrder(s)
	if own == nil {
		own = r.Columns()
	}
	if differs := s.Differs(own); differs != "" {
		r.Close()
		return nil, fmt.Errorf("%w: %s: %s", ErrChanged, in.Name(), differs)
	}
	return &ordered{columnar: r, columns: own, from: from}, nil
}

// ordered is a file whose columns are read in another order than they lie.
type ordered struct {
	columnar
	columns column.Schema
	from    []int // their numbers in the file
}

func (o *ordered) Columns() column.Schema { return o.columns }

func (o *ordered) Next(ctx context.Context) ([]arrow.Array, error) {
	columns, err := o.columnar.Next(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]arrow.Array, len(columns))
	for i, c := range o.from {
		out[i] = columns[c]
	}
	return out, nil
}

func (f *files) Next(ctx context.Context) ([]arrow.Array, error) {
	for {
		if f.now == nil {
			if f.next == len(f.inputs) {
				return nil, io.EOF
			}
			in := f.inputs[f.next]
			now, err := f.format.open(ctx, in, PhaseFill, f.schema)
			if err != nil {
				return nil, failed(in, err)
			}
			f.now = now
			f.stats = append(f.stats, FileStats{Name: in.Name(), Bytes: in.Size()})
			if f.next == f.first {
				f.stats[f.next].Sampled = f.sampled
			}
			f.next++
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
		small = min(max(all/partShare, minPartBytes), maxPartBytes)
	}
	for from > 0 && sizes[from-1] < small {
		from--
	}
	if from >= ManyParts { // the small ones stand in front of large ones
		from = max(0, slices.IndexFunc(sizes, func(n uint64) bool { return n < small }))
	}
	return from
}
