//go:build !amd64 && !arm64

package wide

import "unsafe"

// Supported reports whether the processor can do it.
func Supported() bool { return false }

func cas(unsafe.Pointer, uint64, uint64, uint64, uint64) (uint64, uint64) {
	panic("wide: this processor has no compare-and-swap of 16 bytes")
}
