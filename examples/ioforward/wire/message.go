package wire

import (
	"io/fs"
	"time"

	"github.com/wherry-fabric/wherry/rpc"
)

// Welcome is what a node tells a client first.
type Welcome struct {
	IOBytes  uint32 // one read or write, at most
	Calls    uint32 // of one client, under way at once
	LeaseMs  uint32 // after so long without any call a client's handles are freed
	ReadOnly bool
}

// Lease is LeaseMs.
func (w Welcome) Lease() time.Duration { return time.Duration(w.LeaseMs) * time.Millisecond }

// Time is a file's time: seconds since 1970, and nanoseconds from 0 to 999999999 after
// these. In nanoseconds alone the years end at 2262.
type Time struct {
	Sec  int64
	Nsec uint32
}

// TimeOf is Go's time as it travels.
func TimeOf(t time.Time) Time { return Time{t.Unix(), uint32(t.Nanosecond())} }

// Go is it as Go has it.
func (t Time) Go() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// Attr is what a node knows of a file.
type Attr struct {
	Dev, Ino            uint64
	Size                int64
	Blocks              uint64 // of 512 bytes
	Mode                fs.FileMode
	Nlink, UID, GID     uint32
	Atime, Mtime, Ctime Time
}

// Flags say how a file is opened.
type Flags uint32

const (
	Read Flags = 1 << iota
	Write
	Create
	Exclusive
	Truncate
	Directory // to list it; with Read only

	allFlags = Directory<<1 - 1
)

// OpenRequest opens a file or a directory.
type OpenRequest struct {
	Path  string
	Flags Flags
	Perm  fs.FileMode // of a file that is created
}

// OpenReply says by which handle it is known.
type OpenReply struct {
	Handle uint64
	Attr   Attr
}

// IORequest asks for Size bytes from Offset to be moved between a file and Bulk.
type IORequest struct {
	Handle uint64
	Offset uint64
	Size   uint32
	Bulk   *rpc.Bulk
}

// PathRequest names a file; what Kind means is the call's affair.
type PathRequest struct {
	Path string
	Kind Kind
}

// Kind qualifies a PathRequest.
type Kind uint8

const (
	Any    Kind = iota // Stat: follow a link at the end; Remove: whatever it is
	Itself             // Stat: the link, not what it leads to
	File               // Remove: only what is not a directory
	Dir                // Remove: only a directory
)

// MkdirRequest makes a directory.
type MkdirRequest struct {
	Path string
	Perm fs.FileMode
}

// RenameRequest moves a file; what was at To is replaced.
type RenameRequest struct{ From, To string }

// ListRequest asks for the next entries of an open directory.
type ListRequest struct {
	Handle  uint64
	Restart bool // from the beginning
}

// Entry is one name of a directory.
type Entry struct {
	Name  string
	Errno uint16 // if not 0: why of Attr there is the Mode's type only, ModeIrregular if that is unknown too
	Attr  Attr
}

// ListReply has some entries; End says that there are no more.
type ListReply struct {
	Entries []Entry
	End     bool
}

// Set says what SetRequest changes.
type Set uint8

const (
	SetSize Set = 1 << iota
	SetMode
	SetAtime
	SetMtime

	allSet = SetMtime<<1 - 1
)

// SetRequest changes a file's attributes: of the open file, or if Handle is 0 of the path's.
type SetRequest struct {
	Handle       uint64
	Path         string
	What         Set
	Size         uint64
	Mode         fs.FileMode // permission bits
	Atime, Mtime Time
}

// Space is what a file system has.
type Space struct {
	BlockBytes              uint32
	Blocks, Free, Available uint64
	Files, FilesFree        uint64
}
