// Package device is what borrowed devices of every class have in common: leases, windows, and the calls by which they are made.
//
// A lender has a device and grants leases on it; a borrower holds one. A lease gives the borrower queue pairs. Commands, data and completions lie in the
// borrower's memory, which it opens to the device window by window; doorbells lie in a page of registers at the lender, one page a lease. The
// lender's engine (device/nvme) polls the doorbells, reads commands and moves data, without a call and without the borrower's part.
//
// # Addresses
//
// Commands carry 64-bit device addresses: the number of a window and an offset in it (Address). The lender looks them up in the lease's own
// table, so that a command reaches its borrower's memory and nothing else.
//
// # A lease
//
// granted → active → draining → quiet → free. A lease ends when it is returned or taken back, or when the connection that it was granted over ends.
// Then the engine fetches no more commands; those under way are waited for, as a write cannot be called back; then its queues, windows and registers
// go; and only then may somebody else have its blocks. Book decides that, and is pure: it is told what happened and says what is to be done.
//
// # Errors
//
// What a command does wrong is a status in its completion. What a borrower does wrong with its queues (a doorbell that points nowhere) ends its lease. Calls
// fail with the errors of this package.
package device
