package rpc

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/wherry-fabric/wherry/fabric"
)

// A Bulk's bytes; docs/rpc.md has the layout.

const (
	bulkHeadBytes = 20
	partBytes     = 32
	// MaxBulkBytes is no less than a Bulk's bytes can be.
	MaxBulkBytes = bulkHeadBytes + MaxBulkAddrs*(1+maxAddrBytes) + EagerBulkBytes

	partSealed = 1 << 63 // in a part's size
)

// append writes a part: slot, generation, secret and size of its key. The owner and the
// rights are the Bulk's.
func (p bulkPart) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, p.key.Slot)
	b = binary.LittleEndian.AppendUint32(b, p.key.Generation)
	b = append(b, p.key.Secret[:]...)
	size := p.key.Size
	if p.key.Sealed {
		size |= partSealed
	}
	return binary.LittleEndian.AppendUint64(b, size)
}

// Append appends the Bulk's bytes. Those of a small read-only one contain what is in its memory now.
func (b *Bulk) Append(buf []byte) ([]byte, error) {
	if b.IsNull() {
		return append(buf, byte(bulkNull)), nil
	}
	data, err := b.carried()
	if err != nil {
		return buf, err
	}
	buf = append(buf, byte(b.kind), byte(b.rights), byte(len(b.addrs)), 0)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(b.owner))
	buf = binary.LittleEndian.AppendUint64(buf, b.size)
	for _, a := range b.addrs {
		buf = append(append(buf, byte(len(a))), a...)
	}
	switch b.kind {
	case bulkEager:
		buf = append(buf, data...)
	case bulkInline:
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(b.parts)))
		for _, part := range b.parts {
			buf = part.append(buf)
		}
	case bulkListed:
		buf = binary.LittleEndian.AppendUint32(buf, uint32(b.count))
		buf = b.list.append(buf)
	}
	return buf, nil
}

// carried is what is in the memory of an eager Bulk; nil for others.
func (b *Bulk) carried() ([]byte, error) {
	if b.kind != bulkEager || b.mine == nil {
		return b.data, nil
	}
	b.mine.mu.Lock()
	defer b.mine.mu.Unlock()
	data := make([]byte, 0, b.size)
	for _, s := range b.mine.spans {
		if !s.Segment.Pin() {
			return nil, fmt.Errorf("rpc: bulk: %w", fabric.ErrRevoked)
		}
		data = append(data, SpanMemory(s)[0]...)
		s.Segment.Unpin()
	}
	if uint64(len(data)) != b.size {
		return nil, fmt.Errorf("rpc: bulk: %w", fabric.ErrRevoked)
	}
	return data, nil
}

// DecodeBulk reads a Bulk and returns what follows it. It keeps nothing of buf.
func DecodeBulk(buf []byte) (b *Bulk, rest []byte, err error) {
	bad := func(what string, v any) (*Bulk, []byte, error) {
		return nil, buf, fmt.Errorf("%w: a bulk with %s %v", ErrWire, what, v)
	}
	if len(buf) == 0 {
		return bad("length", 0)
	}
	if bulkKind(buf[0]) == bulkNull {
		return &Bulk{}, buf[1:], nil
	}
	if len(buf) < bulkHeadBytes {
		return bad("length", len(buf))
	}
	b = &Bulk{kind: bulkKind(buf[0]), rights: fabric.Rights(buf[1]),
		owner: fabric.Incarnation(binary.LittleEndian.Uint64(buf[4:])), size: binary.LittleEndian.Uint64(buf[12:])}
	addrs := int(buf[2])
	switch {
	case b.kind > bulkListed:
		return bad("kind", b.kind)
	case b.rights == 0 || b.rights&^fabric.RightsAll != 0 || b.kind == bulkEager && b.rights != fabric.RightRead:
		return bad("rights", b.rights)
	case addrs > MaxBulkAddrs || buf[3] != 0 || b.owner == 0:
		return bad("head", fmt.Sprintf("%x", buf[:bulkHeadBytes]))
	case b.size > math.MaxInt64:
		return bad("size", b.size)
	}
	rest = buf[bulkHeadBytes:]
	for range addrs {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) || rest[0] == 0 {
			return bad("an address of", len(rest))
		}
		n := 1 + int(rest[0])
		b.addrs, rest = append(b.addrs, string(rest[1:n])), rest[n:]
	}
	if b.kind == bulkEager {
		if b.size > EagerBulkBytes || b.size > uint64(len(rest)) {
			return bad("bytes in it", b.size)
		}
		b.data = append([]byte(nil), rest[:b.size]...)
		return b, rest[b.size:], nil
	}
	if rest, err = b.decodeParts(rest); err != nil {
		return nil, buf, err
	}
	return b, rest, nil
}

