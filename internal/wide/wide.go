// Package wide is compare-and-swap of 16 bytes of memory, which Go's sync/atomic does not have. It is atomic among all processes that map the memory, and with
// atomics on its halves.
package wide

import "unsafe"

// CompareSwap stores next in the 16 bytes at p, which must be aligned to 16, if they hold old, and returns what they held; the first half is the one at p.
// Where Supported is false it must not be called.
func CompareSwap(p unsafe.Pointer, old, next [2]uint64) [2]uint64 {
	lo, hi := cas(p, old[0], old[1], next[0], next[1])
	return [2]uint64{lo, hi}
}
