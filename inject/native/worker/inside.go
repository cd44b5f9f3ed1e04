package worker

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reservation are addresses in this process for all that a worker has between Base and WindowsAt. What is not mapped there has no access.
type Reservation struct {
	mem  []byte
	Base uint64 // in place of the constant
}

// Reserve takes addresses.
func Reserve() (*Reservation, error) {
	const size = WindowsAt - Base + PageBytes
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes of addresses: %w", uint64(size), err)
	}
	return &Reservation{mem, (AddressOf(mem) + PageBytes - 1) &^ (PageBytes - 1)}, nil
}

// Map maps what a worker has.
func (r *Reservation) Map(maps []Map, fds []int) error {
	for _, m := range maps {
		from := m.Addr - AddressOf(r.mem)
		if from > uint64(len(r.mem)) || m.Size > uint64(len(r.mem))-from {
			return fmt.Errorf("no such mapping: %+v", m)
		}
		if _, err := unix.MmapPtr(fds[m.FD], m.Offset, unsafe.Pointer(&r.mem[from]), uintptr(m.Size), m.prot(), unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE); err != nil {
			return fmt.Errorf("map %d bytes: %w", m.Size, err)
		}
	}
	return nil
}

// Close gives the addresses back, with all that is there.
func (r *Reservation) Close() { _ = unix.Munmap(r.mem) } // it is one of ours

// AddressOf is where memory outside the Go heap lies; 0: there is none.
func AddressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

func (m *Map) prot() int {
	prot := unix.PROT_READ
	if m.Write {
		prot |= unix.PROT_WRITE
	}
	if m.Exec {
		prot |= unix.PROT_EXEC
	}
	return prot
}
