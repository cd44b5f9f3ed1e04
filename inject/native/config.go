package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
)

// Compiler makes objects of bitcode.
type Compiler interface {
	// Target is what it makes them for; err says why nothing can be compiled here.
	Target() (triple, cpu string, features []string, err error)
	// Object makes a relocatable ELF object for it, and says whether it is the best that there can be. The bytes are the caller's.
	Object(ctx context.Context, r Request) (object []byte, best bool, err error)
}

// Request is bitcode to be compiled.
type Request struct {
	Bitcode   []byte
	Triple    string
	Imports   []string // host calls that it may make
	Constants []byte   // of a derived function
	Signer    []byte
	Principal string
	Best      bool // however long that takes
}

// Config is how an Engine is made. Its zero value is usable.
type Config struct {
	// Compiler compiles bitcode; nil: objects only.
	Compiler Compiler
	// Worker is the command that becomes a nursery of workers (worker.Main), without its last argument; nil: this program.
	Worker []string
	// InProcess has functions run in this process, and there are no workers. A function that runs on cannot be stopped, and holds up the collector and the
	// fabric meanwhile; one that faults takes this process along; none is confined. Only for code that is trusted like the program itself.
	InProcess bool
	// MaxWorkers bounds the workers, running and idle together; one principal has at most three quarters of them, and of
	// MemoryBytes. 0: DefaultMaxWorkers.
	MaxWorkers int
	// MemoryBytes bounds their statics, stacks, payloads and scratch together. 0: DefaultMemoryBytes.
	MemoryBytes uint64
	// CodeBytes bounds the code of all programs together, of which one principal has at most three quarters. 0: DefaultCodeBytes.
	CodeBytes uint64
	// Defaults are the limits of a function that names none; zero fields: abi.DefaultLimits.
	Defaults abi.Limits
	// Ceilings are the highest limits a function can have; zero fields: abi.DefaultCeilings.
	Ceilings abi.Limits
	// StartTime is how long a worker may take to be there. 0: DefaultStartTime.
	StartTime time.Duration
	// Log gets what an operator should know; nil discards it.
	Log *slog.Logger
}

const (
	// DefaultMaxWorkers: a worker costs a process of some 200 KiB besides what its function touches.
	DefaultMaxWorkers = 64
	maxMaxWorkers     = 1 << 12
	// DefaultMemoryBytes is as wasm's.
	DefaultMemoryBytes = 4 << 30
	DefaultCodeBytes   = 1 << 30
	// DefaultStartTime is a thousand times what it takes on an idle machine.
	DefaultStartTime = 10 * time.Second
)

// Validate says what is wrong with c.
func (c Config) Validate() error {
	_, err := c.filled()
	return err
}

func (c Config) filled() (Config, error) {
	if c.MaxWorkers == 0 {
		c.MaxWorkers = DefaultMaxWorkers
	}
	if c.MaxWorkers < 0 || c.MaxWorkers > maxMaxWorkers {
		return c, fmt.Errorf("native: MaxWorkers is %d, want 1 to %d", c.MaxWorkers, maxMaxWorkers)
	}
	if c.StartTime == 0 {
		c.StartTime = DefaultStartTime
	}
	if c.StartTime < 0 {
		return c, errors.New("native: a negative StartTime")
	}
	if len(c.Worker) == 0 {
		c.Worker = []string{"/proc/self/exe"}
	}
	c.Ceilings = ceilings(c.Ceilings)
	c.Defaults = c.Defaults.Or(abi.DefaultLimits()).AtMost(c.Ceilings)
	if c.Defaults.RunTime < 0 || c.Ceilings.RunTime < 0 {
		return c, errors.New("native: a negative RunTime")
	}
	one := LeastMemory(c.Ceilings)
	if c.CodeBytes == 0 {
		c.CodeBytes = DefaultCodeBytes
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = max(DefaultMemoryBytes, one)
	}
	if c.MemoryBytes < one {
		return c, fmt.Errorf("native: MemoryBytes is %d, but one worker at the ceilings takes %d; raise it or lower them", c.MemoryBytes, one)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// LeastMemory is the least that MemoryBytes can be: what one worker at the ceilings takes.
func LeastMemory(of abi.Limits) uint64 {
	of = ceilings(of)
	return fixedBytes(of.HeapBytes, of.PayloadBytes) + pages(of.ScratchBytes)
}

// ceilings are those of a Config, of which a worker has room for so much.
func ceilings(l abi.Limits) abi.Limits {
	l = l.Or(abi.DefaultCeilings())
	l.PayloadBytes = min(l.PayloadBytes, worker.MaxPayload)
	l.ScratchBytes = min(l.ScratchBytes, worker.MaxScratch)
	return l
}

func pages(n uint64) uint64 { return (n + worker.PageBytes - 1) &^ (worker.PageBytes - 1) }

// fixedBytes is what a worker is charged whatever its function does.
func fixedBytes(statics, payload uint64) uint64 {
	return worker.PageBytes + pages(statics) + worker.StackBytes + pages(payload)
}
