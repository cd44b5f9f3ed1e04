// Package turn takes one peer's turn at one work: two fresh processes, the
// server on one CPU and the client on another, alone on the machine as far as
// this program is concerned.
//
// # Model
//
// A turn starts its server, then its client; the client connects and warms up,
// says so, measures in the time that it is told, and answers with a sample. Then
// both end. Where a work has several clients, all measure in the same time. Nothing of a peer runs during another's turn: a server that
// polls all the time would take the CPU from the next one.
//
// The processes are this program again, in a role: their specification comes on
// standard input, what they say goes to standard output, one JSON value after the other.
// They inherit their CPU from the thread that starts them, so Go's runtime
// sees one processor and sets GOMAXPROCS to 1 by itself, as it would in a container
// of that size.
//
// # Errors
//
// A process that fails ends the turn with what it wrote to standard error. Every
// wait has a deadline.
package turn
