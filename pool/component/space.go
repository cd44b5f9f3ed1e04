package component

import (
	"slices"
	"sort"

	"github.com/wherry-fabric/wherry/pool"
)

// space is which bytes of a region no item has: runs by offset, none next to another.
type space struct{ free []pool.Range }

// round makes a size a multiple of pool.ItemAlign.
func round(n uint64) uint64 { return (n + pool.ItemAlign - 1) &^ (pool.ItemAlign - 1) }

// alloc takes size bytes, a multiple of pool.ItemAlign: the first run that has them. border, if it is not nil, says where the extent that has an
// offset ends: what is taken crosses none.
func (s *space) alloc(size uint64, border func(off uint64) uint64) (off uint64, ok bool) {
	for _, g := range s.free {
		for off = g.Off; g.Off+g.Size-off >= size; {
			if border == nil {
				return off, s.take(off, size)
			}
			end := border(off)
			if end-off >= size {
				return off, s.take(off, size)
			}
			if end >= g.Off+g.Size {
				break
			}
			off = end
		}
	}
	return 0, false
}

// take takes these bytes, if all of them are free.
func (s *space) take(off, size uint64) bool {
	i := sort.Search(len(s.free), func(i int) bool { return s.free[i].Off+s.free[i].Size > off })
	if i == len(s.free) || s.free[i].Off > off || s.free[i].Off+s.free[i].Size-off < size {
		return false
	}
	g := s.free[i]
	var left []pool.Range
	if off > g.Off {
		left = append(left, pool.Range{Off: g.Off, Size: off - g.Off})
	}
	if end := g.Off + g.Size; end > off+size {
		left = append(left, pool.Range{Off: off + size, Size: end - off - size})
	}
	s.free = slices.Replace(s.free, i, i+1, left...)
	return true
}

// give gives bytes back that are not free.
func (s *space) give(off, size uint64) {
	i := sort.Search(len(s.free), func(i int) bool { return s.free[i].Off > off })
	g, from, to := pool.Range{Off: off, Size: size}, i, i
	if i > 0 && s.free[i-1].Off+s.free[i-1].Size == off {
		from--
		g = pool.Range{Off: s.free[from].Off, Size: s.free[from].Size + size}
	}
	if i < len(s.free) && s.free[i].Off == off+size {
		to++
		g.Size += s.free[i].Size
	}
	s.free = slices.Replace(s.free, from, to, g)
}

// cut makes bytes of a range that are free no longer exist.
func (s *space) cut(off, end uint64) {
	var left []pool.Range
	for _, g := range s.free {
		if g.Off < off {
			left = append(left, pool.Range{Off: g.Off, Size: min(g.Off+g.Size, off) - g.Off})
		}
		if g.Off+g.Size > end {
			from := max(g.Off, end)
			left = append(left, pool.Range{Off: from, Size: g.Off + g.Size - from})
		}
	}
	s.free = left
}

// all is how many bytes are free, and in the largest run.
func (s *space) all() (sum, largest uint64) {
	for _, g := range s.free {
		sum, largest = sum+g.Size, max(largest, g.Size)
	}
	return sum, largest
}
