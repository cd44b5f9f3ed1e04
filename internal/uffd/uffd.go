package uffd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mode says which faults of a range are told.
type Mode uint64

const (
	Missing   Mode = 1 << iota // the file has no page there
	Protected                  // a write to a page that Protect or Copy protected
	Minor                      // the file has a page, the page table does not
)

// Features are asked for when a descriptor is opened (UFFD_FEATURE_*).
type Features uint64

const (
	FlagProtected  Features = 1 << 0  // writes to protected pages are faults
	ThreadID       Features = 1 << 8  // events name the thread
	MinorShmem     Features = 1 << 10 // Minor works on memfds
	ProtectShmem   Features = 1 << 12 // Protected works on memfds
	ProtectMissing Features = 1 << 13 // pages that are not there can be protected
	CanPoison      Features = 1 << 14 // Poison works
	missingShmem   Features = 1 << 5
)

// Needed are the features without which a memfd cannot be kept by another process.
const Needed = FlagProtected | ThreadID | MinorShmem | ProtectShmem | CanPoison | missingShmem

const (
	apiNumber = 0xaa
	// The ioctl numbers of <linux/userfaultfd.h>, equal on all processors that wherry is built for.
	ioctlAPI      = 0xc018aa3f
	ioctlRegister = 0xc020aa00
	ioctlWake     = 0x8010aa02
	ioctlCopy     = 0xc028aa03
	ioctlZero     = 0xc020aa04
	ioctlProtect  = 0xc018aa06
	ioctlContinue = 0xc020aa07
	ioctlPoison   = 0xc020aa08
	ioctlNew      = 0xaa00 // of /dev/userfaultfd

	device = "/dev/userfaultfd"
)

// ErrUnsupported: this kernel has no userfaultfd that is good enough, or this process may not use it.
var ErrUnsupported = errors.New("userfaultfd cannot be used here")

// FD is a userfaultfd. All methods but Close may be called by several threads at once.
type FD struct{ fd int }

// Open makes a descriptor for faults of this process, in user mode and in system calls, non-blocking.
func Open(want Features) (*FD, error) {
	fd, err := open()
	if err != nil {
		return nil, err
	}
	api := struct{ api, features, ioctls uint64 }{api: apiNumber, features: uint64(want)}
	if errno := ioctl(fd, ioctlAPI, unsafe.Pointer(&api)); errno != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: the kernel lacks some of the features %#x (%w); Linux 6.6 has all", ErrUnsupported, uint64(want), errno)
	}
	return &FD{fd}, nil
}

// open tries the system call, which root and vm.unprivileged_userfaultfd allow, then the device, which its owner allows.
func open() (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno == 0 {
		return int(fd), nil
	}
	refused := func(err error) error {
		return fmt.Errorf("%w: system call: %w, %s: %w; run as root, or sysctl vm.unprivileged_userfaultfd=1, or give the user %s (chmod, chown)",
			ErrUnsupported, errno, device, err, device)
	}
	dev, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, refused(err)
	}
	defer unix.Close(dev)
	made, _, failed := unix.Syscall(unix.SYS_IOCTL, uintptr(dev), ioctlNew, unix.O_CLOEXEC|unix.O_NONBLOCK)
	if failed != 0 {
		return -1, refused(failed)
	}
	return int(made), nil
}

// Probe reports whether a memfd's faults can be watched here: nil, or what is missing and what to do.
func Probe() error {
	f, err := Open(Needed)
	if err != nil {
		return err
	}
	return f.Close()
}

// Address is where a mapping begins, as Register wants it.
func Address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// Adopt makes an FD of a descriptor that another process opened. It is f's from now on, and made non-blocking: poll
// reports an error on a blocking one.
func Adopt(fd int) (*FD, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("uffd: make descriptor %d non-blocking: %w", fd, err)
	}
	return &FD{fd}, nil
}

// FD is the descriptor, for poll; it stays f's.
func (f *FD) FD() int { return f.fd }

// Close closes the descriptor. When the last one of an address space closes, its waiting threads go on as if it had never been watched:
// missing pages of a memfd then read as zeros.
func (f *FD) Close() error { return unix.Close(f.fd) }

// Register watches n bytes at addr; both are whole pages.
func (f *FD) Register(addr, n uint64, mode Mode) error {
	arg := struct{ start, len, mode, ioctls uint64 }{addr, n, uint64(mode), 0}
	if errno := ioctl(f.fd, ioctlRegister, unsafe.Pointer(&arg)); errno != 0 {
		return fmt.Errorf("uffd: watch %d bytes at %#x: %w", n, addr, errno)
	}
	return nil
}

