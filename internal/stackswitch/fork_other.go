//go:build !linux || !(amd64 || arm64 || riscv64)

package stackswitch

import "errors"

// Fork is for Linux on amd64, arm64 and riscv64.
func Fork(entry, stack, a, b uintptr) (pid int, err error) {
	return 0, errors.ErrUnsupported
}

// Supported reports whether Fork is there.
func Supported() bool { return false }
