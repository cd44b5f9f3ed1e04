package inject

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// Runs that go on beyond their first slice take turns: a few on each processor compute at once, whose memory fits its caches, and the others are
// parked. The next turn is the principal's that has fewest, and its run's that waits longest. A turn lasts until the run ends or waits for something,
// and nobody is kept long by those that last: if none has begun for turnWait, one more begins.
const (
	turnsPerProcessor = 4
	turnWait          = time.Millisecond
	// asideEvery is how many slices a run computes between two that it steps aside after, where a processor is left for others.
	asideEvery = 10
)

// turns are a runtime's.
type turns struct {
	mu        sync.Mutex
	most      int          // that compute at once
	spare     atomic.Int32 // processors that none computes on
	computing int
	waiting   int
	begun     travel.Instant // when a turn began last, or the first one waited
	by        []*turnsOf
	timer     *time.Timer // lateTurn's
}

// turnsOf are one principal's.
type turnsOf struct {
	principal string
	computing int
	queue     []chan struct{} // each closed as its turn begins
}

// of finds a principal's turns. mu is held.
func (t *turns) of(principal string) *turnsOf {
	for _, p := range t.by {
		if p.principal == principal {
			return p
		}
	}
	p := &turnsOf{principal: principal}
	t.by = append(t.by, p)
	return p
}

// tidy forgets a principal that has none. mu is held.
func (t *turns) tidy(p *turnsOf) {
	if p.computing == 0 && len(p.queue) == 0 {
		t.by = slices.DeleteFunc(t.by, func(x *turnsOf) bool { return x == p })
	}
}

// count counts one turn more or less. mu is held.
func (t *turns) count(p *turnsOf, n int) {
	p.computing += n
	t.computing += n
	t.spare.Add(int32(-n))
}

// take begins a turn of a principal's, or gives what is closed once it has begun. first says that nobody else waits.
func (t *turns) take(now travel.Instant, principal string) (began chan struct{}, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(principal)
	if t.waiting == 0 && t.computing < t.most {
		t.count(p, 1)
		return nil, false
	}
	began = make(chan struct{})
	p.queue = append(p.queue, began)
	if t.waiting++; t.waiting == 1 {
		t.begun = now
	}
	return began, t.waiting == 1
}

// give ends a turn.
func (t *turns) give(now travel.Instant, principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(principal)
	t.count(p, -1)
	for t.waiting > 0 && t.computing < t.most {
		t.begin(now)
	}
	t.tidy(p)
}

// abandon takes one out of the queue that wants no turn any more; false: it has begun.
func (t *turns) abandon(principal string, began chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(principal)
	defer t.tidy(p)
	i := slices.Index(p.queue, began)
	if i < 0 {
		return false
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	t.waiting--
	return true
}

// begin begins the turn of the principal's that has fewest. mu is held.
func (t *turns) begin(now travel.Instant) {
	var least *turnsOf
	for _, p := range t.by {
		if len(p.queue) > 0 && (least == nil || p.computing < least.computing) {
			least = p
		}
	}
	close(least.queue[0])
	least.queue = slices.Delete(least.queue, 0, 1)
	t.count(least, 1)
	t.waiting--
	t.begun = now
}

// late begins one turn more than may be if none has begun for turnWait, and says when to ask again; 0: nobody waits.
func (t *turns) late(now travel.Instant) (again time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting > 0 && now-t.begun >= travel.Instant(turnWait) {
		t.begin(now)
	}
	if t.waiting == 0 {
		return 0
	}
	return turnWait - time.Duration(now-t.begun)
}

// lateTurn is the timer's.
func (rt *Runtime) lateTurn() {
	if again := rt.turns.late(rt.now()); again > 0 {
		rt.turns.timer.Reset(again)
	}
}

// compute waits for the run's turn, after its first slice or after it has waited for something else. What ends the run ends the wait.
func (h *host) compute() {
	rt := h.rt
	began, first := rt.turns.take(rt.now(), h.principal)
	if first {
		rt.turns.timer.Reset(turnWait)
	}
	if began != nil {
		ctx := h.waitContext()
		select {
		case <-began:
		case <-ctx.Done():
			if rt.turns.abandon(h.principal, began) {
				return
			}
		}
	}
	h.computes = true
}

// rests ends the run's turn: it waits for something, or has ended.
func (h *host) rests() {
	if h.computes {
		h.computes = false
		h.rt.turns.give(h.rt.now(), h.principal)
	}
}
