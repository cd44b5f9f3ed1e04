// Package lender is the side of a node that lends devices: which there are, who may borrow them, and the leases.
//
// It decides by a device.Book for each device, and has the Book's effects done: device/nvme's Engine stops, a lease's windows and registers go, its blocks are free.
// A lease goes with the connection that it was granted over.
package lender
