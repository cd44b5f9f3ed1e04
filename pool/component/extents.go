package component

import (
	"fmt"
	"math/bits"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

const (
	// MinExtentBytes and MaxExtentBytes bound an extent of a region that has several. One costs its holder a mapping, of which an endpoint has 1,024,
	// and the component a descriptor; and it is made and given back whole.
	MinExtentBytes = 64 << 20
	MaxExtentBytes = 1 << 30
	// fewExtents is how many a region has at most, if MaxExtentBytes allow it.
	fewExtents = 16
)

// Plan cuts a region into extents: their sizes, multiples of fabric.SegmentAlign.
func Plan(size uint64) ([]uint64, error) {
	if size == 0 || size > pool.MaxRegionBytes {
		return nil, fmt.Errorf("%w: %d bytes: 1 to %d are possible", pool.ErrSpec, size, uint64(pool.MaxRegionBytes))
	}
	size = (size + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1)
	each := uint64(1) << bits.Len64((size-1)/fewExtents)
	each = min(max(each, MinExtentBytes), MaxExtentBytes)
	if n := (size + each - 1) / each; n > pool.MaxExtents {
		return nil, fmt.Errorf("%w: %s are more than a region can have, %s (%d extents of %s): make several regions",
			pool.ErrSpec, SizeText(int64(size)), SizeText(pool.MaxExtents*MaxExtentBytes), pool.MaxExtents, SizeText(MaxExtentBytes))
	}
	var sizes []uint64
	for ; size > 0; size -= min(size, each) {
		sizes = append(sizes, min(size, each))
	}
	return sizes, nil
}
