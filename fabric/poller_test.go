package fabric

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// doorbell is a Poller whose work is a number in memory, and whose descriptor is rung if it is armed.
type doorbell struct {
	fd     int
	todo   atomic.Int64
	armed  atomic.Bool
	done   atomic.Int64
	polls  atomic.Int64
	inside atomic.Int32
	two    atomic.Bool // were inside at once
	slow   time.Duration
}

func newDoorbell(t *testing.T) *doorbell {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &doorbell{fd: fd}
}

func (d *doorbell) add() {
	d.todo.Add(1)
	if d.armed.Load() {
		unix.Write(d.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (d *doorbell) Poll(budget int, _ Turn) int {
	if d.inside.Add(1) > 1 {
		d.two.Store(true)
	}
	defer d.inside.Add(-1)
	d.polls.Add(1)
	time.Sleep(d.slow)
	n := min(d.todo.Load(), int64(budget))
	d.todo.Add(-n)
	d.done.Add(n)
	return int(n)
}

func (d *doorbell) Arm() bool { d.armed.Store(true); return d.todo.Load() > 0 }

func (d *doorbell) Disarm() {
	d.armed.Store(false)
	var b [8]byte
	unix.Read(d.fd, b[:])
}

func (d *doorbell) WaitFD() int { return d.fd }

// TestPoller: what is added is polled, by one goroutine at a time, and wakes a leader that sleeps, by every policy; what was removed is left alone.
func TestPoller(t *testing.T) {
	for _, p := range []Policy{Efficient, Balanced, Latency} {
		polled(t, p)
	}
}

// placed is a Poller that counts when it was polled: first of a round, second, …
type placed struct {
	round *int // how many have been polled in this one
	at    []int
}

func (p *placed) Poll(int, Turn) int {
	p.at[*p.round]++
	*p.round++
	return 0
}
func (p *placed) Arm() bool   { return false }
func (p *placed) Disarm()     {}
func (p *placed) WaitFD() int { return -1 }

// TestPollersTakeTurns: each poller is polled first as often as each other one, and each once in a round: of two borrowers of a drive the one that was always
// polled last had a tenth to a half more reads.
func TestPollersTakeTurns(t *testing.T) {
	e, err := New(Config{Name: "turns", Manual: true, Now: func() int64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const pollers, rounds = 3, 30
	round := 0
	var all [pollers]*placed
	for i := range all {
		all[i] = &placed{&round, make([]int, pollers)}
		if err := e.AddPoller(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	for range rounds {
		e.Progress()
		if round != pollers {
			t.Fatalf("%d polls in a round of %d pollers", round, pollers)
		}
		round = 0
	}
	for i, p := range all {
		for place, n := range p.at {
			if n != rounds/pollers {
				t.Errorf("poller %d was number %d of a round %d times, want %d of %d", i, place, n, rounds/pollers, rounds)
			}
		}
	}
}

func polled(t *testing.T, p Policy) {
	t.Helper()
	e, err := New(Config{Name: "polled", Policy: p, Limits: Limits{PeerTime: 8 * untold}})
	if err != nil {
		t.Fatal(err)
	}
	(*Layer)(e).TickEvery(untold)
	defer e.Close()
	d := newDoorbell(t)
	if err := e.AddPoller(d); err != nil {
		t.Fatal(err)
	}
	for i := range int64(100) {
		start := time.Now()
		d.add()
		for d.done.Load() <= i {
			if time.Since(start) > patience {
				t.Fatalf("%v: number %d is not done", p, i)
			}
			time.Sleep(20 * time.Microsecond)
		}
		if i%20 == 0 {
			time.Sleep(2 * time.Millisecond) // it may fall asleep
		}
	}
	if err := e.RemovePoller(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if d.inside.Load() != 0 || d.two.Load() {
		t.Errorf("%v: polled at the time of its removal, or twice at once", p)
	}
	before := d.polls.Load()
	d.add()
	ticked := make(chan struct{})
	e.leader.soon(func() { close(ticked) })
	<-ticked
	if n := d.polls.Load() - before; n > 0 {
		t.Errorf("%v: polled %d times after its removal", p, n)
	}
	if err := e.RemovePoller(t.Context(), d); err != nil {
		t.Errorf("%v: removed twice: %v", p, err)
	}
}

// TestPollerRemovedBusy: removal waits for a poll that is under way.
func TestPollerRemovedBusy(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	d := newDoorbell(t)
	d.slow = time.Millisecond
	for range 20 {
		if err := e.AddPoller(d); err != nil {
			t.Fatal(err)
		}
		d.add()
		e.Progress()
		if err := e.RemovePoller(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if d.inside.Load() != 0 {
			t.Fatal("still inside")
		}
	}
}

// TestPollerClosed: nothing is added to an element that is closed, and nothing of it is polled.
func TestPollerClosed(t *testing.T) {
	e, err := New(Config{Name: "closed"})
	if err != nil {
		t.Fatal(err)
	}
	d := newDoorbell(t)
	if err := e.AddPoller(d); err != nil {
		t.Fatal(err)
	}
	e.Close()
	before := d.polls.Load()
	d.add()
	if err := e.AddPoller(newDoorbell(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("added: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := e.RemovePoller(ctx, d); !errors.Is(err, ErrClosed) {
		t.Errorf("removed: %v", err)
	}
	if d.polls.Load() != before {
		t.Error("polled after Close")
	}
}

// TestDutyWhileTicking: what is to be done soon is done soon, also if that is said while the leader does what was to be done before.
func TestDutyWhileTicking(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	done, ticked := false, false
	e.leader.soon(func() {
		e.leader.soon(func() { done = true })
		(*Layer)(e).OnTick(func(now int64) int64 { ticked = true; return now + 1000 })
	})
	e.Progress()
	e.Progress()
	if !done || !ticked {
		t.Errorf("in the next round, duty done: %v, new ticker called: %v", done, ticked)
	}
}