// Copy fills the missing pages at addr with src, whole pages, and wakes the threads that wait for them. protect makes the next write to
// each a fault.
func (f *FD) Copy(addr uint64, src []byte, protect bool) (int, error) {
	const modeProtect = 2
	arg := struct {
		dst, src, len, mode uint64
		done                int64
	}{}
	if protect {
		arg.mode = modeProtect
	}
	return advance(len(src), func(n int) (unix.Errno, int64) {
		arg.dst, arg.src, arg.len, arg.done = addr+uint64(n), uint64(uintptr(unsafe.Pointer(&src[n]))), uint64(len(src)-n), 0
		errno := ioctl(f.fd, ioctlCopy, unsafe.Pointer(&arg))
		runtime.KeepAlive(src)
		return errno, arg.done
	})
}

// Zero fills the missing pages at addr with zeros, writable, and wakes the threads that wait for them.
func (f *FD) Zero(addr uint64, size int) (int, error) { return f.sized(ioctlZero, addr, size, 0) }

// Continue puts the file's pages into the page table, and wakes the threads that wait for them. protect is as in Copy.
func (f *FD) Continue(addr uint64, size int, protect bool) (int, error) {
	mode := uint64(0)
	if protect {
		mode = 2
	}
	return f.sized(ioctlContinue, addr, size, mode)
}

// Poison makes each later access to the missing pages at addr a SIGBUS, and wakes the threads that wait for them.
func (f *FD) Poison(addr uint64, size int) (int, error) { return f.sized(ioctlPoison, addr, size, 0) }

func (f *FD) sized(request uintptr, addr uint64, size int, mode uint64) (int, error) {
	arg := struct {
		start, len, mode uint64
		done             int64
	}{mode: mode}
	return advance(size, func(n int) (unix.Errno, int64) {
		arg.start, arg.len, arg.done = addr+uint64(n), uint64(size-n), 0
		return ioctl(f.fd, request, unsafe.Pointer(&arg)), arg.done
	})
}

// advance calls do, which goes on at byte n, until all size bytes are in place. After a partial result the kernel says EAGAIN and how
// many bytes it did; asked for the rest it tells the reason. EAGAIN without a count comes while mappings change.
func advance(size int, do func(n int) (unix.Errno, int64)) (int, error) {
	n := 0
	for n < size {
		errno, done := do(n)
		if errno == 0 {
			return size, nil
		}
		if errno != unix.EAGAIN || done <= 0 {
			return n, errno
		}
		n += int(done)
	}
	return n, nil
}

// Protect protects the pages at addr against writing, or ends that and wakes the writers that wait.
func (f *FD) Protect(addr uint64, size int, on bool) error {
	arg := struct{ start, len, mode uint64 }{addr, uint64(size), 0}
	if on {
		arg.mode = 1
	}
	if errno := ioctl(f.fd, ioctlProtect, unsafe.Pointer(&arg)); errno != 0 {
		return errno
	}
	return nil
}

// Wake lets the threads that wait for a page there try again.
func (f *FD) Wake(addr uint64, size int) error {
	if errno := f.ranged(ioctlWake, addr, uint64(size)); errno != 0 {
		return errno
	}
	return nil
}

func (f *FD) ranged(request uintptr, addr, n uint64) unix.Errno {
	arg := struct{ start, len uint64 }{addr, n}
	return ioctl(f.fd, request, unsafe.Pointer(&arg))
}

// ioctl may block in the kernel for memory and for the mappings' lock, so the Go scheduler is told (no RawSyscall).
func ioctl(fd int, request uintptr, arg unsafe.Pointer) unix.Errno {
	for {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != unix.EINTR {
			return errno
		}
	}
}

// Event is a page fault, as the kernel lays it out (struct uffd_msg).
type Event struct {
	kind  uint8
	_     [7]byte
	flags uint64
	// Addr is the faulting address, rounded down to its page.
	Addr   uint64
	thread uint32
	_      uint32
}

// Fault reports whether the event is a page fault; descriptors that Open makes have no other.
func (e *Event) Fault() bool { return e.kind == 0x12 }

// Write: the access was a write.
func (e *Event) Write() bool { return e.flags&1 != 0 }

// Minor: the file has the page.
func (e *Event) Minor() bool { return e.flags&4 != 0 }

// Thread is the faulting thread's id, as the kernel sees it from the reader's pid namespace.
func (e *Event) Thread() int { return int(e.thread) }

// Read takes the faults that wait, at most len(to); none is not an error.
func (f *FD) Read(to []Event) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_READ, uintptr(f.fd), uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(len(to))*unsafe.Sizeof(Event{}))
		switch errno {
		case 0:
			return int(n / unsafe.Sizeof(Event{})), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, fmt.Errorf("uffd: read faults: %w", os.NewSyscallError("read", errno))
		}
	}
}
