package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

func memoryChecks() []check {
	return []check{
		{"put and get", memoryPutGet},
		{"parts", memoryParts},
		{"large", memoryLarge},
		{"many at once", memoryMany},
		{"many large at once", memoryManyLarge},
		{"bound of operations", memoryBound},
		{"waiting for an operation", memoryWaiting},
		{"messages beside a large put", memoryBeside},
		{"atomics", memoryAtomics},
		{"counters", memoryCounters},
		{"wide", memoryWide},
		{"registers", memoryRegisters},
		{"doorbells", memoryDoorbells},
		{"posted", memoryPosted},
		{"pinned", memoryPinned},
		{"forgotten", memoryForgotten},
		{"cancelled get", memoryCancelledGet},
		{"cancelled put", memoryCancelledPut},
	}
}

// remote is a peer's segment by one route.
type remote struct {
	*fabric.Remote
	name string
	mem  []byte // the owner's view of what the key covers
}

// routes imports a segment in every way there is: by a key to all of it, which
// may be mapped, and by one to a part, which the owner serves.
func (r *rig) routes(ep *fabric.Endpoint, seg *fabric.Segment) []remote {
	r.Helper()
	const skip = 64
	whole, err := seg.Key(fabric.RightsAll)
	r.Must(err)
	part, err := seg.KeyRange(skip, seg.Size()-skip, fabric.RightsAll)
	r.Must(err)
	list := []remote{{name: "whole", mem: seg.Bytes()}, {name: "part", mem: seg.Bytes()[skip:]}}
	for i, k := range []fabric.Key{whole, part} {
		list[i].Remote, err = ep.Import(r.Ctx, k)
		r.Must(err)
		if list[i].Size() != uint64(len(list[i].mem)) || list[i].Key() != k || list[i].Endpoint() != ep {
			r.Errorf("imported %v, size %d", list[i].Key(), list[i].Size())
		}
	}
	if list[1].Mapped() {
		r.Error("a key to a part of a segment gave a mapping of all of it")
	}
	return list
}

// segment makes one at n, of size bytes.
func (r *rig) segment(n *node, size uint64) *fabric.Segment {
	r.Helper()
	seg, err := n.NewSegment(size, fabric.Writable)
	r.Must(err)
	return seg
}

// served imports a segment so that its owner serves it.
func (r *rig) served(ep *fabric.Endpoint, seg *fabric.Segment) remote {
	r.Helper()
	return r.routes(ep, seg)[1]
}

// memoryParts uses keys to a part of a segment without asking its owner: through what is mapped, and served. Both end with their key.
func memoryParts(r *rig) {
	const skip = 64
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 1<<20)
	whole, err := seg.Key(fabric.RightsAll)
	r.Must(err)
	all, err := ab.Import(r.Ctx, whole)
	r.Must(err)
	inner, err := b.Narrow(whole, skip, 8*skip, fabric.RightsAll)
	r.Must(err)
	near, err := all.Part(inner, skip)
	r.Must(err)
	if near.Mapped() != all.Mapped() {
		r.Error("a part is mapped otherwise than the whole")
	}
	if _, err := all.Part(inner, 1<<20-7*skip); !errors.Is(err, fabric.ErrRange) {
		r.Errorf("a part beyond the end: %v", err)
	}
	for i, m := range []*fabric.Remote{near, ab.Served(inner)} {
		want := bytes.Repeat([]byte{byte(i + 1)}, 100)
		r.Must(m.Put(r.Ctx, want, 8*skip-100))
		if !bytes.Equal(seg.Bytes()[9*skip-100:9*skip], want) {
			r.Errorf("part %d is elsewhere", i)
		}
		if _, err := m.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 8); err != nil {
			r.Error(err)
		}
		if err := m.Put(r.Ctx, want, 8*skip-99); !errors.Is(err, fabric.ErrRange) {
			r.Errorf("part %d is left: %v", i, err)
		}
	}
	if n := binary.LittleEndian.Uint64(seg.Bytes()[skip+8:]); n != 2 {
		r.Errorf("2 atomics made %d", n)
	}
	r.Must(b.Revoke(inner))
	for i, m := range []*fabric.Remote{near, ab.Served(inner)} {
		if err := m.Get(r.Ctx, make([]byte, 8), 0); !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("part %d, and its key has ended: %v", i, err)
		}
	}
	r.Must(all.Get(r.Ctx, make([]byte, 8), 0))
}

