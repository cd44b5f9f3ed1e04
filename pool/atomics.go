package pool

import (
	"context"
	"fmt"
	"math"

	"github.com/wherry-fabric/wherry/fabric"
)

// Number is what has atomics of OpenFAM's.
type Number interface {
	int32 | int64 | uint32 | uint64 | float32 | float64
}

// Integer is a Number with bits.
type Integer interface {
	int32 | int64 | uint32 | uint64
}

// Atomics are OpenFAM's atomics on the numbers of one type in a Memory: each at an offset that is a multiple of its size, little-endian. What OpenFAM
// has with and without the old value (fam_fetch_add, fam_add) is one here.
type Atomics[T Number] struct{ m *Memory }

// AtomicsOf gives a region or an item the atomics of a type: pool.AtomicsOf[int32](&region.Memory).
func AtomicsOf[T Number](m *Memory) Atomics[T] { return Atomics[T]{m} }

// bits and number turn a number into its word and back.
func bits[T Number](v T) uint64 {
	switch v := any(v).(type) {
	case float32:
		return uint64(math.Float32bits(v))
	case float64:
		return math.Float64bits(v)
	case int32:
		return uint64(uint32(v))
	case int64:
		return uint64(v)
	case uint32:
		return uint64(v)
	}
	return any(v).(uint64)
}

func number[T Number](w uint64) (v T) {
	switch p := any(&v).(type) {
	case *float32:
		*p = math.Float32frombits(uint32(w))
	case *float64:
		*p = math.Float64frombits(w)
	case *int32:
		*p = int32(w)
	case *int64:
		*p = int64(w)
	case *uint32:
		*p = uint32(w)
	case *uint64:
		*p = w
	}
	return v
}

// width is how many bytes a number has.
func width[T Number]() int {
	var v T
	switch any(v).(type) {
	case int32, uint32, float32:
		return 4
	}
	return 8
}

// kind is which of three operations is the type's: on signed, unsigned or floating-point words.
func kind[T Number](signed, unsigned, float fabric.AtomicKind) fabric.AtomicKind {
	var v T
	switch any(v).(type) {
	case float32, float64:
		return float
	case int32, int64:
		return signed
	}
	return unsigned
}

func (a Atomics[T]) do(ctx context.Context, kind fabric.AtomicKind, off uint64, v, compare T) (T, error) {
	old, err := a.m.Atomic(ctx, fabric.AtomicOp{Kind: kind, Operand: bits(v), Compare: bits(compare)}, width[T](), off)
	return number[T](old), err
}

// Fetch returns the number (fam_fetch_T).
func (a Atomics[T]) Fetch(ctx context.Context, off uint64) (T, error) {
	return a.do(ctx, fabric.KindFetchOr, off, number[T](0), number[T](0))
}

// Set stores a number (fam_set).
func (a Atomics[T]) Set(ctx context.Context, off uint64, v T) error {
	_, err := a.Swap(ctx, off, v)
	return err
}

// Swap stores a number and returns the old one (fam_swap).
func (a Atomics[T]) Swap(ctx context.Context, off uint64, v T) (T, error) {
	return a.do(ctx, fabric.KindSwap, off, v, v)
}

// CompareSwap stores v if the old number is there, bit for bit, and returns what was there (fam_compare_swap).
func (a Atomics[T]) CompareSwap(ctx context.Context, off uint64, old, v T) (T, error) {
	return a.do(ctx, fabric.KindCompareSwap, off, v, old)
}

// Add adds, and returns the old number (fam_fetch_add, fam_add). Integers wrap.
func (a Atomics[T]) Add(ctx context.Context, off uint64, v T) (T, error) {
	return a.do(ctx, kind[T](fabric.KindFetchAdd, fabric.KindFetchAdd, fabric.KindFetchAddFloat), off, v, v)
}

// Subtract subtracts, and returns the old number (fam_fetch_subtract, fam_subtract).
func (a Atomics[T]) Subtract(ctx context.Context, off uint64, v T) (T, error) {
	return a.Add(ctx, off, -v)
}

// Min keeps the smaller number, and returns the old one (fam_fetch_min, fam_min).
func (a Atomics[T]) Min(ctx context.Context, off uint64, v T) (T, error) {
	return a.do(ctx, kind[T](fabric.KindFetchMinInt, fabric.KindFetchMinUint, fabric.KindFetchMinFloat), off, v, v)
}

// Max keeps the larger number, and returns the old one (fam_fetch_max, fam_max).
func (a Atomics[T]) Max(ctx context.Context, off uint64, v T) (T, error) {
	return a.do(ctx, kind[T](fabric.KindFetchMaxInt, fabric.KindFetchMaxUint, fabric.KindFetchMaxFloat), off, v, v)
}

// And keeps the bits of v, and returns the old number (fam_fetch_and, fam_and).
func And[T Integer](ctx context.Context, m *Memory, off uint64, v T) (T, error) {
	return Atomics[T]{m}.do(ctx, fabric.KindFetchAnd, off, v, v)
}

// Or sets the bits of v, and returns the old number (fam_fetch_or, fam_or).
func Or[T Integer](ctx context.Context, m *Memory, off uint64, v T) (T, error) {
	return Atomics[T]{m}.do(ctx, fabric.KindFetchOr, off, v, v)
}

// Xor flips the bits of v, and returns the old number (fam_fetch_xor, fam_xor).
func Xor[T Integer](ctx context.Context, m *Memory, off uint64, v T) (T, error) {
	return Atomics[T]{m}.do(ctx, fabric.KindFetchXor, off, v, v)
}

// CompareSwapWide stores word in the 16 bytes at off, a multiple of 16, if they hold old, and returns what they held (fam_compare_swap of int128).
// fabric.ErrNoWide: the component cannot do it.
func (m *Memory) CompareSwapWide(ctx context.Context, off uint64, old, word fabric.Wide) (fabric.Wide, error) {
	const n = 16
	r, within := m.one(off, n)
	if r == nil {
		return fabric.Wide{}, m.pieces("atomic", off, n, func(piece) error { return fmt.Errorf("%w: 16 bytes at %d", fabric.ErrAlign, off) })
	}
	was, err := r.CompareSwapWide(ctx, within, old, word)
	if err != nil {
		return fabric.Wide{}, m.failed("atomic", off, n, err)
	}
	return was, nil
}

// FetchWide returns 16 bytes as they were at one moment (fam_fetch_int128). It takes the right to atomics.
func (m *Memory) FetchWide(ctx context.Context, off uint64) (fabric.Wide, error) {
	return m.CompareSwapWide(ctx, off, fabric.Wide{}, fabric.Wide{})
}

// SetWide stores 16 bytes at one moment (fam_set of int128).
func (m *Memory) SetWide(ctx context.Context, off uint64, word fabric.Wide) error {
	for was := (fabric.Wide{}); ; {
		now, err := m.CompareSwapWide(ctx, off, was, word)
		if err != nil || now == was {
			return err
		}
		was = now
	}
}
