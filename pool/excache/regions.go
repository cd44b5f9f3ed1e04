package excache

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/pool"
)

// silence is how long a component may take for what it is asked before it counts as lost. A program that waits gets its SIGBUS within 5 s.
const silence = 4 * time.Second

// Regions is a Store at one component: each room is a leased region of its own, which goes with the client's connection.
type Regions struct {
	pool      *pool.Pool
	component string

	mu    sync.RWMutex
	rooms []*pool.Region // nil: not taken
	// forget is a region's Close, which asks the component, and waits for a while where that does not answer.
	forget func(*pool.Region) error
	silent atomic.Bool // it did not: all others go with the connection

	latest atomic.Pointer[pool.Region] // any that was taken
	under  sync.Mutex
	ops    [Transfers]pool.Op // under way
}

// errGivenUp: the component did not answer in time.
var errGivenUp = errors.New("an operation was given up")

// NewRegions makes a store of regions at a component.
func NewRegions(p *pool.Pool, component string) *Regions {
	return &Regions{pool: p, component: component, forget: (*pool.Region).Close}
}

// Take implements Store.
func (s *Regions) Take(ctx context.Context, r int) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	region, err := s.pool.CreateRegion(ctx, s.component, pool.Spec{Size: RoomBytes, Leased: true})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.rooms) <= r {
		s.rooms = append(s.rooms, nil)
	}
	s.rooms[r] = region
	s.latest.Store(region)
	return nil
}

// Release implements Store.
func (s *Regions) Release(r int) {
	s.mu.Lock()
	region := s.rooms[r]
	s.rooms[r] = nil
	s.mu.Unlock()
	if !s.silent.Load() && s.forget(region) != nil {
		s.silent.Store(true) // a program has many rooms, and the time would be theirs together
	}
}

func (s *Regions) at(off uint64) (*pool.Region, uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rooms[off/RoomBytes], off % RoomBytes
}

// Discard implements Store.
func (s *Regions) Discard(ctx context.Context, r int, ranges []Range) error {
	s.mu.RLock()
	region := s.rooms[r]
	s.mu.RUnlock()
	if region == nil {
		return nil
	}
	all := make([]pool.Range, len(ranges))
	for i, g := range ranges {
		all[i] = pool.Range{Off: g.Off, Size: g.Size}
	}
	return region.DiscardAll(ctx, all)
}

// Mapped implements Store.
func (s *Regions) Mapped(r int) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rooms[r].MappedRun(0) >= RoomBytes
}

// Access implements Store.
func (s *Regions) Access(off uint64, n int, fn func(mem []byte)) error {
	region, at := s.at(off)
	return region.Access(at, n, fn)
}

// StartGet implements Store.
func (s *Regions) StartGet(i int, p []byte, off uint64) {
	region, at := s.at(off)
	op := region.StartGet(p, at)
	s.under.Lock()
	defer s.under.Unlock()
	s.ops[i] = op
}

// StartPut implements Store.
func (s *Regions) StartPut(i int, p []byte, off uint64) {
	region, at := s.at(off)
	op := region.StartPut(p, at)
	s.under.Lock()
	defer s.under.Unlock()
	s.ops[i] = op
}

// Done implements Store.
func (s *Regions) Done(set uint64) (done uint64) {
	if set == 0 {
		return 0
	}
	s.under.Lock()
	defer s.under.Unlock()
	for ; set != 0; set &= set - 1 {
		if s.ops[bits.TrailingZeros64(set)].Poll() {
			done |= set & -set
		}
	}
	return done
}

// End implements Store.
func (s *Regions) End(i int) error {
	s.under.Lock()
	op := s.ops[i]
	s.ops[i] = pool.Op{}
	s.under.Unlock()
	if !op.Poll() {
		op.Forget()
		return errGivenUp
	}
	err := op.Wait(context.Background()) // which it need not
	for _, gone := range []error{pool.ErrLost, pool.ErrMoved, pool.ErrRights, pool.ErrRange, pool.ErrClosed} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}

// Wait implements Store.
func (s *Regions) Wait(ctx context.Context, cond func() bool) error {
	if r := s.latest.Load(); r != nil {
		return r.WaitFor(ctx, cond)
	}
	return errGivenUp // nothing was ever started
}

// Wake implements Store.
func (s *Regions) Wake() {
	if r := s.latest.Load(); r != nil {
		r.Wake()
	}
}
