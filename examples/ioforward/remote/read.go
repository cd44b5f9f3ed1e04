package remote

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// window is what is read ahead of a file's reader: aligned chunks, each in a slot.
type window struct {
	mu     sync.Mutex
	chunks map[int64]*readChunk
	next   int64 // where a reader that goes on would read
	streak int   // how often it did: the window grows with it
	closed bool
}

// readChunk is a chunk that was asked for.
type readChunk struct {
	s    *slot
	gen  uint64
	at   time.Time     // it was asked for
	done chan struct{} // closed when n and err are there
	n    int
	err  error
	gone bool // nobody wants it: whoever ends it frees the slot
}

func (k *readChunk) ended() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// ReadContext reads at an offset, all of p unless the file ends before: then it returns io.EOF too.
func (f *File) ReadContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	switch {
	case f.dir:
		return 0, f.error("read", syscall.EISDIR)
	case off < 0:
		return 0, f.error("read", syscall.EINVAL)
	case off > wire.MaxOffset-int64(len(p)):
		p = p[:wire.MaxOffset-off]
	}
	if err := f.c.settle(ctx, f.ino, off, off+int64(len(p))); err != nil {
		return 0, f.error("read", err)
	}
	// A write farther on that is not there yet may make the file longer, and what is before it
	// zeros: an end is believed only once it is there.
	dirty := f.ino.dirty()
	sequential := f.ahead.follow(f.c, off, len(p))
	for n < len(p) && err == nil {
		var m int
		if m, err = f.readAhead(ctx, p[n:], off+int64(n), sequential); m == 0 && err == nil {
			m, err = f.direct(ctx, p[n:], off+int64(n))
		}
		n += m
		if dirty && err == io.EOF {
			dirty, sequential = false, false
			err = f.c.settle(ctx, f.ino, off, math.MaxInt64)
		}
	}
	return n, f.error("read", err)
}

// follow notes where the reader is, and reports whether it goes on from where it was.
// A kernel that reads ahead itself does so with several requests at once, which may
// overtake each other; so near is enough.
func (w *window) follow(c *Client, off int64, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	reach := int64(c.cfg.IOBytes)
	end := off + int64(n)
	switch {
	case off == w.next:
		w.streak = min(w.streak+1, 30)
		w.next = end
	case w.streak > 0 && off < w.next+reach && off > w.next-reach:
		w.next = max(w.next, end)
	default:
		w.streak, w.next = 0, end
	}
	return w.streak > 0
}

// readAhead reads from the window. It returns 0 and no error where it has nothing: then the
// caller asks the node directly.
func (f *File) readAhead(ctx context.Context, p []byte, off int64, sequential bool) (int, error) {
	c, w := f.c, &f.ahead
	size := int64(c.cfg.IOBytes)
	index, skip := off/size, int(off%size)
	w.mu.Lock()
	k := w.valid(c, f.ino.gen.Load(), index)
	fresh := k == nil
	if sequential && !w.closed {
		w.trim(c, index)
		if fresh {
			k = f.ask(index)
		}
		for i := int64(1); k != nil && i <= int64(min(c.cfg.Window-1, 1<<min(w.streak, 20)-1)); i++ {
			if k.ended() && k.n < c.cfg.IOBytes { // the file ends here
				break
			}
			if (index+i)*size >= f.opened.Size || w.chunks[index+i] == nil && f.ask(index+i) == nil {
				break
			}
		}
	}
	w.mu.Unlock()
	if k == nil {
		return 0, nil
	}
	if err := await(ctx, k.done); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case k.gone: // somebody else found it of no use
		return 0, nil
	case k.err != nil, k.gen != f.ino.gen.Load():
		w.drop(c, index)
		return 0, nil // who asks directly hears what is wrong
	case k.n < c.cfg.IOBytes && k.n-skip < len(p) && !fresh:
		w.drop(c, index) // the file ended here then; it may have grown
		return 0, nil
	case k.n <= skip:
		return 0, io.EOF
	}
	n := copy(p, k.s.bytes()[skip:k.n])
	if n < len(p) && k.n < c.cfg.IOBytes {
		return n, io.EOF
	}
	return n, nil
}

// valid is the chunk at an index, if it may still be used; w.mu is held.
func (w *window) valid(c *Client, gen uint64, index int64) *readChunk {
	k := w.chunks[index]
	if k != nil && (k.gen != gen || k.ended() && time.Since(k.at) > c.cfg.Fresh) {
		w.drop(c, index)
		return nil
	}
	return k
}

