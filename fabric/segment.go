package fabric

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/internal/memfd"
)

// SegmentKind says who can write a segment.
type SegmentKind uint8

const (
	// Writable segments can be written by every peer that maps them; whom that
	// is, keys decide: a key that promises less than the whole segment with
	// all rights is served by messages to the owner instead of a mapping.
	Writable SegmentKind = iota
	// Sealed segments can be written by their owner only, whatever a peer does.
	Sealed
	// Registers are Writable segments of at most RegistersBytes that are accessed by aligned words of 4 or 8 bytes only, each with exactly one load or
	// store: a device acts on what is stored there. Other Gets and Puts fail with ErrAlign.
	Registers
)

// RegistersBytes is the most that a segment of kind Registers has: a page, which is what a device gives to one user.
const RegistersBytes = 4 << 10

func (k SegmentKind) String() string {
	switch k {
	case Sealed:
		return "sealed"
	case Registers:
		return "registers"
	}
	return "writable"
}

// takes reports whether an access has a size and place that memory of this kind takes.
func (k SegmentKind) takes(offset, size uint64) bool {
	return k != Registers || size == 0 || size == 8 && offset&7 == 0 || size == 4 && offset&3 == 0
}

// check reports a kind that there is not, and registers that do not fit.
func (k SegmentKind) check(size uint64) error {
	switch {
	case k > Registers:
		return fmt.Errorf("fabric: a segment of kind %d: there is no such kind", k)
	case k == Registers && size > RegistersBytes:
		return fmt.Errorf("fabric: %d bytes of registers, at most %d: %w", size, RegistersBytes, ErrRange)
	}
	return nil
}

// SegmentAlign is what a segment's size is rounded up to: wasm pages, so that a
// segment can become a window.
const SegmentAlign = 64 << 10

// Segment is memory that peers can be given keys to. It lies outside
// the Go heap: it does not move, and its bytes are the owner's and its peers'
// together. Close revokes every key to it.
type Segment struct {
	el   *Element
	on   Backing
	mem  []byte // nil where loads and stores do not reach it
	id   uint32 // never 0; unique in this incarnation
	kind SegmentKind
	size uint64

	failed atomic.Int64 // times that the backing failed since that was logged last
	warnAt atomic.Int64 // no such word before

	pins   atomic.Int64 // users of the mapping; < 0 once it is closed
	mu     sync.Mutex
	keys   []uint32               // slots in the key table
	given  map[*Endpoint]struct{} // whose peers have the descriptor
	ends   []uint64               // see Pad
	closed bool
}

// closedPins is added to pins by Close: no caller can pin any more, and the last
// one out unmaps.
const closedPins = -1 << 62

// NewSegment makes a zeroed segment of at least size bytes.
func (e *Element) NewSegment(size uint64, kind SegmentKind) (*Segment, error) {
	if size == 0 || size > e.cfg.Limits.SegmentBytes {
		return nil, fmt.Errorf("fabric: a segment of %d bytes: the limit is %d", size, e.cfg.Limits.SegmentBytes)
	}
	if err := kind.check(size); err != nil {
		return nil, err
	}
	whole := (size + SegmentAlign - 1) &^ (SegmentAlign - 1)
	if !e.lend(int64(whole)) {
		return nil, fmt.Errorf("fabric: %w bytes lent: %d more would exceed the limit of %d", ErrTooMany, whole, e.lentMost.Load())
	}
	f, err := memfd.Create("wherry-segment", int64(whole), kind == Sealed)
	if err != nil {
		e.lend(-int64(whole))
		return nil, fmt.Errorf("fabric: %w", err)
	}
	b := &ownMemory{f, e, int64(whole)}
	s := &Segment{el: e, on: b, mem: f.Bytes()[:size:size], id: e.nextSegment.Add(1), kind: kind, size: size}
	if err := e.keys.addSegment(s); err != nil {
		b.Close()
		return nil, err
	}
	return s, nil
}

// Bytes is the owner's view, Size bytes long; nil where the segment's Backing has none. It must not be used after Close.
func (s *Segment) Bytes() []byte { return s.mem }

// ReadAt copies from the segment's bytes at off, by whatever way its Backing has; WriteAt copies to them. An aligned word is read or
// written whole where there are Bytes. Neither may be used after Close, unless the segment is pinned.
func (s *Segment) ReadAt(p []byte, off uint64) error {
	if off > s.size || uint64(len(p)) > s.size-off {
		return fmt.Errorf("fabric: read [%d, +%d) of a segment of %d bytes: %w", off, len(p), s.size, ErrRange)
	}
	switch {
	case len(p) == 0:
	case s.mem == nil:
		return s.on.ReadAt(p, off)
	default:
		CopyOut(p, s.mem[off:])
	}
	return nil
}

// WriteAt is described at ReadAt.
func (s *Segment) WriteAt(p []byte, off uint64) error {
	if off > s.size || uint64(len(p)) > s.size-off {
		return fmt.Errorf("fabric: write [%d, +%d) of a segment of %d bytes: %w", off, len(p), s.size, ErrRange)
	}
	switch {
	case len(p) == 0:
	case s.mem == nil:
		return s.on.WriteAt(p, off)
	default:
		CopyIn(s.mem[off:], p)
	}
	return nil
}

