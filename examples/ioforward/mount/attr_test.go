package mount

import (
	"errors"
	iofs "io/fs"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

func TestModes(t *testing.T) {
	kinds := map[iofs.FileMode]uint32{
		0: syscall.S_IFREG, iofs.ModeDir: syscall.S_IFDIR, iofs.ModeSymlink: syscall.S_IFLNK, iofs.ModeNamedPipe: syscall.S_IFIFO,
		iofs.ModeSocket: syscall.S_IFSOCK, iofs.ModeDevice: syscall.S_IFBLK, iofs.ModeDevice | iofs.ModeCharDevice: syscall.S_IFCHR,
		iofs.ModeIrregular: 0,
	}
	for kind, want := range kinds {
		if got := systemMode(kind | 0o751); got != want|0o751 {
			t.Errorf("%v is %#o, want %#o", kind, got, want|0o751)
		}
	}
	for bits := range uint32(0o10000) {
		if got := systemMode(fileMode(bits)); got != bits|syscall.S_IFREG {
			t.Fatalf("%#o came back as %#o", bits, got)
		}
	}
}

func TestChange(t *testing.T) {
	now := wire.Attr{UID: 5, GID: 6}
	in := func(valid uint32) *fuse.SetAttrIn {
		return &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{Valid: valid, Size: 9, Mode: 0o4755, Mtime: 3, Mtimensec: 4, Owner: fuse.Owner{Uid: 5, Gid: 6}}}
	}
	req, errno := change(in(fuse.FATTR_SIZE|fuse.FATTR_MODE|fuse.FATTR_MTIME|fuse.FATTR_UID|fuse.FATTR_GID), now)
	want := wire.SetRequest{What: wire.SetSize | wire.SetMode | wire.SetMtime, Size: 9, Mode: iofs.ModeSetuid | 0o755, Mtime: wire.Time{Sec: 3, Nsec: 4}}
	if errno != 0 || req != want {
		t.Errorf("change: %+v, %v; want %+v", req, errno, want)
	}
	if req, errno := change(in(0), now); errno != 0 || req.What != 0 {
		t.Errorf("no change: %+v, %v", req, errno)
	}
	if _, errno := change(in(fuse.FATTR_UID), wire.Attr{UID: 7}); errno != syscall.EPERM {
		t.Errorf("another owner: %v", errno)
	}
	if _, errno := change(in(fuse.FATTR_GID), wire.Attr{GID: 7}); errno != syscall.EPERM {
		t.Errorf("another group: %v", errno)
	}
}

func TestStable(t *testing.T) {
	m := &Mount{dev: 1}
	a, b := m.stable(wire.Attr{Dev: 1, Ino: 10}), m.stable(wire.Attr{Dev: 2, Ino: 10})
	if a.Ino != 10 || b.Ino == a.Ino {
		t.Errorf("files of two disks have the numbers %d and %d", a.Ino, b.Ino)
	}
}

func TestProbe(t *testing.T) {
	if err := Probe(); err != nil && !errors.Is(err, ErrNoFUSE) {
		t.Error(err)
	}
}
