package pool

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Region is a region that was opened. Its methods may be called from any goroutine. An operation that spans extents is not one: a part of it may
// have happened where it fails.
type Region struct {
	pool      *Pool
	component string
	info      Info
	ep        *fabric.Endpoint
	mapped    bool                     // all of it is
	shift     uint                     // an offset without so many bits is the number of its extent
	extents   atomic.Pointer[[]extent] // by offset, without gaps; nil: closed
}

// closeTime bounds telling the component that a leased region is not needed any more: it goes with the connection anyway.
const closeTime = 5 * time.Second

// extent is an extent as it is reached from here.
type extent struct {
	off, size uint64
	remote    *fabric.Remote
}

// Info is the region as it was when it was opened.
func (r *Region) Info() Info { return r.info }

// Size is the region's length in bytes.
func (r *Region) Size() int64 { return int64(r.info.Size) }

// Address is the address of a byte of the region.
func (r *Region) Address(off uint64) Address { return MakeAddress(r.info.Region, off) }

func (r *Region) label() string {
	if r.info.Name != "" {
		return strconv.Quote(r.info.Name)
	}
	return "number " + strconv.Itoa(int(r.info.Region))
}

func (r *Region) ref() NameRequest { return NameRequest{Region: r.info.Region, Epoch: r.info.Epoch} }

// Close forgets the region here: operations fail from then on with ErrClosed. The region stays, unless it is leased.
func (r *Region) Close() error {
	if r.extents.Swap(nil) != nil && r.info.Leased && r.ep.Err() == nil { // else it went with its connection
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := r.Destroy(ctx); err != nil && !errors.Is(err, ErrNoRegion) && !errors.Is(err, ErrMoved) {
			return err
		}
	}
	return nil
}

// Destroy frees the region, for everybody.
func (r *Region) Destroy(ctx context.Context) error {
	return r.pool.tell(ctx, r.component, CallDestroy, r.ref())
}

// fail makes an operation's error.
func (r *Region) fail(op string, off, n uint64, err error) error {
	return &Error{op, r.label(), r.component, off, n, verbError(err)}
}

// one is the extent that has all n bytes at off; nil: there is none, or there are several.
func (r *Region) one(off uint64, n int) *extent {
	list := r.extents.Load()
	if list == nil || off>>r.shift >= uint64(len(*list)) {
		return nil
	}
	if e := &(*list)[off>>r.shift]; off-e.off+uint64(n) <= e.size {
		return e
	}
	return nil
}

// pieces calls fn for the part of n bytes at off that each extent has, in order, until it fails. What leaves the region fails before fn is called.
func (r *Region) pieces(op string, off, n uint64, fn func(e *extent, from, to uint64) error) error {
	list := r.extents.Load()
	switch {
	case list == nil:
		return r.fail(op, off, n, ErrClosed)
	case off > r.info.Size || n > r.info.Size-off:
		return r.fail(op, off, n, fmt.Errorf("%w, which has %d bytes", ErrRange, r.info.Size))
	}
	for i, done := off>>r.shift, uint64(0); done < n; i++ {
		e := &(*list)[i]
		to := min(n, e.off+e.size-off)
		if err := fn(e, done, to); err != nil {
			return r.fail(op, off, n, err)
		}
		done = to
	}
	return nil
}

// Get copies len(dst) bytes from off. Up to an aligned 8 bytes are read whole; more may be torn by a concurrent write.
func (r *Region) Get(ctx context.Context, dst []byte, off uint64) error {
	e := r.one(off, len(dst))
	if e == nil {
		return r.getPieces(ctx, dst, off)
	}
	if err := e.remote.Get(ctx, dst, off-e.off); err != nil {
		return r.fail("get", off, uint64(len(dst)), err)
	}
	return nil
}

func (r *Region) getPieces(ctx context.Context, dst []byte, off uint64) error {
	return r.pieces("get", off, uint64(len(dst)), func(e *extent, from, to uint64) error {
		return e.remote.Get(ctx, dst[from:to], off+from-e.off)
	})
}

// Put copies src to off and returns when it is there: a Get by anybody sees it.
func (r *Region) Put(ctx context.Context, src []byte, off uint64) error {
	e := r.one(off, len(src))
	if e == nil {
		return r.putPieces(ctx, src, off)
	}
	if err := e.remote.Put(ctx, src, off-e.off); err != nil {
		return r.fail("put", off, uint64(len(src)), err)
	}
	return nil
}

