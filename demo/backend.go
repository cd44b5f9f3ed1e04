// Package demo asks questions of a graph that lies in four pieces on four
// elements, and answers each in four ways: by functions that travel to the
// data, and by three baselines that read the data from afar. It measures all
// of them in one run and holds every answer against one computed here.
//
// # Model
//
// A [Layout] cuts a graph, or the pointer chase's permutation, into blocks of
// vertices, one an element; [GraphShards] and [ChaseShards] give the bytes of each
// element's windows. A [Backend] reaches them: it is what the fabric looks like from here. The
// baselines ([Baseline]) are written once, over its reads; the injected way is [Backend.Inject].
// [Run] puts them side by side.
//
// # Ownership
//
// Nothing here keeps a caller's buffer after the call that got it. A Backend is used by one
// goroutine at a time.
//
// # Errors
//
// What comes back from an element is checked before it is used: an offset out
// of range, a vertex that does not exist or a wrong answer is an error, never a panic.
package demo

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/demo/debgraph"
)

// Window numbers the pieces of memory that an element lends.
type Window uint8

// The windows of a graph's block, all little-endian. Row i of the block is
// targets[offsets[i]:offsets[i+1]]; offsets count from the block's own start.
const (
	FwdOffsets Window = iota // u64, rows+1 of them
	FwdTargets               // u32 vertex ids of the whole graph
	RevOffsets               // as FwdOffsets, for who needs a vertex
	RevTargets
	// GraphWindows is how many windows a graph's block has.
	GraphWindows

	// ChaseNext is the only window of a permutation's block: u64, rows of them,
	// each the index that follows.
	ChaseNext Window = 0
)

// Read is a one-sided read of len(Dst) bytes at Offset of an element's window.
type Read struct {
	Element int
	Window  Window
	Offset  uint64
	Dst     []byte
}

// Op is what an injected function does.
type Op uint8

const (
	// OpClosure: all vertices reachable from Starts along Dir, the starts
	// among them, ascending, in IDs.
	OpClosure Op = iota
	// OpPath: a shortest path along Needs from Starts[0] to Goal in IDs, both ends
	// included; no IDs if there is none.
	OpPath
	// OpDependents: for each of at most MaxStarts Starts, how many other vertices reach it
	// along Needs, in Counts. All starts are followed at once, one bit each.
	OpDependents
	// OpMostDirect: the Limit vertices with the most direct dependents in IDs, their
	// numbers in Counts: by falling number, then ascending id.
	OpMostDirect
	// OpInside: how many vertices need, directly, nothing outside Set, in Counts[0].
	OpInside
	// OpChase: the index that Hops steps of ChaseNext lead to from Starts[0], in Counts[0].
	OpChase
)

// MaxStarts is how many starts OpDependents takes: one bit of a word each.
const MaxStarts = 64

// Call is one injection.
type Call struct {
	Op     Op
	Dir    debgraph.Direction
	Starts []uint32
	Goal   uint32
	Limit  int
	Hops   uint64
	// Set has one bit a vertex: bit v%64 of Set[v/64].
	Set []uint64
}

// Reply is what comes back.
type Reply struct {
	IDs    []uint32
	Counts []uint64
	// Chain is how many messages followed one another at most from the call to
	// the reply, both included: 2 if the called element answers by itself. An emulated
	// round trip is charged by it.
	Chain int
	// Trips is how often the client waited, one wait after the other; 0 is once.
	Trips uint64
}

// Traffic is what travelled since a Backend was made. The bytes are those of
// the fabric's frames, headers and all, where it sends frames; a read that the
// transport does without one counts as a message and its payload.
type Traffic struct {
	Messages   uint64
	ToClient   uint64 // bytes
	FromClient uint64 // bytes
	Between    uint64 // bytes that elements sent each other
}

func (t Traffic) since(earlier Traffic) Traffic {
	return Traffic{t.Messages - earlier.Messages, t.ToClient - earlier.ToClient, t.FromClient - earlier.FromClient, t.Between - earlier.Between}
}

// Backend reaches the elements of one layout. The context bounds every call.
type Backend interface {
	// Inject sends a function to the data and waits for its answer. The reply
	// is the caller's.
	Inject(ctx context.Context, call *Call) (*Reply, error)
	// Get reads and waits.
	Get(ctx context.Context, r Read) error
	// GetMany starts all reads and waits for all of them. It may bound how many
	// are under way; it fails if one of them fails.
	GetMany(ctx context.Context, reads []Read) error
	// Traffic is the sum so far, once what is under way has arrived. Asking is
	// not part of it.
	Traffic(ctx context.Context) (Traffic, error)
}

// ErrBadData says that an element's memory holds what cannot be: it is not what was
// put there, or a read went wrong.
var ErrBadData = errors.New("demo: an element's data is damaged")
