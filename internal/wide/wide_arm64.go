package wide

import "unsafe"

// Supported reports whether the processor can do it: each of this architecture can.
func Supported() bool { return true }

//go:noescape
func cas(p unsafe.Pointer, oldLo, oldHi, newLo, newHi uint64) (lo, hi uint64)
