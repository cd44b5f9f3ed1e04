package excache

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// apply carries effects out; c.mu is held.
func (c *Cache) apply(effects []effect) {
	for _, e := range effects {
		r := &c.rooms[e.first/roomPages]
		s := r.s
		if r.share != nil {
			c.applyShared(r.share, c.offset(e.first), e)
			continue
		}
		if s == nil {
			continue // its process has ended
		}
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
		case save, send:
			err = c.save(s, addr, offset, e)
		case fetch:
			c.start(int(e.transfer), flight{s: s, off: uint64(e.first) * PageBytes, size: size})
		case place, placeProtected:
			err = c.place(s, addr, e)
		case keep, keepFar:
			err = c.store(s.window, offset, windowBytes, e)
		case await:
			c.want(1 << e.transfer)
		case stall: // answer sees it
		case drop:
			punch(s.window, offset, size)
		case poison:
			s.poison(addr, size)
		}
		if err != nil {
			c.failed(s, addr, e, err)
		}
	}
}

// fill copies pages straight from where the store's bytes are mapped.
func (c *Cache) fill(s *session, addr uint64, e effect) error {
	s.placed = 0
	c.moving = moving{s: s, addr: addr, protect: e.kind == fillProtected}
	if err := c.config.Store.Access(uint64(e.first)*PageBytes, int(e.n)*PageBytes, c.copyIn); err != nil {
		return &lostError{err}
	}
	return c.moving.err
}

// moving is a run on its way: what copyIn, writeIn and readOut need, which are made once so that a miss allocates nothing.
type moving struct {
	s       *session
	addr    uint64 // in the program
	file    int    // the window, or a share
	offset  uint64 // in the file
	end     uint64 // of the file
	protect bool
	err     error
}

func (m *moving) copyIn(mem []byte) {
	m.err = m.s.install(m.addr, len(mem), func(n int) (int, error) { return m.s.faults.Copy(m.addr+uint64(n), mem[n:], m.protect) })
}

// writeIn puts a share's bytes into its file.
func (m *moving) writeIn(mem []byte) {
	mem = mem[:min(uint64(len(mem)), m.end-m.offset)]
	if n, err := unix.Pwrite(m.file, mem, int64(m.offset)); n != len(mem) || err != nil {
		m.err = fmt.Errorf("excache: write %d bytes of a share: %d, %w", len(mem), n, err)
	}
}

func (m *moving) readOut(mem []byte) {
	mem = mem[:min(uint64(len(mem)), m.end-m.offset)]
	if n, err := unix.Pread(m.file, mem, int64(m.offset)); n != len(mem) || err != nil {
		m.err = fmt.Errorf("excache: read %d bytes of a window: %d, %w", len(mem), n, err)
	}
}

// save protects pages, stores them, and only then takes them away. Writers wait meanwhile; when they go on they find the pages missing. Where the store
// is not mapped, a fault on one of them is answered from the transfer's buffer meanwhile.
func (c *Cache) save(s *session, addr, offset uint64, e effect) error {
	size := int(e.n) * PageBytes
	if err := s.faults.Protect(addr, size, true); err != nil {
		return err
	}
	err := c.store(s.window, offset, windowBytes, e)
	if err == nil {
		punch(s.window, offset, size)
	}
	return err
}

// store reads pages of a file, up to its end, straight into where the store's bytes are mapped, or into a transfer's buffer, and starts to put that.
func (c *Cache) store(file int, offset, end uint64, e effect) error {
	size := int(e.n) * PageBytes
	c.moving = moving{file: file, offset: offset, end: end}
	if e.kind == send || e.kind == keepFar {
		if c.readOut(c.flights.buffer(int(e.transfer))[:size]); c.moving.err == nil {
			c.start(int(e.transfer), flight{s: c.rooms[e.first/roomPages].s, put: true, off: uint64(e.first) * PageBytes, size: size})
		}
	} else if err := c.config.Store.Access(uint64(e.first)*PageBytes, size, c.readOut); err != nil && c.moving.err == nil {
		return &lostError{err}
	}
	return c.moving.err
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
	case save, send:
		c.core.Unsaved(e)
		s.faults.Protect(addr, int(e.n)*PageBytes, false)
	case keep, keepFar:
		c.core.unkept(e)
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
	c.lost = loss(err)
	for r := range c.rooms {
		if c.rooms[r].share == nil {
			c.core.Lose(r)
		}
	}
	c.tell(c.lost)
}

// loss is err as a user reads it: it says once that memory was lost.
func loss(err error) error {
	if gone, is := err.(*lostError); is {
		err = gone.error
	}
	if errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func (c *Cache) tell(err error) {
	if c.config.Told != nil {
		c.config.Told(err)
	}
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

// punch takes pages out of a window's or share's file, and so out of programs' page tables.
func punch(file int, offset uint64, size int) {
	for unix.Fallocate(file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(size)) == unix.EINTR {
	}
}
