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
// incarnation of an element. Whoever holds it has its rights: it can be handed
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
	Sealed     bool // the segment is sealed: nobody but its owner can write it
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
