// Package uring is io_uring, as far as reads and writes of files need it: a queue of requests to the kernel and a queue of their ends, both in memory that is
// shared with it, so that many requests cost one system call and an end costs none.
//
// # Ownership
//
// A Ring is for one goroutine at a time: its methods must not be called at once. Memory of a request is the kernel's from Prepare until Reap has told of
// its end, so it must not move or go: mapped memory, or the Go heap with a reference kept.
//
// # Sleeping
//
// A caller that sleeps gives New an eventfd and calls Arm before it does: ends that come later make the descriptor readable, earlier ones are seen by Ready.
package uring
