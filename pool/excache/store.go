package excache

import (
	"context"
	"errors"
)

// Store is the remote memory behind a cache: rooms of RoomBytes, one after the other, so that room r's bytes begin at r*RoomBytes.
// Calls for one room come one after the other, for several at once. No range crosses rooms. What a call does for a room that was not
// taken is undefined.
type Store interface {
	// Take makes room r's bytes; what they hold does not matter. ErrFull: there is no more.
	Take(ctx context.Context, r int) error
	// Release gives room r back.
	Release(r int)
	// Access calls fn with the n bytes at off themselves, to be read and written while it runs. ErrNotMapped: this process does
	// not have them mapped; fn has not run, and Get and Put serve. Any other error means that they are gone. It does not allocate.
	Access(off uint64, n int, fn func(mem []byte)) error
	// Get reads len(p) bytes at off into p, which is the caller's again when it returns.
	Get(ctx context.Context, p []byte, off uint64) error
	// Put writes p at off, and returns when a Get would see it.
	Put(ctx context.Context, p []byte, off uint64) error
}

var (
	// ErrFull: the store has no more room. The program's allocation fails with ENOMEM, and it goes on.
	ErrFull = errors.New("no remote memory is left")
	// ErrNotMapped: Get and Put must be used.
	ErrNotMapped = errors.New("remote memory is not mapped here")
	// ErrLost: remote memory is gone; the program's next access to it is a SIGBUS.
	ErrLost = errors.New("remote memory was lost")
	// ErrProgram: the program cannot be given remote memory; the error says why, and what to do.
	ErrProgram = errors.New("the program cannot have remote memory")
)