// trim drops what the reader has left behind or will not come to; w.mu is held. One chunk
// behind is kept for requests that were overtaken.
func (w *window) trim(c *Client, index int64) {
	for i := range w.chunks {
		if i < index-1 || i > index+int64(c.cfg.Window) {
			w.drop(c, i)
		}
	}
}

// drop gives a chunk up; w.mu is held.
func (w *window) drop(c *Client, index int64) {
	k := w.chunks[index]
	delete(w.chunks, index)
	k.gone = true
	if k.ended() {
		c.spend(k)
	}
}

// spend gives back a chunk's slot.
func (c *Client) spend(k *readChunk) {
	c.free(k.s, k.err)
	c.ahead.Add(-1)
}

// clear drops everything for good.
func (w *window) clear(c *Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for i := range w.chunks {
		w.drop(c, i)
	}
}

// ask has a chunk read; nil if there is no room for it. f.ahead.mu is held.
func (f *File) ask(index int64) *readChunk {
	c, w := f.c, &f.ahead
	if index > wire.MaxOffset/int64(c.cfg.IOBytes)-1 {
		return nil
	}
	s := c.spareSlot()
	if s == nil {
		return nil
	}
	k := &readChunk{s: s, gen: f.ino.gen.Load(), at: time.Now(), done: make(chan struct{})}
	if !c.goWork(func() {
		off, n := index*int64(c.cfg.IOBytes), 0
		err := c.settle(c.life, f.ino, off, off+int64(c.cfg.IOBytes))
		if err == nil {
			n, err = c.readSlot(c.life, f, s, off, c.cfg.IOBytes)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		k.n, k.err = n, err
		close(k.done)
		if k.gone {
			c.spend(k)
		}
	}) {
		c.spend(k)
		return nil
	}
	if w.chunks == nil {
		w.chunks = map[int64]*readChunk{}
	}
	w.chunks[index] = k
	return k
}

// dropStale drops what was read ahead for readers who did not come.
func (c *Client) dropStale(now time.Time) {
	c.mu.Lock()
	all := make([]*File, 0, len(c.files))
	for f := range c.files {
		all = append(all, f)
	}
	c.mu.Unlock()
	for _, f := range all {
		f.ahead.mu.Lock()
		for i, k := range f.ahead.chunks {
			if k.ended() && now.Sub(k.at) > c.cfg.Fresh {
				f.ahead.drop(c, i)
			}
		}
		f.ahead.mu.Unlock()
	}
}

// readSlot has the node put up to n bytes into a slot.
func (c *Client) readSlot(ctx context.Context, f *File, s *slot, off int64, n int) (int, error) {
	got, err := call(ctx, c, f.s, c.calls.Read, wire.IORequest{Handle: f.handle, Offset: uint64(off), Size: uint32(n), Bulk: s.bulk})
	if err == nil && int(got) > n {
		err = fmt.Errorf("%w: the node read %d bytes of %d", syscall.EIO, got, n)
	}
	return int(got), err
}

// piece is a part of a direct read.
type piece struct {
	p    []byte
	off  int64
	n    int
	err  error
	done chan struct{}
}

// direct reads just what is asked for, in as many transfers at once as the window has.
func (f *File) direct(ctx context.Context, p []byte, off int64) (n int, err error) {
	size := f.c.cfg.IOBytes
	var pieces []*piece
	for len(p) > 0 && len(pieces) < f.c.cfg.Window {
		m := min(len(p), size)
		pieces = append(pieces, &piece{p: p[:m], off: off, done: make(chan struct{})})
		p, off = p[m:], off+int64(m)
	}
	for _, k := range pieces[1:] {
		if !f.c.goWork(func() { f.fetch(ctx, k) }) {
			k.err = errClosed
			close(k.done)
		}
	}
	f.fetch(ctx, pieces[0])
	short := false
	for _, k := range pieces {
		<-k.done // all of them: p is the caller's again afterwards
		if short || err != nil {
			continue
		}
		n += k.n
		err, short = k.err, k.n < len(k.p)
	}
	if short && err == nil {
		err = io.EOF
	}
	return n, err
}

func (f *File) fetch(ctx context.Context, k *piece) {
	defer close(k.done)
	s, err := f.c.slot(ctx)
	if err != nil {
		k.err = err
		return
	}
	k.n, k.err = f.c.readSlot(ctx, f, s, k.off, len(k.p))
	if k.err == nil {
		copy(k.p, s.bytes()[:k.n])
	}
	f.c.free(s, k.err)
}
