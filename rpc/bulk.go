package rpc

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// Span is a range of one of this element's segments.
type Span struct {
	Segment *fabric.Segment
	Offset  uint64
	Size    uint64
}

const (
	// EagerBulkBytes is the most that a read-only Bulk carries with itself.
	EagerBulkBytes = 4 << 10
	// InlineParts is how many parts a Bulk lists in its own bytes. Of one that has
	// more, the list lies at the owner, and is fetched when it is first needed.
	InlineParts = 16
	// MaxParts bounds the parts of a Bulk: each takes one of its owner's 65,536 keys.
	MaxParts = 16 << 10
	// MaxBulkAddrs bounds the addresses that a Bulk is bound to.
	MaxBulkAddrs = 4
	maxAddrBytes = 255
)

// ErrNotConnected says that there is no way to a Bulk's owner.
var ErrNotConnected = errors.New("rpc: no endpoint to the owner of this bulk")

// ErrRange says that a transfer leaves the Bulk, or the local memory.
var ErrRange = errors.New("rpc: outside the bulk")

// Bulk is memory of one element that others can read or write: a list of ranges,
// seen as one run of bytes. Its bytes (Append) can be put into any request or answer, and handed on. It
// does not change; its methods may be called from any goroutine. The zero Bulk is
// null: it has no memory, and moving no bytes is all that succeeds with it.
type Bulk struct {
	kind   bulkKind
	owner  fabric.Incarnation
	rights fabric.Rights
	size   uint64
	addrs  []string
	data   []byte // of an eager one
	parts  []bulkPart
	list   ref // where the parts lie, if they are too many
	count  int // of them

	fetched *fetchedParts // of a decoded one with a list
	mine    *exposed      // of the owner's own
}

type bulkKind uint8

const (
	bulkNull bulkKind = iota
	bulkEager
	bulkInline
	bulkListed
)

// bulkPart is a key and its size: a key is made for each range.
type bulkPart struct {
	key fabric.Key
}

// fetchedParts are a list's parts, once they were needed.
type fetchedParts struct {
	mu    sync.Mutex
	parts []bulkPart
}

// exposed is what the owner keeps of a Bulk, to take it back.
type exposed struct {
	mu    sync.Mutex
	el    *fabric.Element
	spans []Span
	keys  []fabric.Key
	list  *fabric.Segment
}

// BulkOptions say how a Bulk is made. The zero value is fit for most.
type BulkOptions struct {
	// Live keeps a small read-only Bulk from carrying its bytes: who pulls gets
	// what is there then, not what was there when Append was called.
	Live bool
}

// Expose makes a Bulk of ranges of this element's segments, with the given
// rights. Until Close, any holder of its bytes can use it. On one machine, whole
// segments with fabric.RightsAll (or RightRead, if they are sealed) move at memory speed; other
// ranges are copied by the owner.
func (p *Peer) Expose(rights fabric.Rights, o BulkOptions, spans ...Span) (*Bulk, error) {
	if rights == 0 || rights&^fabric.RightsAll != 0 {
		return nil, fmt.Errorf("rpc: bulk with rights %#x: %w", uint8(rights), fabric.ErrRights)
	}
	x := &exposed{el: p.el}
	b := &Bulk{kind: bulkInline, owner: p.el.Incarnation(), rights: rights, mine: x}
	for _, s := range spans {
		if s.Segment == nil || s.Offset > s.Segment.Size() || s.Size > s.Segment.Size()-s.Offset {
			return nil, fmt.Errorf("%w: a span [%d, +%d)", ErrRange, s.Offset, s.Size)
		}
		if s.Segment.Bytes() == nil {
			return nil, fmt.Errorf("rpc: bulk: a segment that loads and stores do not reach: give out its key instead (Segment.Key): %w", errors.ErrUnsupported)
		}
		if el := s.Segment.Element(); el != p.el {
			return nil, fmt.Errorf("rpc: bulk: a segment of %s, which is another element than %s: only its own Peer can expose it", el.Name(), p.el.Name())
		}
		if s.Size > 0 {
			x.spans = append(x.spans, s)
			b.size += s.Size
		}
	}
	if len(x.spans) > MaxParts {
		return nil, fmt.Errorf("rpc: a bulk of %d parts: at most %d", len(x.spans), MaxParts)
	}
	if rights == fabric.RightRead && b.size <= EagerBulkBytes && !o.Live {
		b.kind = bulkEager
		return b, nil
	}
	err := b.export(x)
	if err == nil && len(b.parts) > InlineParts {
		err = b.enlist(x)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("rpc: bulk: %w", err)
	}
	return b, nil
}

