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
// Serve has one goroutine for what the shim asks, and one on a thread of its own for faults. Cache.mu is held while a fault is
// answered, the store's calls included: pages on their way need no state of their own.
//
// # Errors
//
// When the store fails, all that is not local is lost: accesses are a SIGBUS, and Config.Lost is told once. When the daemon ends,
// the kernel kills the program: the end of a pipe that the daemon holds is bound to SIGKILL. Until then the program's own copy of
// the userfaultfd makes faults wait, so that no page reads as zeros.
package excache
