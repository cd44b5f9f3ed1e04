// Package abi is what an injected function and the element that runs it agree
// on, in every form of code: the entry point, the host calls, the status
// codes, the limits. docs/abi.md is the same for people who write functions;
// sdk/c/wherry.h is the same in C.
package abi

import "time"

// Version is the function ABI's version. A manifest names the version it was
// built for: an element runs all up to this one, and refuses later ones.
const Version = 2

// Module and Entry are the names a wasm function uses: it imports its host
// calls from Module and exports Entry, of type (payload i32, size i32) -> i32.
// The payload lies in the function's memory when Entry is called. The result
// is a Status: 0 for success, anything else ends the branch with an error that
// carries the number.
const (
	Module = "wherry"
	Entry  = "wherry_main"
)

const (
	// MaxAssembledBytes bounds the code of a function that another one assembles: room for hundreds of expressions, and little enough
	// to be checked at once.
	MaxAssembledBytes = 64 << 10
	// AssembleCost is how many copied bytes a run is charged for each byte of code that it assembles: hashing and checking take
	// about as long.
	AssembleCost = 64
)

// Status is what a host call or the entry point returns; negative ones are the
// host's. The guest SDKs carry the same numbers.
type Status int32

const (
	OK Status = -iota
	ErrArgument
	ErrMemory
	ErrRights
	ErrRevoked
	ErrPeerLost
	ErrBackpressure
	ErrLimit
	ErrDone
	ErrDeadline
	ErrCanceled
	ErrNoWindow
	ErrUnsupported
	ErrOutcomeUnknown
	ErrFar
)

// statuses is what each is called and means, at its number without the sign.
var statuses = [...]struct{ name, text string }{
	{"OK", "ok"},
	{"ErrArgument", "an argument is out of range"},
	{"ErrMemory", "a pointer or length leaves the function's memory"},
	{"ErrRights", "the key does not allow it"},
	{"ErrRevoked", "the key was revoked or is of another incarnation"},
	{"ErrPeerLost", "the element is gone"},
	{"ErrBackpressure", "a queue is full"},
	{"ErrLimit", "a limit of the function is used up"},
	{"ErrDone", "the branch has replied or forwarded already"},
	{"ErrDeadline", "no time is left"},
	{"ErrCanceled", "the caller gave up"},
	{"ErrNoWindow", "no such window here"},
	{"ErrUnsupported", "this element does not do that"},
	{"ErrOutcomeUnknown", "it may or may not have happened"},
	{"ErrFar", "the window is not mapped at this element"},
}

// String says what a status of the host's means; others are the function's own.
func (s Status) String() string {
	if s <= 0 && int(-s) < len(statuses) {
		return statuses[-s].text
	}
	return "the function's own"
}

// Limits bound one run of one function on one element. Zero means the
// element's default; an element's own limits always win (the lower counts).
type Limits struct {
	HeapBytes    uint64        `json:"heap_bytes,omitempty"`    // linear memory the function may use, windows and scratch not counted
	ScratchBytes uint64        `json:"scratch_bytes,omitempty"` // per invocation and element
	PayloadBytes uint64        `json:"payload_bytes,omitempty"`
	ReplyBytes   uint64        `json:"reply_bytes,omitempty"` // of all parts of one branch together
	RunTime      time.Duration `json:"run_time_ns,omitempty"` // processor time of one run of one branch
	Forks        uint32        `json:"forks,omitempty"`       // one run
	LogBytes     uint32        `json:"log_bytes,omitempty"`   // one run
}

// Window is a segment that a function finds in its address space.
type Window struct {
	FD       int    // memfd, sealed against shrinking; the engine maps it, never closes it
	Offset   int64  // of the window in FD, a multiple of the page size
	Size     uint64 // bytes the function may touch; the mapping is rounded up to 64 KiB, the memfd is at least that long
	Writable bool
	// Whole says that the function needs all of the window at once: where such windows do not fit beside one another, window_at shows one of them at a
	// time, and never a part.
	Whole bool
}

