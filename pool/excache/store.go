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
	// Release gives room r back. Operations on it may be under way; they end with whatever error.
	Release(r int)
	// Silent says that an operation was waited for in vain: all rooms but what others have too are lost, and Release need not ask for an answer.
	Silent()
	// Discard makes ranges of room r zeros, or leaves them as they are, and gives their memory back to the machine that lends it. Other
	// bytes of the room may be written meanwhile, and the room may be released. ErrLost: its bytes are gone; any other error: it may be
	// asked again. Once it has returned without an error, no earlier call that failed takes effect any more.
	Discard(ctx context.Context, r int, ranges []Range) error
	// Clone copies ranges of room from to the same places of room to, where the bytes are kept: what was put before it began. Nothing is put there
	// meanwhile. ErrLost: the bytes are gone. After any other error room to is released.
	Clone(ctx context.Context, from, to int, ranges []Range) error
	// Mapped reports whether this process has all of room r mapped. It stays so until the room is released.
	Mapped(r int) bool
	// Access calls fn with the n bytes at off of a mapped room themselves, to be read and written while it runs. An error means that
	// they are gone; fn has not run. It does not allocate.
	Access(off uint64, n int, fn func(mem []byte)) error
	Operations
}

// Operations is how a store's bytes are moved where they are not mapped: up to Transfers at a time, each with a number from 0 on that is free
// again once End has returned. Nothing allocates. All but Wait return at once, and any goroutine may call them, those of one number one at a time.
type Operations interface {
	// StartGet starts to read len(p) bytes at off into p, which is the store's until End.
	StartGet(i int, p []byte, off uint64)
	// StartPut starts to write p at off; p is the store's until End. Once it has ended a get sees it. No two puts that are under way
	// overlap; of a get that overlaps a put, what it reads there does not matter.
	StartPut(i int, p []byte, off uint64)
	// Done returns those of a set of operations (bit i is operation i) whose End would return a result.
	Done(set uint64) uint64
	// End ends an operation. One that is not done is given up. ErrLost: its bytes are gone; any other error: it may be started again.
	End(i int) error
	// Wait drives progress until cond holds or the context ends. cond is cheap, and takes no lock that is held when other methods are called.
	Wait(ctx context.Context, cond func() bool) error
	// Wake makes all callers of Wait check their conditions.
	Wake()
}

var (
	// ErrFull: the store has no more room. The program's allocation fails with ENOMEM, and it goes on.
	ErrFull = errors.New("no remote memory is left")
	// ErrLost: remote memory is gone; the program's next access to it is a SIGBUS.
	ErrLost = errors.New("remote memory was lost")
	// ErrFork: there is no copy of a process's window for its child; the system call fails with ENOMEM, and the program goes on.
	ErrFork = errors.New("a fork failed with ENOMEM")
	// ErrShare: a process may not map a share in this way; the system call fails.
	ErrShare = errors.New("a mapping was refused")
	// ErrProgram: the program cannot be given remote memory; the error says why, and what to do.
	ErrProgram = errors.New("the program cannot have remote memory")
)
