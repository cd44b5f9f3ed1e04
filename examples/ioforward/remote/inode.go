package remote

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

// inodeKey says which file it is, whatever it is called now. A handle's file is known
// by its connection too, as the next one may lead to another disk.
type inodeKey struct {
	s        *session
	dev, ino uint64
}

// inode is what a Client keeps of a file while it has it open: what was written and
// is not at the node yet.
type inode struct {
	key  inodeKey
	refs int           // Files; the Client's mu is over it
	gen  atomic.Uint64 // rises with each change: what was read ahead before is of no use

	mu     sync.Mutex
	part   *chunk   // being filled
	flying []*chunk // being sent, in the order they were filled
}

// chunk is a run of written bytes.
type chunk struct {
	f      *File
	s      *slot
	off    int64
	n      int
	room   int // of it, to the end of the aligned range that it lies in
	before []*chunk
	done   chan struct{}
}

func (k *chunk) end() int64 { return k.off + int64(k.n) }

func (k *chunk) overlaps(lo, hi int64) bool { return k.off < hi && lo < k.end() }

// inodeOf finds or makes the record of a file that was just opened.
func (c *Client) inodeOf(s *session, a wire.Attr, f *File) *inode {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files[f] = struct{}{}
	key := inodeKey{s, a.Dev, a.Ino}
	ino := c.inodes[key]
	if ino == nil {
		ino = &inode{key: key}
		c.inodes[key] = ino
	}
	ino.refs++
	return ino
}

func (c *Client) forget(f *File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.files, f)
	if f.ino.refs--; f.ino.refs == 0 {
		delete(c.inodes, f.ino.key)
	}
}

// lookup is the record of an open file, or nil.
func (c *Client) lookup(a wire.Attr) *inode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inodes[inodeKey{c.current.Load(), a.Dev, a.Ino}]
}

// dirty reports whether there is anything that the node has not got yet.
func (ino *inode) dirty() bool {
	ino.mu.Lock()
	defer ino.mu.Unlock()
	return ino.part != nil || len(ino.flying) > 0
}

// sendParts sends what has been waiting to become a full chunk.
func (c *Client) sendParts() {
	c.mu.Lock()
	all := make([]*inode, 0, len(c.inodes))
	for _, ino := range c.inodes {
		all = append(all, ino)
	}
	c.mu.Unlock()
	for _, ino := range all {
		ino.mu.Lock()
		if ino.part != nil {
			c.launch(ino)
		}
		ino.mu.Unlock()
	}
}

// launch sends the chunk that is being filled; ino.mu is held. Chunks of one file
// are sent in any order, but for those that overlap.
func (c *Client) launch(ino *inode) {
	k := ino.part
	ino.part = nil
	for _, other := range ino.flying {
		if other.overlaps(k.off, k.end()) {
			k.before = append(k.before, other)
		}
	}
	ino.flying = append(ino.flying, k)
	if !c.goWork(func() { c.fly(ino, k) }) {
		c.landed(ino, k, errClosed)
	}
}

func (c *Client) fly(ino *inode, k *chunk) {
	for _, other := range k.before {
		<-other.done
	}
	err := k.f.failure()
	if err == nil {
		err = c.writeSlot(k.f, k.s, k.off, k.n)
	}
	ino.mu.Lock()
	defer ino.mu.Unlock()
	c.landed(ino, k, err)
}

// landed ends a chunk; ino.mu is held.
func (c *Client) landed(ino *inode, k *chunk, err error) {
	ino.flying = slices.DeleteFunc(ino.flying, func(o *chunk) bool { return o == k })
	k.f.fail(err)
	k.before = nil
	c.free(k.s, err)
	close(k.done)
}

// settle has what was written in [lo, hi) arrive at the node, or fail.
func (c *Client) settle(ctx context.Context, ino *inode, lo, hi int64) error {
	ino.mu.Lock()
	if ino.part != nil && ino.part.overlaps(lo, hi) {
		c.launch(ino)
	}
	var wait []*chunk
	for _, k := range ino.flying {
		if k.overlaps(lo, hi) {
			wait = append(wait, k)
		}
	}
	ino.mu.Unlock()
	for _, k := range wait {
		if err := await(ctx, k.done); err != nil {
			return err
		}
	}
	return nil
}
