// Package guest makes a borrowed drive a PCI device of a virtual machine: registers and admin commands are answered here (admin), and the guest's I/O queues are
// served where they can be read. It implements vfiouser.Device.
//
// # Where I/O is served
//
// The guest's memory is a memfd, which becomes a segment. Where the lender maps it, on the same machine, its engine reads the guest's commands and moves data in the
// guest's memory, in place; the guest's addresses are windows of the lease. Elsewhere an engine of this element serves the queues, and its backing is the
// borrowed drive: data goes by Puts then.
//
// # Interrupts
//
// An engine rings a word of the borrower for each queue after it has written completions. A poller of this element sees it and raises the guest's interrupt.
package guest
