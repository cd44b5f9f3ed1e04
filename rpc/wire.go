package rpc

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// The messages of the protocol; docs/rpc.md has their layouts. Requests, notes and large
// answers wait for the peer's credit; what ends something travels on reserved credits.
const (
	// IDRequest, IDNote and IDAnswer are of normal class.
	IDRequest fabric.FrameID = 80
	IDNote    fabric.FrameID = 81
	IDAnswer  fabric.FrameID = 82 // a response that is too large for the reserved class
	IDWritten fabric.FrameID = 83 // so much of an answer is in its segment
	// IDResponse and those after it are of reserved class.
	IDResponse fabric.FrameID = 2100
	IDCancel   fabric.FrameID = 2101
	IDAck      fabric.FrameID = 2102 // the answer's segment was read
	IDTaken    fabric.FrameID = 2103 // the request's segment was read
	IDHeld     fabric.FrameID = 2104 // the answer is there, and waits to be asked for
	IDWant     fabric.FrameID = 2105 // which this does
	IDEnded    fabric.FrameID = 2106 // so many one-way calls have ended

	requestBytes  = 28
	requestIDEnd  = 16 // of a request that comes back, what is read
	responseBytes = 16
	numberBytes   = 8
	heldBytes     = numberBytes + 8
	writtenHead   = numberBytes + 8
	refBytes      = fabric.KeyBytes + 8

	flagLent   = 1 << 0 // the payload is a ref
	flagOneWay = 1 << 1
	flagNested = 1 << 2 // made by a handler

	leastGrant = 10 // smallAnswerBytes
	mostGrant  = 30 // the largest payload there can be

	lagUnknown = math.MaxUint32
	leftMillis = 1 << 31 // the other bits are milliseconds, not microseconds
)

// request is a request's head as it travels; ext and body are views.
type request struct {
	method uint64
	id     exchange.ID
	low    uint64 // no lower number is waiting
	left   time.Duration
	flags  uint8
	grant  uint8 // room for the answer: 1<<grant bytes; 0: any size, as the caller waits for it
	ext    []byte
	body   []byte
}

func (r *request) lent() bool   { return r.flags&flagLent != 0 }
func (r *request) oneWay() bool { return r.flags&flagOneWay != 0 }
func (r *request) nested() bool { return r.flags&flagNested != 0 }

// room is the largest answer that may come without being asked for.
func (r *request) room() int64 {
	if r.grant == 0 {
		return math.MaxInt64
	}
	return 1 << r.grant
}

// encodeLeft writes a time in 32 bits, rounded down but never to nothing: what is shorter
// than half an hour in microseconds, more in milliseconds, up to 24 days.
func encodeLeft(d time.Duration) uint32 {
	switch {
	case d <= 0:
		return 0
	case d < leftMillis*time.Microsecond:
		return uint32(max(d/time.Microsecond, 1))
	}
	return leftMillis | uint32(min(d/time.Millisecond, leftMillis-1))
}

func decodeLeft(v uint32) time.Duration {
	if v&leftMillis != 0 {
		return time.Duration(v&^leftMillis) * time.Millisecond
	}
	return time.Duration(v) * time.Microsecond
}

// put writes the head into b, which has room for it.
func (r *request) put(b *[requestBytes]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], r.method)
	le.PutUint64(b[8:], uint64(r.id))
	lag := r.id.Number() - r.low
	if r.low > r.id.Number() || lag >= lagUnknown {
		lag = lagUnknown
	}
	le.PutUint32(b[16:], uint32(lag))
	le.PutUint32(b[20:], encodeLeft(r.left))
	b[24], b[25] = r.flags, r.grant
	le.PutUint16(b[26:], uint16(len(r.ext)))
}

