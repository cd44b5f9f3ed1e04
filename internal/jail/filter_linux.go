package jail

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// rule is what happens to a system call whose arguments meet all conditions. The first rule that fits decides.
type rule struct {
	call   uint32
	when   []condition
	answer uint32 // SECCOMP_RET_…
}

// condition is met by an argument of which the bits of mask are those of value.
type condition struct {
	argument    uint32
	mask, value uint64
}

func equals(argument uint32, value uint64) condition { return condition{argument, ^uint64(0), value} }
func has(argument uint32, bits uint64) condition     { return condition{argument, bits, bits} }
func lacks(argument uint32, bits uint64) condition   { return condition{argument, bits, 0} }

// The answers to a forbidden call: bare code, which expects none, is ended by a signal that says which call it was; a Go process gets an error, as its
// runtime probes for some calls. fake says that a call was carried out, which was not.
const (
	trap   = unix.SECCOMP_RET_TRAP
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	fake   = unix.SECCOMP_RET_ERRNO
	allow  = unix.SECCOMP_RET_ALLOW
)

// Where things are in what a filter looks at (struct seccomp_data); the words of an argument are in little-endian order.
const (
	dataCall  = 0
	dataAudit = 4
	dataArgs  = 16
)

// audits are the names that the kernel has for the processors that filters are made for.
var audits = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}

// assemble makes a filter of rules; what fits none, or is a call of another processor's kind, is answered with otherwise. No jump in it is longer than
// one rule, and each rule with conditions loads the call's number anew.
func assemble(rules []rule, otherwise uint32) ([]unix.SockFilter, error) {
	audit, ok := audits[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("jail: seccomp: %w for %s", errors.ErrUnsupported, runtime.GOARCH)
	}
	const equal, and, ret = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	program := []unix.SockFilter{load(dataAudit), {Code: equal, K: audit, Jt: 1}, {Code: ret, K: otherwise}, load(dataCall)}
	for i, r := range rules {
		if i > 0 && len(rules[i-1].when) > 0 {
			program = append(program, load(dataCall))
		}
		own := []unix.SockFilter{{Code: equal, K: r.call}}
		for _, c := range r.when {
			for word := range uint32(2) {
				mask, value := uint32(c.mask>>(32*word)), uint32(c.value>>(32*word))
				if mask == 0 {
					continue
				}
				own = append(own, load(dataArgs+8*c.argument+4*word))
				if mask != ^uint32(0) {
					own = append(own, unix.SockFilter{Code: and, K: mask})
				}
				own = append(own, unix.SockFilter{Code: equal, K: value})
			}
		}
		own = append(own, unix.SockFilter{Code: ret, K: r.answer})
		for at := range own {
			if own[at].Code == equal {
				own[at].Jf = uint8(len(own) - at - 1)
			}
		}
		program = append(program, own...)
	}
	return append(program, unix.SockFilter{Code: ret, K: otherwise}), nil
}

// bareRules let code that has left Go wait, wake, look at the clock and end.
func bareRules() []rule {
	const wake = 1 // FUTEX_WAKE; FUTEX_WAIT is 0
	return []rule{
		{call: unix.SYS_CLOCK_GETTIME, answer: allow},
		{call: unix.SYS_EXIT_GROUP, answer: allow},
		{call: unix.SYS_FUTEX, when: []condition{lacks(1, ^uint64(wake))}, answer: allow},
	}
}

// Bare is the filter of a process that has left Go. It is installed by that process.
func Bare() ([]unix.SockFilter, error) { return assemble(bareRules(), trap) }

// Supported says why processes cannot be confined here; nil: they can.
func Supported() error {
	if _, err := Bare(); err != nil {
		return err
	}
	// Strict mode takes no flags: a kernel that has filters says so, others do not know the call.
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_STRICT, 1, 0); errno != unix.EINVAL {
		return fmt.Errorf("jail: %w: this kernel has no seccomp filters", errors.ErrUnsupported)
	}
	return nil
}

// plainCalls are those that a Go process needs that computes, allocates, and reads and writes descriptors that it has. Found by test (TestGoProcess) for
// Go 1.26, with and without a C library.
var plainCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_MUNMAP, unix.SYS_MADVISE,
	unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_RESTART_SYSCALL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_GETRANDOM, unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
}

// goRules are for a Go process, which may signal itself and start threads besides. Memory is anonymous and never executable; with fakeExec the process is
// told that it is.
func goRules(fakeExec bool) []rule {
	var rules []rule
	for _, call := range slices.Sorted(slices.Values(plainCalls)) {
		rules = append(rules, rule{call: call, answer: allow})
	}
	rules = append(rules,
		rule{call: unix.SYS_CLONE3, answer: absent}, // a C library tries it first, whose flags no filter can see, and then clone
		rule{call: unix.SYS_CLONE, when: []condition{has(0, unix.CLONE_THREAD)}, answer: allow},
		rule{call: unix.SYS_TGKILL, when: []condition{equals(0, uint64(unix.Getpid()))}, answer: allow},
		rule{call: unix.SYS_MPROTECT, when: []condition{lacks(2, unix.PROT_EXEC)}, answer: allow},
		rule{call: unix.SYS_MMAP, when: []condition{lacks(2, unix.PROT_EXEC),
			has(3, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE), lacks(3, unix.MAP_GROWSDOWN)}, answer: allow}, // RLIMIT_DATA does not count what grows down
	)
	if fakeExec {
		rules = append(rules, rule{call: unix.SYS_MPROTECT, answer: fake})
	}
	return rules
}