// Fill is WriteAt for bytes that nobody has written or read yet, of a segment that is filled before others get keys to it. In memory of NewSegment
// long ones take half the time (memfd.File.Fill).
func (s *Segment) Fill(p []byte, off uint64) error {
	own, ok := s.on.(*ownMemory)
	if !ok || off > s.size || uint64(len(p)) > s.size-off {
		return s.WriteAt(p, off)
	}
	own.Fill(p, int(off))
	return nil
}

// Size is the number of bytes asked for.
func (s *Segment) Size() uint64 { return s.size }

// Element is whose memory it is.
func (s *Segment) Element() *Element { return s.el }

// Kind says who can write the segment.
func (s *Segment) Kind() SegmentKind { return s.kind }

// FD is the segment's memfd, for mapping it as a window, and where in it the segment begins; it stays the segment's.
// -1: its Backing has none. The length of NewSegment's is a multiple of SegmentAlign.
func (s *Segment) FD() (fd int, offset int64) { return s.on.FD() }

// Mappable is how many bytes from the segment's beginning may be mapped by FD without seeing anybody else's: NewSegment's ends with zeros of its own up
// to a multiple of SegmentAlign, and behind a Backing's is what its maker keeps there.
func (s *Segment) Mappable() uint64 {
	if own, yes := s.on.(*ownMemory); yes {
		return uint64(own.whole)
	}
	return s.size
}

// Pad says that what is kept in the segment ends at these offsets, with zeros behind each up to a multiple of SegmentAlign: a key to a range that
// ends there may be mapped to that multiple.
func (s *Segment) Pad(ends ...uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, ends...)
}

// Padded reports whether mapping whole pages of a range shows nothing but the range, and zeros: it ends at a page, with the segment, or, if it begins
// at a page too, as Pad says.
func (s *Segment) Padded(offset, size uint64) bool {
	end := offset + size
	whole := offset + (size+SegmentAlign-1)&^(SegmentAlign-1)
	if whole > s.Mappable() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return whole == end || end >= s.size || offset%SegmentAlign == 0 && slices.Contains(s.ends, end)
}

// Key exports the whole segment with the given rights.
func (s *Segment) Key(rights Rights) (Key, error) { return s.KeyRange(0, s.size, rights) }

// KeyRange exports size bytes from offset with the given rights.
func (s *Segment) KeyRange(offset, size uint64, rights Rights) (Key, error) {
	if size == 0 || offset > s.size || size > s.size-offset {
		return Key{}, fmt.Errorf("fabric: key for [%d, +%d) of a segment of %d bytes: %w", offset, size, s.size, ErrRange)
	}
	if s.kind == Sealed && rights&^RightRead != 0 {
		return Key{}, fmt.Errorf("fabric: key with %v to a sealed segment: %w (sealed segments can only be read)", rights, ErrRights)
	}
	if s.mem == nil && rights&RightAtomic != 0 {
		return Key{}, fmt.Errorf("fabric: key with %v to a segment that loads and stores do not reach: %w (it has no atomics)", rights, ErrRights)
	}
	if rights == 0 || rights&^RightsAll != 0 {
		return Key{}, fmt.Errorf("fabric: key with rights %#x: %w", uint8(rights), ErrRights)
	}
	return s.el.keys.add(s, offset, size, rights, noParent)
}

// pin keeps the mapping alive; false once the segment is closed.
func (s *Segment) pin() bool {
	return enter(&s.pins)
}

// enter counts one more user of something that closedPins closes. It leaves the
// count alone where that has happened: the last one out has tidied up, and must do it once.
func enter(users *atomic.Int64) bool {
	for {
		n := users.Load()
		if n < 0 {
			return false
		}
		if users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *Segment) unpin() {
	if s.pins.Add(-1) == closedPins {
		s.unmap()
	}
}

func (s *Segment) unmap() {
	if err := s.on.Close(); err != nil {
		s.el.log.Warn("a segment's backing did not close", "segment", s.id, "err", err)
	}
}

// Pin keeps the segment's memory and descriptor in place, even over Close,
// until Unpin; it reports false once the segment is closed.
func (s *Segment) Pin() bool { return s.pin() }

// Unpin undoes one Pin.
func (s *Segment) Unpin() { s.unpin() }

// Close revokes the segment's keys and asks the peers that mapped it to let go.
// The memory goes when the last of them has, or has died.
func (s *Segment) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	given := s.given
	s.given = nil // from now on it can be given to no peer
	s.mu.Unlock()
	s.el.keys.removeSegment(s)
	if s.pins.Add(closedPins) == closedPins {
		s.unmap()
	}
	for ep := range given {
		ep.sendUnmap(s.id)
	}
	return nil
}

// give notes that an endpoint's peer is given the segment's descriptor; false once it is closed.
func (s *Segment) give(ep *Endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.given == nil {
		s.given = map[*Endpoint]struct{}{}
	}
	s.given[ep] = struct{}{}
	return true
}

// forget is called when the endpoint has ended, or was not given it after all.
func (s *Segment) forget(ep *Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.given, ep)
}