func (r *Region) putPieces(ctx context.Context, src []byte, off uint64) error {
	return r.pieces("put", off, uint64(len(src)), func(e *extent, from, to uint64) error {
		return e.remote.Put(ctx, src[from:to], off+from-e.off)
	})
}

// Atomic performs op on width (4 or 8) bytes at off, a multiple of width, and returns the old value. Atomics are atomic among each other.
func (r *Region) Atomic(ctx context.Context, op fabric.AtomicOp, width int, off uint64) (uint64, error) {
	e := r.one(off, width)
	if e == nil { // extents begin at multiples of SegmentAlign: an aligned word lies in one
		return 0, r.pieces("atomic", off, uint64(width), func(*extent, uint64, uint64) error { return fabric.ErrAlign })
	}
	v, err := e.remote.Atomic(ctx, op, width, off-e.off)
	if err != nil {
		return 0, r.fail("atomic", off, uint64(width), err)
	}
	return v, nil
}

// MappedRun is how many bytes from off on are mapped here in one piece; 0: none.
func (r *Region) MappedRun(off uint64) int {
	e := r.one(off, 1)
	if e == nil || !e.remote.Mapped() {
		return 0
	}
	return int(e.size - (off - e.off))
}

// Access runs fn on n bytes at off themselves, to read and to write, where they are mapped here in one piece; fn must not keep them. They stay in
// place while fn runs, also if the component ends meanwhile. Where fn has not run, the error says why.
func (r *Region) Access(off uint64, n int, fn func(mem []byte)) error {
	e := r.one(off, n)
	if e == nil {
		return r.pieces("access", off, uint64(n), func(*extent, uint64, uint64) error { return ErrNotMapped })
	}
	if !e.remote.Mapped() {
		return r.fail("access", off, uint64(n), ErrNotMapped)
	}
	if err := e.remote.Access(fabric.RightRead|fabric.RightWrite, off-e.off, uint64(n), fn); err != nil {
		return r.fail("access", off, uint64(n), err)
	}
	return nil
}

// Discard makes n bytes at off zeros; whole pages among them go back to the component's machine until they are written again.
func (r *Region) Discard(ctx context.Context, off, n uint64) error {
	return r.DiscardAll(ctx, []Range{{off, n}})
}

// DiscardAll is Discard of many ranges: one request for MaxRanges of them.
func (r *Region) DiscardAll(ctx context.Context, ranges []Range) error {
	for _, g := range ranges {
		if err := r.pieces("discard", g.Off, g.Size, func(*extent, uint64, uint64) error { return nil }); err != nil {
			return err
		}
	}
	for len(ranges) > 0 {
		batch := ranges[:min(len(ranges), MaxRanges)]
		if err := r.pool.tell(ctx, r.component, CallDiscard, DiscardRequest{r.ref(), batch}); err != nil {
			return err
		}
		ranges = ranges[len(batch):]
	}
	return nil
}

// CopyTo copies n bytes at off to another region of the same component, or elsewhere in this one; they do not pass through this
// machine. Ranges that overlap are refused.
func (r *Region) CopyTo(ctx context.Context, off uint64, dst *Region, dstOff, n uint64) error {
	nothing := func(*extent, uint64, uint64) error { return nil }
	if err := errors.Join(r.pieces("copy", off, n, nothing), dst.pieces("copy", dstOff, n, nothing)); err != nil {
		return err
	}
	if r.ep != dst.ep {
		return r.fail("copy", off, n, fmt.Errorf("%w: region %s is at %s: between two components, get and put", ErrSpec, dst.label(), dst.component))
	}
	return r.pool.tell(ctx, r.component, CallCopy, CopyRequest{r.ref(), off, dst.ref(), dstOff, n})
}

// Fence orders: operations on regions of this component that begin here after it take effect after those that began before. It does not wait.
// Where a part of a region only is mapped (more than 1,024 extents of a component), use Quiet.
func (r *Region) Fence() { r.ep.Fence() }

// Quiet returns when all that was begun here on regions of this component has taken effect. Started operations must still be waited for or forgotten.
func (r *Region) Quiet(ctx context.Context) error {
	if err := r.ep.Flush(ctx); err != nil {
		return r.fail("quiet", 0, 0, err)
	}
	return nil
}

// WaitFor drives progress until cond holds or the context ends. cond is cheap; it is looked at whenever anything has arrived, and after each Wake.
func (r *Region) WaitFor(ctx context.Context, cond func() bool) error {
	return r.ep.Element().WaitFor(ctx, cond)
}

// Wake has all who are in WaitFor look at their conditions.
func (r *Region) Wake() { r.ep.Element().Wake() }
