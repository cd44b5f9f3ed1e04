// Package ionode serves a directory to clients elsewhere: the node that a compute
// node forwards its I/O to.
//
// # Model
//
// A Node answers package wire's calls on an element. Paths are resolved below the
// directory by os.Root: neither ".." nor a symbolic link leads out of it, not even one that is
// changed meanwhile. An open file or directory is a handle: a random number, known
// to the client that opened it only. Reads are pushed into the client's memory, writes
// are pulled from it, through buffers of which there are so many and no more.
//
// # Leases
//
// A client's handles live as long as its connection, and no longer than its lease: a
// client that makes no call for so long, though its connection stands, has its handles closed. They
// are stale then (ESTALE), as are those of a node's earlier life.
//
// # Errors
//
// Whatever fails comes back as the error number of the system call that failed. A path
// that leads out of the directory is EACCES.
package ionode
