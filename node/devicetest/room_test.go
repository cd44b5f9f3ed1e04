package devicetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
)

// TestExpiredWrites: writes that were given up keep none of the connection's operations, of which there are 1,024.
func TestExpiredWrites(t *testing.T) {
	r := newRig(t, "tcp")
	r.node("")
	d := r.borrow(r.client("borrower"), host.Config{Mode: device.Exclusive, Depth: 2})
	gone, cancel := context.WithCancel(r.ctx())
	cancel()
	given := 0
	for i := 0; given < 1200 && i < 20000; i++ {
		if err := d.WriteAt(gone, make([]byte, 4096), 0); err == nil {
			continue
		} else if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d writes that were given up: %v", given, err)
		}
		given++
		if err := d.WriteAt(r.ctx(), random(1, 4096), 8192); err != nil {
			t.Fatalf("after %d writes that were given up: %v", given, err)
		}
	}
	if given < 1200 {
		t.Fatalf("%d writes were given up", given)
	}
}

// TestDeep: a queue so deep that the connection's operations do not suffice for it waits for them.
func TestDeep(t *testing.T) {
	r := newRig(t, "tcp")
	r.node("")
	ctx := r.ctx()
	d := r.borrow(r.client("borrower"), host.Config{Mode: device.Exclusive, Depth: host.MaxDepth, BufferBytes: 4096})
	want := random(3, host.MaxDepth*4096)
	for range 5 {
		for i := range host.MaxDepth {
			s, err := d.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			off := i * 4096
			copy(d.Buffer(s), want[off:off+4096])
			if err := d.Submit(s, host.Transfer{Op: nvme.OpWrite, Off: uint64(off), Size: 4096}); err != nil {
				t.Fatalf("write %d: %v", i, err)
			}
		}
		for ended := 0; ended < host.MaxDepth; {
			var done [64]host.Done
			n, err := d.Reap(ctx, done[:])
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range done[:n] {
				if e.Status != nvme.StatusOK {
					t.Fatal(e.Status.Text())
				}
				d.Release(e.Slot)
			}
			ended += n
		}
	}
	got := make([]byte, len(want))
	if err := d.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("what was written is read: %v", err)
	}
}
