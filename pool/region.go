package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Region is a region that was opened. Its methods may be called from any goroutine.
type Region struct {
	Memory
	home string        // the component that it is asked of, or Manager
	turn atomic.Uint64 // of the last DiscardInTurn

	mu sync.Mutex // taken by what changes the view
}

// closeTime bounds telling the component that a leased region is not needed any more: it goes with the connection anyway.
const closeTime = 5 * time.Second

// Address is the address of a byte of the region.
func (r *Region) Address(off uint64) Address { return MakeAddress(r.Info().Region, off) }

func (r *Region) ref() NameRequest {
	i := r.Info()
	return NameRequest{Region: i.Region, Epoch: i.Epoch}
}

// ask asks about the region where that is known.
func (r *Region) ask(ctx context.Context, call string, req, reply any) (*fabric.Endpoint, error) {
	return r.pool.askHome(ctx, r.home, call, req, reply)
}

// Close forgets the region here: operations fail from then on with ErrClosed. The region stays, unless it is leased.
func (r *Region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.view.Load()
	if v == nil || v.closed {
		return nil
	}
	r.view.Store(&view{info: v.info, homes: v.homes, closed: true})
	if !v.info.Leased || r.home != Manager && v.gone() { // a manager's goes with the connection to the manager
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := r.Destroy(ctx); err != nil && !errors.Is(err, ErrNoRegion) && !errors.Is(err, ErrMoved) {
		return err
	}
	return nil
}

// gone reports whether the connection that a component's leased region goes with has ended.
func (v *view) gone() bool {
	for _, h := range v.homes {
		if h.ep != nil && h.ep.Err() != nil {
			return true
		}
	}
	return false
}

// Destroy frees the region, for everybody.
func (r *Region) Destroy(ctx context.Context) error {
	_, err := r.ask(ctx, CallDestroy, r.ref(), new(Nothing))
	return err
}

// Resize gives the region another size, rounded up to a multiple of fabric.SegmentAlign. What is added is zeros. What is taken away is gone: a client that opened
// the region before gets ErrMoved there, and does not see what is added, until it calls Refresh. It takes ownership.
func (r *Region) Resize(ctx context.Context, size uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.view.Load(); v.closed {
		return v.fail("resize", 0, size, ErrClosed)
	}
	t := new(Table)
	ep, err := r.ask(ctx, CallResize, ResizeRequest{r.ref(), size}, t)
	if err != nil {
		return err
	}
	return r.adopt(ctx, t, ep)
}

// Refresh fetches the region's table again: after ErrMoved, or to see what was added. It fails with ErrMoved if the region was destroyed.
func (r *Region) Refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := new(Table)
	ep, err := r.ask(ctx, CallLookup, LookupRequest{NameRequest: NameRequest{Region: r.Info().Region}}, t)
	if errors.Is(err, ErrNoRegion) {
		err = r.view.Load().fail("refresh", 0, 0, fmt.Errorf("%w: %w", ErrMoved, err))
	}
	if err != nil {
		return err
	}
	return r.adopt(ctx, t, ep)
}

// adopt takes over a new table, which came over ep; mu is held.
func (r *Region) adopt(ctx context.Context, t *Table, ep *fabric.Endpoint) error {
	v := r.view.Load()
	switch {
	case v.closed:
		return v.fail("refresh", 0, 0, ErrClosed)
	case t.Made != v.info.Made:
		return v.fail("refresh", 0, 0, fmt.Errorf("%w: it was destroyed, and the number is another region's", ErrMoved))
	}
	next, err := r.pool.view(ctx, t, r.home, ep)
	if err == nil {
		r.view.Store(next)
	}
	return err
}
