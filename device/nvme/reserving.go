package nvme

import (
	"encoding/binary"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

// Reservation commands, of which each lease of a drive is a host. Leases of one range share a reservation; one of another range that overlaps is a host that has not
// registered, so it is kept out too.

// maxReportBytes bounds a report's data.
const maxReportBytes = 64 << 10

// reserves reports whether it is a reservation command.
func (o Opcode) reserves() bool {
	return o == OpReservationRegister || o == OpReservationReport || o == OpReservationAcquire || o == OpReservationRelease
}

// allows reports whether no reservation keeps a lease from reading, or writing.
func (k *crew) allows(c *Controller, write bool) bool {
	for at, r := range k.reserved {
		if at == c.span || at.Overlaps(c.span) {
			if !r.allows(c.lease, write) {
				return false
			}
		}
	}
	return true
}

// unregister is called when a lease has nothing under way any more; Engine.mu is held.
func (k *crew) unregister(c *Controller) {
	if r := k.reserved[c.span]; r != nil {
		r.drop(c.lease)
		k.tidy(c.span, r)
	}
}

// tidy forgets a reservation that nobody has registered for.
func (k *crew) tidy(at device.Range, r *reservation) {
	if len(r.keys) == 0 {
		delete(k.reserved, at)
	}
}

// executeReservation carries out a reservation command; see execute.
func (o *op) executeReservation(cmd *Command) (moved int, done bool) {
	if o.status = o.reserve(cmd); o.status == StatusOK && len(o.far) > 0 {
		if done = o.conclude(nil); !done {
			o.c.e.end(o)
		}
		return 0, done
	}
	o.c.post(o.q, o.id, o.status)
	o.c.e.end(o)
	return 0, true
}

func (o *op) reserve(cmd *Command) Status {
	if cmd.NS != Namespace {
		return StatusNamespace
	}
	if cmd.Fused != 0 {
		return StatusField
	}
	k, c := o.c.crew, o.c
	r := k.reserved[c.span]
	if r == nil {
		r = newReservation()
	}
	dw10, dw11 := uint32(cmd.Block), uint32(cmd.Block>>32)
	if cmd.Op == OpReservationReport {
		return o.report(r, cmd, (uint64(dw10)+1)*4, dw11&1 != 0)
	}
	if c.readOnly { // who may only read keeps nobody out
		return StatusProtected
	}
	size := uint64(16)
	if cmd.Op == OpReservationRelease {
		size = 8
	}
	if st := o.locate(cmd, size, fabric.RightRead); st != StatusOK {
		return st
	}
	var b [16]byte
	n := 0
	for _, p := range o.pieces {
		n += copy(b[n:], p)
	}
	first, second := binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	action, ignore, kind := uint8(dw10&7), dw10&8 != 0, Kind(dw10>>8)
	st := StatusOK
	switch cmd.Op {
	case OpReservationRegister:
		if dw10>>30 == 3 { // to keep it over a restart
			return StatusField
		}
		st = r.register(c.lease, action, ignore, first, second)
	case OpReservationAcquire:
		st = r.acquire(c.lease, action, ignore, first, second, kind)
	default:
		st = r.release(c.lease, action, ignore, first, kind)
	}
	k.reserved[c.span] = r
	k.tidy(c.span, r)
	return st
}

// report finds where a report goes, and puts it there or leaves it to conclude.
func (o *op) report(r *reservation, cmd *Command, size uint64, extended bool) Status {
	if size > maxReportBytes {
		return StatusField
	}
	if st := o.locate(cmd, size, fabric.RightWrite); st != StatusOK {
		return st
	}
	text := r.report(int(size), extended)
	if len(o.far) > 0 {
		o.bounce = o.c.e.scratch[:copy(o.c.e.scratch, text)]
		return StatusOK
	}
	for _, p := range o.pieces {
		text = text[copy(p, text):]
	}
	return StatusOK
}
