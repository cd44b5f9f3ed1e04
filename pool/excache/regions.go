package excache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/pool"
)

// silence is how long a component may take for a get or a put before it counts as lost. A program that waits gets its SIGBUS within 5 s.
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
}

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

// Access implements Store.
func (s *Regions) Access(off uint64, n int, fn func(mem []byte)) error {
	region, at := s.at(off)
	if region.MappedRun(at) < n { // asked first, as pool's error is made anew each time
		return ErrNotMapped
	}
	err := region.Access(at, n, fn)
	if errors.Is(err, pool.ErrNotMapped) {
		return ErrNotMapped
	}
	return err
}

// Get implements Store.
func (s *Regions) Get(ctx context.Context, p []byte, off uint64) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	region, at := s.at(off)
	return region.Get(ctx, p, at)
}

// Put implements Store.
func (s *Regions) Put(ctx context.Context, p []byte, off uint64) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	region, at := s.at(off)
	return region.Put(ctx, p, at)
}
