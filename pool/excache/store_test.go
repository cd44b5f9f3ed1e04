package excache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// testStore keeps rooms in memory of this process; what it gives out holds somebody's old bytes. Where it is not mapped, operations end at
// once, but for those that are held.
type testStore struct {
	most      int
	mapped    bool
	mu        sync.Mutex
	rooms     map[int][]byte
	broken    atomic.Bool
	silent    atomic.Bool
	change    sync.Cond // of mu, once there is one
	changes   int
	discarded uint64
	discards  int
	ops       [Transfers]testOp
	held      func(o *testOp) bool
	started   func(o *testOp)       // mu is held
	fails     func(o *testOp) error // instead of being done
	forgets   func(r int) error     // before a discard
	clones    func()                // before a clone
	cloneErr  error                 // of each clone
	takes     func()                // before a room is taken
	gone      map[int]bool          // rooms that are lost
}

type testOp struct {
	put  bool
	p    []byte
	off  uint64
	done bool
	err  error
}

var errBroken = errors.New("the component does not answer")

func (s *testStore) Take(_ context.Context, r int) error {
	if s.takes != nil {
		s.takes()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rooms) == s.most {
		return ErrFull
	}
	b, err := unix.Mmap(-1, 0, RoomBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += PageBytes {
		b[i] = 0xee
	}
	if s.rooms == nil {
		s.rooms = map[int][]byte{}
	}
	s.rooms[r] = b
	return nil
}

func (s *testStore) Release(r int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unix.Munmap(s.rooms[r])
	delete(s.rooms, r)
}

func (s *testStore) Silent() { s.silent.Store(true) }

func (s *testStore) at(off uint64, n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooms[int(off/RoomBytes)][off%RoomBytes:][:n]
}

func (s *testStore) lost(off uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[int(off/RoomBytes)]
}

func (s *testStore) Clone(_ context.Context, from, to int, ranges []Range) error {
	if s.clones != nil {
		s.clones()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken.Load() {
		return fmt.Errorf("%w: %w", ErrLost, errBroken)
	}
	if s.cloneErr != nil {
		return s.cloneErr
	}
	if s.rooms[from] == nil || s.rooms[to] == nil {
		return net.ErrClosed
	}
	for _, g := range ranges {
		copy(s.rooms[to][g.Off:][:g.Size], s.rooms[from][g.Off:])
	}
	return nil
}

// Discard implements Store.
func (s *testStore) Discard(_ context.Context, r int, ranges []Range) error {
	if s.forgets != nil {
		if err := s.forgets(r); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range ranges {
		s.discarded += g.Size
		s.discards++
		if room := s.rooms[r]; room != nil {
			clear(room[g.Off:][:g.Size])
		}
	}
	return nil
}

func (s *testStore) Mapped(int) bool { return s.mapped }

func (s *testStore) Access(off uint64, n int, fn func([]byte)) error {
	if s.lost(off) {
		return errBroken
	}
	fn(s.at(off, n))
	return nil
}

func (s *testStore) StartGet(i int, p []byte, off uint64) { s.start(i, testOp{p: p, off: off}) }

func (s *testStore) StartPut(i int, p []byte, off uint64) {
	s.start(i, testOp{p: p, off: off, put: true})
}

func (s *testStore) start(i int, o testOp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops[i] = o
	if s.started != nil {
		s.started(&o)
	}
	if s.held == nil || !s.held(&o) {
		s.do(&s.ops[i])
	}
}

// do ends an operation; mu is held.
func (s *testStore) do(o *testOp) {
	if o.done = true; s.broken.Load() || s.gone[int(o.off/RoomBytes)] {
		o.err = fmt.Errorf("%w: %w", ErrLost, errBroken)
		return
	}
	if s.fails != nil {
		if o.err = s.fails(o); o.err != nil {
			return
		}
	}
	room := s.rooms[int(o.off/RoomBytes)][o.off%RoomBytes:]
	if o.put {
		copy(room, o.p)
	} else {
		copy(o.p, room)
	}
}

// release ends all that is held, and holds nothing any more.
func (s *testStore) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = nil
	for i := range s.ops {
		if o := &s.ops[i]; o.p != nil && !o.done {
			s.do(o)
		}
	}
	s.changed()
}

func (s *testStore) Done(set uint64) (done uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done(set)
}

func (s *testStore) done(set uint64) (done uint64) {
	each(set, func(i int) {
		if s.ops[i].done {
			done |= 1 << i
		}
	})
	return done
}

func (s *testStore) End(i int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.ops[i]
	s.ops[i] = testOp{}
	if !o.done {
		return errGivenUp
	}
	return o.err
}

func (s *testStore) Wait(ctx context.Context, cond func() bool) error {
	defer context.AfterFunc(ctx, s.Wake)()
	for {
		s.mu.Lock()
		before := s.changes
		s.mu.Unlock()
		if cond() {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		for s.changes == before {
			s.signal().Wait()
		}
		s.mu.Unlock()
	}
}

func (s *testStore) signal() *sync.Cond {
	s.change.L = &s.mu
	return &s.change
}

func (s *testStore) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
}

func (s *testStore) changed() {
	s.changes++
	s.signal().Broadcast()
}
