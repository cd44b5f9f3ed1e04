package jail

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confined is the last argument of this test binary as a process to be confined.
const confined = "confined"

// confinedFake is it as one whose requests for executable memory are answered, but not carried out.
const confinedFake = "confined-fake-exec"

func TestMain(m *testing.M) {
	switch os.Args[len(os.Args)-1] {
	case confined:
		inside(false)
		return
	case confinedFake:
		inside(true)
		return
	}
	os.Exit(m.Run())
}

// inside confines the process, goes on as a Go process does, and then tries what it must not.
func inside(fakeExec bool) {
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	report := map[string]string{"mmap before": text(err)}
	maps, err := os.Open("/proc/self/maps")
	report["maps"] = text(err)
	note, err := Enter(fakeExec)
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
	report["the memory"] = rights(maps, at)
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		os.Exit(1)
	}
}

// rights is how a page is mapped, by the process's memory map, which was opened before.
func rights(maps *os.File, at uintptr) string {
	text, err := io.ReadAll(maps)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		var from, to uintptr
		var how string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &how); err == nil && from <= at && at < to {
			return how
		}
	}
	return "not mapped"
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

// TestGoProcess: a confined Go process works on, and has no way to files, sockets, other processes or new code. Nor has one that is told
// that its code is executable.
func TestGoProcess(t *testing.T) {
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	for _, how := range []string{confined, confinedFake} {
		t.Run(how, func(t *testing.T) {
			out, err := exec.Command("/proc/self/exe", how).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var report map[string]string
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := map[string]string{"mmap before": "", "maps": "", "enter": "", "work": "done", "the memory": "rw-p"}
			if how == confinedFake {
				want["make executable"] = syscall.Errno(0).Error()
			}
			for name, want := range want {
				if report[name] != want {
					t.Errorf("%s: %q, want %q", name, report[name], want)
				}
				delete(report, name)
			}
			t.Logf("the kernel lacks: %q", report["note"])
			delete(report, "note")
			if len(report) != 17-len(want) {
				t.Errorf("%d attempts", len(report))
			}
			for name, got := range report {
				if got != unix.EPERM.Error() {
					t.Errorf("%s: %q", name, got)
				}
			}
		})
	}
}
