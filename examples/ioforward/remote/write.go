package remote

import (
	"context"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// WriteContext writes at an offset. It returns when the bytes are on their way, with an earlier write's error if
// there was one; Flush waits for them. The context bounds the wait for room.
func (f *File) WriteContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.usable("write"); err != nil {
		return 0, err
	}
	if off < 0 || off > wire.MaxOffset-int64(len(p)) {
		return 0, f.error("write", syscall.EFBIG)
	}
	for n < len(p) && err == nil {
		var m int
		m, err = f.put(ctx, p[n:], off+int64(n))
		n += m
	}
	return n, f.error("write", err)
}

// put appends to the chunk that is being filled, or begins one.
func (f *File) put(ctx context.Context, p []byte, off int64) (int, error) {
	c, ino := f.c, f.ino
	var spare *slot
	defer func() {
		if spare != nil {
			c.slots <- spare
		}
	}()
	for {
		ino.mu.Lock()
		if err := f.writable(); err != nil {
			ino.mu.Unlock()
			return 0, err
		}
		k := ino.part
		if k != nil && (k.f != f || k.end() != off) {
			c.launch(ino)
			k = nil
		}
		if k == nil && spare != nil && len(ino.flying) < c.cfg.Window {
			k = &chunk{f: f, s: spare, off: off, room: c.cfg.IOBytes - int(off%int64(c.cfg.IOBytes)), done: make(chan struct{})}
			ino.part, spare = k, nil
		}
		if k != nil {
			n := copy(k.s.bytes()[k.n:k.room], p)
			k.n += n
			ino.gen.Add(1)
			if k.n == k.room {
				c.launch(ino)
			}
			ino.mu.Unlock()
			return n, nil
		}
		var oldest *chunk
		if len(ino.flying) >= c.cfg.Window {
			oldest = ino.flying[0]
		}
		ino.mu.Unlock()
		var err error
		if oldest != nil {
			err = await(ctx, oldest.done)
		} else {
			spare, err = c.slot(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
}

// writable is an error if the file is closed or a write failed. Close sets closed before it
// looks for chunks, so that none is begun after.
func (f *File) writable() error {
	f.state.Lock()
	defer f.state.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	return f.err
}

// writeSlot has the node take n bytes from a slot.
func (c *Client) writeSlot(f *File, s *slot, off int64, n int) error {
	put, err := call(c.life, c, f.s, c.calls.Write, wire.IORequest{Handle: f.handle, Offset: uint64(off), Size: uint32(n), Bulk: s.bulk})
	if err == nil && int(put) != n {
		err = fmt.Errorf("%w: the node wrote %d of %d bytes", syscall.EIO, put, n)
	}
	return err
}
