package mount

import (
	"context"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// node is a file or directory that the kernel knows of.
type node struct {
	fs.Inode
	m *Mount
}

var (
	_ fs.NodeStatfser       = (*node)(nil)
	_ fs.NodeLookuper       = (*node)(nil)
	_ fs.NodeGetattrer      = (*node)(nil)
	_ fs.NodeSetattrer      = (*node)(nil)
	_ fs.NodeOpener         = (*node)(nil)
	_ fs.NodeOpendirHandler = (*node)(nil)
	_ fs.NodeCreater        = (*node)(nil)
	_ fs.NodeMkdirer        = (*node)(nil)
	_ fs.NodeUnlinker       = (*node)(nil)
	_ fs.NodeRmdirer        = (*node)(nil)
	_ fs.NodeRenamer        = (*node)(nil)
	_ fs.NodeReadlinker     = (*node)(nil)
)

// bounded is a request's context. The client bounds each call by its OpTime; the
// kernel's interruptions are left out, see the package's comment.
func bounded() context.Context { return context.Background() }

// path is where the node lies below the node's directory.
func (n *node) path() string {
	if p := n.Path(n.Root()); p != "" {
		return p
	}
	return "."
}

func (n *node) child(name string) string { return path.Join(n.path(), name) }

func (n *node) client() *remote.Client { return n.m.cfg.Client }

// errno is a request's answer.
func (n *node) errno(err error) syscall.Errno {
	number := wire.Errno(err)
	if number == syscall.EIO {
		n.m.cfg.Log.Warn("a request failed", "error", err)
	}
	return number
}

// add makes the inode of a name that was just looked up.
func (n *node) add(ctx context.Context, a wire.Attr, out *fuse.EntryOut) *fs.Inode {
	fill(&out.Attr, a)
	return n.NewInode(ctx, &node{m: n.m}, n.m.stable(a))
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	s, err := n.client().Space(bounded())
	if err != nil {
		return n.errno(err)
	}
	out.Blocks, out.Bfree, out.Bavail, out.Files, out.Ffree = s.Blocks, s.Free, s.Available, s.Files, s.FilesFree
	out.Bsize, out.Frsize, out.NameLen = s.BlockBytes, s.BlockBytes, wire.MaxNameBytes
	return 0
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	info, err := n.client().Lstat(bounded(), n.child(name))
	if err != nil {
		return nil, n.errno(err)
	}
	return n.add(ctx, info.Attr(), out), 0
}

// attr asks for attributes by handle if there is one. The kernel's choice of handle
// may be one of the node's earlier life, though it asks by path: then the path decides.
func (n *node) attr(f fs.FileHandle) (wire.Attr, error) {
	if h, ok := f.(*file); ok {
		a, err := h.f.Attr(bounded())
		if wire.Errno(err) != syscall.ESTALE {
			return a, err
		}
	}
	info, err := n.client().Lstat(bounded(), n.path())
	return info.Attr(), err
}

func (n *node) Getattr(_ context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	a, err := n.attr(f)
	if err != nil {
		return n.errno(err)
	}
	fill(&out.Attr, a)
	return 0
}

// Setattr goes by any open handle where the kernel names none and the file has no name
// any more: changing its mode or times by a descriptor comes so.
func (n *node) Setattr(_ context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	h, named := f.(*file)
	a, err := n.set(h, in)
	if !named && wire.Errno(err) == syscall.ENOENT {
		for _, h := range n.m.opened.of(n.StableAttr().Ino) {
			if a, err = n.set(h, in); err == nil { // it may be closed meanwhile
				break
			}
		}
	}
	if err != nil {
		return n.errno(err)
	}
	fill(&out.Attr, a)
	return 0
}

// set changes attributes by a handle, or by path if h is nil.
func (n *node) set(h *file, in *fuse.SetAttrIn) (wire.Attr, error) {
	var f fs.FileHandle
	if h != nil {
		f = h
	}
	a, err := n.attr(f)
	if err != nil {
		return a, err
	}
	req, errno := change(in, a)
	switch {
	case errno != 0:
		return a, errno
	case req.What == 0:
		return a, nil
	case h != nil:
		return h.f.Set(bounded(), req)
	}
	info, err := n.client().Set(bounded(), n.path(), req)
	return info.Attr(), err
}

// openFlags are those that the node is to know of. Appending is the kernel's affair,
// which says where to write.
const openFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_EXCL

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, err := n.client().OpenFile(bounded(), n.path(), int(flags)&openFlags&^os.O_EXCL, 0)
	if err != nil {
		return nil, 0, n.errno(err)
	}
	return n.open(f), 0, 0
}

