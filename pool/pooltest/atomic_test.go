package pooltest

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// atomicTypes is every type that has atomics, with numbers at its ends among its operands.
func atomicTypes() map[string]func(t *testing.T, m *pool.Memory, off uint64) {
	return map[string]func(t *testing.T, m *pool.Memory, off uint64){
		"int32":   integers[int32](math.MinInt32, -7, 0, 12, math.MaxInt32),
		"int64":   integers[int64](math.MinInt64, -7, 0, 12, math.MaxInt64),
		"uint32":  integers[uint32](0, 7, 1<<31, math.MaxUint32),
		"uint64":  integers[uint64](0, 7, 1<<63, math.MaxUint64),
		"float32": numbers[float32](-1.5, 0, 2.25, math.MaxFloat32, float32(math.Inf(-1))),
		"float64": numbers[float64](-1.5, 0, 2.25, math.MaxFloat64, math.Inf(1)),
	}
}

func integers[T pool.Integer](operands ...T) func(t *testing.T, m *pool.Memory, off uint64) {
	return func(t *testing.T, m *pool.Memory, off uint64) {
		numbers(operands...)(t, m, off)
		ctx := within(t)
		a := pool.AtomicsOf[T](m)
		for name, op := range map[string]struct {
			do    func(context.Context, *pool.Memory, uint64, T) (T, error)
			model func(a, b T) T
		}{"and": {pool.And[T], func(a, b T) T { return a & b }}, "or": {pool.Or[T], func(a, b T) T { return a | b }}, "xor": {pool.Xor[T], func(a, b T) T { return a ^ b }}} {
			for _, v := range operands {
				old, err := a.Fetch(ctx, off)
				must(t, err)
				was, err := op.do(ctx, m, off, v)
				now, e := a.Fetch(ctx, off)
				if err != nil || e != nil || was != old || now != op.model(old, v) {
					t.Errorf("%v %s %v: %v and then %v, %v", old, name, v, was, now, errors.Join(err, e))
				}
			}
		}
	}
}

func numbers[T pool.Number](operands ...T) func(t *testing.T, m *pool.Memory, off uint64) {
	return func(t *testing.T, m *pool.Memory, off uint64) {
		ctx, a := within(t), pool.AtomicsOf[T](m)
		must(t, a.Set(ctx, off, operands[0]))
		for name, op := range map[string]struct {
			do    func(context.Context, uint64, T) (T, error)
			model func(a, b T) T
		}{
			"add": {a.Add, func(a, b T) T { return a + b }}, "subtract": {a.Subtract, func(a, b T) T { return a - b }}, "swap": {a.Swap, func(_, b T) T { return b }},
			"min": {a.Min, func(a, b T) T { return min(a, b) }}, "max": {a.Max, func(a, b T) T { return max(a, b) }},
			"set": {func(ctx context.Context, off uint64, v T) (T, error) {
				old, err := a.Fetch(ctx, off)
				return old, errors.Join(err, a.Set(ctx, off, v))
			}, func(_, b T) T { return b }},
			"compare swap": {func(ctx context.Context, off uint64, v T) (T, error) { return a.CompareSwap(ctx, off, operands[1], v) }, func(a, b T) T {
				if a == operands[1] {
					return b
				}
				return a
			}},
		} {
			for _, v := range operands {
				start := operands[1]
				must(t, a.Set(ctx, off, start))
				was, err := op.do(ctx, off, v)
				now, e := a.Fetch(ctx, off)
				if err != nil || e != nil || was != start || now != op.model(start, v) {
					t.Errorf("%v %s %v: %v and then %v, %v", start, name, v, was, now, errors.Join(err, e))
				}
			}
		}
		must(t, a.Set(ctx, off, operands[1]))
		if was, err := a.CompareSwap(ctx, off, operands[1]+1, operands[0]); err != nil || was == operands[1]+1 {
			t.Errorf("swapped for another number: %v, %v", was, err)
		}
		if _, err := a.Add(ctx, off+1, operands[1]); !errors.Is(err, fabric.ErrAlign) {
			t.Errorf("unaligned: %v", err)
		}
	}
}

// TestAtomics: every operation on every type, in a region at several components and in items, is what Go makes of it, and none is lost among many.
func TestAtomics(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, pool.Manager, pool.Spec{Name: "work", Size: 8 * part})
		must(t, err)
		it, err := r.CreateItem(ctx, pool.ItemSpec{Size: part, Components: 2, Block: 64})
		must(t, err)
		for name, check := range atomicTypes() {
			t.Run(name, func(t *testing.T) {
				check(t, &r.Memory, part+8)
				check(t, &it.Memory, 64+16)
			})
		}
		wide(t, &r.Memory, 3*part+32)
		wide(t, &it.Memory, 128)
		other, err := g.client(ann).LookupRegion(ctx, pool.Manager, "work")
		must(t, err)
		var work sync.WaitGroup
		const each = 50
		for _, m := range []*pool.Memory{&r.Memory, &other.Memory, &other.Memory} {
			work.Go(func() {
				for range each {
					_, err := pool.AtomicsOf[float64](m).Add(ctx, 5*part, 0.5)
					_, e := pool.AtomicsOf[uint32](m).Subtract(ctx, 5*part+8, 3)
					if err := errors.Join(err, e); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		sum, err := pool.AtomicsOf[float64](&r.Memory).Fetch(ctx, 5*part)
		left, e := pool.AtomicsOf[int32](&r.Memory).Fetch(ctx, 5*part+8)
		if err != nil || e != nil || sum != 3*each*0.5 || left != -3*3*each {
			t.Errorf("%v, %v after %d each: %v", sum, left, each, errors.Join(err, e))
		}
	})
}

func wide(t *testing.T, m *pool.Memory, off uint64) {
	t.Helper()
	ctx := within(t)
	a, b := fabric.Wide{1, math.MaxUint64}, fabric.Wide{1 << 63, 2}
	if err := m.SetWide(ctx, off, a); errors.Is(err, fabric.ErrNoWide) {
		return // and says so
	} else if err != nil {
		t.Fatal(err)
	}
	if was, err := m.CompareSwapWide(ctx, off, b, fabric.Wide{}); err != nil || was != a {
		t.Errorf("%v, %v", was, err)
	}
	if was, err := m.CompareSwapWide(ctx, off, a, b); err != nil || was != a {
		t.Errorf("%v, %v", was, err)
	}
	if now, err := m.FetchWide(ctx, off); err != nil || now != b {
		t.Errorf("%v, %v", now, err)
	}
	if _, err := m.FetchWide(ctx, off+8); !errors.Is(err, fabric.ErrAlign) {
		t.Errorf("unaligned: %v", err)
	}
}
