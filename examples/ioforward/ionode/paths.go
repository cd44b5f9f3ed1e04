package ionode

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/rpc"
)

// checkPath refuses paths that cannot lie below a directory. os.Root would as well; this
// way each of them has its error number.
func checkPath(paths ...string) error {
	for _, p := range paths {
		switch {
		case p == "":
			return syscall.ENOENT
		case strings.IndexByte(p, 0) >= 0:
			return syscall.EINVAL
		case !filepath.IsLocal(p):
			return syscall.EACCES
		}
	}
	return nil
}

// pathError gives an error number to what os.Root says of its own: that a path, by
// way of a link, leads out of the directory.
func pathError(err error) error {
	var number syscall.Errno
	if err == nil || errors.As(err, &number) || errors.Is(err, fs.ErrClosed) {
		return err
	}
	return syscall.EACCES
}

func attrOf(info os.FileInfo) wire.Attr {
	a := wire.Attr{Size: info.Size(), Mode: info.Mode(), Mtime: wire.TimeOf(info.ModTime())}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		a.Dev, a.Ino, a.Blocks, a.Nlink = uint64(st.Dev), st.Ino, uint64(st.Blocks), uint32(st.Nlink)
		a.UID, a.GID, a.Atime, a.Ctime = st.Uid, st.Gid, timeOf(st.Atim.Unix()), timeOf(st.Ctim.Unix())
	}
	return a
}

func timeOf(sec, nsec int64) wire.Time { return wire.Time{Sec: sec, Nsec: uint32(nsec)} }

func (n *Node) lstat(p string) (wire.Attr, error) {
	info, err := n.root.Lstat(p)
	if err != nil {
		return wire.Attr{}, pathError(err)
	}
	return attrOf(info), nil
}

func (n *Node) stat(_ context.Context, _ *rpc.Call, req wire.PathRequest) (wire.Attr, error) {
	if err := checkPath(req.Path); err != nil {
		return wire.Attr{}, err
	}
	if req.Kind == wire.Itself {
		return n.lstat(req.Path)
	}
	info, err := n.root.Stat(req.Path)
	if err != nil {
		return wire.Attr{}, pathError(err)
	}
	return attrOf(info), nil
}

func (n *Node) readlink(_ context.Context, _ *rpc.Call, req wire.PathRequest) (string, error) {
	if err := checkPath(req.Path); err != nil {
		return "", err
	}
	target, err := n.root.Readlink(req.Path)
	return target, pathError(err)
}

func (n *Node) remove(_ context.Context, _ *rpc.Call, req wire.PathRequest) (none struct{}, err error) {
	if err := checkPath(req.Path); err != nil {
		return none, err
	}
	if req.Kind == wire.File || req.Kind == wire.Dir {
		a, err := n.lstat(req.Path)
		switch {
		case err != nil:
			return none, err
		case req.Kind == wire.File && a.Mode.IsDir():
			return none, syscall.EISDIR
		case req.Kind == wire.Dir && !a.Mode.IsDir():
			return none, syscall.ENOTDIR
		}
	}
	return none, pathError(n.root.Remove(req.Path))
}

func (n *Node) mkdir(_ context.Context, _ *rpc.Call, req wire.MkdirRequest) (wire.Attr, error) {
	if err := checkPath(req.Path); err != nil {
		return wire.Attr{}, err
	}
	if err := n.root.Mkdir(req.Path, req.Perm.Perm()); err != nil {
		return wire.Attr{}, pathError(err)
	}
	return n.lstat(req.Path)
}

func (n *Node) rename(_ context.Context, _ *rpc.Call, req wire.RenameRequest) (none struct{}, err error) {
	if err := checkPath(req.From, req.To); err != nil {
		return none, err
	}
	return none, pathError(n.renameAt(req.From, req.To))
}

