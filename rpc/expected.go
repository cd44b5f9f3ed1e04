package rpc

import (
	"bytes"
	"fmt"
	"math/bits"
)

// Answers to calls that were started lie here until a caller waits for them, so each needs room before it comes. The request says
// for how much there is room: for what large answers came to last, or one that fits into a message, or at least smallAnswerBytes. What is larger waits at
// the callee, which says how large it is (IDHeld), until there is room for it here or a caller waits for it and says so (IDWant).

// grantCalls is for how many calls an endpoint takes room at once, as all endpoints share it, and has to spare.
const grantCalls = 16

// expect takes room for n bytes of an answer, and that for further ones if they are for one in a message; c.mu is held.
func (c *conn) expect(n int64) bool {
	if more := c.expected + n - c.ahead.used; more > 0 { // used changes under c.mu only, as no caller waits for this
		many := n * grantCalls
		if n > 1<<grantOf(int64(c.eager)) || many > c.ahead.b.limit/grantCalls || !c.ahead.take(many) {
			if !c.ahead.take(more) {
				return false
			}
		}
	}
	c.expected += n
	return true
}

// expectLess gives room back. Where twice spare bytes would be left for the next calls, all endpoints have what is above spare; c.mu is held.
func (c *conn) expectLess(n, spare int64) {
	c.expected -= n
	if idle := c.ahead.used - c.expected; idle > 2*spare {
		c.ahead.give(idle - spare)
	}
}

// spare is how much room the endpoint keeps for further calls; c.mu is held.
func (c *conn) spare() int64 {
	if c.ended != nil {
		return 0
	}
	return 2 * grantCalls * int64(c.eager)
}

// grantOf is the least grant of n bytes.
func grantOf(n int64) uint8 { return uint8(max(bits.Len64(uint64(n-1)), leastGrant)) }

// grant takes room for the answer to a call that is about to be started; c.mu is held.
func (c *conn) grant() (room int64, grant uint8) {
	for _, g := range [...]uint8{c.usual, grantOf(int64(c.eager))} {
		if g != 0 && c.expect(1<<g) {
			return 1 << g, g
		}
	}
	return 0, leastGrant
}

// arrived takes in how large the answer to a started call is; c.mu is held.
func (c *conn) arrived(r *record) error {
	n := int64(len(r.body))
	if r.lent {
		n = 0
		if at, err := decodeRef(r.body, c.p.limits.MaxBytes); err == nil && int64(at.size) <= r.room { // or the waiter sees what is wrong
			n, r.ahead, c.usual = int64(at.size), true, grantOf(int64(at.size))
		}
	} else if n > smallAnswerBytes && n > r.room {
		return fmt.Errorf("%w: %d bytes in the answer to a call that was started with leave for %d", ErrWire, n, max(r.room, smallAnswerBytes))
	} else if n <= smallAnswerBytes {
		n = 0
	}
	if !r.lent && c.usual != 0 {
		if c.usual--; c.usual <= grantOf(int64(c.eager)) {
			c.usual = 0
		}
	}
	c.expectLess(r.room-n, c.spare())
	r.room = n
	if !r.lent && cap(r.body) > max(2*len(r.body), smallAnswerBytes) { // of an earlier answer, which was larger
		r.body = bytes.Clone(r.body)
	}
	return nil
}

// waits takes in that the answer to a started call waits at the callee, and how large it is: true if there is room for it. c.mu is held.
func (c *conn) waits(r *record, size uint64) bool {
	if size <= uint64(c.p.limits.MaxBytes) && c.expect(max(int64(size)-r.room, 0)) {
		r.room, r.ahead, c.usual = max(int64(size), r.room), true, grantOf(int64(size))
		return true
	}
	c.expectLess(r.room, c.spare())
	r.room = 0
	return false
}
