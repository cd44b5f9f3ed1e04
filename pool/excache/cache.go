package excache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Config of a Cache.
type Config struct {
	// LocalBytes bounds what is local of all programs together, at least MinLocalBytes.
	// Up to 4 MiB more are on their way to the store or from it, where that is not mapped.
	LocalBytes int64
	// MinBytes is from how large an allocation a program takes it from the window; 0 is 128 KiB, as malloc's own threshold.
	MinBytes int64
	Store    Store
	// Shares are what processes can map by name, besides memory of their own.
	Shares []Share
	// Told hears once when remote memory is gone (ErrLost), once when there is no more (ErrFull), of each process why a fork was refused (ErrFork) or a share may not be changed
	// (ErrShare), once for each reason, and which process cannot be served (ErrProgram). The cache may be held meanwhile: it must not be called.
	Told func(error)
}

const (
	defaultMinBytes = 128 << 10
	// maxRooms bounds all rooms together: 1 TiB. The core's notes take 4 MiB for each GiB.
	maxRooms = 1 << 16
)

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("excache: no store")
	case c.LocalBytes < MinLocalBytes:
		return fmt.Errorf("excache: %d local bytes: at least %d are needed", c.LocalBytes, MinLocalBytes)
	case c.LocalBytes/PageBytes > 1<<31:
		return fmt.Errorf("excache: %d local bytes: at most %d", c.LocalBytes, int64(PageBytes)<<31)
	case c.MinBytes != 0 && c.MinBytes < PageBytes:
		return fmt.Errorf("excache: allocations from %d bytes: at least a page, %d", c.MinBytes, PageBytes)
	}
	return nil
}

// Cache is the daemon's side: it serves the faults of programs' processes from one store, with one bound for all of them.
type Cache struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // held while a fault is answered, never while anything is on its way
	core     *Core
	rooms    []room
	free     []int // rooms without a session
	sessions map[*session]struct{}
	fresh    []byte // zeros
	moving   moving
	flights
	ranges  []Range      // of a discard
	copyIn  func([]byte) // moving's methods
	writeIn func([]byte)
	readOut func([]byte)
	shares  []*share // all there will be
	by      *stalled // the fault that is answered, if it is one of a share
	lost    error
	closed  bool
	serving sync.WaitGroup
	outside Outside // of sessions that have ended
	forked  ForkCounts
	started int
	numbers uint64 // of sessions
	refused bool   // it was told that there is no more room
}

// room says which session or share has a room of the store, and where in its window or file.
type room struct {
	s      *session
	share  *share
	offset uint64
}

