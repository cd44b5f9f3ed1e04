// Package stackswitch leaves the Go runtime for code that is none of Go's.
//
// A Frame is such code in this process: Resume switches to its stack and returns when it switches back. It is for code that is
// trusted like the program itself: nothing contains its faults, and the collector waits while it runs.
package stackswitch
