package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Remote is a peer's memory, as a key refers to it, ready for Get, Put and
// Atomic. Where peer and key allow it (same machine, and a key to all of a
// segment with all the rights a mapping would give) the memory is mapped and an operation is a
// plain copy; elsewhere the owner serves it. A mapping lives as long as the endpoint, or until the owner
// closes the segment.
type Remote struct {
	ep  *Endpoint
	key Key

	// Mapped memory, else nil.
	m        *mapping
	mem      []byte
	gen      *atomic.Uint32 // the owner's word for the key's slot
	writable bool
}

// AtomicOp is an operation on 4 or 8 aligned bytes.
type AtomicOp uint8

const (
	FetchAdd AtomicOp = 1 + iota
	Swap
	CompareSwap
	FetchAnd
	FetchOr
	FetchXor
)

// Import makes a peer's key usable. It asks the peer once, and fails if the
// key does not hold.
func (ep *Endpoint) Import(ctx context.Context, k Key) (*Remote, error) {
	return ep.startImport(ctx, k).Wait(ctx)
}

// Importing is an Import that was started. Exactly one of Wait and Forget ends it.
type Importing struct {
	op Op
	r  *Remote // nil: it failed at once
}

// StartImport starts an Import, so that many keys cost one round trip. Where no more operations
// can be under way, it has failed with ErrBackpressure.
func (ep *Endpoint) StartImport(k Key) Importing { return ep.startImport(nil, k) }

func (ep *Endpoint) startImport(ctx context.Context, k Key) Importing {
	if k.Owner != ep.Incarnation() {
		return Importing{op: Op{err: &PeerError{Peer: ep.String(), Op: "import", Err: fmt.Errorf("%w (%v)", ErrIncarnation, k.Owner)}}}
	}
	rec, err := ep.startOp(ctx, "import", nil)
	if err != nil {
		return Importing{op: Op{err: err}}
	}
	var b [4 + keyRefBytes]byte
	ep.request(ctx, frameImport, rec, k.ref().append(binary.LittleEndian.AppendUint32(b[:0], rec.id())))
	return Importing{rec.op(), &Remote{ep: ep, key: k}}
}

// Poll reports whether the peer has answered, or the Import has failed.
func (i Importing) Poll() bool { return i.op.Poll() }

// Wait drives progress until the Import has ended.
func (i Importing) Wait(ctx context.Context) (*Remote, error) {
	if i.r == nil {
		return nil, i.op.err
	}
	if err := i.op.waitKeep(ctx); err != nil {
		return nil, err
	}
	blob := i.op.rec.blob
	i.r.ep.ops.release(i.op.rec)
	if err := i.r.map_(ctx, blob); err != nil {
		return nil, &PeerError{Peer: i.r.ep.String(), Op: "import", Err: err}
	}
	return i.r, nil
}

// Forget gives the Import up without waiting for its end.
func (i Importing) Forget() { i.op.Forget() }

// Size is the number of bytes the key covers.
func (r *Remote) Size() uint64 { return r.key.Size }

// Key is what Import was given.
func (r *Remote) Key() Key { return r.key }

// Mapped reports whether the memory is mapped here.
func (r *Remote) Mapped() bool { return r.m != nil }

// Endpoint leads to the owner.
func (r *Remote) Endpoint() *Endpoint { return r.ep }

func (r *Remote) errAt(verb string, err error) error {
	return &PeerError{Peer: r.ep.String(), Op: verb, Err: err}
}

// enter checks one operation on mapped memory and keeps the mapping; the
// caller leaves. The key's generation is the owner's word on whether it still holds.
func (r *Remote) enter(verb string, offset, size uint64, need Rights) error {
	switch {
	case r.key.Rights&need != need:
		return r.errAt(verb, ErrRights)
	case offset > r.key.Size || size > r.key.Size-offset:
		return r.errAt(verb, fmt.Errorf("%w: [%d, +%d) of %d", ErrRange, offset, size, r.key.Size))
	case r.ep.dead.Load() != nil:
		return r.ep.lost(verb)
	case !r.m.enter():
		return r.ended(verb)
	case r.gen.Load() != r.key.Generation:
		r.m.leave()
		return r.ended(verb)
	}
	return nil
}

// ended is the error of an operation on memory that is not the peer's any more: the
// endpoint's end takes mappings and generations away too, and the peer's end may be heard of later than they go.
func (r *Remote) ended(verb string) error {
	if r.ep.dead.Load() != nil {
		return r.ep.lost(verb)
	}
	if r.ep.fds.Left() {
		return r.errAt(verb, ErrPeerLost)
	}
	return r.errAt(verb, ErrRevoked)
}

