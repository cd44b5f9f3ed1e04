package dataset

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

// packedRows makes a record of each row of a file that is read as columns.
type packedRows struct {
	ctx    context.Context
	in     Input
	rows   columnar
	fields []packedField
	zero   bool // missing values are

	chunk    []arrow.Array
	row, end int
	before   int64 // rows in front of the chunk
}

// packedField is where a field's values come from, and where they go.
type packedField struct {
	column.Column     // of the file
	from          int // its number
	at            uint32
	size          int
	number        *column.Type // nil: the value as it lies in memory; else a whole number of this type
	values        []byte       // of the chunk
}

// openPacked starts a pass over a file. Text is read as the schema has it; the others have the columns that it names.
func openPacked(ctx context.Context, in Input, o *Options, phase Phase, bad *BadLines) (*packedRows, error) {
	p := &packedRows{ctx: ctx, in: in, zero: o.EmptyIsZero}
	var err error
	switch o.Format {
	case CSV:
		p.rows, err = (&csvFormat{o: o, bad: bad}).open(ctx, in, phase, o.fields)
	case NDJSON:
		p.rows, err = (&ndjsonFormat{o: o, bad: bad, met: map[string]bool{}}).open(ctx, in, phase, o.fields)
	case Parquet:
		p.rows, err = opened(parquetFormat{o}.start(in, phase))
	case Arrow:
		p.rows, err = opened(arrowFormat{o}.start(ctx, in, phase))
	}
	if err != nil {
		return nil, err
	}
	if err := p.choose(o.Schema, o.fields); err != nil {
		p.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Name(), err)
	}
	return p, nil
}

// opened keeps a nil pointer from becoming an interface that is none.
func opened[R columnar](r R, err error) (columnar, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (p *packedRows) Close() {
	releaseAll(p.chunk)
	p.rows.Close()
}

// choose finds the column of each field.
func (p *packedRows) choose(s *schema.Schema, fields column.Schema) error {
	l, err := s.Layout()
	if err != nil {
		return err
	}
	has := p.rows.Columns()
	for i, f := range fields {
		at := has.Index(f.Name)
		if at < 0 {
			return fmt.Errorf("it has no column %q; %s", f.Name, schema.Suggest(f.Name, has.Names()))
		}
		out := packedField{Column: has[at], from: at, at: l.Offsets[i], size: int(s.Fields[i].Type.Size())}
		switch t := has[at].Type; {
		case t == f.Type, t.ID == column.Bytes && f.Type.ID == column.Bytes && t.Width == f.Type.Width: // of ip and uuid the bytes
		case isInteger(t) && isInteger(f.Type):
			out.number = &fields[i].Type
		default:
			return fmt.Errorf("column %q is %v, and the schema (--schema) has it as %v: name its type, or load columns, without --packed and --schema", f.Name, t, f.Type)
		}
		p.fields = append(p.fields, out)
	}
	return nil
}

// next fills a record in; io.EOF comes after the last.
func (p *packedRows) next(record []byte) error {
	for p.row == p.end {
		if err := p.more(); err != nil {
			return err
		}
	}
	row := p.row
	p.row++
	for i := range p.fields {
		f := &p.fields[i]
		to, a := record[f.at:int(f.at)+f.size], p.chunk[f.from]
		switch {
		case a.NullN() > 0 && a.IsNull(row):
			if !p.zero {
				return p.fail(f, row, "a value is missing, and rows of fixed width have them all: missing ones can be loaded as zero (--empty-is-zero)")
			}
			clear(to)
		case f.number != nil:
			v := f.integer(row)
			if !fitsInteger(v, f.Type, *f.number) {
				return p.fail(f, row, "%s does not fit %v: give a wider type (--schema)", a.ValueStr(row), *f.number)
			}
			putInteger(to, v)
		case f.Type.ID == column.Bool:
			if to[0] = 0; a.(*array.Boolean).Value(row) {
				to[0] = 1
			}
		default:
			copy(to, f.values[row*f.size:])
		}
	}
	return nil
}

// more reads the next chunk.
func (p *packedRows) more() error {
	releaseAll(p.chunk)
	p.chunk = nil
	p.before += int64(p.end)
	p.row, p.end = 0, 0
	chunk, err := p.rows.Next(p.ctx)
	if err != nil {
		if err == io.EOF {
			return err
		}
		return failed(p.in, err)
	}
	p.chunk, p.end = chunk, chunk[0].Len()
	for i := range p.fields {
		f := &p.fields[i]
		if data := chunk[f.from].Data(); f.Type.ID != column.Bool && data.Len() > 0 {
			f.values = data.Buffers()[1].Bytes()[data.Offset()*f.Type.Size():]
		}
	}
	return nil
}

// fail is an error about a row of a Parquet or Arrow file. Of text whatever is wrong was said with its line.
func (p *packedRows) fail(f *packedField, row int, format string, args ...any) error {
	at := fmt.Sprintf("row %d of the file", p.before+int64(row))
	if placed, ok := p.rows.(interface{ where() string }); ok {
		at = placed.where() + ", " + at
	}
	return fmt.Errorf("%w: %s: %s, column %q: %w", ErrInput, p.in.Name(), at, f.Name, fmt.Errorf(format, args...))
}

// integer is a whole number of the file, widened to 64 bits.
func (f *packedField) integer(row int) uint64 {
	signed := f.Type.ID <= column.I64
	switch v := f.values[row*f.Type.Size():]; f.Type.Size() {
	case 1:
		return widened(uint64(v[0]), 8, signed)
	case 2:
		return widened(uint64(binary.LittleEndian.Uint16(v)), 16, signed)
	case 4:
		return widened(uint64(binary.LittleEndian.Uint32(v)), 32, signed)
	default:
		return binary.LittleEndian.Uint64(v)
	}
}

func widened(v uint64, bits int, signed bool) uint64 {
	if signed {
		return uint64(int64(v<<(64-bits)) >> (64 - bits))
	}
	return v
}

// fitsInteger reports whether a number of one type, widened, is one of another.
func fitsInteger(v uint64, from, to column.Type) bool {
	bits := 8 * to.Size()
	negative := from.ID <= column.I64 && int64(v) < 0
	switch {
	case to.ID > column.I64:
		return !negative && v <= math.MaxUint64>>(64-bits)
	case negative:
		return int64(v) >= math.MinInt64>>(64-bits)
	}
	return v <= math.MaxInt64>>(64-bits)
}

// putInteger stores as many low bytes as there is room for.
func putInteger(to []byte, v uint64) {
	for i := range to {
		to[i] = byte(v >> (8 * i))
	}
}