// decodeRequest reads a request; ext and body are part of b.
func decodeRequest(b []byte, r *request) error {
	if len(b) < requestBytes {
		return fmt.Errorf("%w: a request of %d bytes, its head alone has %d", ErrWire, len(b), requestBytes)
	}
	le := binary.LittleEndian
	r.method, r.id = le.Uint64(b), exchange.ID(le.Uint64(b[8:]))
	lag, left, n := le.Uint32(b[16:]), le.Uint32(b[20:]), int(le.Uint16(b[26:]))
	r.flags, r.grant = b[24], b[25]
	if r.grant != 0 && (r.oneWay() || r.grant < leastGrant || r.grant > mostGrant) || r.flags&^(flagLent|flagOneWay|flagNested) != 0 || r.id.Number() == 0 || n > len(b)-requestBytes ||
		r.oneWay() != (r.id.Slot() == exchange.NoSlot) || lag != lagUnknown && uint64(lag) >= r.id.Number() {
		return fmt.Errorf("%w: a request %v, %d after the lowest, with flags %#x %#x and %d bytes of extensions in %d", ErrWire, r.id, lag, b[24], b[25], n, len(b))
	}
	r.low = 0
	if lag != lagUnknown {
		r.low = r.id.Number() - uint64(lag)
	}
	r.left = decodeLeft(left)
	r.ext, r.body = b[requestBytes:requestBytes+n:requestBytes+n], b[requestBytes+n:len(b):len(b)] // the next message may lie behind it
	if r.lent() && len(r.body) != refBytes {
		return fmt.Errorf("%w: a reference of %d bytes, want %d", ErrWire, len(r.body), refBytes)
	}
	return nil
}

// decodeReturned reads which request came back.
func decodeReturned(b []byte) (exchange.ID, error) {
	if len(b) < requestIDEnd {
		return 0, fmt.Errorf("%w: %d bytes of a request that comes back, at least %d are needed", ErrWire, len(b), requestIDEnd)
	}
	id := exchange.ID(binary.LittleEndian.Uint64(b[8:]))
	if id.Number() == 0 {
		return 0, fmt.Errorf("%w: a request without a number comes back", ErrWire)
	}
	return id, nil
}

// response is a response as it travels; body is a view.
type response struct {
	id   exchange.ID
	code Code
	lent bool
	body []byte
}

func (r *response) put(b *[responseBytes]byte) {
	binary.LittleEndian.PutUint64(b[0:], uint64(r.id))
	binary.LittleEndian.PutUint32(b[8:], uint32(r.code))
	flags := uint32(0)
	if r.lent {
		flags = flagLent
	}
	binary.LittleEndian.PutUint32(b[12:], flags)
}

// decodeResponse reads a response; its body is part of b.
func decodeResponse(b []byte, r *response) error {
	if len(b) < responseBytes {
		return fmt.Errorf("%w: a response of %d bytes, its head alone has %d", ErrWire, len(b), responseBytes)
	}
	le := binary.LittleEndian
	flags := le.Uint32(b[12:])
	*r = response{id: exchange.ID(le.Uint64(b)), code: Code(le.Uint32(b[8:])), lent: flags == flagLent, body: b[responseBytes:]}
	if flags&^flagLent != 0 || r.lent && len(r.body) != refBytes || r.id.Slot() == exchange.NoSlot {
		return fmt.Errorf("%w: a response to %v with flags %#x and %d bytes", ErrWire, r.id, flags, len(r.body))
	}
	return nil
}

func putNumber(b *[numberBytes]byte, id exchange.ID) []byte {
	binary.LittleEndian.PutUint64(b[:], uint64(id))
	return b[:]
}

// decodeNumber reads the id that notes, cancels and acks begin with.
func decodeNumber(b []byte) (id exchange.ID, rest []byte, err error) {
	if len(b) < numberBytes {
		return 0, nil, fmt.Errorf("%w: %d bytes where an id has %d", ErrWire, len(b), numberBytes)
	}
	return exchange.ID(binary.LittleEndian.Uint64(b)), b[numberBytes:], nil
}

// decodeBare reads a message that is an id and nothing more.
func decodeBare(b []byte) (exchange.ID, error) {
	id, rest, err := decodeNumber(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes after an id", ErrWire, len(rest))
	}
	return id, err
}

// putEnded writes how many one-way calls have ended, of all that ever came.
func putEnded(b *[numberBytes]byte, total uint64) []byte {
	binary.LittleEndian.PutUint64(b[:], total)
	return b[:]
}

// decodeEnded reads how many one-way calls have ended at the peer.
func decodeEnded(b []byte) (total uint64, err error) {
	if len(b) != numberBytes {
		return 0, fmt.Errorf("%w: how many one-way calls have ended, in %d bytes, want %d", ErrWire, len(b), numberBytes)
	}
	return binary.LittleEndian.Uint64(b), nil
}

func putHeld(b *[heldBytes]byte, id exchange.ID, size uint64) []byte {
	binary.LittleEndian.PutUint64(b[:], uint64(id))
	binary.LittleEndian.PutUint64(b[numberBytes:], size)
	return b[:]
}

