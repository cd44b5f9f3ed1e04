package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/fabric"
)

var errClosed = fmt.Errorf("%w: %w", syscall.EIO, fabric.ErrClosed)

// await waits for a transfer, or the caller's end.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", syscall.ETIMEDOUT, context.Cause(ctx))
		}
		return fmt.Errorf("%w: %w", syscall.EINTR, context.Cause(ctx))
	}
}

// File is an open file or directory. It is an fs.File, and does what else os.File
// does. Its methods may be called from any goroutine; those that use its position
// take turns.
type File struct {
	c      *Client
	s      *session
	name   string
	handle uint64
	opened wire.Attr // what it was like then
	ino    *inode
	dir    bool
	ahead  window

	mu     sync.Mutex // over the position, and a directory's entries
	at     int64
	listed listing

	state  sync.Mutex
	err    error // of a write behind the writer's back
	closed bool
}

// OpenFile opens a file or directory. Flags are os's, without O_APPEND; perm is of a
// file that is created, before the node's umask.
func (c *Client) OpenFile(ctx context.Context, name string, flags int, perm fs.FileMode) (*File, error) {
	f, err := c.open(ctx, name, flags, perm)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f, nil
}

func wireFlags(flags int) (wire.Flags, error) {
	var out wire.Flags
	switch flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR) {
	case os.O_RDONLY:
		out = wire.Read
	case os.O_WRONLY:
		out = wire.Write
	case os.O_RDWR:
		out = wire.Read | wire.Write
	default:
		return 0, syscall.EINVAL
	}
	if flags&os.O_APPEND != 0 {
		return 0, fmt.Errorf("%w: a file elsewhere cannot be opened to append: seek to its end", syscall.EINVAL)
	}
	for _, p := range [...]struct {
		theirs int
		ours   wire.Flags
	}{{os.O_CREATE, wire.Create}, {os.O_EXCL, wire.Exclusive}, {os.O_TRUNC, wire.Truncate}, {syscall.O_DIRECTORY, wire.Directory}} {
		if flags&p.theirs != 0 {
			out |= p.ours
		}
	}
	if out&wire.Create == 0 {
		out &^= wire.Exclusive
	}
	if out&wire.Write == 0 {
		out &^= wire.Truncate
	}
	return out, nil
}

func (c *Client) open(ctx context.Context, name string, flags int, perm fs.FileMode) (*File, error) {
	asked, err := wireFlags(flags)
	if err != nil {
		return nil, err
	}
	if asked&wire.Truncate != 0 {
		c.attr(ctx, name, wire.Any) // has what was written here arrive, lest it arrive afterwards
	}
	s, err := c.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", syscall.EIO, err)
	}
	reply, err := call(ctx, c, s, c.calls.Open, wire.OpenRequest{Path: name, Flags: asked, Perm: perm})
	if err != nil {
		return nil, err
	}
	f := &File{c: c, s: s, name: name, handle: reply.Handle, opened: reply.Attr, dir: reply.Attr.Mode.IsDir()}
	f.ino = c.inodeOf(s, reply.Attr, f)
	if asked&wire.Truncate != 0 {
		f.ino.gen.Add(1)
	}
	return f, nil
}

// Name is the path that it was opened by.
func (f *File) Name() string { return f.name }

// Opened is what the file was like when it was opened.
func (f *File) Opened() wire.Attr { return f.opened }

// fail keeps the first error of a write behind the writer's back.
func (f *File) fail(err error) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *File) failure() error {
	f.state.Lock()
	defer f.state.Unlock()
	return f.err
}

// usable is an error if the file was closed.
func (f *File) usable(op string) error {
	f.state.Lock()
	defer f.state.Unlock()
	if f.closed {
		return f.error(op, fs.ErrClosed)
	}
	return nil
}

func (f *File) error(op string, err error) error { return pathError(op, f.name, err) }

