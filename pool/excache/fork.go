package excache

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// forkUnderWay is a fork whose processes have not both said that they go on.
type forkUnderWay struct {
	child    *session
	from, to []int
	ranges   [][]Range // of each room
	timer    *patience // ends the wait of writers
	released bool      // it has ended
}

// fork gives another session, whose process is about to be forked and has not said hello yet, a copy of s's window. The answer is an errno.
//
// The copy is of the moment of the system's fork. Other threads' writes wait from here until parted, which comes after that: so what lies outside the window, which
// the system copies, is of the same moment. The store has all bytes then; it copies them when the threads have gone on, and the child waits for that before it does anything.
func (c *Cache) fork(s *session, number uint64) uint64 {
	c.mu.Lock()
	var child *session
	for other := range c.sessions {
		if other.number == number && other.base == 0 && !other.forked && other != s && s.fork == nil {
			child = other
			child.forked = true // nobody else gives it anything
			child.copied = make(chan unix.Errno, 1)
		}
	}
	c.mu.Unlock()
	if child == nil {
		return uint64(unix.EINVAL)
	}
	for i, r := range s.rooms { // which grow by s's own calls, of which this is one
		if r == noRoom {
			c.mu.Lock()
			child.rooms = append(child.rooms, noRoom)
			c.mu.Unlock()
		} else if err := c.takeUpTo(child, uint64(i+1)*RoomBytes); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			return uint64(c.unforked(s, child, err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &forkUnderWay{child: child, from: s.taken(), to: child.taken()}
	if err := c.stop(s, f); err != nil {
		return uint64(c.unforked(s, child, err))
	}
	s.fork = f
	// The thread that forks may wait for a lock of the C library that a thread has which waits for us. So this ends, and the child sees what was there before.
	f.timer = afterSilence(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.release(f)
	})
	return 0
}

// stop has writes to s's window wait, until the store has all that is local.
func (c *Cache) stop(s *session, f *forkUnderWay) (err error) {
	if len(f.from) > len(f.to) {
		return unix.ESRCH
	}
	runs := c.core.Still(f.from)
	defer func() {
		if err != nil {
			c.cloned(f.from, runs, func(offset uint64) { s.faults.Protect(s.base+offset, PageBytes, false) })
		}
	}()
	for _, e := range runs {
		if err := s.faults.Protect(s.base+c.offset(e.first), int(e.n)*PageBytes, true); err != nil {
			return err
		}
	}
	if err := c.keepAll(f.from, runs); err != nil {
		return err
	}
	if f.child.ended {
		return unix.ESRCH
	}
	for i, r := range f.from {
		ranges, err := c.core.Clone(r, f.to[i])
		if err != nil {
			return err
		}
		f.ranges = append(f.ranges, ranges)
	}
	return nil
}

// release lets the threads of a process that forks go on; c.mu is held.
func (c *Cache) release(f *forkUnderWay) {
	if !f.released {
		f.released = true
		c.core.GoOn(f.from)
		c.goOn()
	}
}

// parted says that the system has forked s, or refused to. The store copies now; the answer is an errno, which the child hears too.
func (c *Cache) parted(s *session) uint64 {
	f := s.fork
	if f == nil {
		return uint64(unix.EINVAL)
	}
	s.fork = nil
	f.timer.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(f)
	var err error
	for i, ranges := range f.ranges {
		if err == nil {
			err = c.copyRoom(f.child, f.from[i], f.to[i], ranges)
		}
	}
	c.cloned(f.from, nil, nil)
	errno := unix.Errno(0)
	if err != nil && !f.child.ended { // one that has ended was killed, or never began
		errno = c.unforked(s, f.child, err)
	}
	f.child.copied <- errno
	return uint64(errno)
}

// Reasons why there is no copy, as bits: each is told once of a process.
const (
	forkFull = 1 << iota
	forkSilent
	forkOther
)

// unforked says what s's fork fails with, and tells why; c.mu is held.
func (c *Cache) unforked(s, child *session, err error) unix.Errno {
	if child.ended || c.ctx.Err() != nil {
		return unix.ESRCH // it was killed, or never began
	}
	if errors.Is(err, ErrLost) {
		c.lose(&lostError{err}) // which tells it once
		return unix.ENOMEM
	}
	reason, do := uint8(forkOther), "see whether the node runs, and have the program try again"
	switch {
	case errors.Is(err, ErrFull):
		reason, do = forkFull, fmt.Sprintf("a copy takes as much room again (%d MiB): have the node lend more (--pool-memory), or have the program start others by posix_spawn or vfork", len(s.taken())*RoomBytes>>20)
	case errors.Is(err, context.Canceled), errors.Is(err, errGivenUp):
		reason, err = forkSilent, fmt.Errorf("the node did not answer within %v: %w", Silence, err)
	}
	if s.toldForks&reason == 0 {
		s.toldForks |= reason
		c.tell(fmt.Errorf("%w: process %d: %w; %s", ErrFork, s.pid, err, do))
	}
	return unix.ENOMEM
}

// awaitCopy waits until a forked child has its bytes; the answer is an errno.
func (c *Cache) awaitCopy(s *session) unix.Errno {
	c.mu.Lock()
	copied := s.copied
	c.mu.Unlock()
	if copied == nil {
		return 0
	}
	select {
	case errno := <-copied:
		return errno
	case <-c.ctx.Done():
		return unix.ESRCH
	}
}

// copyRoom has the store copy to a room of a child that has not ended, which keeps it so long. c.mu is held, but not meanwhile.
func (c *Cache) copyRoom(child *session, from, to int, ranges []Range) error {
	if child.ended {
		return unix.ESRCH
	}
	child.filling.Lock()
	defer child.filling.Unlock()
	c.mu.Unlock()
	defer c.mu.Lock()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer afterSilence(cancel).stop()
	return c.config.Store.Clone(ctx, from, to, ranges)
}

// keepAll waits until the store has all bytes of rooms that are still. c.mu is held, but not while it waits.
func (c *Cache) keepAll(rooms []int, runs []effect) error {
	for i := 0; ; {
		if len(rooms) > 0 && c.core.gone[rooms[0]] {
			return ErrLost // which was told
		} else if err := c.ctx.Err(); err != nil {
			return err
		}
		if i < len(runs) {
			effects, done := c.core.Keep(runs[i])
			c.apply(effects)
			if done {
				if c.core.dirtyIn(runs[i]) {
					return fmt.Errorf("excache: %d pages of a window cannot be read for a fork", runs[i].n)
				}
				i++
				c.mu.Unlock() // between two runs faults are answered
				c.mu.Lock()
				continue
			}
		} else if !c.core.unsettled(rooms) {
			return nil
		}
		c.more()
	}
}

// cloned lets writers to rooms go on as ever, with runs that were protected and may not have been kept; c.mu is held.
func (c *Cache) cloned(rooms []int, runs []effect, unprotect func(offset uint64)) {
	c.core.Cloned(rooms)
	for _, e := range runs {
		for p := e.first; p < e.first+e.n; p++ {
			if c.core.pages[p].state == dirty {
				unprotect(c.offset(p))
			}
		}
	}
	c.goOn()
	c.discard()
}

// goOn answers those who waited for room, or for a fork; c.mu is held.
func (c *Cache) goOn() {
	if c.resume(); c.wanted.Load() != 0 && c.waits.CompareAndSwap(false, true) {
		c.serving.Go(c.awaitAlone)
	}
}

// offset is where a page is in its session's window, or its share's file.
func (c *Cache) offset(p uint32) uint64 {
	return c.rooms[p/roomPages].offset + uint64(p%roomPages)*PageBytes
}

// forking is how far a room's process is with a fork.
type forking uint8

const (
	still  forking = 1 + iota // nothing in it changes: writes wait
	copied                    // the store is read: nothing leaves for it
)

// gapPages are copied with what lies on both sides of them, rather than asked for in two parts.
const gapPages = 64

// Still has writes to rooms wait. The runs that are writable are to be protected before anything else.
func (c *Core) Still(rooms []int) (runs []effect) {
	for _, r := range rooms {
		c.forks[r] = still
		for p, end := uint32(r)*roomPages, uint32(r+1)*roomPages; p < end; {
			n := c.stretchOf(p)
			if c.pages[p].state == dirty {
				runs = append(runs, effect{first: p, n: n})
			}
			p += n
		}
	}
	return runs
}

// Keep saves what is dirty still of a run, and leaves it there; false: ask again when something has ended.
func (c *Core) Keep(run effect) (effects []effect, done bool) {
	c.out = c.out[:0]
	done = true
	room := int(run.first / roomPages)
	if c.discards(room) {
		return c.out, false // it would not see that the bytes are new
	}
	for p, end := run.first, run.first+run.n; p < end && done; {
		n := c.dirtyFrom(p, end)
		if n == 0 {
			done = c.pages[p].state != dirty
			p++
			continue
		}
		e := effect{kind: keep, first: p, n: n}
		if c.far[room] {
			e.kind, e.n = keepFar, min(n, runPages)
			if e.transfer, done = c.begin(sending, p, e.n); !done {
				break
			}
		}
		for ; p < e.first+e.n; p++ {
			g := &c.pages[p]
			if g.state, g.stored = clean, true; c.far[room] {
				g.transfer = e.transfer + 1
			}
		}
		c.Counts.Saved += uint64(e.n)
		c.out = append(c.out, e)
	}
	return c.out, done
}

// dirtyFrom is how many pages from p on are dirty, and not on their way in an older version.
func (c *Core) dirtyFrom(p, end uint32) (n uint32) {
	for p+n < end && c.pages[p+n].state == dirty && c.pages[p+n].transfer == 0 {
		n++
	}
	return n
}

// dirtyIn reports whether there is something dirty in a run.
func (c *Core) dirtyIn(run effect) bool {
	for p := run.first; p < run.first+run.n; p++ {
		if c.pages[p].state == dirty {
			return true
		}
	}
	return false
}

// unkept takes back a Keep that could not be done.
func (c *Core) unkept(e effect) {
	if e.kind == keepFar {
		c.end(e.transfer)
	}
	for q := e.first; q < e.first+e.n; q++ {
		c.pages[q].state = dirty
	}
}

// unsettled reports whether anything of rooms is on its way to the store.
func (c *Core) unsettled(rooms []int) bool {
	for i := range c.transfers {
		if t := &c.transfers[i]; t.sends() && c.forks[t.first/roomPages] == still {
			for _, r := range rooms {
				if t.first/roomPages == uint32(r) {
					return true
				}
			}
		}
	}
	return false
}

// Clone makes the pages of room to those of room from, which is still and has all its bytes in the store, and says which of them the store is to copy.
// It stays still.
func (c *Core) Clone(from, to int) (ranges []Range, err error) {
	for i := range uint32(roomPages) {
		a, b := &c.pages[uint32(from)*roomPages+i], &c.pages[uint32(to)*roomPages+i]
		switch a.state {
		case lost:
			return nil, fmt.Errorf("%w: room %d", ErrLost, from)
		case zero, blank:
			continue
		}
		b.state, b.stored, b.prev = remote, true, 0
		off := uint64(i) * PageBytes
		if n := len(ranges); n > 0 && off-ranges[n-1].Off-ranges[n-1].Size <= gapPages*PageBytes {
			ranges[n-1].Size = off + PageBytes - ranges[n-1].Off
		} else {
			ranges = append(ranges, Range{off, PageBytes})
		}
	}
	return ranges, nil
}

// GoOn lets writes to rooms go on. What is written does not leave until Cloned.
func (c *Core) GoOn(rooms []int) {
	for _, r := range rooms {
		c.forks[r] = copied
	}
}

// Cloned says that the store has copied rooms, or that it is not to.
func (c *Core) Cloned(rooms []int) {
	for _, r := range rooms {
		c.forks[r] = 0
	}
}
