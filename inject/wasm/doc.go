// Package wasm runs injected functions in their default form: WebAssembly, in
// this process, sandboxed, on wazero.
//
// # Model
//
// An Engine compiles code to Programs. A Program is bound to a principal and a
// set of windows; the Binding is the pool that Instances come from. An
// Instance runs the entry point any number of times:
//
//	program, err := engine.Compile(ctx, id, manifest.ABI, code, manifest.Limits)
//	binding, err := program.Bind(principal, windows)
//	in, err := binding.Acquire(ctx)
//	status, err := in.Run(&wasm.Run{Payload: payload, Host: host})
//	in.Release()
//
// Compile checks the code (internal/wasmcode); machine code is made with the first instance
// that needs it and kept on disk, if Config.CacheDir says so. Acquire and Run of
// an idle instance allocate nothing.
//
// An invocation that comes back to this element, or has several branches here,
// finds its scratch again if the caller runs it on the same Instance and calls Release only when the
// invocation is finished here. A released Instance's scratch is zero for the next run.
//
// # Memory
//
// An instance's memory has, in this order and without gaps: the heap (up to Limits.HeapBytes; memory.grow ends there), the
// payload, writable windows, scratch, read-only windows; each part in whole
// pages of 64 KiB. All of it can be touched without a fault; nothing is
// resident before it is. A writable window is shared with the segment's owner. A read-only one shows what the
// owner writes. At most 4 GiB less one page fit.
//
// Code that asks for scratch, or is bound to a read-only window, is compiled with a check on everything that stores: nothing is
// stored beyond the scratch that it has asked for. So Config.MemoryBytes is charged for heap, payload and stack when an
// instance is made, and for scratch when it is asked for (Host.Scratch hears if there is no room). Code without memory.grow is charged for the heap that it
// starts with.
//
// # Time
//
// Code is instrumented to call back about every 100 µs; then Host.Tick and
// Limits.RunTime are asked whether it may go on. In between, the goroutine cannot be preempted: that bounds the garbage collector's
// pauses. RunTime is processor time: waiting, for a processor too, has the deadline. A change of behaviour, from arithmetic to page faults, can stretch a single slice to some 15 milliseconds: maxGrant and the cost of a load bound it.
// What a host call copies takes fuel as what the function copies does. A copy above 64 KiB has a slice of its own, off the goroutine that drives the fabric, and
// get and put move 1 MiB at a time, each in a slice.
//
// # Errors
//
// *CodeError: the binary is refused. *WindowError: a window cannot be mapped. *LimitError,
// *ReadOnlyError, *StoppedError, *TrapError: the run ended, and the instance
// cannot run again. ErrBusy: too many instances run. A Status below zero is not an error here: it is the function's answer.
//
// # Ownership
//
// Engine, Program and Binding may be used from any goroutine; an Instance by
// one at a time. The code given to Compile and the descriptors given to Bind
// stay the caller's and must outlive the Program and the Binding.
package wasm
