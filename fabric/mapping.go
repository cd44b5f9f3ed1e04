package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memfd"
)

// Peers on one machine map each other's segments. The owner hands over two
// kinds of descriptors: the segment's, and once its table of key generations
// (sealed: peers only read it), where each operation looks up whether its key still
// holds. Revocation of mapped memory is thus cooperative: a peer that wants to
// go on reading a mapping it was given can, and docs/security.md says so.

const (
	// gensTag marks the descriptor of the key generations; segments are marked
	// with their ids, which start at 1.
	gensTag = 0
	// maxMappings bounds the segments mapped through one endpoint.
	maxMappings = 1024

	importMessages = 0 // the owner serves operations
	importMapped   = 1
	importedBytes  = 24
)

// mapping is one peer's segment in our address space. When it goes, its
// memory is taken away and its addresses are kept (memfd.Retire): an access of one word needs
// no count of who is inside, only a look, afterwards, whether the mapping had gone. Copies
// count themselves, and the memory goes when the last has left. The addresses come back when nobody has the mapping any more: whoever is to
// look afterwards has it.
type mapping struct {
	taken *atomic.Int64 // Element.mapped
	mem   []byte
	kind  SegmentKind
	users atomic.Int64 // large operations inside; negative once it is to go
}

func (m *mapping) enter() bool { return enter(&m.users) }

func (m *mapping) leave() {
	if m.users.Add(-1) == closedPins {
		m.unmap()
	}
}

// end lets go of the memory once the last operation has left. It is called once.
func (m *mapping) end() {
	if m.users.Add(closedPins) == closedPins {
		m.unmap()
	}
}

// gone reports whether the mapping has ended, or is about to.
func (m *mapping) gone() bool { return m.users.Load() < 0 }

func (m *mapping) unmap() {
	taken := m.taken // and nothing that leads to the mapping, which would stay then
	memfd.Retire(m.mem)
	runtime.AddCleanup(m, func(mem []byte) {
		memfd.Unmap(mem)
		taken.Add(-int64(len(mem)))
	}, m.mem)
}

// admit reports whether so many bytes more may be mapped, and counts them. mu is held.
func (ms *mappings) admit(bytes uint64) bool {
	all := ms.ep.el.cfg.Limits.MappedBytes
	own := uint64(0)
	for _, m := range ms.maps {
		own += uint64(len(m.mem))
	}
	if bytes > uint64(all/4) || own > uint64(all/4)-bytes {
		return false
	}
	if ms.ep.el.mapped.Add(int64(bytes)) > all {
		ms.ep.el.mapped.Add(-int64(bytes))
		return false
	}
	return true
}

// mappings are an endpoint's, both ways.
type mappings struct {
	ep *Endpoint

	mu   sync.Mutex
	fds  map[uint64]int // arrived, not mapped yet
	gens *mapping       // the peer's table of key generations
	maps map[uint32]*mapping
	sent map[uint32]*Segment // ours that the peer was given; nil: the table of generations
	// over holds the peer's segments that were closed last, and whether their
	// descriptors have come: descriptors travel beside the frames, and an Import may be waiting.
	over   map[uint32]bool
	closed bool
}

func (ms *mappings) init(ep *Endpoint) {
	ms.ep = ep
	ms.fds, ms.maps, ms.sent, ms.over = map[uint64]int{}, map[uint32]*mapping{}, map[uint32]*Segment{}, map[uint32]bool{}
}

func (ms *mappings) close() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.closed = true
	for tag, fd := range ms.fds {
		unix.Close(fd)
		delete(ms.fds, tag)
	}
	for id, m := range ms.maps {
		m.end()
		delete(ms.maps, id)
	}
	if ms.gens != nil {
		ms.gens.end()
		ms.gens = nil
	}
	for id, seg := range ms.sent {
		if seg != nil {
			seg.forget(ms.ep)
		}
		delete(ms.sent, id)
	}
}

// count says how many of the peer's segments are mapped here, and how many of
// ours it was given.
func (ms *mappings) count() (here, there int) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	there = len(ms.sent)
	if _, ok := ms.sent[gensTag]; ok {
		there-- // the table of generations, which is no segment
	}
	return len(ms.maps), there
}

// serveImport answers a peer's Import.
func (ep *Endpoint) serveImport(b []byte) error {
	if len(b) != 4+keyRefBytes {
		return short(frameImport, len(b))
	}
	op := binary.LittleEndian.Uint32(b)
	slot, st := ep.el.keys.find(binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]), (*[16]byte)(b[12:28]))
	blob := make([]byte, 0, 8+importedBytes)
	blob = binary.LittleEndian.AppendUint32(blob, op)
	blob = binary.LittleEndian.AppendUint32(blob, uint32(st))
	if st == statusOK {
		mode := uint32(importMessages)
		if ep.offerMapping(slot) {
			mode = importMapped
		}
		blob = binary.LittleEndian.AppendUint32(blob, mode)
		blob = binary.LittleEndian.AppendUint32(blob, slot.seg.id)
		blob = binary.LittleEndian.AppendUint64(blob, slot.seg.size)
		blob = binary.LittleEndian.AppendUint64(blob, uint64(slot.seg.kind))
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.sayLocked(frameImported, blob, nil)
	return nil
}

