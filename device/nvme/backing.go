package nvme

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrWait says that a request was not carried out because it may block.
var ErrWait = errors.New("nvme: it may block")

// Request is what a command wants of a Backing.
type Request struct {
	Op      Opcode // OpRead, OpWrite, OpFlush, OpWriteZeroes, or OpDataset to deallocate
	Off     int64
	Size    int64
	Pieces  [][]byte // Size bytes in all, for OpRead and OpWrite
	Durable bool     // OpWrite, OpWriteZeroes: it survives a loss of power when Do returns
}

// Backing is what a drive's blocks lie in.
type Backing interface {
	// Size is how many bytes it has; it stays the same.
	Size() uint64
	// Do carries out a request that lies within Size. With wait false it returns ErrWait instead of blocking, having done nothing that doing it again
	// would not do. It may be called from any goroutine, several at once. The Request is the caller's.
	Do(r *Request, wait bool) error
	Close() error
}

// File is a Backing that is a file or a block device.
type File struct {
	f        *os.File
	direct   *os.File  // the same past the page cache; nil: not asked for
	align    alignment // of what goes there
	size     uint64
	readOnly bool
	memory   bool        // a file system in memory: nothing blocks
	place    *place      // of a file there, mapped; nil: there is none
	blind    atomic.Bool // the file system cannot say whether a read would block

	mu      sync.Mutex // of Flush
	flushes uint64     // begun
	synced  uint64     // of them, the last that ended
	syncing bool
	lost    error // of the first fdatasync that failed
	ended   *sync.Cond
	sync    func(fd int) error
}

// FileOptions say how a File is opened.
type FileOptions struct {
	ReadOnly bool
	Direct   bool // past the page cache: O_DIRECT
}

// alignment is what O_DIRECT asks for: of offsets and sizes in the file, and of addresses.
type alignment struct {
	file   int64
	memory uintptr
}

