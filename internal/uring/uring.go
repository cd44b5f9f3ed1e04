package uring

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNotSupported: the kernel has no io_uring that serves here, or forbids it. What wraps it says why.
var ErrNotSupported = errors.New("io_uring is not to be had")

// Operations of a request (include/uapi/linux/io_uring.h).
const (
	OpRead  = 22
	OpWrite = 23
)

// MaxEntries bounds a Ring: more requests than that gain nothing at one disk.
const MaxEntries = 4096

const (
	offRings, offEntries = 0, 0x10000000 // where the parts are mapped from
	entryBytes, endBytes = 64, 16
	enterGetEvents       = 1 << 0
	registerEventFD      = 4
	cqEventFDDisabled    = 1 << 0
	// What a kernel must have (5.6 has all): one mapping, no end is dropped, requests are copied when they are submitted.
	featuresNeeded = 1<<0 | 1<<1 | 1<<2
)

type sqOffsets struct {
	Head, Tail, Mask, Entries, Flags, Dropped, Array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	Head, Tail, Mask, Entries, Overflow, Ends, Flags, _ uint32
	_                                                   uint64
}

type params struct {
	SQEntries, CQEntries, Flags, ThreadCPU, ThreadIdle, Features, WQFD uint32
	_                                                                  [3]uint32
	SQ                                                                 sqOffsets
	CQ                                                                 cqOffsets
}

// entry is a request.
type entry struct {
	Op, Flags uint8
	Priority  uint16
	FD        int32
	Offset    uint64
	Addr      uint64
	Len       uint32
	RWFlags   uint32
	Token     uint64
	_         [3]uint64
}

// end is how a request ended.
type end struct {
	Token  uint64
	Result int32
	Flags  uint32
}

// Ring is a pair of queues. See the package's Ownership.
type Ring struct {
	fd      int
	rings   []byte
	entries []byte

	sqHead, sqTail, cqHead, cqTail, cqFlags *uint32 // the kernel's or ours, in rings
	sqMask, cqMask                          uint32
	array                                   []uint32
	requests                                []entry
	ends                                    []end

	pending uint32 // prepared, not submitted
	flying  int    // prepared, not reaped
}

// New makes a Ring of so many requests at once, a power of two. bell, if it is not -1, is an eventfd that becomes readable when a request ends while the Ring is armed.
func New(entries uint32, bell int) (*Ring, error) {
	if entries == 0 || entries > MaxEntries || entries&(entries-1) != 0 {
		return nil, fmt.Errorf("uring: %d entries: a power of two up to %d", entries, MaxEntries)
	}
	var p params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("%w: io_uring_setup: %w; see /proc/sys/kernel/io_uring_disabled, and whether a seccomp filter forbids it", ErrNotSupported, errno)
	}
	r := &Ring{fd: int(fd)}
	unix.CloseOnExec(r.fd)
	if p.Features&featuresNeeded != featuresNeeded {
		r.Close()
		return nil, fmt.Errorf("%w: the kernel's is of before Linux 5.6", ErrNotSupported)
	}
	if err := r.map_(&p, bell); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Ring) map_(p *params, bell int) (err error) {
	size := max(int(p.SQ.Array+p.SQEntries*4), int(p.CQ.Ends+p.CQEntries*endBytes))
	if r.rings, err = unix.Mmap(r.fd, offRings, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("uring: mmap: %w", err)
	}
	if r.entries, err = unix.Mmap(r.fd, offEntries, int(p.SQEntries)*entryBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("uring: mmap: %w", err)
	}
	// The kernel lays these out, aligned, within the mappings whose sizes were made of the same offsets.
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqHead, r.sqTail, r.cqHead, r.cqTail, r.cqFlags = word(p.SQ.Head), word(p.SQ.Tail), word(p.CQ.Head), word(p.CQ.Tail), word(p.CQ.Flags)
	r.sqMask, r.cqMask = *word(p.SQ.Mask), *word(p.CQ.Mask)
	r.array = unsafe.Slice(word(p.SQ.Array), p.SQEntries)
	r.requests = unsafe.Slice((*entry)(unsafe.Pointer(&r.entries[0])), p.SQEntries)
	r.ends = unsafe.Slice((*end)(unsafe.Pointer(&r.rings[p.CQ.Ends])), p.CQEntries)
	if bell < 0 {
		return nil
	}
	fd := int32(bell)
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerEventFD, uintptr(unsafe.Pointer(&fd)), 1, 0, 0); errno != 0 {
		return fmt.Errorf("uring: register eventfd: %w", errno)
	}
	r.Disarm()
	return nil
}

