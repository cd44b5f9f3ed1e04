package fabric

import (
	"sync"
	"sync/atomic"
)

// workers are goroutines that have run something for the element and wait for more: a new one's stack would grow, call by call,
// to what a handler needs, which takes longer than a short handler.
type workers struct {
	l    *leader
	busy atomic.Int64 // that run something

	mu     sync.Mutex
	idle   []chan func() // the last to lie down is the first to get up
	least  int           // how many were idle at all times since trim was here
	closed bool
}

// maxIdleWorkers bounds those that wait: some 32 KiB of stack each.
const maxIdleWorkers = 64

// run runs fn on an idle goroutine, or on a new one.
func (ws *workers) run(fn func()) {
	ws.busy.Add(1)
	ws.mu.Lock()
	n := len(ws.idle)
	if n == 0 {
		ws.mu.Unlock()
		go ws.work(fn)
		return
	}
	w := ws.idle[n-1]
	ws.idle = ws.idle[:n-1]
	ws.least = min(ws.least, n-1)
	ws.mu.Unlock()
	w <- fn // it has room for one
}

func (ws *workers) work(fn func()) {
	next := make(chan func(), 1)
	for fn != nil {
		fn()
		ws.busy.Add(-1)
		ws.l.stepBack()
		if !ws.rest(next) {
			return
		}
		fn = <-next // nil, once it is closed
	}
}

// rest lists an idle goroutine; false if it is to end.
func (ws *workers) rest(w chan func()) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed || len(ws.idle) >= maxIdleWorkers {
		return false
	}
	ws.idle = append(ws.idle, w)
	return true
}

// trim ends those that were not needed since it was called last.
func (ws *workers) trim() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.idle[:ws.least] {
		close(w)
	}
	n := copy(ws.idle, ws.idle[ws.least:])
	clear(ws.idle[n:])
	ws.idle, ws.least = ws.idle[:n], n
}

// close ends the idle ones, and the others when they have run what they run.
func (ws *workers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for _, w := range ws.idle {
		close(w)
	}
	ws.idle, ws.least = nil, 0
}
