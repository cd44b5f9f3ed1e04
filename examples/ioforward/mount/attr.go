package mount

import (
	iofs "io/fs"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// blockBytes is the size that programs are advised to read and write with.
const blockBytes = 128 << 10

// systemMode is a mode of package fs as the kernel has it.
func systemMode(m iofs.FileMode) uint32 {
	mode := uint32(m.Perm())
	switch {
	case m.IsDir():
		mode |= syscall.S_IFDIR
	case m&iofs.ModeSymlink != 0:
		mode |= syscall.S_IFLNK
	case m&iofs.ModeNamedPipe != 0:
		mode |= syscall.S_IFIFO
	case m&iofs.ModeSocket != 0:
		mode |= syscall.S_IFSOCK
	case m&iofs.ModeCharDevice != 0:
		mode |= syscall.S_IFCHR
	case m&iofs.ModeDevice != 0:
		mode |= syscall.S_IFBLK
	case m&iofs.ModeIrregular != 0: // of which the node does not know the type
	default:
		mode |= syscall.S_IFREG
	}
	for _, p := range special {
		if m&p.ours != 0 {
			mode |= p.theirs
		}
	}
	return mode
}

var special = [...]struct {
	ours   iofs.FileMode
	theirs uint32
}{{iofs.ModeSetuid, syscall.S_ISUID}, {iofs.ModeSetgid, syscall.S_ISGID}, {iofs.ModeSticky, syscall.S_ISVTX}}

// fileMode is the kernel's permission bits as package fs has them.
func fileMode(m uint32) iofs.FileMode {
	mode := iofs.FileMode(m & 0o777)
	for _, p := range special {
		if m&p.theirs != 0 {
			mode |= p.ours
		}
	}
	return mode
}

func fill(out *fuse.Attr, a wire.Attr) {
	out.Ino, out.Size, out.Blocks, out.Blksize = a.Ino, uint64(a.Size), a.Blocks, blockBytes
	out.Mode, out.Nlink = systemMode(a.Mode), a.Nlink
	out.Owner = fuse.Owner{Uid: a.UID, Gid: a.GID}
	at, mt, ct := a.Atime.Go(), a.Mtime.Go(), a.Ctime.Go()
	out.SetTimes(&at, &mt, &ct)
}

// change is what the kernel wants set, in the node's terms. Owners stay what they
// are: everything belongs to the user that the node runs as.
func change(in *fuse.SetAttrIn, now wire.Attr) (req wire.SetRequest, errno syscall.Errno) {
	if uid, ok := in.GetUID(); ok && uid != now.UID {
		return req, syscall.EPERM
	}
	if gid, ok := in.GetGID(); ok && gid != now.GID {
		return req, syscall.EPERM
	}
	if mode, ok := in.GetMode(); ok {
		req.What |= wire.SetMode
		req.Mode = fileMode(mode)
	}
	if size, ok := in.GetSize(); ok {
		req.What |= wire.SetSize
		req.Size = size
	}
	if t, ok := in.GetATime(); ok {
		req.What |= wire.SetAtime
		req.Atime = wire.TimeOf(t)
	}
	if t, ok := in.GetMTime(); ok {
		req.What |= wire.SetMtime
		req.Mtime = wire.TimeOf(t)
	}
	return req, 0
}