// pathError is err as methods return it; io.EOF stays.
func pathError(op, name string, err error) error {
	var already *fs.PathError
	if err == nil || err == io.EOF || errors.As(err, &already) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Attr asks the node for the file's attributes, once it has what was written.
func (f *File) Attr(ctx context.Context) (wire.Attr, error) {
	if err := f.usable("stat"); err != nil {
		return wire.Attr{}, err
	}
	if err := f.c.settle(ctx, f.ino, 0, math.MaxInt64); err != nil {
		return wire.Attr{}, f.error("stat", err)
	}
	a, err := call(ctx, f.c, f.s, f.c.calls.StatOpen, f.handle)
	return a, f.error("stat", err)
}

// Stat implements fs.File.
func (f *File) Stat() (fs.FileInfo, error) {
	a, err := f.Attr(f.c.life)
	if err != nil {
		return nil, err
	}
	return infoOf(f.name, a), nil
}

// Flush returns when the node has all that was written: a read by anybody sees it.
func (f *File) Flush(ctx context.Context) error {
	if err := f.usable("flush"); err != nil {
		return err
	}
	return f.error("flush", f.flush(ctx))
}

func (f *File) flush(ctx context.Context) error {
	if err := f.c.settle(ctx, f.ino, 0, math.MaxInt64); err != nil {
		return err
	}
	return f.failure()
}

// SyncContext returns when what was written is on the node's disk.
func (f *File) SyncContext(ctx context.Context) error {
	if err := f.usable("sync"); err != nil {
		return err
	}
	err := f.flush(ctx)
	if err == nil {
		_, err = call(ctx, f.c, f.s, f.c.calls.Sync, f.handle)
	}
	return f.error("sync", err)
}

// Sync is SyncContext.
func (f *File) Sync() error { return f.SyncContext(f.c.life) }

// Set changes attributes; req's Handle and Path are filled in.
func (f *File) Set(ctx context.Context, req wire.SetRequest) (wire.Attr, error) {
	if err := f.usable("set"); err != nil {
		return wire.Attr{}, err
	}
	req.Handle, req.Path = f.handle, ""
	err := f.flush(ctx)
	var a wire.Attr
	if err == nil {
		f.ino.gen.Add(1)
		a, err = call(ctx, f.c, f.s, f.c.calls.Set, req)
		f.ino.gen.Add(1)
	}
	return a, f.error("set", err)
}

// Truncate changes the file's size.
func (f *File) Truncate(size int64) error {
	if size < 0 {
		return f.error("truncate", syscall.EINVAL)
	}
	_, err := f.Set(f.c.life, wire.SetRequest{What: wire.SetSize, Size: uint64(size)})
	return err
}

// Close waits for what was written, and closes the file. The error may be a write's.
func (f *File) Close() error {
	f.state.Lock()
	was := f.closed
	f.closed = true
	f.state.Unlock()
	if was {
		return f.error("close", fs.ErrClosed)
	}
	err := f.flush(f.c.life)
	f.ahead.clear(f.c)
	_, e := call(f.c.life, f.c, f.s, f.c.calls.Close, f.handle)
	f.c.forget(f)
	if err == nil {
		err = e
	}
	return f.error("close", err)
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.ReadContext(f.c.life, p, f.at)
	f.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.WriteContext(f.c.life, p, f.at)
	f.at += int64(n)
	return n, err
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.ReadContext(f.c.life, p, off) }

// WriteAt implements io.WriterAt.
func (f *File) WriteAt(p []byte, off int64) (int, error) { return f.WriteContext(f.c.life, p, off) }

// Seek implements io.Seeker. A directory can only be sought to its beginning.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		a, err := f.Attr(f.c.life)
		if err != nil {
			return 0, err
		}
		offset += a.Size
	default:
		return 0, f.error("seek", syscall.EINVAL)
	}
	if offset < 0 || f.dir && offset != 0 {
		return 0, f.error("seek", syscall.EINVAL)
	}
	if f.dir {
		f.listed = listing{restart: true}
	}
	f.at = offset
	return offset, nil
}
