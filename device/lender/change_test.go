package lender

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// place opens part of the borrower's memory again, as window 2 at a guest's address.
func (b *borrower) place(base, offset, size uint64) error {
	key, err := b.seg.Key(fabric.RightsAll)
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = b.l.Window(b.t.Context(), b.from, &device.WindowRequest{Lease: b.lease.ID, Window: 2, Key: key.Append(nil), Place: &device.Place{Base: base, Offset: offset, Size: size}})
	return err
}

// TestUnwindow: memory is given back when the last command that uses it has ended, and not before; then no command reaches it, and it can lie elsewhere.
func TestUnwindow(t *testing.T) {
	r := newRig(t, Limits{})
	gate := make(chan struct{})
	r.disk.gate = gate
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	const base = 1 << 20
	if err := b.place(base, dataAt, 8192); err != nil {
		t.Fatal(err)
	}
	read := nvme.Command{Op: nvme.OpRead, NS: 1, Data: [2]uint64{base + 4096}, Blocks: 8}
	b.send(read)
	b.eventually("the command is under way", func() bool { return b.leases()[0].Inflight == 1 })
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req := &device.UnwindowRequest{Lease: b.lease.ID, Window: 2}
	if err := r.l.Unwindow(short, b.from, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("memory was given back under a command: %v", err)
	}
	again, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.l.Unwindow(again, b.from, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("memory was given back under a command, when it was asked for again: %v", err)
	}
	if err := b.place(base+1<<20, dataAt, 8192); !errors.Is(err, device.ErrSpec) {
		t.Errorf("its number is used while it is taken back: %v", err)
	}
	gate <- struct{}{}
	if c := b.reap(true); c.Status != nvme.StatusOK {
		t.Errorf("the command that was under way: %s", c.Status.Text())
	}
	b.send(read)
	if c := b.reap(true); c.Status != nvme.StatusTransfer {
		t.Errorf("a command to memory that was taken back: %s", c.Status.Text())
	}
	if err := r.l.Unwindow(t.Context(), b.from, req); !errors.Is(err, device.ErrSpec) {
		t.Errorf("taken back twice: %v", err)
	}
	for _, bad := range [][3]uint64{{base, winSize, 4096}, {base, 0, winSize + 1}, {base, 0, 0}, {^uint64(0) &^ 4095, 0, 8192}, {device.Address(1, 4096), 0, 4096}, {base + 4, 0, 4096}, {base, 4, 4096}} {
		if err := b.place(bad[0], bad[1], bad[2]); !errors.Is(err, device.ErrSpec) {
			t.Errorf("a window at %#x, %d bytes from %d: %v", bad[0], bad[2], bad[1], err)
		}
	}
	if err := b.place(base+1<<20, dataAt, 8192); err != nil {
		t.Error(err)
	}
	close(gate)
}

