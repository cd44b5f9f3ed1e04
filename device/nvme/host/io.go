package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// check refuses what is not whole blocks of the drive.
func (d *Drive) check(verb string, off, n uint64) error {
	if b := d.lease.BlockBytes; off%b != 0 || n%b != 0 {
		return fmt.Errorf("drive %s: %w: %s of %d bytes at %d: both must be multiples of %d", d.cfg.Drive, device.ErrSpec, verb, n, off, b)
	}
	if off > d.lease.SizeBytes || n > d.lease.SizeBytes-off {
		return fmt.Errorf("drive %s: %w: %s of %d bytes at %d of a drive of %d", d.cfg.Drive, device.ErrSpec, verb, n, off, d.lease.SizeBytes)
	}
	return nil
}

// flight is a command that somebody waits for.
type flight struct {
	id uint16
	p  []byte // what it reads goes there
}

// finish waits for a command's end, and gives its slot back. Where the context ends first the slot goes back when the command has ended.
func (d *Drive) finish(ctx context.Context, f flight) error {
	s := &d.slots[f.id]
	if s.isOver == nil {
		s.isOver = func() bool { return d.over(s) }
	}
	err := s.waiter.Wait(ctx, s.isOver)
	was := s.state.Load()
	if was&stateMask != ended {
		if err == nil {
			err = d.Err()
		}
		if s.state.CompareAndSwap(pending, abandoned) {
			return err
		}
		was = s.state.Load() // it ended meanwhile
	}
	status := nvme.Status(was >> 16)
	if status == nvme.StatusOK {
		copy(f.p, d.buffer(f.id))
	}
	s.put.Forget() // the lender has the data, or the command failed
	op := s.op
	d.give(f.id)
	if status != nvme.StatusOK {
		return &StatusError{d.cfg.Drive, op, status}
	}
	return nil
}

// maxFlights bounds the commands of one call that are under way at once.
const maxFlights = 16

// move reads or writes p, in as many commands as it takes, at most a queue full of them at a time.
func (d *Drive) move(ctx context.Context, op nvme.Opcode, fua bool, p []byte, off uint64) error {
	if !d.seg.Pin() { // Close waits for nobody, but the memory does
		return d.Err()
	}
	defer d.seg.Unpin()
	var ring [maxFlights]flight
	first, n := 0, 0
	var fail error
	for len(p) > 0 && fail == nil || n > 0 {
		if fail != nil || len(p) == 0 || n == maxFlights {
			if err := d.finish(ctx, ring[first%maxFlights]); err != nil && fail == nil {
				fail = err
			}
			first, n = first+1, n-1
			continue
		}
		id, ok := d.take()
		if !ok && n > 0 { // others have the rest
			if err := d.finish(ctx, ring[first%maxFlights]); err != nil {
				fail = err
			}
			first, n = first+1, n-1
			continue
		}
		var err error
		if !ok {
			id, err = d.slot(ctx)
		}
		size := min(len(p), d.cfg.BufferBytes)
		if err == nil {
			err = d.start(id, op, fua, p[:size], off)
		}
		if err != nil {
			fail = err
			continue
		}
		ring[(first+n)%maxFlights] = flight{id, readInto(op, p[:size])}
		n++
		p, off = p[size:], off+uint64(size)
	}
	return fail
}

func readInto(op nvme.Opcode, p []byte) []byte {
	if op == nvme.OpRead {
		return p
	}
	return nil
}

// start sends one command with data.
func (d *Drive) start(id uint16, op nvme.Opcode, fua bool, p []byte, off uint64) error {
	reads := op != nvme.OpRead
	if reads {
		copy(d.buffer(id), p)
	}
	err := d.send(id, nvme.Command{Op: op, Block: off / d.lease.BlockBytes, Blocks: uint32(uint64(len(p)) / d.lease.BlockBytes), FUA: fua}, len(p), reads, pending)
	if err != nil {
		d.fail(err) // half a command may be in the queue
	}
	return err
}

// ReadAt reads whole blocks.
func (d *Drive) ReadAt(ctx context.Context, p []byte, off uint64) error {
	if err := d.check("read", off, uint64(len(p))); err != nil {
		return err
	}
	return d.move(ctx, nvme.OpRead, false, p, off)
}

// WriteAt writes whole blocks. They are durable after a Flush that began when WriteAt had returned.
func (d *Drive) WriteAt(ctx context.Context, p []byte, off uint64) error {
	if err := d.check("write", off, uint64(len(p))); err != nil {
		return err
	}
	return d.move(ctx, nvme.OpWrite, false, p, off)
}

// WriteDurably is WriteAt of what is durable when it returns.
func (d *Drive) WriteDurably(ctx context.Context, p []byte, off uint64) error {
	if err := d.check("write", off, uint64(len(p))); err != nil {
		return err
	}
	return d.move(ctx, nvme.OpWrite, true, p, off)
}