// decodeParts reads what follows a head: the parts, or where they lie.
func (b *Bulk) decodeParts(buf []byte) (rest []byte, err error) {
	if len(buf) < 4 {
		return buf, fmt.Errorf("%w: a bulk without its number of parts", ErrWire)
	}
	n := binary.LittleEndian.Uint32(buf)
	rest = buf[4:]
	if b.kind == bulkInline {
		if n > InlineParts || len(rest) < int(n)*partBytes {
			return buf, fmt.Errorf("%w: a bulk with %d parts in %d bytes", ErrWire, n, len(rest))
		}
		b.parts, err = b.readParts(rest[:int(n)*partBytes])
		b.count = int(n)
		return rest[int(n)*partBytes:], err
	}
	if n <= InlineParts || n > MaxParts || len(rest) < refBytes {
		return buf, fmt.Errorf("%w: a bulk with a list of %d parts", ErrWire, n)
	}
	b.count = int(n)
	if b.list, err = decodeRef(rest[:refBytes], MaxParts*partBytes); err != nil {
		return buf, err
	}
	if b.list.size != uint64(n)*partBytes || b.list.key.Owner != b.owner || b.list.key.Rights != fabric.RightRead {
		return buf, fmt.Errorf("%w: a bulk's list of %d bytes for %d parts (%v)", ErrWire, b.list.size, n, b.list.key)
	}
	b.fetched = &fetchedParts{}
	return rest[refBytes:], nil
}

// readParts reads parts and checks that they make up the Bulk's size.
func (b *Bulk) readParts(buf []byte) ([]bulkPart, error) {
	parts := make([]bulkPart, 0, len(buf)/partBytes)
	total := uint64(0)
	for ; len(buf) > 0; buf = buf[partBytes:] {
		size := binary.LittleEndian.Uint64(buf[24:])
		k := fabric.Key{Owner: b.owner, Slot: binary.LittleEndian.Uint32(buf), Generation: binary.LittleEndian.Uint32(buf[4:]),
			Secret: [16]byte(buf[8:24]), Size: size &^ partSealed, Rights: b.rights, Sealed: size&partSealed != 0}
		if k.Size == 0 || k.Size > b.size-total {
			return nil, fmt.Errorf("%w: a bulk's part of %d bytes at %d of %d", ErrWire, k.Size, total, b.size)
		}
		total += k.Size
		parts = append(parts, bulkPart{k})
	}
	if total != b.size {
		return nil, fmt.Errorf("%w: a bulk's parts have %d bytes, not %d", ErrWire, total, b.size)
	}
	return parts, nil
}

// BulkCodec makes a Bulk a request or an answer of a Method.
type BulkCodec struct{}

// Append implements Codec.
func (BulkCodec) Append(b []byte, v *Bulk) ([]byte, error) { return v.Append(b) }

// Decode implements Codec.
func (BulkCodec) Decode(_ *Bulk, b []byte) (*Bulk, error) {
	v, rest, err := DecodeBulk(b)
	if err == nil && len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after a bulk", ErrWire, len(rest))
	}
	return v, err
}
