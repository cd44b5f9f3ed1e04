package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
)

// fullBytes is what the full disk holds, of a drive of driveBytes.
const fullBytes = driveBytes / 4

// runFullNode is runNode of a sparse file, on a file system of its own that is too small for it. args[2] is where that is mounted.
func runFullNode(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("tmpfs", args[2], "tmpfs", 0, fmt.Sprint("size=", fullBytes)); err != nil {
		return fmt.Errorf("a small tmpfs: %w", err)
	}
	file := filepath.Join(args[2], "disk.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, driveBytes); err != nil {
		return err
	}
	return runNode([]string{args[0], args[1], file})
}

// TestFullDisk: a lender's disk that is full refuses writes by a status that says so, through each front. What it has stays readable and writable, the lease and the lender go on,
// and there is room again after a trim.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("only root can mount the small disk")
	}
	r := newRig(t, "shm")
	small := filepath.Join(r.dir, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	r.processIn(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "run-full-node", r.addr, r.tokens, small)
	r.grant("*", "rw")
	ctx := r.ctx()
	d := r.borrow(r.client("other"), host.Config{Mode: device.Shared})
	const piece = 256 << 10
	var refused *host.StatusError
	var wrote uint64
	for off := uint64(0); off < driveBytes && refused == nil; off += piece {
		err := d.WriteAt(ctx, random(off/piece, piece), off)
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		if err == nil {
			wrote = off + piece
		}
	}
	if refused == nil || refused.Status != nvme.StatusCapacity || wrote == 0 || wrote > fullBytes {
		t.Fatalf("%d bytes were written to a disk with room for %d, then %v", wrote, fullBytes, refused)
	}
	if err := d.WriteZeroes(ctx, 0, piece); err != nil {
		t.Errorf("zeros over what there is: %v", err)
	}
	if err := errors.Join(d.WriteAt(ctx, random(0, piece), 0), d.Flush(ctx)); err != nil {
		t.Errorf("a write over what there was: %v", err)
	}
	got := make([]byte, piece)
	for off := uint64(0); off < wrote; off += piece {
		if err := d.ReadAt(ctx, got, off); err != nil || !bytes.Equal(got, random(off/piece, piece)) {
			t.Errorf("what was written at %d before the disk was full: %v", off, err)
		}
	}
	if err := d.ReadAt(ctx, got, driveBytes-piece); err != nil || !bytes.Equal(got, make([]byte, piece)) {
		t.Errorf("what was never written: %v", err)
	}
	url, _, _ := r.front(host.Config{Mode: device.Shared})
	if out, err := exec.Command("fio", "--name=full", "--ioengine=nbd", "--uri="+url, "--rw=write", "--bs=64k", fmt.Sprint("--size=", driveBytes), "--iodepth=4").CombinedOutput(); err == nil || !strings.Contains(string(out), "err=28") {
		t.Errorf("fio fills the drive by NBD: %v: %s", err, out)
	}
	if err := d.Trim(ctx, 0, wrote); err != nil {
		t.Errorf("a trim: %v", err)
	}
	if err := d.WriteAt(ctx, random(3, piece), driveBytes-piece); err != nil {
		t.Errorf("a write after blocks were given back: %v", err)
	}
}
