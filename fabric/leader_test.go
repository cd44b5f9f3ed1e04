package fabric

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stage is a transport without peers: it sees who polls, and who is about to sleep.
type stage struct {
	inside  atomic.Int32
	clashes atomic.Int32
	polls   atomic.Int64
	arm     atomic.Pointer[func()]
}

func (s *stage) Scheme() string { return "stage" }
func (s *stage) Listen(string, func(Pending)) (string, error) {
	return "", errors.New("nobody comes here")
}
func (s *stage) Dial(context.Context, string) (Pending, error) {
	return nil, errors.New("nobody is there")
}

func (s *stage) Poll(int, Turn) int {
	if s.inside.Add(1) > 1 {
		s.clashes.Add(1)
	}
	if s.polls.Add(1)%4 == 0 {
		runtime.Gosched()
	}
	s.inside.Add(-1)
	return 0
}

func (s *stage) Arm() bool {
	if f := s.arm.Swap(nil); f != nil {
		(*f)()
	}
	return false
}
func (s *stage) Disarm()                     {}
func (s *stage) WaitFD() int                 { return -1 }
func (s *stage) Features() TransportFeatures { return TransportFeatures{} }
func (s *stage) Close() error                { return nil }

func onStage(t *testing.T, p Policy) (*Element, *stage) {
	t.Helper()
	s := &stage{}
	e, err := New(Config{Name: "stage", Policy: p, Transports: []Transport{s}, Limits: Limits{PeerTime: 8 * untold}})
	if err != nil {
		t.Fatal(err)
	}
	(*Layer)(e).TickEvery(untold)
	t.Cleanup(func() { e.Close() })
	return e, s
}

// untold is how long a leader of these tests sleeps if nobody tells it: longer than any test runs.
const untold = time.Hour

// TestOneLeader: however many goroutines wait, and however often those that lead fall asleep, are relieved and are told, one
// polls at a time, and whoever waits is told.
func TestOneLeader(t *testing.T) {
	for _, p := range []Policy{Efficient, Balanced} {
		e, s := onStage(t, p)
		manyWait(t, e)
		if n := s.clashes.Load(); n > 0 {
			t.Errorf("policy %v: two polled at once %d times", p, n)
		}
	}
}

// manyWait has more and more goroutines wait for what others complete.
func manyWait(t *testing.T, e *Element) {
	t.Helper()
	for _, many := range []int{2, 3, 12} {
		ctx := soon(t)
		var waiters, others sync.WaitGroup
		for who := range many {
			waiters.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(who), uint64(many)))
				for n := range 150 {
					var ready atomic.Bool
					d := time.Duration(rnd.IntN(200)) * time.Microsecond
					others.Go(func() {
						time.Sleep(d)
						ready.Store(true)
						e.Wake()
					})
					if err := e.WaitFor(ctx, ready.Load); err != nil {
						t.Errorf("policy %v: wait %d of one of %d waiters: %v", e.cfg.Policy, n, many, err)
						return
					}
					if rnd.IntN(4) == 0 {
						time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
					}
				}
			})
		}
		waiters.Wait()
		others.Wait()
	}
}

// TestTakesAreWhole: goroutines that take the lead, lie down in it, hand it on and leave it as fast as they can never have it
// together. Each step is one compare-and-swap: a load and a store instead are a few nanoseconds apart, which only very many tries find.
func TestTakesAreWhole(t *testing.T) {
	e := loneElement(t, 1, Limits{}) // nobody else leads, and nothing is asked of the kernel
	l := &e.leader
	var owner, clashes, relieved atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(500 * time.Millisecond)
	for who := range int64(3) {
		hold := func() {
			owner.Store(who)
			for range 20 {
				if owner.Load() != who {
					clashes.Add(1)
					return
				}
			}
		}
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(who), 7))
			rest := func() bool { // is called asleep
				if rnd.IntN(64) == 0 {
					runtime.Gosched()
				}
				return false
			}
			most := end.Add(patience) // where one of them has the only processor for long, nobody is relieved
			for clashes.Load() == 0 && (time.Now().Before(end) || relieved.Load() == 0 && time.Now().Before(most)) {
				for range 1000 {
					term, ok := l.take(true, true)
					if !ok {
						continue
					}
					hold()
					switch rnd.IntN(16) {
					case 0:
						l.handOff(term)
					case 1:
						l.leave(term)
					default:
						if term, ok, _ = l.sleep(t.Context(), term, 0, rest); !ok {
							relieved.Add(1)
							continue
						}
						hold()
						l.leave(term)
					}
				}
			}
		})
	}
	all.Wait()
	if n := clashes.Load(); n > 0 {
		t.Errorf("two led at once, %d times", n)
	}
	if relieved.Load() == 0 {
		t.Error("no sleeper was relieved")
	}
}

