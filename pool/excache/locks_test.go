package excache

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// locksProgram is testdata/locks.c.
func locksProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "locks")
	if out, err := exec.Command("gcc", "-O1", "-Wall", "-o", program, "testdata/locks.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// locks reports whether this user may lock as much as a window.
func locks() bool {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	return os.Geteuid() == 0 || err == nil && limit.Cur == unix.RLIM_INFINITY
}

// TestLocked: of a program that locks all its memory, what it has and what it gets, each page comes from the cache still, and nothing is read in where it has
// no memory: that used to be zeros in a child, and a SIGBUS once memory was taken there.
func TestLocked(t *testing.T) {
	if !locks() {
		t.Skip("this user may not lock so much memory")
	}
	program := locksProgram(t)
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		r := newRig(t, &testStore{most: 20, mapped: mapped}, 2<<20)
		for _, how := range []string{"current", "future", "both"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				if got := r.run(t, program, how); got != "ok" {
					t.Errorf("%s", got)
				}
			})
		}
		if s := r.Stats(); s.LocalPages > 2<<20/PageBytes {
			t.Errorf("%s: %d pages are local", name, s.LocalPages)
		}
	}
}

// TestLockedShare: the same of a share, also in a child.
func TestLockedShare(t *testing.T) {
	if !locks() {
		t.Skip("this user may not lock so much memory")
	}
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, false)
			if got := r.output(t, program, "locked", "/wherry/work:table"); got != "ok" {
				t.Error(got)
			}
		})
	}
}

// TestStray: an access to what was never allocated is an error, as everywhere. The address is as good as any once it is allocated: it used to be a SIGBUS.
func TestStray(t *testing.T) {
	r := newRig(t, &testStore{most: 20, mapped: true}, 2<<20)
	if got := r.run(t, locksProgram(t), "stray"); got != "ok" {
		t.Errorf("%s", got)
	}
}

// TestNotDumped: remote memory is in no core dump: the kernel would read all of the window's addresses, for minutes, and bring what is away.
func TestNotDumped(t *testing.T) {
	r := newRig(t, &testStore{most: 20, mapped: true}, 2<<20)
	program := locksProgram(t)
	if got := r.run(t, program, "dumps"); got != "ok" {
		t.Errorf("%s", got)
	}
	shared, program2 := newSharedRig(t, true, false)
	reader, in, _ := shared.ready(t, program2, "lost", "/wherry/work:table")
	if dumped(t, strconv.Itoa(reader.Process.Pid)) {
		t.Error("a core dump would have what is shared")
	}
	in.Close()
	reader.Wait()
	cmd := r.command("/bin/sh", "-c", "ulimit -c unlimited; exec "+program+" dies")
	cmd.Dir = t.TempDir() // where the core goes, if that is this system's way
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer limit(cmd).Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
		t.Errorf("the program ended with %v, want SIGABRT", err)
	}
	cores, _ := filepath.Glob(filepath.Join(cmd.Dir, "core*"))
	for _, core := range cores {
		if info, err := os.Stat(core); err != nil || info.Size() > 1<<30 {
			t.Errorf("the core: %v, %v", info, err)
		}
	}
}

// dumped reports whether a process has a part of the window, or a share, that would be in its core dump.
func dumped(t *testing.T, pid string) (dumped bool) {
	t.Helper()
	f, err := os.Open("/proc/" + pid + "/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parts, in := 0, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if first, _, _ := strings.Cut(line, " "); !strings.HasSuffix(first, ":") {
			if in = strings.Contains(line, "wherry-window") || strings.Contains(line, "wherry-share"); in {
				parts++
			}
		} else if first == "VmFlags:" && in {
			dumped = dumped || !strings.Contains(line+" ", " dd ")
		}
	}
	if parts == 0 {
		t.Errorf("process %s has no window", pid)
	}
	return dumped
}
