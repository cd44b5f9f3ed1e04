package wasm

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// Config is how an Engine is made. Its zero value is usable.
type Config struct {
	// CacheDir keeps compiled code on disk, so that a restarted node does not
	// compile again. Empty: in memory only. The directory must be writable by
	// this user only; several engines may share it.
	CacheDir string
	// CacheBytes bounds what lies in CacheDir; the longest unused goes first. 0: DefaultCacheBytes.
	CacheBytes int64
	// MaxInstances bounds the instances in memory, running and idle together; one principal has at most three quarters
	// of them, and of MemoryBytes. 0: DefaultMaxInstances.
	MaxInstances int
	// MemoryBytes bounds the heap, payload and, of functions that recur, stack of those instances together, as
	// if all of it were touched, and the scratch that their functions have asked for. 0: DefaultMemoryBytes.
	MemoryBytes uint64
	// CodeBytes bounds the machine code in memory, of which one principal has at most three quarters. 0: DefaultCodeBytes.
	CodeBytes uint64
	// Defaults are the limits of a function that names none; zero fields: abi.DefaultLimits.
	Defaults abi.Limits
	// Ceilings are the highest limits a function can have; zero fields: abi.DefaultCeilings.
	Ceilings abi.Limits
	// Compiler is the command of processes that compile what may take long, and that are killed when it does; they call ServeCompiler. Empty: all
	// is compiled in this process.
	Compiler []string
	// CompileTime is the processor time that one function may take there. 0: DefaultCompileTime.
	CompileTime time.Duration
	// Interpret runs code in the interpreter even where there is a compiler.
	Interpret bool
	// Log gets what an operator should know; nil discards it.
	Log *slog.Logger
}

const (
	// DefaultCacheBytes holds about ten thousand small functions' machine code.
	DefaultCacheBytes = 256 << 20
	// DefaultMaxInstances: an instance costs about 60 KiB besides the memory its function touches.
	DefaultMaxInstances = 256
	maxMaxInstances     = 1 << 16
	// DefaultMemoryBytes holds about 190 instances with the default limits of functions that do not recur, with all their scratch.
	DefaultMemoryBytes = 4 << 30
	minCacheBytes      = 1 << 20
	// DefaultCodeBytes is as native code's; a compiler process makes at most 64 MiB (compiler.MaxBytes) of one module in one of its forms.
	DefaultCodeBytes = 1 << 30
	maxVariants      = 1 << 16 // a function has two at most
	// machinePerByte is what is charged for a byte of instrumented code before it is compiled in this process: conversions of floats, one byte each, make 104.
	machinePerByte = 128
	// DefaultCompileTime is what the worst functions take that are bombs for the compiler by the shape of their code and that the limits on modules let through; a megabyte of
	// ordinary code takes as long.
	DefaultCompileTime = 1500 * time.Millisecond
)

// Validate says what is wrong with c.
func (c Config) Validate() error {
	_, err := c.filled()
	return err
}

// filled is c with its defaults in place.
func (c Config) filled() (Config, error) {
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.CacheBytes < minCacheBytes {
		return c, fmt.Errorf("wasm: CacheBytes is %d, want 0 or at least %d", c.CacheBytes, minCacheBytes)
	}
	if c.CompileTime == 0 {
		c.CompileTime = DefaultCompileTime
	}
	if c.CompileTime < 0 {
		return c, fmt.Errorf("wasm: a negative CompileTime")
	}
	if c.MaxInstances == 0 {
		c.MaxInstances = DefaultMaxInstances
	}
	if c.MaxInstances < 0 || c.MaxInstances > maxMaxInstances {
		return c, fmt.Errorf("wasm: MaxInstances is %d, want 1 to %d", c.MaxInstances, maxMaxInstances)
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	if c.CodeBytes == 0 {
		c.CodeBytes = DefaultCodeBytes
	}
	c.Ceilings = c.Ceilings.Or(abi.DefaultCeilings())
	c.Defaults = c.Defaults.Or(abi.DefaultLimits()).AtMost(c.Ceilings)
	if c.Defaults.RunTime < 0 || c.Ceilings.RunTime < 0 {
		return c, fmt.Errorf("wasm: a negative RunTime")
	}
	if sum := c.Ceilings.HeapBytes + c.Ceilings.ScratchBytes + c.Ceilings.PayloadBytes; sum > maxOwnBytes ||
		max(c.Ceilings.HeapBytes, c.Ceilings.ScratchBytes, c.Ceilings.PayloadBytes) > maxOwnBytes {
		return c, fmt.Errorf("wasm: the ceilings of heap, scratch and payload together are %d bytes, want at most %d (windows need room in 4 GiB too)", sum, uint64(maxOwnBytes))
	}
	if one := LeastMemory(c.Ceilings); c.MemoryBytes < one {
		return c, fmt.Errorf("wasm: MemoryBytes is %d, but one instance at the ceilings takes %d; raise it or lower them", c.MemoryBytes, one)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// LeastMemory is the least that MemoryBytes can be: what one instance at the ceilings takes.
func LeastMemory(ceilings abi.Limits) uint64 { return ownBytes(ceilings.Or(abi.DefaultCeilings())) }

// maxOwnBytes leaves 1 GiB of the address space to windows.
const maxOwnBytes = 3 << 30
