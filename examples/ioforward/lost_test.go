package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// timeout is the mount's in these tests; a request may take a few of them.
const (
	timeout    = "3s"
	mustAnswer = 30 * time.Second
)

// failing is how programs find out that the node is gone, each by its own call.
func failing(dir string, open *os.File) map[string]func() error {
	return map[string]func() error{
		"stat":   func() error { _, err := os.Stat(filepath.Join(dir, "other")); return err },
		"read":   func() error { _, err := open.ReadAt(make([]byte, 4096), 1<<20); return err },
		"list":   func() error { _, err := os.ReadDir(dir); return err },
		"create": func() error { return os.WriteFile(filepath.Join(dir, "new"), []byte("x"), 0o644) },
		"fsync":  func() error { open.WriteAt([]byte("x"), 0); return open.Sync() },
		"rename": func() error { return os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "g")) },
		"statfs": func() error { return syscall.Statfs(dir, &syscall.Statfs_t{}) },
		"cpwrite": func() error {
			_, err := open.Write(bytes.Repeat([]byte("x"), 4<<20))
			return errors.Join(err, open.Sync())
		},
	}
}

// TestNodeKilled kills the node while cp writes to it. Nothing hangs, all fails with
// EIO, and the mount can be ended.
func TestNodeKilled(t *testing.T) {
	served := t.TempDir()
	node, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr, "--timeout", timeout, "--cache", "10ms")
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 4<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		out string
		err error
	}
	copied := make(chan result, 1)
	go func() {
		out, err := tool(t, "cp", "/dev/zero", filepath.Join(dir, "big")) // has no end of its own
		copied <- result{out, err}
	}()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if info, err := os.Stat(filepath.Join(served, "big")); err == nil && info.Size() > 4<<20 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("cp does not begin")
		}
	}
	node.end(syscall.SIGKILL)
	select {
	case r := <-copied:
		if r.err == nil || !strings.Contains(r.out, "Input/output error") {
			t.Errorf("cp while the node is killed: %v, %s", r.err, r.out)
		}
	case <-time.After(mustAnswer):
		t.Fatal("cp hangs")
	}
	time.Sleep(20 * time.Millisecond) // longer than the kernel keeps attributes
	for what, fn := range failing(dir, open) {
		if err := isErrno(within(t, mustAnswer, what, fn), syscall.EIO); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	within(t, mustAnswer, "close", open.Close)
	unmounts(t, dir, p)
}

// TestNodeStopped has the node stand still with its connections open: only deadlines tell.
func TestNodeStopped(t *testing.T) {
	node, addr := serveDir(t, t.TempDir(), anyPort)
	dir, p := mountAt(t, addr, "--timeout", timeout, "--cache", "10ms")
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	node.cmd.Process.Signal(syscall.SIGSTOP)
	stopped := within(t, patience, "stop", func() error { return unix.Waitid(unix.P_PID, node.cmd.Process.Pid, nil, unix.WSTOPPED, nil) })
	if stopped != nil {
		t.Fatal(stopped)
	}
	if err := isErrno(within(t, mustAnswer, "stat", func() error { _, err := os.Stat(name); return err }), syscall.EIO); err != nil {
		t.Errorf("stat: %v", err)
	}
	if err := isErrno(within(t, mustAnswer, "list", func() error { _, err := os.ReadDir(dir); return err }), syscall.EIO); err != nil {
		t.Errorf("list: %v", err)
	}
	node.cmd.Process.Signal(syscall.SIGCONT)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		got, err := os.ReadFile(name)
		if err == nil && string(got) == "data" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the node goes on: %q, %v", got, err)
		}
	}
	unmounts(t, dir, p)
}

// TestNodeRestarted kills the node and starts another on the same directory and address.
func TestNodeRestarted(t *testing.T) {
	served := t.TempDir()
	node, addr := serveDir(t, served, ownPort)
	dir, p := mountAt(t, addr, "--timeout", timeout, "--cache", "10ms")
	// The kernel has nothing of it in its cache: each read of it asks the node.
	data := randomFile(t, filepath.Join(served, "f"), 4<<20)
	name := filepath.Join(dir, "other")
	if err := os.WriteFile(name, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	node.end(syscall.SIGKILL)
	serveDir(t, served, addr)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		got, err := os.ReadFile(name)
		if err == nil && string(got) == "data" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the node's restart: %q, %v", got, err)
		}
	}
	read := within(t, mustAnswer, "read", func() error { _, err := open.ReadAt(make([]byte, 4), 1<<20); return err })
	if err := isErrno(read, syscall.ESTALE); err != nil {
		t.Errorf("read by an old handle: %v", err)
	}
	sync := within(t, mustAnswer, "fsync", func() error { open.WriteAt([]byte("late"), 0); return open.Sync() })
	if err := isErrno(sync, syscall.ESTALE); err != nil {
		t.Errorf("fsync by an old handle: %v", err)
	}
	within(t, mustAnswer, "close", open.Close)
	if got, err := os.ReadFile(filepath.Join(served, "f")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the node's file was changed: %d bytes, %v", len(got), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "g"), []byte("new"), 0o644); err != nil {
		t.Errorf("a new file: %v", err)
	}
	unmounts(t, dir, p)
}
