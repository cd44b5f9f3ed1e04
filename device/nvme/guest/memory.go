package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/admin"
	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// bellWindow is the window with the words that are rung for completions; the guest's are those below.
	bellWindow = device.MaxWindows
	// bellBase is where it lies, above all addresses that a guest has: x86 has 52 bits, Arm too.
	bellBase = 1 << 62
	maxBits  = 52
)

// server is where a guest's I/O queues are served.
type server interface {
	admin.Queues
	// AddWindow opens memory to the queues, and RemoveWindow returns once they use none of it.
	AddWindow(ctx context.Context, id uint32, seg *fabric.Segment, base, offset, size uint64) error
	RemoveWindow(ctx context.Context, id uint32) error
	// Close returns once nothing is under way.
	Close()
}

// memory is a guest's, by its own addresses. It implements admin.Memory. Its other methods are called one at a time, as vfiouser.Device's are.
type memory struct {
	el    *fabric.Element
	to    server
	files []*file
	stuck []area // that were taken back, and are used still

	mu    sync.RWMutex
	areas []area // by address
}

// area is memory that the guest has at an address.
type area struct {
	window     uint32
	addr, size uint64
	file       *file
	offset     uint64
}

// file is a memfd with a guest's memory.
type file struct {
	dev, ino uint64
	seg      *fabric.Segment
	users    int
}

// open finds or makes the segment of a descriptor, which is not to be used any more.
func (m *memory) open(fd int) (*file, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	for _, f := range m.files {
		if f.dev == st.Dev && f.ino == st.Ino {
			unix.Close(fd)
			f.users++
			return f, nil
		}
	}
	b, err := fabric.ForeignMemory(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: give the guest memory that is shared and sealed, without huge pages (QEMU: -object memory-backend-memfd,share=on)", err)
	}
	seg, err := m.el.NewSegmentOn(b, uint64(st.Size), fabric.Writable)
	if err != nil {
		b.Close()
		return nil, err
	}
	f := &file{dev: st.Dev, ino: st.Ino, seg: seg, users: 1}
	m.files = append(m.files, f)
	return f, nil
}

// close lets go of a file.
func (m *memory) close(f *file) {
	if f.users--; f.users > 0 {
		return
	}
	m.files = slices.DeleteFunc(m.files, func(other *file) bool { return other == f })
	f.seg.Close()
}

var errPlace = errors.New("the guest's memory")

// Map implements vfiouser.Device.
func (m *memory) Map(ctx context.Context, fd int, offset, addr, size uint64, writable bool) error {
	if fd < 0 { // another device's memory: no command's data is there
		return nil
	}
	if !writable { // nor in a ROM, and what is opened to queues can be written
		return unix.Close(fd)
	}
	a := area{addr: addr, size: size, offset: offset}
	if err := m.check(&a); err != nil {
		unix.Close(fd)
		return err
	}
	f, err := m.open(fd)
	if err != nil {
		return err
	}
	if offset > f.seg.Size() || size > f.seg.Size()-offset {
		m.close(f)
		return fmt.Errorf("%w: %d bytes from %d of a file of %d", errPlace, size, offset, f.seg.Size())
	}
	if err := m.to.AddWindow(ctx, a.window, f.seg, addr, offset, size); err != nil {
		m.close(f)
		return err
	}
	a.file = f
	m.mu.Lock()
	defer m.mu.Unlock()
	at, _ := slices.BinarySearchFunc(m.areas, addr, compare)
	m.areas = slices.Insert(m.areas, at, a)
	return nil
}

// check finds a window for an area.
func (m *memory) check(a *area) error {
	taken := func(window uint32) bool {
		has := func(o area) bool { return o.window == window }
		return slices.ContainsFunc(m.areas, has) || slices.ContainsFunc(m.stuck, has)
	}
	for a.window = 1; a.window < bellWindow && taken(a.window); a.window++ {
	}
	bad := ""
	switch {
	case a.size == 0 || a.addr >= 1<<maxBits || a.size > 1<<maxBits-a.addr || (a.addr|a.size|a.offset)%4096 != 0:
		bad = "whole pages below 2^52"
	case a.window == bellWindow:
		bad = fmt.Sprintf("at most %d areas", bellWindow-1)
	case slices.ContainsFunc(m.areas, func(o area) bool { return a.addr < o.addr+o.size && o.addr < a.addr+a.size }):
		bad = "areas that do not overlap"
	default:
		return nil
	}
	return fmt.Errorf("%w: %d bytes at %#x: %s", errPlace, a.size, a.addr, bad)
}

func compare(a area, addr uint64) int {
	switch {
	case a.addr < addr:
		return -1
	case a.addr > addr:
		return 1
	}
	return 0
}

// Unmap implements vfiouser.Device.
func (m *memory) Unmap(ctx context.Context, addr, size uint64) error {
	var out []area
	end := addr + size
	if end < addr {
		end = 1 << maxBits
	}
	m.mu.Lock()
	for _, a := range m.areas { // a window goes as a whole, and to leave it would be to say that nothing uses the part
		if a.addr < end && addr < a.addr+a.size && (a.addr < addr || a.addr+a.size > end) {
			m.mu.Unlock()
			return fmt.Errorf("%w: %d bytes at %#x are taken back, part of %d at %#x: take back what was given", errPlace, size, addr, a.size, a.addr)
		}
	}
	within := func(a area) bool {
		if a.addr >= end || addr >= a.addr+a.size {
			return false
		}
		out = append(out, a)
		return true
	}
	m.areas, m.stuck = slices.DeleteFunc(m.areas, within), slices.DeleteFunc(m.stuck, within)
	m.mu.Unlock()
	var failed error
	for _, a := range out { // without the lock: what is waited for may read memory
		if err := m.to.RemoveWindow(ctx, a.window); err != nil {
			m.stuck = append(m.stuck, a)
			failed = errors.Join(failed, err)
			continue
		}
		m.close(a.file)
	}
	return failed
}

// UnmapAll implements vfiouser.Device.
func (m *memory) UnmapAll(ctx context.Context) error { return m.Unmap(ctx, 0, 1<<maxBits) }

// drop lets go of all memory, of which nothing is used any more.
func (m *memory) drop() {
	m.mu.Lock()
	all := append(m.areas, m.stuck...)
	m.areas, m.stuck = nil, nil
	m.mu.Unlock()
	for _, a := range all {
		m.close(a.file)
	}
}

// Read implements admin.Memory.
func (m *memory) Read(addr uint64, p []byte) bool {
	return m.at(addr, len(p), func(at int, mem []byte) { fabric.CopyOut(p[at:at+len(mem)], mem) })
}

// Write implements admin.Memory.
func (m *memory) Write(addr uint64, p []byte) bool {
	return m.at(addr, len(p), func(at int, mem []byte) { fabric.CopyIn(mem, p[at:at+len(mem)]) })
}

// at finds n bytes, in as many areas as they lie in.
func (m *memory) at(addr uint64, n int, fn func(at int, mem []byte)) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for at := 0; at < n; {
		i, found := slices.BinarySearchFunc(m.areas, addr+uint64(at), compare)
		if !found {
			i--
		}
		if i < 0 {
			return false
		}
		a := &m.areas[i]
		off := addr + uint64(at) - a.addr
		if off >= a.size {
			return false
		}
		size := min(uint64(n-at), a.size-off)
		fn(at, a.file.seg.Bytes()[a.offset+off:][:size])
		at += int(size)
	}
	return true
}
