package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// swaps are the kinds of swap, each made anew for every turn. A kind adds to s what undoes it, and returns the device or file to swap to.
var swaps = []struct {
	name string
	make func(ctx context.Context, b *bench, s *swap) (string, error)
}{
	{"file", fileSwap},
	{"zram", zramSwap},
	{"ram", ramSwap},
	{"remote", remoteSwap},
}

func swapNames() (all []string) {
	for _, s := range swaps {
		all = append(all, s.name)
	}
	return all
}

// swap is one that is in use.
type swap struct {
	path string // empty: swapped off
	undo []func() error
}

// swapOn makes a kind of swap and begins to use it. There may be no other: the figures would be of that one too.
func swapOn(ctx context.Context, b *bench, name string) (_ *swap, err error) {
	used, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return nil, fmt.Errorf("this kernel cannot swap: %w", err)
	}
	if lines := strings.Split(strings.TrimSpace(string(used)), "\n"); len(lines) > 1 {
		return nil, fmt.Errorf("swap is in use (%s): swapoff -a, or leave this side out", strings.Fields(lines[1])[0])
	}
	s := &swap{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, kind := range swaps {
		if kind.name != name {
			continue
		}
		path, err := kind.make(ctx, b, s)
		if err != nil {
			return nil, err
		}
		if err := tool("mkswap", path); err != nil {
			return nil, err
		}
		if err := tool("swapon", path); err != nil {
			return nil, err
		}
		s.path = path
	}
	return s, nil
}

// off ends the use of it, also while a program runs that it has pages of.
func (s *swap) off() error {
	if s.path == "" {
		return nil
	}
	if err := tool("swapoff", s.path); err != nil {
		return fmt.Errorf("%w: what lies under it is left as it is; end programs until it has room, and swapoff %s", err, s.path)
	}
	s.path = ""
	return nil
}

// close takes down what lies under a swap, once it is off: pages of any program may be there.
func (s *swap) close() error {
	err := s.off()
	if err != nil {
		return err
	}
	for i := len(s.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, s.undo[i]())
	}
	s.undo = nil
	return err
}

func (s *swap) later(f func() error) { s.undo = append(s.undo, f) }

// alone keeps a terminal's signals from what a swap needs: they go to whole groups.
func alone() *unix.SysProcAttr { return &unix.SysProcAttr{Setpgid: true} }

// tool runs one of util-linux's programs to its end: one that was cut short may have done its work or not.
func tool(args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = alone()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// filled makes a file without holes.
func filled(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for n := int64(0); n < size && err == nil; n += int64(len(zeros)) {
		_, err = f.Write(zeros)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// onDisk refuses folders in memory: swap over tmpfs hangs the kernel, as its pages are swapped themselves.
func onDisk(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is no folder on a disk (type %#x): name one with --dir", dir, fs.Type)
	}
	return nil
}

// fileSwap is a file on a disk.
func fileSwap(_ context.Context, b *bench, s *swap) (string, error) {
	if err := onDisk(b.dir); err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "swapfile")
	s.later(func() error { return os.Remove(path) })
	return path, filled(path, b.bytes)
}

// zramAlgorithm compresses; it is the kernel's usual one.
const zramAlgorithm = "lzo-rle"

// zramSwap is memory of the kernel's, compressed, on a device of its own.
func zramSwap(_ context.Context, b *bench, s *swap) (string, error) {
	const control = "/sys/class/zram-control/"
	added, err := os.ReadFile(control + "hot_add")
	if err != nil {
		return "", fmt.Errorf("no zram (modprobe zram): %w", err)
	}
	number := strings.TrimSpace(string(added))
	s.later(func() error { return os.WriteFile(control+"hot_remove", []byte(number), 0) })
	device := "/sys/block/zram" + number + "/"
	if err := os.WriteFile(device+"comp_algorithm", []byte(zramAlgorithm), 0); err != nil {
		return "", err
	}
	if err := os.WriteFile(device+"disksize", []byte(fmt.Sprint(b.bytes)), 0); err != nil {
		return "", err
	}
	return "/dev/zram" + number, nil
}

// ramSwap is a file in memory behind a loop device. It is on ramfs, whose pages are never swapped, and has no holes, so that writing to
// it takes no memory.
func ramSwap(_ context.Context, b *bench, s *swap) (string, error) {
	dir := filepath.Join(b.dir, "ramfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	s.later(func() error { return os.Remove(dir) })
	if err := tool("mount", "-t", "ramfs", "none", dir); err != nil {
		return "", err
	}
	s.later(func() error { return unix.Unmount(dir, 0) })
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.RAMFS_MAGIC {
		return "", fmt.Errorf("what is mounted is no ramfs (type %#x): %w", fs.Type, err)
	}
	path := filepath.Join(dir, "swap")
	if err := filled(path, b.bytes); err != nil {
		return "", err
	}
	return loop(s, path, false)
}

// loop makes a loop device of a file.
func loop(s *swap, path string, direct bool) (string, error) {
	args := []string{"--find", "--show", path}
	if direct {
		args = append([]string{"--direct-io=on"}, args...)
	}
	cmd := exec.Command("losetup", args...)
	cmd.SysProcAttr = alone()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("losetup %s: %w", strings.Join(args, " "), err)
	}
	device := strings.TrimSpace(string(out))
	s.later(func() error { return tool("losetup", "--detach", device) })
	if direct {
		dio, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/dio")
		if err != nil || strings.TrimSpace(string(dio)) != "1" {
			return "", fmt.Errorf("%s has no direct I/O (%q, %v), without which swap over it can hang the kernel", device, dio, err)
		}
	}
	return device, nil
}

// settings are those of the kernel that the figures depend on.
func settings(sides []string) map[string]any {
	m := map[string]any{}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m["kernel"] = unix.ByteSliceToString(u.Release[:])
	}
	for _, side := range sides {
		switch side {
		case "zram":
			m["zram_algorithm"] = zramAlgorithm
			fallthrough
		case "file", "ram", "remote":
			b, _ := os.ReadFile("/proc/sys/vm/page-cluster")
			m["page_cluster"] = strings.TrimSpace(string(b))
		}
	}
	return m
}
