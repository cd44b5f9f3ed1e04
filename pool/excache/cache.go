package excache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Config of a Cache.
type Config struct {
	// LocalBytes bounds what is local of all programs together, at least MinLocalBytes.
	LocalBytes int64
	// MinBytes is from how large an allocation a program takes it from the window; 0 is 128 KiB, as malloc's own threshold.
	MinBytes int64
	Store    Store
	// Told hears once when remote memory is gone (ErrLost), once when there is no more (ErrFull), and which process cannot be served
	// (ErrProgram). The cache may be held meanwhile: it must not be called.
	Told func(error)
}

const (
	defaultMinBytes = 128 << 10
	// maxRooms bounds all rooms together: 1 TiB, 48 MiB of which per 4 GiB are the core's notes.
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

	mu       sync.Mutex // held while a fault is answered
	core     *Core
	rooms    []room
	free     []int // rooms without a session
	sessions map[*session]struct{}
	fresh    []byte // zeros
	buffer   []byte // what is on its way, where the store is not mapped
	moving   moving
	copyIn   func([]byte) // moving's methods
	readOut  func([]byte)
	lost     error
	closed   bool
	serving  sync.WaitGroup
	outside  Outside // of sessions that have ended
	started  int
	numbers  uint64 // of sessions
	refused  bool   // it was told that there is no more room
}