// enterWord is enter for an access of one aligned word, which need not be
// counted; leaveWord says whether it happened in the peer's memory.
func (r *Remote) enterWord(verb string, offset, size uint64, need Rights) error {
	if r.key.Rights&need == need && offset < r.key.Size && size <= r.key.Size-offset && r.ep.dead.Load() == nil &&
		!r.m.gone() && r.gen.Load() == r.key.Generation {
		return nil
	}
	if err := r.enter(verb, offset, size, need); err != nil { // which says why
		return err
	}
	r.m.leave()
	return nil
}

func (r *Remote) leaveWord(verb string) error {
	if !r.m.gone() {
		return nil
	}
	return r.ended(verb)
}

// isWord reports whether n bytes at an offset of page-aligned memory are one
// aligned word.
func isWord(n int, offset uint64) bool { return n == 8 && offset&7 == 0 || n == 4 && offset&3 == 0 }

// Get copies len(dst) bytes from offset. Up to an aligned 8 bytes are read whole; more may be
// torn by a concurrent write.
func (r *Remote) Get(ctx context.Context, dst []byte, offset uint64) error {
	if r.m != nil {
		return r.getMapped(dst, offset)
	}
	return r.startGet(ctx, dst, offset).Wait(ctx)
}

// StartGet starts a Get. dst is the operation's until it ends. Where no more operations can be under way,
// the Op has failed with ErrBackpressure.
func (r *Remote) StartGet(dst []byte, offset uint64) Op {
	if r.m != nil {
		return Op{err: r.getMapped(dst, offset)}
	}
	return r.startGet(nil, dst, offset)
}

func (r *Remote) getMapped(dst []byte, offset uint64) error {
	if isWord(len(dst), offset) {
		if err := r.enterWord("get", offset, uint64(len(dst)), RightRead); err != nil {
			return err
		}
		CopyOut(dst, r.mem[offset:])
		return r.leaveWord("get")
	}
	if err := r.enter("get", offset, uint64(len(dst)), RightRead); err != nil {
		return err
	}
	CopyOut(dst, r.mem[offset:])
	r.m.leave()
	return nil
}

// CopyOut copies from shared memory; aligned 4 and 8 bytes in one access.
func CopyOut(dst, src []byte) {
	if len(dst) == 0 {
		return
	}
	p := unsafe.Pointer(&src[0])
	switch {
	case len(dst) == 8 && uintptr(p)&7 == 0:
		binary.NativeEndian.PutUint64(dst, atomic.LoadUint64((*uint64)(p)))
	case len(dst) == 4 && uintptr(p)&3 == 0:
		binary.NativeEndian.PutUint32(dst, atomic.LoadUint32((*uint32)(p)))
	default:
		copy(dst, src)
	}
}

// CopyIn copies into shared memory; aligned 4 and 8 bytes in one access.
func CopyIn(dst, src []byte) {
	if len(src) == 0 {
		return
	}
	p := unsafe.Pointer(&dst[0])
	switch {
	case len(src) == 8 && uintptr(p)&7 == 0:
		atomic.StoreUint64((*uint64)(p), binary.NativeEndian.Uint64(src))
	case len(src) == 4 && uintptr(p)&3 == 0:
		atomic.StoreUint32((*uint32)(p), binary.NativeEndian.Uint32(src))
	default:
		copy(dst, src)
	}
}

// Access runs fn on the memory itself, where it is mapped (Mapped) and the key and the
// mapping allow what need says; fn must not keep it. What holds for Get and Put of more than a word holds here:
// the peer writes at the same time, and revocation is noticed at the start.
func (r *Remote) Access(need Rights, fn func(mem []byte)) error {
	if r.m == nil || need&^RightRead != 0 && !r.writable {
		return r.errAt("access", fmt.Errorf("%w: it is not mapped here for %v", ErrRights, need))
	}
	if err := r.enter("access", 0, r.key.Size, need); err != nil {
		return err
	}
	defer r.m.leave()
	fn(r.mem[:r.key.Size:r.key.Size])
	return nil
}

// Put copies src to offset and returns when it is there: a Get by anybody sees it.
func (r *Remote) Put(ctx context.Context, src []byte, offset uint64) error {
	if r.m != nil && r.writable {
		return r.putMapped(src, offset)
	}
	return r.startPut(ctx, src, offset).Wait(ctx)
}

