package travel

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"
)

// The layouts of docs/travel.md. Decoders are strict: a message has one
// encoding, and whatever else arrives is an error that says what is wrong.

const (
	injectHeadBytes = 14
	traceBytes      = 25

	flagOrigin = 1 << 0 // the origin is not the sender: u64 follows
	flagBranch = 1 << 1 // not branch 0: u64 follows
	flagExt    = 1 << 2 // extensions follow
	flagState  = 1 << 3 // the function keeps scratch: i64 follows, when its origin started it

	// Extensions of INJECT: type byte, u16 length, bytes; in ascending order.
	extDeclare = 1 // image id, then table id if there is one, then the form (u8) if one is asked for
	extImage   = 2 // the image's bytes
	extTable   = 3 // the table's bytes
	extTrace   = 4
	extSent    = 5 // u32 parts and u32 lists the branch has sent so far
	extForks   = 6 // forks the branch has made so far, in no list yet
	extDerived = 7 // the constants of a derived function
	extMaker   = 8 // the incarnation of the element at which a run made the image
	extWorker  = 9 // u8 worker and u8 workers: as which of them the branch runs
	// extOptional and above may be skipped by a receiver that does not know them.
	extOptional = 128
)

var le = binary.LittleEndian

func malformed(k Kind, format string, args ...any) error {
	return fmt.Errorf("%w: %v: %s", ErrProtocol, k, fmt.Sprintf(format, args...))
}

func putU24(b []byte, v uint64) { b[0], b[1], b[2] = byte(v), byte(v>>8), byte(v>>16) }
func getU24(b []byte) uint64    { return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 }
func putU40(b []byte, v uint64) { le.PutUint32(b, uint32(v)); b[4] = byte(v >> 32) }
func getU40(b []byte) uint64    { return uint64(le.Uint32(b)) | uint64(b[4])<<32 }

func appendU24(b []byte, v uint64) []byte { return append(b, byte(v), byte(v>>8), byte(v>>16)) }
func appendU40(b []byte, v uint64) []byte { return append(le.AppendUint32(b, uint32(v)), byte(v>>32)) }

// expand24 gives the full number that has these low 24 bits and lies nearest to base.
func expand24(wire, base uint64) (uint64, bool) {
	d := int64(wire-base) << 40 >> 40
	return base + uint64(d), d >= 0 || base >= uint64(-d)
}

// encodeTime packs a remaining time into 16 bits, in µs, rounded down: 5 bits
// of exponent over 11 of mantissa, like a floating-point number without sign.
func encodeTime(d Instant) uint16 {
	us := uint64(max(d, 0)) / uint64(time.Microsecond)
	if us >= uint64(maxTime/time.Microsecond) {
		return 1<<16 - 1
	}
	exp := bits.Len64(us) - 12
	if exp < 0 {
		return uint16(us)
	}
	return uint16(exp+1)<<11 | uint16(us>>exp)&(1<<11-1)
}

// encodeTimeOnward is encodeTime for a branch that goes on: it rounds up or down
// by chance, so that a thousand elements in a row do not take a thousand roundings off. draw is random.
func encodeTimeOnward(d Instant, draw uint64) uint16 {
	exp := bits.Len64(uint64(max(d, 0))/uint64(time.Microsecond)) - 12
	if exp > 0 {
		d += Instant(draw>>(64-exp)) * Instant(time.Microsecond)
	}
	return encodeTime(d)
}

func decodeTime(v uint16) Instant {
	us := uint64(v & (1<<11 - 1))
	if exp := v >> 11; exp > 0 {
		us = (us | 1<<11) << (exp - 1)
	}
	return Instant(us) * Instant(time.Microsecond)
}

// injectMsg is INJECT. Slices point into the body.
type injectMsg struct {
	flags    uint8
	hops     uint16
	left     uint16 // encodeTime
	handle   uint16
	transfer uint64 // 24 bits
	seq      uint64
	origin   uint64
	branch   uint64
	born     int64
	payload  []byte
}

// injectExt is what extensions said.
type injectExt struct {
	declared     bool
	what         What
	imageBytes   []byte
	tableBytes   []byte
	hasTrace     bool
	trace        Trace
	parts, lists uint32
	forks        []byte // u64 each
	worker       uint8
	workers      uint8 // 0: one
}

