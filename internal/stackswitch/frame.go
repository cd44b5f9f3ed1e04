//go:build linux && (amd64 || arm64 || riscv64)

package stackswitch

import "unsafe"

// Frame is foreign code that has a stack of its own in this process, while it waits for its turn. The collector does
// not look at that stack, and while the code runs neither the collector nor the scheduler's preemption gets on.
type Frame struct{ theirs, ours uintptr }

//go:noescape
func resume(f *Frame)

func addresses() (begin, yield uintptr)

// Resume gives the code its turn, and returns when it gives it back.
func (f *Frame) Resume() { resume(f) }

// Address is what the code hands to Yield's function. The frame must not be moved or freed while the code waits: it is part of memory that is reached
// from somewhere, as the collector sees it.
func (f *Frame) Address() uintptr { return uintptr(unsafe.Pointer(f)) }

// Yield is the address of a C function that takes a frame's address and returns at the next Resume.
func Yield() uintptr {
	_, yield := addresses()
	return yield
}

// Resumes reports whether there are Frames here.
func Resumes() bool { return true }

// pointer is an address outside the Go heap.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
