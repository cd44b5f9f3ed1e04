package rpc

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// Payloads that are too large for a message lie in sealed segments, and the
// other side fetches them with Get. A segment is used again and again, but for one endpoint only: a peer
// that has mapped it can read whatever is put there later. So its key stays
// the same as well, and the peer imports it once.

// Payloads in segments are of three kinds, each with a budget of its own. What ends the stay of one kind must never wait for room of the same
// kind, or two elements can wait for each other: an answer lies until it was read, which nothing can hold up; a request of a handler until
// its call has begun or was refused, as it never waits for a place; any other request for as long as it waits for a place, and so for
// handlers, which may wait for both.
const (
	lentAnswer = iota
	lentNested
	lentRequest
	lentKinds
)

// lentSegment is a segment for payloads to one peer.
type lentSegment struct {
	c     *conn
	seg   *fabric.Segment
	of    *portion // what it counts to while it is lent
	class int
	ref   ref
}

func (s *lentSegment) bytes() int64 { return int64(s.seg.Size()) }

// close frees a segment that is not lent.
func (s *lentSegment) close() { s.seg.Close() }

// revoke frees one that is, and takes it away from a peer that may be reading it.
func (s *lentSegment) revoke() {
	s.seg.Close()
	s.of.give(s.bytes())
}

// lend finds a segment for a payload of a kind and of size bytes, which is to be written there. Where there is no room it fails with a
// noRoom, or waits for its turn if it is given a context.
func (c *conn) lend(ctx context.Context, kind, size int) (*lentSegment, error) {
	class, of := classOf(size), &c.lent[kind]
	n := classBytes(class)
	if !of.take(n) {
		if ctx == nil {
			return nil, of.lacks(n)
		}
		if err := of.wait(ctx, n, c.gone); err != nil {
			return nil, err
		}
	}
	s, err := c.segment(class)
	if err != nil {
		of.give(n)
		return nil, err
	}
	s.of = of
	c.p.stats.overflows.Add(1)
	s.ref.size = uint64(size)
	return s, nil
}

// segment is one that was used before, or a new one.
func (c *conn) segment(class int) (*lentSegment, error) {
	c.mu.Lock()
	s, ok := c.segments.take(class)
	ended := c.ended
	c.mu.Unlock()
	if ok || ended != nil {
		return s, ended
	}
	seg, err := c.p.el.NewSegment(uint64(classBytes(class)), fabric.Sealed)
	if err != nil {
		return nil, fmt.Errorf("rpc: payload: %w", err)
	}
	s = &lentSegment{c: c, seg: seg, class: class}
	if s.ref.key, err = seg.Key(fabric.RightRead); err != nil {
		s.close()
		return nil, fmt.Errorf("rpc: payload: %w", err)
	}
	return s, nil
}

// reuse keeps a segment that is not being read for the next payload; nil is fine.
func (c *conn) reuse(s *lentSegment) {
	if s == nil {
		return
	}
	p, of, n := c.p, s.of, s.bytes() // once it is kept, it is the next one's
	c.mu.Lock()
	kept := c.segments.give(s.class, s, p.layer.CoarseNow(), p.limits.PoolBytes)
	c.mu.Unlock()
	if !kept {
		s.close()
	}
	of.give(n)
}

// fetch appends the payload that a reference names to dst, but for what is there already, beyond its end.
func (c *conn) fetch(ctx context.Context, refBody []byte, limit int, dst []byte, have written) ([]byte, error) {
	r, err := decodeRef(refBody, limit)
	if err != nil {
		return dst, err
	}
	mem, err := c.remotes.get(ctx, c.ep, r.key)
	if err != nil {
		return dst, err
	}
	if have.at != r {
		have.n = 0
	}
	return c.read(ctx, mem, r, dst, have.n)
}

// read is fetch from memory that was imported, for what follows the first have bytes.
func (c *conn) read(ctx context.Context, mem *fabric.Remote, r ref, dst []byte, have uint64) ([]byte, error) {
	c.p.stats.overflows.Add(1)
	n := len(dst)
	dst = withRoom(dst, int(r.size))
	if err := mem.Get(ctx, dst[n : n+int(r.size)][have:], have); err != nil {
		c.remotes.failed(r.key, err)
		return dst[:n], err
	}
	return dst[:n+int(r.size)], nil
}

// withRoom is dst with room for n bytes beyond its end, in memory of its own if it has none.
func withRoom(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n), dst...)
}
