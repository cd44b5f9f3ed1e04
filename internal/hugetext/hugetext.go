// Package hugetext puts the program's own code on huge pages.
//
// A hop of a travelling function runs through some thirty pages of code, and where
// elements take turns on a processor each turn finds the translations of the
// one before it. With pages of 2 MiB a handful covers the whole program. The kernel gives
// them to files only on some file systems, so the code is copied to anonymous memory, which then takes the
// place of the file's mapping at the same addresses: nothing that points into the code changes. What it costs
// is that memory, and that tools which look a process over from outside (perf, uprobes) no
// longer see which file the code is of; profiles that Go takes itself are whole.
package hugetext

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageBytes is the size of a huge page, and what it is aligned to.
const pageBytes = 2 << 20

// Move puts the code of this process on huge pages and returns how many bytes of
// it lie there; what does not fill a page stays. It takes some milliseconds, once: a second call only reports.
// An error says why the code stays where it was. It may be called at any time, once at a time.
func Move() (int, error) {
	if runtime.GOARCH != "amd64" {
		return 0, fmt.Errorf("hugetext: not on %s, where the instruction cache has to be told: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, fmt.Errorf("hugetext: %w", err)
	}
	m, err := find(maps, reflect.ValueOf(runtime.GC).Pointer()) // the runtime comes first
	if err != nil {
		return 0, err
	}
	if !m.file {
		return int(m.size), nil
	}
	start := (m.start + pageBytes - 1) &^ (pageBytes - 1)
	end := (m.start + m.size) &^ (pageBytes - 1)
	if start >= end {
		return 0, fmt.Errorf("hugetext: %d bytes of code fill no huge page", m.size)
	}
	size := end - start
	text, err := hugePages(size)
	if err != nil {
		return 0, err
	}
	copy(unsafe.Slice((*byte)(text), size), unsafe.Slice((*byte)(at(start)), size))
	if err := unix.Mprotect(unsafe.Slice((*byte)(text), size), unix.PROT_READ|unix.PROT_EXEC); err != nil {
		_ = unix.MunmapPtr(text, size)
		return 0, fmt.Errorf("hugetext: make the copy executable: %w", err)
	}
	// One system call puts the copy in place: a thread that fetches an instruction meanwhile waits for it in the kernel.
	if _, err := unix.MremapPtr(text, size, at(start), size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
		_ = unix.MunmapPtr(text, size)
		return 0, fmt.Errorf("hugetext: mremap: %w", err)
	}
	return int(size), nil
}

// Check reports whether Move would get the pages it needs. It changes nothing.
func Check() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("hugetext: on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	mem, err := hugePages(pageBytes)
	if err != nil {
		return err
	}
	return unix.MunmapPtr(mem, pageBytes)
}

// hugePages maps size bytes, a multiple of pageBytes, that are huge pages for certain.
func hugePages(size uintptr) (unsafe.Pointer, error) {
	mem, err := mapAligned(size)
	if err != nil {
		return nil, fmt.Errorf("hugetext: map %d bytes: %w", size, err)
	}
	block := unsafe.Slice((*byte)(mem), size)
	err = unix.Madvise(block, unix.MADV_HUGEPAGE)
	if err == nil {
		for i := uintptr(0); i < size; i += pageBytes {
			block[i] = 0 // what nobody has touched does not collapse
		}
		err = unix.Madvise(block, unix.MADV_COLLAPSE)
	}
	if err != nil {
		_ = unix.MunmapPtr(mem, size)
		return nil, fmt.Errorf("hugetext: the kernel gives no huge pages (MADV_COLLAPSE, Linux 6.1 and later): %w", err)
	}
	return mem, nil
}

// mapAligned maps size bytes at a multiple of pageBytes. What lies beside them is
// given back here and now: once the block has moved, others may have mapped where it was.
func mapAligned(size uintptr) (unsafe.Pointer, error) {
	base, err := unix.MmapPtr(-1, 0, nil, size+pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	head := -uintptr(base) & (pageBytes - 1)
	mem := unsafe.Add(base, head)
	if head > 0 {
		err = unix.MunmapPtr(base, head)
	}
	if tail := pageBytes - head; err == nil {
		err = unix.MunmapPtr(unsafe.Add(mem, size), tail)
	}
	return mem, err
}

// at is an address as a pointer. What lies there is not the Go heap.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// mapping is a line of /proc/self/maps.
type mapping struct {
	start, size uintptr
	file        bool
}

// find returns the mapping of an address.
func find(maps []byte, addr uintptr) (mapping, error) {
	for line := range bytes.Lines(maps) {
		var start, end, offset, inode uintptr
		var mode, device string
		if _, err := fmt.Sscanf(string(line), "%x-%x %s %x %s %d", &start, &end, &mode, &offset, &device, &inode); err != nil {
			return mapping{}, fmt.Errorf("hugetext: /proc/self/maps: %q: %w", bytes.TrimSpace(line), err)
		}
		if start <= addr && addr < end {
			return mapping{start, end - start, inode != 0}, nil
		}
	}
	return mapping{}, fmt.Errorf("hugetext: /proc/self/maps has no mapping of %#x", addr)
}
