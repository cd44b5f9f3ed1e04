package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/examples/ioforward/mount"
)

// canMount reports whether this machine can mount, and logs why not. In CI as root a
// machine that only lacks the device fails the test: scripts/test-tools.sh makes it there.
func canMount(t *testing.T) bool {
	t.Helper()
	err := mount.Probe()
	if err == nil {
		return true
	}
	if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
		why := tryFUSE(fmt.Sprintf("/dev/ioforward-test-%d", os.Getpid()))
		if why == nil {
			t.Fatalf("%v; this kernel has FUSE, and the device can be made: run scripts/test-tools.sh", err)
		}
		err = fmt.Errorf("%w; nor can the device be made: %w", err, why)
	}
	t.Logf("this machine cannot mount: %v", err)
	return false
}

// needMount skips a test that is nothing without a mount.
func needMount(t *testing.T) {
	t.Helper()
	if !canMount(t) {
		t.SkipNow()
	}
}

// tryFUSE makes the device under another name, opens and removes it.
func tryFUSE(path string) error {
	minor, err := fuseMinor()
	if err != nil {
		out, failed := exec.Command("modprobe", "fuse").CombinedOutput()
		if minor, err = fuseMinor(); err != nil {
			return fmt.Errorf("%w, and modprobe fuse does not help: %v %s", err, failed, strings.TrimSpace(string(out)))
		}
	}
	const misc = 10 // the major number of what /proc/misc lists
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(misc, minor))); err != nil {
		return fmt.Errorf("mknod %s: %w", path, err)
	}
	defer os.Remove(path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("%w: this container's devices do not include it", err)
	} else if err != nil {
		return err
	}
	return f.Close()
}

// fuseMinor is the minor number of the kernel's FUSE device.
func fuseMinor() (uint32, error) {
	list, err := os.ReadFile("/proc/misc")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(list)) {
		if number, ok := strings.CutSuffix(strings.TrimSpace(line), " fuse"); ok {
			minor, err := strconv.ParseUint(number, 10, 20)
			return uint32(minor), err
		}
	}
	return 0, errors.New("this kernel has no FUSE (/proc/misc)")
}

// TestTryFUSE: where there is the device as root, it can be made.
func TestTryFUSE(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes devices")
	}
	if mount.Probe() != nil {
		t.Skip("this machine cannot mount, for a reason of its own")
	}
	path := fmt.Sprintf("/dev/ioforward-test-%d", os.Getpid())
	if err := tryFUSE(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device it made is left: %v", err)
	}
}