// TestUnqueue: a queue pair is over when its commands have ended, with their completions; queues in memory that is taken back go too.
func TestUnqueue(t *testing.T) {
	r := newRig(t, Limits{})
	gate := make(chan struct{})
	r.disk.gate = gate
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	b.send(nvme.Command{Op: nvme.OpFlush, NS: 1})
	b.eventually("the command is under way", func() bool { return b.leases()[0].Inflight == 1 })
	over := make(chan error)
	go func() { over <- r.l.Unqueue(t.Context(), b.from, &device.UnqueueRequest{Lease: b.lease.ID, Queue: 1}) }()
	b.eventually("the queue is being deleted", func() bool { return b.leases()[0].Queues == 0 })
	if _, ended := b.peek(); ended {
		t.Error("there is a completion of a command that is under way")
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.l.Unqueue(short, b.from, &device.UnqueueRequest{Lease: b.lease.ID, Queue: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a queue whose command is under way is over, when it was asked for again: %v", err)
	}
	gate <- struct{}{}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if c, ended := b.peek(); !ended || c.Status != nvme.StatusOK {
		t.Errorf("the queue is over, and its command has no completion: %v", c)
	}
	close(gate)
	if err := b.place(1<<20, 0, 8192); err != nil {
		t.Fatal(err)
	}
	// Rings of lengths that differ and are no powers of two, and a bell.
	bell := uint64(1<<20 + 8184)
	if _, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 1, Entries: 5, CompletionEntries: 3, Commands: 1<<20 + sqAt, Completions: 1<<20 + cqAt, Bell: bell}); err != nil {
		t.Fatal(err)
	}
	clear(b.seg.Bytes()[:sqAt])
	tail, head, phase := uint32(0), uint32(0), true
	for i := range uint64(20) {
		var e [nvme.CommandBytes]byte
		c := nvme.Command{Op: nvme.OpFlush, NS: 1, ID: uint16(i)}
		c.Encode(&e)
		copy(b.seg.Bytes()[sqAt+tail*nvme.CommandBytes:], e[:])
		tail = (tail + 1) % 5
		if err := b.regs.Ring(device.SubmissionDoorbell(1), 4, uint64(tail)); err != nil {
			t.Fatal(err)
		}
		var w [8]byte
		b.eventually("the bell rings", func() bool {
			fabric.CopyOut(w[:], b.seg.Bytes()[8184:8192])
			return binary.NativeEndian.Uint64(w[:]) == i+1
		})
		fabric.CopyOut(w[:], b.seg.Bytes()[cqAt+head*nvme.CompletionBytes+8:][:8])
		if got := nvme.ParseCompletion(binary.LittleEndian.Uint64(w[:])); got.ID != uint16(i) || got.Phase != phase {
			t.Fatalf("completion %d: %+v", i, got)
		}
		if head++; head == 3 {
			head, phase = 0, !phase
		}
		if err := b.regs.Ring(device.CompletionDoorbell(1), 4, uint64(head)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.l.Unwindow(t.Context(), b.from, &device.UnwindowRequest{Lease: b.lease.ID, Window: 2}); err != nil {
		t.Fatal(err)
	}
	if l := b.leases()[0]; l.Queues != 0 || l.Windows != 1 {
		t.Errorf("what is left: %+v", l)
	}
}

// TestShadow: a borrower that rings only where the events say so loses no command, however the engine sleeps and wakes; one whose shadow doorbell points outside its queue loses
// its lease.
func TestShadow(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	const shadowAt, eventsAt = 512 << 10, 516 << 10
	for _, bad := range [][2]uint64{{at(shadowAt + 8), at(eventsAt)}, {at(shadowAt), at(winSize)}, {at(shadowAt), 0}} {
		if err := r.l.Shadow(b.from, &device.ShadowRequest{Lease: b.lease.ID, Doorbells: bad[0], Events: bad[1]}); !errors.Is(err, device.ErrSpec) {
			t.Errorf("shadow doorbells at %#x: %v", bad, err)
		}
	}
	if err := r.l.Shadow(b.from, &device.ShadowRequest{Lease: b.lease.ID, Doorbells: at(shadowAt), Events: at(eventsAt)}); err != nil {
		t.Fatal(err)
	}
	word := func(at uint64) uint32 {
		var w [4]byte
		fabric.CopyOut(w[:], b.seg.Bytes()[at:at+4])
		return binary.NativeEndian.Uint32(w[:])
	}
	rings := 0
	// Linux's nvme_dbbuf_update_and_check_event: write, then look.
	update := func(off uint64, v uint32) {
		old := word(shadowAt + off)
		fabric.CopyIn(b.seg.Bytes()[shadowAt+off:][:4], binary.NativeEndian.AppendUint32(nil, v))
		if event := word(eventsAt + off); uint16(v-event-1) < uint16(v-old) {
			rings++
			if err := b.regs.Ring(off, 4, uint64(v)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const many = 400
	for i := range many {
		var e [nvme.CommandBytes]byte
		c := nvme.Command{Op: nvme.OpRead, NS: 1, ID: uint16(i), SGL: true, Data: nvme.DataBlock(at(dataAt), 512), Blocks: 1}
		c.Encode(&e)
		copy(b.seg.Bytes()[sqAt+b.tail*nvme.CommandBytes:], e[:])
		b.tail = (b.tail + 1) % entries
		update(device.SubmissionDoorbell(1), b.tail)
		if c := b.reap(false); c.ID != uint16(i) || c.Status != nvme.StatusOK {
			t.Fatalf("command %d: %+v", i, c)
		}
		update(device.CompletionDoorbell(1), b.head)
		if i%40 == 39 {
			time.Sleep(2 * time.Millisecond) // the engine sleeps
		}
	}
	if rings == 0 {
		t.Error("the engine has not once asked to be woken")
	}
	update(device.SubmissionDoorbell(1), entries)
	b.regs.Ring(device.SubmissionDoorbell(1), 4, 0)
	r.eventually("the lease ends", func() bool { return len(r.leases()) == 0 })
}

// TestBellGoesOn: a queue's bell goes on where that of an earlier queue had got to, so that a borrower that remembers what it saw last misses no completion.
func TestBellGoesOn(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	const bellAt, cq2, sq2 = 512 << 10, 516 << 10, 520 << 10
	rung := func() uint64 {
		var w [8]byte
		fabric.CopyOut(w[:], b.seg.Bytes()[bellAt:bellAt+8])
		return binary.NativeEndian.Uint64(w[:])
	}
	for life := range uint64(3) {
		if _, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 2, Entries: 8, Commands: at(sq2), Completions: at(cq2), Bell: at(bellAt)}); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			var e [nvme.CommandBytes]byte
			c := nvme.Command{Op: nvme.OpFlush, NS: 1, ID: uint16(i)}
			c.Encode(&e)
			copy(b.seg.Bytes()[sq2+i*nvme.CommandBytes:], e[:])
		}
		if err := b.regs.Ring(device.SubmissionDoorbell(2), 4, 2); err != nil {
			t.Fatal(err)
		}
		b.eventually("two completions", func() bool { return b.leases()[0].Commands == 2*(life+1) })
		if err := r.l.Unqueue(t.Context(), b.from, &device.UnqueueRequest{Lease: b.lease.ID, Queue: 2}); err != nil {
			t.Fatal(err)
		}
		if now := rung(); now != 2*(life+1) {
			t.Errorf("after %d queues with two completions each the bell says %d", life+1, now)
		}
	}
}

// TestShadowRoomForTwo: a pair of fused commands that waits for room for two completions has the borrower ring when it takes one, though there is room for one already.
func TestShadowRoomForTwo(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	const shadowAt, eventsAt, cq2, sq2, size = 512 << 10, 516 << 10, 520 << 10, 524 << 10, 3
	if err := r.l.Shadow(b.from, &device.ShadowRequest{Lease: b.lease.ID, Doorbells: at(shadowAt), Events: at(eventsAt)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 2, Entries: 8, CompletionEntries: size, Commands: at(sq2), Completions: at(cq2)}); err != nil {
		t.Fatal(err)
	}
	word := func(at uint64) uint32 {
		var w [4]byte
		fabric.CopyOut(w[:], b.seg.Bytes()[at:at+4])
		return binary.NativeEndian.Uint32(w[:])
	}
	update := func(off uint64, v uint32) { // as in TestShadow
		old := word(shadowAt + off)
		fabric.CopyIn(b.seg.Bytes()[shadowAt+off:][:4], binary.NativeEndian.AppendUint32(nil, v))
		if event := word(eventsAt + off); uint16(v-event-1) < uint16(v-old) {
			if err := b.regs.Ring(off, 4, uint64(v)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tail, ended := uint32(0), uint32(0)
	send := func(list ...nvme.Command) {
		for _, c := range list {
			var e [nvme.CommandBytes]byte
			c.NS, c.ID = 1, uint16(tail)
			c.Encode(&e)
			copy(b.seg.Bytes()[sq2+tail*nvme.CommandBytes:], e[:])
			tail++
		}
		update(device.SubmissionDoorbell(2), tail)
	}
	reap := func() {
		t.Helper()
		b.eventually("a completion", func() bool {
			var w [8]byte
			fabric.CopyOut(w[:], b.seg.Bytes()[cq2+ended%size*nvme.CompletionBytes+8:][:8])
			c := nvme.ParseCompletion(binary.LittleEndian.Uint64(w[:]))
			ok := c.Phase == (ended/size%2 == 0)
			if ok && c.Status != nvme.StatusOK {
				t.Errorf("command %d: %s", c.ID, c.Status.Text())
			}
			return ok
		})
		ended++
	}
	head := uint32(0)
	take := func() {
		head = ended % size
		update(device.CompletionDoorbell(2), head)
	}
	for range 2 {
		send(nvme.Command{Op: nvme.OpFlush})
		reap()
		take()
	}
	send(nvme.Command{Op: nvme.OpFlush})
	reap()
	half := nvme.Command{Op: nvme.OpCompare, Fused: 1, SGL: true, Data: nvme.DataBlock(at(dataAt), 512), Blocks: 1}
	other := half
	other.Op, other.Fused = nvme.OpWrite, 2
	send(half, other)
	b.eventually("the engine asks to be told", func() bool { return word(eventsAt+device.CompletionDoorbell(2)) == head })
	take()
	reap()
	reap()
}
