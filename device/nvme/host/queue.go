package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// States of a slot: the lower bits of its word. The upper ones are the command's status once it has ended.
const (
	idle      = iota
	pending   // the lender has it
	abandoned // … and nobody waits
	submitted // … and Reap takes its end
	ended
	stateMask = 7
)

// slot is a place for a command: its number is the command's id, and it has a buffer.
type slot struct {
	state  atomic.Uint32
	since  atomic.Int64 // when it was sent, on the element's clock
	op     nvme.Opcode
	tag    uint64
	waiter fabric.Waiter
	put    fabric.Op // of the data to a queue at the lender: the last one, ended or not; set under Drive.mu
	isOver func() bool
}

func (s *slot) init(el *fabric.Element) {
	s.waiter.Init(el)
}

// over reports whether whoever waits for the slot has waited enough.
func (d *Drive) over(s *slot) bool { return s.state.Load()&stateMask == ended || d.dead.Load() != nil }

// take gets a free slot; false if there is none.
func (d *Drive) take() (uint16, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.free) == 0 {
		return 0, false
	}
	id := d.free[len(d.free)-1]
	d.free = d.free[:len(d.free)-1]
	return id, true
}

// give puts a slot back whose command has ended.
func (d *Drive) give(id uint16) {
	d.slots[id].state.Store(idle)
	d.mu.Lock()
	d.free = append(d.free, id)
	d.mu.Unlock()
	d.room.Wake()
}

// slot waits for a free one.
func (d *Drive) slot(ctx context.Context) (id uint16, err error) {
	id, ok := d.take()
	if !ok {
		err = d.room.Wait(ctx, func() bool {
			if id, ok = d.take(); ok {
				return true
			}
			return d.dead.Load() != nil
		})
	}
	if err == nil && !ok {
		err = d.Err()
	}
	return id, err
}

// twoSlots waits for two slots and takes them together: two callers with one each would wait for each other for ever.
func (d *Drive) twoSlots(ctx context.Context) (ids [2]uint16, err error) {
	ok := false
	err = d.room.Wait(ctx, func() bool {
		d.mu.Lock()
		if n := len(d.free); n >= 2 {
			copy(ids[:], d.free[n-2:])
			d.free, ok = d.free[:n-2], true
		}
		d.mu.Unlock()
		return ok || d.dead.Load() != nil
	})
	if err == nil && !ok {
		err = d.Err()
	}
	return ids, err
}

// buffer is a slot's.
func (d *Drive) buffer(id uint16) []byte {
	at := int(id) * d.cfg.BufferBytes
	return d.data[at : at+d.cfg.BufferBytes : at+d.cfg.BufferBytes]
}

// address is where the lender finds a slot's buffer: of data that it reads, or that it writes.
func (d *Drive) address(id uint16, reads bool) uint64 {
	off := uint64(int(id) * d.cfg.BufferBytes)
	if reads && d.far != nil {
		return device.Address(device.BufferWindow+queueID, uint64(d.cfg.entries()*nvme.CommandBytes)+off)
	}
	return device.Address(window, uint64(len(d.cq)+len(d.sq))+off)
}

// send puts a command into the queue and rings. size is how many bytes of the slot's buffer it is about, which the lender reads if reads says so.
// Where the connection has no operation left it waits for one.
func (d *Drive) send(id uint16, c nvme.Command, size int, reads bool, state uint32) error {
	err := d.trySend(id, c, size, reads, state)
	if !errors.Is(err, fabric.ErrBackpressure) {
		return err
	}
	return d.sendLater(func() error { return d.trySend(id, c, size, reads, state) })
}

// sendLater waits until the connection has room.
func (d *Drive) sendLater(try func() error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.CommandTime)
	defer cancel()
	err = fabric.ErrBackpressure
	d.cfg.Element.WaitFor(ctx, func() bool {
		err = try()
		return !errors.Is(err, fabric.ErrBackpressure)
	})
	return err
}

// trySend is send that does not wait. After ErrBackpressure the lender has seen nothing of the command, and it can be tried again.
func (d *Drive) trySend(id uint16, c nvme.Command, size int, reads bool, state uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.far != nil && d.ep.Hold() { // command and doorbell leave together
		defer d.ep.Release()
	}
	if err := d.enter(0, id, c, size, reads, state); err != nil {
		return err
	}
	return d.ring(1)
}

// trySendPair is trySend of two commands that are carried out as one: the lender sees both or none.
func (d *Drive) trySendPair(ids [2]uint16, c [2]nvme.Command, size int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.far != nil && d.ep.Hold() {
		defer d.ep.Release()
	}
	for i, id := range ids {
		if err := d.enter(uint32(i), id, c[i], size, true, pending); err != nil {
			return err
		}
	}
	return d.ring(2)
}

