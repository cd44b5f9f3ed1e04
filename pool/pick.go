package pool

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Pick names elements of a region, all of one size, by number: element i lies at i × Size. Either Index has the numbers, or they are First,
// First+Stride, … It is what a component is asked for.
type Pick struct {
	Region        uint16
	Item          uint32 // of the region; 0: its own bytes are meant
	Epoch         uint64
	Size          int // of one element
	Count         int
	First, Stride uint64
	Index         []uint64 // nil: First and Stride count
}

const (
	pickHeadBytes = 48 // 16 bits each of region and kind, 32 of size; 64 each of epoch, count, First, Stride and item
	pickStrided   = 0
	pickIndexed   = 1
)

// number is which element is the i-th.
func (p *Pick) number(i int) uint64 {
	if p.Index != nil {
		return p.Index[i]
	}
	return p.First + uint64(i)*p.Stride
}

// Off is where in a region of size bytes the i-th element lies; ok is false if it leaves the region.
func (p *Pick) Off(i int, size uint64) (off uint64, ok bool) {
	n, each := p.number(i), uint64(p.Size)
	return n * each, size >= each && n <= (size-each)/each
}

// wraps reports whether the numbers of a strided pick go round.
func (p *Pick) wraps() bool {
	if p.Index != nil || p.Count == 0 || p.Stride == 0 {
		return false
	}
	return uint64(p.Count-1) > (^uint64(0)-p.First)/p.Stride
}

// Append appends the pick's wire form, little-endian.
func (p *Pick) Append(b []byte) []byte {
	kind := uint16(pickStrided)
	if p.Index != nil {
		kind = pickIndexed
	}
	b = binary.LittleEndian.AppendUint16(b, p.Region)
	b = binary.LittleEndian.AppendUint16(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Size))
	for _, v := range [...]uint64{p.Epoch, uint64(p.Count), p.First, p.Stride, uint64(p.Item)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, n := range p.Index {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// DecodePick reads a pick, and returns what follows it.
func DecodePick(b []byte) (p Pick, rest []byte, err error) {
	if len(b) < pickHeadBytes {
		return p, nil, fmt.Errorf("%w: %d bytes name no elements", ErrSpec, len(b))
	}
	kind, size, count := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[16:])
	p = Pick{Region: binary.LittleEndian.Uint16(b), Epoch: binary.LittleEndian.Uint64(b[8:]), First: binary.LittleEndian.Uint64(b[24:]), Stride: binary.LittleEndian.Uint64(b[32:])}
	rest = b[pickHeadBytes:]
	item := binary.LittleEndian.Uint64(b[40:])
	if item > math.MaxUint32 {
		return p, nil, fmt.Errorf("%w: there is no item number %d", ErrSpec, item)
	}
	p.Item = uint32(item)
	if kind > pickIndexed || size == 0 || count > MaxPicked || size > MaxPickedBytes || uint64(size)*count > MaxPickedBytes {
		return p, nil, fmt.Errorf("%w: %d elements of %d bytes of kind %d: at most %d of %d bytes together", ErrSpec, count, size, kind, MaxPicked, MaxPickedBytes)
	}
	p.Size, p.Count = int(size), int(count)
	if kind == pickIndexed {
		if len(rest) < 8*p.Count {
			return p, nil, fmt.Errorf("%w: %d bytes for the numbers of %d elements", ErrSpec, len(rest), p.Count)
		}
		p.Index = make([]uint64, p.Count)
		for i := range p.Index {
			p.Index[i] = binary.LittleEndian.Uint64(rest[8*i:])
		}
		rest = rest[8*p.Count:]
	}
	if p.wraps() {
		return p, nil, fmt.Errorf("%w: %d elements from number %d in steps of %d", ErrRange, p.Count, p.First, p.Stride)
	}
	return p, rest, nil
}
