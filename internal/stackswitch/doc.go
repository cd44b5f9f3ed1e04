// Package stackswitch leaves the Go runtime for code that is none of Go's.
//
// Fork makes a child process of one thread that begins in a function of that code, on a
// stack of its own, and never comes back: no Go code, no collector and no other thread of the
// runtime exists in the child, so it needs none of the system calls that they make, and a
// filter can forbid them.
//
// A Frame is such code in this process: Resume switches to its stack and returns when it switches back. It is for code that is
// trusted like the program itself: nothing contains its faults, and the collector waits while it runs.
package stackswitch
