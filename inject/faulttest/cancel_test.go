package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// stopped fails if something still runs on a node some time after it was canceled.
func (g *grid) stopped(since time.Time) {
	g.t.Helper()
	eventually(g.t, "something still runs", func() string {
		for _, n := range g.nodes {
			if !n.dead && n.report(g.t).Stats.Sizes.Running > 0 {
				return n.name
			}
		}
		return ""
	})
	soon(g.t, since, atOnce)
}

// TestCancelOnTheWire covers: a cancel while the function is on its way between
// two elements, many times at random moments. The future ends at once; nothing
// goes on running, because tombstones wait where the branch arrives. That some
// cancels did meet a branch on its way, the elements' counters tell.
func TestCancelOnTheWire(t *testing.T) { overBoth(t, cancelOnTheWire) }

func cancelOnTheWire(t *testing.T, change func(*settings)) {
	g := newGrid(t, 3, nil, change)
	travels := g.prepare(g.client, guestImage(t, "journey", nil), g.plain())
	keeps := g.prepare(g.client, guestImage(t, "memory", nil), g.plain())
	random := rand.New(rand.NewPCG(7, 7))
	rounds := 50
	if testing.Short() {
		rounds = 15
	}
	for _, kind := range []struct {
		name   string
		moves  bool
		rounds int
		f      *inject.Function
		order  []byte
		o      inject.Options
	}{
		{"one branch that moves", true, 2 * rounds, travels, order(1, 4000, 0), inject.Options{Hops: 4095}},
		{"branches that fork", true, rounds, travels, order(2, 12, 0), inject.Options{Branches: 1 << 14}},
		{"branches that stay, with scratch", false, rounds, keeps, order(2, 200, uint64(100*time.Microsecond)), inject.Options{}},
	} {
		canceled, before := 0, g.stoppedOnTheWay()
		for i := range kind.rounds {
			root := inject.Root{Element: uint32(i % 3), Payload: kind.order}
			if cancelSoon(t, kind.f, root, kind.o, time.Duration(random.IntN(3000))*time.Microsecond) {
				canceled++
			}
		}
		g.stopped(time.Now())
		g.serves() // and all that was on its way has arrived
		met := g.stoppedOnTheWay() - before
		t.Logf("%s: %d of %d rounds were canceled before their end, %d branches were stopped on their way", kind.name, canceled, kind.rounds, met)
		if canceled == 0 || kind.moves && met == 0 {
			t.Errorf("%s: no cancel met one", kind.name)
		}
	}
}

// cancelSoon starts a function, cancels it some time later, and reports whether
// it had not ended by then.
func cancelSoon(t *testing.T, f *inject.Function, root inject.Root, o inject.Options, after time.Duration) (canceled bool) {
	t.Helper()
	ctx := within(t, time.Minute)
	fut, err := f.Start(ctx, []inject.Root{root}, o)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	start := time.Now()
	fut.Cancel()
	select {
	case <-fut.Done():
	default:
		t.Fatal("a canceled future has not ended")
	}
	_, err = fut.Wait(ctx)
	if canceled = errors.Is(err, travel.ErrCanceled); err != nil && !canceled {
		t.Error(err)
	}
	soon(t, start, atOnce)
	return canceled
}

// stoppedOnTheWay is how many branches came to a node after their invocation
// had been canceled there.
func (g *grid) stoppedOnTheWay() uint64 {
	g.t.Helper()
	total := uint64(0)
	for _, n := range g.nodes {
		total += n.report(g.t).Stats.Stopped
	}
	return total
}