// room is who has a room of the store, and where in its window.
type room struct {
	s      *session
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
	c := &Cache{config: config, core: NewCore(int(config.LocalBytes / PageBytes)), sessions: map[*session]struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.copyIn, c.readOut = c.moving.copyIn, c.moving.readOut
	var err error
	if c.fresh, err = anonymous(runPages * PageBytes); err != nil {
		return nil, err
	}
	if c.buffer, err = anonymous(batchPages * PageBytes); err != nil {
		unix.Munmap(c.fresh)
		return nil, err
	}
	return c, nil
}

// anonymous is memory that no collector moves or scans.
func anonymous(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
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
	c.cancel()
	for _, s := range all {
		s.conn.Close()
	}
	c.serving.Wait()
	return errors.Join(unix.Munmap(c.fresh), unix.Munmap(c.buffer))
}

// Stats are a cache's counts since it was made.
type Stats struct {
	Counts
	LocalPages int     `json:"local_pages"`
	Rooms      int     `json:"rooms"` // taken now
	Processes  int     `json:"processes"`
	Outside    Outside `json:"outside"`
}

// Outside is what programs asked for and got from the system, not from the window.
type Outside struct {
	Mappings uint64 `json:"mappings"` // anonymous ones, of MinBytes and more
	Bytes    uint64 `json:"bytes"`
	Direct   uint64 `json:"direct_io"` // O_DIRECT that was taken away
	Uring    uint64 `json:"io_uring"`  // io_uring that was refused
	Refused  uint64 `json:"refused"`   // allocations that failed for want of room
}

func (o *Outside) add(p Outside) {
	o.Mappings += p.Mappings
	o.Bytes += p.Bytes
	o.Direct += p.Direct
	o.Uring += p.Uring
	o.Refused += p.Refused
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Counts: c.core.Counts, LocalPages: c.core.Local(), Rooms: len(c.rooms) - len(c.free), Processes: c.started, Outside: c.outside}
	for session := range c.sessions {
		s.Outside.add(session.outside())
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
	r := len(c.rooms)
	if n := len(c.free); n > 0 {
		r = c.free[n-1]
		c.free = c.free[:n-1]
	} else if r == maxRooms {
		c.mu.Unlock()
		return fmt.Errorf("%w: %d rooms of %d bytes are the most", ErrFull, maxRooms, RoomBytes)
	} else {
		c.rooms = append(c.rooms, room{})
		c.core.AddRoom(r)
	}
	c.mu.Unlock()
	// The store may take long, and faults go on meanwhile.
	err := c.config.Store.Take(c.ctx, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.free = append(c.free, r)
		if !c.refused {
			c.refused = true
			c.tell(err)
		}
		return err
	}
	if s.ended { // a child that is gone before its parent has forked it
		c.mu.Unlock()
		c.config.Store.Release(r)
		c.mu.Lock()
		c.free = append(c.free, r)
		return net.ErrClosed
	}
	c.rooms[r] = room{s, uint64(len(s.rooms)) * RoomBytes}
	s.rooms = append(s.rooms, r)
	c.core.Own(r, s.number)
	return nil
}

// end takes all of a session's rooms back; its process is gone. An error says that it is not.
func (c *Cache) end(s *session) error {
	c.mu.Lock()
	s.ended = true
	err := c.disown(s)
	rooms := s.rooms
	for _, r := range rooms {
		c.core.Free(uint32(r)*roomPages, roomPages) // the window's file goes as a whole
		c.rooms[r] = room{}
	}
	s.rooms = nil
	c.mu.Unlock()
	for _, r := range rooms { // which may take long
		c.config.Store.Release(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, rooms...)
	c.outside.add(s.outside())
	delete(c.sessions, s)
	return err
}

// disown makes accesses to what is remote of a process errors, if the process lives on without its descriptors: when the daemon's
// close too, it would read zeros. What is local stays with it. c.mu is held.
func (c *Cache) disown(s *session) error {
	if s.faults == nil || s.base == 0 || s.faults.Protect(s.base, PageBytes, false) != nil { // ESRCH: there is no such memory any more
		return nil
	}
	for _, r := range s.rooms {
		for p, end := uint32(r)*roomPages, uint32(r+1)*roomPages; p < end; {
			n := c.core.stretchOf(p)
			if st := c.core.pages[p].state; st == remote || st == lost {
				s.poison(s.base+c.offset(p), int(n)*PageBytes)
			}
			p += n
		}
	}
	if c.closed {
		return nil // it is being killed
	}
	return fmt.Errorf("%w any more: process %d closed descriptors that belong to it, by system calls of its own, and goes on: what was remote is a SIGBUS",
		ErrProgram, s.pid)
}

// page finds the core's number for an offset of s's window.
func (s *session) page(offset uint64) (uint32, bool) {
	i := offset / RoomBytes
	if i >= uint64(len(s.rooms)) {
		return 0, false
	}
	return uint32(s.rooms[i])*roomPages + uint32(offset%RoomBytes/PageBytes), true
}

// fault answers a fault at an offset of s's window; c.mu is held.
func (c *Cache) fault(s *session, offset uint64, write, minor bool) {
	p, ok := s.page(offset)
	if !ok {
		s.poison(s.base+offset, PageBytes) // never allocated: a stray pointer
		return
	}
	c.apply(c.core.Fault(p, write, minor))
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
}

// apply carries effects out; c.mu is held.
func (c *Cache) apply(effects []effect) {
	for _, e := range effects {
		r := &c.rooms[e.first/roomPages]
		s := r.s
		offset := r.offset + uint64(e.first%roomPages)*PageBytes
		addr, size := s.base+offset, int(e.n)*PageBytes
		var err error
		switch e.kind {
		case fill, fillProtected:
			err = c.fill(s, addr, e)
		case fillZero:
			err = s.install(addr, size, func(n int) (int, error) { return s.faults.Zero(addr+uint64(n), size-n) })
		case fillBlank:
			err = s.install(addr, size, func(n int) (int, error) { return s.faults.Copy(addr+uint64(n), c.fresh[n:size], true) })
		case continued, continuedProtected:
			err = s.install(addr, size, func(n int) (int, error) {
				return s.faults.Continue(addr+uint64(n), size-n, e.kind == continuedProtected)
			})
		case unprotect:
			s.faults.Protect(addr, size, false)
		case wake:
			s.faults.Wake(addr, size)
		case save:
			err = c.save(s, addr, offset, e)
		case drop:
			s.punch(offset, size)
		case poison:
			s.poison(addr, size)
		}
		if err != nil {
			c.failed(s, addr, e, err)
		}
	}
}

// fill copies pages straight from where the store's bytes are mapped, or fetches them first.
func (c *Cache) fill(s *session, addr uint64, e effect) error {
	size, off := int(e.n)*PageBytes, uint64(e.first)*PageBytes
	s.placed = 0
	c.moving = moving{s: s, addr: addr, protect: e.kind == fillProtected}
	err := c.config.Store.Access(off, size, c.copyIn)
	if errors.Is(err, ErrNotMapped) {
		if err = c.config.Store.Get(c.ctx, c.buffer[:size], off); err == nil {
			c.copyIn(c.buffer[:size])
		}
	}
	if err != nil {
		return &lostError{err}
	}
	return c.moving.err
}

// moving is a run on its way: what copyIn and readOut need, which are made once so that a miss allocates nothing.
type moving struct {
	s       *session
	addr    uint64 // in the program
	offset  uint64 // in the window
	protect bool
	err     error
}

func (m *moving) copyIn(mem []byte) {
	m.err = m.s.install(m.addr, len(mem), func(n int) (int, error) { return m.s.faults.Copy(m.addr+uint64(n), mem[n:], m.protect) })
}

func (m *moving) readOut(mem []byte) {
	if n, err := unix.Pread(m.s.window, mem, int64(m.offset)); n != len(mem) || err != nil {
		m.err = fmt.Errorf("excache: read %d bytes of a window: %d, %w", len(mem), n, err)
	}
}

// save protects pages, reads them into the store, and only then takes them away. Writers wait meanwhile; when they go on
// they find the pages missing.
func (c *Cache) save(s *session, addr, offset uint64, e effect) error {
	size, off := int(e.n)*PageBytes, uint64(e.first)*PageBytes
	if err := s.faults.Protect(addr, size, true); err != nil {
		return err
	}
	c.moving = moving{s: s, offset: offset}
	err := c.config.Store.Access(off, size, c.readOut)
	if errors.Is(err, ErrNotMapped) {
		if c.readOut(c.buffer[:size]); c.moving.err == nil {
			err = c.config.Store.Put(c.ctx, c.buffer[:size], off)
		}
	}
	if c.moving.err != nil {
		return c.moving.err
	}
	if err != nil {
		return &lostError{err}
	}
	s.punch(offset, size)
	return nil
}

// lostError is a store's error.
type lostError struct{ error }

func (l *lostError) Unwrap() error        { return l.error }
func (l *lostError) Is(target error) bool { return target == ErrLost }

// failed undoes an effect in the core.
func (c *Cache) failed(s *session, addr uint64, e effect, err error) {
	var gone *lostError
	lost := errors.As(err, &gone)
	if lost {
		c.lose(gone)
	}
	switch e.kind {
	case save:
		c.core.Unsaved(e)
		s.faults.Protect(addr, int(e.n)*PageBytes, false)
	case continued, continuedProtected: // the file has the page
		s.faults.Wake(addr, int(e.n)*PageBytes)
	default:
		done := uint32(s.placed / PageBytes) // they are there, and may have been written
		e.first, e.n, addr = e.first+done, e.n-done, addr+uint64(done)*PageBytes
		c.core.Absent(e)
		if lost {
			c.core.Lose(int(e.first / roomPages))
			s.poison(addr, int(e.n)*PageBytes)
		} else if !errors.Is(err, unix.ESRCH) {
			s.faults.Wake(addr, int(e.n)*PageBytes) // it faults again
		}
	}
}

// lose declares all rooms lost, once.
func (c *Cache) lose(err error) {
	if c.lost != nil {
		return
	}
	c.lost = fmt.Errorf("%w: %w", ErrLost, err)
	for r := range c.rooms {
		c.core.Lose(r)
	}
	c.tell(c.lost)
}

func (c *Cache) tell(err error) {
	if c.config.Told != nil {
		c.config.Told(err)
	}
}

// live is how many processes are served.
func (c *Cache) live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

const (
	// busyPause is between attempts while the mappings of a program change, or the kernel has no memory: no event says when that ends.
	busyPause = 50 * time.Microsecond
	// busyTries bounds them: 50 ms, after which the program faults again.
	busyTries = 1000
)

// install calls put, which goes on at byte n, until all size bytes are there.
func (s *session) install(addr uint64, size int, put func(n int) (int, error)) error {
	tries := 0
	for n := 0; ; {
		k, err := put(n)
		n += k
		s.placed = n
		switch err {
		case nil:
			return nil
		case unix.EEXIST: // by the program's own doing, as a write to its memory through /proc: that page stays
			s.faults.Wake(addr+uint64(n), PageBytes)
			n += PageBytes
		case unix.EAGAIN, unix.ENOMEM:
			if tries++; tries == busyTries {
				return err
			}
			time.Sleep(busyPause)
		default:
			return err
		}
		if n >= size {
			return nil
		}
	}
}

// poison makes accesses a SIGBUS. A page that was protected when it left has a mark that poison does not replace.
func (s *session) poison(addr uint64, size int) {
	s.faults.Protect(addr, size, false)
	s.faults.Poison(addr, size)
}

// punch takes pages out of the window's file, and so out of the program's page table.
func (s *session) punch(offset uint64, size int) {
	for unix.Fallocate(s.window, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(size)) == unix.EINTR {
	}
}
