package part

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

// The directory of a part, as functions read it; docs/columns.md describes it, and inject/xrdma/src/columns.h has it in C.
const (
	directoryMagic  = 0x31445057 // "WPD1"
	headBytes       = 32
	columnBytes     = 32
	chunkBytes      = 16
	chunkEntryBytes = 56
	// flagBounds says that the least and the greatest value are given.
	flagBounds = 1
)

// DirectoryBytes is how long a part's directory is.
func DirectoryBytes(columns int, chunks uint32) uint64 {
	return headBytes + columnBytes*uint64(columns) + uint64(chunks)*(chunkBytes+chunkEntryBytes*uint64(columns))
}

// Stored is how a column's values lie in memory, by the numbers of wherry.h's types.
func Stored(t column.Type) uint32 {
	switch t.ID {
	case column.Date32, column.Time32:
		return uint32(column.I32)
	case column.Time64, column.Timestamp, column.Duration:
		return uint32(column.I64)
	case column.UTF8, column.Binary:
		return 12
	case column.Bool:
		return 11
	case column.List:
		return 13
	case column.Struct:
		return 14
	case column.Decimal128, column.Bytes:
		return 65536 + uint32(t.Size())
	}
	return stored[t.ID]
}

// stored are the types whose values lie as their names say.
var stored = map[column.ID]uint32{column.I8: 1, column.I16: 2, column.I32: 3, column.I64: 4, column.U8: 5, column.U16: 6, column.U32: 7, column.U64: 8,
	column.F32: 9, column.F64: 10}

// Directory writes the part's directory.
func (p *Part) Directory() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, DirectoryBytes(len(p.Columns), uint32(p.Chunks())))
	b = le.AppendUint32(b, directoryMagic)
	b = le.AppendUint32(b, uint32(len(p.Columns)))
	b = le.AppendUint32(b, uint32(p.Chunks()))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, p.Rows)
	b = le.AppendUint64(b, 0)
	for c := range p.Columns {
		b = p.appendColumn(b, c)
	}
	return append(b, p.entries...)
}

// appendColumn writes a column's type and dictionary.
func (p *Part) appendColumn(b []byte, c int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, Stored(p.Columns[c].Type))
	d, ok := p.schema.Field(c).Type.(*arrow.DictionaryType)
	if !ok || p.words[c] == nil {
		return append(b, make([]byte, columnBytes-4)...)
	}
	b = le.AppendUint32(b, uint32(d.IndexType.(arrow.FixedWidthDataType).Bytes()))
	b = le.AppendUint64(b, uint64(p.words[c].Len()))
	b = le.AppendUint64(b, p.places[3*c+1].at)
	return le.AppendUint64(b, p.places[3*c+2].at)
}

// appendEntry writes where one column of a chunk lies.
func appendEntry(b []byte, a arrow.Array, places []span) []byte {
	least, most, ok := bounds(a)
	flags := uint64(0)
	if ok {
		flags = flagBounds
	}
	for _, v := range [...]uint64{places[0].at, places[1].at, places[2].at, uint64(a.NullN()), flags, least, most} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// bounds are the least and the greatest of the values that are there, as 64 bits: integers with their sign, floats as f64.
func bounds(a arrow.Array) (least, most uint64, ok bool) {
	switch a := a.(type) {
	case *array.Int8:
		return signed(a, a.Int8Values())
	case *array.Int16:
		return signed(a, a.Int16Values())
	case *array.Int32:
		return signed(a, a.Int32Values())
	case *array.Int64:
		return signed(a, a.Int64Values())
	case *array.Date32:
		return signed(a, a.Date32Values())
	case *array.Time32:
		return signed(a, a.Time32Values())
	case *array.Time64:
		return signed(a, a.Time64Values())
	case *array.Timestamp:
		return signed(a, a.TimestampValues())
	case *array.Duration:
		return signed(a, a.DurationValues())
	case *array.Uint8:
		return unsigned(a, a.Uint8Values())
	case *array.Uint16:
		return unsigned(a, a.Uint16Values())
	case *array.Uint32:
		return unsigned(a, a.Uint32Values())
	case *array.Uint64:
		return unsigned(a, a.Uint64Values())
	case *array.Float32:
		return floating(a, a.Float32Values())
	case *array.Float64:
		return floating(a, a.Float64Values())
	}
	return 0, 0, false
}

func signed[T ~int8 | ~int16 | ~int32 | ~int64](a arrow.Array, v []T) (uint64, uint64, bool) {
	least, most, ok := extremes(a, v)
	return uint64(int64(least)), uint64(int64(most)), ok
}

func unsigned[T ~uint8 | ~uint16 | ~uint32 | ~uint64](a arrow.Array, v []T) (uint64, uint64, bool) {
	least, most, ok := extremes(a, v)
	return uint64(least), uint64(most), ok
}

func floating[T ~float32 | ~float64](a arrow.Array, v []T) (uint64, uint64, bool) {
	for _, x := range v {
		if math.IsNaN(float64(x)) { // it is in no order with others
			return 0, 0, false
		}
	}
	least, most, ok := extremes(a, v)
	return math.Float64bits(float64(least)), math.Float64bits(float64(most)), ok
}

func extremes[T ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64](a arrow.Array, v []T) (least, most T, ok bool) {
	missing := a.NullN() > 0
	for i, x := range v {
		switch {
		case missing && a.IsNull(i):
		case !ok:
			least, most, ok = x, x, true
		default:
			least, most = min(least, x), max(most, x)
		}
	}
	return least, most, ok
}

// Range is some of a part's rows.
type Range struct{ First, Rows uint64 }

// ChunksOf reads from a directory which rows each chunk has.
func ChunksOf(dir []byte) ([]Range, error) {
	le := binary.LittleEndian
	if len(dir) < headBytes || le.Uint32(dir) != directoryMagic {
		return nil, fmt.Errorf("%w: these %d bytes are no part's directory", ErrPart, len(dir))
	}
	columns, chunks := le.Uint32(dir[4:]), le.Uint32(dir[8:])
	if columns > column.MaxColumns || DirectoryBytes(int(columns), chunks) != uint64(len(dir)) {
		return nil, fmt.Errorf("%w: a directory of %d columns and %d chunks has %d bytes", ErrPart, columns, chunks, len(dir))
	}
	at, step := headBytes+columnBytes*int(columns), chunkBytes+chunkEntryBytes*int(columns)
	out := make([]Range, chunks)
	next := uint64(0)
	for i := range out {
		out[i] = Range{le.Uint64(dir[at+i*step:]), le.Uint64(dir[at+i*step+8:])}
		if out[i].First != next || out[i].Rows == 0 || out[i].Rows > ChunkRows {
			return nil, fmt.Errorf("%w: chunk %d has %d rows from %d", ErrPart, i, out[i].Rows, out[i].First)
		}
		next += out[i].Rows
	}
	return out, nil
}
