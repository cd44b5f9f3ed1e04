//go:build !race

package stream

import "unsafe"

const lineBytes = 64

// lines copies n bytes, a number of whole lines above 0, to the start of one. It is right as long as both ranges are n bytes of
// memory that their slices keep alive.
//
//go:noescape
func lines(dst, src *byte, n int)

// copyPast copies whole lines past the caches, and what is before and after them through these.
func copyPast(dst, src []byte) {
	head := int(-uintptr(unsafe.Pointer(&dst[0])) & (lineBytes - 1))
	whole := (len(dst) - head) &^ (lineBytes - 1)
	if whole <= 0 {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	lines(&dst[head], &src[head], whole)
	copy(dst[head+whole:], src[head+whole:])
}
