package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// Slot is a place in the queue with a buffer, taken by Acquire.
type Slot uint16

// Transfer is a command that nobody waits for at once: OpRead, OpWrite or OpCompare of the slot's buffer, OpWriteZeroes, OpDataset to trim (which uses the buffer), or OpFlush.
type Transfer struct {
	Op   nvme.Opcode
	Off  uint64
	Size int // at most the buffer's, MaxZeroBytes or MaxTrimBytes
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

// TryAcquire takes a slot if there is a free one.
func (d *Drive) TryAcquire() (Slot, bool) {
	id, ok := d.take()
	return Slot(id), ok
}

// Submit starts a Transfer of a slot's buffer. Its end comes from Reap.
func (d *Drive) Submit(s Slot, t Transfer) error {
	err := d.TrySubmit(s, t)
	if errors.Is(err, fabric.ErrBackpressure) {
		err = d.died(d.sendLater(func() error { return d.TrySubmit(s, t) }))
	}
	return err
}

// TrySubmit is Submit that does not wait, for pollers and others who may not: where the connection has no room now it returns fabric.ErrBackpressure, and has done nothing.
func (d *Drive) TrySubmit(s Slot, t Transfer) error {
	c, size, err := d.command(s, t)
	if err != nil {
		return err
	}
	if !d.seg.Pin() {
		return d.Err()
	}
	defer d.seg.Unpin()
	d.slots[s].tag = t.Tag
	err = d.trySend(uint16(s), c, size, t.Op != nvme.OpRead, submitted)
	if errors.Is(err, fabric.ErrBackpressure) {
		return err
	}
	return d.died(err)
}

// died ends the Drive with an error: half a command may be in the queue.
func (d *Drive) died(err error) error {
	if err == nil {
		return nil
	}
	d.fail(err)
	return d.Err()
}

// command is what a Transfer asks for, and how much of the slot's buffer it is about.
func (d *Drive) command(s Slot, t Transfer) (c nvme.Command, size int, err error) {
	c = nvme.Command{Op: t.Op, FUA: t.FUA, Blocks: 1}
	most := 0
	switch t.Op {
	case nvme.OpFlush:
		return c, 0, nil
	case nvme.OpRead, nvme.OpWrite, nvme.OpCompare:
		most, size = d.cfg.BufferBytes, t.Size
	case nvme.OpWriteZeroes:
		most = d.MaxZeroBytes()
	case nvme.OpDataset:
		most = d.MaxTrimBytes()
	default:
		return c, 0, fmt.Errorf("drive %s: %w: command %#x cannot be submitted", d.cfg.Drive, device.ErrSpec, uint8(t.Op))
	}
	if t.Size <= 0 || t.Size > most {
		return c, 0, fmt.Errorf("drive %s: %w: a transfer of %d bytes: 1 to %d", d.cfg.Drive, device.ErrSpec, t.Size, most)
	}
	if err := d.check("transfer", t.Off, uint64(t.Size)); err != nil {
		return c, 0, err
	}
	c.Block, c.Blocks = t.Off/d.lease.BlockBytes, uint32(uint64(t.Size)/d.lease.BlockBytes)
	if t.Op == nvme.OpDataset {
		size = rangeOf(d.buffer(uint16(s)), c.Block, c.Blocks)
		c.Block, c.Blocks, c.Free = 0, 1, true
	}
	return c, size, nil
}

// MaxZeroBytes and MaxTrimBytes are the most that one Transfer zeroes or trims.
func (d *Drive) MaxZeroBytes() int { return maxZeroBlocks * int(d.lease.BlockBytes) }

// MaxTrimBytes: see MaxZeroBytes.
func (d *Drive) MaxTrimBytes() int { return maxTrimBlocks * int(d.lease.BlockBytes) }

// Reap waits until a Transfer has ended, and takes as many ends as there are and done has room for.
func (d *Drive) Reap(ctx context.Context, done []Done) (n int, err error) {
	if d.count.Load() == 0 {
		if err := d.reaper.Wait(ctx, d.reapable); err != nil {
			return 0, err
		}
	}
	if n = d.TryReap(done); n == 0 {
		return 0, d.Err()
	}
	return n, nil
}

// TryReap is Reap of what has ended already.
func (d *Drive) TryReap(done []Done) (n int) {
	if d.count.Load() == 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n = copy(done, d.reaps)
	d.reaps = append(d.reaps[:0], d.reaps[n:]...)
	d.count.Store(int32(len(d.reaps)))
	return n
}

func (d *Drive) reapable() bool { return d.count.Load() > 0 || d.dead.Load() != nil }
