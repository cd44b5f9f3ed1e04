package jail

import "golang.org/x/sys/unix"

// bareCalls are the numbers of Bare's system calls on a processor, whose name the kernel says as audit.
type bareCalls struct{ audit, clockGettime, exitGroup, futex uint32 }

// plain are the processors that the library which makes filters does not know. Their system calls have the generic numbers (asm-generic/unistd.h).
var plain = map[string]bareCalls{"riscv64": {unix.AUDIT_ARCH_RISCV64, 113, 94, 98}}

// Where things are in what a filter looks at (struct seccomp_data); the words of an argument are in little-endian order.
const (
	dataCall  = 0
	dataAudit = 4
	dataArgs  = 16
)

// program is barePolicy as the kernel takes it: a forbidden call ends in SIGSYS.
func (c bareCalls) program() []unix.SockFilter {
	const word, equal = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	const operation = dataArgs + 8*1 // of futex
	const wait, wake = 0, 1          // FUTEX_WAIT and FUTEX_WAKE
	return []unix.SockFilter{
		{Code: word, K: dataAudit},
		{Code: equal, K: c.audit, Jf: 9},
		{Code: word, K: dataCall},
		{Code: equal, K: c.clockGettime, Jt: 8},
		{Code: equal, K: c.exitGroup, Jt: 7},
		{Code: equal, K: c.futex, Jf: 5},
		{Code: word, K: operation + 4},
		{Code: equal, K: 0, Jf: 3},
		{Code: word, K: operation},
		{Code: equal, K: wait, Jt: 2},
		{Code: equal, K: wake, Jt: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_TRAP},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
}