// open makes the kernel's handle of a file.
func (n *node) open(f *remote.File) *file {
	h := &file{n, f, n.m.stable(f.Opened()).Ino}
	n.m.opened.add(h)
	return h
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	f, err := n.client().OpenFile(bounded(), n.child(name), int(flags)&openFlags|os.O_CREATE, fileMode(mode).Perm())
	if err != nil {
		return nil, nil, 0, n.errno(err)
	}
	return n.add(ctx, f.Opened(), out), n.open(f), 0, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	info, err := n.client().Mkdir(bounded(), n.child(name), fileMode(mode).Perm())
	if err != nil {
		return nil, n.errno(err)
	}
	return n.add(ctx, info.Attr(), out), 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.errno(n.client().Remove(bounded(), n.child(name), wire.File))
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.errno(n.client().Remove(bounded(), n.child(name), wire.Dir))
}

func (n *node) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags != 0 { // exchanging, or not replacing: the node's call has neither
		return syscall.EINVAL
	}
	target := path.Join(to.EmbeddedInode().Path(n.Root()), newName)
	return n.errno(n.client().Rename(bounded(), n.child(name), target))
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	target, err := n.client().Readlink(bounded(), n.path())
	return []byte(target), n.errno(err)
}

func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, err := n.client().OpenFile(bounded(), n.path(), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, 0, n.errno(err)
	}
	return &dir{n: n, f: f}, 0, 0
}

// file is an open file.
type file struct {
	n   *node
	f   *remote.File
	ino uint64
}

// openFiles are a mount's open files, by inode.
type openFiles struct {
	mu    sync.Mutex
	files map[uint64][]*file
}

func (o *openFiles) add(h *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.files == nil {
		o.files = map[uint64][]*file{}
	}
	o.files[h.ino] = append(o.files[h.ino], h)
}

func (o *openFiles) remove(h *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := slices.DeleteFunc(o.files[h.ino], func(other *file) bool { return other == h })
	if o.files[h.ino] = left; len(left) == 0 {
		delete(o.files, h.ino)
	}
}

func (o *openFiles) of(ino uint64) []*file {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.files[ino])
}

var (
	_ fs.FileReader   = (*file)(nil)
	_ fs.FileWriter   = (*file)(nil)
	_ fs.FileFlusher  = (*file)(nil)
	_ fs.FileFsyncer  = (*file)(nil)
	_ fs.FileReleaser = (*file)(nil)
)

func (h *file) Read(_ context.Context, p []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.f.ReadContext(bounded(), p, off)
	if err != nil && err != io.EOF {
		return nil, h.n.errno(err)
	}
	return fuse.ReadResultData(p[:n]), 0
}

func (h *file) Write(_ context.Context, p []byte, off int64) (uint32, syscall.Errno) {
	n, err := h.f.WriteContext(bounded(), p, off)
	if n > 0 && err != nil {
		err = nil // the next write hears of it
	}
	return uint32(n), h.n.errno(err)
}

func (h *file) Flush(context.Context) syscall.Errno { return h.n.errno(h.f.Flush(bounded())) }

func (h *file) Fsync(context.Context, uint32) syscall.Errno {
	return h.n.errno(h.f.SyncContext(bounded()))
}

// Release ends the file. Nobody hears its error: who cares has closed with Flush.
func (h *file) Release(context.Context) syscall.Errno {
	h.n.m.opened.remove(h)
	h.f.Close()
	return 0
}

// dir is an open directory. The kernel reads it under a lock of its own.
type dir struct {
	n    *node
	f    *remote.File
	at   uint64
	last remote.Info
}

var (
	_ fs.FileReaddirenter = (*dir)(nil)
	_ fs.FileLookuper     = (*dir)(nil)
	_ fs.FileSeekdirer    = (*dir)(nil)
	_ fs.FileFsyncdirer   = (*dir)(nil)
	_ fs.FileReleasedirer = (*dir)(nil)
)

func (d *dir) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	info, err := d.f.Next(bounded())
	if err == io.EOF {
		return nil, 0
	}
	if err != nil {
		return nil, d.n.errno(err)
	}
	d.at++
	d.last = info
	a := info.Attr()
	e := &fuse.DirEntry{Name: info.Name(), Mode: systemMode(a.Mode), Off: d.at}
	if _, err := info.Info(); err == nil {
		e.Ino = d.n.m.stable(a).Ino
	}
	return e, 0
}

// Lookup answers from the entry, which has the attributes with it.
func (d *dir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if d.last.Name() != name {
		return d.n.Lookup(ctx, name, out)
	}
	if _, err := d.last.Info(); err != nil {
		return nil, d.n.errno(err)
	}
	return d.n.add(ctx, d.last.Attr(), out), 0
}

// Seekdir goes to after the entry with that number, by reading again what is before it.
func (d *dir) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	if off < d.at {
		d.f.Rewind()
		d.at = 0
	}
	for d.at < off {
		if e, errno := d.Readdirent(ctx); errno != 0 || e == nil {
			return errno
		}
	}
	return 0
}

func (d *dir) Fsyncdir(context.Context, uint32) syscall.Errno {
	return d.n.errno(d.f.SyncContext(bounded()))
}

func (d *dir) Releasedir(context.Context, uint32) { d.f.Close() }
