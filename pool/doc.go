// Package pool is remote memory: regions that components lend, and how a program reads and writes them.
//
// # Model
//
// A component is a node that lends memory (package pool/component is its side). A region is an address space of up to 48 bits, at one component or where managers
// placed its extents, with an owner, a size and a table of extents under an epoch. An extent is one segment of a component. An Item is an allocation
// in a region, with a generation. An Address is a region's number, 16 bits, and an offset in the region, 48 bits.
//
// A Region is a client's view: the extents' keys, imported. A client with all rights to a region of this machine maps its extents, so that a Get is a
// look at the table and a copy. Everybody else's operations are served by the component, which checks each. Both are the verbs of
// package fabric, and what docs/ordering.md says of those holds here.
//
// The names follow the OpenFAM API: CreateRegion is fam_create_region, Get fam_get_blocking, StartGet fam_get_nonblocking.
//
// # Ownership
//
// A buffer is the operation's until it ends. Region and Pool may be used from any goroutine.
//
// # Errors
//
// An operation fails with an *Error, which names region, component, operation and range, and wraps one of the sentinels: ErrRange, ErrRights,
// ErrMoved (the region or the item was destroyed, or is another one now: look it up again), ErrLost (the component is gone, and its memory with it).
package pool
