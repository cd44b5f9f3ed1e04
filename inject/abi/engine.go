package abi

import (
	"context"
	"errors"
)

// What an Engine's errors are, for errors.Is, besides whatever else they say.
// Any other error of a run is a trap: the function's own fault.
var (
	ErrOverLimit  = errors.New("a limit is used up")
	ErrEngineBusy = errors.New("the engine has no room just now")
)

// Engine runs one form of code. Its methods, and those of what it returns, may be called
// from any goroutine, but for an Instance's.
type Engine interface {
	// Form is the form of code the engine runs, as images call it: "wasm32".
	Form() string
	// Load checks code, whose content has the identity id. The code must not
	// change afterwards.
	Load(ctx context.Context, id [32]byte, code []byte, limits Limits) (Program, error)
}

// Program is code that an engine accepted.
type Program interface {
	// Bind makes it ready for one principal and one set of windows. A window of size 0 is
	// absent; the others' descriptors must stay open until the Bound is closed.
	Bind(principal string, windows []Window) (Bound, error)
	Close()
}

// Bound is a program with windows: a pool of instances that one principal's
// branches share, one after the other.
type Bound interface {
	Acquire(ctx context.Context) (Instance, error)
	Close()
}

// Instance runs branches, one at a time.
type Instance interface {
	// Run runs the function. The error says that it was stopped: by a trap, a
	// limit, or what Host.Tick returned, which it then wraps.
	// limits are the element's, which never change; nil: those of the program.
	Run(payload []byte, limits *Limits, h Host) (Status, error)
	// Release gives the instance back, its scratch zeroed.
	Release()
}
