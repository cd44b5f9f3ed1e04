package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// remoteRole starts this program as the file system under remote swap: ROLE ADDRESS TOKENS FOLDER BYTES.
const remoteRole = "remote-swap"

// remoteFile is the one file of that file system.
const remoteFile = "swap"

// unmountTime is how long its process gets to end.
const unmountTime = 30 * time.Second

// putTime bounds one read or write of it.
const putTime = 10 * time.Second

// remoteSwap is swap to a node's memory as InfiniSwap does it, in the kernel's means: a block device (loop) over a file whose reads and
// writes are Gets and Puts on a region, over tcp.
func remoteSwap(_ context.Context, b *bench, s *swap) (string, error) {
	dir := filepath.Join(b.dir, "remote")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	s.later(func() error { return os.Remove(dir) })
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// Not ctx's, as it must outlive the swap.
	cmd := exec.Command(self, remoteRole, b.node.at["tcp"], b.node.tokens, dir, strconv.FormatInt(b.bytes, 10))
	cmd.SysProcAttr = alone()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := false
	s.later(func() error {
		if ended {
			return nil
		}
		in.Close()
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			os.Stderr.Write(errs.Bytes())
			return err
		case <-time.After(unmountTime):
			return fmt.Errorf("the file system at %s is in use still, and its process %d goes on: losetup --detach what uses it", dir, cmd.Process.Pid)
		}
	})
	if line, err := io.ReadAll(io.LimitReader(out, 6)); string(line) != "ready\n" {
		ended = true
		return "", fmt.Errorf("the file system did not start: %w", errors.Join(err, in.Close(), cmd.Wait(), errors.New(strings.TrimSpace(errs.String()))))
	}
	return loop(s, filepath.Join(dir, remoteFile), true)
}

// flusherWord marks the second start: the first makes its thread a flusher, which threads and programs inherit, and begins anew.
const flusherWord = "flusher"

// serveRemote mounts the file system, and serves it until standard input ends. Nothing of it is ever swapped, and its threads take no memory
// that would have to be swapped first: else it could wait for itself.
func serveRemote(args []string) error {
	bytes := int64(0)
	if len(args) > 3 {
		bytes, _ = strconv.ParseInt(args[3], 10, 64)
	}
	if bytes <= 0 {
		return errors.New("a role of this program, not for people")
	}
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP) // any program's pages may be here
	if len(args) == 4 {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("make this process an I/O flusher (needs CAP_SYS_RESOURCE): %w", err)
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return syscall.Exec(self, append([]string{self, remoteRole}, append(args, flusherWord)...), os.Environ())
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock this process's memory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), putTime)
	defer cancel()
	c, err := client.Connect(ctx, client.Config{Nodes: []cluster.Member{{Addrs: []string{args[0]}}}, TokenFile: args[1]})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Reach(ctx, nodeName); err != nil {
		return err
	}
	region, err := c.Pool().CreateRegion(ctx, nodeName, pool.Spec{Size: uint64(bytes), Leased: true})
	if err != nil {
		return err
	}
	defer region.Close()
	server, err := mount(args[2], region, bytes)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin) // its end is what is waited for
	for server.Unmount() != nil { // the parent was killed, and there is swap over it: pages of it would be lost
		time.Sleep(time.Second)
	}
	return nil
}

// store is what of a region the file is made of.
type store interface {
	Get(ctx context.Context, p []byte, off uint64) error
	Put(ctx context.Context, p []byte, off uint64) error
}

func mount(dir string, s store, size int64) (*fuse.Server, error) {
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{FsName: "wherry-swap", Name: "wherry", DirectMount: true, DirectMountStrict: true, MaxBackground: 64},
		OnAdd: func(ctx context.Context) {
			root.AddChild(remoteFile, root.NewPersistentInode(ctx, &file{store: s, size: size}, fs.StableAttr{Mode: unix.S_IFREG}), false)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("mount at %s (needs root and /dev/fuse): %w", dir, err)
	}
	return server, nil
}

// file is the first bytes of a store.
type file struct {
	fs.Inode
	store store
	size  int64
}

// Getattr implements fs.NodeGetattrer.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size, out.Blksize = unix.S_IFREG|0o600, uint64(f.size), 4096
	return 0
}

// Open implements fs.NodeOpener.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (f *file) Read(_ context.Context, _ fs.FileHandle, p []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if off < 0 || off >= f.size {
		return fuse.ReadResultData(nil), 0
	}
	p = p[:min(int64(len(p)), f.size-off)]
	return fuse.ReadResultData(p), f.moved(f.store.Get, p, off)
}

// Write implements fs.NodeWriter.
func (f *file) Write(_ context.Context, _ fs.FileHandle, p []byte, off int64) (uint32, syscall.Errno) {
	if off < 0 || int64(len(p)) > f.size-off {
		return 0, syscall.ENOSPC
	}
	return uint32(len(p)), f.moved(f.store.Put, p, off)
}

// Fsync implements fs.NodeFsyncer: a Put that returned is at the node.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// moved gets or puts. The kernel's interrupts do not end it: a page that is written half is of no use.
func (f *file) moved(move func(context.Context, []byte, uint64) error, p []byte, off int64) syscall.Errno {
	ctx, cancel := context.WithTimeout(context.Background(), putTime)
	defer cancel()
	if err := move(ctx, p, uint64(off)); err != nil {
		fmt.Fprintln(os.Stderr, "bench-memory: remote swap:", strings.TrimSpace(err.Error()))
		return syscall.EIO
	}
	return 0
}
