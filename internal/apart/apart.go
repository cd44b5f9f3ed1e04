// Package apart waits in system calls apart from the Go scheduler: a goroutine gives its processor (the runtime's P) to
// others before the call, not once the runtime's monitor has found out that it waits.
//
// An ordinary system call keeps the processor. The monitor takes it away when it looks the second time, and on a process that has run
// for a while it looks every 10 ms: with as many goroutines that compute as there are processors, one of them does not run for so long.
package apart

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runtime's own way into a system call of which it is known that it waits, and back. It promises to keep both (golang.org/issue/67401).
//
//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// EpollWait is epoll_wait for at most d, rounded up to whole milliseconds. It returns the number of events, and none after an error (EINTR),
// and how long the call slept: the wait for a processor afterwards is not in that.
// Where no other goroutine is ready it costs more than an ordinary call: a processor has to be found again afterwards.
func EpollWait(epfd int, events []unix.EpollEvent, d time.Duration) (n int, slept time.Duration) {
	if len(events) == 0 {
		return 0, 0
	}
	ms := min((d+time.Millisecond-1)/time.Millisecond, 1<<31-1)
	var began, ended unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &began)
	n, errno := wait(epfd, unsafe.SliceData(events), len(events), int(max(ms, 0)), &ended)
	slept = time.Duration(ended.Nano() - began.Nano())
	if errno != 0 {
		return 0, slept
	}
	return n, slept
}

// wait makes the system call, and reads the clock after it. Between its two ends the goroutine has no processor, so only what needs no more stack may be called. Its stack does not move
// meanwhile either, so that addresses in plain numbers stay right.
//
//go:nosplit
func wait(epfd int, events *unix.EpollEvent, most, ms int, ended *unix.Timespec) (n int, errno syscall.Errno) {
	entersyscallblock()
	got, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(events)), uintptr(most), uintptr(ms), 0, 0)
	syscall.RawSyscall6(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(ended)), 0, 0, 0, 0)
	exitsyscall()
	return int(got), errno
}