// export makes a key for each range.
func (b *Bulk) export(x *exposed) error {
	for _, s := range x.spans {
		k, err := s.Segment.KeyRange(s.Offset, s.Size, b.rights)
		if err != nil {
			return err
		}
		x.keys = append(x.keys, k)
		b.parts = append(b.parts, bulkPart{k})
	}
	b.count = len(b.parts)
	return nil
}

// enlist puts the list of parts into a segment of its own.
func (b *Bulk) enlist(x *exposed) error {
	n := len(b.parts) * partBytes
	seg, err := x.el.NewSegment(uint64(n), fabric.Sealed)
	if err != nil {
		return err
	}
	x.list = seg
	out := seg.Bytes()[:0]
	for _, part := range b.parts {
		out = part.append(out)
	}
	k, err := seg.Key(fabric.RightRead)
	b.kind, b.list = bulkListed, ref{k, uint64(n)}
	return err
}

// Close takes back what Expose gave. Transfers under way fail. Only the owner's
// own Bulk needs it; on others it does nothing.
func (b *Bulk) Close() error {
	if b == nil || b.mine == nil {
		return nil
	}
	x := b.mine
	x.mu.Lock()
	keys, list := x.keys, x.list
	x.keys, x.list, x.spans = nil, nil, nil
	x.mu.Unlock()
	var errs []error
	for _, k := range keys {
		// A key whose segment was closed is gone already.
		if err := x.el.Revoke(k); err != nil && !errors.Is(err, fabric.ErrRevoked) && !errors.Is(err, fabric.ErrKey) {
			errs = append(errs, err)
		}
	}
	if list != nil {
		errs = append(errs, list.Close())
	}
	return errors.Join(errs...)
}

// Bind is the Bulk with addresses at which its owner can be dialled, so that
// a reader without an endpoint to it can use it (Config.Dial). Element.Addrs are its own.
func (b *Bulk) Bind(addrs ...string) (*Bulk, error) {
	if b.IsNull() {
		return nil, fmt.Errorf("rpc: a null bulk has no owner to be bound to")
	}
	if len(addrs) == 0 || len(addrs) > MaxBulkAddrs {
		return nil, fmt.Errorf("rpc: a bulk bound to %d addresses: between 1 and %d", len(addrs), MaxBulkAddrs)
	}
	for _, a := range addrs {
		if _, _, err := fabric.SplitAddr(a); err != nil || len(a) > maxAddrBytes {
			return nil, fmt.Errorf("rpc: bulk bound to %q: at most %d bytes of the form scheme://place", clipText(a, maxAddrBytes), maxAddrBytes)
		}
	}
	bound := *b
	bound.addrs = slices.Clone(addrs)
	return &bound, nil
}

// IsNull reports whether this is the null Bulk.
func (b *Bulk) IsNull() bool { return b == nil || b.kind == bulkNull }

// Size is the number of bytes.
func (b *Bulk) Size() uint64 {
	if b == nil {
		return 0
	}
	return b.size
}

// Rights are what it allows; none for the null Bulk.
func (b *Bulk) Rights() fabric.Rights {
	if b == nil {
		return 0
	}
	return b.rights
}

// Owner is the incarnation whose memory it is; 0 for the null Bulk.
func (b *Bulk) Owner() fabric.Incarnation {
	if b == nil {
		return 0
	}
	return b.owner
}

// Addrs are the addresses that it is bound to.
func (b *Bulk) Addrs() []string {
	if b == nil {
		return nil
	}
	return slices.Clone(b.addrs)
}

// Carried reports whether its bytes travel with it.
func (b *Bulk) Carried() bool { return b != nil && b.kind == bulkEager }

// Memory is a list of byte ranges here, seen as one run of bytes: the local side of a transfer.
type Memory [][]byte

// Size is the number of bytes.
func (m Memory) Size() uint64 {
	n := uint64(0)
	for _, b := range m {
		n += uint64(len(b))
	}
	return n
}

// Slice is size bytes from offset.
func (m Memory) Slice(offset, size uint64) (Memory, error) {
	var out Memory
	for _, b := range m {
		if offset >= uint64(len(b)) {
			offset -= uint64(len(b))
			continue
		}
		n := min(uint64(len(b))-offset, size)
		out = append(out, b[offset:offset+n:offset+n])
		offset, size = 0, size-n
	}
	if size > 0 || offset > 0 {
		return nil, fmt.Errorf("%w: local memory of %d bytes", ErrRange, m.Size())
	}
	return out, nil
}

// SpanMemory is the memory of ranges of segments, which must stay open while it is used. Segments without Bytes have none.
func SpanMemory(spans ...Span) Memory {
	var m Memory
	for _, s := range spans {
		if s.Segment.Bytes() == nil {
			continue
		}
		m = append(m, s.Segment.Bytes()[s.Offset:s.Offset+s.Size:s.Offset+s.Size])
	}
	return m
}
