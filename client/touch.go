package client

import (
	"context"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/control"
)

// touchesPerIdle is how often a node hears of a load in the time after which it would give it up.
const touchesPerIdle = 4

// touches keep the nodes of a load from giving it up while the input is read: rows for the last node of a sharding by ranges come only
// after those of all others, and a node whose own file is short waits for the others'. It is progress that touches, not a
// timer: a client that has got stuck lets go.
type touches struct {
	mu    sync.Mutex
	every time.Duration // 0: there is nothing to touch
	next  time.Time
	busy  bool
	work  sync.WaitGroup
}

// begin starts touching, as often as the most impatient of the nodes needs.
func (t *touches) begin(nodes []*target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range nodes {
		if every := time.Duration(n.begun.LoadTimeMs) * time.Millisecond / touchesPerIdle; t.every == 0 || every < t.every {
			t.every = every
		}
	}
	t.next = time.Now().Add(t.every)
}

// due reports whether it is time and no other goroutine is at it; a caller that gets true calls done.
func (t *touches) due(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.every == 0 || t.busy || now.Before(t.next) {
		return false
	}
	t.busy, t.next = true, now.Add(t.every)
	t.work.Add(1)
	return true
}

func (t *touches) done() {
	t.mu.Lock()
	t.busy = false
	t.mu.Unlock()
	t.work.Done()
}

// end waits until nothing is touched any more.
func (t *touches) end() {
	t.mu.Lock()
	t.every = 0
	t.mu.Unlock()
	t.work.Wait()
}

// touch tells the nodes that the load goes on, if it is time. What fails shows at the load's next step.
func (l *loading) touch(ctx context.Context, now time.Time) {
	if !l.touches.due(now) {
		return
	}
	go func() {
		defer l.touches.done()
		l.each(func(t *target) error {
			_, err := ask[control.Nothing](ctx, l.c, t.ep, control.CallFill, control.FillRequest{Load: l.id})
			return err
		})
	}()
}