// New makes a cache. Close ends it.
func New(config Config) (*Cache, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.MinBytes == 0 {
		config.MinBytes = defaultMinBytes
	}
	c := &Cache{config: config, core: NewCore(int(config.LocalBytes / PageBytes)), sessions: map[*session]struct{}{}, ranges: make([]Range, 0, discardRanges)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.copyIn, c.writeIn, c.readOut = c.moving.copyIn, c.moving.writeIn, c.moving.readOut
	var err error
	if c.fresh, err = anonymous(nearPages*PageBytes, unix.MAP_POPULATE); err != nil {
		return nil, err
	}
	c.timer = time.AfterFunc(Silence, c.look)
	c.timer.Stop()
	if err := c.flights.init(); err != nil {
		unix.Munmap(c.fresh)
		return nil, err
	}
	for _, s := range config.Shares {
		if err := c.share(s); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// anonymous is memory that no collector moves or scans.
func anonymous(size int, flags int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return nil, fmt.Errorf("excache: %d bytes of buffer: %w", size, err)
	}
	return b, nil
}

// Close ends all sessions, whose programs are killed by that, and gives all rooms back.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	all := make([]*session, 0, len(c.sessions))
	for s := range c.sessions {
		all = append(all, s)
	}
	c.mu.Unlock()
	c.flushAll(func(*share) bool { return true }) // those that live still may have changed it
	c.cancel()
	for _, s := range all {
		s.conn.Close()
	}
	c.serving.Wait()
	c.land()
	c.timer.Stop() // nothing is under way: one that runs does not set it again
	for _, sh := range c.shares {
		sh.close(c.config.Store)
	}
	return errors.Join(unix.Munmap(c.fresh), unix.Munmap(c.buffers))
}

// Stats are a cache's counts since it was made.
type Stats struct {
	Counts
	ForkCounts
	LocalPages int     `json:"local_pages"`
	Rooms      int     `json:"rooms"` // taken now
	Processes  int     `json:"processes"`
	Outside    Outside `json:"outside"`
}

// ForkCounts are forks of programs, but for vfork and its like, which copy nothing.
type ForkCounts struct {
	Forks        uint64 `json:"forks"`         // all
	ForksRefused uint64 `json:"forks_refused"` // which failed, as there was no copy of the window to be had
}

// Outside is what programs asked for and got from the system, not from the window.
type Outside struct {
	Mappings uint64 `json:"mappings"` // anonymous ones, of MinBytes and more
	Bytes    uint64 `json:"bytes"`
	Direct   uint64 `json:"direct_io"` // O_DIRECT that was taken away
	Uring    uint64 `json:"io_uring"`  // io_uring that was refused
	Refused  uint64 `json:"refused"`   // allocations that failed for want of room
	// Anonymous is memory of each process that is not the window's, nor a file's: stacks, the heap of small allocations. It is the
	// most that was seen when the window grew and at the process's end.
	Anonymous uint64 `json:"anonymous_bytes"`
}

func (o *Outside) add(p Outside) {
	o.Mappings += p.Mappings
	o.Bytes += p.Bytes
	o.Direct += p.Direct
	o.Uring += p.Uring
	o.Refused += p.Refused
	o.Anonymous += p.Anonymous
}

func (f *ForkCounts) add(g ForkCounts) {
	f.Forks += g.Forks
	f.ForksRefused += g.ForksRefused
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Counts: c.core.Counts, LocalPages: c.core.Local(), Rooms: len(c.rooms) - len(c.free), Processes: c.started, Outside: c.outside, ForkCounts: c.forked}
	for session := range c.sessions {
		s.Outside.add(session.outside())
		s.ForkCounts.add(session.forks())
	}
	return s
}

// take gives s one more room, at the end of its window.
func (c *Cache) take(s *session) error {
	c.mu.Lock()
	if c.lost != nil {
		defer c.mu.Unlock()
		return c.lost
	}
	r, err := c.roomFor()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	// The store may take long, and faults go on meanwhile.
	err = c.config.Store.Take(c.ctx, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.free = append(c.free, r)
		return err
	}
	if s.ended { // a child that is gone before its parent has forked it
		c.mu.Unlock()
		c.config.Store.Release(r)
		c.mu.Lock()
		c.free = append(c.free, r)
		return net.ErrClosed
	}
	c.rooms[r] = room{s: s, offset: uint64(len(s.rooms)) * RoomBytes}
	s.rooms = append(s.rooms, r)
	c.core.Own(r, s.number, !c.config.Store.Mapped(r))
	return nil
}

// roomFor finds a room for somebody, or makes one more; c.mu is held.
func (c *Cache) roomFor() (int, error) {
	r := len(c.rooms)
	if i := c.vacant(); i >= 0 {
		r = c.free[i]
		c.free = slices.Delete(c.free, i, i+1)
	} else if r == maxRooms {
		return 0, fmt.Errorf("%w: %d rooms of %d bytes are the most", ErrFull, maxRooms, RoomBytes)
	} else {
		c.rooms = append(c.rooms, room{})
		c.core.AddRoom(r)
	}
	return r, nil
}