// renameAt is os.Root's Rename without its own check, which refuses a directory that is
// to take an empty one's place: the kernel judges.
func (n *Node) renameAt(from, to string) error {
	old, oldName, err := n.parent(from)
	if err != nil {
		return err
	}
	defer old.Close()
	dir, name, err := n.parent(to)
	if err != nil {
		return err
	}
	defer dir.Close()
	// A slash at the end says that it is a directory. No link is followed for it.
	oldName, name = oldName+slash(from), name+slash(to)
	return withFD(old, func(oldFD int) error {
		return withFD(dir, func(fd int) error { return unix.Renameat(oldFD, oldName, fd, name) })
	})
}

// slash is the slash at a path's end, if it has one.
func slash(p string) string {
	if strings.HasSuffix(p, "/") {
		return "/"
	}
	return ""
}

// parent opens the directory in which a path's last name lies. That name has no slash,
// and is not "..": it leads out of the directory only if it is a link that one follows.
func (n *Node) parent(p string) (dir *os.File, name string, err error) {
	p = strings.TrimRight(p, "/")
	at := strings.LastIndexByte(p, '/')
	name, p = p[at+1:], p[:max(at, 0)]
	switch {
	case name == "..":
		return nil, "", syscall.EBUSY
	case at < 0:
		p = "."
	}
	dir, err = n.root.OpenFile(p, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	return dir, name, err
}

// list answers with the next entries of an open directory. An entry that is removed
// meanwhile is left out. One that cannot be looked at, as another's mount that
// is dead, has its name, and its type if the kernel knows that: the others are listed all the same.
func (n *Node) list(ctx context.Context, c *rpc.Call, req wire.ListRequest) (reply wire.ListReply, err error) {
	h, err := n.find(c.From, req.Handle)
	if err != nil {
		return reply, err
	}
	if !h.dir {
		return reply, syscall.ENOTDIR
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if req.Restart {
		if _, err := h.file.Seek(0, io.SeekStart); err != nil {
			return reply, err
		}
	}
	names, err := h.file.Readdirnames(wire.MaxBatch)
	if err == io.EOF {
		reply.End, err = true, nil
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return reply, context.Cause(ctx)
		}
		info, e := statAt(h.file, name)
		if e == nil {
			reply.Entries = append(reply.Entries, wire.Entry{Name: name, Attr: info})
		} else if !errors.Is(e, fs.ErrNotExist) {
			reply.Entries = append(reply.Entries, wire.Entry{Name: name, Errno: uint16(wire.Errno(e)), Attr: wire.Attr{Mode: typeAt(h.file, name)}})
		}
	}
	return reply, err
}

// statAt is lstat of a name in an open directory.
func statAt(dir *os.File, name string) (a wire.Attr, err error) {
	var st unix.Stat_t
	err = withFD(dir, func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return a, err
	}
	return wire.Attr{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Blocks: uint64(st.Blocks), Mode: fileMode(st.Mode),
		Nlink: uint32(st.Nlink), UID: st.Uid, GID: st.Gid,
		Atime: timeOf(st.Atim.Unix()), Mtime: timeOf(st.Mtim.Unix()), Ctime: timeOf(st.Ctim.Unix())}, nil
}

// typeAt is the type of a name that statAt failed on: the one that the kernel remembers.
func typeAt(dir *os.File, name string) fs.FileMode {
	var st unix.Statx_t
	err := withFD(dir, func(fd int) error {
		return unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	})
	if err != nil || st.Mask&unix.STATX_TYPE == 0 {
		return fs.ModeIrregular
	}
	return fileMode(uint32(st.Mode)).Type()
}

// fileMode is a mode of the kernel's as package fs has it.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for _, p := range [...]struct {
		theirs uint32
		ours   fs.FileMode
	}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}} {
		if m&p.theirs != 0 {
			mode |= p.ours
		}
	}
	return mode
}

