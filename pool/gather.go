package pool

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Pick names elements of a region, all of one size, by number: element i lies at i × Size. Either Index has the numbers, or they are First,
// First+Stride, … It is what a component is asked for.
type Pick struct {
	Region        uint16
	Epoch         uint64
	Size          int // of one element
	Count         int
	First, Stride uint64
	Index         []uint64 // nil: First and Stride count
}

const (
	pickHeadBytes = 40 // 16 bits each of region and kind, 32 of size; 64 each of epoch, count, First and Stride
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
	for _, v := range [...]uint64{p.Epoch, uint64(p.Count), p.First, p.Stride} {
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

// Gather copies len(dst)/size elements of size bytes into dst: those numbered first, first+stride, … Element i lies at i × size. From where the
// region is not mapped they come with one request, not one each.
func (r *Region) Gather(ctx context.Context, dst []byte, size int, first, stride uint64) error {
	return r.each(ctx, "gather", dst, Pick{Size: size, First: first, Stride: stride})
}

// GatherIndexed is Gather of the elements that index names, one for each element of dst.
func (r *Region) GatherIndexed(ctx context.Context, dst []byte, size int, index []uint64) error {
	return r.each(ctx, "gather", dst, Pick{Size: size, Index: named(index)})
}

// Scatter copies src to elements of size bytes: those numbered first, first+stride, … Where a number occurs twice, one of its elements stays.
func (r *Region) Scatter(ctx context.Context, src []byte, size int, first, stride uint64) error {
	return r.each(ctx, "scatter", src, Pick{Size: size, First: first, Stride: stride})
}

// ScatterIndexed is Scatter to the elements that index names, one for each element of src.
func (r *Region) ScatterIndexed(ctx context.Context, src []byte, size int, index []uint64) error {
	return r.each(ctx, "scatter", src, Pick{Size: size, Index: named(index)})
}

// named makes no numbers an empty list, which is not nil.
func named(index []uint64) []uint64 {
	if index == nil {
		return []uint64{}
	}
	return index
}

// each moves elements between a buffer and the region.
func (r *Region) each(ctx context.Context, op string, buf []byte, p Pick) error {
	if p.Size <= 0 || p.Size > MaxPickedBytes || len(buf)%max(p.Size, 1) != 0 || p.Index != nil && len(p.Index) != len(buf)/p.Size {
		return r.fail(op, 0, uint64(len(buf)), fmt.Errorf("%w: a buffer of %d bytes for elements of %d bytes, at most %d, and %d numbers", ErrSpec, len(buf), p.Size, MaxPickedBytes, len(p.Index)))
	}
	p.Region, p.Epoch, p.Count = r.info.Region, r.info.Epoch, len(buf)/p.Size
	for i := range p.Count {
		if off, ok := p.Off(i, r.info.Size); !ok || p.wraps() {
			return r.fail(op, off, uint64(p.Size), fmt.Errorf("%w: element %d of %d bytes, and it has %d bytes", ErrRange, p.number(i), p.Size, r.info.Size))
		}
	}
	switch {
	case r.extents.Load() == nil:
		return r.fail(op, 0, uint64(len(buf)), ErrClosed)
	case r.mapped:
		return r.eachMapped(ctx, op, buf, &p)
	}
	step := min(MaxPickedBytes/p.Size, MaxPicked)
	for from := 0; from < p.Count; from += step {
		part := p
		part.Count = min(step, p.Count-from)
		if p.Index != nil {
			part.Index = p.Index[from : from+part.Count]
		} else {
			part.First = p.number(from)
		}
		if err := r.request(ctx, op, buf[from*p.Size:(from+part.Count)*p.Size], &part); err != nil {
			return r.fail(op, 0, uint64(len(buf)), err)
		}
	}
	return nil
}

func (r *Region) eachMapped(ctx context.Context, op string, buf []byte, p *Pick) error {
	for i := range p.Count {
		off, _ := p.Off(i, r.info.Size)
		element := buf[i*p.Size : (i+1)*p.Size]
		var err error
		if op == "gather" {
			err = r.Get(ctx, element, off)
		} else {
			err = r.Put(ctx, element, off)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// request has the component move elements.
func (r *Region) request(ctx context.Context, op string, buf []byte, p *Pick) error {
	b := p.Append(make([]byte, 0, pickHeadBytes+8*len(p.Index)+len(buf)))
	if op == "scatter" {
		_, err := r.pool.ask.Call(ctx, r.ep, CallScatter, append(b, buf...))
		return err
	}
	answer, err := r.pool.ask.Call(ctx, r.ep, CallGather, b)
	if err == nil && len(answer) != len(buf) {
		err = fmt.Errorf("%d bytes came, and %d were asked for: is it another version?", len(answer), len(buf))
	}
	copy(buf, answer)
	return err
}