// decodeHeld reads how large the answer is that waits to be asked for.
func decodeHeld(b []byte) (id exchange.ID, size uint64, err error) {
	if len(b) != heldBytes {
		return 0, 0, fmt.Errorf("%w: an answer that is held, in %d bytes, want %d", ErrWire, len(b), heldBytes)
	}
	id, size = exchange.ID(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[numberBytes:])
	if size == 0 || id.Slot() == exchange.NoSlot {
		return 0, 0, fmt.Errorf("%w: %d bytes are held as the answer to %v", ErrWire, size, id)
	}
	return id, size, nil
}

// appendWritten writes the head of a message that says that the first n bytes of an answer are where the reference after it says.
func appendWritten(b []byte, id exchange.ID, n uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(id)), n)
}

// decodeWritten reads how much of an answer of at most limit bytes is there, and where.
func decodeWritten(b []byte, limit int) (id exchange.ID, w written, err error) {
	if len(b) < writtenHead {
		return 0, written{}, fmt.Errorf("%w: a part of an answer, in %d bytes, its head alone has %d", ErrWire, len(b), writtenHead)
	}
	id, w.n = exchange.ID(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[numberBytes:])
	if w.at, err = decodeRef(b[writtenHead:], limit); err != nil {
		return 0, written{}, err
	}
	if w.n == 0 || w.n >= w.at.size || id.Slot() == exchange.NoSlot {
		return 0, written{}, fmt.Errorf("%w: %d of %d bytes are there of the answer to %v", ErrWire, w.n, w.at.size, id)
	}
	return id, w, nil
}

// ref is where a payload lies that was too large for its message.
type ref struct {
	key  fabric.Key
	size uint64
}

func (r ref) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(r.key.Append(b), r.size)
}

// decodeRef reads where a payload of at most limit bytes lies.
func decodeRef(b []byte, limit int) (ref, error) {
	if len(b) != refBytes {
		return ref{}, fmt.Errorf("%w: a reference of %d bytes, want %d", ErrWire, len(b), refBytes)
	}
	key, err := fabric.DecodeKey(b[:fabric.KeyBytes])
	if err != nil {
		return ref{}, fmt.Errorf("%w: %w", ErrWire, err)
	}
	r := ref{key, binary.LittleEndian.Uint64(b[fabric.KeyBytes:])}
	if r.size > uint64(limit) {
		return ref{}, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLarge, r.size, limit)
	}
	if r.size == 0 || r.size > key.Size {
		return ref{}, fmt.Errorf("%w: %d bytes in a key's %d", ErrWire, r.size, key.Size)
	}
	return r, nil
}

// Extensions of a request: each a type, a length of 16 bits and a value, in
// ascending order of type. A receiver may skip unknown types from extOptional on.
const (
	extTrace    = 1
	extOptional = 128
	extHead     = 3
)

// appendTrace appends a trace context as an extension.
func appendTrace(b []byte, t *TraceContext) []byte {
	b = append(b, extTrace)
	b = binary.LittleEndian.AppendUint16(b, uint16(traceBytes+len(t.State)))
	b = append(b, t.TraceID[:]...)
	b = append(b, t.SpanID[:]...)
	b = append(b, t.Flags)
	return append(b, t.State...)
}

// decodeExt reads a request's extensions.
func decodeExt(b []byte, t *TraceContext) error {
	for last := -1; len(b) > 0; {
		if len(b) < extHead {
			return fmt.Errorf("%w: %d bytes where an extension's head has %d", ErrWire, len(b), extHead)
		}
		kind, n := int(b[0]), int(binary.LittleEndian.Uint16(b[1:]))
		if b = b[extHead:]; n > len(b) || kind <= last {
			return fmt.Errorf("%w: extension %d after %d, of %d bytes in %d", ErrWire, kind, last, n, len(b))
		}
		v := b[:n]
		b, last = b[n:], kind
		switch {
		case kind == extTrace:
			if n < traceBytes || n > traceBytes+MaxTraceStateBytes {
				return fmt.Errorf("%w: a trace context of %d bytes: between %d and %d", ErrWire, n, traceBytes, traceBytes+MaxTraceStateBytes)
			}
			t.TraceID, t.SpanID, t.Flags = [16]byte(v), [8]byte(v[16:]), v[24]
			t.State = ""
			if n > traceBytes {
				t.State = string(v[traceBytes:])
			}
		case kind < extOptional:
			return fmt.Errorf("%w: extension %d is not known, and must not be left out", ErrWire, kind)
		}
	}
	return nil
}
