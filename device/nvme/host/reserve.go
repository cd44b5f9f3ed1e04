package host

import (
	"context"
	"encoding/binary"

	"github.com/wherry-fabric/wherry/device/nvme"
)

// Reservations keep other borrowers of the same blocks out, for programs that share a drive in mode shared: a borrower registers with a key of its own, and one that has registered may
// hold the reservation. It goes with the lease, once nothing of that is under way any more. Whoever is kept out gets nvme.StatusReserved.

// reserve sends a reservation command.
func (d *Drive) reserve(ctx context.Context, op nvme.Opcode, dw10 uint32, keys ...uint64) error {
	var data []byte
	for _, key := range keys {
		data = binary.LittleEndian.AppendUint64(data, key)
	}
	return d.simple(ctx, nvme.Command{Op: op, Block: uint64(dw10), Blocks: 1}, data)
}

const ignoreKey = 1 << 3 // of dword 10

func kindBits(k nvme.Kind) uint32 { return uint32(k) << 8 }

// Register registers with a key, or with another one than before.
func (d *Drive) Register(ctx context.Context, key uint64) error {
	return d.reserve(ctx, nvme.OpReservationRegister, nvme.ReplaceKey|ignoreKey, 0, key)
}

// Unregister undoes Register; what was held is free.
func (d *Drive) Unregister(ctx context.Context, key uint64) error {
	return d.reserve(ctx, nvme.OpReservationRegister, nvme.UnregisterKey, key, 0)
}

// Reserve takes the reservation, which nobody else holds.
func (d *Drive) Reserve(ctx context.Context, key uint64, kind nvme.Kind) error {
	return d.reserve(ctx, nvme.OpReservationAcquire, nvme.Acquire|kindBits(kind), key, 0)
}

// Preempt ends the registrations with the key other, and takes the reservation if it was held with that. Commands of theirs that are under way end first or not at all: a write of
// theirs may land after Preempt, so wait for the end of their leases where that matters.
func (d *Drive) Preempt(ctx context.Context, key, other uint64, kind nvme.Kind) error {
	return d.reserve(ctx, nvme.OpReservationAcquire, nvme.Preempt|kindBits(kind), key, other)
}

// Unreserve gives the reservation up.
func (d *Drive) Unreserve(ctx context.Context, key uint64, kind nvme.Kind) error {
	return d.reserve(ctx, nvme.OpReservationRelease, nvme.Release|kindBits(kind), key)
}

// Registrant is a lease that has registered.
type Registrant struct {
	Lease uint64
	Key   uint64
	Holds bool
}

// maxRegistrants is how many Reservation asks for.
const maxRegistrants = 128

// Reservation tells who has registered for the blocks that were borrowed, at most 128, and what kind of reservation is held; 0: none.
func (d *Drive) Reservation(ctx context.Context) (kind nvme.Kind, who []Registrant, err error) {
	if !d.seg.Pin() {
		return 0, nil, d.Err()
	}
	defer d.seg.Unpin()
	id, err := d.slot(ctx)
	if err != nil {
		return 0, nil, err
	}
	const head = 24
	p := make([]byte, min(head*(1+maxRegistrants), d.cfg.BufferBytes))
	c := nvme.Command{Op: nvme.OpReservationReport, Block: uint64(len(p)/4 - 1), Blocks: 1}
	if err := d.send(id, c, len(p), false, pending); err != nil {
		d.fail(err)
		return 0, nil, d.Err()
	}
	if err := d.finish(ctx, flight{id, p}); err != nil {
		return 0, nil, err
	}
	le := binary.LittleEndian
	for n := int(le.Uint16(p[5:])); n > 0 && len(p) >= head*2; n-- {
		if kind == 0 {
			kind = nvme.Kind(p[4])
		}
		e := p[head*(1+len(who)):]
		if len(e) < head {
			break
		}
		who = append(who, Registrant{Lease: le.Uint64(e[8:]), Key: le.Uint64(e[16:]), Holds: e[2]&1 != 0})
	}
	return kind, who, nil
}
