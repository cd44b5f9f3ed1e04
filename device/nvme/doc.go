// Package nvme is an NVMe drive without a bus: an Engine that carries out the commands of its borrowers on a Backing, a file or a block device.
//
// Commands are those of the NVM Express base specification 2.0 and its NVM command set: Read, Write, Flush, Compare, Write Zeroes, Dataset Management
// (deallocate). Each lease has a Controller of its own with a page of doorbells, a table of windows, and queue pairs; its namespace, number 1, is the
// part of the drive that was lent, so that block 0 is the part's first.
//
// # Ownership
//
// The Engine is a fabric.Poller: the element's leader fetches commands and carries out what does not block, at most so much in one turn; the rest is done by a
// few goroutines of the Engine's. One mutex guards all its state; it is held while a command is carried out that does not block.
// A command pins the windows that it uses until it has ended, and Controller.Stop's channel is closed when none is under way: until then nothing
// that belongs to it may go.
//
// # What a borrower's memory says
//
// A command is copied once, and what is checked is the copy. Entries of a PRP list are read once each. Doorbells are read once a turn; one that points outside its queue
// ends the lease. Completions are written only where there is room: a borrower that does not reap has its commands wait.
package nvme
