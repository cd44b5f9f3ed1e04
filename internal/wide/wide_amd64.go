package wide

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor can do it: all since 2006 can, but for some virtual ones.
func Supported() bool { return cpu.X86.HasCX16 }

//go:noescape
func cas(p unsafe.Pointer, oldLo, oldHi, newLo, newHi uint64) (lo, hi uint64)
