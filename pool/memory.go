package pool

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
)

// Memory is the bytes of something that was opened, a Region or an Item. Its methods may be called from any goroutine. An operation that spans extents is not one: a
// part of it may have happened where it fails.
type Memory struct {
	pool *Pool
	view atomic.Pointer[view]
}

// Info is the region as it was when its table was fetched.
func (m *Memory) Info() Info { return m.view.Load().info }

// Size is the length in bytes.
func (m *Memory) Size() int64 { return int64(m.view.Load().info.Size) }

// label names the memory in errors.
func (v *view) label() string {
	if i := v.item; i != nil && i.Name != "" {
		return fmt.Sprintf("number %d, item %q", i.Region, i.Name)
	} else if i != nil {
		return fmt.Sprintf("number %d, item number %d", i.Region, i.Number)
	}
	if v.info.Name != "" {
		return strconv.Quote(v.info.Name)
	}
	return "number " + strconv.Itoa(int(v.info.Region))
}

// where names the components.
func (v *view) where() string {
	if len(v.homes) == 1 {
		return v.homes[0].component
	}
	return fmt.Sprintf("%d components", len(v.homes))
}

// fail makes an operation's error.
func (v *view) fail(op string, off, n uint64, err error) error {
	return v.failAt(v.where(), op, off, n, err)
}

func (v *view) failAt(component, op string, off, n uint64, err error) error {
	return &Error{op, v.label(), component, off, n, VerbError(err)}
}

// one is the extent's memory that has all n bytes at off, and where in it they are; nil: there is none, or there are several.
func (m *Memory) one(off uint64, n int) (*fabric.Remote, uint64) {
	v := m.view.Load()
	if k := off >> v.shift; k < uint64(len(v.slots)) {
		if s := v.slots[k]; s.first == s.last {
			e := &v.extents[s.first]
			if within := off - e.off; within < e.size && uint64(n) <= e.size-within {
				return e.remote, within
			}
			return nil, 0
		}
	}
	if e, within, run := v.locate(off); e != nil && uint64(n) <= run {
		return e.remote, within
	}
	return nil, 0
}

// pieces calls fn for the piece of n bytes at off that each extent has, in order, until it fails. What leaves the memory, or is lost, fails before fn is called.
func (m *Memory) pieces(op string, off, n uint64, fn func(p piece) error) error {
	v := m.view.Load()
	if err := v.within(op, off, n); err != nil {
		return err
	}
	return v.each(off, n, func(p piece) error {
		if err := fn(p); err != nil {
			return v.failAt(p.e.home.component, op, off, n, err)
		}
		return nil
	})
}

// within reports an operation that leaves the memory, whose bytes are lost, or that comes after Close.
func (v *view) within(op string, off, n uint64) error {
	switch {
	case v.closed:
		return v.fail(op, off, n, ErrClosed)
	case off > v.info.Size || n > v.info.Size-off:
		return v.fail(op, off, n, fmt.Errorf("%w, which has %d bytes", ErrRange, v.info.Size))
	}
	return v.each(off, n, func(p piece) error {
		if p.e.remote == nil {
			return v.failAt(p.e.home.component, op, off, n, fmt.Errorf("%w: node %s had %d bytes at %d", ErrLost, p.e.home.component, p.e.size, p.e.off))
		}
		return nil
	})
}

// Get copies len(dst) bytes from off. Up to an aligned 8 bytes are read whole; more may be torn by a concurrent write.
func (m *Memory) Get(ctx context.Context, dst []byte, off uint64) error {
	r, within := m.one(off, len(dst))
	if r == nil {
		return m.getPieces(ctx, dst, off)
	}
	if err := r.Get(ctx, dst, within); err != nil {
		return m.failed("get", off, len(dst), err)
	}
	return nil
}

// failed makes the error of an operation in one extent.
func (m *Memory) failed(op string, off uint64, n int, err error) error {
	v := m.view.Load()
	if e, _, _ := v.locate(off); e != nil {
		return v.failAt(e.home.component, op, off, uint64(n), err)
	}
	return v.fail(op, off, uint64(n), err)
}

func (m *Memory) getPieces(ctx context.Context, dst []byte, off uint64) error {
	return m.pieces("get", off, uint64(len(dst)), func(p piece) error {
		return p.e.remote.Get(ctx, dst[p.from:p.to], p.within)
	})
}

// Put copies src to off and returns when it is there: a Get by anybody sees it.
func (m *Memory) Put(ctx context.Context, src []byte, off uint64) error {
	r, within := m.one(off, len(src))
	if r == nil {
		return m.putPieces(ctx, src, off)
	}
	if err := r.Put(ctx, src, within); err != nil {
		return m.failed("put", off, len(src), err)
	}
	return nil
}

func (m *Memory) putPieces(ctx context.Context, src []byte, off uint64) error {
	return m.pieces("put", off, uint64(len(src)), func(p piece) error {
		return p.e.remote.Put(ctx, src[p.from:p.to], p.within)
	})
}

