package mount

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dead leaves a mount without its program, as an attempt that fails after mount(2) does.
func dead(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", f.Fd())
	if err := unix.Mount("none", dir, "fuse.ioforward", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// TestUndo takes a dead mount away, once, and nothing where nothing was mounted.
func TestUndo(t *testing.T) {
	if err := Probe(); err != nil || os.Geteuid() != 0 {
		t.Skipf("only root mounts by itself, and here (%v)", err)
	}
	dir := t.TempDir()
	below, err := Config{Dir: dir}.check()
	if err != nil {
		t.Fatal(err)
	}
	dead(t, dir)
	if err := (Config{Dir: dir}).Validate(); !errors.Is(err, syscall.ENOTCONN) || !strings.Contains(err.Error(), "umount it") {
		t.Errorf("a mount over a dead one: %v", err)
	}
	for range 2 {
		if err := undo(dir, below); err != nil {
			t.Error(err)
		}
		if err := (Config{Dir: dir}).Validate(); err != nil {
			t.Error(err)
		}
	}
	below.Dev++ // what is there now was mounted since: it is tried, and fails
	if err := undo(dir, below); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nothing to take away: %v", err)
	}
}
