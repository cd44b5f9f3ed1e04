package remote

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// Info is an fs.FileInfo and fs.DirEntry; Sys is its wire.Attr.
type Info struct {
	name  string
	attr  wire.Attr
	errno syscall.Errno // why the node knows its type only
}

func infoOf(name string, a wire.Attr) Info { return Info{name: path.Base(name), attr: a} }

// Name implements fs.FileInfo.
func (i Info) Name() string { return i.name }

// Size implements fs.FileInfo.
func (i Info) Size() int64 { return i.attr.Size }

// Mode implements fs.FileInfo.
func (i Info) Mode() fs.FileMode { return i.attr.Mode }

// ModTime implements fs.FileInfo.
func (i Info) ModTime() time.Time { return i.attr.Mtime.Go() }

// IsDir implements fs.FileInfo.
func (i Info) IsDir() bool { return i.attr.Mode.IsDir() }

// Attr is all that the node said.
func (i Info) Attr() wire.Attr { return i.attr }

// Sys is the wire.Attr.
func (i Info) Sys() any { return i.attr }

// Type implements fs.DirEntry.
func (i Info) Type() fs.FileMode { return i.attr.Mode.Type() }

// Info implements fs.DirEntry. It is an error if the node could not look at what it listed.
func (i Info) Info() (fs.FileInfo, error) {
	if i.errno != 0 {
		return nil, pathError("lstat", i.name, i.errno)
	}
	return i, nil
}

// String is what fs.FormatDirEntry says.
func (i Info) String() string { return fs.FormatDirEntry(i) }

// Stat asks for a file's attributes; a link at the end is followed, as long as it stays
// in the node's directory. The node first gets what was written here.
func (c *Client) Stat(ctx context.Context, name string) (Info, error) {
	a, err := c.attr(ctx, name, wire.Any)
	return infoOf(name, a), pathError("stat", name, err)
}

// Lstat is Stat that does not follow a link at the end.
func (c *Client) Lstat(ctx context.Context, name string) (Info, error) {
	a, err := c.attr(ctx, name, wire.Itself)
	return infoOf(name, a), pathError("lstat", name, err)
}

func (c *Client) attr(ctx context.Context, name string, kind wire.Kind) (wire.Attr, error) {
	req := wire.PathRequest{Path: name, Kind: kind}
	a, err := call(ctx, c, nil, c.calls.Stat, req)
	if err != nil {
		return a, err
	}
	if ino := c.lookup(a); ino != nil && ino.dirty() {
		if err := c.settle(ctx, ino, 0, math.MaxInt64); err != nil {
			return a, err
		}
		return call(ctx, c, nil, c.calls.Stat, req)
	}
	return a, nil
}

// Readlink is where a symbolic link leads.
func (c *Client) Readlink(ctx context.Context, name string) (string, error) {
	target, err := call(ctx, c, nil, c.calls.Readlink, wire.PathRequest{Path: name})
	return target, pathError("readlink", name, err)
}

// Mkdir makes a directory.
func (c *Client) Mkdir(ctx context.Context, name string, perm fs.FileMode) (Info, error) {
	a, err := call(ctx, c, nil, c.calls.Mkdir, wire.MkdirRequest{Path: name, Perm: perm})
	return infoOf(name, a), pathError("mkdir", name, err)
}

// Remove removes a file or an empty directory, of the given kind.
func (c *Client) Remove(ctx context.Context, name string, kind wire.Kind) error {
	_, err := call(ctx, c, nil, c.calls.Remove, wire.PathRequest{Path: name, Kind: kind})
	return pathError("remove", name, err)
}

// Rename moves a file; what was called to is replaced.
func (c *Client) Rename(ctx context.Context, from, to string) error {
	_, err := call(ctx, c, nil, c.calls.Rename, wire.RenameRequest{From: from, To: to})
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// Set changes a file's attributes, after what was written here has arrived.
func (c *Client) Set(ctx context.Context, name string, req wire.SetRequest) (Info, error) {
	req.Handle, req.Path = 0, name
	a, err := c.attr(ctx, name, wire.Any)
	if err == nil {
		a, err = call(ctx, c, nil, c.calls.Set, req)
	}
	if err != nil {
		return Info{}, pathError("set", name, err)
	}
	if ino := c.lookup(a); ino != nil {
		ino.gen.Add(1)
	}
	return infoOf(name, a), nil
}

// Truncate changes a file's size.
func (c *Client) Truncate(ctx context.Context, name string, size int64) error {
	if size < 0 {
		return pathError("truncate", name, syscall.EINVAL)
	}
	_, err := c.Set(ctx, name, wire.SetRequest{What: wire.SetSize, Size: uint64(size)})
	return err
}

// Space is what the node's file system has.
func (c *Client) Space(ctx context.Context) (wire.Space, error) {
	s, err := call(ctx, c, nil, c.calls.Space, struct{}{})
	return s, pathError("statfs", ".", err)
}

// ReadDir lists a directory, sorted by name.
func (c *Client) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	f, err := c.OpenFile(ctx, name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	list, err := f.ReadDir(-1)
	if e := f.Close(); err == nil {
		err = e
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// listing is how far a directory was read.
type listing struct {
	restart bool
	end     bool
	entries []wire.Entry // that came and were not given out yet
}

// Next is the next entry of a directory, in the node's order; io.EOF at the end. Of a
// file that is being written here it has what the node has after all of it.
func (f *File) Next(ctx context.Context) (Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nextEntry(ctx)
}

func (f *File) nextEntry(ctx context.Context) (Info, error) {
	if err := f.usable("readdir"); err != nil {
		return Info{}, err
	}
	if !f.dir {
		return Info{}, f.error("readdir", syscall.ENOTDIR)
	}
	l := &f.listed
	for len(l.entries) == 0 {
		if l.end {
			return Info{}, io.EOF
		}
		reply, err := call(ctx, f.c, f.s, f.c.calls.List, wire.ListRequest{Handle: f.handle, Restart: l.restart})
		if err != nil {
			return Info{}, f.error("readdir", err)
		}
		l.restart, l.end, l.entries = false, reply.End, reply.Entries
	}
	e := l.entries[0]
	l.entries = l.entries[1:]
	if strings.ContainsAny(e.Name, "/\x00") || e.Name == "" || e.Name == "." || e.Name == ".." {
		return Info{}, f.error("readdir", fmt.Errorf("%w: the node lists a file called %q", syscall.EIO, e.Name))
	}
	if ino := f.c.lookup(e.Attr); ino != nil && ino.dirty() {
		if now, err := f.c.Lstat(ctx, path.Join(f.name, e.Name)); err == nil {
			return now, nil
		}
	}
	return Info{e.Name, e.Attr, syscall.Errno(e.Errno)}, nil
}

// Rewind begins a directory's entries anew.
func (f *File) Rewind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = listing{restart: true}
}

// ReadDir implements fs.ReadDirFile.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []fs.DirEntry
	for n <= 0 || len(list) < n {
		info, err := f.nextEntry(f.c.life)
		if err == io.EOF {
			if n > 0 && len(list) == 0 {
				return nil, io.EOF
			}
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, info)
	}
	return list, nil
}
