package jail

import (
	"encoding/binary"
	"os"
	"testing"

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
	for at := 0; at < len(filter); at++ {
		switch f := filter[at]; f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(data[f.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= f.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if a == f.K {
				at += int(f.Jt)
			} else {
				at += int(f.Jf)
			}
		case unix.BPF_RET:
			return f.K
		default:
			t.Fatalf("instruction %d has the code %#x", at, f.Code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func made(t *testing.T, rules []rule, otherwise uint32) (filter []unix.SockFilter, audit uint32) {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	filter, err := assemble(rules, otherwise)
	if err != nil {
		t.Fatal(err)
	}
	return filter, filter[1].K
}

// TestBare: code that has left Go may make four system calls, by name and argument; whoever adds to them says why in a comment and here.
func TestBare(t *testing.T) {
	filter, audit := made(t, bareRules(), trap)
	if len(filter) > 16 {
		t.Errorf("%d instructions, of which the kernel interprets each for each worker", len(filter))
	}
	for call := range uint32(1024) {
		for _, operation := range []uint64{0, 1, 2, 9, 128, 1 << 32, 1<<32 | 1, 1<<64 - 1} {
			want := uint32(trap)
			if call == unix.SYS_CLOCK_GETTIME || call == unix.SYS_EXIT_GROUP || call == unix.SYS_FUTEX && operation < 2 {
				want = allow
			}
			if got := verdict(t, filter, audit, call, 7, operation, 1); got != want {
				t.Errorf("call %d with %#x: %#x, want %#x", call, operation, got, want)
			}
		}
	}
	if got := verdict(t, filter, audit^1, unix.SYS_EXIT_GROUP); got != trap {
		t.Errorf("a call of another processor's kind: %#x", got)
	}
}

// TestConditions: a call whose arguments break a condition is refused whatever the other arguments are, those that look like another call's number
// too. (The library that made these filters once compared an argument with the numbers of the calls that came next: a confined compiler could signal the
// processes 9 and 10, and map a file.)
func TestConditions(t *testing.T) {
	self := uint64(os.Getpid())
	values := []uint64{0, 1, 2, 3, 4, 5, 6, 7, self, self | 1<<32, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_GROWSDOWN,
		unix.MAP_SHARED | unix.MAP_ANONYMOUS, unix.CLONE_THREAD, uint64(unix.SIGCHLD), 1<<64 - 1}
	for call := range uint64(512) {
		values = append(values, call)
	}
	for _, fakes := range []bool{false, true} {
		filter, audit := made(t, goRules(fakes), refuse)
		check := func(name string, want uint32, call uint32, args ...uint64) {
			t.Helper()
			if got := verdict(t, filter, audit, call, args...); got != want {
				t.Errorf("fake %v: %s with %#x: %#x, want %#x", fakes, name, args, got, want)
			}
		}
		when := func(met bool) uint32 {
			if met {
				return allow
			}
			return refuse
		}
		for _, a := range values {
			check("tgkill", when(a == self), unix.SYS_TGKILL, a, a, 9, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			check("clone", when(a&unix.CLONE_THREAD != 0), unix.SYS_CLONE, a)
			protection := when(a&unix.PROT_EXEC == 0)
			if fakes && protection == refuse {
				protection = fake
			}
			check("mprotect", protection, unix.SYS_MPROTECT, 4096, 4096, a)
			for _, b := range values {
				const need = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
				check("mmap", when(a&unix.PROT_EXEC == 0 && b&need == need && b&unix.MAP_GROWSDOWN == 0), unix.SYS_MMAP, 0, 4096, a, b, 3)
			}
		}
		check("clone3", absent, unix.SYS_CLONE3)
		for name, call := range map[string]uint32{"openat": unix.SYS_OPENAT, "socket": unix.SYS_SOCKET, "execve": unix.SYS_EXECVE, "kill": unix.SYS_KILL,
			"mremap": unix.SYS_MREMAP, "ptrace": unix.SYS_PTRACE, "io_uring_setup": unix.SYS_IO_URING_SETUP, "of x32": 1<<30 | unix.SYS_READ} {
			check(name, refuse, call)
		}
	}
}
