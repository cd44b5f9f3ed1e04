package jail

import (
	"errors"
	"fmt"
	"runtime"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// only is a condition: an argument is one of a few values.
func only(call string, argument uint32, values ...uint64) []seccomp.NameWithConditions {
	var all []seccomp.NameWithConditions
	for _, v := range values {
		all = append(all, seccomp.NameWithConditions{Name: call, Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: seccomp.Equal, Value: v}}})
	}
	return all
}

// barePolicy lets code that has left Go wait, wake, look at the clock and end.
func barePolicy() seccomp.Policy {
	const wait, wake = 0, 1 // FUTEX_WAIT and FUTEX_WAKE
	return seccomp.Policy{DefaultAction: seccomp.ActionTrap, Syscalls: []seccomp.SyscallGroup{{
		Action:             seccomp.ActionAllow,
		Names:              []string{"clock_gettime", "exit_group"},
		NamesWithCondtions: only("futex", 1, wait, wake),
	}}}
}

// Bare is the filter of a process that has left Go. It is installed by that process.
func Bare() ([]unix.SockFilter, error) {
	if calls, ok := plain[runtime.GOARCH]; ok {
		return calls.program(), nil
	}
	policy := barePolicy()
	return assemble(&policy)
}

func assemble(policy *seccomp.Policy) ([]unix.SockFilter, error) {
	if _, err := arch.GetInfo(""); err != nil {
		return nil, fmt.Errorf("jail: seccomp: %w: %v", errors.ErrUnsupported, err)
	}
	program, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("jail: seccomp: %w", err)
	}
	filter := make([]unix.SockFilter, len(program))
	for i, instruction := range program {
		r, err := instruction.Assemble()
		if err != nil {
			return nil, fmt.Errorf("jail: seccomp: %w", err)
		}
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return filter, nil
}

// Supported says why processes cannot be confined here; nil: they can.
func Supported() error {
	if _, err := Bare(); err != nil {
		return err
	}
	if !seccomp.Supported() {
		return fmt.Errorf("jail: %w: this kernel has no seccomp filters", errors.ErrUnsupported)
	}
	return nil
}

// goPolicy is what a Go process needs that computes, allocates and reads and writes descriptors that it has. Found
// by test (TestGoProcess) for Go 1.26, with and without a C library. Memory is anonymous and never executable.
func goPolicy() seccomp.Policy {
	anonymous := seccomp.NameWithConditions{Name: "mmap", Conditions: seccomp.ArgumentConditions{
		{Argument: 2, Operation: seccomp.BitsNotSet, Value: unix.PROT_EXEC},
		{Argument: 3, Operation: seccomp.BitsSet, Value: unix.MAP_ANONYMOUS},
		{Argument: 3, Operation: seccomp.BitsSet, Value: unix.MAP_PRIVATE},
		{Argument: 3, Operation: seccomp.BitsNotSet, Value: unix.MAP_GROWSDOWN}, // RLIMIT_DATA does not count it
	}}
	plain := seccomp.NameWithConditions{Name: "mprotect", Conditions: seccomp.ArgumentConditions{
		{Argument: 2, Operation: seccomp.BitsNotSet, Value: unix.PROT_EXEC},
	}}
	threads := seccomp.NameWithConditions{Name: "clone", Conditions: seccomp.ArgumentConditions{
		{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD},
	}}
	self := only("tgkill", 0, uint64(unix.Getpid()))
	// A C library tries clone3 first, whose flags no filter can see, and then clone.
	const absent = seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)
	return seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{{Action: absent, Names: []string{"clone3"}}, {
		Action: seccomp.ActionAllow,
		Names: []string{"read", "write", "close", "fstat", "lseek", "futex", "nanosleep", "clock_nanosleep", "clock_gettime", "sched_yield",
			"sched_getaffinity", "gettid", "getpid", "munmap", "madvise", "mincore", "brk", "rt_sigreturn", "rt_sigprocmask", "rt_sigaction", "sigaltstack",
			"set_robust_list", "rseq", "restart_syscall", "exit", "exit_group", "epoll_create1", "eventfd2", "epoll_pwait", "epoll_ctl", "getrandom", "setitimer",
			"timer_create", "timer_settime", "timer_delete"},
		NamesWithCondtions: append(self, anonymous, plain, threads),
	}}}
}
