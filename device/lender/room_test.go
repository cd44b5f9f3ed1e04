package lender

import (
	"encoding/binary"
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
	const most = 16 << 20 / nvme.MaxTransferBytes
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
