package sockdir

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const holdVariable = "WHERRY_TEST_HOLD"

func TestMain(m *testing.M) {
	if prefix := os.Getenv(holdVariable); prefix != "" {
		h, err := Hold(prefix)
		if err == nil {
			_, err = net.Listen("unix", h.Socket())
		}
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(h.Socket())
		os.Stdout.Close()
		select {}
	}
	os.Exit(m.Run())
}

// holder starts a process that holds a folder, and says which.
func holder(t *testing.T, prefix string) (socket string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holdVariable+"="+prefix)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 200)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(kill)
	return string(b[:n]), kill
}

// TestKilled: the folder of a process that was killed goes with the next Hold; that of one that lives, or is stopped, stays.
func TestKilled(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	dead, kill := holder(t, "held-")
	living, _ := holder(t, "held-")
	kill()
	h, err := Hold("held-")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(dead)); !os.IsNotExist(err) {
		t.Errorf("what a killed process left: %v", err)
	}
	if _, err := os.Lstat(living); err != nil {
		t.Errorf("a living process's socket: %v", err)
	}
	if err := h.Remove(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(Root(), "held-*")); len(left) != 1 || left[0] != filepath.Dir(living) {
		t.Errorf("%q are left", left)
	}
}

// TestClearsNothingElse: links, files, folders with other things in them or of other users, young ones and those that a process listens in without a lock stay.
func TestClearsNothingElse(t *testing.T) {
	dir := shortDir(t)
	t.Setenv("TMPDIR", dir)
	old := time.Now().Add(-time.Hour)
	make := func(name string) string {
		path := filepath.Join(dir, "held-"+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	os.Mkdir(elsewhere, 0o700)
	stays := []string{make("young"), filepath.Join(dir, "held-link"), filepath.Join(dir, "held-file"), elsewhere}
	os.Symlink(elsewhere, stays[1])
	os.WriteFile(stays[2], nil, 0o600)
	full := make("full")
	os.WriteFile(filepath.Join(full, "other"), nil, 0o600)
	linked := make("linked")
	os.Symlink(stays[2], filepath.Join(linked, socketName))
	listened := make("listened")
	l, err := net.Listen("unix", filepath.Join(listened, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stays = append(stays, full, linked, listened)
	if os.Geteuid() == 0 {
		others := make("others")
		os.Chown(others, 65534, 65534)
		stays = append(stays, others)
	}
	empty := make("empty")
	for _, path := range append(stays[3:], empty) {
		os.Chtimes(path, old, old)
	}
	h, err := Hold("held-")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Remove()
	for _, path := range append(stays, filepath.Join(full, "other"), filepath.Join(linked, socketName), filepath.Join(listened, socketName)) {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(empty); !os.IsNotExist(err) {
		t.Errorf("an old folder without a socket: %v", err)
	}
}

// TestHoldAtOnce: processes that begin and end at the same time leave each other's folders alone, and none stays.
func TestHoldAtOnce(t *testing.T) {
	dir := shortDir(t)
	t.Setenv("TMPDIR", dir)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				h, err := Hold("held-")
				if err != nil {
					t.Error(err)
					return
				}
				l, err := net.Listen("unix", h.Socket())
				if err != nil {
					t.Error(err)
					return
				}
				if fd, err := unix.Open(h.Socket(), unix.O_PATH, 0); err != nil {
					t.Error(err)
				} else {
					unix.Close(fd)
				}
				l.Close()
				if err := h.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d folders are left", len(left))
	}
}

// shortDir is a folder that Root accepts.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sockdir-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
