package pool

import "fmt"

const (
	// RegionBits and OffsetBits are an address's parts.
	RegionBits = 16
	OffsetBits = 48
	// MaxRegionBytes is what an offset can reach.
	MaxRegionBytes = 1 << OffsetBits
)

// Address is a place in the pool: a region's number and an offset in it. 0 is no address: regions are numbered from 1.
type Address uint64

// MakeAddress puts an address together; the offset must be less than MaxRegionBytes.
func MakeAddress(region uint16, off uint64) Address {
	return Address(uint64(region)<<OffsetBits | off&(MaxRegionBytes-1))
}

// Region is the number of the region.
func (a Address) Region() uint16 { return uint16(a >> OffsetBits) }

// Offset is where in the region it is.
func (a Address) Offset() uint64 { return uint64(a) & (MaxRegionBytes - 1) }

func (a Address) String() string { return fmt.Sprintf("%d:%#x", a.Region(), a.Offset()) }
