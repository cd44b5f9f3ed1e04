package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
)

func randomFile(t *testing.T, name string, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(data)
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTools runs what people run: cp, sha256sum and fio, over both transports.
func TestTools(t *testing.T) {
	for _, c := range []struct{ name, listen string }{
		{"tcp", anyPort}, {"shm", fmt.Sprintf("shm://@ioforward-tools-%d", os.Getpid())},
	} {
		t.Run(c.name, func(t *testing.T) {
			served := t.TempDir()
			_, addr := serveDir(t, served, c.listen)
			dir, p := mountAt(t, addr)
			const size = 64 << 20
			big := filepath.Join(t.TempDir(), "big")
			sum := fmt.Sprintf("%x", sha256.Sum256(randomFile(t, big, size)))
			mustTool(t, "cp", "-p", big, filepath.Join(dir, "big"))
			mustTool(t, "cp", filepath.Join(dir, "big"), filepath.Join(dir, "again"))
			for _, name := range []string{filepath.Join(dir, "big"), filepath.Join(served, "big"), filepath.Join(dir, "again")} {
				if out := mustTool(t, "sha256sum", name); !strings.HasPrefix(out, sum) {
					t.Errorf("sha256sum %s: %s, want %s", name, out, sum)
				}
			}
			if out := mustTool(t, "df", dir); !strings.Contains(out, addr) {
				t.Errorf("df: %s", out)
			}
			for _, args := range [][]string{
				{"--rw=randrw", "--bsrange=4k-64k", "--ioengine=psync"},
				{"--rw=randwrite", "--bs=16k", "--ioengine=libaio", "--iodepth=16", "--direct=1"},
				{"--rw=randrw", "--bs=8k", "--ioengine=libaio", "--iodepth=16", "--direct=1"},
				{"--rw=randwrite", "--bs=4k", "--ioengine=mmap"},
				{"--rw=rw", "--bs=128k", "--ioengine=psync", "--numjobs=2"},
			} {
				runFio(t, dir, args...)
			}
			unmounts(t, dir, p)
		})
	}
}

// runFio writes 16 MiB and compares what it reads with checksums.
func runFio(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("fio"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("fio is not installed: %v", err)
		}
		t.Skipf("fio is not installed: %v", err)
	}
	out := mustTool(t, "fio", append([]string{"--name=v", "--directory=" + dir, "--size=16m", "--verify=crc32c", "--verify_fatal=1",
		"--do_verify=1", "--verify_state_save=0", "--end_fsync=1", "--unlink=1"}, args...)...)
	if !strings.Contains(out, "err= 0") || strings.Contains(out, "verify:") {
		t.Errorf("fio %v:\n%s", args, out)
	}
}