// vacant finds a free room in c.free; -1: there is none. A room that is being discarded is left alone: the request, made again, would hit
// the next owner's data.
func (c *Cache) vacant() int {
	for i, r := range slices.Backward(c.free) {
		if !c.core.discards(r) {
			return i
		}
	}
	return -1
}

// end takes all of a session's rooms back; its process is gone. An error says that it is not.
func (c *Cache) end(s *session) error {
	if s.fork != nil {
		c.parted(s) // the child may be there
	}
	c.mu.Lock()
	s.ended = true
	var err error
	if s.lives() && !c.closed { // else it is being killed
		err = fmt.Errorf("%w any more: process %d closed descriptors that belong to it, by system calls of its own, and goes on: what was remote, and what it maps of shares, is a SIGBUS",
			ErrProgram, s.pid)
	}
	c.mu.Unlock()
	if err != nil {
		c.disownViews(s)
	}
	c.unviewed(s, 0, ^uint64(0))
	c.mu.Lock()
	c.disown(s) // with no pause until the rooms are free: nothing leaves after it
	rooms := s.taken()
	for _, r := range rooms {
		c.core.Free(uint32(r)*roomPages, roomPages) // the window's file goes as a whole
		c.core.Own(r, 0, false)                     // and nothing of it is discarded any more
		c.rooms[r] = room{}
	}
	s.rooms = nil
	c.mu.Unlock()
	s.filling.Lock() // for the room that is being copied to
	s.filling.Unlock()
	for _, r := range rooms { // which may take long
		c.config.Store.Release(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, rooms...)
	c.outside.add(s.outside())
	c.forked.add(s.forks())
	delete(c.sessions, s)
	return err
}

// lives reports whether a process has its window still.
func (s *session) lives() bool {
	return s.faults != nil && s.base != 0 && s.faults.Protect(s.base, PageBytes, false) == nil // ESRCH: there is no such memory any more
}

// disown makes accesses to what is remote of a process errors, if the process lives on without its descriptors: when the daemon's
// close too, it would read zeros. What is local stays with it. c.mu is held.
func (c *Cache) disown(s *session) {
	if !s.lives() {
		return
	}
	for _, r := range s.taken() {
		for p, end := uint32(r)*roomPages, uint32(r+1)*roomPages; p < end; {
			n := c.core.stretchOf(p)
			if st := c.core.pages[p].state; st == remote || st == lost {
				s.poison(s.base+c.offset(p), int(n)*PageBytes)
			}
			p += n
		}
	}
}

// taken are the rooms of s's window.
func (s *session) taken() []int {
	return slices.DeleteFunc(slices.Clone(s.rooms), func(r int) bool { return r == noRoom })
}

// page finds the core's number for an offset of s's window.
func (s *session) page(offset uint64) (uint32, bool) {
	i := offset / RoomBytes
	if i >= uint64(len(s.rooms)) || s.rooms[i] == noRoom {
		return 0, false
	}
	return uint32(s.rooms[i])*roomPages + uint32(offset%RoomBytes/PageBytes), true
}

// fault answers a fault of s at an address; c.mu is held.
func (c *Cache) fault(s *session, addr uint64, write, minor bool) {
	v := s.viewAt(addr)
	p, ok := s.page(addr - s.base)
	if v != nil {
		p, ok = v.share.page(v.off + addr - v.addr)
	}
	if !ok {
		s.poison(addr, PageBytes) // never allocated: a stray pointer
		return
	}
	c.answer(stalled{s, v, addr, p, write, minor})
}

// freed tells the core about n bytes of s's window that the program gave up; c.mu is held.
func (c *Cache) freed(s *session, offset, n uint64) {
	for n > 0 {
		p, ok := s.page(offset)
		if !ok {
			return
		}
		part := min(n, RoomBytes-offset%RoomBytes)
		c.apply(c.core.Free(p, uint32(part/PageBytes)))
		offset, n = offset+part, n-part
	}
	c.discard()
}

// live is how many processes are served.
func (c *Cache) live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}
