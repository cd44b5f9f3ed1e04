// Package native runs injected functions as machine code, each in a locked-down process of its own: a worker.
//
// # Model
//
// An Engine is an abi.Engine for relocatable objects ("elf") and, with a Compiler, for LLVM bitcode, which that makes an object of.
// Load checks the object (inject/elf) and relocates it once, for the one address at which all workers have it. A
// bound program's instances are workers: processes of package worker, which see the program's code, the bound's windows and nothing else of this
// machine. One principal, one program and one set of windows is all that a worker ever sees.
//
//	engine, err := native.New(native.Config{})
//	program, err := engine.Load(ctx, code)
//	bound, err := program.Bind(ctx, principal, windows)
//	place, err := bound.Reserve(0)
//	in, err := place.Acquire(ctx)
//	status, err := in.Run(payload, nil, host)
//	in.Release()
//
// A program that embeds a node calls Main first of all: workers are that program, started once more.
//
// # What a function can do
//
// Compute, look at the clock, and make host calls. Any other system call, a store to a read-only window, running over the stack's end, an
// endless run: the worker is killed, the run ends with an error that names the function, and nobody else notices. What a host call
// names is checked here, by address, as wasm's is.
//
// # Time
//
// The goroutine that runs a function sleeps in a system call while the worker computes, so neither the collector nor other goroutines wait. About every
// 100 µs, and less often later, it asks Host.Tick whether the run may go on. Limits.RunTime is the worker's processor time.
//
// # Memory
//
// Config.MemoryBytes is charged for a worker's statics, stack and payload when it is made, and for scratch as it is asked for. Scratch that was
// not asked for cannot be touched: the file behind it is as long as what was.
//
// # Errors
//
// *CodeError: the object is refused. *LimitError, *StoppedError, *TrapError: the run ended, and its worker with it.
// *WorkerError: no worker can be had. ErrBusy: as many run as may.
//
// # Ownership
//
// Engine, Program and Bound may be used from any goroutine; an Instance by one at a time. Descriptors given to Bind
// stay the caller's and must outlive the Bound.
package native
