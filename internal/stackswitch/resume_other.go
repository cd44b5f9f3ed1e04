//go:build !linux || !(amd64 || arm64 || riscv64)

package stackswitch

// Frame is for Linux on amd64, arm64 and riscv64.
type Frame struct{}

// Begin is not there.
func (f *Frame) Begin(entry, stack, a, b uintptr) {
	panic("stackswitch: there are no frames here: ask Resumes")
}

// Resume is not there.
func (f *Frame) Resume() { panic("stackswitch: there are no frames here: ask Resumes") }

// Address is 0.
func (f *Frame) Address() uintptr { return 0 }

// Yield is 0.
func Yield() uintptr { return 0 }

// Resumes reports whether there are Frames here.
func Resumes() bool { return false }
