package fabric

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"
)

// Words of memory that elements share: what a load, a store or an atomic does there.

// AtomicOp is an operation on 4 or 8 aligned bytes: FetchAdd and the others below make one. Of 4 bytes the operands' low halves count.
type AtomicOp struct {
	Kind             AtomicKind
	Operand, Compare uint64 // Compare is a CompareSwap's
}

// AtomicKind is what an AtomicOp does. The numbers are the wire's.
type AtomicKind uint8

const (
	KindFetchAdd AtomicKind = 1 + iota
	KindSwap
	KindCompareSwap
	KindFetchAnd
	KindFetchOr
	KindFetchXor
	KindFetchMinInt
	KindFetchMinUint
	KindFetchMinFloat
	KindFetchMaxInt
	KindFetchMaxUint
	KindFetchMaxFloat
	KindFetchAddFloat

	lastKind = KindFetchAddFloat
)

// FetchAdd adds to a word.
func FetchAdd(n uint64) AtomicOp { return AtomicOp{Kind: KindFetchAdd, Operand: n} }

// Swap stores a word.
func Swap(word uint64) AtomicOp { return AtomicOp{Kind: KindSwap, Operand: word} }

// CompareSwap stores a word if the old one is there. It has been stored if the value that comes back is old.
func CompareSwap(old, word uint64) AtomicOp {
	return AtomicOp{Kind: KindCompareSwap, Operand: word, Compare: old}
}

// FetchAnd keeps the bits of a mask.
func FetchAnd(mask uint64) AtomicOp { return AtomicOp{Kind: KindFetchAnd, Operand: mask} }

// FetchOr sets the bits of a mask.
func FetchOr(mask uint64) AtomicOp { return AtomicOp{Kind: KindFetchOr, Operand: mask} }

// FetchXor flips the bits of a mask.
func FetchXor(mask uint64) AtomicOp { return AtomicOp{Kind: KindFetchXor, Operand: mask} }

// FetchMinInt keeps the smaller of a signed word and n.
func FetchMinInt(n int64) AtomicOp { return AtomicOp{Kind: KindFetchMinInt, Operand: uint64(n)} }

// FetchMinUint keeps the smaller of a word and n.
func FetchMinUint(n uint64) AtomicOp { return AtomicOp{Kind: KindFetchMinUint, Operand: n} }

// FetchMaxInt keeps the larger of a signed word and n.
func FetchMaxInt(n int64) AtomicOp { return AtomicOp{Kind: KindFetchMaxInt, Operand: uint64(n)} }

// FetchMaxUint keeps the larger of a word and n.
func FetchMaxUint(n uint64) AtomicOp { return AtomicOp{Kind: KindFetchMaxUint, Operand: n} }

// FetchFloat32 makes one of the operations on floating-point words (KindFetchMinFloat, KindFetchMaxFloat, KindFetchAddFloat) of 4 bytes; FetchFloat64 of 8. NaN
// is neither smaller nor larger than anything, so the word stays.
func FetchFloat32(kind AtomicKind, v float32) AtomicOp {
	return AtomicOp{Kind: kind, Operand: uint64(math.Float32bits(v))}
}

// FetchFloat64 is described at FetchFloat32.
func FetchFloat64(kind AtomicKind, v float64) AtomicOp {
	return AtomicOp{Kind: kind, Operand: math.Float64bits(v)}
}

// isWord reports whether n bytes at an offset of page-aligned memory are one
// aligned word.
func isWord(n int, offset uint64) bool { return n == 8 && offset&7 == 0 || n == 4 && offset&3 == 0 }

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
		copyChunks(dst, src)
	}
}

// copyChunk is how much is copied without a break. Go's collector waits for each.
const copyChunk = 256 << 10

func copyChunks(dst, src []byte) {
	n := min(len(dst), len(src))
	for n > copyChunk {
		copy(dst[:copyChunk], src)
		dst, src, n = dst[copyChunk:], src[copyChunk:], n-copyChunk
	}
	copy(dst, src[:n])
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
		copyChunks(dst, src)
	}
}

// storeWord stores an aligned word of 4 or 8 bytes.
func storeWord(mem []byte, width int, v uint64) {
	if width == 8 {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[0])), v)
		return
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&mem[0])), uint32(v))
}

