// Package host is a Go driver of a borrowed drive: it borrows, makes a queue pair, and reads and writes blocks.
//
//	d, err := host.Open(ctx, host.Config{Element: el, Asker: asker, Node: "n1", Drive: "disk0", Mode: device.Exclusive})
//	err = d.WriteAt(ctx, block, 0)
//
// # Memory
//
// A Drive has one segment: completion queue, submission queue, and a buffer for each command that can be under way. Where the lender maps it, on the same
// machine, it reads commands and moves data there in place. Elsewhere commands and what they write go to a segment at the lender by Puts, and what they read and completions
// come back by Puts, a fence between: one round trip a command.
//
// ReadAt and WriteAt copy from and to these buffers. Submit and Reap do not: a command's data is Buffer's.
//
// # Errors
//
// A command that the drive refuses is a *StatusError. Where the lender is lost, or the lease has ended, all commands fail with the cause, which names the
// element, within a second; whether those under way were carried out is not known then.
package host
