// Package cputime tells how much processor time a thread has used: what a computation costs, however busy the
// machine is with others.
package cputime

// A goroutine that wants to know its own part calls runtime.LockOSThread before the first of two readings and
// UnlockOSThread after the second: in between no other goroutine runs on its thread.