// Host is one invocation's host calls, as an Engine sees them. The engine has
// checked every pointer; slices lie in the function's memory and are only
// valid during the call. All calls of one run come from one goroutine. A call
// that may block says so; the implementation first lets another goroutine
// drive the fabric.
type Host interface {
	// Tick is called when a slice of about 100 µs of guest time ends, except for a run's
	// first of some 5 µs, and before chunks of bulk memory work. A non-nil error stops the guest, and
	// Run returns it.
	Tick() error

	Self() uint32     // index of this element in the shard table
	Elements() uint32 // elements in the shard table
	// ShardRows is the range of a dataset's rows that an element holds; ErrUnsupported if rows
	// are not in ranges. Dataset 0 is the call's, here and below.
	ShardRows(dataset, element uint32) (first, count uint64, st Status)

	// Owner says which element holds a row, and the row's index there.
	Owner(dataset uint32, row uint64) (element uint32, local uint64, st Status)
	// Row is the inverse of Owner: which row an element has at an index.
	Row(dataset, element uint32, local uint64) (row uint64, st Status)

	// Reply ends the branch with data as (the last part of) its result.
	Reply(data []byte) Status
	// ReplyPart sends a bounded part of the result ahead. May block for credit.
	ReplyPart(data []byte) Status
	// Forward continues this branch on another element with a new payload, as a run of a function, here and below: 0 is the one
	// that runs, others are numbers that a host call gave.
	Forward(function, element uint32, payload []byte) Status
	// Onward is Forward of the same function as the last call of a run that succeeds: the payload stays valid until the instance's
	// next run or its release, so that the host can do it together with the run's end. The branch hears of an error then.
	Onward(element uint32, payload []byte) Status
	// Fork starts another branch of this invocation.
	Fork(function, element uint32, payload []byte) Status

	// Derive makes another function of the one that runs: the same code with these constants. It gives its number for Forward and Fork.
	// The function may change the bytes meanwhile: they are copied once.
	Derive(constants []byte) (function uint32, st Status)
	// Constants are those with which the function that runs was derived; nil: it was not.
	Constants() []byte

	// Assemble makes a function of a wasm module, with the manifest of the one that runs. It gives its number for Forward and Fork.
	// The function may change the bytes meanwhile: they are copied first. The engine has charged it (AssembleCost).
	Assemble(code []byte) (function uint32, st Status)

	// Get, Put and Atomic act on a window of another element (or this one),
	// with the shard table's key. May block.
	Get(element, window uint32, offset uint64, dst []byte) Status
	// GetNear is Get where the window's memory is mapped at this element; elsewhere it does nothing and answers ErrFar. May block at
	// the first use of a window.
	GetNear(element, window uint32, offset uint64, dst []byte) Status
	Put(element, window uint32, offset uint64, src []byte) Status
	// Atomic: op is AtomicAdd …; width 4 or 8 bytes; result is the old value.
	Atomic(element, window uint32, offset uint64, op AtomicOp, width uint32, operand, compare uint64) (old uint64, st Status)

	// Scratch says that the run wants n bytes of the invocation's scratch, more than it has. The engine owns that memory, and
	// has charged it; short is nil, or an ErrEngineBusy that says why it could not. Then the run gets none,
	// or, with an error, it is stopped as by Tick: to wait for room and start over.
	Scratch(n uint64, short error) (Status, error)

	Log(text []byte)
	NowNs() uint64  // wall clock, Unix nanoseconds
	Random() uint64 // not to be foreseen
	// RemainingNs is the time left until the invocation's deadline.
	RemainingNs() uint64
}

// LimitTeller is what a Host may be besides: the engine tells it which limit it
// refused a host call for, before the function gets ErrLimit.
type LimitTeller interface {
	// OverLimit: field is one of Limits, as in a manifest, and max its value for this run. A manifest
	// can ask for ceiling at most; 0: it is not the manifest that is to be changed.
	OverLimit(field string, max, ceiling uint64)
}

// RangeTeller is what a Host may be besides: an engine whose functions run far away asks it once for what they ask often.
type RangeTeller interface {
	// Range is ShardRows, but nothing is made of what it answers: ok is false if there is no such element, or rows are dealt
	// out in another way. It is the same for all invocations that a Bound serves.
	Range(element uint32) (first, count uint64, ok bool)
	// Near reports whether there may be other elements whose windows are mapped here: if not, GetNear answers ErrFar for each of them.
	Near() bool
}

// AtomicOp is an operation of the Atomic host call. The numbers are the ABI's.
type AtomicOp uint32

const (
	AtomicAdd AtomicOp = 1 + iota
	AtomicSwap
	AtomicCompareSwap
	AtomicAnd
	AtomicOr
	AtomicXor
)
