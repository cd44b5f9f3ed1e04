package rpc

import (
	"bytes"
	"fmt"
)

// Answers that come in messages come by themselves. The one to a call that its caller waits for goes to him at once; those to calls that were started
// stay here until somebody asks for them. So a call is started with leave for a large one only as far as there is room for
// it; without, an answer of more than smallAnswerBytes is lent, and comes when it is fetched.

// grantCalls is for how many calls an endpoint takes room at once, as all endpoints share it, and has to spare.
const grantCalls = 16

// expect takes room for the answer to a call that is about to be started; 0 if there is none. An endpoint has half of all there is. c.mu is held.
func (c *conn) expect() int64 {
	n, limit := int64(c.eager), c.p.limits.BulkBytes
	if c.expected+n > limit/2 {
		return 0
	}
	if c.expected+n > c.allotted {
		block := n * grantCalls
		if !take(&c.p.allotted, block, limit) {
			if block = n; !take(&c.p.allotted, block, limit) {
				return 0
			}
		}
		c.allotted += block
	}
	c.expected += n
	return n
}

// expectLess gives room back. Where twice spare bytes would be left for the next calls, all endpoints have what is above spare; c.mu is held.
func (c *conn) expectLess(n, spare int64) {
	c.expected -= n
	if idle := c.allotted - c.expected; idle > 2*spare {
		c.allotted -= idle - spare
		c.p.allotted.Add(spare - idle)
	}
}

// spare is how much room the endpoint keeps for further calls; c.mu is held.
func (c *conn) spare() int64 {
	if c.ended != nil {
		return 0
	}
	return 2 * grantCalls * int64(c.eager)
}

// arrived takes in how large the answer to a started call is; c.mu is held.
func (c *conn) arrived(r *record) error {
	n := int64(len(r.body))
	if n > smallAnswerBytes && n > r.room {
		return fmt.Errorf("%w: %d bytes in the answer to a call that was started with leave for %d", ErrWire, n, max(r.room, smallAnswerBytes))
	}
	if n <= smallAnswerBytes || r.lent {
		n = 0
	}
	c.expectLess(r.room-n, c.spare())
	r.room = n
	if cap(r.body) > max(2*len(r.body), smallAnswerBytes) { // of an earlier answer, which was larger
		r.body = bytes.Clone(r.body)
	}
	return nil
}