// Atomic performs op on width (4 or 8) bytes at off, a multiple of width, and returns the old value. Atomics are atomic among each other.
func (m *Memory) Atomic(ctx context.Context, op fabric.AtomicOp, width int, off uint64) (uint64, error) {
	r, within := m.one(off, width)
	if r == nil { // extents begin at multiples of SegmentAlign: an aligned word lies in one
		return 0, m.pieces("atomic", off, uint64(width), func(piece) error { return fabric.ErrAlign })
	}
	v, err := r.Atomic(ctx, op, width, within)
	if err != nil {
		return 0, m.failed("atomic", off, width, err)
	}
	return v, nil
}

// MappedRun is how many bytes from off on are mapped here in one piece; 0: none.
func (m *Memory) MappedRun(off uint64) int {
	e, _, run := m.view.Load().locate(off)
	if e == nil || e.remote == nil || !e.remote.Mapped() {
		return 0
	}
	return int(run)
}

// Access runs fn on n bytes at off themselves, to read and to write, where they are mapped here in one piece; fn must not keep them. They stay in
// place while fn runs, also if the component ends meanwhile. Where fn has not run, the error says why.
func (m *Memory) Access(off uint64, n int, fn func(mem []byte)) error {
	r, within := m.one(off, n)
	if r == nil {
		return m.pieces("access", off, uint64(n), func(piece) error { return ErrNotMapped })
	}
	if !r.Mapped() {
		return m.failed("access", off, n, ErrNotMapped)
	}
	if err := r.Access(fabric.RightRead|fabric.RightWrite, within, uint64(n), fn); err != nil {
		return m.failed("access", off, n, err)
	}
	return nil
}

// View is bytes that are mapped here.
type View struct {
	m   *Memory
	off uint64
	n   int
}

// Map makes a view of n bytes at off (fam_map), where they are mapped here in one piece: ErrNotMapped says that they are not, and Get and Put serve. Where they are
// not mapped, no component is asked whether they are still there. Nothing has to be undone: the mapping is the connection's.
func (m *Memory) Map(off uint64, n int) (*View, error) {
	v := &View{m, off, n}
	return v, v.Access(func([]byte) {})
}

// Access runs fn on the view's bytes, to read and to write, as Memory.Access does. The memory itself cannot go while fn runs: the component cannot make a segment smaller,
// and its death leaves it with the processes that have it mapped. So there is no SIGBUS to be caught.
func (v *View) Access(fn func(mem []byte)) error { return v.m.Access(v.off, v.n, fn) }

// Discard makes n bytes at off zeros; whole pages among them go back to the component's machine until they are written again.
func (m *Memory) Discard(ctx context.Context, off, n uint64) error {
	return m.DiscardAll(ctx, []Range{{off, n}})
}

// DiscardAll is Discard of many ranges: one request to a component for MaxRanges of them.
func (m *Memory) DiscardAll(ctx context.Context, ranges []Range) error {
	return m.discard(ctx, ranges, func() uint64 { return 0 })
}

// DiscardInTurn is DiscardAll for a region that this program alone writes to, through this Region: once it has returned without an error, no
// earlier one that was given up discards anything any more. So what was given up can be asked for again.
func (r *Region) DiscardInTurn(ctx context.Context, ranges []Range) error {
	return r.discard(ctx, ranges, func() uint64 { return r.turn.Add(1) })
}

func (m *Memory) discard(ctx context.Context, ranges []Range, turn func() uint64) error {
	v := m.view.Load()
	there := map[*home][]Range{}
	for _, g := range ranges {
		err := m.pieces("discard", g.Off, g.Size, func(p piece) error {
			there[p.e.home] = join(there[p.e.home], Range{p.e.at + p.within, p.to - p.from})
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, h := range v.homes {
		for list := there[h]; len(list) > 0; {
			batch := list[:min(len(list), MaxRanges)]
			if err := m.pool.tell(ctx, h.component, CallDiscard, DiscardRequest{h.ref, batch, turn()}); err != nil {
				return err
			}
			list = list[len(batch):]
		}
	}
	return nil
}

// join adds a range to those before it; one that goes on where the last ends is the same range.
func join(list []Range, g Range) []Range {
	if n := len(list); n > 0 && list[n-1].Off+list[n-1].Size == g.Off {
		list[n-1].Size += g.Size
		return list
	}
	return append(list, g)
}

// Fence orders: operations that begin here after it take effect after those that began before, at each component by itself. It does not wait.
// Where a part only is mapped (more than 1,024 extents of a component), or an order between two components matters, use Quiet.
func (m *Memory) Fence() {
	for _, h := range m.view.Load().homes {
		if h.ep != nil {
			h.ep.Fence()
		}
	}
}

// Quiet returns when all that was begun here, at the components that have these bytes, has taken effect. Started operations must still be waited for or forgotten.
func (m *Memory) Quiet(ctx context.Context) error {
	v := m.view.Load()
	for _, h := range v.homes {
		if h.ep == nil {
			continue
		}
		if err := h.ep.Flush(ctx); err != nil {
			return v.failAt(h.component, "quiet", 0, 0, err)
		}
	}
	return nil
}
