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
		for still := 0; still < many-i-1; { // one that has just lain down looks once more
			for j := range many {
				before[j] = looks[j].Load()
			}
			time.Sleep(20 * time.Millisecond)
			still = 0
			for j := i; j < many; j++ {
				if looks[j].Load() == before[j] {
					still++
				}
			}
			if ctx.Err() != nil {
				t.Fatalf("of %d waiters %d sleep while nothing happens", many-i, still)
			}
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
		n := -1
		for end := time.Now().Add(patience); n != want && time.Now().Before(end); time.Sleep(time.Millisecond) {
			e.workers.mu.Lock()
			n = len(e.workers.idle)
			e.workers.mu.Unlock()
		}
		if n != want || e.workers.busy.Load() != 0 {
			t.Fatalf("%d goroutines are idle and %d busy, want %d and none", n, e.workers.busy.Load(), want)
		}
	}
	several := func(n int) {
		t.Helper()
		var all sync.WaitGroup
		gate := make(chan struct{})
		for range n {
			all.Add(1)
			(*Layer)(e).Go(func() { defer all.Done(); <-gate })
		}
		close(gate)
		all.Wait()
	}
	several(4)
	idle(4)
	several(2)
	idle(4)
	e.workers.trim() // none was idle all the time since the start
	idle(4)
	several(1)
	idle(4)
	e.workers.trim()
	idle(1)
	several(maxIdleWorkers + 20)
	idle(maxIdleWorkers)
	e.Close()
	idle(0)
	done := make(chan struct{})
	(*Layer)(e).Go(func() { close(done) }) // what comes late runs all the same
	<-done
}

// parked has a goroutine wait on a Waiter of its own; the returned function lets it go and waits for its end.
func parked(t *testing.T, e *Element) (ended chan error, end func()) {
	t.Helper()
	w, ready, done := new(Waiter), new(atomic.Bool), make(chan error, 1)
	w.Init(e)
	looks := make(chan struct{}, 1)
	go func() {
		done <- w.Wait(context.Background(), func() bool {
			select {
			case looks <- struct{}{}:
			default:
			}
			return ready.Load()
		})
	}()
	<-looks
	return done, func() { ready.Store(true); w.Wake(); <-done }
}

// TestClosedBesideWaiters: whoever waits when the element is closed hears of it, also where nothing else would end its wait.
func TestClosedBesideWaiters(t *testing.T) {
	e, _ := onStage(t, Efficient)
	var ended []chan error
	for range 4 {
		done, _ := parked(t, e)
		ended = append(ended, done)
	}
	time.Sleep(5 * time.Millisecond)
	e.Close()
	for i, done := range ended {
		select {
		case err := <-done:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("waiter %d: %v", i, err)
			}
		case <-time.After(patience):
			t.Fatalf("waiter %d still sleeps", i)
		}
	}
}