// TestManyNames makes, lists, renames and removes a thousand files.
func TestManyNames(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	mnt, p := mountAt(t, addr)
	dir := filepath.Join(mnt, "many")
	const files = 1000
	err := within(t, 2*patience, "a thousand files", func() error {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%04d", i)), fmt.Appendf(nil, "%d", i), 0o644); err != nil {
				return err
			}
		}
		for i := range files {
			if err := os.Rename(filepath.Join(dir, fmt.Sprintf("f%04d", i)), filepath.Join(dir, fmt.Sprintf("g%04d", i))); err != nil {
				return err
			}
		}
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != files || list[files-1].Name() != "g0999" {
			return fmt.Errorf("listed %d names, %v", len(list), err)
		}
		info, err := list[123].Info()
		if err != nil || info.Size() != 3 {
			return fmt.Errorf("the 124th: %v, %v", info, err)
		}
		for i := range files / 2 {
			if err := os.Remove(filepath.Join(dir, fmt.Sprintf("g%04d", i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := mustTool(t, "find", dir, "-name", "g*", "-newermt", "2000-01-01"); strings.Count(out, "\n") != files/2 {
		t.Errorf("find found %d", strings.Count(out, "\n"))
	}
	if err := os.Remove(dir); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rmdir of a full directory: %v", err)
	}
	mustTool(t, "rm", "-r", dir)
	if left, err := os.ReadDir(served); err != nil || len(left) != 0 {
		t.Errorf("the node still has %v, %v", left, err)
	}
	unmounts(t, mnt, p)
}

// TestPosix looks at what programs rely on in a file system.
func TestPosix(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr)
	name := filepath.Join(dir, "f")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("hello")
	if info, err := os.Stat(name); err != nil || info.Size() != 5 || info.Mode() != 0o640 {
		t.Errorf("stat before close: %v, %v", info, err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "hello" {
		t.Errorf("read by another handle before close: %q, %v", got, err)
	}
	a, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.WriteString(", world")
	a.Close()
	if got, _ := os.ReadFile(name); string(got) != "hello, world" {
		t.Errorf("after an append: %q", got)
	}
	if err := os.Remove(name); err != nil {
		t.Error(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 12 {
		t.Errorf("fstat of a file that was removed: %v, %v", info, err)
	}
	if err := f.Truncate(3); err != nil {
		t.Error(err)
	}
	when := time.Unix(1e9, 5)
	if err := errors.Join(f.Chmod(0o604), setTimes(f, when)); err != nil {
		t.Errorf("of a file that was removed: %v", err)
	}
	if info, err := f.Stat(); err != nil || info.Mode() != 0o604 || !info.ModTime().Equal(when) {
		t.Errorf("after that: %v, %v, %v", info.Mode(), info.ModTime(), err)
	}
	got := make([]byte, 10)
	if n, _ := f.ReadAt(got, 0); string(got[:n]) != "hel" {
		t.Errorf("after truncate: %q", got[:n])
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.Chtimes(name, when, when); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(served, "f")); err != nil || !info.ModTime().Equal(when) {
		t.Errorf("the node's time: %v, %v", info, err)
	}
	if err := os.Chown(name, 12345, -1); !errors.Is(err, syscall.EPERM) {
		t.Errorf("chown: %v", err)
	}
	if err := os.Symlink("f", filepath.Join(dir, "s")); err == nil {
		t.Error("a link was made")
	}
	renamesDirectories(t, dir)
	keepsTimes(t, served, dir)
	unmounts(t, dir, p)
}

// keepsTimes sets times of other centuries, by name and by handle, on the mount and at the node. A disk that has no such
// time has the nearest: the mount then has what the disk has.
func keepsTimes(t *testing.T, served, mounted string) {
	t.Helper()
	local := t.TempDir()
	for i, year := range []int{1901, 1969, 2106, 2263, 2400} {
		when := time.Date(year, 7, 1, 2, 3, 4, 567, time.UTC)
		sec := []unix.Timespec{{Sec: when.Unix() - 1, Nsec: 8}, {Sec: when.Unix(), Nsec: int64(when.Nanosecond())}}
		set := func(dir, name string) unix.Stat_t {
			name = filepath.Join(dir, fmt.Sprint(name, i))
			f, err := os.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if strings.Contains(name, "handle") {
				err = unix.UtimesNanoAt(int(f.Fd()), "", sec, unix.AT_EMPTY_PATH)
			} else {
				err = unix.UtimesNanoAt(unix.AT_FDCWD, name, sec, 0)
			}
			if err != nil {
				t.Errorf("the year %d to %s: %v", year, name, err)
			}
			return stat(t, name)
		}
		want := set(local, "times")
		for _, name := range []string{"name", "handle"} {
			set(mounted, name)
		}
		set(served, "node")
		for _, name := range []string{"name", "handle", "node"} {
			for _, dir := range []string{served, mounted} {
				if got := stat(t, filepath.Join(dir, fmt.Sprint(name, i))); got.Mtim != want.Mtim || got.Atim != want.Atim {
					t.Errorf("%d by %s in %s: %v and %v, want %v and %v", year, name, dir, got.Mtim, got.Atim, want.Mtim, want.Atim)
				}
			}
		}
	}
	list, err := os.ReadDir(mounted) // attributes that come with a listing
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if info, err := e.Info(); err != nil || info.ModTime().Unix() != stat(t, filepath.Join(served, e.Name())).Mtim.Sec {
			t.Errorf("listed: %v, %v", info, err)
		}
	}
}

func stat(t *testing.T, name string) (st unix.Stat_t) {
	t.Helper()
	if err := unix.Stat(name, &st); err != nil {
		t.Error(err)
	}
	return st
}

// setTimes is futimens.
func setTimes(f *os.File, when time.Time) error {
	to := unix.Timespec{Sec: when.Unix(), Nsec: int64(when.Nanosecond())}
	return unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{to, to}, unix.AT_EMPTY_PATH)
}

// renamesDirectories compares what takes whose place with a file system of this machine.
func renamesDirectories(t *testing.T, mounted string) {
	t.Helper()
	local := t.TempDir()
	for _, dir := range []string{local, mounted} {
		for _, name := range []string{"empty", "moved/in", "full/in"} {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{"moved", "full", syscall.ENOTEMPTY}, {"moved", "plain", syscall.ENOTDIR}, {"plain", "empty", syscall.EISDIR},
		{"moved", "moved/in/side", syscall.EINVAL}, {"moved", "moved", nil}, {"moved", "empty", nil}, {"full/in", "empty/in", nil},
	} {
		for _, dir := range []string{local, mounted} { // os.Rename has a check of its own
			if err := syscall.Rename(filepath.Join(dir, c.from), filepath.Join(dir, c.to)); !errors.Is(err, c.want) {
				t.Errorf("rename %s to %s in %s: %v, want %v", c.from, c.to, dir, err, c.want)
			}
		}
	}
	if got, err := os.ReadDir(filepath.Join(mounted, "empty")); err != nil || len(got) != 1 || got[0].Name() != "in" {
		t.Errorf("the directory that was moved has %v, %v", got, err)
	}
}

// TestLinksLeadNowhere checks that a link in the served directory gives no way to the
// node's other files. The kernel resolves links here, so they lead to files here.
func TestLinksLeadNowhere(t *testing.T) {
	parent := t.TempDir()
	served := filepath.Join(parent, "served")
	if err := os.Mkdir(served, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "secret"), []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"rel": "../secret", "up": ".."} {
		if err := os.Symlink(target, filepath.Join(served, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr)
	for _, name := range []string{"rel", "up/secret"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: read %q", name, got)
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "rel")); err != nil || target != "../secret" {
		t.Errorf("readlink: %q, %v", target, err)
	}
	unmounts(t, dir, p)
}

// TestDeadMountInside lists a directory with an entry that nobody can look at: a mount whose program was killed.
func TestDeadMountInside(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	dead := filepath.Join(served, "dead")
	if err := errors.Join(os.Mkdir(dead, 0o755), os.WriteFile(filepath.Join(served, "f"), []byte("data"), 0o644)); err != nil {
		t.Fatal(err)
	}
	dir, p := mountAt(t, addr)
	killed := start(t, "mount", "--anybody", addr, dead)
	t.Cleanup(func() { syscall.Unmount(dead, syscall.MNT_DETACH) })
	killed.line()
	killed.end(syscall.SIGKILL)

	o := options{anybody: true, policy: "balanced"}
	el, end, err := o.element("client", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	c, err := remote.New(t.Context(), el, remote.Config{Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for what, list := range map[string]func() ([]os.DirEntry, error){
		"mount": func() ([]os.DirEntry, error) { return os.ReadDir(dir) }, "client": func() ([]os.DirEntry, error) { return c.ReadDir(t.Context(), ".") },
	} {
		got, err := list()
		if err != nil || len(got) != 2 || got[0].Name() != "dead" || got[1].Name() != "f" {
			t.Errorf("the %s lists %v, %v", what, got, err)
			continue
		}
		if info, err := got[0].Info(); !got[0].IsDir() || !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("the %s's dead one: %v; %v, %v", what, got[0], info, err)
		}
		if info, err := got[1].Info(); err != nil || info.Size() != 4 {
			t.Errorf("the %s's other: %v, %v", what, info, err)
		}
	}
	mustTool(t, "ls", "-U", dir)
	unmounts(t, dir, p)
}

// TestTwoMounts writes by one mount and reads by another.
func TestTwoMounts(t *testing.T) {
	_, addr := serveDir(t, t.TempDir(), anyPort)
	a, pa := mountAt(t, addr)
	b, pb := mountAt(t, addr, "--cache", "100ms")
	for i := range 5 {
		data := bytes.Repeat([]byte{byte('a' + i)}, 700_000+i)
		if err := os.WriteFile(filepath.Join(a, "f"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // longer than b's kernel keeps attributes
		if got, err := os.ReadFile(filepath.Join(b, "f")); err != nil || !bytes.Equal(got, data) {
			t.Errorf("round %d: the other mount reads %d bytes, %v", i, len(got), err)
		}
	}
	big := filepath.Join(t.TempDir(), "big")
	want := randomFile(t, big, 8<<20)
	done := make(chan error, 2)
	for i, dir := range []string{a, b} {
		go func() { done <- exec.Command("cp", big, filepath.Join(dir, fmt.Sprint("own", i))).Run() }()
	}
	for range 2 {
		if err := within(t, patience, "cp", func() error { return <-done }); err != nil {
			t.Error(err)
		}
	}
	for i, dir := range []string{b, a} {
		if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("own", i))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("own%d by the other mount: %d bytes, %v", i, len(got), err)
		}
	}
	unmounts(t, a, pa)
	unmounts(t, b, pb)
}

// TestNoCache: with --cache 0 what happens at the node shows at once.
func TestNoCache(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr, "--cache", "0")
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(served, "f"), make([]byte, i), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := stat(t, filepath.Join(dir, "f")); got.Size != int64(i) {
			t.Errorf("the node's file has %d bytes, and the mount's %d", i, got.Size)
		}
		if err := os.Remove(filepath.Join(served, "f")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "f")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the node's file was removed, and the mount's: %v", err)
		}
	}
	unmounts(t, dir, p)
}

// TestDiskFull fills the node's disk by cp.
func TestDiskFull(t *testing.T) {
	served := t.TempDir()
	if err := syscall.Mount("tmpfs", served, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a small tmpfs to fill: %v", err)
	}
	defer syscall.Unmount(served, syscall.MNT_DETACH)
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr)
	big := filepath.Join(t.TempDir(), "big")
	randomFile(t, big, 8<<20)
	if out, err := tool(t, "cp", big, filepath.Join(dir, "big")); err == nil || !strings.Contains(out, "No space left on device") {
		t.Errorf("cp to a full disk: %v, %s", err, out)
	}
	if err := os.Remove(filepath.Join(dir, "big")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "small"), make([]byte, 1<<20), 0o644); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	unmounts(t, dir, p)
}

// TestMountOverFile: a plain file is refused, and stays what it is.
func TestMountOverFile(t *testing.T) {
	_, addr := serveDir(t, t.TempDir(), anyPort)
	file := filepath.Join(t.TempDir(), "file")
	t.Cleanup(func() { syscall.Unmount(file, syscall.MNT_DETACH) })
	if err := os.WriteFile(file, []byte("hi"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, "mount", "--anybody", addr, file).fails("not a directory; give an empty directory")
	if got, err := os.ReadFile(file); err != nil || string(got) != "hi" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

// TestInterruptedInUse: a mount that is interrupted while a file is open leaves the tree, and ends when the file
// is closed; or at the second interruption.
func TestInterruptedInUse(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	for _, twice := range []bool{false, true} {
		dir, p := mountAt(t, addr)
		data := randomFile(t, filepath.Join(served, "f"), 4<<20)
		f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p.cmd.Process.Signal(os.Interrupt)
		for end := time.Now().Add(patience); isMounted(t, dir); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it stays in the tree")
			}
		}
		if twice {
			p.end(os.Interrupt)
			if s := p.cmd.ProcessState; s != nil && s.Success() {
				t.Error("the second interruption does not show")
			}
			continue
		}
		select {
		case <-p.ended:
			t.Fatalf("it ended with a file open: %s", p.errs)
		case <-time.After(time.Second):
		}
		got := make([]byte, 1000)
		if _, err := f.ReadAt(got, 3<<20); err != nil || !bytes.Equal(got, data[3<<20:][:1000]) {
			t.Errorf("read after it was detached: %v", err)
		}
		if _, err := f.WriteAt([]byte("written"), 1<<20); err != nil {
			t.Errorf("write after it was detached: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("close after it was detached: %v", err)
		}
		select {
		case <-p.ended:
		case <-time.After(patience):
			t.Fatal("it does not end when the file is closed")
		}
		if s := p.cmd.ProcessState; !s.Success() || !strings.Contains(p.errs.String(), "files are open on "+dir) {
			t.Errorf("it ended with %v: %s", s, p.errs)
		}
		if now, err := os.ReadFile(filepath.Join(served, "f")); err != nil || string(now[1<<20:][:7]) != "written" {
			t.Errorf("the node's file has %q, %v", now[1<<20:][:7], err)
		}
	}
}

// TestUmount ends a mount by umount: the command ends with it.
func TestUmount(t *testing.T) {
	_, addr := serveDir(t, t.TempDir(), anyPort)
	dir, p := mountAt(t, addr)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustTool(t, "umount", dir)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("mount does not end")
	}
	if s := p.cmd.ProcessState; !s.Success() {
		t.Errorf("mount ended with %v: %s", s, p.errs)
	}
}