// putHead writes everything before the extensions to b and returns its length.
func (m *injectMsg) putHead(b *[injectHeadBytes + 24]byte) int {
	n := putInject(b, uint16(m.flags), m.hops, m.left, m.handle, m.transfer, m.seq, m.origin, m.branch)
	if m.flags&flagState != 0 {
		le.PutUint64(b[n:], uint64(m.born))
		n += 8
	}
	return n
}

// putInject is putHead of a message that was never put together and keeps no scratch.
func putInject(b *[injectHeadBytes + 24]byte, flags, hops, left, handle uint16, transfer, seq, origin, branch uint64) int {
	le.PutUint16(b[0:], flags<<12|hops)
	le.PutUint16(b[2:], left)
	le.PutUint16(b[4:], handle)
	putU24(b[6:], transfer)
	putU40(b[9:], seq)
	n := injectHeadBytes
	if flags&flagOrigin != 0 {
		le.PutUint64(b[n:], origin)
		n += 8
	}
	if flags&flagBranch != 0 {
		le.PutUint64(b[n:], branch)
		n += 8
	}
	return n
}

// decode reads m from b; ext is filled only if there are extensions.
func (m *injectMsg) decode(b []byte, ext *injectExt) error {
	if len(b) < injectHeadBytes {
		return malformed(KindInject, "%d bytes, at least %d needed", len(b), injectHeadBytes)
	}
	w := le.Uint16(b)
	m.flags, m.hops = uint8(w>>12), w&MaxHops
	m.left, m.handle = le.Uint16(b[2:]), le.Uint16(b[4:])
	m.transfer, m.seq = getU24(b[6:]), getU40(b[9:])
	m.origin, m.branch, m.born = 0, 0, 0
	b = b[injectHeadBytes:]
	if m.flags&flagOrigin != 0 {
		if len(b) < 8 || le.Uint64(b) == 0 {
			return badHead(b)
		}
		m.origin, b = le.Uint64(b), b[8:]
	}
	if m.flags&flagBranch != 0 {
		if len(b) < 8 || le.Uint64(b) == 0 {
			return badHead(b)
		}
		m.branch, b = le.Uint64(b), b[8:]
	}
	if m.flags&flagState != 0 {
		if len(b) < 8 {
			return badHead(b)
		}
		m.born, b = int64(le.Uint64(b)), b[8:]
	}
	if m.flags&flagExt != 0 {
		var err error
		if b, err = ext.decode(b); err != nil {
			return err
		}
	}
	m.payload = b
	return nil
}

// badHead says what is wrong with an explicit origin or branch.
func badHead(b []byte) error {
	if len(b) < 8 {
		return malformed(KindInject, "ends inside its header")
	}
	return malformed(KindInject, "an explicit origin or branch is 0")
}

func (e *injectExt) decode(b []byte) (rest []byte, err error) {
	*e = injectExt{}
	if len(b) < 2 {
		return nil, malformed(KindInject, "ends before its extensions")
	}
	n := int(le.Uint16(b))
	if n == 0 || n > len(b)-2 {
		return nil, malformed(KindInject, "%d bytes of extensions, %d are there", n, len(b)-2)
	}
	b, rest = b[2:2+n], b[2+n:]
	for last := -1; len(b) > 0; {
		if len(b) < 3 || int(le.Uint16(b[1:])) > len(b)-3 {
			return nil, malformed(KindInject, "an extension is cut short")
		}
		t, v := int(b[0]), b[3:3+le.Uint16(b[1:])]
		if t <= last {
			return nil, malformed(KindInject, "extension %d after %d", t, last)
		}
		if err := e.one(t, v); err != nil {
			return nil, err
		}
		last, b = t, b[3+len(v):]
	}
	if !e.declared && (e.imageBytes != nil || e.tableBytes != nil || e.what.Constants != "" || e.what.Maker != 0) || e.tableBytes != nil && e.what.Table.IsZero() {
		return nil, malformed(KindInject, "an object comes without its declaration")
	}
	return rest, nil
}