// memoryWide swaps 16 bytes at once by every way, many at a time: no addition is lost, and no halves of two values are seen.
func memoryWide(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 1<<16)
	whole, err := seg.Key(fabric.RightsAll)
	r.Must(err)
	all, err := ab.Import(r.Ctx, whole)
	r.Must(err)
	if _, err := all.CompareSwapWide(r.Ctx, 0, fabric.Wide{}, fabric.Wide{}); errors.Is(err, fabric.ErrNoWide) {
		return // and says so
	}
	const each = 40
	var work sync.WaitGroup
	for _, m := range []*fabric.Remote{all, ab.Served(whole), all, ab.Served(whole)} {
		work.Go(func() {
			for range each {
				for now := (fabric.Wide{}); ; {
					was, err := m.CompareSwapWide(r.Ctx, 48, now, fabric.Wide{now[0] + 1, now[1] - 1})
					if err != nil || was[0]+was[1] != 0 {
						r.Errorf("%v: %v", was, err)
						return
					}
					if was == now {
						break
					}
					now = was
				}
			}
		})
	}
	work.Wait()
	if n := binary.LittleEndian.Uint64(seg.Bytes()[48:]); n != 4*each {
		r.Errorf("%d after %d additions", n, 4*each)
	}
	reader, err := seg.Key(fabric.RightRead | fabric.RightWrite)
	r.Must(err)
	for i, tc := range []struct {
		m    *fabric.Remote
		off  uint64
		want error
	}{{all, 8, fabric.ErrAlign}, {all, 1<<16 - 8, fabric.ErrRange}, {all, 1 << 16, fabric.ErrRange}, {ab.Served(whole), 8, fabric.ErrAlign},
		{ab.Served(whole), 1<<16 - 8, fabric.ErrRange}, {ab.Served(reader), 0, fabric.ErrRights}} {
		if _, err := tc.m.CompareSwapWide(r.Ctx, tc.off, fabric.Wide{}, fabric.Wide{1}); !errors.Is(err, tc.want) {
			r.Errorf("%d: at %d: %v, want %v", i, tc.off, err, tc.want)
		}
	}
}

func memoryPutGet(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 1<<20)
	sizes := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 55, 56, 57, 64, 255, 256, 257, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 200001}
	for _, rem := range r.routes(ab, seg) {
		for _, n := range sizes {
			for _, at := range []int{0, 3, 8} {
				for _, shift := range []int{0, 5} {
					clear(rem.mem[:n+64])
					src := append(make([]byte, shift), suite.Pattern(n, uint32(n+at))...)[shift:]
					r.Must(rem.Put(r.Ctx, src, uint64(at)))
					if !bytes.Equal(rem.mem[at:at+n], src) {
						r.Fatalf("%s: put of %d bytes to %d: the owner sees others", rem.name, n, at)
					}
					if rem.mem[at+n] != 0 || at > 0 && rem.mem[at-1] != 0 {
						r.Fatalf("%s: put of %d bytes to %d went beyond", rem.name, n, at)
					}
					dst := make([]byte, shift+n+1)
					r.Must(rem.Get(r.Ctx, dst[shift:shift+n], uint64(at)))
					if !bytes.Equal(dst[shift:shift+n], src) || dst[shift+n] != 0 {
						r.Fatalf("%s: get of %d bytes at %d: others came", rem.name, n, at)
					}
				}
			}
		}
	}
}

func memoryLarge(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 9<<20)
	for _, rem := range r.routes(ab, seg) {
		for _, n := range []int{1<<20 + 3, 8 << 20} {
			want, got := suite.Pattern(n, uint32(n)), make([]byte, n)
			r.Must(rem.Put(r.Ctx, want, 5))
			r.Must(rem.Get(r.Ctx, got, 5))
			if !bytes.Equal(got, want) || !bytes.Equal(rem.mem[5:5+n], want) {
				r.Fatalf("%s: %d bytes differ", rem.name, n)
			}
		}
	}
}