// Close ends the Ring. Requests under way end some time: their memory must stay until then.
func (r *Ring) Close() error {
	err := unix.Close(r.fd)
	for _, m := range [][]byte{r.entries, r.rings} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	return err
}

// Prepare adds a read into p, or a write from it, to what Submit submits; false: as many requests are under way as there can be.
func (r *Ring) Prepare(op uint8, fd int, p []byte, off int64, token uint64) bool {
	if len(p) == 0 || r.flying == len(r.requests) {
		return false
	}
	tail := atomic.LoadUint32(r.sqTail) // ours
	i := tail & r.sqMask
	r.requests[i] = entry{Op: op, FD: int32(fd), Offset: uint64(off), Addr: uint64(uintptr(unsafe.Pointer(&p[0]))), Len: uint32(len(p)), Token: token}
	r.array[i] = i
	atomic.StoreUint32(r.sqTail, tail+1)
	runtime.KeepAlive(p)
	r.pending++
	r.flying++
	return true
}

// Submit hands what was prepared to the kernel. After an error it is still prepared.
func (r *Ring) Submit() error {
	for r.pending > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), 0, 0, 0, 0)
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN || errno == syscall.EBUSY: // memory is short, or ends are to be reaped first
			return errno
		case errno != 0:
			return fmt.Errorf("uring: io_uring_enter: %w", errno)
		default:
			r.pending -= uint32(n)
		}
	}
	return nil
}

// Wait submits, and sleeps until a request has ended.
func (r *Ring) Wait() error {
	if err := r.Submit(); err != nil || r.flying == 0 {
		return err
	}
	for !r.Ready() {
		if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 1, enterGetEvents, 0, 0); errno != 0 && errno != syscall.EINTR {
			return fmt.Errorf("uring: io_uring_enter: %w", errno)
		}
	}
	return nil
}

// Pending reports whether something was prepared that Submit has to submit.
func (r *Ring) Pending() bool { return r.pending > 0 }

// Ready reports whether Reap would find something.
func (r *Ring) Ready() bool { return atomic.LoadUint32(r.cqTail) != atomic.LoadUint32(r.cqHead) }

// Reap tells of requests that have ended, at most budget of them: bytes, or an error.
func (r *Ring) Reap(budget int, ended func(token uint64, n int, err error)) (count int) {
	head := atomic.LoadUint32(r.cqHead) // ours
	for ; count < budget && head != atomic.LoadUint32(r.cqTail); count++ {
		e := r.ends[head&r.cqMask]
		head++
		atomic.StoreUint32(r.cqHead, head)
		r.flying--
		if e.Result < 0 {
			ended(e.Token, 0, syscall.Errno(-e.Result))
		} else {
			ended(e.Token, int(e.Result), nil)
		}
	}
	return count
}

// Arm has ends ring the bell from now on. It reports whether some came before.
func (r *Ring) Arm() (ready bool) {
	atomic.StoreUint32(r.cqFlags, 0)
	return r.Ready()
}

// Disarm undoes Arm.
func (r *Ring) Disarm() { atomic.StoreUint32(r.cqFlags, cqEventFDDisabled) }

// Aligned reports whether p begins at a multiple of to, which O_DIRECT asks for.
func Aligned(p []byte, to uintptr) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%to == 0 }
