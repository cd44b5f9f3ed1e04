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
	// Defaults are the limits of a function that names none; zero fields: DefaultLimits.
	Defaults abi.Limits
	// Ceilings are the highest limits a function can have; zero fields: DefaultCeilings.
	Ceilings abi.Limits
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
)

// DefaultLimits are the limits of a function that asks for none.
func DefaultLimits() abi.Limits {
	return abi.Limits{
		HeapBytes:    16 << 20,
		ScratchBytes: 4 << 20,
		PayloadBytes: 1 << 20,
		ReplyBytes:   1 << 20,
		RunTime:      time.Second,
		Forks:        1024,
		LogBytes:     4 << 10,
	}
}

// DefaultCeilings are the highest limits that a function gets.
func DefaultCeilings() abi.Limits {
	return abi.Limits{
		HeapBytes:    256 << 20,
		ScratchBytes: 1 << 30,
		PayloadBytes: 64 << 20,
		ReplyBytes:   64 << 20,
		RunTime:      time.Minute,
		Forks:        1 << 16,
		LogBytes:     64 << 10,
	}
}

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
	if c.MaxInstances == 0 {
		c.MaxInstances = DefaultMaxInstances
	}
	if c.MaxInstances < 0 || c.MaxInstances > maxMaxInstances {
		return c, fmt.Errorf("wasm: MaxInstances is %d, want 1 to %d", c.MaxInstances, maxMaxInstances)
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	c.Ceilings = override(DefaultCeilings(), c.Ceilings)
	c.Defaults = atMost(override(DefaultLimits(), c.Defaults), c.Ceilings)
	if c.Defaults.RunTime < 0 || c.Ceilings.RunTime < 0 {
		return c, fmt.Errorf("wasm: a negative RunTime")
	}
	if sum := c.Ceilings.HeapBytes + c.Ceilings.ScratchBytes + c.Ceilings.PayloadBytes; sum > maxOwnBytes ||
		max(c.Ceilings.HeapBytes, c.Ceilings.ScratchBytes, c.Ceilings.PayloadBytes) > maxOwnBytes {
		return c, fmt.Errorf("wasm: the ceilings of heap, scratch and payload together are %d bytes, want at most %d (windows need room in 4 GiB too)", sum, uint64(maxOwnBytes))
	}
	if one := ownBytes(c.Ceilings); c.MemoryBytes < one {
		return c, fmt.Errorf("wasm: MemoryBytes is %d, but one instance at the ceilings takes %d; raise it or lower them", c.MemoryBytes, one)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// maxOwnBytes leaves 1 GiB of the address space to windows.
const maxOwnBytes = 3 << 30

// override is base with o's nonzero fields in place of its own.
func override(base, o abi.Limits) abi.Limits {
	set(&base.HeapBytes, o.HeapBytes)
	set(&base.ScratchBytes, o.ScratchBytes)
	set(&base.PayloadBytes, o.PayloadBytes)
	set(&base.ReplyBytes, o.ReplyBytes)
	set(&base.RunTime, o.RunTime)
	set(&base.Forks, o.Forks)
	set(&base.LogBytes, o.LogBytes)
	return base
}

func set[T uint64 | uint32 | time.Duration](to *T, v T) {
	if v != 0 {
		*to = v
	}
}

// atMost is the lower of both, field by field.
func atMost(a, b abi.Limits) abi.Limits {
	a.HeapBytes = min(a.HeapBytes, b.HeapBytes)
	a.ScratchBytes = min(a.ScratchBytes, b.ScratchBytes)
	a.PayloadBytes = min(a.PayloadBytes, b.PayloadBytes)
	a.ReplyBytes = min(a.ReplyBytes, b.ReplyBytes)
	a.RunTime = min(a.RunTime, b.RunTime)
	a.Forks = min(a.Forks, b.Forks)
	a.LogBytes = min(a.LogBytes, b.LogBytes)
	return a
}
