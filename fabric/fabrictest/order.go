package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

func orderChecks() []check {
	return []check{
		{"fence after a put", orderFence},
		{"fence after operations of all kinds", orderFenceMixed},
		{"put behind a fence without credit", orderFenceBlocked},
		{"many fences", orderManyFences},
		{"flush", orderFlush},
		{"flush behind a full outbox", orderFlushFull},
	}
}

// orderFence: a message behind a fence finds the data of an unfenced put.
func orderFence(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 3<<20)
	for _, rem := range r.routes(ab, seg) {
		mem := rem.mem
		for i, n := range []int{8, 4096, 65536, 65537, 300_000, 1 << 20, 2 << 20, 70_000} {
			src := bytes.Repeat([]byte{byte(i + 1)}, n)
			id := idData + 100*fabric.FrameID(1+len(rem.name)) + fabric.FrameID(i)
			seen := make(chan int, 1)
			r.Must(b.Handle(id, func(fabric.Message) { seen <- bytes.Count(mem[:n], src[:1]) }))
			op := rem.StartPut(src, 0)
			ab.Fence()
			r.Must(ab.Send(r.Ctx, id, nil, nil))
			if got := <-seen; got != n {
				r.Fatalf("%s: behind a fence, %d of %d bytes are there", rem.name, got, n)
			}
			r.Must(op.Wait(r.Ctx))
		}
	}
}

// orderFenceMixed: each round's operations find what the round before did.
func orderFenceMixed(r *rig) {
	const rounds, n = 40, 150_000
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 1<<20)
	rem := r.served(ab, seg)
	var got counted
	b.Handle(idData, func(m fabric.Message) {
		i := byte(binary.LittleEndian.Uint64(m.Body) + 1)
		if c := bytes.Count(rem.mem[:n], []byte{i}); c != n {
			r.Errorf("message %d finds %d of %d bytes", i, c, n)
		}
		got.take(m.Body)
	})
	buf := make([]byte, 8)
	for i := range rounds {
		put := rem.StartPut(bytes.Repeat([]byte{byte(i + 1)}, n), 0)
		ab.Fence()
		get := rem.StartGet(buf, n-8)
		add := rem.StartAtomic(fabric.FetchAdd(1), 8, n-n%8+8)
		r.Must(ab.Post(idData, nil, numbered(i, 8)))
		ab.Fence()
		r.waitAll([]fabric.Op{put, get})
		if !bytes.Equal(buf, bytes.Repeat([]byte{byte(i + 1)}, 8)) {
			r.Fatalf("round %d: a get behind a fence reads % x", i, buf)
		}
		if old, err := add.Value(r.Ctx); err != nil || old != uint64(i) {
			r.Fatalf("round %d: old value %d, %v", i, old, err)
		}
		r.Must(ab.Flush(r.Ctx))
	}
	r.wantCount("messages behind fences", &got, rounds)
}

// orderFenceBlocked: behind a fence stand messages without credit, and behind
// these a large put; nothing of it overtakes.
func orderFenceBlocked(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	var k keeper
	rem := r.served(ab, r.segment(b, 4<<20))
	r.Must(b.HandleRetaining(idKeep, k.handle))
	first, second := bytes.Repeat([]byte{1}, 3<<20), bytes.Repeat([]byte{2}, 1<<20)
	for range 4 {
		start := k.next.Load()
		put1 := rem.StartPut(first, 0)
		ab.Fence()
		sent := start
		for ; sent < start+200; sent++ {
			r.Must(ab.Post(idKeep, nil, numbered(int(sent), 1000)))
		}
		put2 := rem.StartPut(second, 0)
		small := rem.StartPut(second[:100], 3<<20)
		r.Must(put1.Wait(r.Ctx))
		time.Sleep(3 * time.Millisecond)
		k.releaseAll(r, sent)
		r.waitAll([]fabric.Op{put2, small})
		if n := bytes.Count(rem.mem[:1<<20], []byte{2}); n != 1<<20 {
			r.Fatalf("%d bytes of the second put are there", n)
		}
		if n := bytes.Count(rem.mem[1<<20:3<<20], []byte{1}); n != 2<<20 {
			r.Fatalf("%d bytes of the first put are there", n)
		}
	}
	r.Must(ab.Err())
}

