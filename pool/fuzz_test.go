package pool

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzDecodePick: what a component is asked for is refused or makes sense, and is what a client would write.
func FuzzDecodePick(f *testing.F) {
	for _, p := range []Pick{{Region: 1, Epoch: 2, Size: 8, Count: 3, First: 4, Stride: 5}, {Region: 65535, Size: 1, Count: 2, Index: []uint64{7, 1 << 63}},
		{Size: 1 << 20, Count: 1, Index: []uint64{0}}, {Size: 4, Count: 0, Index: []uint64{}}, {Size: 8, Count: 3, First: 1, Stride: 1 << 63}} {
		f.Add(p.Append(nil))
		f.Add(append(p.Append(nil), "data"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, rest, err := DecodePick(b)
		if err != nil {
			if !errors.Is(err, ErrSpec) && !errors.Is(err, ErrRange) {
				t.Fatalf("an error that a client cannot tell: %v", err)
			}
			return
		}
		if p.Size <= 0 || p.Count < 0 || p.Count > MaxPicked || p.Size*p.Count > MaxPickedBytes || p.Index != nil && len(p.Index) != p.Count || p.wraps() {
			t.Fatalf("%+v", p)
		}
		if again := append(p.Append(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		const size = 1000
		for i := range p.Count {
			if off, ok := p.Off(i, size); ok && (off > size || uint64(p.Size) > size-off) {
				t.Fatalf("element %d of %+v lies at %d", i, p, off)
			}
		}
	})
}
