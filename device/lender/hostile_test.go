package lender

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// TestWindowRights: memory that the lender may only read is written by no command, whether it is mapped or not.
func TestWindowRights(t *testing.T) {
	for what, kind := range map[string]fabric.SegmentKind{"sealed": fabric.Sealed, "by a key that is narrowed": fabric.Writable} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Limits{})
			for i := range r.disk.mem {
				r.disk.mem[i] = 7
			}
			b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
			seg, err := b.el.NewSegment(winSize, kind)
			if err != nil {
				t.Fatal(err)
			}
			copy(seg.Bytes(), "as it was")
			key, err := seg.Key(fabric.RightRead)
			if err != nil {
				t.Fatal(err)
			}
			reached, err := r.l.Window(t.Context(), b.from, &device.WindowRequest{Lease: b.lease.ID, Window: 2, Key: key.Append(nil)})
			if err != nil {
				t.Fatal(err)
			}
			to := device.Address(2, 0)
			list := device.Address(2, 8192)
			binary.LittleEndian.PutUint64(seg.Bytes()[8192:], at(dataAt))
			binary.LittleEndian.PutUint64(seg.Bytes()[8200:], to)
			for i, c := range []nvme.Command{
				{SGL: true, Data: nvme.DataBlock(to, 512), Blocks: 1},
				{Data: [2]uint64{to}, Blocks: 8},
				{Data: [2]uint64{at(dataAt), to}, Blocks: 16},
				{Data: [2]uint64{at(dataAt), list}, Blocks: 24}, // the list may be read there, and leads back
			} {
				c.Op, c.NS, c.ID = nvme.OpRead, 1, uint16(i)
				b.send(c)
				if got := b.reap(true); got.Status != nvme.StatusTransfer {
					t.Errorf("read %d into it: %s", i, got.Status.Text())
				}
			}
			b.send(nvme.Command{Op: nvme.OpWrite, NS: 1, SGL: true, Data: nvme.DataBlock(to, 512), Blocks: 1})
			if got := b.reap(true); (got.Status == nvme.StatusOK) != reached.Mapped || reached.Mapped && r.disk.has(0, 9) != "as it was" {
				t.Errorf("a write from it, mapped %v: %s", reached.Mapped, got.Status.Text())
			}
			if !bytes.HasPrefix(seg.Bytes(), []byte("as it was")) {
				t.Errorf("it was written: %q", seg.Bytes()[:16])
			}
		})
	}
}

// TestListsInCircles: PRP lists that lead to each other end, with whatever is in them.
func TestListsInCircles(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	const one, two = listAt + 4096, listAt + 8192 // the ends of two pages
	for what, c := range map[string]struct {
		first, second []uint64 // the last entries of each page
		start         uint64
		want          nvme.Status
	}{
		"pages with nothing but the way to the other":            {[]uint64{at(two - 8)}, []uint64{at(one - 8)}, at(one - 8), nvme.StatusPRPOffset},
		"pages with an entry each, whose last way would be data": {[]uint64{at(dataAt), at(two - 16)}, []uint64{at(dataAt + 4096), at(one - 16)}, at(one - 16), nvme.StatusPRPOffset},
		"a page whose way leads into its middle":                 {[]uint64{at(dataAt), at(one - 16)}, []uint64{0}, at(one - 16), nvme.StatusPRPOffset},
		"a way to no word":                                       {[]uint64{at(dataAt), at(one - 12)}, []uint64{0}, at(one - 16), nvme.StatusPRPOffset},
		"a way out of the window":                                {[]uint64{at(dataAt), at(winSize)}, []uint64{0}, at(one - 16), nvme.StatusTransfer},
	} {
		b.put(one-8*len(c.first), c.first...)
		b.put(two-8*len(c.second), c.second...)
		b.send(nvme.Command{Op: nvme.OpRead, NS: 1, ID: 3, Data: [2]uint64{at(dataAt), c.start}, Blocks: nvme.MaxTransferBytes / nvme.BlockBytes})
		if got := b.reap(true); got.Status != c.want {
			t.Errorf("%s: %s", what, got.Status.Text())
		}
	}
}

// TestChangedMeanwhile: a borrower changes commands and lists while they are carried out. What was checked is what is done: no block outside the lease is touched.
func TestChangedMeanwhile(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range r.disk.mem {
		r.disk.mem[i] = 0x5a
	}
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive, Offset: 512 << 10, Size: 64 << 10})
	const blocks = 128 // of the lease
	b.put(listAt, at(dataAt), at(dataAt+4096), at(dataAt+8192))
	var over atomic.Bool
	var group sync.WaitGroup
	mem := b.seg.Bytes()
	group.Go(func() {
		word := func(at int, v uint64) { binary.LittleEndian.PutUint64(mem[at:], v) }
		for i := uint64(0); !over.Load(); i++ {
			for k := range entries { // often: what is read twice is seldom the same
				word(sqAt+k*nvme.CommandBytes+40, i&1*blocks+i>>1%64)
			}
			if i%64 == 0 {
				word(sqAt+int(i/64%entries)*nvme.CommandBytes+48, []uint64{23, 31, 0xffff, 0}[i/1024%4])
				word(listAt, []uint64{at(dataAt), at(dataAt + 4096), device.Address(9, 0), at(dataAt), at(dataAt + 1), at(winSize), at(dataAt), at(listAt)}[i/64%8])
			}
		}
	})
	for i := range uint16(600) {
		b.send(nvme.Command{Op: nvme.OpWrite, NS: 1, ID: i, Data: [2]uint64{at(dataAt), at(listAt)}, Block: 0, Blocks: 24})
		switch c := b.reap(true); c.Status {
		case nvme.StatusOK, nvme.StatusLBA, nvme.StatusTransfer, nvme.StatusPRPOffset, nvme.StatusField:
		default:
			t.Fatalf("command %d: %s", i, c.Status.Text())
		}
	}
	over.Store(true)
	group.Wait()
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	for i, v := range r.disk.mem {
		if v != 0x5a && (i < 512<<10 || i >= 576<<10) {
			t.Fatalf("byte %d of the disk was written, which is not lent", i)
		}
	}
	if len(r.disk.at) == 0 {
		t.Error("no write was good: nothing was tried")
	}
}
