package fabric

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestWokenOnce: of many waiters each looks at its condition when it comes and when it is woken, and only the one that is woken does;
// none looks again and again meanwhile.
func TestWokenOnce(t *testing.T) {
	e, _ := onStage(t, Efficient)
	const many = 8
	var looks [many]atomic.Int64
	var ready [many]atomic.Bool
	var waiters [many]Waiter
	var all sync.WaitGroup
	ctx := soon(t)
	for i := range many {
		waiters[i].Init(e)
		all.Go(func() {
			if err := waiters[i].Wait(ctx, func() bool { looks[i].Add(1); return ready[i].Load() }); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
	}
	for e.leader.parked.Load() < many-1 && ctx.Err() == nil { // one may lead
		time.Sleep(time.Millisecond)
	}
	for i := range many {
		var before [many]int64
		for j := range many {
			before[j] = looks[j].Load()
		}
		time.Sleep(20 * time.Millisecond)
		still := 0
		for j := i; j < many; j++ {
			if looks[j].Load() == before[j] {
				still++
			}
		}
		if still < many-i-1 {
			t.Errorf("of %d waiters %d slept while nothing happened", many-i, still)
		}
		ready[i].Store(true)
		waiters[i].Wake()
		for n := looks[i].Load(); n == before[i] && ctx.Err() == nil; n = looks[i].Load() {
			time.Sleep(time.Millisecond)
		}
	}
	all.Wait()
}

// TestWaiterShared: of several who wait for one thing each goes on once it is there; one whose context ends takes nobody's wake-up along.
func TestWaiterShared(t *testing.T) {
	e, _ := onStage(t, Efficient)
	for range 50 {
		var w Waiter
		w.Init(e)
		var ready atomic.Bool
		var all sync.WaitGroup
		short, cancel := context.WithCancel(t.Context())
		for i := range 4 {
			all.Go(func() {
				ctx := soon(t)
				if i == 0 {
					ctx = short
				}
				if err := w.Wait(ctx, ready.Load); err != nil && !(i == 0 && errors.Is(err, context.Canceled)) {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
		}
		if e.leader.parked.Load() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		go cancel()
		ready.Store(true)
		w.Wake()
		all.Wait()
		cancel()
	}
}

// TestWorkers: a goroutine that has run something is used again, those that were not needed for a while end, and so do all in the end.
func TestWorkers(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	idle := func(want int) {
		t.Helper()
		e.workers.mu.Lock()
		defer e.workers.mu.Unlock()
		if n := len(e.workers.idle); n != want {
			t.Fatalf("%d goroutines are idle, want %d", n, want)
		}
	}
	several := func(n int) {
		t.Helper()
		var all sync.WaitGroup
		gate := make(chan struct{})
		for range n {
			all.Add(1)
			e.Go(func() { defer all.Done(); <-gate })
		}
		close(gate)
		all.Wait()
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			e.workers.mu.Lock()
			rests := len(e.workers.idle)
			e.workers.mu.Unlock()
			if rests >= min(n, maxIdleWorkers) {
				break
			}
		}
	}
	several(4)
	idle(4)
	several(2)
	idle(4)
	e.workers.trim() // none was idle all the time since the start
	idle(4)
	several(1)
	e.workers.trim()
	idle(1)
	several(maxIdleWorkers + 20)
	time.Sleep(time.Millisecond)
	idle(maxIdleWorkers)
	e.Close()
	idle(0)
	done := make(chan struct{})
	e.Go(func() { close(done) }) // what comes late runs all the same
	<-done
}
