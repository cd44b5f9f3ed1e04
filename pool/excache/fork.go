package excache

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// fork copies s's window into that of another session, whose process is just being forked and has not said hello yet. The answer is an
// errno. What the process's other threads write meanwhile waits, so the copy is of one moment.
func (c *Cache) fork(s *session, number uint64) uint64 {
	c.mu.Lock()
	var child *session
	for other := range c.sessions {
		if other.number == number && other.base == 0 && len(other.rooms) == 0 {
			child = other
		}
	}
	c.mu.Unlock()
	if child == nil || child == s {
		return uint64(unix.EINVAL)
	}
	if status := c.takeUpTo(child, uint64(len(s.rooms))*RoomBytes); status != 0 {
		return status
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if child.ended {
		return uint64(unix.ESRCH)
	}
	c.settle() // what is on its way is neither here nor there
	protected := c.core.dirtyRuns(s.rooms)
	for _, e := range protected {
		s.faults.Protect(s.base+c.offset(e.first), int(e.n)*PageBytes, true)
	}
	err := c.lost
	for i, r := range s.rooms {
		if err == nil {
			err = c.copyRoom(s, r, child.rooms[i])
		}
	}
	for _, e := range protected {
		s.faults.Protect(s.base+c.offset(e.first), int(e.n)*PageBytes, false)
	}
	if err == nil {
		return 0
	}
	if gone := (*lostError)(nil); errors.As(err, &gone) {
		c.lose(gone)
	}
	return uint64(unix.ENOMEM)
}

// offset is where a page is in its session's window.
func (c *Cache) offset(p uint32) uint64 {
	return c.rooms[p/roomPages].offset + uint64(p%roomPages)*PageBytes
}

// copyRoom gives room to the bytes of room from, wherever they are now.
func (c *Cache) copyRoom(s *session, from, to int) error {
	for i := uint32(0); i < roomPages; {
		p := uint32(from)*roomPages + i
		n := c.core.stretchOf(p)
		switch st := c.core.pages[p].state; {
		case st == lost:
			return &lostError{ErrLost}
		case st == zero || st == blank:
		default:
			if err := c.copyRun(s, p, uint32(to)*roomPages+i, n, st.local()); err != nil {
				return err
			}
			c.core.Put(uint32(to)*roomPages+i, n)
		}
		i += n
	}
	return nil
}

// copyRun copies n pages by way of the buffer: from the window, or from the store.
func (c *Cache) copyRun(s *session, from, to, n uint32, local bool) error {
	b := c.buffer[:n*PageBytes]
	if local {
		if k, err := unix.Pread(s.window, b, int64(c.offset(from))); k != len(b) || err != nil {
			return errors.Join(unix.EIO, err)
		}
	} else if err := c.move(b, uint64(from)*PageBytes, false); err != nil {
		return &lostError{err}
	}
	if err := c.move(b, uint64(to)*PageBytes, true); err != nil {
		return &lostError{err}
	}
	return nil
}

// move copies to or from the store while nothing else is under way.
func (c *Cache) move(b []byte, off uint64, put bool) error {
	if !c.core.far[off/RoomBytes] {
		return c.config.Store.Access(off, len(b), func(mem []byte) { copy(map2(put, mem, b), map2(put, b, mem)) })
	}
	for len(b) > 0 {
		n := min(len(b), runBytes)
		if err := c.moveFar(b[:n], off, put); err != nil {
			return err
		}
		b, off = b[n:], off+uint64(n)
	}
	return nil
}

func (c *Cache) moveFar(b []byte, off uint64, put bool) error {
	ctx, cancel := context.WithTimeout(c.ctx, silence)
	defer cancel()
	for {
		if put {
			c.config.Store.StartPut(0, b, off)
		} else {
			c.config.Store.StartGet(0, b, off)
		}
		c.config.Store.Wait(ctx, func() bool { return c.config.Store.Done(1) != 0 })
		err := c.config.Store.End(0)
		if err == nil || errors.Is(err, ErrLost) || ctx.Err() != nil {
			return err
		}
		time.Sleep(busyPause)
	}
}
