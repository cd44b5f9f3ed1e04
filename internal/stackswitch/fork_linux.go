//go:build amd64 || arm64 || riscv64

package stackswitch

import "syscall"

// fork is the clone system call. In the child it calls entry(a, b) by the platform's C convention on the given stack, and
// exits with status 127 if that returns.
//
//go:noescape
func fork(flags, entry, stack, a, b uintptr) (pid, errno uintptr)

// Fork makes the child and returns its process id. The child calls entry(a, b), a C function at that address, on the stack that ends
// at stack. Its parent is the caller's parent: whoever started this process waits for the child. It has copies of this
// process's memory and descriptors, its signal mask and handlers, and what the calling thread is confined by. It must set signal handlers of
// its own before a signal comes: those that it has are Go's.
func Fork(entry, stack, a, b uintptr) (pid int, err error) {
	const parent = syscall.CLONE_PARENT | uintptr(syscall.SIGCHLD)
	p, errno := fork(parent, entry, stack&^15, a, b)
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(p), nil
}

// Supported reports whether Fork is there.
func Supported() bool { return true }
