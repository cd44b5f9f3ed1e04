package fabric

import (
	"sync"
	"time"
)

// refusalEvery is how often the log speaks of peers that are not accepted: anybody can come and be refused.
const refusalEvery = time.Second

// refusals are the peers that were not accepted, as the log has them.
type refusals struct {
	mu   sync.Mutex
	next int64 // when there may be another line; 0: at once
	left int   // refused since the last line, and not spoken of
}

// due counts a refusal, or none for the rest, and reports whether there is a line to write now, and how many are left out before it.
func (r *refusals) due(now int64, n int) (left int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now < r.next && r.next != 0 || r.left+n == 0 {
		r.left += n
		return 0, false
	}
	left, r.left, r.next = r.left, 0, now+int64(refusalEvery)
	return left, true
}

// refuse says that a peer was not accepted, or counts it for the next line.
func (e *Element) refuse(peer string, err error) {
	if left, ok := e.refusals.due(e.now(), 1); ok {
		e.log.Warn("peer not accepted", "peer", peer, "err", err, "left_out", left)
	}
}

// sayRefusals speaks of those that no line came after.
func (e *Element) sayRefusals(now int64) {
	if left, ok := e.refusals.due(now, 0); ok {
		e.log.Warn("peers not accepted", "left_out", left)
	}
}
