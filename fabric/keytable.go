package fabric

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/wherry-fabric/wherry/internal/memfd"
)

const (
	// maxKeys bounds the key table: 64 Ki slots, 256 KiB of generations.
	maxKeys  = 1 << 16
	noParent = ^uint32(0)
)

// keyTable is an element's record of the keys it gave out. A key names its
// slot, so that finding it takes no map; the secret is what proves it.
// Generations lie in a sealed memfd: peers that map segments read there, for
// each operation, whether their key still holds.
type keyTable struct {
	self Incarnation
	gens *memfd.File
	ends atomic.Uint64 // raised after each key that ends

	mu       sync.RWMutex
	slots    []keySlot
	free     []uint32
	segments map[uint32]*Segment
	closed   bool
}

type keySlot struct {
	seg      *Segment // nil: free
	offset   uint64
	size     uint64
	secret   [16]byte
	rights   Rights
	parent   uint32
	children []uint32
	by       *Endpoint // the peer that narrowed it; nil: this element gave it out
}

func newKeyTable(self Incarnation) (*keyTable, error) {
	f, err := memfd.Create("wherry-keys", maxKeys*4, true)
	if err != nil {
		return nil, err
	}
	t := &keyTable{self: self, gens: f, segments: map[uint32]*Segment{}}
	// Element.Holds reads the table without a lock, at any time: it stays mapped as long as
	// anybody can ask.
	runtime.AddCleanup(t, func(mem []byte) { memfd.Unmap(mem) }, f.Bytes())
	return t, nil
}

// generation is slot's word in the shared table.
func (t *keyTable) generation(slot uint32) *atomic.Uint32 {
	return generationWord(t.gens.Bytes(), slot)
}

// generationWord is slot's word in a mapping of a generation table. The table is
// page-aligned and has maxKeys words, so the word is aligned and inside.
func generationWord(table []byte, slot uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&table[uintptr(slot%maxKeys)*4]))
}

func (t *keyTable) addSegment(s *Segment) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("fabric: new segment: %w", ErrClosed)
	}
	t.segments[s.id] = s
	return nil
}

func (t *keyTable) add(s *Segment, offset, size uint64, rights Rights, parent uint32) (Key, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.segments[s.id] == nil {
		return Key{}, fmt.Errorf("fabric: key to a closed segment: %w", ErrRevoked)
	}
	return t.addLocked(s, offset, size, rights, parent)
}

func (t *keyTable) addLocked(s *Segment, offset, size uint64, rights Rights, parent uint32) (Key, error) {
	var slot uint32
	switch {
	case len(t.free) > 0:
		slot = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	case len(t.slots) < maxKeys:
		slot = uint32(len(t.slots))
		t.slots = append(t.slots, keySlot{})
	default:
		return Key{}, fmt.Errorf("fabric: %w keys: this element has all %d in use; revoke some", ErrTooMany, maxKeys)
	}
	k := &t.slots[slot]
	*k = keySlot{seg: s, offset: offset, size: size, rights: rights, parent: parent}
	rand.Read(k.secret[:])
	if parent != noParent {
		t.slots[parent].children = append(t.slots[parent].children, slot)
	} else {
		s.keys = append(s.keys, slot)
	}
	return Key{Owner: t.self, Slot: slot, Generation: t.generation(slot).Load(), Secret: k.secret,
		Size: size, Rights: rights, Sealed: s.kind == Sealed}, nil
}

// find checks a key that a peer showed. The slot is a copy.
func (t *keyTable) find(slot, gen uint32, secret *[16]byte) (keySlot, status) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.findLocked(slot, gen, secret)
}

func (t *keyTable) findLocked(slot, gen uint32, secret *[16]byte) (keySlot, status) {
	if int(slot) >= len(t.slots) {
		return keySlot{}, statusKey
	}
	if t.generation(slot).Load() != gen {
		return keySlot{}, statusRevoked
	}
	k := t.slots[slot]
	if k.seg == nil || subtle.ConstantTimeCompare(k.secret[:], secret[:]) != 1 {
		return keySlot{}, statusKey
	}
	return k, statusOK
}

// allows checks one operation against the slot.
func (k *keySlot) allows(offset, size uint64, need Rights) status {
	switch {
	case k.rights&need != need:
		return statusRights
	case offset > k.size || size > k.size-offset:
		return statusRange
	case !k.seg.kind.takes(k.offset+offset, size):
		return statusAlign
	}
	return statusOK
}

func (k *keySlot) span(offset, size uint64) span {
	s := span{seg: k.seg, at: k.offset + offset, size: int(size)}
	if k.seg.mem != nil {
		s.mem = k.seg.mem[s.at : s.at+size]
	}
	return s
}

