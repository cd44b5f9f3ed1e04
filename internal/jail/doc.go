// Package jail confines a process to what it still needs, for good: it has no way back.
//
// # Model
//
// There are two kinds of confined processes. One has left Go (internal/stackswitch) and runs code that came from
// somebody else: Bare is its list of system calls, which is four lines long. The other is a Go process that runs a
// library on a stranger's input: Enter confines it, with what the Go runtime needs.
//
// Three layers, of which each alone would do for most attacks: no_new_privs and resource limits; Landlock, which takes away files,
// ports and signals to others; a seccomp filter, which answers a forbidden system call with SIGSYS (Bare) or EPERM (Enter).
// A kernel without Landlock is noted and not fatal. One without seccomp filters is an error: without them nothing is confined.
//
// # Errors
//
// All errors say which layer failed. ErrUnsupported is errors.ErrUnsupported.
package jail
