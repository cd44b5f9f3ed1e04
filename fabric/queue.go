package fabric

import (
	"encoding/binary"
	"sync/atomic"
)

// frameQueue is a bounded FIFO of frames, copied into one buffer. The zero
// value with max set is empty.
type frameQueue struct {
	buf  []byte
	head int
	n    int
	max  int     // bytes, marks aside
	last FrameID // the newest frame's, if there is one

	all    *atomic.Int64 // bytes in all queues of this one's kind; nil: not counted
	allMax int64         // of them, beyond which only an empty queue takes a frame; 0: none
}

const (
	queueHeadBytes = 6
	// queueKeepBytes is the buffer an empty queue keeps.
	queueKeepBytes = 64 << 10
)

func (q *frameQueue) bytes() int { return len(q.buf) - q.head }

// push appends a frame; false if a bound would be passed.
func (q *frameQueue) push(id FrameID, head, body []byte) bool {
	n := queueHeadBytes + len(head) + len(body)
	if q.bytes()+n > q.max || q.allMax > 0 && q.n > 0 && q.all.Load()+int64(n) > q.allMax {
		return false
	}
	q.add(id, head, body)
	return true
}

// mark appends a fence's mark. One mark is enough between two frames, so there are at
// most as many as frames, and one, and no bound holds a mark up.
func (q *frameQueue) mark() (added bool) {
	if q.n > 0 && q.last == frameFence {
		return false
	}
	q.add(frameFence, nil, nil)
	return true
}

func (q *frameQueue) add(id FrameID, head, body []byte) {
	n := len(head) + len(body)
	if q.all != nil {
		q.all.Add(int64(queueHeadBytes + n))
	}
	if q.head > len(q.buf)/2 {
		q.buf = q.buf[:copy(q.buf, q.buf[q.head:])]
		q.head = 0
	}
	q.buf = binary.LittleEndian.AppendUint16(q.buf, uint16(id))
	q.buf = binary.LittleEndian.AppendUint32(q.buf, uint32(n))
	q.buf = append(append(q.buf, head...), body...)
	q.n++
	q.last = id
}

// peek is the oldest frame; valid until the next push or pop.
func (q *frameQueue) peek() (FrameID, []byte) {
	b := q.buf[q.head:]
	n := binary.LittleEndian.Uint32(b[2:])
	return FrameID(binary.LittleEndian.Uint16(b)), b[queueHeadBytes : queueHeadBytes+n]
}

func (q *frameQueue) pop() {
	_, b := q.peek()
	q.head += queueHeadBytes + len(b)
	if q.all != nil {
		q.all.Add(-int64(queueHeadBytes + len(b)))
	}
	if q.n--; q.n == 0 {
		q.buf, q.head = q.buf[:0], 0
		if cap(q.buf) > queueKeepBytes {
			q.buf = nil
		}
	}
}

// drop throws everything away; nothing can be pushed any more.
func (q *frameQueue) drop() {
	if q.all != nil {
		q.all.Add(-int64(q.bytes()))
	}
	*q = frameQueue{}
}

// trim lets an empty queue's buffer go.
func (q *frameQueue) trim() {
	if q.n == 0 {
		q.buf = nil
	}
}