func memoryMany(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 2<<20)
	for _, rem := range r.routes(ab, seg) {
		for _, n := range []int{8, 900, 2000} {
			want := suite.Pattern(1000*n, uint32(n))
			var ops [1000]fabric.Op
			for i := range ops {
				ops[i] = rem.StartPut(want[i*n:(i+1)*n], uint64(i*n))
			}
			r.waitAll(ops[:])
			got := make([]byte, len(want))
			for i := range ops {
				ops[i] = rem.StartGet(got[i*n:(i+1)*n], uint64(i*n))
			}
			r.waitAll(ops[:])
			if !bytes.Equal(got, want) {
				r.Fatalf("%s: 1000 times %d bytes differ", rem.name, n)
			}
		}
	}
}

// memoryManyLarge starts more data than any queue may hold, both ways.
func memoryManyLarge(r *rig) {
	const n, size = 600, 64 << 10
	a, b, ab, ba := r.pair()
	var ops [2 * n]fabric.Op
	src := suite.Pattern(size, 1)
	there, here := r.served(ab, r.segment(b, 1<<20)), r.served(ba, r.segment(a, 1<<20))
	for i := range n {
		at := uint64(i%15) * size
		ops[2*i], ops[2*i+1] = there.StartPut(src, at), here.StartPut(src[:4000], at)
	}
	r.waitAll(ops[:])
	back := make([]byte, n*4096)
	for i := range n {
		at := uint64(i%15) * size
		ops[2*i], ops[2*i+1] = there.StartGet(back[i*4096:(i+1)*4096], at), here.StartPut(src, at)
	}
	r.waitAll(ops[:])
	for i := range n {
		if !bytes.Equal(back[i*4096:(i+1)*4096], src[:4096]) {
			r.Fatalf("get %d: bytes differ", i)
		}
	}
}

func (r *rig) waitAll(ops []fabric.Op) {
	r.Helper()
	for i, op := range ops {
		if err := op.Wait(r.Ctx); err != nil {
			r.Fatalf("operation %d of %d: %v", i, len(ops), err)
		}
	}
}

