// Package wire is what an I/O node and its clients agree on: the calls, their
// messages, the limits, and how an error number travels.
//
// # Model
//
// Every call is one of package rpc's. File data is never in a message: a request to
// read or write carries an rpc.Bulk of the caller's memory, and the node pushes into
// it, or pulls from it. All else is small, but for a batch of a directory's
// entries, which package rpc moves one-sided when it is large.
//
// # Errors
//
// An error number travels as the code rpc.FirstCode + errno, in Linux' numbering. Errno is the way back.
package wire
