package component

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/pool"
)

// TestSpace: whatever is taken, given back and cut off, no byte is given out twice and none is forgotten.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const unit = pool.ItemAlign
		size := uint64(100 * unit)
		s := space{free: []pool.Range{{Off: 0, Size: size}}}
		held := map[uint64]uint64{}
		isFree := func(off uint64) bool {
			for o, n := range held {
				if off >= o && off < o+n {
					return false
				}
			}
			return off < size
		}
		border := func(off uint64) uint64 { return (off/(16*unit) + 1) * 16 * unit }
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3, 4:
				n := rapid.Uint64Range(1, 20).Draw(t, "units") * unit
				solid := rapid.Bool().Draw(t, "solid")
				b := border
				if !solid {
					b = nil
				}
				off, ok := s.alloc(n, b)
				if !ok {
					continue
				}
				for at := off; at < off+n; at += unit {
					if !isFree(at) {
						t.Fatalf("%d of [%d, +%d) is another's, or there is no such byte", at, off, n)
					}
				}
				if solid && off/(16*unit) != (off+n-1)/(16*unit) {
					t.Fatalf("[%d, +%d) crosses a border", off, n)
				}
				held[off] = n
			case 5, 6, 7:
				for off, n := range held {
					s.give(off, n)
					delete(held, off)
					break
				}
			case 8: // an item grows where it lies
				for off, n := range held {
					if s.take(off+n, unit) {
						if !isFree(off + n) {
							t.Fatalf("%d was another's", off+n)
						}
						held[off] = n + unit
					} else if isFree(off + n) {
						t.Fatalf("%d is free and was not given", off+n)
					}
					break
				}
			case 9:
				last := uint64(0)
				for off, n := range held {
					last = max(last, off+n)
				}
				if end := rapid.Uint64Range(last/unit, 100).Draw(t, "end") * unit; end < size {
					s.cut(end, size)
					size = end
				}
			}
			checkSpace(t, &s, held, size)
		}
	})
}

// checkSpace reports a byte that is in no run and no item's, or in two.
func checkSpace(t *rapid.T, s *space, held map[uint64]uint64, size uint64) {
	sum, used := uint64(0), uint64(0)
	for i, g := range s.free {
		if sum += g.Size; g.Size == 0 || i > 0 && s.free[i-1].Off+s.free[i-1].Size >= g.Off {
			t.Fatalf("runs %+v", s.free)
		}
	}
	for _, n := range held {
		used += n
	}
	if sum+used != size {
		t.Fatalf("%d free and %d used of %d", sum, used, size)
	}
}
