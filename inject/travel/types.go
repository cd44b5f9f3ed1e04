package travel

import (
	"encoding/hex"
	"fmt"
)

// Instant is a point in time on the caller's monotonic clock, in nanoseconds.
// The core never reads a clock: every event says when it happens.
type Instant int64

// Peer numbers one endpoint to one incarnation of a peer. The caller gives the
// numbers (PeerUp) and may reuse one after PeerLost. Numbers are small: they
// index a slice.
type Peer uint32

// Self is the element itself: a root, a forward or a fork may name it.
const Self Peer = 0

// ID is the SHA-256 of an object: a function image or a shard table. The zero
// ID means none.
type ID [32]byte

// IsZero reports whether id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// String is the first 8 bytes in hexadecimal, enough for people.
func (id ID) String() string { return hex.EncodeToString(id[:8]) }

// FutureID names a future at its origin: it is the invocation's sequence
// number, never used twice in one incarnation.
type FutureID uint64

// InvocationID names an invocation everywhere.
type InvocationID struct {
	Origin uint64 // incarnation of the element that started it
	Seq    uint64 // 40 bits
}

func (id InvocationID) String() string { return fmt.Sprintf("%016x/%d", id.Origin, id.Seq) }

// Trace is a W3C trace context: it goes along with every branch.
type Trace struct {
	TraceID [16]byte
	Span    [8]byte
	Flags   byte
}

// PeerInfo is what the caller has authenticated about a peer.
type PeerInfo struct {
	Incarnation uint64 // of the peer; never 0
	Name        string // for error texts
	Principal   string // the peer's name here, for error texts
	// Member peers may forward on behalf of another origin, and get every
	// CANCEL of ours.
	Member bool
	// Injector peers may be the origin of functions that run here.
	Injector bool
	// Foreign peers show an incarnation that is another principal's: they are not
	// found by it, and are neither Member nor Injector.
	Foreign bool
}

// Kind is a message's kind. The caller gives each its own frame id, so that
// the kind costs no byte in the message.
type Kind uint8

const (
	KindInject  Kind = iota // a branch arrives
	KindDone                // a branch has ended, to its origin
	KindPart                // a part of a branch's result
	KindList                // a part of a branch's list of forks
	KindAck                 // which transfers were accepted and released
	KindNeed                // asks for chunks of an object
	KindCode                // one chunk of an object
	KindCancel              // end an invocation
	KindFree                // an invocation is complete: free what it left
	KindHold                // this element keeps state of an invocation, or a function that it has made
	KindLost                // a custodian reports a branch as lost
	KindRefused             // a transfer was not taken, to its sender
	KindRoom                // what an invocation has to do with room that is short, to its origin
	KindPace                // an origin's branches are to wait for a while, or may go on
	Kinds                   // how many there are
)

var kindNames = [Kinds]string{"INJECT", "DONE", "PART", "LIST", "ACK", "NEED", "CODE", "CANCEL", "FREE", "HOLD", "LOST", "REFUSED", "ROOM", "PACE"}

func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Reserved says which class a kind travels on. Injections and parts wait for
// credit; everything that ends or frees something must not.
func (k Kind) Reserved() bool { return k != KindInject && k != KindPart }

// Store holds objects by content. The core calls it inside its own calls, so
// under the caller's mutex.
type Store interface {
	// Get returns an object's bytes, nil if it is not here. They are read
	// before the core's call returns, and must not change.
	Get(id ID) []byte
	// Pin keeps an object until as many Unpins; false if it is not here.
	Pin(id ID) bool
	Unpin(id ID)
}

// Effects is what the core has done. All methods are called from inside a call
// of the core, so under the caller's mutex; none may call the core. Slices are
// valid during the call only.
type Effects interface {
	// Send queues one message whose bytes are head followed by body, on the
	// class that kind.Reserved says. It never blocks. An error that Is ErrBackpressure means that nothing was sent and
	// there is no room; any other that the endpoint is gone, and PeerLost will follow.
	Send(to Peer, kind Kind, head, body []byte) error
	// Part delivers one piece of a branch's result at the origin: parts by
	// their index, then the reply (last) with the number of parts as its index.
	// Pieces of different branches, and parts, come in any order, each once.
	Part(f FutureID, branch uint64, index uint32, last bool, data []byte)
	// Complete ends a future: the only call for it, and the last one.
	Complete(f FutureID, o *Outcome)
	// Stop asks the runtime to stop a run; it still calls Finish for it. It may
	// be the run that the core's call is about.
	Stop(r *Run)
	// FreeState hands back what HoldState gave, of each worker: no run of this invocation
	// uses it any more.
	FreeState(id InvocationID, state any)
	// Reserve takes the room that a run waits for (Core.Await), if there is enough. Then the run begins soon, or
	// Unreserve gives it back.
	Reserve(r *Run) Room
	// Freeing reports whether room that was given back is still being cleared: Core.RoomFreed comes then.
	Freeing() bool
	// Unreserve says that a run which waited for room or for its program will not begin: whatever User keeps for it, and what Reserve took, can go.
	Unreserve(r *Run)
	// Retire hands back a binding's Data: no run uses it any more.
	Retire(data any)
	// Keep says that the branch in the message that Recv is given is held beyond the bounds of what waits here: the
	// sender's credit for the message is to be withheld until Release gets what Keep returned. It is called during Recv only.
	Keep() (credit any)
	// Release gives a sender its credit back.
	Release(credit any)
	// Object hands over an object that arrived, unverified. The caller copies
	// it, checks that it hashes to id, puts it in the Store and calls
	// ObjectArrived, or else ObjectFailed.
	Object(id ID, data []byte)
	// Sever says that a peer takes nothing any more, not even on the reserved
	// class: the caller closes the endpoint and then calls PeerLost.
	Sever(p Peer, err error)
}

// Outcome is how a future ended.
type Outcome struct {
	Err      error  // nil: every branch ended well and all results were delivered
	Branches uint32 // branches that finished
	// Reply is the only branch's, if HasReply; Part was not called for it.
	Reply    []byte
	HasReply bool
}

// Root is one branch that a future starts with.
type Root struct {
	To      Peer
	Worker  uint8 // there
	Payload []byte
}

// StartArgs say what to start. The core keeps no slice of them.
type StartArgs struct {
	Binding  *Binding
	Roots    []Root  // at least one; branch ids are 0, 1, …
	Deadline Instant // must be after now; at most Limits.MaxTime away
	// Hops bounds the forwards and forks on any path of the tree; 0 means DefaultHops, and MaxHops no bound.
	Hops uint16
	// Branches bounds the tree: so many in all. 0 means no bound but that at most Limits.Branches, which is also the most that can be given, are
	// under way at once; the element forgets those that have ended.
	Branches uint32
	// Stateful: the function keeps scratch at the elements it visits, so its
	// branches run one at a time at each.
	Stateful bool
	// Workers is how many of the invocation's branches run at once at an element, each as a worker that keeps scratch of its own; 0 means one.
	Workers uint8
	Trace   *Trace // nil: none
	// Partly lets a start that finds no room for all roots go on later.
	Partly bool
	Sent   int // set by Start and Resume: so many of the roots are on their way
	born   int64
}

// End is how a run of a branch ended (Core.Finish).
type End struct {
	Code   Code   // CodeOK, or why it failed
	Status int32  // the function's own status, with CodeFunction
	Text   string // for people; cut to maxText bytes
	// Result is the reply, if HasResult: replying nothing and not replying differ.
	Result    []byte
	HasResult bool
}
