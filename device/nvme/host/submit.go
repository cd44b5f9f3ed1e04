package host

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
)

// Slot is a place in the queue with a buffer, taken by Acquire.
type Slot uint16

// Transfer is a command that nobody waits for at once: OpRead, OpWrite or OpCompare of the slot's buffer, or OpFlush.
type Transfer struct {
	Op   nvme.Opcode
	Off  uint64
	Size int // at most the buffer's
	FUA  bool
	Tag  uint64 // comes back with the end
}

// Done is a Transfer's end. The slot is the caller's again.
type Done struct {
	Slot   Slot
	Tag    uint64
	Status nvme.Status
}

// Acquire waits for a slot, which is the caller's until Release.
func (d *Drive) Acquire(ctx context.Context) (Slot, error) {
	id, err := d.slot(ctx)
	return Slot(id), err
}

// Release gives a slot back of which no Transfer is under way.
func (d *Drive) Release(s Slot) { d.give(uint16(s)) }

// Buffer is a slot's memory. While a Transfer is under way it is the drive's, and it is nobody's after Close.
func (d *Drive) Buffer(s Slot) []byte { return d.buffer(uint16(s)) }

// Submit starts a Transfer of a slot's buffer. Its end comes from Reap.
func (d *Drive) Submit(s Slot, t Transfer) error {
	c := nvme.Command{Op: t.Op, FUA: t.FUA, Blocks: 1}
	switch t.Op {
	case nvme.OpRead, nvme.OpWrite, nvme.OpCompare:
		if err := d.check("transfer", t.Off, uint64(t.Size)); err != nil {
			return err
		}
		if t.Size == 0 || t.Size > d.cfg.BufferBytes {
			return fmt.Errorf("drive %s: %w: a transfer of %d bytes: 1 to %d", d.cfg.Drive, device.ErrSpec, t.Size, d.cfg.BufferBytes)
		}
		c.Block, c.Blocks = t.Off/d.lease.BlockBytes, uint32(uint64(t.Size)/d.lease.BlockBytes)
	case nvme.OpFlush:
		t.Size = 0
	default:
		return fmt.Errorf("drive %s: %w: command %#x cannot be submitted", d.cfg.Drive, device.ErrSpec, uint8(t.Op))
	}
	if !d.seg.Pin() {
		return d.Err()
	}
	defer d.seg.Unpin()
	d.slots[s].tag = t.Tag
	if err := d.send(uint16(s), c, t.Size, t.Op != nvme.OpRead, submitted); err != nil {
		d.fail(err)
		return d.Err()
	}
	return nil
}

// Reap waits until a Transfer has ended, and takes as many ends as there are and done has room for.
func (d *Drive) Reap(ctx context.Context, done []Done) (n int, err error) {
	if d.count.Load() == 0 {
		if err := d.reaper.Wait(ctx, d.reapable); err != nil {
			return 0, err
		}
	}
	d.mu.Lock()
	n = copy(done, d.reaps)
	d.reaps = append(d.reaps[:0], d.reaps[n:]...)
	d.count.Store(int32(len(d.reaps)))
	d.mu.Unlock()
	if n == 0 {
		return 0, d.Err()
	}
	return n, nil
}

func (d *Drive) reapable() bool { return d.count.Load() > 0 || d.dead.Load() != nil }
