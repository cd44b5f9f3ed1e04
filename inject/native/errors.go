package native

import (
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/abi"
)

var (
	// ErrClosed says that the engine, program or bound is closed.
	ErrClosed = errors.New("native: closed")
	// ErrBusy says that those that run take as much as Config.MaxWorkers and MemoryBytes allow. It is an abi.ErrEngineBusy.
	ErrBusy error = busyError{}
)

type busyError struct{}

func (busyError) Error() string {
	return "native: no room just now; wait for some, or raise MaxWorkers or MemoryBytes"
}

func (busyError) Is(target error) bool { return target == abi.ErrEngineBusy }

// CodeError says that code cannot run here.
type CodeError struct{ Err error }

func (e *CodeError) Error() string { return "native: the code is refused: " + e.Err.Error() }
func (e *CodeError) Unwrap() error { return e.Err }

// LimitError says that a function asks for more than a limit.
type LimitError struct {
	Limit  string // field of abi.Limits, or what else was exceeded
	Wanted uint64
	Max    uint64
}

// Is says that a LimitError is an abi.ErrOverLimit.
func (e *LimitError) Is(target error) bool { return target == abi.ErrOverLimit }

func (e *LimitError) Error() string {
	return fmt.Sprintf("native: %s: %d wanted, the limit is %d (limits.%s in the manifest raises it as far as elements let it)", e.Limit, e.Wanted, e.Max, e.Limit)
}

// StoppedError says that the host ended a run; it wraps what the host returned.
type StoppedError struct{ Err error }

func (e *StoppedError) Error() string { return "native: the function was stopped: " + e.Err.Error() }
func (e *StoppedError) Unwrap() error { return e.Err }

// TrapError says that a function faulted, or that its worker ended for another reason.
type TrapError struct {
	Signal   string // as in "SIGSEGV"; empty if it did not fault
	Function string // that it faulted in; empty if that is not known
	Offset   uint64 // from that one's start
	File     string // of the source, where the object has line tables; …
	Line     int    // … else these are empty
	Text     string // what is known in full
}

func (e *TrapError) Error() string { return "native: the function trapped: " + e.Text }

// WindowError says why a window cannot be mapped.
type WindowError struct {
	Window int
	Err    error
}

func (e *WindowError) Error() string { return fmt.Sprintf("native: window %d: %v", e.Window, e.Err) }
func (e *WindowError) Unwrap() error { return e.Err }

// WorkerError says why no worker can be had, which is not the function's fault.
type WorkerError struct{ Err error }

func (e *WorkerError) Error() string { return "native: no worker: " + e.Err.Error() }
func (e *WorkerError) Unwrap() error { return e.Err }