func orderManyFences(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	rem := r.served(ab, r.segment(b, 4<<20))
	var got counted
	b.Handle(idData, func(m fabric.Message) { got.take(m.Body) })
	src := make([]byte, 2<<20)
	sent := uint64(0)
	for range 5 {
		op := rem.StartPut(src, 0)
		for range 2000 { // more marks than the outbox has room for
			ab.Fence()
		}
		for range 20 {
			r.Must(ab.Send(r.Ctx, idData, nil, numbered(int(sent), 8)))
			sent++
		}
		r.Must(op.Wait(r.Ctx))
	}
	r.wantCount("behind many fences", &got, sent)
}

func orderFlush(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 4<<20)
	var got counted
	var sum atomic.Uint64
	b.Handle(idData, func(m fabric.Message) { got.take(m.Body) })
	sent := uint64(0)
	for _, rem := range r.routes(ab, seg) {
		for i := range 20 {
			n := 1 << (i + 1)
			op := rem.StartPut(bytes.Repeat([]byte{byte(i + 1)}, n), 0)
			add := rem.StartAtomic(fabric.FetchAdd(1), 8, 3<<20)
			for range 10 {
				r.Must(ab.Post(idData, nil, numbered(int(sent), 600)))
				sent++
			}
			r.Must(ab.Flush(r.Ctx))
			if c := bytes.Count(rem.mem[:n], []byte{byte(i + 1)}); c != n {
				r.Fatalf("%s: after Flush %d of %d bytes are there", rem.name, c, n)
			}
			if got.next.Load() != sent {
				r.Fatalf("after Flush %d of %d messages were handled", got.next.Load(), sent)
			}
			if !op.Poll() {
				r.Fatal("after Flush a put is still under way")
			}
			r.Must(op.Wait(r.Ctx))
			_, err := add.Value(r.Ctx)
			r.Must(err)
			sum.Add(1)
		}
		if n := binary.NativeEndian.Uint64(rem.mem[3<<20:]); n != 20 {
			r.Errorf("%s: %d of 20 atomics happened", rem.name, n)
		}
	}
	if s := got.bad.Load(); s != nil {
		r.Error(*s)
	}
}

// orderFlushFull: blocking calls wait for room behind a fence; started ones fail at once.
func orderFlushFull(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	var k keeper
	rem := r.served(ab, r.segment(b, 1<<20))
	r.Must(b.HandleRetaining(idKeep, k.handle))
	sent := uint64(0)
	for ; ab.Post(idKeep, nil, numbered(int(sent), 30)) == nil; sent++ {
	}
	ab.Fence()
	if err := rem.StartGet(make([]byte, 8), 0).Wait(r.Ctx); !errors.Is(err, fabric.ErrBackpressure) {
		r.Errorf("a get started behind a fence and a full outbox: %v", err)
	}
	ctx, cancel := context.WithTimeout(r.Ctx, 20*time.Millisecond)
	defer cancel()
	if err := ab.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("Flush behind a full outbox: %v", err)
	}
	calls := []func() error{
		func() error { return ab.Flush(r.Ctx) },
		func() error { return rem.Get(r.Ctx, make([]byte, 8), 0) },
		func() error { return rem.Put(r.Ctx, make([]byte, 100_000), 0) },
		func() error { return rem.Put(r.Ctx, make([]byte, 10), 0) },
		func() error { _, err := rem.Atomic(r.Ctx, fabric.Swap(1), 8, 0); return err },
		func() error { _, err := ab.Import(r.Ctx, rem.Key()); return err },
	}
	done := make(chan error, len(calls))
	for i, call := range calls {
		go func() {
			err := call()
			if err != nil {
				err = fmt.Errorf("call %d: %w", i, err)
			}
			done <- err
		}()
	}
	time.Sleep(5 * time.Millisecond)
	k.releaseAll(r, sent)
	for range calls {
		r.Must(<-done)
	}
}
