package nvme

import (
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

// shadow are doorbells in the borrower's memory (NVMe's Doorbell Buffer Config), at the places that they have among registers: the borrower writes its indexes there, and
// rings a register only if it passes what events says. The engine leaves events alone while it looks by itself, and sets them before it sleeps.
type shadow struct {
	doorbells, events     *window
	doorbellsAt, eventsAt uint64
}

// ShadowBytes is the size of each of the two pages.
const ShadowBytes = pageBytes

// SetShadow has the doorbells looked for in the borrower's memory; 0 and 0: in the registers again. What the doorbells say stays.
func (c *Controller) SetShadow(doorbells, events uint64) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("%w: lease %d has ended", device.ErrNoLease, c.lease)
	}
	if doorbells == 0 && events == 0 {
		c.shadow = nil
		return nil
	}
	d, e := c.window(doorbells, ShadowBytes), c.window(events, ShadowBytes)
	if d == nil || e == nil || doorbells%ShadowBytes != 0 || events%ShadowBytes != 0 || !d.mapped() || !e.mapped() {
		return fmt.Errorf("%w: shadow doorbells at %#x and %#x: two pages of windows that are mapped here", device.ErrSpec, doorbells, events)
	}
	s := &shadow{d, e, doorbells - d.Base, events - e.Base}
	for _, q := range c.queues {
		tail, head := q.doorbells()
		if !s.set(q.id, tail, head) {
			return fmt.Errorf("%w: shadow doorbells in memory that is gone", device.ErrSpec)
		}
	}
	c.shadow = s
	return nil
}

// set gives a queue's doorbells values.
func (s *shadow) set(queue uint16, tail, head uint32) bool {
	return s.write(s.doorbells, s.doorbellsAt+device.SubmissionDoorbell(queue), tail) && s.write(s.doorbells, s.doorbellsAt+device.CompletionDoorbell(queue), head)
}

func (s *shadow) write(w *window, off uint64, v uint32) bool {
	mem := w.pin(fabric.RightWrite)
	if mem == nil {
		return false
	}
	defer w.unpin()
	fabric.CopyIn(mem[off:off+4], binary.NativeEndian.AppendUint32(nil, v))
	return true
}

// word loads an aligned word of four bytes.
func word(mem []byte) uint32 {
	var b [4]byte
	fabric.CopyOut(b[:], mem[:4])
	return binary.NativeEndian.Uint32(b[:])
}

// doorbells are a queue's. Where the memory of shadow doorbells is gone they say nothing new.
func (q *queue) doorbells() (tail, head uint32) {
	regs := q.c.registers.Bytes()
	if s := q.c.shadow; s != nil {
		mem := s.doorbells.pin(fabric.RightRead)
		if mem == nil {
			return q.head, q.tail
		}
		defer s.doorbells.unpin()
		regs = mem[s.doorbellsAt:]
	}
	return word(regs[device.SubmissionDoorbell(q.id):]), word(regs[device.CompletionDoorbell(q.id):])
}

// arm is called before the leader sleeps: it has the borrower ring at its next command and, where the completion queue has no room for what waits, at the next that it takes. The look that
// follows sees what was written before.
func (q *queue) arm() {
	s := q.c.shadow
	if s == nil {
		return
	}
	tail, head := q.doorbells()
	s.write(s.events, s.eventsAt+device.SubmissionDoorbell(q.id), tail)
	if _, room, err := q.look(); err == nil && room <= q.needs {
		s.write(s.events, s.eventsAt+device.CompletionDoorbell(q.id), head)
	}
}

// Ring stores a doorbell for a borrower at this element.
func (c *Controller) Ring(offset uint64, v uint32) error {
	if offset%4 != 0 || offset+4 > fabric.RegistersBytes {
		return fmt.Errorf("%w: a doorbell at %d", device.ErrSpec, offset)
	}
	if !c.registers.Pin() {
		return fmt.Errorf("%w: lease %d has ended", device.ErrNoLease, c.lease)
	}
	fabric.CopyIn(c.registers.Bytes()[offset:offset+4], binary.NativeEndian.AppendUint32(nil, v))
	c.registers.Unpin()
	c.e.ring()
	return nil
}
