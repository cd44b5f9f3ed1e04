package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
)

// Payloads that are too large for a message lie in sealed segments, and the
// other side fetches them with Get. A segment is used again and again, but for one endpoint only: a peer
// that has mapped it can read whatever is put there later. So its key stays
// the same as well, and the peer imports it once.

// lentSegment is a segment for payloads to one peer.
type lentSegment struct {
	c     *conn
	seg   *fabric.Segment
	class int
	ref   ref
	what  lentKind
	since int64 // when an answer was lent in it, on the element's clock
}

// lentKind says where a segment that is lent counts, besides in Peer.bulk.
type lentKind uint8

const (
	lentRequest lentKind = iota // nowhere
	lentUnasked                 // in Peer.unasked and conn.unasked
	lentAsked                   // in conn.asked
)

func (s *lentSegment) bytes() int64 { return int64(s.seg.Size()) }

// close frees the segment, and takes it away from whoever may be reading it.
func (s *lentSegment) close() {
	p := s.c.p
	s.uncount()
	p.bulk.Add(-s.bytes())
	s.seg.Close()
	p.hasRoom()
}

// noRoom says that segments for payloads take up all they may. It is ErrBusy, in other words.
type noRoom struct {
	need, limit int64
	whose       string
}

func (e *noRoom) Error() string {
	return fmt.Sprintf("rpc: no room for a payload: it needs a segment of %d bytes, and %s may take %d", e.need, e.whose, e.limit)
}

const (
	roomOfAll     = "those for all peers (Limits.BulkBytes)"
	roomOfUnasked = "those for answers that nobody has asked for yet (of Limits.BulkBytes)"
	roomOfPeer    = "those for answers that one peer has asked for and not read yet (Limits.MaxBytes)"
)

func (e *noRoom) Is(target error) bool { return target == ErrBusy }

func isNoRoom(err error) bool {
	var e *noRoom
	return errors.As(err, &e)
}

// hasRoom tells those who wait for room that there may be some.
func (p *Peer) hasRoom() {
	p.roomy.Add(1)
	if p.cramped.Load() > 0 {
		p.el.Wake()
	}
}

// lendWaiting is a lend that waits for room until the context ends or unwanted says why
// nobody wants it any more. It must not be called on the goroutine that drives the fabric.
func (c *conn) lendWaiting(ctx context.Context, lend func(size int) (*lentSegment, error), size int, unwanted func() error) (*lentSegment, error) {
	p := c.p
	seen := p.roomy.Load()
	var s *lentSegment
	var err error = &noRoom{classBytes(classOf(size)), p.limits.BulkBytes, roomOfAll}
	if c.turn() {
		s, err = lend(size)
	}
	if !isNoRoom(err) {
		c.granted.Store(p.el.Now())
		return s, err
	}
	p.cramped.Add(1)
	defer p.cramped.Add(-1)
	short := shortage{c: c}
	short.note(err)
	defer short.note(nil)
	werr := p.el.WaitFor(ctx, func() bool {
		if why := unwanted(); why != nil {
			err = why
			return true
		}
		now := p.roomy.Load()
		if now == seen {
			return false
		}
		if seen = now; !c.turn() {
			return false
		}
		s, err = lend(size)
		short.note(err)
		return !isNoRoom(err)
	})
	if err == nil {
		c.granted.Store(p.el.Now())
	}
	if werr != nil {
		return nil, fmt.Errorf("%w: %w", err, timedOut(werr))
	}
	return s, err
}

// lendUnasked is lend for an answer of which nobody knows when it will be fetched. All of these together
// leave room for one payload of any size: for requests, which are read when they arrive, and for answers that
// were asked for. So whoever waits for an answer gets it, however many others he leaves alone. One
// endpoint has half of what these may take.
func (c *conn) lendUnasked(size int) (*lentSegment, error) {
	p, n := c.p, classBytes(classOf(size))
	limit := p.limits.BulkBytes - p.limits.largest()
	if p.starved.Load() > 0 { // others wait for it
		return nil, &noRoom{n, p.limits.BulkBytes, roomOfAll}
	}
	if !take(&c.unasked, n, limit/2) {
		return nil, &noRoom{n, limit / 2, roomOfUnasked}
	}
	if !take(&p.unasked, n, limit) {
		c.unasked.Add(-n)
		return nil, &noRoom{n, limit, roomOfUnasked}
	}
	s, err := c.lend(size)
	if err != nil {
		p.unasked.Add(-n)
		c.unasked.Add(-n)
		return nil, err
	}
	s.what, s.since = lentUnasked, p.el.CoarseNow()
	return s, nil
}

