package dataset

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

// Plan is what Scan found out about an input.
type Plan struct {
	Kind     cluster.Kind
	Schema   schema.Schema // of records
	Columns  column.Schema // of columns
	Sharding cluster.Sharding
	Rows     uint64
	Edges    uint64           // of a graph
	Sizes    [][]uint64       // bytes of each window, by element
	Parts    [][]cluster.Part // of columns, by element
	Bad      BadLines         // lines that were left out

	// Of columns Rows, Sharding, Sizes, Parts, Bad and these are known once the plan is filled: the input is read once.
	Stats    []part.Stats // by column
	Files    []FileStats
	Inferred *Inference // nil: nothing was
	// Unmet are columns that were named with a type (Options.ColumnTypes, Schema), and that no row of NDJSON has: none is misspelt, if other files have them.
	Unmet  []string
	Joined []bool // by element: Options.Before was asked for its rows, which are in its parts

	filled bool
	fill   func(context.Context, Sink) error
}

// Scan reads the input once, checks it, and plans its shards; of columns it finds out which there are. The input must
// stay open and unchanged until the plan is filled.
func Scan(ctx context.Context, in Input, o Options) (*Plan, error) {
	return ScanFiles(ctx, []Input{in}, o)
}

// ScanFiles is Scan for several files, which have the same columns.
func ScanFiles(ctx context.Context, ins []Input, o Options) (*Plan, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	switch {
	case len(ins) == 0 || len(ins) > MaxFiles:
		return nil, fmt.Errorf("%w: %d files: 1 to %d can be loaded at once", ErrOptions, len(ins), MaxFiles)
	case o.Columnar():
		return scanColumns(ctx, ins, &o)
	case len(ins) > 1:
		return nil, fmt.Errorf("%w: %d files: several can be loaded as columns only; records and graphs come from one", ErrOptions, len(ins))
	case o.Format == Edges:
		return scanEdges(ctx, ins[0], &o)
	}
	return scanRecords(ctx, ins[0], &o)
}

// ErrFilled says that a plan was filled already.
var ErrFilled = errors.New("dataset: a plan can be filled only once")

// Fill has the sink make all windows and writes them.
func (p *Plan) Fill(ctx context.Context, sink Sink) error {
	if p.filled {
		return ErrFilled
	}
	p.filled = true
	for e, sizes := range p.Sizes {
		if err := create(ctx, sink, uint32(e), 0, sizes); err != nil {
			return err
		}
	}
	return p.fill(ctx, sink)
}

// create makes windows of an element, of which it has some already.
func create(ctx context.Context, sink Sink, element uint32, before int, sizes []uint64) error {
	if err := sink.Create(ctx, element, sizes); err != nil {
		return fmt.Errorf("dataset: element %d: make windows: %w", element, err)
	}
	mapped, ok := sink.(Mapped)
	if !ok {
		return nil
	}
	for w, n := range sizes {
		if n == 0 {
			continue
		}
		if mem := mapped.Memory(element, before+w); mem != nil && uint64(len(mem)) < n {
			return fmt.Errorf("dataset: element %d: window %d was made with %d bytes, not %d", element, before+w, len(mem), n)
		}
	}
	return nil
}

// Windows are the windows of an element as a shard table lists them, without keys.
func (p *Plan) Windows(element uint32) []cluster.Window {
	out := make([]cluster.Window, len(p.Sizes[element]))
	for i, n := range p.Sizes[element] {
		out[i].Size = n
	}
	return out
}

// PartsOf are an element's parts; none unless the plan is of columns.
func (p *Plan) PartsOf(element uint32) []cluster.Part {
	if p.Kind != cluster.Columns {
		return nil
	}
	return p.Parts[element]
}

// TotalBytes is what all windows hold together.
func (p *Plan) TotalBytes() (total uint64) {
	for _, sizes := range p.Sizes {
		total += cluster.DataBytes(p.Kind, sizes)
	}
	return total
}

// reading is one pass over an input.
type reading struct {
	stream  Stream
	tracked *trackedReader
}

// read opens the input for a pass; before and total place the pass in its phase.
func read(ctx context.Context, in Input, o *Options, phase Phase, before, total int64) (*reading, error) {
	s, err := in.Open()
	if err != nil {
		return nil, err
	}
	return &reading{stream: s, tracked: &trackedReader{ctx: ctx, r: s, phase: phase, before: before, total: total, progress: o.Progress}}, nil
}

// failed puts the input's name to an error that has none.
func failed(in Input, err error) error {
	if bad := (*LineError)(nil); errors.As(err, &bad) {
		return err
	}
	for _, named := range []error{ErrInput, ErrChanged, ErrTooLarge, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, named) {
			return err
		}
	}
	return fmt.Errorf("%w: %s: %w", ErrInput, in.Name(), err)
}
