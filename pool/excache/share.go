package excache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxViews bounds the mappings of shares that a process has, as the shim does.
	maxViews = 64
	// maxShares bounds the shares of a cache.
	maxShares = 1024
)

// Share is memory that others have too: processes of the program map it by its name, those of one file together. Any number may read it; one process at
// a time may change it.
type Share struct {
	Name     string // programs open sharePath and the name
	Size     int64
	Writable bool
	// Bind makes the store's room r the part-th RoomBytes of it, until the room is released. What lies behind its end reads as whatever.
	Bind func(r, part int)
}

// share is a Share, the file that processes map, and who has mapped it.
type share struct {
	Share
	number  uint64 // as an owner of rooms
	file    int    // a memfd, of the pages that are local
	path    int    // the same as programs get it: it can be mapped through the shim only, as holes would read as zeros
	device  uint64
	inode   uint64
	rooms   []int
	views   []*view
	lost    bool
	flushes sync.Mutex // held during a flush, before Cache.mu
}

// view is a process's mapping of a part of a share.
type view struct {
	s               *session
	share           *share
	addr, size, off uint64 // off is of the share
	write           bool
}

// share makes memory known that programs can map.
func (c *Cache) share(from Share) error {
	if from.Size <= 0 || len(c.shares) == maxShares {
		return fmt.Errorf("excache: share %s: %d bytes of at least 1, and at most %d shares", from.Name, from.Size, maxShares)
	}
	sh := &share{Share: from, file: -1, path: -1}
	c.shares = append(c.shares, sh) // Close gives back what there is
	err := sh.makeFile()
	if err != nil {
		return fmt.Errorf("excache: share %s: %w", from.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers++
	sh.number = c.numbers
	pages := uint32((from.Size + PageBytes - 1) / PageBytes)
	for part := 0; int64(part)*RoomBytes < from.Size; part++ {
		r, err := c.roomFor()
		if err != nil {
			return fmt.Errorf("excache: share %s: %w", from.Name, err)
		}
		from.Bind(r, part)
		c.rooms[r] = room{share: sh, offset: uint64(part) * RoomBytes}
		sh.rooms = append(sh.rooms, r)
		c.core.Own(r, sh.number, !c.config.Store.Mapped(r))
		n := min(pages, roomPages)
		c.core.Put(uint32(r)*roomPages, n)
		pages -= n
	}
	return nil
}

func (sh *share) makeFile() (err error) {
	if sh.file, err = unix.MemfdCreate("wherry-share", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return err
	}
	if err = unix.Ftruncate(sh.file, sh.Size); err != nil {
		return err
	}
	if _, err = unix.FcntlInt(uintptr(sh.file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstat(sh.file, &st); err != nil {
		return err
	}
	sh.device, sh.inode = st.Dev, st.Ino
	sh.path, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", sh.file), unix.O_PATH|unix.O_CLOEXEC, 0)
	return err
}

// close gives the rooms and descriptors back; no process has it mapped any more.
func (sh *share) close(store Store) {
	for _, r := range sh.rooms {
		store.Release(r)
	}
	for _, fd := range []int{sh.file, sh.path} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// page is the core's number for an offset of a share.
func (sh *share) page(offset uint64) (uint32, bool) {
	if offset >= uint64(sh.Size) {
		return 0, false
	}
	return uint32(sh.rooms[offset/RoomBytes])*roomPages + uint32(offset%RoomBytes/PageBytes), true
}

// viewAt is s's view that has an address, nil: none. c.mu is held.
func (s *session) viewAt(addr uint64) *view {
	for _, v := range s.views {
		if addr-v.addr < v.size {
			return v
		}
	}
	return nil
}

// part clips n bytes at an offset of the share to what v has of them.
func (v *view) part(offset uint64, n int) (addr uint64, size int) {
	from, to := max(offset, v.off), min(offset+uint64(n), v.off+v.size)
	if from >= to {
		return 0, 0
	}
	return v.addr + from - v.off, int(to - from)
}

// protect makes writers of n bytes at an offset wait, or lets them go on. A process that is gone, or has put something else there, writes no more.
func (sh *share) protect(offset uint64, n int, on bool) error {
	for _, v := range sh.views {
		addr, size := v.part(offset, n)
		if size == 0 || !v.write {
			continue
		}
		err := v.s.faults.Protect(addr, size, on)
		if errors.Is(err, unix.ENOENT) && size > PageBytes { // a part of it is no mapping of the share any more
			err = nil
			for at := addr; at < addr+uint64(size) && err == nil; at += PageBytes {
				if err = v.s.faults.Protect(at, PageBytes, on); errors.Is(err, unix.ENOENT) {
					err = nil
				}
			}
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// wake makes the faults that wait for n bytes at an offset be looked at again.
func (sh *share) wake(offset uint64, n int) {
	for _, v := range sh.views {
		if addr, size := v.part(offset, n); size > 0 {
			v.s.faults.Wake(addr, size)
		}
	}
}

func (sh *share) poison(offset uint64, n int) {
	for _, v := range sh.views {
		if addr, size := v.part(offset, n); size > 0 {
			v.s.poison(addr, size)
		}
	}
}

// applyShared carries an effect on pages of a share out; c.mu is held. The pages come into the file, by a write, and from there into the view whose fault is
// answered (c.by): the other views fault, and find them there. So what a process does to its mapping is no other's loss.
func (c *Cache) applyShared(sh *share, offset uint64, e effect) {
	size := int(e.n) * PageBytes
	var err error
	switch e.kind {
	case fill, fillProtected, place, placeProtected:
		if err = c.bring(sh, offset, e); err == nil {
			c.show(e.first, e.n, e.kind == fillProtected || e.kind == placeProtected)
			if e.kind == place || e.kind == placeProtected { // others may have waited for the same transfer
				sh.wake(offset, size)
			}
		}
	case continued, continuedProtected:
		c.show(e.first, c.core.alike(e.first), e.kind == continuedProtected)
	case unprotect:
		sh.protect(offset, size, false)
	case wake:
		sh.wake(offset, size)
	case save, send:
		if err = sh.protect(offset, size, true); err == nil {
			err = c.leave(sh, offset, e)
		}
	case keep, keepFar:
		err = c.store(sh.file, offset, uint64(sh.Size), e)
	case fetch:
		c.start(int(e.transfer), flight{off: uint64(e.first) * PageBytes, size: size})
	case await:
		c.want(1 << e.transfer)
	case drop:
		punch(sh.file, offset, size)
	case poison:
		sh.poison(offset, size)
	}
	if err != nil {
		c.failedShared(sh, offset, e, err)
	}
}

// bring writes pages into the file, from the store or a transfer's buffer.
func (c *Cache) bring(sh *share, offset uint64, e effect) error {
	c.moving = moving{file: sh.file, offset: offset, end: uint64(sh.Size)}
	if e.kind == place || e.kind == placeProtected {
		c.writeIn(c.flights.buffer(int(e.transfer))[uint64(e.first)*PageBytes-c.all[e.transfer].off:][:e.n*PageBytes])
	} else if err := c.config.Store.Access(uint64(e.first)*PageBytes, int(e.n)*PageBytes, c.writeIn); err != nil {
		return &lostError{err}
	}
	return c.moving.err
}

// leave saves pages, and takes them away.
func (c *Cache) leave(sh *share, offset uint64, e effect) error {
	err := c.store(sh.file, offset, uint64(sh.Size), e)
	if err == nil {
		punch(sh.file, offset, int(e.n)*PageBytes)
	}
	return err
}

// alike is how many pages from p on, which are in the file, a view may show in one go.
func (c *Core) alike(p uint32) (n uint32) {
	first := c.pages[p].state
	for n = 1; n < nearPages && (p+n)%roomPages != 0; n++ {
		if s := c.pages[p+n].state; !s.local() || (s == dirty) != (first == dirty) {
			break
		}
	}
	return n
}

// show puts n pages of the file from p on into the view whose fault is answered.
func (c *Cache) show(p, n uint32, protect bool) {
	if c.by == nil {
		return // an answer that came later: the views fault again, and find them
	}
	v := c.by.view
	addr, size := v.part(c.offset(p), int(n)*PageBytes)
	shown, err := v.s.faults.Continue(addr, size, protect)
	if err != nil && shown == 0 { // some of it is there already, or is no mapping of the share any more
		_, err = v.s.faults.Continue(c.by.addr, PageBytes, protect)
	}
	if err != nil {
		v.s.faults.Wake(c.by.addr, PageBytes) // it is there already, or faults again
	}
}

// failedShared undoes an effect in the core.
func (c *Cache) failedShared(sh *share, offset uint64, e effect, err error) {
	size := int(e.n) * PageBytes
	var gone *lostError
	lost := errors.As(err, &gone)
	if lost {
		c.loseShare(sh, gone)
	}
	switch e.kind {
	case save, send:
		c.core.Unsaved(e)
		sh.protect(offset, size, false)
	case keep, keepFar:
		c.core.unkept(e)
	default:
		c.core.Absent(e)
		if lost {
			c.core.Lose(int(e.first / roomPages))
			sh.poison(offset, size)
		} else {
			sh.wake(offset, size) // they fault again
		}
	}
}

// loseShare declares a share's rooms lost, once. What else the program has is not touched.
func (c *Cache) loseShare(sh *share, err error) {
	if sh.lost {
		return
	}
	sh.lost = true
	for _, r := range sh.rooms {
		c.core.Lose(r)
	}
	gone := ""
	if sh.Writable {
		gone = ", and what was changed since it was last saved (msync)"
	}
	c.tell(fmt.Errorf("share %s: %w%s; see whether its node runs and has it, and start the program again", sh.Name, loss(err), gone))
}

// flush puts what was changed of a share into the store, as it is at one moment: writes wait until all is there.
func (c *Cache) flush(sh *share) error { return c.settle(sh, func() {}) }

// settle flushes a share, and calls then before writes go on, when nothing of it is dirty. c.mu is held meanwhile.
func (c *Cache) settle(sh *share, then func()) error {
	sh.flushes.Lock()
	defer sh.flushes.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if sh.lost {
		return fmt.Errorf("%w: share %s", ErrLost, sh.Name)
	}
	runs := c.core.Still(sh.rooms)
	defer c.cloned(sh.rooms, runs, func(offset uint64) { sh.protect(offset, PageBytes, false) })
	for _, e := range runs {
		if err := sh.protect(c.offset(e.first), int(e.n)*PageBytes, true); err != nil {
			return err
		}
	}
	err := c.keepAll(sh.rooms, runs)
	if sh.lost {
		err = fmt.Errorf("%w: share %s", ErrLost, sh.Name)
	}
	if err == nil {
		then()
	}
	return err
}

// disownViews makes accesses to what s maps of shares errors, if its process lives on without its descriptors: it would see zeros where a page leaves later. All
// pages leave, of the other processes' mappings too, who bring them back: no other call takes a page out of one process alone. Of a share that is lost what is local stays.
func (c *Cache) disownViews(s *session) {
	c.mu.Lock()
	views := slices.Clone(s.views)
	c.mu.Unlock()
	for _, v := range views {
		all := func() {
			for _, r := range v.share.rooms {
				c.apply(c.core.Drop(r))
			}
			v.poison()
		}
		if c.settle(v.share, all) != nil {
			c.mu.Lock()
			v.poison()
			c.mu.Unlock()
		}
	}
}

// poison makes accesses to what is not there of a view a SIGBUS, but where the process has something else now.
func (v *view) poison() {
	v.s.faults.Protect(v.addr, int(v.size), false)
	if _, err := v.s.faults.Poison(v.addr, int(v.size)); err == nil {
		return
	}
	for addr := v.addr; addr < v.addr+v.size; addr += PageBytes {
		v.s.poison(addr, PageBytes)
	}
}

// flushAll flushes what may be changed, and tells what could not be.
func (c *Cache) flushAll(of func(*share) bool) {
	for _, sh := range c.shares {
		if !sh.Writable || !of(sh) {
			continue
		}
		if err := c.flush(sh); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, context.Canceled) { // a loss was told
			c.mu.Lock()
			c.tell(fmt.Errorf("%w: what was changed of share %s was not saved: %w", ErrLost, sh.Name, err))
			c.mu.Unlock()
		}
	}
}

// opened answers callOpen: the share of that name, as a file for programs.
func (c *Cache) opened(name string) (errno, size uint64, fd int) {
	for _, sh := range c.shares {
		if sh.Name == name {
			return 0, uint64(sh.Size), sh.path
		}
	}
	return uint64(unix.ENOENT), 0, -1
}

// viewed answers callView: s is about to map size bytes at off of the share with that file at addr.
func (c *Cache) viewed(s *session, device, inode uint64, v view) (errno uint64, fd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sh := range c.shares {
		if sh.device != device || sh.inode != inode {
			continue
		}
		v.s, v.share = s, sh
		if errno := v.check(); errno != 0 {
			c.refuseView(&v, errno)
			return uint64(errno), -1
		}
		s.views = append(s.views, &v)
		sh.views = append(sh.views, &v)
		return 0, sh.file
	}
	return uint64(unix.EBADF), -1
}

// check says why a view cannot be.
func (v *view) check() unix.Errno {
	end := (uint64(v.share.Size) + PageBytes - 1) &^ (PageBytes - 1)
	switch {
	case v.size == 0 || (v.addr|v.size|v.off)%PageBytes != 0 || v.off >= end || v.size > end-v.off || v.addr+v.size < v.addr:
		return unix.EINVAL // a mapping that goes on behind the end would be watched there
	case v.write && !v.share.Writable:
		return unix.EACCES
	case len(v.s.views) == maxViews || v.s.ended:
		return unix.ENOMEM
	case slices.ContainsFunc(v.s.views, func(o *view) bool { return o.overlaps(v.addr, v.addr+v.size) }):
		return unix.EEXIST // one of two would get the other's faults
	}
	if w := v.share.writer(); v.write && w != nil && w != v.s {
		return unix.EBUSY
	}
	return 0
}

// unviewed ends what s's views have of size bytes at addr, where it has something else now, or nothing. What a writer has changed is saved.
func (c *Cache) unviewed(s *session, addr, size uint64) {
	to := addr + size
	if to < addr {
		to = ^uint64(0)
	}
	var written []*share
	c.mu.Lock()
	for _, v := range s.views {
		if v.write && v.overlaps(addr, to) {
			written = append(written, v.share)
		}
	}
	c.mu.Unlock()
	c.flushAll(func(sh *share) bool { return slices.Contains(written, sh) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range slices.Clone(s.views) {
		if v.overlaps(addr, to) {
			v.cut(addr, to)
		}
	}
}

// refuseView tells why a process may not change a share, once for each reason of a process; c.mu is held.
func (c *Cache) refuseView(v *view, errno unix.Errno) {
	why, reason := "", uint8(0)
	switch errno {
	case unix.EACCES:
		reason, why = viewReadOnly, "it was given to be read: give it with --share-write"
	case unix.EBUSY:
		reason, why = viewBusy, fmt.Sprintf("process %d has, and one at a time may: let that unmap it or end first, or map it to be read", v.share.writer().pid)
	}
	if v.s.toldViews&reason != reason {
		v.s.toldViews |= reason
		c.tell(fmt.Errorf("%w: share %s: process %d may not map it for writing (%s): %s", ErrShare, v.share.Name, v.s.pid, unix.ErrnoName(errno), why))
	}
}

// Reasons that were told of a process, as bits.
const (
	viewReadOnly = 1 << iota
	viewBusy
)

// writer is the process that has a share mapped for writing, nil: none.
func (sh *share) writer() *session {
	for _, v := range sh.views {
		if v.write {
			return v.s
		}
	}
	return nil
}

func (v *view) overlaps(from, to uint64) bool { return v.addr < to && from < v.addr+v.size }

// cut takes addresses out of a view; what is left on either side stays one. c.mu is held.
func (v *view) cut(from, to uint64) {
	s, sh, end := v.s, v.share, v.addr+v.size
	is := func(o *view) bool { return o == v }
	s.views, sh.views = slices.DeleteFunc(s.views, is), slices.DeleteFunc(sh.views, is)
	for _, left := range [2][2]uint64{{v.addr, min(from, end)}, {max(to, v.addr), end}} {
		if left[0] < left[1] && len(s.views) < maxViews { // the shim sees to it that there are no more
			part := &view{s, sh, left[0], left[1] - left[0], v.off + left[0] - v.addr, v.write}
			s.views, sh.views = append(s.views, part), append(sh.views, part)
		}
	}
}

// synced answers callSync: what s has changed of shares that lie in size bytes at addr is in the store.
func (c *Cache) synced(s *session, addr, size uint64) (errno uint64) {
	c.mu.Lock()
	views := slices.Clone(s.views)
	c.mu.Unlock()
	for _, v := range views {
		if v.write && v.addr < addr+size && addr < v.addr+v.size && c.flush(v.share) != nil {
			errno = uint64(unix.EIO)
		}
	}
	return errno
}
