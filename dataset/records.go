package dataset

import (
	"context"
	"fmt"
	"io"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

// recordScan gathers what a records dataset's windows need.
type recordScan struct {
	o      *Options
	schema *schema.Schema
	layout schema.Layout
	key    int // field of the shard key, -1 if none
	rows   uint64
	counts []uint64 // rows by element, if there is a key
	spread cluster.Sharding
	bad    BadLines
}

func scanRecords(ctx context.Context, in Input, o *Options) (*Plan, error) {
	if plan, err := scanRawBySize(in, o); plan != nil || err != nil {
		return plan, err
	}
	sc, err := newRecordScan(o)
	if err != nil {
		return nil, err
	}
	rows, err := openRows(ctx, in, o, PhaseScan, &sc.bad)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if err := sc.each(rows, sc.add); err != nil {
		return nil, err
	}
	return sc.plan(in)
}

// scanRawBySize counts raw records without reading them, where that can be known.
func scanRawBySize(in Input, o *Options) (*Plan, error) {
	sized, ok := in.(plainSizer)
	if !ok || o.Format != RawFile || o.Spread.Key != "" {
		return nil, nil
	}
	size, ok := sized.plainSize()
	l, err := o.Schema.Layout()
	if err != nil || !ok {
		return nil, err
	}
	for _, f := range o.Schema.Fields {
		if f.Type == schema.Bool {
			return nil, nil // its values want to be checked
		}
	}
	if rest := size % int64(l.Size); rest != 0 {
		return nil, fmt.Errorf("%w: %s: its last %d bytes are no whole record of %d bytes (%s)", ErrInput, in.Name(), rest, l.Size, o.Schema)
	}
	sc, err := newRecordScan(o)
	if err != nil {
		return nil, err
	}
	sc.rows = uint64(size) / uint64(l.Size)
	return sc.plan(in)
}

func newRecordScan(o *Options) (*recordScan, error) {
	s := o.Schema
	l, err := s.Layout()
	if err != nil {
		return nil, err
	}
	sc := &recordScan{o: o, schema: s, layout: l, key: -1}
	// While rows are counted, any row may exist.
	sc.spread = o.sharding(cluster.MaxRows)
	if o.Spread.Key != "" {
		if sc.key = s.Index(o.Spread.Key); sc.key < 0 {
			return nil, fmt.Errorf("%w: the shard key %q is no column; %s", ErrOptions, o.Spread.Key, schema.Suggest(o.Spread.Key, s.Names()))
		}
		sc.counts = make([]uint64, o.Spread.Elements)
	}
	return sc, nil
}

// keyOf is the bytes of the row's shard key.
func (sc *recordScan) keyOf(record []byte) []byte {
	at := sc.layout.Offsets[sc.key]
	return record[at : at+sc.schema.Fields[sc.key].Type.Size()]
}

func (sc *recordScan) add(record []byte) error {
	if sc.rows >= cluster.MaxRows {
		return fmt.Errorf("%w: more than %d rows", ErrTooLarge, uint64(cluster.MaxRows))
	}
	if sc.counts != nil {
		sc.counts[sc.spread.KeyOwner(sc.keyOf(record))]++
	}
	sc.rows++
	return nil
}

// plan computes the shards.
func (sc *recordScan) plan(in Input) (*Plan, error) {
	s := sc.o.sharding(sc.rows)
	if sc.counts != nil {
		s = cluster.KeyedOf(sc.o.Spread.Key, sc.counts)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{Kind: cluster.Records, Schema: schema.Schema{Fields: sc.schema.Fields}, Sharding: s, Rows: sc.rows, Bad: sc.bad}
	for e := range s.Elements {
		_, n := s.ElementRows(e)
		sizes := []uint64{n * uint64(sc.layout.Size)}
		_, file := column.Places(sizes)
		sizes = append(sizes, part.FixedDirectoryBytes(n), file)
		for w, n := range sizes {
			if n > cluster.MaxWindowBytes {
				return nil, fmt.Errorf("%w: window %d of element %d would have %d bytes, at most %d are allowed", ErrTooLarge, w, e, n, uint64(cluster.MaxWindowBytes))
			}
		}
		p.Sizes = append(p.Sizes, sizes)
	}
	p.fill = func(ctx context.Context, sink Sink) error { return sc.fill(ctx, in, p, sink) }
	return p, nil
}

// fill reads the input again and puts each row where it belongs.
func (sc *recordScan) fill(ctx context.Context, in Input, p *Plan, sink Sink) error {
	bad := BadLines{}
	rows, err := openRows(ctx, in, sc.o, PhaseFill, &bad)
	if err != nil {
		return err
	}
	defer rows.Close()
	var writers []*windowWriter // of the rows: the node writes what is around them
	buffer := bufferFor(len(p.Sizes))
	for e, sizes := range p.Sizes {
		writers = append(writers, newWindowWriter(sink, uint32(e), cluster.FixedValues, sizes[cluster.FixedValues], buffer))
	}
	row := uint64(0)
	err = sc.each(rows, func(record []byte) error {
		if row == p.Rows {
			return fmt.Errorf("%w: %s has more than %d rows", ErrChanged, in.Name(), p.Rows)
		}
		var e uint32
		if sc.key >= 0 {
			e = sc.spread.KeyOwner(sc.keyOf(record))
		} else {
			e, _, _ = p.Sharding.Owner(row)
		}
		row++
		return writers[e].write(ctx, record)
	})
	if err != nil {
		return err
	}
	for _, w := range writers {
		if err := w.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rowReader reads the rows of one pass over an input.
type rowReader interface {
	// next reads a row into record, which it overwrites; io.EOF comes after the last one.
	next(record []byte) error
	Close()
}

// openRows starts a pass over the input. Bad lines are left out as far as allowed, and noted.
func openRows(ctx context.Context, in Input, o *Options, phase Phase, bad *BadLines) (rowReader, error) {
	if o.Format == RawFile {
		return openRaw(ctx, in, o, phase, bad)
	}
	rows, err := openPacked(ctx, in, o, phase, bad)
	if err != nil {
		return nil, failed(in, err)
	}
	return rows, nil
}

// each calls row for every row.
func (sc *recordScan) each(rows rowReader, row func(record []byte) error) error {
	record := make([]byte, sc.layout.Size)
	for {
		if err := rows.next(record); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := row(record); err != nil {
			return err
		}
	}
}
