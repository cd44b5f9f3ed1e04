package lender

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// TestFarRoom: where a connection has few operations, data and completions wait for one. They are not lost, and the lease does not end.
func TestFarRoom(t *testing.T) {
	r := newRigOf(t, Limits{}, fabric.Limits{OpsPerEndpoint: 2})
	for i := range r.disk.mem {
		r.disk.mem[i] = byte(i>>9) ^ byte(i)
	}
	b := r.borrowFar()
	ring := func(at uint64, v uint32) { // which waits for room, here
		if err := b.regs.Put(t.Context(), binary.NativeEndian.AppendUint32(nil, v), at); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 20 {
		clear(b.seg.Bytes()[dataAt : dataAt+14*8192])
		for i := range uint16(14) {
			var e [nvme.CommandBytes]byte
			to := at(dataAt + uint64(i)*8192) // in two pieces
			c := nvme.Command{Op: nvme.OpRead, NS: 1, ID: i, Data: [2]uint64{to + 4096, to}, Block: uint64(i) * 16, Blocks: 16}
			c.Encode(&e)
			if err := b.queue.Put(t.Context(), e[:], uint64(b.tail)*nvme.CommandBytes); err != nil {
				t.Fatal(err)
			}
			b.tail = (b.tail + 1) % entries
		}
		ring(device.SubmissionDoorbell(1), b.tail)
		for range 14 {
			c := b.reap(false)
			ring(device.CompletionDoorbell(1), b.head)
			mem, i := b.seg.Bytes()[dataAt+int(c.ID)*8192:], int(c.ID)*8192
			if c.Status != nvme.StatusOK || string(mem[4096:8192]) != r.disk.has(i, 4096) || string(mem[:4096]) != r.disk.has(i+4096, 4096) {
				t.Fatalf("round %d, command %d: %s", round, c.ID, c.Status.Text())
			}
		}
	}
	if n := len(r.leases()); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// TestFarMemory: reads that find no memory at the lender for their data wait. None fails, and one principal does not get all.
func TestFarMemory(t *testing.T) {
	r := newRig(t, Limits{})
	r.disk.gate = make(chan struct{})
	b := r.borrowFar()
	const many, reads, cq2 = 512, 300, 512 << 10
	made, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 2, Entries: many, Completions: at(cq2)})
	if err != nil {
		t.Fatal(err)
	}
	queue := b.imported(made.Key)
	for i := range reads {
		var e [nvme.CommandBytes]byte
		c := nvme.Command{Op: nvme.OpRead, NS: 1, ID: uint16(i), SGL: true, Data: nvme.DataBlock(at(dataAt), nvme.MaxTransferBytes), Blocks: nvme.MaxTransferBytes / nvme.BlockBytes}
		c.Encode(&e)
		if err := queue.Put(t.Context(), e[:], uint64(i)*nvme.CommandBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.regs.Ring(device.SubmissionDoorbell(2), 4, reads); err != nil {
		t.Fatal(err)
	}
	const most = 16 << 20 / nvme.MaxTransferBytes / 2 // the other half is for the principal's other leases
	r.eventually("the disk is busy", func() bool { return r.leases()[0].Inflight >= most })
	time.Sleep(20 * time.Millisecond)
	if n := r.leases()[0].Inflight; n != most {
		t.Errorf("%d reads are under way, of 256 KiB each", n)
	}
	close(r.disk.gate)
	for i := range reads {
		var c nvme.Completion
		r.eventually("a completion", func() bool {
			var w [8]byte
			fabric.CopyOut(w[:], b.seg.Bytes()[cq2+i*nvme.CompletionBytes+8:][:8])
			c = nvme.ParseCompletion(binary.LittleEndian.Uint64(w[:]))
			return c.Phase
		})
		if c.Status != nvme.StatusOK {
			t.Fatalf("read %d: %s", c.ID, c.Status.Text())
		}
	}
}

// TestHungDisk: a disk that does not answer holds up its own commands, and not those of another disk, of the same principal too.
func TestHungDisk(t *testing.T) {
	r := newRig(t, Limits{})
	r.disk.gate = make(chan struct{})
	defer close(r.disk.gate)
	const many, writes, sq2, cq2 = 512, 400, 600 << 10, 700 << 10
	stuck := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	if _, err := r.l.Queue(stuck.from, &device.QueueRequest{Lease: stuck.lease.ID, Queue: 2, Entries: many, Commands: at(sq2), Completions: at(cq2)}); err != nil {
		t.Fatal(err)
	}
	for i := range writes {
		c := nvme.Command{Op: nvme.OpWrite, NS: 1, ID: uint16(i), SGL: true, Data: nvme.DataBlock(at(dataAt), nvme.BlockBytes), Blocks: 1}
		c.Encode((*[nvme.CommandBytes]byte)(stuck.seg.Bytes()[sq2+i*nvme.CommandBytes:]))
	}
	if err := stuck.regs.Ring(device.SubmissionDoorbell(2), 4, writes); err != nil {
		t.Fatal(err)
	}
	r.eventually("the disk has its commands", func() bool { return r.leases()[0].Inflight == nvme.MaxInflight/2 })
	r.next.gate = make(chan struct{}, 1) // slow, so that it takes a worker, but it answers
	b := r.borrow(device.BorrowRequest{Name: "disk1", Mode: device.Exclusive})
	for i := range uint64(20) {
		r.next.gate <- struct{}{}
		b.send(nvme.Command{Op: nvme.OpWrite, NS: 1, SGL: true, Data: nvme.DataBlock(at(dataAt), nvme.BlockBytes), Block: i, Blocks: 1})
		if c := b.reap(true); c.Status != nvme.StatusOK {
			t.Fatalf("write %d beside a hung disk: %s", i, c.Status.Text())
		}
	}
	if n := r.leases()[0].Inflight; n != nvme.MaxInflight/2 {
		t.Errorf("%d commands are under way of one lease", n)
	}
}

// TestPairs: two fused commands are carried out as one or not at all, and each says how it ended; writes of the same blocks wait for a pair that blocks.
func TestPairs(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	const old, next = dataAt, dataAt + 4096
	half := func(op nvme.Opcode, fused uint8, id uint16, block uint64, addr uint64) nvme.Command {
		return nvme.Command{Op: op, NS: 1, Fused: fused, ID: id, SGL: true, Data: nvme.DataBlock(at(addr), 512), Block: block, Blocks: 1}
	}
	both := func(c ...nvme.Command) {
		for i, c := range c {
			c.Encode((*[nvme.CommandBytes]byte)(b.seg.Bytes()[sqAt+(int(b.tail)+i)%entries*nvme.CommandBytes:]))
		}
		b.tail = (b.tail + uint32(len(c))) % entries
		if err := b.regs.Ring(device.SubmissionDoorbell(1), 4, uint64(b.tail)); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(what string, want ...nvme.Status) {
		t.Helper()
		for range want {
			if c := b.reap(true); int(c.ID) >= len(want) || c.Status != want[c.ID] {
				t.Errorf("%s: command %d: %s", what, c.ID, c.Status.Text())
			}
		}
	}
	b.seg.Bytes()[next] = 7
	both(half(nvme.OpCompare, 1, 0, 5, old), half(nvme.OpWrite, 2, 1, 5, next))
	if ends("as expected", nvme.StatusOK, nvme.StatusOK); r.disk.has(5*512, 1) != "\x07" {
		t.Error("it was not written")
	}
	b.seg.Bytes()[next] = 8
	both(half(nvme.OpCompare, 1, 0, 5, old), half(nvme.OpWrite, 2, 1, 5, next))
	if ends("not as expected", nvme.StatusCompareFails, nvme.StatusFusedFailed); r.disk.has(5*512, 1) != "\x07" {
		t.Error("it was written all the same")
	}
	for what, c := range map[string]struct {
		first, second nvme.Command
		want          [2]nvme.Status
	}{
		"of two blocks":      {half(nvme.OpCompare, 1, 0, 5, next), half(nvme.OpWrite, 2, 1, 6, next), [2]nvme.Status{nvme.StatusField, nvme.StatusFusedFailed}},
		"the wrong way":      {half(nvme.OpWrite, 1, 0, 5, next), half(nvme.OpCompare, 2, 1, 5, next), [2]nvme.Status{nvme.StatusField, nvme.StatusFusedFailed}},
		"twice the first":    {half(nvme.OpCompare, 1, 0, 5, next), half(nvme.OpCompare, 1, 1, 5, next), [2]nvme.Status{nvme.StatusFusedMissing, nvme.StatusFusedMissing}},
		"a write of nowhere": {half(nvme.OpCompare, 1, 0, 5, next), half(nvme.OpWrite, 2, 1, 5, winSize), [2]nvme.Status{nvme.StatusFusedFailed, nvme.StatusTransfer}},
		"behind the end":     {half(nvme.OpCompare, 1, 0, 1<<20, next), half(nvme.OpWrite, 2, 1, 1<<20, next), [2]nvme.Status{nvme.StatusLBA, nvme.StatusFusedFailed}},
	} {
		both(c.first, c.second)
		ends(what, c.want[:]...)
	}
	// The disk blocks: what writes the same block comes behind the pair, what writes another does not wait.
	r.disk.mu.Lock()
	r.disk.gate, r.disk.at = make(chan struct{}), nil
	r.disk.mu.Unlock()
	b.seg.Bytes()[old] = 7
	both(half(nvme.OpCompare, 1, 0, 5, old), half(nvme.OpWrite, 2, 1, 5, next))
	r.eventually("the pair is under way", func() bool { return r.leases()[0].Inflight == 2 })
	both(half(nvme.OpWrite, 0, 2, 9, next), half(nvme.OpWrite, 0, 3, 5, old))
	r.eventually("the other write is", func() bool { return r.leases()[0].Inflight == 3 })
	time.Sleep(20 * time.Millisecond)
	if n := r.leases()[0].Inflight; n != 3 {
		t.Errorf("%d commands are under way, so the write of the pair's block too", n)
	}
	for range 4 {
		r.disk.gate <- struct{}{}
	}
	ends("with a write behind", nvme.StatusOK, nvme.StatusOK, nvme.StatusOK, nvme.StatusOK)
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	if len(r.disk.at) != 3 || r.disk.at[2] != 5*512 || r.disk.mem[5*512] != 7 {
		t.Errorf("written at %d in this order, and the block has %d", r.disk.at, r.disk.mem[5*512])
	}
	close(r.disk.gate)
}

// TestPairIsNotOvertaken: a pair that waits for a write comes before the writes of its blocks that are sent after it, or others could keep it waiting for ever.
func TestPairIsNotOvertaken(t *testing.T) {
	r := newRig(t, Limits{})
	r.disk.gate = make(chan struct{})
	a, b, c := r.borrow(device.BorrowRequest{Mode: device.Shared}), r.borrow(device.BorrowRequest{Mode: device.Shared}), r.borrow(device.BorrowRequest{Mode: device.Shared})
	write := func(b *borrower, block uint64, value byte) {
		b.seg.Bytes()[dataAt+int(value)*512] = value
		b.send(nvme.Command{Op: nvme.OpWrite, NS: 1, ID: uint16(value), SGL: true, Data: nvme.DataBlock(at(dataAt+uint64(value)*512), 512), Block: block, Blocks: 1})
	}
	inflight := func(i int) int { return r.leases()[i].Inflight }
	marks := 0
	mark := func() { // all that was rung before has been looked at when these are under way
		for range 2 {
			marks++
			write(c, uint64(20+marks), byte(marks))
			r.eventually("a mark is under way", func() bool { return inflight(2) == marks })
		}
	}
	write(a, 5, 1)
	r.eventually("the first write is under way", func() bool { return inflight(0) == 1 })
	b.seg.Bytes()[dataAt] = 1
	b.seg.Bytes()[dataAt+512] = 2
	for i, half := range []nvme.Command{{Op: nvme.OpCompare, Fused: 1}, {Op: nvme.OpWrite, Fused: 2}} {
		half.NS, half.ID, half.SGL, half.Data, half.Block, half.Blocks = 1, uint16(i), true, nvme.DataBlock(at(dataAt+uint64(i)*512), 512), 5, 1
		half.Encode((*[nvme.CommandBytes]byte)(b.seg.Bytes()[sqAt+i*nvme.CommandBytes:]))
	}
	if err := b.regs.Ring(device.SubmissionDoorbell(1), 4, 2); err != nil {
		t.Fatal(err)
	}
	mark()
	write(a, 5, 3)
	mark()
	if n := inflight(0); n != 1 {
		t.Errorf("%d writes of the pair's block are under way: one came after the pair", n)
	}
	close(r.disk.gate)
	for range 2 {
		if end := a.reap(true); end.Status != nvme.StatusOK {
			t.Errorf("write %d: %s", end.ID, end.Status.Text())
		}
		if end := b.reap(true); end.Status != nvme.StatusOK {
			t.Errorf("half %d of the pair: %s", end.ID, end.Status.Text())
		}
	}
	if got := r.disk.has(5*512, 1); got != "\x03" {
		t.Errorf("the block has %q", got)
	}
}

// TestClaimIsOfItsPair: a borrower may put other commands where a pair of its waits. What the pair has claimed is free then; and a claim ends with its queue, at once.
func TestClaimIsOfItsPair(t *testing.T) {
	r := newRig(t, Limits{})
	r.disk.gate = make(chan struct{})
	var all [4]*borrower
	for i := range all {
		all[i] = r.borrow(device.BorrowRequest{Mode: device.Shared})
	}
	a, b, c, d := all[0], all[1], all[2], all[3]
	put := func(b *borrower, entry int, cmd nvme.Command) {
		cmd.NS, cmd.ID, cmd.SGL, cmd.Data = 1, uint16(entry), true, nvme.DataBlock(at(dataAt), 512)
		cmd.Encode((*[nvme.CommandBytes]byte)(b.seg.Bytes()[sqAt+entry*nvme.CommandBytes:]))
	}
	ring := func(b *borrower, tail uint64) {
		if err := b.regs.Ring(device.SubmissionDoorbell(1), 4, tail); err != nil {
			t.Fatal(err)
		}
	}
	pair := func(b *borrower, entry int, block uint64) {
		put(b, entry, nvme.Command{Op: nvme.OpCompare, Fused: 1, Block: block, Blocks: 1})
		put(b, entry+1, nvme.Command{Op: nvme.OpWrite, Fused: 2, Block: block, Blocks: 1})
	}
	n := 0
	write := func(block uint64) {
		n++
		d.send(nvme.Command{Op: nvme.OpWrite, NS: 1, ID: uint16(n), SGL: true, Data: nvme.DataBlock(at(dataAt), 512), Block: block, Blocks: 1})
		r.eventually("a write is under way", func() bool { return r.leases()[3].Inflight == n })
	}
	a.send(nvme.Command{Op: nvme.OpWrite, NS: 1, SGL: true, Data: nvme.DataBlock(at(dataAt), 1024), Block: 5, Blocks: 2})
	r.eventually("the first write is under way", func() bool { return r.leases()[0].Inflight == 1 })
	for _, b := range []*borrower{c, b} {
		pair(b, 0, 5)
		ring(b, 2)
		write(20) // all that was rung before has been looked at when two are under way
		write(21)
	}
	put(b, 0, nvme.Command{Op: nvme.OpRead, Block: 30, Blocks: 1})
	pair(b, 1, 6)
	ring(b, 3)
	if err := r.l.Unqueue(t.Context(), c.from, &device.UnqueueRequest{Lease: c.lease.ID, Queue: 1}); err != nil {
		t.Fatal(err)
	}
	r.eventually("what came in the pair's place is under way", func() bool { return r.leases()[1].Inflight == 1 })
	write(5)
	close(r.disk.gate)
	for range 3 {
		b.reap(true)
	}
}

// TestListPermitsNothing: a PRP list may lie in a window that can only be read. Data is not written there for that.
func TestListPermitsNothing(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	sealed, err := b.el.NewSegment(winSize, fabric.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	to := device.Address(2, 8192)
	for i, w := range []uint64{to, to + 4096, to + 8192, to + 12288} {
		binary.LittleEndian.PutUint64(sealed.Bytes()[8*i:], w)
	}
	key, err := sealed.Key(fabric.RightRead)
	if err != nil {
		t.Fatal(err)
	}
	reach, err := r.l.Window(t.Context(), b.from, &device.WindowRequest{Lease: b.lease.ID, Window: 2, Key: key.Append(nil)})
	if err != nil || !reach.Mapped {
		t.Fatalf("%+v, %v", reach, err)
	}
	b.send(nvme.Command{Op: nvme.OpRead, NS: 1, Data: [2]uint64{at(dataAt), device.Address(2, 0)}, Blocks: 24})
	if c := b.reap(true); c.Status != nvme.StatusTransfer {
		t.Errorf("a read to memory that can only be read: %s", c.Status.Text())
	}
}

// TestEndedInTheMaking: a lease whose borrower is lost while it is made leaves nothing counted.
func TestEndedInTheMaking(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.connect()
	counted := 0
	r.l.cfg.Reserve = func(string, int64) (func(), error) {
		r.l.Abandoned(b.from)
		counted++
		return func() { counted-- }, nil
	}
	if _, err := r.l.Borrow(anyone, b.from, &device.BorrowRequest{Name: "disk0", Mode: device.Exclusive}); !errors.Is(err, device.ErrNoLease) {
		t.Errorf("a lease that has ended: %v", err)
	}
	if counted != 0 || len(r.leases()) != 0 {
		t.Errorf("%d charges and %d leases are left", counted, len(r.leases()))
	}
}
