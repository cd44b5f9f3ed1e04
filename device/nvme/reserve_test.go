package nvme

import (
	"encoding/binary"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// TestReservation follows the examples of the specification: who registers, holds, is kept out, preempts and releases.
func TestReservation(t *testing.T) {
	const a, b, c = 1, 2, 3
	r := newReservation()
	is := func(what string, got, want Status) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got.Text(), want.Text())
		}
	}
	may := func(what string, lease uint64, read, write bool) {
		t.Helper()
		if got := r.allows(lease, false); got != read {
			t.Errorf("%s: %d may read: %v", what, lease, got)
		}
		if got := r.allows(lease, true); got != write {
			t.Errorf("%s: %d may write: %v", what, lease, got)
		}
	}
	is("acquire without a registration", r.acquire(a, Acquire, false, 0, 0, WriteExclusive), StatusReserved)
	is("register", r.register(a, RegisterKey, false, 0, 10), StatusOK)
	is("again with the same key", r.register(a, RegisterKey, false, 0, 10), StatusOK)
	is("again with another", r.register(a, RegisterKey, false, 0, 11), StatusReserved)
	is("replace", r.register(a, ReplaceKey, false, 10, 11), StatusOK)
	is("replace with a wrong one", r.register(a, ReplaceKey, false, 10, 12), StatusReserved)
	is("register b", r.register(b, RegisterKey, false, 0, 20), StatusOK)
	is("acquire with a wrong key", r.acquire(a, Acquire, false, 10, 0, WriteExclusive), StatusReserved)
	is("a kind that there is not", r.acquire(a, Acquire, false, 11, 0, 7), StatusField)
	is("preempt and abort", r.acquire(a, 2, false, 11, 20, WriteExclusive), StatusField)
	is("acquire", r.acquire(a, Acquire, false, 11, 0, WriteExclusive), StatusOK)
	is("again", r.acquire(a, Acquire, false, 11, 0, WriteExclusive), StatusOK)
	is("by b", r.acquire(b, Acquire, false, 20, 0, WriteExclusive), StatusReserved)
	may("write exclusive", a, true, true)
	may("write exclusive", b, true, false)
	may("write exclusive", c, true, false)
	is("release by b", r.release(b, Release, false, 20, WriteExclusive), StatusOK)
	may("released by another", b, true, false)
	is("release as another kind", r.release(a, Release, false, 11, ExclusiveAccess), StatusField)
	is("release", r.release(a, Release, false, 11, WriteExclusive), StatusOK)
	may("released", c, true, true)
	is("exclusive access for registrants", r.acquire(a, Acquire, false, 11, 0, ExclusiveAccessRegistrants), StatusOK)
	may("for registrants", b, true, true)
	may("for registrants", c, false, false)
	is("preempt nobody", r.acquire(b, Preempt, false, 20, 99, ExclusiveAccess), StatusReserved)
	is("preempt 0", r.acquire(b, Preempt, false, 20, 0, ExclusiveAccess), StatusField)
	is("preempt", r.acquire(b, Preempt, false, 20, 11, ExclusiveAccess), StatusOK)
	may("preempted", a, false, false)
	may("preempted", b, true, true)
	is("the preempted one", r.acquire(a, Preempt, false, 11, 20, ExclusiveAccess), StatusReserved)
	is("unregister", r.register(b, UnregisterKey, false, 20, 0), StatusOK)
	may("nobody is left", a, true, true)
	is("register all", r.register(a, RegisterKey, false, 0, 1)|r.register(b, RegisterKey, false, 0, 2), StatusOK)
	is("for all registrants", r.acquire(a, Acquire, false, 1, 0, WriteExclusiveAll), StatusOK)
	may("all hold it", b, true, true)
	may("all hold it", c, true, false)
	r.drop(a)
	may("one of all went", c, true, false)
	is("clear", r.release(b, Clear, false, 2, 0), StatusOK)
	may("cleared", c, true, true)
}

// TestReservationSafe: whatever is asked, only registrants hold, a reservation has a holder, and whoever is kept out may not write.
func TestReservationSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReservation()
		small := func(what string, n uint64) uint64 { return rapid.Uint64Range(0, n).Draw(t, what) }
		for range 60 {
			lease, action, ignore := small("lease", 4), uint8(small("action", 3)), small("ignore", 1) == 1
			before, had := maps.Clone(r.keys), r.kind
			var st Status
			switch small("command", 3) {
			case 0:
				st = r.register(lease, action, ignore, small("key", 3), small("next", 3))
			case 1:
				st = r.acquire(lease, action, ignore, small("key", 3), small("other", 3), Kind(small("kind", 7)))
			case 2:
				st = r.release(lease, action, ignore, small("key", 3), Kind(small("kind", 7)))
			default:
				r.drop(lease)
			}
			if st != StatusOK && (!maps.Equal(before, r.keys) || had != r.kind) {
				t.Fatalf("%s, and it has changed something", st.Text())
			}
			if _, registered := r.keys[r.holder]; r.kind != 0 && !r.kind.all() && !registered || r.kind.all() && len(r.keys) == 0 || r.kind == 0 && r.holder != 0 {
				t.Fatalf("kind %d is held by %d of %v", r.kind, r.holder, r.keys)
			}
			for lease := range uint64(5) {
				if _, registered := r.keys[lease]; r.kind != 0 && !registered && (r.allows(lease, true) || r.allows(lease, false) && !r.kind.reads()) {
					t.Fatalf("kind %d lets %d in, which is not of %v", r.kind, lease, r.keys)
				}
			}
			if b := r.report(24*8, false); int(binary.LittleEndian.Uint16(b[5:])) != len(r.keys) || Kind(b[4]) != r.kind {
				t.Fatalf("the report %x of %v", b, r.keys)
			}
		}
	})
}
