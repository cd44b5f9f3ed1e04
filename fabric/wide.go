package fabric

import (
	"context"
	"encoding/binary"
	"unsafe"

	"github.com/wherry-fabric/wherry/internal/wide"
)

// Compare-and-swap of 16 bytes: a frame of its own, which an element that showed featureWide knows.

const wideBytes = 16

// Wide is 16 bytes of memory: two words in the machine's order, the one at the lower address first.
type Wide [2]uint64

// CompareSwapWide stores word in the 16 bytes at offset, a multiple of 16, if they hold old, and returns what they held: it has been stored if that is old. It takes the
// right to atomics, and is atomic with all of them. ErrNoWide: this element's processor, or the peer, cannot do it.
func (r *Remote) CompareSwapWide(ctx context.Context, offset uint64, old, word Wide) (Wide, error) {
	if m, yes := r.route.(*mapped); yes && m.writable {
		return m.compareSwapWide(offset, old, word)
	}
	if r.ep.peer.hello.features&featureWide == 0 {
		return Wide{}, r.errAt("atomic", ErrNoWide)
	}
	was := make([]byte, wideBytes) // the operation's, should the context end
	rec, err := r.ep.startOp(ctx, "atomic", was)
	if err != nil {
		return Wide{}, err
	}
	b := appendAccess(make([]byte, 0, accessBytes+2*wideBytes), rec.id(), r.key.ref(), offset, wideBytes)
	b = word.append(old.append(b))
	r.ep.request(ctx, frameWide, rec, b)
	if err := rec.op().Wait(ctx); err != nil {
		return Wide{}, err
	}
	return decodeWide(was), nil
}

func (w Wide) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, w[0]), w[1])
}

func decodeWide(b []byte) Wide {
	return Wide{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

func (m *mapped) compareSwapWide(offset uint64, old, word Wide) (Wide, error) {
	if err := m.enter("atomic", offset, wideBytes, RightAtomic); err != nil {
		return Wide{}, err
	}
	defer m.of.leave()
	was, err := doWide(m.mem[offset:], old, word)
	if err != nil {
		return Wide{}, m.r.errAt("atomic", err)
	}
	return was, nil
}

// doWide swaps in local or mapped memory of at least 16 bytes.
func doWide(mem []byte, old, word Wide) (Wide, error) {
	p := unsafe.Pointer(&mem[0])
	if uintptr(p)%wideBytes != 0 {
		return Wide{}, ErrAlign
	}
	if !wide.Supported() {
		return Wide{}, ErrNoWide
	}
	return wide.CompareSwap(p, old, word), nil
}

// serveWide answers a peer's CompareSwapWide.
func (ep *Endpoint) serveWide(op uint32, key keyRef, offset, size uint64, rest []byte) error {
	if len(rest) != 2*wideBytes || size != wideBytes {
		return short(frameWide, accessBytes+len(rest))
	}
	var was Wide
	at, st := ep.el.keys.enter(key, offset, size, RightAtomic) // such keys are to memory that has bytes only
	if st == statusOK {
		var err error
		if was, err = doWide(at.mem, decodeWide(rest), decodeWide(rest[wideBytes:])); err == ErrAlign {
			st = statusAlign
		} else if err != nil {
			st = statusProtocol
		}
		ep.el.keys.leave()
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	b := binary.LittleEndian.AppendUint32(ep.scratch[:0], op)
	b = binary.LittleEndian.AppendUint32(b, uint32(st))
	ep.sayLocked(frameWideDone, was.append(b), nil)
	return nil
}
