package rpc

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/internal/invariants"
)

// What is made for large payloads is kept for the next ones: segments that payloads are lent in, and
// buffers that requests are fetched into. Each belongs to one endpoint for as long as it lives: a
// peer that has mapped a segment sees whatever is put there later.

const (
	// They come in classes of a power of two, from 64 KiB.
	leastClassBits = 16
	classes        = 31 - leastClassBits // up to 1 GiB, which Limits.MaxBytes may be
	// poolTime is how long unused memory is kept.
	poolTime = 5 * time.Second
)

// classOf is the class of what holds n bytes, n > 0.
func classOf(n int) int { return max(bits.Len(uint(n-1))-leastClassBits, 0) }

func classBytes(class int) int64 { return 1 << (class + leastClassBits) }

// pooled is what a pool keeps.
type pooled interface {
	bytes() int64
	close() // it is not kept any longer
}

// pool keeps what one endpoint does not use at the moment; it is under conn.mu.
type pool[T pooled] struct {
	idle   *atomic.Int64      // bytes that lie in all endpoints' pools of this kind
	free   [classes][]kept[T] // each from the one that has been idle for longest
	n      int
	closed bool
}

type kept[T pooled] struct {
	item  T
	since int64 // on the element's clock
}

// take is what was used last of a class; false if there is none.
func (l *pool[T]) take(class int) (item T, ok bool) {
	list := l.free[class]
	if len(list) == 0 {
		return item, false
	}
	last := &list[len(list)-1]
	item = last.item
	*last = kept[T]{}
	l.free[class] = list[:len(list)-1]
	l.n--
	l.idle.Add(-item.bytes())
	return item, true
}

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

// give keeps something, unless more than limit bytes would be idle then.
func (l *pool[T]) give(class int, item T, now, limit int64) bool {
	if l.closed || !take(l.idle, item.bytes(), limit) {
		return false
	}
	l.free[class] = append(l.free[class], kept[T]{item, now})
	l.n++
	return true
}

// trim lets go of what was not used for a while.
func (l *pool[T]) trim(now int64) {
	if l.n > 0 {
		l.drop(func(since int64) bool { return now-since > int64(poolTime) })
	}
}

// drop lets things go from the one that has been idle for longest, as long as old says so.
func (l *pool[T]) drop(old func(since int64) bool) {
	for i, list := range l.free {
		n := 0
		for n < len(list) && old(list[n].since) {
			l.idle.Add(-list[n].item.bytes())
			list[n].item.close()
			n++
		}
		l.n -= n
		l.free[i] = slices.Delete(list, 0, n)
	}
}

func (l *pool[T]) close() {
	l.drop(func(int64) bool { return true })
	l.closed = true
}

// buffer is memory that requests are fetched into, all that is in its capacity.
type buffer []byte

func (b buffer) bytes() int64 { return int64(cap(b)) }
func (b buffer) close()       {}

// buffer is memory for a request of n bytes. What lies there is an earlier one's: nobody may see it, or
// anything beyond what was written over it.
func (c *conn) buffer(n int) buffer {
	c.mu.Lock()
	b, ok := c.buffers.take(classOf(n))
	c.mu.Unlock()
	if !ok || cap(b) < n { // the class will have this one instead, which suits both
		return make(buffer, n)
	}
	c.p.stats.reused.Add(1)
	return b
}

// free keeps a request's memory for the next one: the handler has returned, or replied, and its answer, which may
// be the request itself, was sent.
func (k *Call) free() {
	k.uncharge()
	if k.buf == nil {
		return
	}
	b, c := k.buf[:cap(k.buf)], k.c
	k.buf, k.Req = nil, nil
	if invariants.Enabled { // a late reader is to notice
		for i := range b {
			b[i] = spoiled
		}
	}
	c.mu.Lock()
	c.buffers.give(classOf(len(b)), b, c.p.layer.CoarseNow(), c.p.limits.PoolBytes)
	c.mu.Unlock()
}

// spoiled is what memory of requests is full of while it is kept.
const spoiled = 0xdb
