// Package part writes and reads parts: Arrow IPC files that lie in segments, so that memory, wire and disk have one format.
//
// # Model
//
// A shard of a dataset of kind columns is a list of parts. A part has chunks (record batches of at most ChunkRows rows), which
// all have the dataset's columns. Any program that reads Arrow files reads a part.
//
// Beside each part lies its directory: where each buffer of each chunk begins, how many values are missing, the least and the
// greatest. Functions, which are C without an Arrow library, find their columns by it. docs/columns.md has its layout.
//
// Text is stored plain or as numbers into a dictionary, whichever is smaller; each part has a dictionary of its own for each
// such column, the same for all its chunks.
//
// # Ownership
//
// A Builder owns its buffers until Finish, then the array does. A Draft keeps the chunks it was given until its parts are
// written. A Part refers to the bytes it was opened on; arrays of its chunks lie there too.
//
// # Errors
//
// ErrPart says that bytes are no valid part: Open checks offsets, UTF-8, dictionary numbers and zeros beneath missing values
// once, so that readers need not. ErrLimit names a limit.
package part
