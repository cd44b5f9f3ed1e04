package part

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

const (
	// ChunkRows is the most rows of a chunk: a function's vectors fit the processor's cache many times over, and a chunk's
	// overhead (some hundred bytes a column) is nothing.
	ChunkRows = 128 << 10
	// MaxTextBytes bounds the text of one column in one chunk: offsets have 32 bits, and a chunk is read as a whole.
	MaxTextBytes = 128 << 20
)

// ErrText is that a column has more text than a chunk may have: fewer rows have less.
var ErrText = fmt.Errorf("%w: a chunk has more than %d bytes of text in a column", ErrLimit, MaxTextBytes)

// Builder builds one column of one chunk. Beneath missing values it writes zeros.
type Builder struct {
	typ   column.Type
	size  int // of a value; 0: bits, or text
	most  int // values that there is room for
	rows  int
	nulls int

	valid   []byte // a bit for each value; nil while none is missing
	fixed   []byte // values of fixed width, or bits of bool
	offsets []byte // i32, one more than values
	text    []byte
	kids    []*Builder // of a list its values, of a struct its fields

	left *uint64 // memory for copies of arrays (spend)
}

// NewBuilder makes room for so many rows.
func NewBuilder(t column.Type, rows int) *Builder {
	b := &Builder{typ: t, size: t.Size(), most: rows}
	switch {
	case t.Varies():
		b.offsets = make([]byte, 4, 4*(rows+1))
	case t.Nested():
		b.within(rows)
	case t.ID == column.Bool:
		b.fixed = make([]byte, 0, (rows+7)/8)
	default:
		b.fixed = make([]byte, 0, rows*b.size)
	}
	return b
}

// Reserve makes room for so much text.
func (b *Builder) Reserve(text int) {
	if b.typ.Varies() {
		b.text = slices.Grow(b.text, text)
	}
}

// Rows is how many values there are.
func (b *Builder) Rows() int { return b.rows }

// TextBytes is how much text there is, or what lists and structs have within them.
func (b *Builder) TextBytes() int { return len(b.text) + b.bytesWithin() }

// Cut drops the values behind the first rows.
func (b *Builder) Cut(rows int) {
	if b.kids != nil && rows <= b.rows {
		b.cutWithin(rows)
	}
	if rows >= b.rows {
		return
	}
	if b.valid != nil {
		for i := rows; i < b.rows; i++ {
			if b.valid[i/8]&(1<<(i%8)) == 0 {
				b.nulls--
			}
		}
		b.valid = cutBits(b.valid, rows)
	}
	switch {
	case b.typ.Varies():
		b.offsets = b.offsets[:4*(rows+1)]
		b.text = b.text[:binary.LittleEndian.Uint32(b.offsets[4*rows:])]
	case b.kids != nil:
	case b.typ.ID == column.Bool:
		b.fixed = cutBits(b.fixed, rows)
	default:
		b.fixed = b.fixed[:rows*b.size]
	}
	b.rows = rows
}

// cutBits keeps the first n bits; those behind them in the last byte are zero.
func cutBits(b []byte, n int) []byte {
	b = b[:(n+7)/8]
	if n%8 != 0 {
		b[n/8] &= 1<<(n%8) - 1
	}
	return b
}

// there notes that the value that comes next is there.
func (b *Builder) there() {
	if b.valid == nil {
		b.rows++
		return
	}
	b.mark(true)
}

// mark notes whether the value that comes next is there.
func (b *Builder) mark(there bool) {
	if !there && b.valid == nil {
		b.valid = make([]byte, (b.rows+8)/8, (max(b.rows+1, b.most)+7)/8)
		for i := range b.rows {
			b.valid[i/8] |= 1 << (i % 8)
		}
	}
	if b.valid != nil {
		if b.rows/8 >= len(b.valid) {
			b.valid = append(b.valid, 0)
		}
		if there {
			b.valid[b.rows/8] |= 1 << (b.rows % 8)
		}
	}
	if !there {
		b.nulls++
	}
	b.rows++
}

// Null adds a missing value.
func (b *Builder) Null() {
	switch {
	case b.typ.Varies():
		b.offsets = append(b.offsets, b.offsets[len(b.offsets)-4:]...)
	case b.kids != nil:
		b.nullWithin()
	case b.typ.ID == column.Bool:
		if b.rows%8 == 0 {
			b.fixed = append(b.fixed, 0)
		}
	default:
		b.fixed = append(b.fixed, make([]byte, b.size)...)
	}
	b.mark(false)
}

// Bits adds a number of at most 8 bytes: its low bits, as the type has them.
func (b *Builder) Bits(v uint64) {
	le := binary.LittleEndian
	switch b.size {
	case 1:
		b.fixed = append(b.fixed, byte(v))
	case 2:
		b.fixed = le.AppendUint16(b.fixed, uint16(v))
	case 4:
		b.fixed = le.AppendUint32(b.fixed, uint32(v))
	default:
		b.fixed = le.AppendUint64(b.fixed, v)
	}
	b.there()
}

// Float adds a number of type f32 or f64.
func (b *Builder) Float(v float64) {
	if b.size == 4 {
		b.Bits(uint64(math.Float32bits(float32(v))))
		return
	}
	b.Bits(math.Float64bits(v))
}

// Bound adds a bound of Stats.
func (b *Builder) Bound(v uint64) {
	if b.typ.ID == column.F32 {
		b.Float(math.Float64frombits(v))
		return
	}
	b.Bits(v)
}

// Bool adds a truth value.
func (b *Builder) Bool(v bool) {
	if b.rows%8 == 0 {
		b.fixed = append(b.fixed, 0)
	}
	if v {
		b.fixed[b.rows/8] |= 1 << (b.rows % 8)
	}
	b.there()
}

// Bytes adds text, or a value of fixed width as it lies in memory.
func (b *Builder) Bytes(v []byte) error {
	if !b.typ.Varies() {
		if len(v) != b.size {
			return fmt.Errorf("%w: a value of %d bytes in a column of type %v", ErrPart, len(v), b.typ)
		}
		b.fixed = append(b.fixed, v...)
		b.there()
		return nil
	}
	if len(v) > MaxTextBytes {
		return fmt.Errorf("%w: a value of %d MiB, at most %d MiB are loaded: split it into several, or leave its column out", ErrLimit, (len(v)+1<<20-1)>>20, MaxTextBytes>>20)
	}
	if len(b.text)+len(v) > MaxTextBytes {
		return ErrText
	}
	b.text = append(b.text, v...)
	b.offsets = binary.LittleEndian.AppendUint32(b.offsets, uint32(len(b.text)))
	b.there()
	return nil
}

// Finish makes the array; the builder is used up.
func (b *Builder) Finish() arrow.Array {
	buffers := []*memory.Buffer{nil, nil}
	if b.nulls > 0 {
		buffers[0] = memory.NewBufferBytes(b.valid)
	}
	if b.kids != nil {
		return b.finishWithin(buffers[0])
	}
	if b.typ.Varies() {
		buffers[1] = memory.NewBufferBytes(b.offsets)
		buffers = append(buffers, memory.NewBufferBytes(b.text))
	} else {
		buffers[1] = memory.NewBufferBytes(b.fixed)
	}
	data := array.NewData(ArrowType(b.typ), b.rows, buffers, nil, b.nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
