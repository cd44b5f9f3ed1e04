package compiler

import (
	"errors"
	"fmt"
	"time"
)

// ErrQueueFull says that as many requests wait as may.
var ErrQueueFull = errors.New("too many functions wait to be compiled")

// maxAccounts bounds how many principals' processor time is remembered; those above it start anew, with what everybody has had.
const maxAccounts = 1024

// queue decides whose request is next when a process is free: the principal's whose compiles took least processor time; of
// one principal the one that has waited longest. It is not for several goroutines at once.
type queue struct {
	free         int // processes
	perPrincipal int // requests that wait
	inAll        int
	waiting      map[string][]*ticket
	total        int
	used         map[string]time.Duration // of principals that had some lately
	floor        time.Duration            // what the principal that was served last had used: a new one begins there
	arrivals     uint64
}

// ticket is a place in the queue.
type ticket struct {
	principal string
	arrival   uint64
	ready     chan struct{} // closed when it is this one's turn
}

func newQueue(processes, perPrincipal, inAll int) *queue {
	return &queue{free: processes, perPrincipal: perPrincipal, inAll: inAll, waiting: map[string][]*ticket{}, used: map[string]time.Duration{}}
}

// enter gives a place in the queue, perhaps at its head.
func (q *queue) enter(principal string) (*ticket, error) {
	if q.free == 0 {
		if n := len(q.waiting[principal]); n >= q.perPrincipal {
			return nil, fmt.Errorf("%w: %d of %s, which is the bound for one principal; call again when some are done", ErrQueueFull, n, principal)
		}
		if q.total >= q.inAll {
			return nil, fmt.Errorf("%w: %d of all principals, which is the bound; call again when some are done", ErrQueueFull, q.total)
		}
	}
	q.arrivals++
	t := &ticket{principal: principal, arrival: q.arrivals, ready: make(chan struct{})}
	q.used[principal] = max(q.used[principal], q.floor)
	q.waiting[principal] = append(q.waiting[principal], t)
	q.total++
	q.next()
	return t, nil
}

// leave gives a process back, after cost of processor time.
func (q *queue) leave(principal string, cost time.Duration) {
	q.charge(principal, cost)
	q.free++
	q.next()
	if len(q.used) > maxAccounts {
		for p, d := range q.used {
			if d <= q.floor && len(q.waiting[p]) == 0 {
				delete(q.used, p)
			}
		}
		if len(q.used) > maxAccounts {
			clear(q.used)
		}
	}
}

// charge has a principal's next turn come later.
func (q *queue) charge(principal string, cost time.Duration) { q.used[principal] += cost }

// abandon takes a ticket out whose caller has given up; false: its turn had come.
func (q *queue) abandon(t *ticket) bool {
	list := q.waiting[t.principal]
	for i, other := range list {
		if other == t {
			q.set(t.principal, append(list[:i:i], list[i+1:]...))
			return true
		}
	}
	return false
}

func (q *queue) set(principal string, list []*ticket) {
	q.total += len(list) - len(q.waiting[principal])
	if len(list) == 0 {
		delete(q.waiting, principal)
	} else {
		q.waiting[principal] = list
	}
}

func (q *queue) next() {
	for q.free > 0 && q.total > 0 {
		var best *ticket
		for p, list := range q.waiting {
			t := list[0]
			if best == nil || q.used[p] < q.used[best.principal] || q.used[p] == q.used[best.principal] && t.arrival < best.arrival {
				best = t
			}
		}
		q.set(best.principal, q.waiting[best.principal][1:])
		q.floor = max(q.floor, q.used[best.principal])
		q.free--
		close(best.ready)
	}
}