func memoryBound(r *rig) {
	const bound = 48
	_, b, ab, _ := r.pair(func(c *fabric.Config) { c.Limits.OpsPerEndpoint = bound })
	rem := r.served(ab, r.segment(b, 1<<20))
	free := r.block(b, ab)
	var ops []fabric.Op
	buf := make([]byte, 8*bound)
	for i := range bound {
		switch i % 3 {
		case 0:
			ops = append(ops, rem.StartGet(buf[8*i:8*i+8], 0))
		case 1:
			ops = append(ops, rem.StartPut(buf[8*i:8*i+8], 8))
		case 2:
			ops = append(ops, rem.StartAtomic(fabric.FetchAdd(1), 8, 16))
		}
	}
	for _, op := range []fabric.Op{rem.StartGet(buf[:8], 0), rem.StartPut(buf[:8], 8), rem.StartAtomic(fabric.FetchAdd(1), 8, 16)} {
		if err := op.Wait(r.Ctx); !errors.Is(err, fabric.ErrBackpressure) {
			r.Errorf("operation %d: %v; want ErrBackpressure", bound+1, err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Ctx, 20*time.Millisecond)
	defer cancel()
	if err := rem.Get(ctx, make([]byte, 8), 0); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("a blocking Get with no record free: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- rem.Get(r.Ctx, make([]byte, 8), 0) }()
	free()
	r.waitAll(ops)
	r.Must(<-done)
	if n := binary.NativeEndian.Uint64(rem.mem[16:]); n != bound/3 {
		r.Errorf("%d of %d atomics happened", n, bound/3)
	}
}

func memoryWaiting(r *rig) {
	const workers, each = 24, 40
	_, b, ab, _ := r.pair(func(c *fabric.Config) { c.Limits.OpsPerEndpoint = 3 })
	rem := r.served(ab, r.segment(b, 1<<20))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			got := make([]byte, 512)
			for i := range each {
				want, at := suite.Pattern(512, uint32(w*each+i)), uint64(w*1024+i)
				if err := rem.Put(r.Ctx, want, at); err != nil {
					r.Error(err)
					return
				}
				if err := rem.Get(r.Ctx, got, at); err != nil || !bytes.Equal(got, want) {
					r.Errorf("get: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// memoryBeside has messages answered while large Puts are under way.
func memoryBeside(r *rig) {
	const size = 16 << 20
	a, b, ab, _ := r.pair()
	serveEcho(b)
	var replies atomic.Int64
	a.Handle(idReply, func(fabric.Message) { replies.Add(1) })
	rem := r.served(ab, r.segment(b, size+64))
	src := suite.Pattern(size, 2)
	during := 0
	for range 5 {
		op := rem.StartPut(src, 0)
		for i := replies.Load() + 1; !op.Poll(); i++ {
			r.Must(ab.Send(r.Ctx, idEcho, nil, []byte("beside")))
			r.Must(a.WaitFor(r.Ctx, func() bool { return replies.Load() >= i }))
			if !op.Poll() {
				during++
			}
		}
		r.Must(op.Wait(r.Ctx))
	}
	if !bytes.Equal(rem.mem[:size], src) {
		r.Error("bytes differ")
	}
	if during == 0 {
		r.Errorf("no message was answered while %d MiB were put, five times", size>>20)
	}
}

// apply is what an atomic should do with a word of width bytes.
func apply(kind fabric.AtomicKind, width int, old, operand, compare uint64) uint64 {
	signed := func(v uint64) int64 { return int64(v) }
	float := math.Float64frombits
	bits := math.Float64bits
	if width == 4 {
		signed = func(v uint64) int64 { return int64(int32(v)) }
		float = func(v uint64) float64 { return float64(math.Float32frombits(uint32(v))) }
		bits = func(v float64) uint64 { return uint64(math.Float32bits(float32(v))) }
	}
	var takes bool
	switch kind {
	case fabric.KindFetchAdd:
		return old + operand
	case fabric.KindFetchAnd:
		return old & operand
	case fabric.KindFetchOr:
		return old | operand
	case fabric.KindFetchXor:
		return old ^ operand
	case fabric.KindFetchAddFloat: // the sum of two float32 in float64, rounded once, is that in float32
		return bits(float(old) + float(operand))
	case fabric.KindSwap:
		takes = true
	case fabric.KindCompareSwap:
		takes = old == compare
	case fabric.KindFetchMinInt:
		takes = signed(operand) < signed(old)
	case fabric.KindFetchMinUint:
		takes = operand < old
	case fabric.KindFetchMinFloat:
		takes = float(operand) < float(old)
	case fabric.KindFetchMaxInt:
		takes = signed(operand) > signed(old)
	case fabric.KindFetchMaxUint:
		takes = operand > old
	case fabric.KindFetchMaxFloat:
		takes = float(operand) > float(old)
	}
	if takes {
		return operand
	}
	return old
}

// isNaN reports whether a word is no number: of those, processors differ in which they make.
func isNaN(width int, word uint64) bool {
	if width == 4 {
		return math.IsNaN(float64(math.Float32frombits(uint32(word))))
	}
	return math.IsNaN(math.Float64frombits(word))
}

func memoryAtomics(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 4096)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, rem := range r.routes(ab, seg) {
		for i := range 1300 {
			kind, width := fabric.AtomicKind(1+i%13), 4+4*(i/13%2)
			mask := uint64(1)<<(8*width-1)<<1 - 1
			at := uint64(rng.IntN(32) * 8)
			operand, compare := rng.Uint64(), rng.Uint64()
			word := rem.mem[at:]
			read := func() uint64 {
				if width == 4 {
					return uint64(binary.NativeEndian.Uint32(word))
				}
				return binary.NativeEndian.Uint64(word)
			}
			before := read()
			if i%3 == 0 {
				compare = before
			}
			op := fabric.AtomicOp{Kind: kind, Operand: operand, Compare: compare}
			var old uint64
			var err error
			switch i % 5 {
			case 0:
				old, err = rem.StartAtomic(op, width, at).Value(r.Ctx)
			case 1:
				old, err = fabric.LocalAtomic(word, op, width)
			default:
				old, err = rem.Atomic(r.Ctx, op, width, at)
			}
			r.Must(err)
			if want := apply(kind, width, before, operand&mask, compare&mask) & mask; old != before || read() != want && !(kind == fabric.KindFetchAddFloat && isNaN(width, want) && isNaN(width, read())) {
				r.Fatalf("%s: op %d on %d bytes: old %#x, now %#x; want %#x, %#x", rem.name, kind, width, old, read(), before, want)
			}
		}
	}
}

func memoryCounters(r *rig) {
	const each = 400
	a, b, ab, _ := r.pair()
	cb, _ := r.connect(r.node(), b)
	seg := r.segment(b, 4096)
	var wg sync.WaitGroup
	add := func(fn func() error) {
		wg.Go(func() {
			for range each {
				if err := fn(); err != nil {
					r.Error(err)
					return
				}
			}
		})
	}
	for _, ep := range []*fabric.Endpoint{ab, ab, cb} {
		for _, rem := range r.routes(ep, seg) {
			at := 512 - uint64(len(seg.Bytes())-len(rem.mem))
			add(func() error { _, err := rem.Atomic(r.Ctx, fabric.FetchAdd(3), 8, at); return err })
			add(func() error { // the same by comparing
				for old := uint64(0); ; {
					was, err := rem.Atomic(r.Ctx, fabric.CompareSwap(old, old+1), 4, at+8)
					if err != nil || was == old {
						return err
					}
					old = was
				}
			})
		}
	}
	add(func() error { _, err := fabric.LocalAtomic(seg.Bytes()[512:], fabric.FetchAdd(3), 8); return err })
	add(func() error { _, err := fabric.LocalAtomic(seg.Bytes()[520:], fabric.FetchAdd(1), 4); return err })
	wg.Wait()
	if sum, want := binary.NativeEndian.Uint64(seg.Bytes()[512:]), uint64(7*each*3); sum != want {
		r.Errorf("the sum is %d, want %d", sum, want)
	}
	if n := binary.NativeEndian.Uint32(seg.Bytes()[520:]); n != 7*each {
		r.Errorf("%d compare-swaps took effect, want %d", n, 7*each)
	}
	_ = a
}

func memoryCancelledGet(r *rig) {
	const size = 4 << 20
	_, b, ab, _ := r.pair()
	rem := r.served(ab, r.segment(b, size+64))
	copy(rem.mem, suite.Pattern(size, 3))
	for i := range 16 {
		buf := make([]byte, size)
		ctx, cancel := context.WithTimeout(r.Ctx, time.Duration(i*i)*15*time.Microsecond)
		err := rem.Get(ctx, buf, 0)
		cancel()
		if err == nil {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			r.Fatal(err)
		}
		suite.Fill(buf, 0xa5)
		r.Must(ab.Flush(r.Ctx)) // the owner goes on sending what nobody wants any more
		r.Must(rem.Get(r.Ctx, make([]byte, 1<<20), 0))
		if n := bytes.Count(buf, []byte{0xa5}); n != size {
			r.Fatalf("%d bytes were written into the buffer of a Get that was given up", size-n)
		}
	}
}

func memoryCancelledPut(r *rig) {
	const size = 4 << 20
	_, b, ab, _ := r.pair()
	rem := r.served(ab, r.segment(b, size+64))
	for i := range 16 {
		clear(rem.mem)
		buf := bytes.Repeat([]byte{1}, size)
		ctx, cancel := context.WithTimeout(r.Ctx, time.Duration(i*i)*15*time.Microsecond)
		err := rem.Put(ctx, buf, 0)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			r.Fatal(err)
		}
		suite.Fill(buf, 2) // the buffer is the caller's again: none of this may arrive
		r.Must(ab.Flush(r.Ctx))
		if n := bytes.Count(rem.mem, []byte{2}); n > 0 {
			r.Fatalf("%d bytes written after Put returned arrived (Put: %v)", n, err)
		}
		r.Must(rem.Put(r.Ctx, buf, 0))
		if n := bytes.Count(rem.mem[:size], []byte{2}); n != size {
			r.Fatalf("after a Put that was given up, %d of %d bytes arrive", n, size)
		}
	}
}
