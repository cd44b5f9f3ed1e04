package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// Config describes a mount.
type Config struct {
	Client    *remote.Client
	Dir       string        // where; an empty directory
	Source    string        // what df shows
	CacheTime time.Duration // for how long the kernel keeps attributes and names; 0: not at all
	// AllowOther lets other users of this machine in, each as far as the modes and owners
	// that the node shows let them: the kernel then judges by these, the one who mounts too
	// unless that is root. Without it nobody else gets in, and the node alone judges.
	AllowOther bool
	Log        *slog.Logger // nil: silent
}

const (
	// maxBackground is how many requests the kernel makes that nobody waits for: reading ahead.
	maxBackground = 64
	// maxInflight bounds the memory of requests under way.
	maxInflight = 64 << 20
	// unmountTime is how long Close waits for those who have files open, and for fusermount3.
	unmountTime = 2 * time.Second
)

// Mount is a directory of this machine that shows a node's.
type Mount struct {
	cfg    Config
	server *fuse.Server
	dev    uint64 // of the node's directory
	opened openFiles
}

// ErrNoFUSE says that this machine cannot mount in user space.
var ErrNoFUSE = errors.New("mount: there is no /dev/fuse that can be opened; load the module fuse, or run as root")

// Probe reports whether this machine can mount at all.
func Probe() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	return f.Close()
}

// Validate reports what is wrong with a mount, as far as that shows before there is a
// connection. The kernel would mount over a plain file, and only then would FUSE fail.
func (c Config) Validate() error {
	_, err := c.check()
	return err
}

// check is Validate, and says what is at Dir before it is mounted over.
func (c Config) check() (st unix.Stat_t, err error) {
	switch err := unix.Stat(c.Dir, &st); {
	case c.CacheTime < 0:
		return st, fmt.Errorf("mount: attributes and names cannot be kept for %v: 0 or more", c.CacheTime)
	case errors.Is(err, syscall.ENOTCONN):
		return st, fmt.Errorf("mount: %s: %w; a mount whose program ended is still there: umount it", c.Dir, err)
	case err != nil:
		return st, fmt.Errorf("mount: %s: %w", c.Dir, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return st, fmt.Errorf("mount: %s: %w; give an empty directory", c.Dir, syscall.ENOTDIR)
	}
	return st, nil
}

// New mounts. Close unmounts.
func New(cfg Config) (*Mount, error) {
	if err := Probe(); err != nil {
		return nil, err
	}
	below, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var options []string
	if cfg.AllowOther {
		// The node sees one client, and judges nobody behind it: the kernel is to. Not so for
		// the one who mounts alone: whose number here may be somebody else's at the node.
		options = append(options, "default_permissions")
	}
	root, err := cfg.Client.Stat(bounded(), ".")
	if err != nil {
		return nil, fmt.Errorf("mount: the node's directory: %w", err)
	}
	m := &Mount{cfg: cfg, dev: root.Attr().Dev}
	m.server, err = fs.Mount(cfg.Dir, &node{m: m}, &fs.Options{
		EntryTimeout: &cfg.CacheTime,
		AttrTimeout:  &cfg.CacheTime,
		Logger:       slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),

		NullPermissions: true, // a mode of 0 is the file's, not one to make up another for
		MountOptions: fuse.MountOptions{
			AllowOther: cfg.AllowOther, Options: options, FsName: cfg.Source, Name: "ioforward",
			MaxBackground: maxBackground, MaxInflightRequestBytes: maxInflight, MaxWrite: wire.MaxIOBytes,
			DisableXAttrs: true, DirectMount: os.Geteuid() == 0,
			Logger: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mount: %s: %w", cfg.Dir, err), undo(cfg.Dir, below))
	}
	return m, nil
}

// undo takes away what an attempt that failed has left mounted at dir, over below: it is
// dead, broken, or of another device.
func undo(dir string, below unix.Stat_t) error {
	var now unix.Stat_t
	err := unix.Stat(dir, &now)
	if !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.EIO) && (err != nil || now.Dev == below.Dev) {
		return nil
	}
	if err := detach(dir); err != nil {
		return fmt.Errorf("mount: %s stays mounted: %w", dir, err)
	}
	return nil
}

// detach takes a mount out of the tree, in use or not. Who is not root has to leave it to
// the program that mounted.
func detach(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if !errors.Is(err, syscall.EPERM) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), unmountTime)
	defer cancel()
	if out, failed := exec.CommandContext(ctx, "fusermount3", "-u", "-z", dir).CombinedOutput(); failed != nil {
		return fmt.Errorf("%w; fusermount3: %w: %s", err, failed, bytes.TrimSpace(out))
	}
	return nil
}

// Wait returns when the directory was unmounted, by Close or by somebody else.
func (m *Mount) Wait() { m.server.Wait() }

// ErrInUse says that a mount was taken out of the tree while files were open. Who has them
// may go on with them: it ends, and Wait returns, when the last of them is closed.
var ErrInUse = errors.New("it was detached while files were open")

// Close unmounts. Where files are still open after a while, it takes the mount out of the
// tree, and returns ErrInUse.
func (m *Mount) Close() error {
	var err error
	for end := time.Now().Add(unmountTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = m.server.Unmount(); err == nil {
			return nil
		}
	}
	if e := detach(m.cfg.Dir); e != nil {
		return fmt.Errorf("mount: %s stays mounted: %w, and to detach it: %w", m.cfg.Dir, err, e)
	}
	return fmt.Errorf("mount: %s: %w: %w", m.cfg.Dir, ErrInUse, err)
}

// stable is an inode's identity. The node's directory may span disks, whose inode numbers
// are mixed with the disk's then.
func (m *Mount) stable(a wire.Attr) fs.StableAttr {
	return fs.StableAttr{Mode: systemMode(a.Mode) & syscall.S_IFMT, Ino: a.Ino ^ bits.RotateLeft64(a.Dev^m.dev, 32)}
}
