// Package mount shows an I/O node's directory in this machine's file tree, by FUSE.
//
// # Model
//
// The kernel asks, a remote.Client answers; nothing is kept here but which path an
// inode has. The kernel keeps attributes and names for Config.CacheTime, and a file's
// pages until it is opened again: what another client writes is seen by whoever
// opens the file after that client closed it.
//
// # Errors
//
// Every request ends within a few of the client's OpTime, whatever the node does: with EIO if it
// does not answer. Signals do not cut a request short, for programs seldom
// expect that of a file.
package mount
