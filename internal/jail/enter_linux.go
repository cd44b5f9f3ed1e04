package jail

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDescriptors is for what a process has open when it is confined; it can open nothing more.
const maxDescriptors = 16

// Thread confines the calling thread, which must be locked to its goroutine, and what it starts: no new privileges, no core
// files, no files, ports or signals to others (Landlock). note says what the kernel does not offer of that; "" if it is all there.
func Thread() (note string, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("jail: no_new_privs: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return "", fmt.Errorf("jail: no core files: %w", err)
	}
	return landlock()
}

// Enter confines the whole process, all its threads, which may go on as a Go process that has opened, mapped and
// loaded what it needs. It can write to no file. Landlock covers the calling thread only, and what it starts; the filter covers all.
// fakeExec answers a request to make memory executable with success, and leaves the memory as it was: for a compiler that makes its output
// executable and never runs it. Otherwise such a request is refused.
func Enter(fakeExec bool) (note string, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if note, err = Thread(); err != nil {
		return note, err
	}
	limits := map[int]uint64{unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: maxDescriptors}
	for which, most := range limits {
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return "", fmt.Errorf("jail: resource limit %d of %d: %w", which, most, err)
		}
	}
	if err := Supported(); err != nil {
		return note, err
	}
	filter, err := assemble(goRules(fakeExec), refuse)
	if err != nil {
		return note, err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// It returns the number of a thread that cannot follow: there is none, as no thread of this process has a filter of its own.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 || thread != 0 {
		return note, fmt.Errorf("jail: seccomp filter: %w (thread %d)", errno, thread)
	}
	return note, nil
}

// The access rights of Landlock, by the version of its ABI that brought them (linux/landlock.h).
const (
	landlockFS1    = 1<<13 - 1 // execute … make_sym
	landlockRefer  = 1 << 13   // 2
	landlockTrunc  = 1 << 14   // 3
	landlockIoctl  = 1 << 15   // 5
	landlockTCP    = 1<<0 | 1<<1
	landlockScopes = 1<<0 | 1<<1 // 6: abstract Unix sockets, signals
)

// landlock takes away all that it knows of, and allows nothing.
func landlock() (note string, err error) {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return fmt.Sprintf("no Landlock (%v): files and ports are kept from it by the system-call filter only", errno), nil
	}
	attr := struct{ fs, net, scoped uint64 }{fs: landlockFS1}
	size := unsafe.Sizeof(attr.fs)
	for _, step := range []struct {
		from uintptr
		bits *uint64
		more uint64
		size uintptr
	}{
		{2, &attr.fs, landlockRefer, 8}, {3, &attr.fs, landlockTrunc, 8}, {4, &attr.net, landlockTCP, 16},
		{5, &attr.fs, landlockIoctl, 16}, {6, &attr.scoped, landlockScopes, 24},
	} {
		if abi >= step.from {
			*step.bits |= step.more
			size = step.size
		}
	}
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return "", fmt.Errorf("jail: Landlock rules: %w", errno)
	}
	defer unix.Close(int(rules))
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return "", fmt.Errorf("jail: Landlock: %w", errno)
	}
	if abi < 6 {
		note = fmt.Sprintf("Landlock of version %d: signals to others are kept from it by the system-call filter only", abi)
	}
	return note, nil
}