func (e *injectExt) one(t int, v []byte) error {
	ok := true
	switch t {
	case extDeclare:
		ok = e.what.decode(v)
		e.declared = true
	case extImage:
		e.imageBytes = v
		ok = len(v) > 0
	case extTable:
		e.tableBytes = v
		ok = len(v) > 0
	case extTrace:
		if ok = len(v) == traceBytes; ok {
			e.hasTrace = true
			copy(e.trace.TraceID[:], v)
			copy(e.trace.Span[:], v[16:])
			e.trace.Flags = v[24]
		}
	case extSent:
		if ok = len(v) == 8; ok {
			e.parts, e.lists = le.Uint32(v), le.Uint32(v[4:])
			ok = e.parts|e.lists != 0
		}
	case extForks:
		e.forks = v
		ok = len(v) > 0 && len(v)%8 == 0 && len(v) <= 8*listForks
	case extDerived:
		e.what.Constants = string(v)
		ok = len(v) > 0 && len(v) <= MaxConstantsBytes
	case extMaker:
		if ok = len(v) == 8; ok {
			e.what.Maker = le.Uint64(v)
			ok = e.what.Maker != 0
		}
	case extWorker:
		if ok = len(v) == 2; ok {
			e.worker, e.workers = v[0], v[1]
			ok = e.worker < e.workers && e.workers > 1 && e.workers <= MaxWorkers
		}
	default:
		if t < extOptional {
			return malformed(KindInject, "extension %d is unknown here", t)
		}
	}
	if !ok {
		return malformed(KindInject, "extension %d has a bad value of %d bytes", t, len(v))
	}
	return nil
}

// append appends a declaration: one or two ids, and the form if there is one.
func (w *What) append(b []byte) []byte {
	b = append(b, w.Image[:]...)
	if !w.Table.IsZero() {
		b = append(b, w.Table[:]...)
	}
	if w.Form != 0 {
		b = append(b, w.Form)
	}
	return b
}

// decode reads what append wrote; false: it did not.
func (w *What) decode(v []byte) bool {
	*w = What{}
	if len(v)%32 == 1 {
		w.Form = v[len(v)-1]
		if v = v[:len(v)-1]; w.Form == 0 {
			return false
		}
	}
	if len(v) != 32 && len(v) != 64 {
		return false
	}
	copy(w.Image[:], v)
	copy(w.Table[:], v[32:])
	return !w.Image.IsZero() && (len(v) == 32 || !w.Table.IsZero())
}

func appendExt(b []byte, t byte, v []byte) []byte {
	b = append(b, t)
	b = le.AppendUint16(b, uint16(len(v)))
	return append(b, v...)
}

// append appends the extensions with their length, nothing if there are none.
// Forks come as numbers.
func (e *injectExt) append(b []byte, forks []uint64) []byte {
	at := len(b)
	b = append(b, 0, 0)
	if e.declared {
		var what [65]byte
		b = appendExt(b, extDeclare, e.what.append(what[:0]))
		if e.imageBytes != nil {
			b = appendExt(b, extImage, e.imageBytes)
		}
		if e.tableBytes != nil {
			b = appendExt(b, extTable, e.tableBytes)
		}
	}
	if e.hasTrace {
		b = append(b, extTrace, traceBytes, 0)
		b = append(b, e.trace.TraceID[:]...)
		b = append(b, e.trace.Span[:]...)
		b = append(b, e.trace.Flags)
	}
	if e.parts|e.lists != 0 {
		b = append(b, extSent, 8, 0)
		b = le.AppendUint32(b, e.parts)
		b = le.AppendUint32(b, e.lists)
	}
	if len(forks) > 0 {
		b = append(b, extForks)
		b = le.AppendUint16(b, uint16(8*len(forks)))
		for _, f := range forks {
			b = le.AppendUint64(b, f)
		}
	}
	if e.declared && e.what.Constants != "" {
		b = append(b, extDerived)
		b = le.AppendUint16(b, uint16(len(e.what.Constants)))
		b = append(b, e.what.Constants...)
	}
	if e.declared && e.what.Maker != 0 {
		b = append(b, extMaker, 8, 0)
		b = le.AppendUint64(b, e.what.Maker)
	}
	if e.workers > 1 {
		b = append(b, extWorker, 2, 0, e.worker, e.workers)
	}
	if len(b) == at+2 {
		return b[:at]
	}
	le.PutUint16(b[at:], uint16(len(b)-at-2))
	return b
}
