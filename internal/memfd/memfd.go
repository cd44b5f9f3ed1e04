// Package memfd makes anonymous memory files: memory that lies outside the Go
// heap and can be handed to another process as a descriptor.
package memfd

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is a memfd of fixed size with this process's mapping of it. It is always sealed
// against shrinking and growing, so that no peer can make a mapping fault.
type File struct {
	fd  int
	mem []byte
	// A sealed file is sealed when somebody asks for its descriptor: until then Fill can write by it.
	sealed bool
	seal   sync.Once
	broken bool // it could not be sealed: nobody gets the descriptor
}

// Create makes a memfd of size bytes (rounded up to whole pages), zeroed,
// mapped read-write here. sealed adds F_SEAL_FUTURE_WRITE before FD gives the descriptor away:
// a process that gets the descriptor can map it for reading only. A descriptor opened O_RDONLY
// would not do: it can be reopened for writing through /proc.
func Create(name string, size int64, sealed bool) (*File, error) {
	page := int64(os.Getpagesize())
	if size <= 0 || size > 1<<46 {
		return nil, fmt.Errorf("memfd: size %d out of range", size)
	}
	size = (size + page - 1) &^ (page - 1)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := &File{fd: fd, sealed: sealed}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("memfd: ftruncate to %d bytes: %w", size, err)
	}
	f.mem, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("memfd: mmap %d bytes: %w", size, err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	if !sealed {
		seals |= unix.F_SEAL_SEAL
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: seal: %w", err)
	}
	return f, nil
}

// Adopt makes a File of a descriptor that came from elsewhere, which is f's from then on unless an error is returned. It must be a memfd of ordinary pages that is sealed against
// shrinking; other processes that have it can still write it.
func Adopt(fd int) (*File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("memfd: fstat: %w", err)
	}
	var in unix.Statfs_t
	if err := unix.Fstatfs(fd, &in); err != nil {
		return nil, fmt.Errorf("memfd: fstatfs: %w", err)
	}
	if in.Type != unix.TMPFS_MAGIC { // huge pages can run out after the memory was mapped, and that kills the process
		return nil, fmt.Errorf("memfd: it is no memfd of ordinary pages (file system type %#x)", in.Type)
	}
	mem, err := Map(fd, st.Size, true)
	if err != nil {
		return nil, err
	}
	return &File{fd: fd, mem: mem}, nil
}

// FD is the descriptor, which stays f's; -1 if f should be sealed and the kernel refused that.
func (f *File) FD() int {
	if f.sealed {
		f.seal.Do(func() {
			_, err := unix.FcntlInt(uintptr(f.fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
			f.broken = err != nil
		})
		if f.broken {
			return -1
		}
	}
	return f.fd
}

// fillBytes is from which length on Fill asks the kernel.
const fillBytes = 64 << 10

// Fill copies p to the memory at off. It is for memory that nobody has touched yet: there it is twice as fast as a copy by the mapping, since
// the kernel neither zeroes pages that are written whole nor takes a fault for each. p must fit.
func (f *File) Fill(p []byte, off int) {
	_ = f.mem[off : off+len(p)]
	for len(p) >= fillBytes {
		n, err := unix.Pwrite(f.fd, p, int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 { // it is sealed already, above all
			break
		}
		p, off = p[n:], off+n
	}
	copy(f.mem[off:], p)
}

// Bytes is this process's mapping, whole pages.
func (f *File) Bytes() []byte { return f.mem }

// Close unmaps the memory and closes the descriptor. Peers that have it mapped keep it.
func (f *File) Close() error {
	err := unix.Munmap(f.mem)
	f.mem = nil
	if e := unix.Close(f.fd); err == nil {
		err = e
	}
	return err
}

// CloseFD closes the descriptor and leaves the mapping to the caller (Unmap).
func (f *File) CloseFD() error { return unix.Close(f.fd) }

// Map maps a descriptor received from a peer, after checking that it is a
// memfd that can never shrink and is at least size bytes long.
func Map(fd int, size int64, writable bool) ([]byte, error) {
	if err := Check(fd, size, false); err != nil {
		return nil, fmt.Errorf("memfd: a peer's memory: %w", err)
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("memfd: mmap a peer's %d bytes: %w", size, err)
	}
	return mem, nil
}

// Check reports what is wrong with a descriptor as memory to map: it must be a memfd that can never shrink and is at least size bytes
// long, and, if sealed, one that others cannot map for writing.
func Check(fd int, size int64, sealed bool) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("it is no memfd: %w", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("it is not sealed against shrinking (seals %#x)", seals)
	}
	if sealed && seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) == 0 {
		return fmt.Errorf("it is not sealed against writing (seals %#x)", seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if size <= 0 || st.Size < size {
		return fmt.Errorf("it has %d bytes, not the %d that were promised", st.Size, size)
	}
	return nil
}

// Retire takes a mapping's memory away but keeps its addresses: from then on
// they are private zeros, whose writes go nowhere. A load or store that is under way in
// another goroutine cannot fault, so that small ones need not be counted. The addresses are
// not used again in this process.
func Retire(mem []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE, ^uintptr(0), 0)
	if errno != 0 {
		return fmt.Errorf("memfd: retire a mapping of %d bytes: %w", len(mem), errno)
	}
	return nil
}

// Unmap undoes Map.
func Unmap(mem []byte) error { return unix.Munmap(mem) }

// Dup is a duplicate of a descriptor as an *os.File, for handing it to a child process.
func Dup(fd int) (*os.File, error) {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("memfd: dup: %w", err)
	}
	return os.NewFile(uintptr(d), "memfd"), nil
}

// Zero makes bytes of a shared mapping zeros, for all processes that have it mapped. Whole pages among them go back to the kernel until they are
// written again. mem must begin at a page.
func Zero(mem []byte, from, n int) error {
	page := os.Getpagesize()
	first, last := (from+page-1)&^(page-1), (from+n)&^(page-1)
	if first >= last {
		clear(mem[from : from+n])
		return nil
	}
	clear(mem[from:first])
	clear(mem[last : from+n])
	if err := unix.Madvise(mem[first:last], unix.MADV_REMOVE); err != nil {
		return fmt.Errorf("memfd: give back %d bytes: %w", last-first, err)
	}
	return nil
}
