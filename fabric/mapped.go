package fabric

import (
	"context"
	"fmt"
	"sync/atomic"
)

// mapped is the route to memory that is mapped here: operations are plain copies. What the
// mapping does not allow, the owner serves.
type mapped struct {
	served
	of       *mapping
	mem      []byte
	gens     *mapping       // keeps the address of gen
	gen      *atomic.Uint32 // the owner's word for the key's slot
	kind     SegmentKind
	writable bool
}

// enter checks one operation on mapped memory and keeps the mapping; the
// caller leaves. The key's generation is the owner's word on whether it still holds.
func (m *mapped) enter(verb string, offset, size uint64, need Rights) error {
	switch {
	case m.r.key.Rights&need != need:
		return m.r.errAt(verb, ErrRights)
	case offset > m.r.key.Size || size > m.r.key.Size-offset:
		return m.r.errAt(verb, fmt.Errorf("%w: [%d, +%d) of %d", ErrRange, offset, size, m.r.key.Size))
	case !m.kind.takes(offset, size):
		return m.r.errAt(verb, fmt.Errorf("%w: [%d, +%d) of registers, which take aligned words", ErrAlign, offset, size))
	case m.r.ep.dead.Load() != nil:
		return m.r.ep.lost(verb)
	case !m.of.enter():
		return m.ended(verb)
	case m.gen.Load() != m.r.key.Generation:
		m.of.leave()
		return m.ended(verb)
	}
	return nil
}

// ended is the error of an operation on memory that is not the peer's any more: the
// endpoint's end takes mappings and generations away too, and the peer's end may be heard of later than they go.
func (m *mapped) ended(verb string) error {
	if m.r.ep.dead.Load() != nil {
		return m.r.ep.lost(verb)
	}
	if m.r.ep.fds.Left() {
		return m.r.errAt(verb, ErrPeerLost)
	}
	return m.r.errAt(verb, ErrRevoked)
}

// enterWord is enter for an access of one aligned word, which need not be
// counted; leaveWord says whether it happened in the peer's memory.
func (m *mapped) enterWord(verb string, offset, size uint64, need Rights) error {
	if m.r.key.Rights&need == need && offset < m.r.key.Size && size <= m.r.key.Size-offset && m.r.ep.dead.Load() == nil &&
		!m.of.gone() && m.gen.Load() == m.r.key.Generation {
		return nil
	}
	if err := m.enter(verb, offset, size, need); err != nil { // which says why
		return err
	}
	m.of.leave()
	return nil
}

func (m *mapped) leaveWord(verb string) error {
	if !m.of.gone() {
		return nil
	}
	return m.ended(verb)
}

func (m *mapped) get(_ context.Context, dst []byte, offset uint64) error {
	if isWord(len(dst), offset) {
		if err := m.enterWord("get", offset, uint64(len(dst)), RightRead); err != nil {
			return err
		}
		CopyOut(dst, m.mem[offset:])
		return m.leaveWord("get")
	}
	if err := m.enter("get", offset, uint64(len(dst)), RightRead); err != nil {
		return err
	}
	CopyOut(dst, m.mem[offset:])
	m.of.leave()
	return nil
}

func (m *mapped) startGet(dst []byte, offset uint64) Op { return Op{err: m.get(nil, dst, offset)} }

func (m *mapped) put(ctx context.Context, src []byte, offset uint64) error {
	if !m.writable {
		return m.served.put(ctx, src, offset)
	}
	if isWord(len(src), offset) {
		if err := m.enterWord("put", offset, uint64(len(src)), RightWrite); err != nil {
			return err
		}
		CopyIn(m.mem[offset:], src)
		return m.leaveWord("put")
	}
	if err := m.enter("put", offset, uint64(len(src)), RightWrite); err != nil {
		return err
	}
	CopyIn(m.mem[offset:], src)
	m.of.leave()
	return nil
}

func (m *mapped) startPut(src []byte, offset uint64) Op {
	if !m.writable {
		return m.served.startPut(src, offset)
	}
	return Op{err: m.put(nil, src, offset)}
}

func (m *mapped) atomic(ctx context.Context, op AtomicOp, width int, offset uint64) (uint64, error) {
	if !m.writable {
		return m.served.atomic(ctx, op, width, offset)
	}
	if err := m.enterWord("atomic", offset, uint64(width), RightAtomic); err != nil {
		return 0, err
	}
	v, st := doAtomic(m.mem[offset:], op, width)
	if st != statusOK {
		return 0, m.r.errAt("atomic", st.err())
	}
	return v, m.leaveWord("atomic")
}

func (m *mapped) startAtomic(op AtomicOp, width int, offset uint64) Op {
	if !m.writable {
		return m.served.startAtomic(op, width, offset)
	}
	v, err := m.atomic(nil, op, width, offset)
	return Op{value: v, err: err}
}

func (m *mapped) access(need Rights, offset, size uint64, fn func(mem []byte)) error {
	if need&^RightRead != 0 && !m.writable {
		return m.served.access(need, offset, size, fn)
	}
	if err := m.enter("access", offset, size, need); err != nil {
		return err
	}
	defer m.of.leave()
	fn(m.mem[offset : offset+size : offset+size])
	return nil
}

func (m *mapped) pin(need Rights) ([]byte, error) {
	if need&^RightRead != 0 && !m.writable || m.kind == Registers {
		return m.served.pin(need)
	}
	if err := m.enter("pin", 0, m.r.key.Size, need); err != nil {
		return nil, err
	}
	return m.mem[:m.r.key.Size:m.r.key.Size], nil
}

func (m *mapped) unpin() { m.of.leave() }

func (m *mapped) post(src []byte, offset uint64) error {
	if !m.writable {
		return m.served.post(src, offset)
	}
	return m.put(nil, src, offset)
}

// ring stores first and looks whether the owner sleeps afterwards; the owner's leader does it the other way round before it sleeps.
func (m *mapped) ring(offset uint64, width int, v uint64) error {
	if !m.writable {
		return m.served.ring(offset, width, v)
	}
	if !isWord(width, offset) {
		return m.r.errAt("ring", ErrAlign)
	}
	if err := m.enterWord("ring", offset, uint64(width), RightWrite); err != nil {
		return err
	}
	storeWord(m.mem[offset:], width, v)
	if err := m.leaveWord("ring"); err != nil {
		return err
	}
	m.r.ep.fds.Wake()
	return nil
}
