// Package linear maps the linear memory of a wasm instance: one range without
// gaps, of anonymous memory with memfds mapped over parts of it.
//
// Compiled wasm checks addresses against the memory's length and then touches
// them directly; a fault there would end the process. So every page below the
// length is readable and writable from the start to the end of the mapping, whatever lies there, and what must
// not be written is kept from being written by the code itself.
package linear

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// PageBytes is a wasm page, the unit of everything here.
	PageBytes = 64 << 10
	// MaxBytes is the largest memory: wazero keeps its length in 32 bits.
	MaxBytes = 1<<32 - PageBytes

	guardBytes = PageBytes // without access, behind the memory
)

// View is a part of a memfd that appears in the memory.
type View struct {
	At     uint64 // in the memory, a multiple of PageBytes
	Bytes  uint64 // a multiple of PageBytes
	FD     int
	Offset int64
	Shared bool // writes reach the memfd; else they stay in this memory
}

// Memory is a mapped memory. It implements wazero's LinearMemory.
type Memory struct {
	base unsafe.Pointer
	size uint64
}

// Map maps size bytes, a multiple of PageBytes, zeroed where no view lies. The
// views must not overlap. Nothing is resident until it is touched.
func Map(size uint64, views []View) (*Memory, error) {
	if size == 0 || size > MaxBytes || size%PageBytes != 0 {
		return nil, fmt.Errorf("linear memory of %d bytes: want whole pages of %d, at most %d bytes", size, PageBytes, uint64(MaxBytes))
	}
	base, err := reserve(uintptr(size + guardBytes))
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of linear memory: %w", size, err)
	}
	m := &Memory{base: base, size: size}
	if err := unix.Mprotect(m.Bytes(), unix.PROT_READ|unix.PROT_WRITE); err != nil {
		m.Free()
		return nil, fmt.Errorf("commit %d bytes of linear memory: %w", size, err)
	}
	for _, v := range views {
		if err := m.view(v); err != nil {
			m.Free()
			return nil, err
		}
	}
	return m, nil
}

// reserve reserves addresses, of which the first is a huge page's.
func reserve(size uintptr) (unsafe.Pointer, error) {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	base, err := unix.MmapPtr(-1, 0, nil, size+HugeBytes, unix.PROT_NONE, flags)
	if err != nil {
		return nil, err
	}
	before := -uintptr(base) % HugeBytes
	// What is given back was reserved a moment ago, and nothing refers to it: an error would leave some addresses unused.
	if before > 0 {
		_ = unix.MunmapPtr(base, before)
	}
	at := unsafe.Add(base, before)
	_ = unix.MunmapPtr(unsafe.Add(at, size), HugeBytes-before)
	return at, nil
}

func (m *Memory) view(v View) error {
	if v.At%PageBytes != 0 || v.Bytes == 0 || v.Bytes%PageBytes != 0 || v.At+v.Bytes > m.size || v.At+v.Bytes < v.At {
		return fmt.Errorf("view of %d bytes at %#x does not fit a linear memory of %d bytes", v.Bytes, v.At, m.size)
	}
	flags := unix.MAP_PRIVATE
	if v.Shared {
		flags = unix.MAP_SHARED
	}
	// The address range is m's own and was checked above, so MAP_FIXED replaces
	// nothing but pages of this memory.
	_, err := unix.MmapPtr(v.FD, v.Offset, unsafe.Add(m.base, v.At), uintptr(v.Bytes), unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes of descriptor %d: %w", v.Bytes, v.FD, err)
	}
	return nil
}

// Slide maps another part of a memfd where a view is. After an error the memory must not be touched any more.
func (m *Memory) Slide(v View) error { return m.view(v) }

// Bytes is the whole memory; nil after Free.
func (m *Memory) Bytes() []byte {
	if m.base == nil {
		return nil
	}
	// The mapping has m.size bytes and stays until Free.
	return unsafe.Slice((*byte)(m.base), m.size)
}

// Discard makes [from, to) zero again and gives its pages back. The range must
// be whole machine pages of anonymous memory.
func (m *Memory) Discard(from, to uint64) error {
	if from >= to {
		return nil
	}
	return unix.Madvise(m.Bytes()[from:to], unix.MADV_DONTNEED)
}

// Small keeps huge pages out of [from, to), whole pages of anonymous memory: a store would take up to 2 MiB there, and what
// a function is charged for is less.
func (m *Memory) Small(from, to uint64) error {
	if from >= to {
		return nil
	}
	err := unix.Madvise(m.Bytes()[from:to], unix.MADV_NOHUGEPAGE)
	if err == unix.EINVAL { // the kernel has none
		err = nil
	}
	return err
}

// HugeBytes is the least range that is worth huge pages: one page of x86, and of arm64 and riscv64 where small ones have 4 KiB.
const HugeBytes = 2 << 20

// Huge lets [from, to) have huge pages, and reports whether it has them then: each lies wholly in such a range, so a store takes nothing beside it. Small ends that.
// The kernel gives them where it has them at hand and its transparent_hugepage is madvise or always.
func (m *Memory) Huge(from, to uint64) bool {
	if to < from+HugeBytes {
		return false
	}
	return unix.Madvise(m.Bytes()[from:to], unix.MADV_HUGEPAGE) == nil // else its pages stay small
}

// Touch makes [from, to) resident, so that no store there is a page fault.
func (m *Memory) Touch(from, to uint64) error {
	return unix.Madvise(m.Bytes()[from:to], unix.MADV_POPULATE_WRITE)
}

// Gather puts what lies in [from, to) of a view on huge pages: the memfd's, so that every mapping of it has them. The range is whole ones. It copies what is on small
// ones, which takes about a millisecond for each huge page. Where the kernel cannot (before 6.1), or has none to give, the error says so, and the pages stay small.
func (m *Memory) Gather(from, to uint64) error {
	return unix.Madvise(m.Bytes()[from:to], unix.MADV_COLLAPSE)
}

// Reallocate implements wazero's LinearMemory: the memory has its final size
// from the beginning, so a module finds all of it however little it asks for.
func (m *Memory) Reallocate(size uint64) []byte {
	if size > m.size {
		return nil
	}
	return m.Bytes()
}

// Free implements wazero's LinearMemory. It may be called more than once.
func (m *Memory) Free() {
	if m.base == nil {
		return
	}
	// An error means that the range is not a mapping, which Map excludes.
	_ = unix.MunmapPtr(m.base, uintptr(m.size+guardBytes))
	m.base = nil
}
