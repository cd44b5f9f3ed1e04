package xrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ChaseArgs is the payload that starts Chase on the element that holds row
// start (any other forwards it there): depth steps row = table[row].
func ChaseArgs(start, depth uint64) []byte {
	b := make([]byte, 0, 16)
	b = binary.LittleEndian.AppendUint64(b, start)
	return binary.LittleEndian.AppendUint64(b, depth)
}

// ChaseResult is the row that a reply of Chase names.
func ChaseResult(reply []byte) (row uint64, err error) {
	if len(reply) != 8 {
		return 0, fmt.Errorf("%w: chase replies with 8 bytes, these are %d", ErrReply, len(reply))
	}
	return binary.LittleEndian.Uint64(reply), nil
}

// ErrReply says that bytes are not what a ready function replies.
var ErrReply = errors.New("xrdma: not a reply of this function")

// Direction is which edges a graph function follows.
type Direction uint32

const (
	Forward  Direction = 0 // along the edges
	Backward Direction = 1 // against them
)

// MaxClosureDepth is the largest ClosureArgs.MaxDepth.
const MaxClosureDepth = 254

const (
	closureRecordBytes = 20 // passed_t of closure.c
	closureTrail       = 1 << 31
)

// ClosureArgs are the parameters of Closure, and of the function reach.
type ClosureArgs struct {
	Direction Direction
	MaxDepth  uint32 // edges away at most, up to MaxClosureDepth; 0: any distance
	// Trail ends the list of each branch with how many messages between elements
	// led to it, one after the other; see CutTrail. The function reach has no list.
	Trail    bool
	Vertices []uint32
}

// Encode is the payload that starts a closure. It goes to every element; each
// takes the vertices that it holds.
func (a ClosureArgs) Encode() []byte {
	var trail uint32
	if a.Trail {
		trail = closureTrail
	}
	entry := 4
	if a.MaxDepth != 0 {
		entry = 8
	}
	b := make([]byte, 0, closureRecordBytes+entry*len(a.Vertices))
	le := binary.LittleEndian
	for _, v := range []uint32{uint32(a.Direction), a.MaxDepth, closureRecordBytes, uint32(entry * len(a.Vertices)), trail} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range a.Vertices {
		b = le.AppendUint32(b, v)
		if entry == 8 {
			b = le.AppendUint32(b, 0) // its depth
		}
	}
	return b
}

// AppendVertices appends the vertices of one part of a closure's result.
func AppendVertices(list []uint32, part []byte) ([]uint32, error) {
	if len(part)%4 != 0 {
		return list, fmt.Errorf("%w: a list of u32 vertices has %d bytes", ErrReply, len(part))
	}
	for ; len(part) > 0; part = part[4:] {
		list = append(list, binary.LittleEndian.Uint32(part))
	}
	return list, nil
}

// CutTrail takes the number at the end of the last part of a branch whose closure was started with Trail.
func CutTrail(part []byte) (rest []byte, messages uint32, err error) {
	n := len(part) - 4
	if n < 0 || n%4 != 0 {
		return nil, 0, fmt.Errorf("%w: a list of u32 vertices and the number that ends it have %d bytes", ErrReply, len(part))
	}
	return part[:n], binary.LittleEndian.Uint32(part[n:]), nil
}