// LocalAtomic performs an atomic on an element's own segment, at mem's start. It is atomic with
// those of peers.
func LocalAtomic(mem []byte, op AtomicOp, width int) (uint64, error) {
	if len(mem) < width {
		return 0, ErrRange
	}
	v, st := doAtomic(mem, op, width)
	return v, st.err()
}

// doAtomic performs an atomic on local or mapped memory of at least width bytes.
func doAtomic(mem []byte, op AtomicOp, width int) (old uint64, st status) {
	if width != 4 && width != 8 || op.Kind < KindFetchAdd || op.Kind > lastKind {
		return 0, statusProtocol
	}
	p := unsafe.Pointer(&mem[0])
	if uintptr(p)&uintptr(width-1) != 0 {
		return 0, statusAlign
	}
	if width == 4 {
		return uint64(atomic32((*uint32)(p), op.Kind, uint32(op.Operand), uint32(op.Compare))), statusOK
	}
	return atomic64((*uint64)(p), op.Kind, op.Operand, op.Compare), statusOK
}

func atomic64(p *uint64, kind AtomicKind, operand, compare uint64) uint64 {
	switch kind {
	case KindFetchAdd:
		return atomic.AddUint64(p, operand) - operand
	case KindSwap:
		return atomic.SwapUint64(p, operand)
	case KindFetchAnd:
		return atomic.AndUint64(p, operand)
	case KindFetchOr:
		return atomic.OrUint64(p, operand)
	}
	for {
		old := atomic.LoadUint64(p)
		next := changed64(kind, old, operand, compare)
		if next == old || atomic.CompareAndSwapUint64(p, old, next) {
			return old
		}
	}
}

// changed64 is what an operation without an instruction of its own makes of a word.
func changed64(kind AtomicKind, old, operand, compare uint64) uint64 {
	was, by := math.Float64frombits(old), math.Float64frombits(operand)
	takes := false // the operand takes the word's place
	switch kind {
	case KindFetchXor:
		return old ^ operand
	case KindFetchAddFloat:
		return math.Float64bits(was + by)
	case KindCompareSwap:
		takes = old == compare
	case KindFetchMinInt:
		takes = int64(operand) < int64(old)
	case KindFetchMinUint:
		takes = operand < old
	case KindFetchMinFloat:
		takes = by < was
	case KindFetchMaxInt:
		takes = int64(operand) > int64(old)
	case KindFetchMaxUint:
		takes = operand > old
	case KindFetchMaxFloat:
		takes = by > was
	}
	if takes {
		return operand
	}
	return old
}

func atomic32(p *uint32, kind AtomicKind, operand, compare uint32) uint32 {
	switch kind {
	case KindFetchAdd:
		return atomic.AddUint32(p, operand) - operand
	case KindSwap:
		return atomic.SwapUint32(p, operand)
	case KindFetchAnd:
		return atomic.AndUint32(p, operand)
	case KindFetchOr:
		return atomic.OrUint32(p, operand)
	}
	for {
		old := atomic.LoadUint32(p)
		next := changed32(kind, old, operand, compare)
		if next == old || atomic.CompareAndSwapUint32(p, old, next) {
			return old
		}
	}
}

// changed32 is what an operation without an instruction of its own makes of a word.
func changed32(kind AtomicKind, old, operand, compare uint32) uint32 {
	was, by := math.Float32frombits(old), math.Float32frombits(operand)
	takes := false // the operand takes the word's place
	switch kind {
	case KindFetchXor:
		return old ^ operand
	case KindFetchAddFloat:
		return math.Float32bits(was + by)
	case KindCompareSwap:
		takes = old == compare
	case KindFetchMinInt:
		takes = int32(operand) < int32(old)
	case KindFetchMinUint:
		takes = operand < old
	case KindFetchMinFloat:
		takes = by < was
	case KindFetchMaxInt:
		takes = int32(operand) > int32(old)
	case KindFetchMaxUint:
		takes = operand > old
	case KindFetchMaxFloat:
		takes = by > was
	}
	if takes {
		return operand
	}
	return old
}
