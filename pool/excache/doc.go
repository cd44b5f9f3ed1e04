// Package excache keeps a bounded part of programs' memory local, and the rest in a store, for programs as they are.
//
// # Model
//
// A preloaded library (package shim) serves a process's large allocations from its window: addresses of a memfd that the daemon
// made. The process opens a userfaultfd for it and sends it to the daemon; from then on each access to a page that is not there, and
// each first write to a clean page, is a fault that the daemon answers. The process that faults is never the one that answers: a
// Cache is in another process.
//
//	program ── fault ──▶ session.loop ──▶ Core: what to do ──▶ apply: COPY from the store's bytes │ protect, read into the store, punch
//	   shim ── take, free ──▶ session.calls ──▶ Store: rooms
//
// Core decides, and is pure. A page is zero (never written, or freed), remote, blank or clean (local and protected, with nothing to
// save), dirty, or lost. New pages are in a small queue; pages that come back soon after they left, and those that are written again,
// are in the main one. All processes of a program share one Core, hence one bound on what is local.
//
// The store's memory is taken in rooms of RoomBytes when a process allocates, so that a full pool is ENOMEM there, and never a
// failure when memory is touched.
//
// # Ownership
//
// Serve has one goroutine for what the shim asks, and up to two for faults, on threads of their own. Cache.mu is held while a fault is
// decided and the window changed, never while anything is on its way to the store or from it. What is on its way is a transfer: a run of
// pages, a buffer and an operation of the store, at most Transfers at a time.
//
//   - What a thread waits for is fetched first, and runs ahead of a walk beside it. A run that has arrived stays in its buffer until its first
//     page is touched; that fault places the run and fetches the next one, so a walk waits for no round trip once its window is large enough.
//   - What leaves is read into a buffer and taken away at once; the room is there before the bytes are. A page that is wanted meanwhile comes
//     back from the buffer, and does not leave again before its bytes have arrived: puts are not ordered.
//   - Where no transfer is free a fault is kept, and answered when one ends.
//
// The loop that asked for a page waits for the store itself, as long as nobody else has anything to ask (loop.go). Where the store is mapped
// pages are copied straight from it and to it, and nothing is ever on its way.
//
// A fork (fork.go) has writes wait until what is local is in the store and the system has forked; then the store copies rooms, and what the parent writes does not
// leave until it has. The child begins after that.
//
// A share (share.go) is memory that processes map by name. It has rooms as processes have, and one file; a view is a process's mapping of it, with faults of its
// own. Its pages are written to the file, and then put into the page table of whoever asked: other views take a minor fault. Writers are in one process, so
// only its views are protected before a page leaves.
//
// # Errors
//
// ErrLost of the store, or no success in 4 seconds, means that all that is not local is lost: accesses are a SIGBUS, and Config.Told is told
// once. Any other error of an operation is tried again until then, from the same buffer. When the daemon ends,
// the kernel kills the program: the end of a pipe that the daemon holds is bound to SIGKILL. Until then the program's own copy of
// the userfaultfd makes faults wait, so that no page reads as zeros.
package excache
