package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// confined is the last argument of this test binary as a process to be confined.
const confined = "confined"

func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] == confined {
		inside()
		return
	}
	os.Exit(m.Run())
}

// inside confines the process, goes on as a Go process does, and then tries what it must not.
func inside() {
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	report := map[string]string{"mmap before": text(err)}
	note, err := Enter(Limits{CPUSeconds: 60})
	report["enter"], report["note"] = text(err), note
	work()
	report["work"] = "done"
	attempt := func(name string, call uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.Syscall6(call, a[0], a[1], a[2], a[3], a[4], a[5])
		report[name] = errno.Error()
	}
	path := []byte("/etc/passwd\x00")
	at := uintptr(unsafe.Pointer(&memory[0]))
	attempt("open", unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY)
	attempt("socket", unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM)
	attempt("exec", unix.SYS_EXECVE, uintptr(unsafe.Pointer(&path[0])), 0, 0)
	attempt("fork", unix.SYS_CLONE, uintptr(unix.SIGCHLD))
	attempt("kill", unix.SYS_KILL, uintptr(os.Getppid()), 0)
	attempt("signal to another", unix.SYS_TGKILL, uintptr(os.Getppid()), uintptr(os.Getppid()), 0)
	attempt("executable memory", unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0))
	attempt("map a file", unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE, 1)
	attempt("make executable", unix.SYS_MPROTECT, at, 4096, unix.PROT_READ|unix.PROT_EXEC)
	attempt("mremap", unix.SYS_MREMAP, at, 4096, 8192, unix.MREMAP_MAYMOVE)
	attempt("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(os.Getppid()))
	attempt("limits", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CPU)
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		os.Exit(1)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// work is what the Go runtime has to be able to do.
func work() {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			kept := make([][]byte, 0, 64)
			for range 64 {
				kept = append(kept, make([]byte, 64<<10))
				runtime.Gosched()
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			runtime.LockOSThread() // so that threads end and begin
			runtime.KeepAlive(kept)
		})
	}
	all.Wait()
	runtime.GC()
	debug.FreeOSMemory()
	<-time.After(2 * time.Millisecond)
}

// TestGoProcess: a confined Go process works on, and has no way to files, sockets, other processes or new code.
func TestGoProcess(t *testing.T) {
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("/proc/self/exe", confined).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report map[string]string
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{"mmap before": "", "enter": "", "work": "done"} {
		if report[name] != want {
			t.Errorf("%s: %q, want %q", name, report[name], want)
		}
		delete(report, name)
	}
	t.Logf("the kernel lacks: %q", report["note"])
	delete(report, "note")
	if len(report) != 12 {
		t.Errorf("%d attempts", len(report))
	}
	for name, got := range report {
		if got != unix.EPERM.Error() {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestBare: the filter of a process that has left Go allows what it says, by name and argument.
func TestBare(t *testing.T) {
	filter, err := Bare()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil || len(filter) == 0 || len(filter) > 64 {
		t.Fatalf("%d instructions, %v", len(filter), err)
	}
	var names []string
	for _, g := range barePolicy().Syscalls {
		names = append(names, g.Names...)
		for _, n := range g.NamesWithCondtions {
			names = append(names, fmt.Sprintf("%s(%d)", n.Name, n.Conditions[0].Value))
		}
	}
	if got := strings.Join(names, " "); got != "clock_gettime exit_group futex(0) futex(1)" {
		t.Errorf("it allows %s: whoever adds to that says why in its comment and here", got)
	}
}

// TestNames: the policies' system calls are there on both processors that filters can be made for.
func TestNames(t *testing.T) {
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, policy := range []seccomp.Policy{barePolicy(), goPolicy()} {
			for _, g := range policy.Syscalls {
				names := g.Names
				for _, n := range g.NamesWithCondtions {
					names = append(names, n.Name)
				}
				for _, name := range names {
					if _, ok := info.SyscallNames[name]; !ok {
						t.Errorf("%s has no system call %s", info.Name, name)
					}
				}
			}
		}
	}
}