func withFD(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// set changes attributes, of an open file if there is a handle.
func (n *Node) set(_ context.Context, c *rpc.Call, req wire.SetRequest) (wire.Attr, error) {
	if req.Size > wire.MaxOffset {
		return wire.Attr{}, syscall.EFBIG
	}
	if req.What&wire.SetMode != 0 && req.Mode&^fs.ModePerm != 0 {
		return wire.Attr{}, syscall.EPERM // no setuid files by way of the network
	}
	if req.Handle != 0 {
		h, err := n.find(c.From, req.Handle)
		if err != nil {
			return wire.Attr{}, err
		}
		return setOpen(h.file, req)
	}
	if err := checkPath(req.Path); err != nil {
		return wire.Attr{}, err
	}
	if err := n.setPath(req); err != nil {
		return wire.Attr{}, pathError(err)
	}
	info, err := n.root.Stat(req.Path)
	if err != nil {
		return wire.Attr{}, pathError(err)
	}
	return attrOf(info), nil
}

func (n *Node) setPath(req wire.SetRequest) error {
	if req.What&wire.SetSize != 0 {
		file, _, err := n.openPlain(req.Path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		err = file.Truncate(int64(req.Size))
		if e := file.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	if req.What&wire.SetMode != 0 {
		if err := n.root.Chmod(req.Path, req.Mode); err != nil {
			return err
		}
	}
	if req.What&(wire.SetAtime|wire.SetMtime) == 0 {
		return nil
	}
	return n.setTimes(req.Path, timesOf(req))
}

// timesOf are a request's times as the kernel has them.
func timesOf(req wire.SetRequest) []unix.Timespec {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	for i, t := range [...]struct {
		set wire.Set
		to  wire.Time
	}{{wire.SetAtime, req.Atime}, {wire.SetMtime, req.Mtime}} {
		if req.What&t.set != 0 {
			times[i] = unix.Timespec{Sec: t.to.Sec, Nsec: int64(t.to.Nsec)}
		}
	}
	return times
}

// maxLinks is how many links are followed at a path's end, as many as the kernel follows.
const maxLinks = 40

// setTimes is os.Root's Chtimes, which takes the years after 2262 for others.
func (n *Node) setTimes(p string, times []unix.Timespec) error {
	for range maxLinks {
		link, err := n.setTimesOf(p, times)
		if err != nil || link == "" {
			return err
		}
		p = strings.TrimRight(p, "/")
		p = p[:strings.LastIndexByte(p, '/')+1] + link
	}
	return syscall.ELOOP
}

// setTimesOf sets a file's times, or says where a link leads.
func (n *Node) setTimesOf(p string, times []unix.Timespec) (link string, err error) {
	file, err := n.root.OpenFile(p, unix.O_PATH, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return "", err
	} else if info.Mode()&fs.ModeSymlink != 0 {
		return n.root.Readlink(p)
	}
	return "", setFileTimes(file, times)
}

func setFileTimes(file *os.File, times []unix.Timespec) error {
	return withFD(file, func(fd int) error { return unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH) })
}

func setOpen(file *os.File, req wire.SetRequest) (a wire.Attr, err error) {
	if req.What&wire.SetSize != 0 {
		err = file.Truncate(int64(req.Size))
	}
	if err == nil && req.What&wire.SetMode != 0 {
		err = file.Chmod(req.Mode)
	}
	if err == nil && req.What&(wire.SetAtime|wire.SetMtime) != 0 {
		err = setFileTimes(file, timesOf(req))
	}
	if err != nil {
		return a, err
	}
	info, err := file.Stat()
	if err != nil {
		return a, err
	}
	return attrOf(info), nil
}

func (n *Node) space(context.Context, *rpc.Call, struct{}) (s wire.Space, err error) {
	dir, err := n.root.Open(".")
	if err != nil {
		return s, err
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := withFD(dir, func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return s, err
	}
	return wire.Space{BlockBytes: uint32(st.Bsize), Blocks: st.Blocks, Free: st.Bfree, Available: st.Bavail, Files: st.Files, FilesFree: st.Ffree}, nil
}