// StartPut starts a Put. src must not change until the operation ends.
func (r *Remote) StartPut(src []byte, offset uint64) Op {
	if r.m != nil && r.writable {
		return Op{err: r.putMapped(src, offset)}
	}
	return r.startPut(nil, src, offset)
}

func (r *Remote) putMapped(src []byte, offset uint64) error {
	if isWord(len(src), offset) {
		if err := r.enterWord("put", offset, uint64(len(src)), RightWrite); err != nil {
			return err
		}
		CopyIn(r.mem[offset:], src)
		return r.leaveWord("put")
	}
	if err := r.enter("put", offset, uint64(len(src)), RightWrite); err != nil {
		return err
	}
	CopyIn(r.mem[offset:], src)
	r.m.leave()
	return nil
}

// Atomic performs op on width (4 or 8) bytes at offset, and returns the old
// value. For CompareSwap, operand is stored if the old value equals compare.
// Atomics are atomic among each other, by whatever route they come.
func (r *Remote) Atomic(ctx context.Context, op AtomicOp, width int, offset, operand, compare uint64) (uint64, error) {
	if r.m != nil && r.writable {
		return r.atomicMapped(op, width, offset, operand, compare)
	}
	return r.startAtomic(ctx, op, width, offset, operand, compare).Value(ctx)
}

// StartAtomic starts an Atomic; Op.Value has the old value.
func (r *Remote) StartAtomic(op AtomicOp, width int, offset, operand, compare uint64) Op {
	if r.m != nil && r.writable {
		v, err := r.atomicMapped(op, width, offset, operand, compare)
		return Op{value: v, err: err}
	}
	return r.startAtomic(nil, op, width, offset, operand, compare)
}

func (r *Remote) atomicMapped(op AtomicOp, width int, offset, operand, compare uint64) (uint64, error) {
	if err := r.enterWord("atomic", offset, uint64(width), RightAtomic); err != nil {
		return 0, err
	}
	v, st := doAtomic(r.mem[offset:], op, width, operand, compare)
	if st != statusOK {
		return 0, r.errAt("atomic", st.err())
	}
	return v, r.leaveWord("atomic")
}

// LocalAtomic performs an atomic on an element's own segment, at mem's start. It is atomic with
// those of peers.
func LocalAtomic(mem []byte, op AtomicOp, width int, operand, compare uint64) (uint64, error) {
	if len(mem) < width {
		return 0, ErrRange
	}
	v, st := doAtomic(mem, op, width, operand, compare)
	return v, st.err()
}

// doAtomic performs an atomic on local or mapped memory of at least width bytes.
func doAtomic(mem []byte, op AtomicOp, width int, operand, compare uint64) (old uint64, st status) {
	if width != 4 && width != 8 || op < FetchAdd || op > FetchXor {
		return 0, statusProtocol
	}
	p := unsafe.Pointer(&mem[0])
	if uintptr(p)&uintptr(width-1) != 0 {
		return 0, statusAlign
	}
	if width == 4 {
		return uint64(atomic32((*uint32)(p), op, uint32(operand), uint32(compare))), statusOK
	}
	return atomic64((*uint64)(p), op, operand, compare), statusOK
}

func atomic64(p *uint64, op AtomicOp, operand, compare uint64) uint64 {
	switch op {
	case FetchAdd:
		return atomic.AddUint64(p, operand) - operand
	case Swap:
		return atomic.SwapUint64(p, operand)
	case FetchAnd:
		return atomic.AndUint64(p, operand)
	case FetchOr:
		return atomic.OrUint64(p, operand)
	}
	for {
		old := atomic.LoadUint64(p)
		next := old ^ operand
		if op == CompareSwap {
			if next = operand; old != compare {
				return old
			}
		}
		if atomic.CompareAndSwapUint64(p, old, next) {
			return old
		}
	}
}

func atomic32(p *uint32, op AtomicOp, operand, compare uint32) uint32 {
	switch op {
	case FetchAdd:
		return atomic.AddUint32(p, operand) - operand
	case Swap:
		return atomic.SwapUint32(p, operand)
	case FetchAnd:
		return atomic.AndUint32(p, operand)
	case FetchOr:
		return atomic.OrUint32(p, operand)
	}
	for {
		old := atomic.LoadUint32(p)
		next := old ^ operand
		if op == CompareSwap {
			if next = operand; old != compare {
				return old
			}
		}
		if atomic.CompareAndSwapUint32(p, old, next) {
			return old
		}
	}
}