// TestBedtime: a waiter that nobody wakes and that has no deadline sleeps until Limits.OpTime after it began, and no longer the
// next time.
func TestBedtime(t *testing.T) {
	now := int64(1000)
	e, err := New(Config{Manual: true, Now: func() int64 { return now }, Limits: Limits{OpTime: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l := &e.leader
	l.epfd = 0 // as if others led in the background
	defer func() { l.epfd = -1 }()
	limit := int64(0)
	if d := l.bedtime(t.Context(), &Waiter{l: l}, &limit); limit != now+int64(time.Second) || d < time.Second || d > 2*time.Second {
		t.Fatalf("it sleeps for %v, and its limit is %d", d, limit)
	}
	now += int64(time.Second)
	if d := l.bedtime(t.Context(), &Waiter{l: l}, &limit); d > time.Millisecond {
		t.Fatalf("when its time is over it sleeps for %v more", d)
	}
	if d := l.bedtime(t.Context(), &Waiter{l: l, ends: true}, &limit); d != 0 {
		t.Fatalf("what ends by itself is waited for for %v", d)
	}
}

// feeder is a stage on which something happens in a round of progress.
type feeder struct {
	stage
	feed atomic.Pointer[func()]
}

func (f *feeder) Poll(budget int, turn Turn) int {
	if fn := f.feed.Swap(nil); fn != nil {
		(*fn)()
		return 1
	}
	return f.stage.Poll(budget, turn)
}

// TestHandOffTells: a condition that a handler made true before it handed off is looked at then, and not when something else comes.
func TestHandOffTells(t *testing.T) {
	f := &feeder{}
	e, err := New(Config{Name: "x", Policy: Efficient, Transports: []Transport{f}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ep, _ := attach(t, e, 7)
	var ready atomic.Bool
	gate := make(chan struct{})
	if err := e.Handle(100, func(m Message) { ready.Store(true); m.HandOff(); <-gate }); err != nil {
		t.Fatal(err)
	}
	_, endA := parked(t, e)
	_, endB := parked(t, e)
	got := make(chan error, 1)
	go func() { got <- e.WaitFor(soon(t), ready.Load) }()
	for e.leader.rooms.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	e.leader.nextTick.Store(e.now() + int64(time.Hour)) // at which conditions are looked at too
	fn := func() { ep.receiver().Frame(100, nil) }
	f.feed.Store(&fn)
	e.leader.kick()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it sleeps on")
	}
	close(gate)
	endA()
	endB()
}

// tryLink counts the messages that it is given, taken or not.
type tryLink struct {
	fakeLink
	tries atomic.Int64
}

func (l *tryLink) Send(id FrameID, class Class, head, body []byte) error {
	if class == Normal {
		l.tries.Add(1)
	}
	return l.fakeLink.Send(id, class, head, body)
}

// letIn makes room for n more messages.
func (l *tryLink) letIn(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room += n
}

func (l *tryLink) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.frames)
}

// TestSendersWokenInTurn: of many senders for whose messages there is no room as many are woken as there is room for, and one more that finds
// none; nobody because something else happens.
func TestSendersWokenInTurn(t *testing.T) {
	const senders, rounds = 256, 20
	f := &feeder{}
	e, err := New(Config{Name: "x", Policy: Efficient, Transports: []Transport{f}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	other, _ := attach(t, e, 7)
	link := &tryLink{}
	ep, err := (*Layer)(e).Attach(PeerHello{Name: "full", Incarnation: 8, Limits: e.cfg.Limits}, func(Receiver) (Link, error) { return link, nil })
	if err != nil {
		t.Fatal(err)
	}
	_, endA := parked(t, e) // leads: a sender that leads looks at each round
	_, endB := parked(t, e)
	until := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !cond(); time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	until("one sleeps", func() bool { return e.leader.parked.Load() > 0 })
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			if err := ep.Send(soon(t), 100, nil, []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	until("all sleep", func() bool { return ep.roomy.asleep.Load() == senders })
	before := link.tries.Load()
	var heard atomic.Int64
	ping := func() { other.receiver().Frame(framePing, nil); heard.Add(1) }
	for i := range int64(rounds) {
		f.feed.Store(&ping)
		e.leader.kick()
		until("a round", func() bool { return heard.Load() > i })
	}
	if n := link.tries.Load() - before; n >= senders { // the last to lie down have looked once more
		t.Errorf("in %d rounds that brought them nothing senders tried %d times", rounds, n)
	}
	before = link.tries.Load()
	for i := range senders {
		link.letIn(1)
		ep.receiver().Writable()
		until("one is sent", func() bool { return link.taken() == i+1 })
	}
	all.Wait()
	if n := link.tries.Load() - before; n > 3*senders { // one sends, the next tries, and once more when it has lain down
		t.Errorf("%d messages took %d tries", senders, n)
	}
	endA()
	endB()
}

// TestCreditGoesRound: senders without credit, of large and small messages, all come through, however little credit comes at a time.
func TestCreditGoesRound(t *testing.T) {
	const senders = 64
	f := &feeder{}
	e, err := New(Config{Name: "x", Policy: Efficient, Transports: []Transport{f}, Limits: Limits{WindowBytes: 2 * MaxFrameBytes}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ep, link := attach(t, e, 7)
	var total uint64 // released
	for ep.TrySend(100, nil, make([]byte, 1000)) == nil {
	}
	var done atomic.Int64
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			body := make([]byte, 1)
			if i%8 == 0 {
				body = make([]byte, MaxMessageBytes)
			}
			if err := ep.Send(soon(t), 100, nil, body); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	for end := time.Now().Add(patience); done.Load() < senders; time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d messages were sent", done.Load(), senders)
		}
		for _, m := range link.take() {
			total += cost(len(m.body))
			released := total
			told := make(chan struct{})
			fn := func() { ep.receiver().Frame(frameCredit, u64(released)); close(told) }
			f.feed.Store(&fn)
			e.leader.kick()
			<-told
		}
	}
	all.Wait()
}

// TestSmallPassesLarge: a sender whose message there is credit for does not sleep behind others who need more: a peer may
// release nothing further before it has that message.
func TestSmallPassesLarge(t *testing.T) {
	f := &feeder{}
	e, err := New(Config{Name: "x", Policy: Efficient, Transports: []Transport{f}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ep, _ := attach(t, e, 8)
	_, endA := parked(t, e) // leads
	defer endA()
	_, endB := parked(t, e)
	defer endB()
	const large, small = 60_000, 100
	for ep.TrySend(100, nil, make([]byte, small)) == nil {
	}
	var sent []chan error
	start := func(send func() error) {
		t.Helper()
		ch := make(chan error, 1)
		go func() { ch <- send() }()
		sent = append(sent, ch)
		for end := time.Now().Add(patience); int(ep.roomy.asleep.Load()) < len(sent); time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("sender %d does not sleep", len(sent))
			}
		}
	}
	for _, n := range []int{large, large, large, small} {
		start(func() error { return ep.Send(soon(t), 100, nil, make([]byte, n)) })
	}
	start(func() error { return ep.WaitRoom(soon(t)) })
	start(func() error { return ep.Send(soon(t), 100, nil, make([]byte, small)) })
	credit := func() { ep.receiver().Frame(frameCredit, u64(cost(large)+5*cost(small))) }
	f.feed.Store(&credit)
	e.leader.kick()
	for _, i := range []int{0, 3, 5} {
		select {
		case err := <-sent[i]:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatalf("sender %d sleeps, though there is credit of %d", i, ep.Stats().Credit)
		}
	}
	for _, i := range []int{1, 2, 4} {
		if len(sent[i]) > 0 {
			t.Errorf("sender %d went on without credit", i)
		}
	}
	ep.Close()
	for _, i := range []int{1, 2, 4} {
		if err := <-sent[i]; !errors.Is(err, ErrClosed) {
			t.Errorf("sender %d: %v", i, err)
		}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if len(ep.wanted) != 0 {
		t.Errorf("%v are wanted when nobody waits", ep.wanted)
	}
}
