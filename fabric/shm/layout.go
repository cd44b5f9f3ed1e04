package shm

import (
	"sync/atomic"
	"unsafe"
)

// This file is the memory layout, and the only one with unsafe: bytes of a
// mapping are seen here as the structures below, after a check that they lie
// inside it, and from then on the compiler's bounds checks hold. docs/shm.md
// has the same in tables.

const (
	slotBytes    = 64
	inlineBytes  = 56
	controlBytes = 2048 // of each direction, in the first page
	headerBytes  = 2 * controlBytes
	boardWords   = 64
	boardBytes   = 4096

	// dirForward carries frames from the initiator, dirBack to it.
	dirForward = 0
	dirBack    = 1
)

// slot is one frame: its word, then the body or where the body is.
type slot struct {
	word atomic.Uint64 // sequence<<32 | id<<20 | length
	body [inlineBytes]byte
}

// control is what producer and consumer of one direction say to each other.
// The parts are 128 bytes apart: processors fetch cache lines in pairs.
type control struct {
	attention atomic.Uint32 // consumer: 0 it polls this ring, 1 it wants to be rung
	_         [124]byte

	usedSlots atomic.Uint64 // consumer: slots taken since the start
	usedData  atomic.Uint64 // consumer: data bytes given back since the start
	_         [112]byte

	wantRoom atomic.Uint32 // producer sets, consumer clears: ring me when there is room
	fdsSent  atomic.Uint32 // producer: descriptors sent on the socket since the start
	bye      atomic.Uint32 // producer: why it will close the socket
	_        [116]byte
}

// Values of control.bye.
const (
	byeNone   = iota
	byeClosed // its owner closed the link
	byeBroken // it saw us break the protocol
)

// board is where peers of one user leave word for an element: which links to
// look at, and whether to wake it.
type boardPage struct {
	armed   atomic.Uint32 // the element sleeps; the side that swaps 1 for 0 writes the eventfd
	_       [124]byte
	summary atomic.Uint64 // bit i: words[i] has bits
	_       [120]byte
	words   [boardWords]atomic.Uint64 // bit j of words[i]: look at link 64*i+j
}

// size is the length of a link's memory.
func (g geometry) size() int { return headerBytes + 2*g.slots*slotBytes + 2*g.dataBytes }

// half is one direction of a link's memory.
type half struct {
	ctl   *control
	slots []slot
	data  []byte
}

// cut finds direction dir in mem, which must be g.size() bytes of a mapping.
func (g geometry) cut(mem []byte, dir int) half {
	mem = mem[:g.size():g.size()]
	slots := mem[headerBytes+dir*g.slots*slotBytes:][:g.slots*slotBytes]
	data := mem[headerBytes+2*g.slots*slotBytes+dir*g.dataBytes:][:g.dataBytes:g.dataBytes]
	return half{
		ctl:   (*control)(aligned(mem[dir*controlBytes:][:controlBytes])),
		slots: unsafe.Slice((*slot)(aligned(slots)), g.slots),
		data:  data,
	}
}

// boardAt sees mem as a board.
func boardAt(mem []byte) *boardPage { return (*boardPage)(aligned(mem[:boardBytes])) }

// aligned is b's address, which atomics need to be a multiple of 8; every
// offset above is one of 64, and mappings begin on a page.
func aligned(b []byte) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%8 != 0 {
		panic("shm: a mapping does not begin on a multiple of 8")
	}
	return p
}

// The structures have the sizes that docs/shm.md promises.
const (
	_ = -(unsafe.Sizeof(slot{}) ^ slotBytes)
	_ = -(unsafe.Sizeof(control{}) ^ 384)
	_ = -(unsafe.Sizeof(boardPage{}) ^ 768)
)
