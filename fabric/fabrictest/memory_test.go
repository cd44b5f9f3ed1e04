package fabrictest

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// memoryCore is what the fabric does with memorys, whatever the transport.
func memoryCore() []check {
	return []check{
		{"range", memoryRange},
		{"atomics misused", memoryAtomicsMisused},
		{"forget", memoryForget},
		{"done", memoryDone},
	}
}

func memoryRange(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 100_000)
	buf := make([]byte, 1<<18)
	for _, rem := range r.routes(ab, seg) {
		size := rem.Size()
		for _, c := range []struct {
			offset uint64
			n      int
			ok     bool
		}{
			{0, int(size), true}, {size - 1, 1, true}, {size - 8, 8, true}, {size, 0, true},
			{0, int(size) + 1, false}, {size, 1, false}, {size - 7, 8, false}, {size + 1, 1, false},
			{math.MaxUint64, 1, false}, {math.MaxUint64 - 3, 8, false}, {1 << 63, 8, false}, {math.MaxUint64 - 7, 8, false},
			{size - 1, 70_000, false}, {math.MaxUint64 - 69_999, 70_000, false},
		} {
			for verb, err := range map[string]error{"put": rem.Put(r.Ctx, buf[:c.n], c.offset), "get": rem.Get(r.Ctx, buf[:c.n], c.offset)} {
				if c.ok && err != nil || !c.ok && !errors.Is(err, fabric.ErrRange) {
					r.Errorf("%s: %s of %d bytes at %d of %d: %v", rem.name, verb, c.n, c.offset, size, err)
				}
			}
			if _, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, c.offset&^7); c.offset&^7 > size-8 && !errors.Is(err, fabric.ErrRange) {
				r.Errorf("%s: atomic at %d of %d: %v", rem.name, c.offset&^7, size, err)
			}
		}
	}
}

func memoryAtomicsMisused(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 4096)
	for _, rem := range r.routes(ab, seg) {
		for _, c := range []struct {
			kind  fabric.AtomicKind
			width int
			at    uint64
			want  error
		}{
			{fabric.KindFetchAdd, 8, 4, fabric.ErrAlign}, {fabric.KindSwap, 8, 1, fabric.ErrAlign}, {fabric.KindCompareSwap, 4, 2, fabric.ErrAlign},
			{fabric.KindFetchAdd, 4, 4, nil}, {fabric.KindFetchXor, 2, 0, fabric.ErrProtocol}, {fabric.KindFetchAdd, 0, 0, fabric.ErrProtocol},
			{fabric.KindFetchAdd, 16, 0, fabric.ErrProtocol}, {0, 8, 0, fabric.ErrProtocol}, {14, 8, 0, fabric.ErrProtocol},
			{fabric.KindFetchAdd, -8, 0, fabric.ErrRange},
		} {
			if _, err := rem.Atomic(r.Ctx, fabric.AtomicOp{Kind: c.kind, Operand: 1}, c.width, c.at); !errors.Is(err, c.want) {
				r.Errorf("%s: op %d, width %d at %d: %v, want %v", rem.name, c.kind, c.width, c.at, err, c.want)
			}
		}
	}
	r.Must(ab.Err())
}

func memoryForget(r *rig) {
	_, b, ab, _ := r.pair(func(c *fabric.Config) { c.Limits.OpsPerEndpoint = 4 })
	rem := r.served(ab, r.segment(b, 4<<20))
	for i := range 60 {
		buf := make([]byte, 1<<(i%20))
		var op fabric.Op
		for {
			if i%2 == 0 {
				op = rem.StartGet(buf, 0)
			} else {
				op = rem.StartPut(buf, 0)
			}
			if !op.Poll() {
				break
			}
			if err := op.Wait(r.Ctx); !errors.Is(err, fabric.ErrBackpressure) {
				r.Must(err)
				op = fabric.Op{}
				break
			}
			r.Must(ab.Flush(r.Ctx))
		}
		op.Forget()
		suite.Fill(buf, 0x5a)
		if i%10 == 9 {
			r.Must(ab.Flush(r.Ctx))
		}
		if n := bytes.Count(buf, []byte{0x5a}); n != len(buf) {
			r.Fatal("a forgotten operation wrote into its buffer")
		}
	}
	r.Must(rem.Put(r.Ctx, []byte("done"), 0))
}

func memoryDone(r *rig) {
	_, b, ab, _ := r.pair()
	for _, rem := range r.routes(ab, r.segment(b, 1<<20)) {
		buf := make([]byte, 1<<19)
		for i := range 200 {
			op := rem.StartGet(buf[:1<<(i%20)], 0)
			select {
			case <-op.Done():
				if !op.Poll() {
					r.Fatal("done, but Poll says otherwise")
				}
			case <-r.Ctx.Done():
				r.Fatalf("%s: get %d is never done", rem.name, i)
			}
			r.Within(otherTime, "Wait after Done", func() error { return op.Wait(r.Ctx) })
		}
	}
	var none fabric.Op
	<-none.Done()
	if err := none.Wait(r.Ctx); err != nil || !none.Poll() {
		r.Error(fmt.Errorf("the zero Op: %w", err))
	}
	none.Forget()
}
