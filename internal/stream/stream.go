// Package stream copies large memory for a reader on another core.
//
// A copy through the caches takes each line away from the reader's cache, where the last payload in the same memory left
// it: that is two to three times slower than memory, and where the two cores share no cache, ten times and more. A copy past
// the caches goes at memory's speed, wherever the reader runs.
//
// Where the reader follows the writer closely, and their cores do share a cache, the way through it is quicker after all: neither
// waits for memory. Whether they do changes as the scheduler, or a machine's host, moves them; so a Copier looks how long it takes.
package stream

import (
	"sync/atomic"
	"time"
)

const (
	// pieceBytes is what is timed: one to twenty microseconds.
	pieceBytes = 32 << 10
	// slowRatio is how much longer a piece may take through the caches than past them: one is a little longer even at its best.
	slowRatio = 2
	// mostLost is how much longer than that all of them may take until the caches are given up. Where the lines come from memory, as after a
	// term past the caches, the first few MiB lose half of it.
	mostLost = 500 * time.Microsecond
	// longPiece is the most that counts of a piece: it met an interrupt, or another process.
	longPiece = 20 * time.Microsecond
	// termBytes are copied one way before the other is tried: ten milliseconds at least, against which a trial is short.
	termBytes = 256 << 20
)

// Copy copies as many bytes as the shorter of the two has past the caches, and returns how many. They must not overlap.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	for from := 0; from < n; from += pieceBytes { // between pieces the goroutine can be stopped
		to := min(from+pieceBytes, n)
		copyPast(dst[from:to], src[from:to])
	}
	return n
}

// Copier copies to memory that one other process reads while it is written. The zero value is ready, and begins past the caches; it may be used
// from several goroutines at once.
type Copier struct {
	through  atomic.Bool  // the caches, not past them
	done     atomic.Int64 // bytes of this term
	lost     atomic.Int64 // nanoseconds that it took too long, through the caches
	quickest atomic.Int64 // a KiB past them, in picoseconds; 0: none was timed yet
}

// Copy is Copy the way that is quicker at the time.
func (c *Copier) Copy(dst, src []byte) int { return c.copy(dst, src, time.Now, copyPast) }

func (c *Copier) copy(dst, src []byte, now func() time.Time, copyPast func(dst, src []byte)) int {
	n := min(len(dst), len(src))
	for from := 0; from < n; from += pieceBytes {
		to := min(from+pieceBytes, n)
		past := !c.through.Load() || c.done.Load() >= termBytes // at a term's end one piece, to compare with
		start := now()
		if past {
			copyPast(dst[from:to], src[from:to])
		} else {
			copy(dst[from:to], src[from:to])
		}
		c.note(past, to-from, now().Sub(start))
	}
	return n
}

// note takes in how long a piece took. What several goroutines do to it at once costs a wrong guess at most.
func (c *Copier) note(past bool, n int, took time.Duration) {
	over := c.done.Add(int64(n)) >= termBytes
	if past {
		each := max(took.Nanoseconds()*1000*1024/int64(n), 1)
		if q := c.quickest.Load(); q == 0 || each < q {
			c.quickest.Store(each)
		}
		if over {
			c.begin(true)
		}
		return
	}
	may := time.Duration(slowRatio * c.quickest.Load() * int64(n) / (1000 * 1024))
	if lost := c.lost.Load() + int64(min(took, longPiece)-may); lost > int64(mostLost) {
		c.begin(false)
	} else {
		c.lost.Store(max(lost, 0))
	}
}

// begin begins a term.
func (c *Copier) begin(through bool) {
	c.through.Store(through)
	c.done.Store(0)
	c.lost.Store(0)
}