// enter puts a command into the queue, i behind its tail; d.mu is held.
func (d *Drive) enter(i uint32, id uint16, c nvme.Command, size int, reads bool, state uint32) error {
	if err := d.Err(); err != nil {
		return err
	}
	s := &d.slots[id]
	c.ID, c.NS = id, nvme.Namespace
	if size > 0 {
		c.SGL, c.Data = true, nvme.DataBlock(d.address(id, reads), uint32(size))
	}
	s.op = c.Op
	s.since.Store(d.cfg.Element.Now())
	s.state.Store(state)
	at := uint64(d.behind(i)) * nvme.CommandBytes
	c.Encode(&d.entry)
	if d.far == nil {
		copy(d.sq[at:], d.entry[:])
		return nil
	}
	return d.sendFar(s, id, at, size, reads)
}

// behind is the entry i behind the tail: there are fewer slots than entries.
func (d *Drive) behind(i uint32) uint32 { return (d.tail + i) & uint32(d.cfg.entries()-1) }

// ring tells the lender of n commands; d.mu is held.
func (d *Drive) ring(n uint32) error {
	tail := d.behind(n)
	err := d.regs.Ring(device.SubmissionDoorbell(queueID), 4, uint64(tail))
	if err == nil {
		d.tail = tail
	}
	return err
}

// sendFar puts a command, and what it writes, into the lender's memory. The fence keeps it before the doorbell. What the connection takes at once is posted: the
// lender's completion is answer enough.
func (d *Drive) sendFar(s *slot, id uint16, at uint64, size int, reads bool) error {
	if reads {
		_, off := device.Split(d.address(id, true))
		if err := d.sendData(s, d.buffer(id)[:size], off); err != nil {
			return err
		}
	}
	if err := d.far.Post(d.entry[:], at); err != nil {
		return err
	}
	d.ep.Fence()
	return nil
}

func (d *Drive) sendData(s *slot, p []byte, off uint64) error {
	s.put.Forget() // an earlier command's, that nobody waited for
	s.put = fabric.Op{}
	if len(p) <= fabric.MaxPostBytes {
		if err := d.far.Post(p, off); !errors.Is(err, fabric.ErrBackpressure) {
			return err
		}
	}
	if s.put = d.far.StartPut(p, off); s.put.Poll() {
		err := s.put.Wait(context.Background()) // it has ended
		s.put = fabric.Op{}
		return err
	}
	return nil
}

// Poll implements fabric.Poller: it takes completions off the queue.
func (d *Drive) Poll(budget int, _ fabric.Turn) int {
	n := 0
	for ; n < budget; n++ {
		c, ok := d.peek()
		if !ok {
			break
		}
		if d.head++; d.head == uint32(d.cfg.entries()) {
			d.head, d.phase = 0, !d.phase
		}
		d.complete(c)
	}
	if entries := uint32(d.cfg.entries()); (d.head-d.told)&(entries-1) >= entries/4 {
		switch err := d.regs.Ring(device.CompletionDoorbell(queueID), 4, uint64(d.head)); {
		case err == nil:
			d.told = d.head
		case !errors.Is(err, fabric.ErrBackpressure): // else the next turn tells
			d.told = d.head
			d.fail(err)
		}
	}
	if n == 0 {
		d.lost()
	}
	return n
}

// lost notices the end of the connection, which the leader hears of first. What was completed before has been taken off the queue then.
func (d *Drive) lost() bool {
	err := d.ep.Err()
	if err != nil && d.dead.Load() == nil {
		d.fail(err)
	}
	return err != nil
}

// peek is the next completion, if it is there.
func (d *Drive) peek() (nvme.Completion, bool) {
	at := int(d.head)*nvme.CompletionBytes + 8
	var b [8]byte
	fabric.CopyOut(b[:], d.cq[at:at+8])
	c := nvme.ParseCompletion(binary.LittleEndian.Uint64(b[:]))
	return c, c.Phase == d.phase
}

// complete ends a command.
func (d *Drive) complete(c nvme.Completion) {
	if int(c.ID) >= len(d.slots) {
		d.fail(fmt.Errorf("the lender completed a command %d, and there are %d", c.ID, len(d.slots)))
		return
	}
	s := &d.slots[c.ID]
	for {
		was := s.state.Load()
		switch was & stateMask {
		case pending:
			if s.state.CompareAndSwap(was, ended|uint32(c.Status)<<16) {
				s.waiter.Wake()
				return
			}
			continue // it was given up meanwhile
		case submitted:
			s.state.Store(ended)
			d.mu.Lock()
			d.reaps = append(d.reaps, Done{Slot: Slot(c.ID), Tag: s.tag, Status: c.Status})
			d.count.Store(int32(len(d.reaps)))
			d.mu.Unlock()
			d.reaper.Wake()
		case abandoned:
			d.give(c.ID)
		default:
			d.fail(fmt.Errorf("the lender completed command %d, which is not under way", c.ID))
		}
		return
	}
}

// Arm implements fabric.Poller: the lender rings after it has written a completion.
func (d *Drive) Arm() bool {
	_, ok := d.peek()
	entries := uint32(d.cfg.entries())
	return ok || (d.head-d.told)&(entries-1) >= entries/4 // which the lender could not be told
}

// Disarm implements fabric.Poller.
func (d *Drive) Disarm() {}

// WaitFD implements fabric.Poller.
func (d *Drive) WaitFD() int { return -1 }
