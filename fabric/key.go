package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Incarnation is one life of an element: random, new at every start, never 0.
// Whatever was handed out by another incarnation (handles, keys, request ids)
// is refused.
type Incarnation uint64

func (i Incarnation) String() string { return fmt.Sprintf("%016x", uint64(i)) }

// Rights are what a key allows its holder.
type Rights uint8

const (
	RightRead Rights = 1 << iota
	RightWrite
	RightAtomic

	RightsAll = RightRead | RightWrite | RightAtomic
)

func (r Rights) String() string {
	b := []byte("---")
	for i, c := range []byte("rwa") {
		if r&(1<<i) != 0 {
			b[i] = c
		}
	}
	return string(b)
}

// KeyBytes is the length of an encoded key.
const KeyBytes = 48

// A Key is an unforgeable reference to a range of one segment of one
// incarnation of an element. Its bytes are its rights: it can be handed
// on like any other bytes. The owner can narrow it (Element.Narrow) and revoke it
// (Element.Revoke). Size and Rights are for the holder's information; what
// counts is what the owner has on record.
type Key struct {
	Owner      Incarnation
	Slot       uint32 // in the owner's key table
	Generation uint32 // of the slot; revoking raises it
	Secret     [16]byte
	Size       uint64 // bytes in the range
	Rights     Rights
	Sealed     bool // the segment is sealed: only its owner can write it
}

// IsZero reports whether k refers to nothing.
func (k Key) IsZero() bool { return k == Key{} }

// String names the key without its secret.
func (k Key) String() string {
	return fmt.Sprintf("key %d.%d of %v (%d B, %v)", k.Slot, k.Generation, k.Owner, k.Size, k.Rights)
}

// Append appends the key's wire form (KeyBytes bytes, little-endian).
func (k Key) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(k.Owner))
	b = binary.LittleEndian.AppendUint32(b, k.Slot)
	b = binary.LittleEndian.AppendUint32(b, k.Generation)
	b = append(b, k.Secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, k.Size)
	sealed := byte(0)
	if k.Sealed {
		sealed = 1
	}
	return append(b, byte(k.Rights), sealed, 0, 0, 0, 0, 0, 0)
}

// ErrBadKey says that bytes are not an encoded key.
var ErrBadKey = errors.New("fabric: not an encoded key")

// DecodeKey reads a key's wire form; b must be exactly KeyBytes long.
func DecodeKey(b []byte) (Key, error) {
	if len(b) != KeyBytes {
		return Key{}, fmt.Errorf("%w: %d bytes, want %d", ErrBadKey, len(b), KeyBytes)
	}
	k := Key{
		Owner:      Incarnation(binary.LittleEndian.Uint64(b)),
		Slot:       binary.LittleEndian.Uint32(b[8:]),
		Generation: binary.LittleEndian.Uint32(b[12:]),
		Size:       binary.LittleEndian.Uint64(b[32:]),
		Rights:     Rights(b[40]),
		Sealed:     b[41] == 1,
	}
	copy(k.Secret[:], b[16:32])
	if k.Rights&^RightsAll != 0 || b[41] > 1 || [6]byte(b[42:48]) != [6]byte{} {
		return Key{}, fmt.Errorf("%w: unknown bits in its last 8 bytes (%x)", ErrBadKey, b[40:48])
	}
	return k, nil
}

// keyRef is the part of a key that its owner checks; it travels in every
// operation served by messages (keyRefBytes bytes).
type keyRef struct {
	slot, gen uint32
	secret    [16]byte
}

const keyRefBytes = 24

func (k Key) ref() keyRef { return keyRef{k.Slot, k.Generation, k.Secret} }

func (r keyRef) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.slot)
	b = binary.LittleEndian.AppendUint32(b, r.gen)
	return append(b, r.secret[:]...)
}

func decodeKeyRef(b []byte) keyRef {
	return keyRef{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), [16]byte(b[8:24])}
}

// Narrow makes a key to part of what k allows. k must be this element's own;
// the holder of a peer's key asks that peer: Endpoint.Narrow.
func (e *Element) Narrow(k Key, offset, size uint64, rights Rights) (Key, error) {
	if k.Owner != e.incarnation {
		return Key{}, fmt.Errorf("fabric: narrow %v: %w (only its owner can)", k, ErrIncarnation)
	}
	n, st := e.keys.narrow(k.ref(), offset, size, rights, nil)
	if st != statusOK {
		return Key{}, fmt.Errorf("fabric: narrow %v to [%d, +%d) %v: %w", k, offset, size, rights, st.err())
	}
	return n, nil
}

// Revoke ends one of this element's keys and every key narrowed from it. When it returns, nothing is written any more that
// this element does for holders of these keys; what peers do in mapped memory, docs/ordering.md says.
func (e *Element) Revoke(k Key) error {
	if k.Owner != e.incarnation {
		return fmt.Errorf("fabric: revoke %v: %w (only its owner can)", k, ErrIncarnation)
	}
	if st := e.keys.revoke(k.ref()); st != statusOK {
		return fmt.Errorf("fabric: revoke %v: %w", k, st.err())
	}
	e.writing.Lock()
	e.writing.Unlock() // what had begun before is written; what comes next finds the key gone
	return nil
}

// Holds reports whether a key that OwnKey accepted still holds: one load.
func (e *Element) Holds(k Key) bool {
	return k.Owner == e.incarnation && e.keys.generation(k.Slot).Load() == k.Generation
}

// OwnKey finds what one of this element's keys refers to: the segment, pinned (the caller calls Unpin), and the
// range's offset in it. It fails if the key lacks the rights.
func (e *Element) OwnKey(k Key, need Rights) (s *Segment, offset uint64, err error) {
	r, err := e.OwnRange(k, need)
	return r.Segment, r.Offset, err
}

// Range is what a key refers to by its owner's record. A key's own Size and
// Rights are its holder's word only.
type Range struct {
	Segment *Segment
	Offset  uint64 // in Segment
	Size    uint64
	Rights  Rights
}

// OwnRange is OwnKey that tells all there is on record.
func (e *Element) OwnRange(k Key, need Rights) (Range, error) {
	st := statusIncarnation
	if k.Owner == e.incarnation {
		var slot keySlot
		slot, st = e.keys.find(k.Slot, k.Generation, &k.Secret)
		switch {
		case st != statusOK:
		case slot.rights&need != need:
			st = statusRights
		case !slot.seg.pin():
			st = statusRevoked
		default:
			return Range{slot.seg, slot.offset, slot.size, slot.rights}, nil
		}
	}
	return Range{}, fmt.Errorf("fabric: use of %v: %w", k, st.err())
}