// offerMapping hands over the segment's descriptor if a mapping gives the
// peer no more than the key does.
func (ep *Endpoint) offerMapping(k keySlot) bool {
	whole := k.offset == 0 && k.size == k.seg.size
	enough := k.rights == RightsAll || k.seg.kind == Sealed && k.rights == RightRead
	if ep.fds == nil || !whole || !enough {
		return false
	}
	fd, offset := k.seg.FD()
	if fd < 0 || offset != 0 { // what lies before the segment is none of the peer's
		return false
	}
	ms := &ep.map_
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.sent[k.seg.id] != nil {
		return true
	}
	if ms.closed || len(ms.sent) >= maxMappings || !k.seg.pin() {
		return false
	}
	defer k.seg.unpin()
	if _, ok := ms.sent[gensTag]; !ok {
		if ep.fds.SendFD(gensTag, ep.el.keys.gens.FD()) != nil {
			return false
		}
		ms.sent[gensTag] = nil
	}
	if !k.seg.give(ep) {
		return false
	}
	if ep.fds.SendFD(uint64(k.seg.id), fd) != nil {
		k.seg.forget(ep)
		return false
	}
	ms.sent[k.seg.id] = k.seg // if the segment closes meanwhile, sendUnmap waits for the lock
	return true
}

// sendUnmap asks the peer to let go of a segment of ours.
func (ep *Endpoint) sendUnmap(segment uint32) {
	ms := &ep.map_
	ms.mu.Lock()
	given := ms.sent[segment]
	delete(ms.sent, segment)
	ms.mu.Unlock()
	if given != nil {
		ep.sayShort(frameUnmap, binary.LittleEndian.AppendUint32(nil, segment))
	}
}

// unmap obeys the peer's wish to let go of one of its segments.
func (ms *mappings) unmap(b []byte) error {
	if len(b) != 4 {
		return short(frameUnmap, len(b))
	}
	id := binary.LittleEndian.Uint32(b)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m, fd, arrived := ms.maps[id], 0, false
	if m != nil {
		m.end()
		delete(ms.maps, id)
	}
	if fd, arrived = ms.fds[uint64(id)]; arrived {
		unix.Close(fd)
		delete(ms.fds, uint64(id))
	}
	if id == gensTag {
		return nil
	}
	if len(ms.over) >= maxMappings {
		for old, come := range ms.over {
			if come {
				delete(ms.over, old)
			}
		}
	}
	if len(ms.over) >= maxMappings {
		return fmt.Errorf("%w: %d segments were closed that never arrived", ErrProtocol, len(ms.over))
	}
	ms.over[id] = m != nil || arrived
	return nil
}

// map_ completes an Import with the owner's answer.
func (r *Remote) map_(ctx context.Context, blob []byte) error {
	if len(blob) != importedBytes {
		return short(frameImported, len(blob))
	}
	mode, id := binary.LittleEndian.Uint32(blob), binary.LittleEndian.Uint32(blob[4:])
	size, kind := binary.LittleEndian.Uint64(blob[8:]), SegmentKind(binary.LittleEndian.Uint64(blob[16:]))
	if mode != importMapped || id == gensTag {
		return nil
	}
	ms := &r.ep.map_
	if kind > Registers {
		return fmt.Errorf("%w: a segment of kind %d", ErrProtocol, kind)
	}
	if size < r.key.Size {
		return fmt.Errorf("%w: a segment of %d bytes for a key to %d", ErrProtocol, size, r.key.Size)
	}
	err := r.ep.el.leader.waitRoom(ctx, func() bool { return r.ep.dead.Load() != nil || ms.arrived(id) })
	if err != nil {
		return err
	}
	if lost := r.ep.dead.Load(); lost != nil {
		return lost.Err
	}
	return ms.attach(r, id, size, kind)
}

func (ms *mappings) arrived(id uint32) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	_, fd := ms.fds[uint64(id)]
	_, g := ms.fds[gensTag]
	_, over := ms.over[id]
	return over || (ms.maps[id] != nil || fd) && (ms.gens != nil || g)
}

// attach points a Remote at mapped memory, mapping it if it is the first.
func (ms *mappings) attach(r *Remote, id uint32, size uint64, kind SegmentKind) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed { // and the endpoint with it
		return ms.ep.dead.Load().Err
	}
	if _, over := ms.over[id]; over {
		return ErrRevoked
	}
	if ms.gens == nil {
		mem, err := ms.mapFD(gensTag, maxKeys*4, false)
		if err != nil {
			return err
		}
		ms.ep.el.mapped.Add(int64(len(mem)))
		ms.gens = &mapping{taken: ms.ep.el.mapped, mem: mem}
	}
	m := ms.maps[id]
	if m == nil {
		if !ms.admit(size) { // its descriptor stays: another Import may find room
			return nil
		}
		mem, err := ms.mapFD(uint64(id), int64(size), kind != Sealed)
		if err != nil {
			ms.ep.el.mapped.Add(-int64(size))
			return err
		}
		m = &mapping{taken: ms.ep.el.mapped, mem: mem, kind: kind}
		ms.maps[id] = m
	}
	r.route = ms.route(r, m, m.mem)
	return nil
}

// route leads to a part of a mapping. mu is held.
func (ms *mappings) route(r *Remote, m *mapping, mem []byte) *mapped {
	return &mapped{served: served{r}, of: m, mem: mem, gens: ms.gens, gen: generationWord(ms.gens.mem, r.key.Slot), kind: m.kind, writable: m.kind != Sealed}
}

// part points a Remote at bytes of a mapping, unless that has ended.
func (ms *mappings) part(r *Remote, whole *mapped, offset uint64) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.gens != nil {
		r.route = ms.route(r, whole.of, whole.mem[offset:offset+r.key.Size])
	}
}

func (ms *mappings) mapFD(tag uint64, size int64, writable bool) ([]byte, error) {
	fd, ok := ms.fds[tag]
	if !ok {
		return nil, fmt.Errorf("%w: a descriptor is missing", ErrProtocol)
	}
	delete(ms.fds, tag)
	defer unix.Close(fd)
	return memfd.Map(fd, size, writable)
}