// access checks one operation and pins the segment: the caller unpins it.
func (t *keyTable) access(r keyRef, offset, size uint64, need Rights) (span, status) {
	k, st := t.find(r.slot, r.gen, &r.secret)
	if st == statusOK {
		st = k.allows(offset, size, need)
	}
	switch {
	case st != statusOK:
		return span{}, st
	case !k.seg.pin():
		return span{}, statusRevoked
	}
	return k.span(offset, size), statusOK
}

// enter is access for one short write: until leave, which is due if the status is OK, the key holds and
// its segment is open. Anything slower would hold up all makers of keys: see Element.write.
func (t *keyTable) enter(r keyRef, offset, size uint64, need Rights) (s span, st status) {
	t.mu.RLock()
	k, st := t.findLocked(r.slot, r.gen, &r.secret)
	if st == statusOK {
		st = k.allows(offset, size, need)
	}
	if st != statusOK {
		t.mu.RUnlock()
		return span{}, st
	}
	return k.span(offset, size), statusOK // a segment leaves the table before its memory goes
}

func (t *keyTable) leave() { t.mu.RUnlock() }

// holds reports whether a key that was found once has not ended since.
func (t *keyTable) holds(r keyRef) bool { return t.generation(r.slot).Load() == r.gen }

// narrow makes a child of a key with a part of its range and rights, for a
// peer or (by nil) for this element.
func (t *keyTable) narrow(r keyRef, offset, size uint64, rights Rights, by *Endpoint) (Key, status) {
	k, st := t.find(r.slot, r.gen, &r.secret)
	switch {
	case st != statusOK:
		return Key{}, st
	case rights == 0 || rights&^k.rights != 0:
		return Key{}, statusRights
	case size == 0 || offset > k.size || size > k.size-offset:
		return Key{}, statusRange
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[r.slot].seg != k.seg || t.generation(r.slot).Load() != r.gen {
		return Key{}, statusRevoked
	}
	if by != nil && (by.narrowed >= by.el.cfg.Limits.KeysPerPeer || by.dead.Load() != nil) {
		return Key{}, statusPeerKeys
	}
	child, err := t.addLocked(k.seg, k.offset+offset, size, rights, r.slot)
	if err != nil {
		return Key{}, statusTooMany
	}
	if by != nil {
		t.slots[child.Slot].by = by
		by.narrowed++
	}
	return child, statusOK
}

// dropPeer ends the keys that a lost peer narrowed, and what was narrowed from them.
func (t *keyTable) dropPeer(ep *Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ep.narrowed == 0 {
		return
	}
	parents := map[uint32]bool{}
	for slot := range t.slots {
		if k := &t.slots[slot]; k.by == ep && k.parent != noParent {
			parents[k.parent] = true
		}
	}
	for parent := range parents { // each list once: it may be long
		list := &t.slots[parent].children
		*list = slices.DeleteFunc(*list, func(s uint32) bool { return t.slots[s].by == ep })
	}
	for slot := range t.slots {
		if t.slots[slot].by == ep { // unless it went with its parent
			t.dropLocked(uint32(slot))
		}
	}
}

// revoke ends a key and all that was narrowed from it.
func (t *keyTable) revoke(r keyRef) status {
	k, st := t.find(r.slot, r.gen, &r.secret)
	if st != statusOK {
		return st
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation(r.slot).Load() != r.gen {
		return statusRevoked
	}
	list := &k.seg.keys
	if k.parent != noParent {
		list = &t.slots[k.parent].children
	}
	for i, s := range *list {
		if s == r.slot {
			(*list)[i] = (*list)[len(*list)-1]
			*list = (*list)[:len(*list)-1]
			break
		}
	}
	t.dropLocked(r.slot)
	return statusOK
}

func (t *keyTable) dropLocked(slot uint32) {
	children := t.slots[slot].children
	if by := t.slots[slot].by; by != nil {
		by.narrowed--
	}
	t.generation(slot).Add(1)
	t.ends.Add(1)
	t.slots[slot] = keySlot{}
	t.free = append(t.free, slot)
	for _, c := range children {
		t.dropLocked(c)
	}
}

func (t *keyTable) removeSegment(s *Segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, slot := range s.keys {
		t.dropLocked(slot)
	}
	s.keys = nil
	delete(t.segments, s.id)
}

// close revokes all keys by closing all segments, and gives the table's descriptor back.
func (t *keyTable) close() {
	t.mu.Lock()
	t.closed = true
	var open []*Segment
	for _, s := range t.segments {
		open = append(open, s)
	}
	t.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
	t.gens.CloseFD()
}
