package jail

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// verdict is what a filter says of a system call: this is what the kernel does with it, for the instructions that these filters have.
func verdict(t *testing.T, filter []unix.SockFilter, audit, call uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[dataCall:], call)
	binary.LittleEndian.PutUint32(data[dataAudit:], audit)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[dataArgs+8*i:], a)
	}
	a := uint32(0)
	jump := func(at int, f unix.SockFilter, yes bool) int {
		if yes {
			return at + int(f.Jt)
		}
		return at + int(f.Jf)
	}
	for at := 0; at < len(filter); at++ {
		switch f := filter[at]; f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(data[f.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			at = jump(at, f, a == f.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			at = jump(at, f, a >= f.K)
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(f.K)
		case unix.BPF_RET:
			return f.K
		default:
			t.Fatalf("instruction %d has the code %#x", at, f.Code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

// TestPlain: the filter that is made by hand says of every system call what the library's does, where there are both.
func TestPlain(t *testing.T) {
	library, err := Bare()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	here, err := arch.GetInfo("")
	if err != nil {
		t.Skip(err) // this processor has the one that is made by hand only
	}
	number := func(name string) uint32 { return uint32(here.SyscallNames[name]) }
	own := bareCalls{uint32(here.ID), number("clock_gettime"), number("exit_group"), number("futex")}.program()
	allowed := 0
	for call := range uint32(1024) {
		for _, operation := range []uint64{0, 1, 2, 9, 128, 1 << 32, 1<<32 | 1, 1<<64 - 1} {
			args := []uint64{7, operation, 1, 0, 0, 0}
			got, want := verdict(t, own, uint32(here.ID), call, args...), verdict(t, library, uint32(here.ID), call, args...)
			if got != want {
				t.Errorf("call %d with %#x: %#x, the library says %#x", call, operation, got, want)
			}
			if got == unix.SECCOMP_RET_ALLOW {
				allowed++
			}
		}
	}
	if allowed != 2*8+2 {
		t.Errorf("%d of them are allowed", allowed)
	}
	if got := verdict(t, own, uint32(here.ID)^1, number("exit_group")); got == unix.SECCOMP_RET_ALLOW {
		t.Error("a call of another processor's kind is allowed")
	}
}

// TestPlainNumbers: the numbers are the generic ones, as aarch64 has them too.
func TestPlainNumbers(t *testing.T) {
	names := arch.AARCH64.SyscallNames
	for name, c := range plain {
		if int(c.clockGettime) != names["clock_gettime"] || int(c.exitGroup) != names["exit_group"] || int(c.futex) != names["futex"] {
			t.Errorf("%s: %+v", name, c)
		}
		if got := verdict(t, c.program(), c.audit, c.futex, 7, 1); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("%s: futex is answered by %#x", name, got)
		}
		if got := verdict(t, c.program(), c.audit, 56); got != unix.SECCOMP_RET_TRAP { // openat
			t.Errorf("%s: openat is answered by %#x", name, got)
		}
	}
}
