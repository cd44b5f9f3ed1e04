package wasm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/invariants"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

var (
	// ErrClosed says that the engine, program or binding is closed.
	ErrClosed = errors.New("wasm: closed")
	// ErrBusy says that those that run take as much as Config.MaxInstances and MemoryBytes allow.
	// It is an abi.ErrEngineBusy.
	ErrBusy error = busyError{}
)

type busyError struct{}

func (busyError) Error() string {
	return "wasm: no room just now; wait for some, or raise MaxInstances or MemoryBytes"
}

func (busyError) Is(target error) bool { return target == abi.ErrEngineBusy }

// TrapError says that a function failed by itself.
type TrapError struct {
	Reason string // as in "unreachable" or "integer divide by zero"
	Text   string // what is known in full, with the functions on the stack
}

func (e *TrapError) Error() string { return "wasm: the function trapped: " + e.Text }

// LimitError says that a function or its memory asks for more than a limit.
type LimitError struct {
	Limit  string // field of abi.Limits, or what else was exceeded
	Wanted uint64
	Max    uint64
}

// Is says that a LimitError is an abi.ErrOverLimit.
func (e *LimitError) Is(target error) bool { return target == abi.ErrOverLimit }

func (e *LimitError) Error() string {
	if e.Limit == "windows" {
		return fmt.Sprintf("wasm: windows: %d wanted, the limit is %d", e.Wanted, e.Max)
	}
	return fmt.Sprintf("wasm: %s: %d wanted, the limit is %d (limits.%s in the manifest raises it as far as elements let it)", e.Limit, e.Wanted, e.Max, e.Limit)
}

// ReadOnlyError says that a function was stopped before it wrote to a
// read-only window.
type ReadOnlyError struct {
	Window int    // index in the window set
	Addr   uint64 // in the function's memory
	Offset uint64 // in the window
	Stack  string // the functions on the stack, a line each
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("wasm: the function tried to write to window %d, which is read-only, at its byte %d (address %#x)%s",
		e.Window, e.Offset, e.Addr, e.Stack)
}

// StoppedError says that Host.Tick ended a run; it wraps what Tick returned.
type StoppedError struct{ Err error }

func (e *StoppedError) Error() string { return "wasm: the function was stopped: " + e.Err.Error() }
func (e *StoppedError) Unwrap() error { return e.Err }

// WindowError says why a window cannot be mapped.
type WindowError struct {
	Window int
	Err    error
}

func (e *WindowError) Error() string { return fmt.Sprintf("wasm: window %d: %v", e.Window, e.Err) }
func (e *WindowError) Unwrap() error { return e.Err }

// CodeError says that a binary is not a function that can run here.
type CodeError struct{ Err error }

func (e *CodeError) Error() string { return "wasm: the code is refused: " + e.Err.Error() }
func (e *CodeError) Unwrap() error { return e.Err }

// runError turns what wazero made of a trap or of a host call's panic into one of the errors above.
func runError(err error) error {
	var stopped *StoppedError
	var limit *LimitError
	var readOnly *ReadOnlyError
	switch {
	case errors.As(err, &stopped):
		return stopped
	case errors.As(err, &limit):
		return limit
	case errors.As(err, &readOnly):
		readOnly.Stack = stackOf(err)
		return readOnly
	}
	reason, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "wasm error: "), "\n")
	stack := stackOf(err)
	if cut, ok := strings.CutSuffix(reason, recovered); ok {
		reason = cut
		if errors.Is(err, errOutOfBounds) {
			return &TrapError{Reason: errOutOfBounds.Error(), Text: reason + stack}
		}
		// A host call panicked, which is this program's fault and not the function's.
		if invariants.Enabled {
			panic(err.Error())
		}
		reason = "host call failed: " + reason
	}
	return &TrapError{Reason: reason, Text: reason + stack}
}

// stackUsedUp says of a trap where C's stack is used up. wasm-ld puts the stack first in memory, so its pointer, the first mutable global, is below 0 then.
func (in *Instance) stackUsedUp(err error) error {
	var trap *TrapError
	if !errors.As(err, &trap) || trap.Reason != errOutOfBounds.Error() || len(in.statics.globals) == 0 {
		return err
	}
	pointer := &in.statics.globals[0]
	now := uint32(pointer.global.Get())
	if pointer.global.Type() != api.ValueTypeI32 || int32(uint32(pointer.value)) <= 0 || int32(now) >= 0 {
		return err
	}
	what, stack, _ := strings.Cut(trap.Text, "\n")
	trap.Text = fmt.Sprintf("%s: the stack of %d KiB is used up (its pointer is at %#x, below address 0); keep large arrays static or in scratch\n%s",
		what, pointer.value>>10, now, stack)
	return trap
}

// recovered is what wazero adds to the text of a host call's panic.
const recovered = " (recovered by wazero)"

// stackOf is what wazero says after the first line of an error, without the calls by which
// a function asks the engine, unseen, for fuel and whether it may store.
func stackOf(err error) string {
	var b strings.Builder
	_, rest, _ := strings.Cut(err.Error(), "\n")
	for line := range strings.Lines(rest) {
		frame := strings.TrimPrefix(line, "\t")
		if strings.HasPrefix(frame, abi.Module+"."+wasmcode.ImportStoreTrap+"(") || strings.HasPrefix(frame, abi.Module+"."+wasmcode.ImportTick+"(") {
			continue
		}
		if frame != line { // a module without a name leaves a dot before its function's
			line = "\t" + strings.TrimPrefix(frame, ".")
		}
		b.WriteString(line)
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + strings.TrimSuffix(b.String(), "\n")
}

// status is a Status as it lies on wazero's stack.
func status(st abi.Status) uint64 { return uint64(uint32(st)) }