// lendAsked is lend for an answer that its caller has asked for. One endpoint has room for a payload of
// any size: more it shall read before it gets more, so that one that asks and does not read leaves room for others.
func (c *conn) lendAsked(size int) (*lentSegment, error) {
	n, limit := classBytes(classOf(size)), c.p.limits.largest()
	c.asking.Lock() // a smaller one that comes by now would be told of room only when there is some more
	defer c.asking.Unlock()
	if !take(&c.asked, n, limit) {
		return nil, &noRoom{n, limit, roomOfPeer}
	}
	s, err := c.lend(size)
	if err != nil {
		c.asked.Add(-n)
		return nil, err
	}
	s.what, s.since = lentAsked, c.p.el.CoarseNow()
	return s, nil
}

// uncount is called when the segment is not lent any more.
func (s *lentSegment) uncount() {
	n, p := s.bytes(), s.c.p
	if s.what != lentRequest {
		s.c.slow.Store(p.el.CoarseNow()-s.since > int64(p.limits.LingerTime)/slowPart)
	}
	switch s.what {
	case lentUnasked:
		p.unasked.Add(-n)
		s.c.unasked.Add(-n)
	case lentAsked:
		s.c.asked.Add(-n)
	}
	s.what = lentRequest
}

// lend finds a segment for a payload of size bytes, which is to be written there.
func (c *conn) lend(size int) (*lentSegment, error) {
	class := classOf(size)
	c.mu.Lock()
	s, ok := c.segments.take(class)
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	if !ok {
		var err error
		if s, err = c.newSegment(class); err != nil {
			return nil, err
		}
	}
	c.p.stats.overflows.Add(1)
	s.ref.size = uint64(size)
	return s, nil
}

func (c *conn) newSegment(class int) (*lentSegment, error) {
	p, n := c.p, classBytes(class)
	if !p.reserve(n) && (!p.makeRoom(n) || !p.reserve(n)) {
		return nil, &noRoom{n, p.limits.BulkBytes, roomOfAll}
	}
	seg, err := p.el.NewSegment(uint64(n), fabric.Sealed)
	if err != nil {
		p.bulk.Add(-n)
		p.hasRoom()
		return nil, fmt.Errorf("rpc: payload: %w", err)
	}
	s := &lentSegment{c: c, seg: seg, class: class}
	if s.ref.key, err = seg.Key(fabric.RightRead); err != nil {
		s.close()
		return nil, fmt.Errorf("rpc: payload: %w", err)
	}
	return s, nil
}

// reserve counts a segment that is about to be made; false if it would be too much.
func (p *Peer) reserve(n int64) bool { return take(&p.bulk, n, p.limits.BulkBytes) }

// take adds n to a level, unless that would be above the limit.
func take(level *atomic.Int64, n, limit int64) bool {
	for {
		now := level.Load()
		if now+n > limit {
			return false
		}
		if level.CompareAndSwap(now, now+n) {
			return true
		}
	}
}

// makeRoom frees idle segments until there is room for n bytes; false if that is not enough.
func (p *Peer) makeRoom(n int64) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range p.order {
		if p.bulk.Load()+n <= p.limits.BulkBytes {
			break
		}
		c.mu.Lock()
		c.segments.empty()
		c.mu.Unlock()
	}
	return p.bulk.Load()+n <= p.limits.BulkBytes
}

// reuse keeps a segment that nobody reads for the next payload; nil is fine.
func (c *conn) reuse(s *lentSegment) {
	if s == nil {
		return
	}
	s.uncount()
	p := c.p
	c.mu.Lock()
	kept := c.segments.give(s.class, s, p.el.CoarseNow(), p.limits.PoolBytes)
	c.mu.Unlock()
	if !kept {
		s.close()
		return
	}
	p.hasRoom()
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
