// Package remote is the client of an I/O node: files that lie elsewhere.
//
// # Model
//
// A Client has one connection to a node, and makes a new one when it is lost. It
// implements what os does on files (OpenFile, Stat, Rename, …), and FS makes a Go
// fs.FS of it. Data moves between the node and slots: segments of this element that the
// node reads and writes one-sided. There are so many slots and no more, so many calls
// under way and no more.
//
// A file that is read from front to end is read ahead, and what is written is sent
// behind the writer's back: each in a window of several transfers at once. Reads
// through the same Client see what was written through it, sent or not.
//
// # Errors
//
// Methods return *fs.PathError with the node's error number. A node that is lost, or does not answer
// within Config.OpTime, is EIO; nothing is ever tried twice that may have happened.
// Handles end with the node's life: on the next one they are ESTALE. A write that
// failed behind the writer's back is the error of the next Write, and of Flush, Sync and
// Close; it stays with the File.
package remote