// OpenFile opens a Backing and keeps others who do the same from it.
func OpenFile(path string, o FileOptions) (*File, error) {
	flags := os.O_RDWR
	if o.ReadOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	b := &File{f: f, readOnly: o.ReadOnly, sync: unix.Fdatasync}
	b.ended = sync.NewCond(&b.mu)
	if err = b.look(); err == nil && o.Direct {
		err = b.openDirect(flags)
	}
	if err == nil && b.memory && b.direct == nil {
		b.place = openPlace(int(f.Fd()), b.size, b.readOnly)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// openDirect opens the file once more, past the page cache.
func (b *File) openDirect(flags int) (err error) {
	own := fmt.Sprintf("/proc/self/fd/%d", b.f.Fd()) // the same file, whatever has its name now
	if b.direct, err = os.OpenFile(own, flags|unix.O_DIRECT, 0); err != nil {
		return fmt.Errorf("its file system does not take O_DIRECT, so leave \",direct\" away: %w", err)
	}
	b.align = alignment{pageBytes, pageBytes}
	var st unix.Statx_t
	if unix.Statx(int(b.f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) == nil && st.Mask&unix.STATX_DIOALIGN != 0 && st.Dio_offset_align > 0 && st.Dio_mem_align > 0 {
		b.align = alignment{int64(st.Dio_offset_align), uintptr(st.Dio_mem_align)}
	}
	return nil
}

// fileFor is the descriptor by which a request goes: what is not aligned for O_DIRECT goes by the page cache, which the kernel keeps the same.
func (b *File) fileFor(r *Request) *os.File {
	if b.direct != nil && b.align.fits(r) {
		return b.direct
	}
	return b.f
}

func (b *File) look() error {
	st, err := b.f.Stat()
	if err != nil {
		return err
	}
	if mode := st.Mode(); !mode.IsRegular() && mode&os.ModeDevice == 0 || mode&os.ModeCharDevice != 0 {
		return errors.New("neither a file nor a block device")
	}
	end, err := b.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if b.size = uint64(end) &^ (BlockBytes - 1); b.size == 0 {
		return fmt.Errorf("%d bytes, less than a block of %d: make it larger (truncate --size 1G)", end, BlockBytes)
	}
	how := unix.LOCK_EX
	if b.readOnly {
		how = unix.LOCK_SH
	}
	if err := unix.Flock(int(b.f.Fd()), how|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another process has locked it, a node that lends it perhaps: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(b.f.Fd()), &fs); err != nil {
		return err
	}
	b.memory = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
	return nil
}

// Size implements Backing.
func (b *File) Size() uint64 { return b.size }

// Close implements Backing.
func (b *File) Close() error {
	if b.direct != nil {
		b.direct.Close()
	}
	return b.f.Close()
}

// Do implements Backing.
func (b *File) Do(r *Request, wait bool) error {
	fd := int(b.fileFor(r).Fd())
	if b.direct != nil && !wait && (r.Op == OpRead || r.Op == OpWrite) {
		return ErrWait
	}
	if b.place != nil && (r.Op == OpRead || r.Op == OpWrite) && b.place.move(r) {
		return nil
	}
	switch r.Op {
	case OpRead:
		return b.read(fd, r, wait)
	case OpWrite:
		if !b.memory && !wait {
			return ErrWait
		}
		return b.write(fd, r)
	case OpFlush:
		switch {
		case b.memory || b.readOnly:
			return nil
		case !wait:
			return ErrWait
		}
		return b.flush()
	}
	if !wait {
		return ErrWait
	}
	if err := b.clear(r); err != nil || !r.Durable || b.memory {
		return err
	}
	return b.flush()
}

func (b *File) read(fd int, r *Request, wait bool) error {
	flags := 0
	if !b.memory && !wait {
		if flags = unix.RWF_NOWAIT; b.blind.Load() {
			return ErrWait
		}
	}
	off := r.Off
	for _, p := range r.Pieces {
		for len(p) > 0 {
			var n int
			var err error
			if flags == 0 {
				n, err = unix.Pread(fd, p, off)
			} else {
				n, err = unix.Preadv2(fd, [][]byte{p}, off, flags)
			}
			switch {
			case err == unix.EINTR:
				continue
			case flags != 0 && (err == unix.EOPNOTSUPP || err == unix.EINVAL):
				b.blind.Store(true)
				return ErrWait
			case flags != 0 && (err == unix.EAGAIN || err == nil && n < len(p)):
				return ErrWait
			case err != nil:
				return err
			case n == 0:
				return io.ErrUnexpectedEOF // it was truncated
			}
			p, off = p[n:], off+int64(n)
		}
	}
	return nil
}

func (b *File) write(fd int, r *Request) error {
	off := r.Off
	for _, p := range r.Pieces {
		for len(p) > 0 {
			n, err := unix.Pwrite(fd, p, off)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			p, off = p[n:], off+int64(n)
		}
	}
	if r.Durable && !b.memory {
		return b.flush()
	}
	return nil
}

// flush makes what was written durable. Flushes that come while one goes on share the next.
// Once one has failed all do: the kernel reports a lost write once, and the next fdatasync succeeds, also for the borrower whose write was lost.
func (b *File) flush() error {
	fd := int(b.f.Fd())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushes++
	mine := b.flushes
	for b.syncing && b.synced < mine {
		b.ended.Wait()
	}
	switch {
	case b.lost != nil:
		return b.lost
	case b.synced >= mine:
		return nil
	}
	b.syncing = true
	all := b.flushes // whoever came until now
	b.mu.Unlock()
	err := b.sync(fd)
	for err == unix.EINTR {
		err = b.sync(fd)
	}
	b.mu.Lock()
	b.syncing = false
	if err == nil {
		b.synced = max(b.synced, all)
	} else {
		b.lost = fmt.Errorf("fdatasync failed, so earlier writes may be lost, whosever they are: check the disk and restart the node: %w", err)
		err = b.lost
	}
	b.ended.Broadcast()
	return err
}

// clear makes a range zeros. Deallocated blocks are read as zeros here, so both commands do the same where the file system can.
func (b *File) clear(r *Request) error {
	fd := int(b.f.Fd())
	if b.place != nil {
		b.place.forget(r.Off, r.Size)
		defer b.place.forget(r.Off, r.Size)
	}
	for _, mode := range []uint32{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE} {
		for {
			e := unix.Fallocate(fd, mode, r.Off, r.Size)
			if e == nil {
				return nil
			}
			if e != unix.EINTR {
				break
			}
		}
	}
	if r.Op == OpDataset {
		return nil // a hint
	}
	zeros := make([]byte, min(r.Size, MaxTransferBytes))
	for off, left := r.Off, r.Size; left > 0; {
		n := min(left, int64(len(zeros)))
		if err := b.write(fd, &Request{Op: OpWrite, Off: off, Size: n, Pieces: [][]byte{zeros[:n]}}); err != nil {
			return err
		}
		off, left = off+n, left-n
	}
	return nil
}
