package fabric

import "errors"

// The fabric's own frames. docs/wire.md has their layouts.
const (
	framePing FrameID = 1 + iota
	framePong
	frameCredit
	frameGoodbye
	frameImport
	frameImported
	frameUnmap
	frameUnmapped
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
)

var (
	// ErrLinkFull is a transport's word that a queue has no room for a frame.
	ErrLinkFull = errors.New("fabric: link full")
	// ErrLinkClosed is a transport's word that the link is gone.
	ErrLinkClosed = errors.New("fabric: link closed")
)
