package nvme

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Kind is what a reservation keeps others from (NVM Express Base 2.0, 8.19).
type Kind uint8

const (
	WriteExclusive            Kind = 1 + iota // only the holder writes
	ExclusiveAccess                           // only the holder reads and writes
	WriteExclusiveRegistrants                 // only registrants write
	ExclusiveAccessRegistrants
	WriteExclusiveAll // the same, and all registrants hold it
	ExclusiveAccessAll
)

func (k Kind) valid() bool       { return k >= WriteExclusive && k <= ExclusiveAccessAll }
func (k Kind) registrants() bool { return k >= WriteExclusiveRegistrants }
func (k Kind) all() bool         { return k >= WriteExclusiveAll }

// reads reports whether those may read whom it keeps from writing.
func (k Kind) reads() bool { return k%2 == 1 }

// Actions of reservation commands, in the lower bits of dword 10.
const (
	RegisterKey   = 0 // Reservation Register
	UnregisterKey = 1
	ReplaceKey    = 2
	Acquire       = 0 // Reservation Acquire
	Preempt       = 1
	Release       = 0 // Reservation Release
	Clear         = 1
)

// reservation keeps which leases have registered for a range of blocks, and which one holds it. It is pure: requests come as method calls, and leases are numbers.
// No lease is registered twice, so there are at most as many keys as leases.
type reservation struct {
	keys       map[uint64]uint64 // of the leases that have registered
	kind       Kind              // 0: nobody holds it
	holder     uint64            // 0: all registrants do
	generation uint32            // raised at each change of keys
}

func newReservation() *reservation { return &reservation{keys: map[uint64]uint64{}} }

// holds reports whether a lease holds the reservation.
func (r *reservation) holds(lease uint64) bool {
	_, registered := r.keys[lease]
	return r.kind != 0 && registered && (r.kind.all() || r.holder == lease)
}

// allows reports whether a lease may read, or write. One that has another range is never registered.
func (r *reservation) allows(lease uint64, write bool) bool {
	if r.kind == 0 || r.holds(lease) || !write && r.kind.reads() {
		return true
	}
	_, registered := r.keys[lease]
	return r.kind.registrants() && registered
}

// known reports whether a lease has registered with a key.
func (r *reservation) known(lease, key uint64, ignore bool) bool {
	own, registered := r.keys[lease]
	return registered && (ignore || own == key)
}

// drop takes a lease's registration away, and with it what it holds.
func (r *reservation) drop(lease uint64) {
	if _, registered := r.keys[lease]; !registered {
		return
	}
	delete(r.keys, lease)
	r.generation++
	if r.kind != 0 && (r.holder == lease || r.kind.all() && len(r.keys) == 0) {
		r.kind, r.holder = 0, 0
	}
}

// register is Reservation Register.
func (r *reservation) register(lease uint64, action uint8, ignore bool, key, next uint64) Status {
	own, registered := r.keys[lease]
	switch action {
	case RegisterKey:
		if registered && own != next {
			return StatusReserved
		}
		if registered {
			return StatusOK
		}
	case UnregisterKey:
		if !r.known(lease, key, ignore) {
			return StatusReserved
		}
		r.drop(lease)
		return StatusOK
	case ReplaceKey:
		if !ignore && !r.known(lease, key, false) {
			return StatusReserved
		}
	default:
		return StatusField
	}
	r.keys[lease] = next
	r.generation++
	return StatusOK
}

// acquire is Reservation Acquire: it takes a reservation that is free, or preempts the leases that have registered with the key other.
func (r *reservation) acquire(lease uint64, action uint8, ignore bool, key, other uint64, kind Kind) Status {
	switch {
	case !kind.valid() || action > Preempt: // commands that are under way cannot be called back, so there is no Preempt and Abort
		return StatusField
	case !r.known(lease, key, ignore):
		return StatusReserved
	case action == Preempt:
		return r.preempt(lease, other, kind)
	case r.kind == 0:
		r.take(lease, kind)
		return StatusOK
	case r.holds(lease) && r.kind == kind:
		return StatusOK
	}
	return StatusReserved
}

func (r *reservation) take(lease uint64, kind Kind) {
	if r.kind, r.holder = kind, lease; kind.all() {
		r.holder = 0
	}
}

func (r *reservation) preempt(lease, other uint64, kind Kind) Status {
	everybody := r.kind.all() && other == 0
	takes := everybody || r.kind != 0 && !r.kind.all() && r.keys[r.holder] == other
	if other == 0 && !takes {
		return StatusField
	}
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(r.keys)), func(l uint64) bool { return !everybody && r.keys[l] != other })
	if len(gone) == 0 {
		return StatusReserved
	}
	for _, l := range gone {
		if l != lease {
			r.drop(l)
		}
	}
	if takes {
		r.take(lease, kind)
	}
	r.generation++
	return StatusOK
}

// release is Reservation Release.
func (r *reservation) release(lease uint64, action uint8, ignore bool, key uint64, kind Kind) Status {
	switch {
	case action > Clear:
		return StatusField
	case !r.known(lease, key, ignore):
		return StatusReserved
	case action == Clear:
		clear(r.keys)
		r.kind, r.holder = 0, 0
		r.generation++
		return StatusOK
	case !r.holds(lease):
		return StatusOK
	case r.kind != kind:
		return StatusField
	}
	r.kind, r.holder = 0, 0
	return StatusOK
}

// Sizes of a report's parts: the head and each registrant's, with host identifiers of 8 bytes or, extended, of 16.
const (
	reportBytes         = 24
	reportExtendedBytes = 64
)

// report is Reservation Report: what to put into size bytes. A lease's number is its controller's and its host's.
func (r *reservation) report(size int, extended bool) []byte {
	le := binary.LittleEndian
	each := reportBytes
	if extended {
		each = reportExtendedBytes
	}
	leases := slices.Sorted(maps.Keys(r.keys))
	b := make([]byte, each*(1+len(leases)), max(size, each*(1+len(leases))))
	le.PutUint32(b, r.generation)
	b[4] = byte(r.kind)
	le.PutUint16(b[5:], uint16(len(leases)))
	for i, lease := range leases {
		e := b[each*(1+i):]
		le.PutUint16(e, uint16(lease))
		if r.holds(lease) {
			e[2] = 1
		}
		if extended {
			le.PutUint64(e[8:], r.keys[lease])
			le.PutUint64(e[16:], lease)
		} else {
			le.PutUint64(e[8:], lease)
			le.PutUint64(e[16:], r.keys[lease])
		}
	}
	return b[:size] // which is zeros behind the last
}