// Compare reports whether the drive has p at off; errors aside.
func (d *Drive) Compare(ctx context.Context, p []byte, off uint64) (same bool, err error) {
	if err := d.check("compare", off, uint64(len(p))); err != nil {
		return false, err
	}
	err = d.move(ctx, nvme.OpCompare, false, p, off)
	var refused *StatusError
	if errors.As(err, &refused) && refused.Status == nvme.StatusCompareFails {
		return false, nil
	}
	return err == nil, err
}

// CompareAndWrite writes p at off if the drive has old there, which is as long, and reports whether it did. No other write of these blocks comes in between, of no borrower: on it
// several can agree who writes what. It takes one command, so p is at most a buffer (Config.BufferBytes), and a Depth of 2.
func (d *Drive) CompareAndWrite(ctx context.Context, old, p []byte, off uint64) (swapped bool, err error) {
	if err := d.check("compare and write", off, uint64(len(p))); err != nil {
		return false, err
	}
	if len(old) != len(p) || len(p) == 0 || len(p) > d.cfg.BufferBytes || d.cfg.Depth < 2 {
		return false, fmt.Errorf("drive %s: %w: %d bytes for %d, with buffers of %d and a depth of %d: both as long, 1 to a buffer, and a depth of 2", d.cfg.Drive, device.ErrSpec,
			len(p), len(old), d.cfg.BufferBytes, d.cfg.Depth)
	}
	if !d.seg.Pin() {
		return false, d.Err()
	}
	defer d.seg.Unpin()
	ids, err := d.twoSlots(ctx)
	if err != nil {
		return false, err
	}
	copy(d.buffer(ids[0]), old)
	copy(d.buffer(ids[1]), p)
	c := nvme.Command{Op: nvme.OpCompare, Fused: 1, Block: off / d.lease.BlockBytes, Blocks: uint32(uint64(len(p)) / d.lease.BlockBytes)}
	w := c
	w.Op, w.Fused = nvme.OpWrite, 2
	try := func() error { return d.trySendPair(ids, [2]nvme.Command{c, w}, len(p)) }
	if err = try(); errors.Is(err, fabric.ErrBackpressure) {
		err = d.sendLater(try)
	}
	if err != nil {
		d.fail(err)
		return false, d.Err()
	}
	compared := d.finish(ctx, flight{id: ids[0]})
	written := d.finish(ctx, flight{id: ids[1]})
	var refused *StatusError
	switch {
	case errors.As(compared, &refused) && refused.Status == nvme.StatusCompareFails:
		return false, nil
	case errors.As(compared, &refused) && refused.Status == nvme.StatusFusedFailed: // what the other says is why
		return false, written
	case compared != nil:
		return false, compared
	}
	return written == nil, written
}

// simple carries out one command, with what fill puts into its buffer as data.
func (d *Drive) simple(ctx context.Context, c nvme.Command, data []byte) error {
	if !d.seg.Pin() {
		return d.Err()
	}
	defer d.seg.Unpin()
	id, err := d.slot(ctx)
	if err != nil {
		return err
	}
	copy(d.buffer(id), data)
	if err := d.send(id, c, len(data), true, pending); err != nil {
		d.fail(err)
		return d.Err()
	}
	return d.finish(ctx, flight{id: id})
}

// Flush makes durable what was written by commands that had ended.
func (d *Drive) Flush(ctx context.Context) error {
	return d.simple(ctx, nvme.Command{Op: nvme.OpFlush, Blocks: 1}, nil)
}

const (
	// maxZeroBlocks is what one Write Zeroes can name.
	maxZeroBlocks = 1 << 16
	// maxTrimBlocks is what one range of a trim names here.
	maxTrimBlocks = 1 << 31
)

// rangeOf writes a range of Dataset Management.
func rangeOf(r []byte, block uint64, blocks uint32) (size int) {
	clear(r[:4])
	binary.LittleEndian.PutUint32(r[4:], blocks)
	binary.LittleEndian.PutUint64(r[8:], block)
	return 16
}

// WriteZeroes makes whole blocks zeros, without sending any.
func (d *Drive) WriteZeroes(ctx context.Context, off, n uint64) error {
	if err := d.check("zeroing", off, n); err != nil {
		return err
	}
	block, left := off/d.lease.BlockBytes, n/d.lease.BlockBytes
	for left > 0 {
		k := min(left, maxZeroBlocks)
		if err := d.simple(ctx, nvme.Command{Op: nvme.OpWriteZeroes, Block: block, Blocks: uint32(k)}, nil); err != nil {
			return err
		}
		block, left = block+k, left-k
	}
	return nil
}

// Trim says that the contents of whole blocks are not needed any more. They are read as zeros afterwards where the lender's disk can do that, and else as before.
func (d *Drive) Trim(ctx context.Context, off, n uint64) error {
	if err := d.check("trim", off, n); err != nil {
		return err
	}
	block, left := off/d.lease.BlockBytes, n/d.lease.BlockBytes
	for left > 0 {
		k := min(left, maxTrimBlocks)
		var r [16]byte
		rangeOf(r[:], block, uint32(k))
		if err := d.simple(ctx, nvme.Command{Op: nvme.OpDataset, Blocks: 1, Free: true}, r[:]); err != nil {
			return err
		}
		block, left = block+k, left-k
	}
	return nil
}
