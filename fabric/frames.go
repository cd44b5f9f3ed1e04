package fabric

import "errors"

// The fabric's own frames. docs/wire.md has their layouts.
const (
	frameFence FrameID = iota // never sent: a mark in an outbox
	framePing
	framePong
	frameCredit
	frameGoodbye
	frameImport
	frameImported
	frameUnmap
	frameGet
	frameGetData
	frameGetDone
	framePut
	framePutData
	framePutDone
	frameAtomic
	frameAtomicDone
	frameFlush
	frameFlushed
	frameNarrow
	frameNarrowed
	frameUnhandled
	frameWide // behind featureWide
	frameWideDone
	framePause // behind featurePause
)

// unhandledBytes is how much of a message without a handler goes back to its sender: what a layer needs to
// find out whose it was.
const unhandledBytes = 32

// FirstReservedID is the lowest id of active messages that travel on reserved
// credits: answers, cancellations, requests for code. Below it a message is
// charged to the credit that the receiver gave. The class is a matter of the
// id, so that both sides agree on what a message costs.
const FirstReservedID FrameID = 2048

// MaxMessageBytes is the largest active message, head and body together. What
// is larger belongs into a segment, and its key into the message.
const MaxMessageBytes = 64 << 10

// Flags of bulk data frames.
const (
	bulkLast  = 1 << 0 // the transfer's last fragment
	bulkAbort = 1 << 1 // the sender gave up; no data
)

// cost is what a message of n bytes takes of the receiver's window: its bytes
// and what is kept beside them.
func cost(n int) uint64 { return uint64(n+64+63) &^ 63 }

var (
	// ErrLinkFull is a transport's word that a queue has no room for a frame.
	ErrLinkFull = errors.New("fabric: link full")
	// ErrLinkClosed is a transport's word that the link is gone.
	ErrLinkClosed = errors.New("fabric: link closed")
)