// TestCancelLoop covers: a canceled function that loops for ever stops.
func TestCancelLoop(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	long := withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })
	f := g.prepare(g.client, guestImage(t, "faults", long), nil)
	var futures []*inject.Future
	for i := range 6 {
		fut, err := f.Start(within(t, time.Minute), []inject.Root{g.at(i%2, order(4, 0, 0))}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	time.Sleep(pause)
	var wg sync.WaitGroup
	for _, fut := range futures {
		for range 2 { // twice is not worse than once
			wg.Add(1)
			go func() {
				defer wg.Done()
				fut.Cancel()
				_, err := fut.Wait(context.Background())
				if !errors.Is(err, travel.ErrCanceled) {
					t.Error(err)
				}
				says(t, err, "faults", "canceled")
			}()
		}
	}
	wg.Wait()
	g.stopped(time.Now())
	g.serves()
}

// TestCancelTooEarlyOrLate covers: a context that has ended before the start, a
// cancel after the end, and a Do whose context ends in the middle.
func TestCancelTooEarlyOrLate(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	long := withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })
	f := g.prepare(g.client, guestImage(t, "faults", long), nil)
	before := g.nodes[0].report(t).Stats.Runs
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Start(canceled, []inject.Root{g.at(0, order(0, 0, 0))}, inject.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was canceled before: %v", err)
	}
	if _, err := f.Do(canceled, g.at(0, order(0, 0, 0)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a Do that was canceled before: %v", err)
	}
	time.Sleep(pause)
	if runs := g.nodes[0].report(t).Stats.Runs; runs != before {
		t.Errorf("%d functions ran", runs-before)
	}

	fut, err := f.Start(within(t, patience), []inject.Root{g.at(0, order(0, 3, 4))}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	<-fut.Done()
	fut.Cancel()
	if r, err := fut.Wait(context.Background()); err != nil || string(all(r)) != string(order(0, 3, 4)) {
		t.Errorf("a cancel after the end: %v", err)
	}

	start := time.Now()
	soonOver, cancel := context.WithCancel(context.Background())
	time.AfterFunc(pause, cancel)
	if _, err := f.Do(soonOver, g.at(0, order(4, 0, 0)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a Do that was canceled in the middle: %v", err)
	}
	soon(t, start, atOnce)
	g.stopped(time.Now())
	if _, err := f.Do(within(t, patience), g.at(0, order(0, 0, 0)), nil); err != nil {
		t.Error(err)
	}
	g.serves()
}

// TestCloseWhileRunning covers: an element that closes while functions loop on
// it does so at once, and their origin hears of it.
func TestCloseWhileRunning(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	long := withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })
	f := g.prepare(g.client, guestImage(t, "faults", long), nil)
	var futures []*inject.Future
	for range 3 {
		fut, err := f.Start(within(t, time.Minute), []inject.Root{g.at(1, order(4, 0, 0))}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	g.runsAt(1, len(futures)) // what arrives while it closes is refused instead
	start := time.Now()
	g.nodes[1].dead = true
	if err := g.nodes[1].own.close(); err != nil {
		t.Error(err)
	}
	soon(t, start, atOnce)
	for _, fut := range futures {
		lost(t, start, ended(fut), "n1", "faults")
	}
	g.serves()
}

// runsAt waits until as many functions run on node i.
func (g *grid) runsAt(i, want int) {
	g.t.Helper()
	eventually(g.t, "not all run", func() string {
		if n := g.nodes[i].report(g.t).Stats.Sizes.Running; n != want {
			return fmt.Sprintf("%d run on %s, want %d", n, g.nodes[i].name, want)
		}
		return ""
	})
}

// TestWaiterIsNotHeldUp covers: an element that waits for a function of its own
// while others' functions loop on it gets its answer when it comes, and its
// deadline when that comes: whoever waits does not run them.
func TestWaiterIsNotHeldUp(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	long := withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })
	loops := g.prepare(g.client, guestImage(t, "faults", long), nil)
	own := g.prepare(g.nodes[0].own, guestImage(t, "faults", long), nil)
	var to inject.Root
	for _, ep := range g.nodes[0].own.Endpoints() {
		if ep.Name() == "n1" {
			to.To = ep
		}
	}
	to.Payload = order(15, 0, uint64(100*time.Millisecond))
	if _, err := own.Do(within(t, patience), to, nil); err != nil {
		t.Fatal(err)
	}
	var futures []*inject.Future
	for range 5 {
		looping := make(chan *inject.Future, 1)
		time.AfterFunc(20*time.Millisecond, func() {
			fut, err := loops.Start(within(t, time.Minute), []inject.Root{g.at(0, order(4, 0, 0))}, inject.Options{})
			if err != nil {
				t.Error(err)
			}
			looping <- fut
		})
		start := time.Now()
		if _, err := own.Do(within(t, patience), to, nil); err != nil {
			t.Fatal(err)
		}
		soon(t, start, atOnce)
		if fut := <-looping; fut != nil {
			futures = append(futures, fut)
		}
	}
	for _, fut := range futures {
		fut.Cancel()
	}
	g.serves()
}