// TestToldBeforeSleep: what is completed, asked for or queued while a leader is on its way to sleep, when nobody rings for it yet, it
// sees before it does; and when it sleeps, it is rung for.
func TestToldBeforeSleep(t *testing.T) {
	for _, p := range []Policy{Efficient, Balanced} {
		toldBeforeSleep(t, p)
	}
}

func toldBeforeSleep(t *testing.T, p Policy) {
	t.Helper()
	e, s := onStage(t, p)
	ctx := soon(t)
	var ticks atomic.Int64
	(*Layer)(e).OnTick(func(now int64) int64 { ticks.Add(1); return now + int64(untold) })
	until := func(what string, cond func() bool) {
		t.Helper()
		for !cond() {
			if ctx.Err() != nil {
				t.Fatalf("policy %v: never: %s", p, what)
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	another := func() (ticked func() bool) {
		n := ticks.Load()
		return func() bool { return ticks.Load() > n }
	}
	asleep := func() {
		t.Helper()
		until("the leader sleeps", func() bool { return e.leader.role() == roleAsleep })
	}
	for range 12 {
		var ready atomic.Bool
		complete := func() { ready.Store(true); e.Wake() }
		s.arm.Store(&complete)
		if err := e.WaitFor(ctx, ready.Load); err != nil {
			t.Fatalf("policy %v: completed on the way: %v", p, err)
		}
		asleep() // or it may be past the stage, and not asleep yet: then nobody comes there
		ticked, ask := another(), (*Layer)(e).TickSoon
		s.arm.Store(&ask)
		go e.WaitFor(ctx, ticked) // leads on the way
		until("a tick asked for on the way", ticked)
		asleep()
		ticked = another()
		(*Layer)(e).TickSoon()
		until("a tick asked for in sleep", ticked)
		asleep()
		ticked = another()
		(*Layer)(e).TickBy(e.Now() + int64(time.Millisecond))
		until("a tick by a time", ticked)
		asleep()
	}
}

// TestRecentNow: it is the clock itself where nobody keeps the coarse one, and near it where somebody does; it is never ahead.
func TestRecentNow(t *testing.T) {
	var clock atomic.Int64
	clock.Store(5)
	manual, err := New(Config{Name: "manual", Manual: true, Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer manual.Close()
	for range 3 {
		if got := (*Layer)(manual).RecentNow(); got != clock.Add(1000)-1000 {
			t.Errorf("RecentNow of a manual element is %d", got)
		}
	}
	for _, p := range []Policy{Balanced, Efficient, Latency} {
		e, err := New(Config{Name: "own", Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var stop atomic.Bool
		time.AfterFunc(100*time.Millisecond, func() { stop.Store(true); e.Wake() })
		late := 0
		for i := range 200 {
			if i == 100 {
				go e.WaitFor(soon(t), stop.Load)
			}
			time.Sleep(300 * time.Microsecond)
			state := e.leader.state.Load()
			before := e.Now()
			got := (*Layer)(e).RecentNow()
			if state&roleMask == roleAsleep && e.leader.state.Load() == state && got < before {
				t.Fatalf("policy %v: RecentNow is %v late while the leader sleeps", p, time.Duration(before-got))
			}
			if got > e.Now() {
				t.Fatal("RecentNow is ahead of the clock")
			}
			if before-got <= int64(20*time.Millisecond) {
				continue
			}
			// On a busy machine whoever leads may get no processor for a while: that counts once, and must end.
			late++
			for end := time.Now().Add(patience); (*Layer)(e).RecentNow() < before; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("policy %v: RecentNow stands still", p)
				}
			}
		}
		if late > 50 {
			t.Errorf("policy %v: RecentNow was more than 20 ms late %d times of 200", p, late)
		}
	}
}

// TestAt: a time is the same on the element's clock whether or not it has a monotonic reading, and however often the
// wall clock was set since the element began.
func TestAt(t *testing.T) {
	e, err := New(Config{Name: "at", Manual: true}) // no goroutine of its own reads the clock meanwhile
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	check := func(when string) {
		t.Helper()
		at := time.Now().Add(time.Minute)
		for kind, at := range map[string]time.Time{"monotonic": at, "wall": at.Round(0), "UTC": at.UTC(), "wall, elsewhere": at.Round(0).In(time.FixedZone("x", 3600))} {
			if off := time.Duration((*Layer)(e).At(at) - e.Now() - int64(time.Minute)); off.Abs() > 10*time.Second {
				t.Errorf("%s, %s: in a minute is %v off", when, kind, off)
			}
		}
	}
	check("as it is")
	for at, want := range map[time.Time]bool{time.Unix(1<<40, 0): true, time.Unix(0, 0): false} {
		if later := (*Layer)(e).At(at) > e.Now()+int64(time.Hour); later != want || (*Layer)(e).At(at)+farthest < (*Layer)(e).At(at) {
			t.Errorf("%v is at %d", at, (*Layer)(e).At(at))
		}
	}
	// A time with a monotonic reading keeps the wall clock's seconds apart from it, above 30 bits of nanoseconds:
	// this is a start at which the wall clock was an hour behind what it says now.
	wall := (*uint64)(unsafe.Pointer(&e.start))
	if *wall>>63 == 0 {
		t.Fatal("the start has no monotonic reading")
	}
	now := e.Now()
	*wall -= 3600 << 30
	if off := time.Duration(e.Now() - now); off.Abs() > time.Second {
		t.Fatalf("the element's clock has moved by %v", off)
	}
	check("after the wall clock was set")
	own, err := New(Config{Name: "own", Manual: true, Now: func() int64 { return 77 }})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if off := time.Duration((*Layer)(own).At(time.Now().Add(time.Second)) - 77 - int64(time.Second)); off.Abs() > time.Second/2 {
		t.Errorf("on a clock of its own, %v off", off)
	}
}

// TestStepBack: a goroutine of Layer.Go that ends tells the background goroutine if nobody leads, and nobody otherwise.
func TestStepBack(t *testing.T) {
	e, err := New(Config{Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l := &e.leader
	told := func() bool {
		done := make(chan struct{})
		(*Layer)(e).Go(func() { close(done) })
		<-done
		for e.workers.busy.Load() > 0 {
			runtime.Gosched()
		}
		for {
			e.workers.mu.Lock()
			idle := len(e.workers.idle) // it is listed after it has stepped back
			e.workers.mu.Unlock()
			if idle > 0 {
				break
			}
			runtime.Gosched()
		}
		select {
		case <-l.wake:
			return true
		default:
			return false
		}
	}
	if !told() {
		t.Error("nobody leads, and the background goroutine was not told")
	}
	if !l.woken.Load() {
		t.Error("the leader does not know of a goroutine that was started")
	}
	term, ok := l.take(true, true)
	if !ok {
		t.Fatal("somebody leads a manual element")
	}
	if told() {
		t.Error("told while somebody leads")
	}
	l.leave(term)
}

// TestOneOnDuty: after handlers have handed off, one background goroutine leads or waits to. Others would look each
// millisecond whether they are needed, for as long as the element lives.
func TestOneOnDuty(t *testing.T) {
	f := &feeder{}
	e, err := New(Config{Name: "x", Transports: []Transport{f}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ep, _ := attach(t, e, 7)
	gate, left := make(chan struct{}), make(chan struct{})
	if err := e.Handle(100, func(m Message) { m.HandOff(); <-gate; left <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	frame := func() { ep.receiver().Frame(100, nil) }
	for round := range 3 {
		for range 2 { // the second comes while the first goes on
			fn := frame
			f.feed.Store(&fn)
			e.leader.kick()
			for f.feed.Load() != nil {
				time.Sleep(time.Millisecond)
			}
		}
		for range 2 {
			gate <- struct{}{}
			<-left
		}
		duty, stack := 0, ""
		one := func() bool {
			duty, stack = 0, stacks()
			for _, g := range strings.Split(stack, "\n\n") {
				if strings.Contains(g, fmt.Sprintf("(*leader).background(%p", &e.leader)) {
					duty++
				}
			}
			return duty == 1
		}
		for end := time.Now().Add(patience); !one(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: %d background goroutines lead or look whether they may\n%s", round, duty, stack)
			}
		}
	}
}

// TestHandedOffComputes: a handler that has handed off counts until it returns as one that computes, and what Layer.Compute runs, so that a leader that
// sleeps beside it gives its processor up; what Layer.Go runs does not, as it may wait only.
func TestHandedOffComputes(t *testing.T) {
	f := &feeder{}
	e, err := New(Config{Name: "x", Transports: []Transport{f}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ep, _ := attach(t, e, 7)
	gate := make(chan struct{})
	defer close(gate)
	if err := e.Handle(100, func(m Message) { m.HandOff(); <-gate }); err != nil {
		t.Fatal(err)
	}
	settles := func(want int64, when string) {
		t.Helper()
		computing, busy := &e.leader.computing, &e.workers.busy
		for end := time.Now().Add(patience); computing.Load() != int32(want) || busy.Load() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s %d handlers run, and %d compute, want %d", when, busy.Load(), computing.Load(), want)
			}
		}
	}
	fn := func() { ep.receiver().Frame(100, nil) }
	for range 3 {
		settles(0, "before")
		f.feed.Store(&fn)
		e.leader.kick()
		settles(1, "meanwhile")
		gate <- struct{}{}
		settles(0, "afterwards")
		(*Layer)(e).Compute(func() { <-gate })
		settles(1, "while something computes")
		gate <- struct{}{}
		settles(0, "after that")
		(*Layer)(e).Go(func() { <-gate })
		if n := e.leader.computing.Load(); n != 0 {
			t.Fatalf("%d compute, where one waits", n)
		}
		gate <- struct{}{}
	}
}

// stacks are those of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

// TestLullLeavesTheMonitorAlone: a leader that wakes for its tick only, and sleeps again, does not have the runtime's monitor look after its processor for 10 ms each
// time. Counted are the sleeps of all threads of this process, which does nothing else.
func TestLullLeavesTheMonitorAlone(t *testing.T) {
	e, err := New(Config{Name: "lull"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	(*Layer)(e).TickEvery(20 * time.Millisecond)
	sleeps := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return u.Nvcsw
	}
	const ticks, most = 25, 20 // the monitor makes some 55 of a tick
	time.Sleep(100 * time.Millisecond)
	fewest := int64(math.MaxInt64)
	for range 2 { // a collection may run meanwhile
		before := sleeps()
		time.Sleep(ticks * 20 * time.Millisecond)
		fewest = min(fewest, sleeps()-before)
	}
	if fewest > ticks*most {
		t.Errorf("%d sleeps in %d ticks of an element that has nothing to do, want at most %d", fewest, ticks, ticks*most)
	} else {
		t.Logf("%d sleeps in %d ticks", fewest, ticks)
	}
}

// TestReliefEndsLull: a leader that was relieved soon after it fell asleep is in no lull any more.
func TestReliefEndsLull(t *testing.T) {
	e, s := onStage(t, Efficient)
	var lulls []bool
	note := func() { lulls = append(lulls, e.leader.lull) } // by the leader, which is about to sleep
	await := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !cond(); time.Sleep(50 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	asleep := func() bool { return s.arm.Load() == nil && e.leader.role() == roleAsleep }
	await("it does not sleep", asleep)
	for range 200 {
		if len(lulls) == 0 || !lulls[0] { // a signal may have ended the sleep
			lulls = lulls[:0]
			time.Sleep(3 * lullTime)
			s.arm.Store(&note)
			e.leader.kick()
			await("it does not fall asleep again", asleep)
			continue
		}
		polls := 0
		if err := e.WaitFor(soon(t), func() bool { polls++; return polls > 2 }); err != nil { // relieves the sleeper
			t.Fatal(err)
		}
		s.arm.Store(&note)
		e.leader.nudge()
		await("nobody sleeps after the relief", asleep)
		if n := len(lulls); n > 1 && !lulls[n-1] {
			return
		}
	}
	t.Fatalf("still in a lull after %d short sleeps that ended in relief", len(lulls))
}

// TestLooksSeldom: the background goroutine looks half as often each time that it finds the same waiter asleep, and is told when that one leaves.
func TestLooksSeldom(t *testing.T) {
	e, err := New(Config{Name: "x", Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l := &e.leader
	told := func() bool {
		select {
		case <-l.wake:
			return true
		default:
			return false
		}
	}
	for told() {
	}
	const asleep, polling = 5<<2 | roleAsleep, 6<<2 | rolePolling
	period, seen := backgroundPeriod, uint64(0)
	for i, look := range []struct {
		state uint64
		want  time.Duration
	}{
		{asleep, 1}, {asleep, 2}, {asleep, 4}, {polling, 1}, {polling, 1}, {asleep, 1}, {asleep, 2}, {asleep + oneTerm, 1}, {asleep + oneTerm, 2},
		{asleep + oneTerm, 4}, {asleep + oneTerm, 8}, {asleep + oneTerm, 16}, {asleep + oneTerm, 32}, {asleep + oneTerm, 64}, {asleep + oneTerm, 128}, {asleep + oneTerm, 250}, {asleep + oneTerm, 250},
	} {
		l.state.Store(look.state)
		if period, seen = l.nextLook(period, seen); period != look.want*time.Millisecond || l.patient.Load() != (look.want > 1) {
			t.Errorf("look %d: the next in %v, patient %v; want %v ms", i, period, l.patient.Load(), int64(look.want))
		}
	}
	l.state.Store(polling)
	if l.leave(polling); !told() {
		t.Error("a waiter has left, and the background goroutine, which looks seldom, was not told")
	}
	l.nextLook(period, seen)
	l.state.Store(polling)
	if l.leave(polling); told() {
		t.Error("told where it looks soon anyhow")
	}
	l.state.Store(roleFree)
}
