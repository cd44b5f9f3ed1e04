package dataset

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
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
	strs   []uint32 // offsets of Str fields
	key    int      // field of the shard key, -1 if none
	rows   uint64
	counts []uint64  // rows by element, if there is a key
	heaps  []uint64  // text by element, unless the sharding is by block
	marks  heapMarks // text by row, if it is
	spread cluster.Sharding
	bad    BadLines
}

func scanRecords(ctx context.Context, in Input, o *Options) (*Plan, error) {
	if plan, err := scanRawBySize(in, o); plan != nil || err != nil {
		return plan, err
	}
	rows, pass, err := openRows(ctx, in, o, PhaseScan)
	if err != nil {
		return nil, err
	}
	defer pass.stream.Close()
	sc, err := newRecordScan(o, rows.schema)
	if err != nil {
		return nil, err
	}
	if err := rows.each(in, o.SkipBad, &sc.bad, sc.add); err != nil {
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
	sc, err := newRecordScan(o, o.Schema)
	if err != nil {
		return nil, err
	}
	sc.rows = uint64(size) / uint64(l.Size)
	return sc.plan(in)
}

func newRecordScan(o *Options, s *schema.Schema) (*recordScan, error) {
	l, err := s.Layout()
	if err != nil {
		return nil, err
	}
	sc := &recordScan{o: o, schema: s, layout: l, key: -1}
	for i, f := range s.Fields {
		if f.Type == schema.Str {
			sc.strs = append(sc.strs, l.Offsets[i])
		}
	}
	// While rows are counted, any row may exist.
	sc.spread = o.sharding(cluster.MaxRows)
	if o.Spread.Key != "" {
		if sc.key = s.Index(o.Spread.Key); sc.key < 0 {
			return nil, fmt.Errorf("%w: the shard key %q is no column; %s", ErrOptions, o.Spread.Key, schema.Suggest(o.Spread.Key, s.Names()))
		}
		sc.counts = make([]uint64, o.Spread.Elements)
	}
	if o.Spread.Kind != cluster.Block {
		sc.heaps = make([]uint64, o.Spread.Elements)
	}
	return sc, nil
}

// keyOf is the bytes of the row's shard key.
func (sc *recordScan) keyOf(record, heap []byte) []byte {
	field := sc.schema.Fields[sc.key]
	at := sc.layout.Offsets[sc.key]
	if field.Type == schema.Str {
		from := binary.LittleEndian.Uint32(record[at:])
		return heap[from : from+binary.LittleEndian.Uint32(record[at+4:])]
	}
	return record[at : at+field.Type.Size()]
}

// owner is where a row goes, for shardings that are no blocks.
func (sc *recordScan) owner(row uint64, record, heap []byte) uint32 {
	if sc.key >= 0 {
		return sc.spread.KeyOwner(sc.keyOf(record, heap))
	}
	e, _, _ := sc.spread.Owner(row)
	return e
}

func (sc *recordScan) add(record, heap []byte) error {
	if sc.rows >= cluster.MaxRows {
		return fmt.Errorf("%w: more than %d rows", ErrTooLarge, uint64(cluster.MaxRows))
	}
	if sc.heaps == nil {
		if len(sc.strs) > 0 {
			sc.marks.add(uint64(len(heap)))
		}
	} else if sc.key >= 0 || len(sc.strs) > 0 {
		e := sc.owner(sc.rows, record, heap)
		sc.heaps[e] += uint64(len(heap))
		if sc.counts != nil {
			sc.counts[e]++
		}
	}
	sc.rows++
	return nil
}

// plan computes the shards.
func (sc *recordScan) plan(in Input) (*Plan, error) {
	s := sc.o.sharding(sc.rows)
	heaps := sc.heaps
	switch {
	case sc.counts != nil:
		s = cluster.KeyedOf(sc.o.Spread.Key, sc.counts)
	case heaps == nil:
		s, heaps = sc.marks.split(s, len(sc.strs) > 0)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{Kind: cluster.Records, Schema: schema.Schema{Fields: sc.schema.Fields}, Sharding: s, Rows: sc.rows, Bad: sc.bad}
	for e := range s.Elements {
		_, n := s.ElementRows(e)
		sizes := []uint64{n * uint64(sc.layout.Size)}
		if len(sc.strs) == 0 {
			_, file := column.Places(sizes)
			sizes = append(sizes, part.FixedDirectoryBytes(n), file)
		} else {
			if heaps[e] > maxHeapBytes {
				return nil, fmt.Errorf("%w: element %d would hold %d bytes of text; rows refer to it with 32 bits, so spread the rows over more elements", ErrTooLarge, e, heaps[e])
			}
			sizes = append(sizes, heaps[e])
		}
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
	rows, pass, err := openRows(ctx, in, sc.o, PhaseFill)
	if err != nil {
		return err
	}
	defer pass.stream.Close()
	var writers [][]*windowWriter
	windows := 1 // that are written here: the node writes what is around them
	if len(sc.strs) > 0 {
		windows = 2
	}
	buffer := bufferFor(len(p.Sizes) * windows)
	for e, sizes := range p.Sizes {
		writers = append(writers, nil)
		for w, n := range sizes[:windows] {
			writers[e] = append(writers[e], newWindowWriter(sink, uint32(e), w, n, buffer))
		}
	}
	row, bad := uint64(0), BadLines{}
	err = rows.each(in, sc.o.SkipBad, &bad, func(record, heap []byte) error {
		if row == p.Rows {
			return fmt.Errorf("%w: %s has more than %d rows", ErrChanged, in.Name(), p.Rows)
		}
		var e uint32
		if sc.key >= 0 {
			e = sc.spread.KeyOwner(sc.keyOf(record, heap))
		} else {
			e, _, _ = p.Sharding.Owner(row)
		}
		row++
		w := writers[e]
		if len(sc.strs) > 0 {
			for _, at := range sc.strs {
				offset := binary.LittleEndian.Uint32(record[at:])
				binary.LittleEndian.PutUint32(record[at:], offset+uint32(w[cluster.HeapWindow].done))
			}
			if err := w[cluster.HeapWindow].write(ctx, heap); err != nil {
				return err
			}
		}
		return w[cluster.RowsWindow].write(ctx, record)
	})
	if err != nil {
		return err
	}
	for _, ws := range writers {
		for _, w := range ws {
			if err := w.finish(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordRows reads the rows of one pass.
type recordRows struct {
	rowReader
	schema *schema.Schema
}

// openRows starts a pass over the input with the reader for its format.
func openRows(ctx context.Context, in Input, o *Options, phase Phase) (*recordRows, *reading, error) {
	pass, err := read(ctx, in, o, phase, 0, in.Size())
	if err != nil {
		return nil, nil, err
	}
	r := &recordRows{schema: o.Schema}
	switch o.Format {
	case RawFile:
		r.rowReader, err = newRawRows(in.Name(), bufio.NewReaderSize(pass.tracked, readBytes), o.Schema)
	case NDJSON:
		r.rowReader, err = newNDJSONRows(newLineReader(in.Name(), pass.tracked, o.LineBytes), o)
	default:
		var rows *csvRows
		if rows, err = newCSVRows(newLineReader(in.Name(), pass.tracked, o.LineBytes), o); err == nil {
			r.rowReader, r.schema = rows, rows.schema
		}
	}
	if err != nil {
		pass.stream.Close()
		return nil, nil, failed(in, err)
	}
	return r, pass, nil
}

// each calls row for every row, and leaves out bad ones as far as allowed.
func (r *recordRows) each(in Input, allowed int64, bad *BadLines, row func(record, heap []byte) error) error {
	record := make([]byte, r.schema.RecordBytes())
	var heap []byte
	for {
		var err error
		heap, err = r.next(record, heap[:0])
		if err == io.EOF {
			return nil
		}
		if line := (*LineError)(nil); errors.As(err, &line) {
			if err = bad.note(line, allowed); err == nil {
				continue
			}
			return err
		}
		if err != nil {
			return failed(in, err)
		}
		if err := row(record, heap); err != nil {
			return err
		}
	}
}

// maxMarks bounds heapMarks' memory: 512 KiB.
const maxMarks = 1 << 16

// heapMarks remembers how much text all rows before certain rows have. With
// few rows it knows each; with many every stride-th, and blocks then begin at those.
type heapMarks struct {
	stride uint64
	before []uint64 // text before row i*stride
	rows   uint64
	total  uint64
}

func (m *heapMarks) add(text uint64) {
	if m.stride == 0 {
		m.stride = 1
	}
	if m.rows%m.stride == 0 {
		if len(m.before) == maxMarks {
			for i := range maxMarks / 2 {
				m.before[i] = m.before[2*i]
			}
			m.before = m.before[:maxMarks/2]
			m.stride *= 2
		}
		if m.rows%m.stride == 0 {
			m.before = append(m.before, m.total)
		}
	}
	m.rows++
	m.total += text
}

// split cuts the rows into blocks whose text is known.
func (m *heapMarks) split(even cluster.Sharding, text bool) (cluster.Sharding, []uint64) {
	if !text {
		return even, nil
	}
	counts, heaps := make([]uint64, even.Elements), make([]uint64, even.Elements)
	s, row, before := even, uint64(0), uint64(0)
	for e := range even.Elements {
		first, n := even.ElementRows(e)
		end, endBefore := m.rows, m.total
		if first+n < m.rows {
			mark := (first + n) / m.stride
			end, endBefore = mark*m.stride, m.before[mark]
		}
		counts[e], heaps[e] = end-row, endBefore-before
		row, before = end, endBefore
	}
	if m.stride > 1 {
		s = cluster.BlockOf(counts)
	}
	return s, heaps
}
