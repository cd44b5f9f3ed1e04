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
	left int   // refused since the last line
	peer string
	err  error // the last of these
}

// refuse says that a peer was not accepted, at once or with those that come after it.
func (e *Element) refuse(peer string, err error) {
	r := &e.refusals
	r.mu.Lock()
	r.left++
	r.peer, r.err = peer, err
	r.mu.Unlock()
	e.sayRefusals(e.now())
}

// sayRefusals writes a line of the last that was refused, if it is time and there is any.
func (e *Element) sayRefusals(now int64) {
	r := &e.refusals
	r.mu.Lock()
	if r.left == 0 || r.next != 0 && now < r.next {
		r.mu.Unlock()
		return
	}
	peer, err, others := r.peer, r.err, r.left-1
	r.left, r.peer, r.err, r.next = 0, "", nil, now+int64(refusalEvery)
	r.mu.Unlock()
	e.log.Warn("peer not accepted", "peer", peer, "err", err, "left_out", others)
}
