package fabric

import (
	"testing"
	"time"
)

// TestYieldBeforeSleep: policy efficient lets others run once before it sleeps,
// as long as that pays.
func TestYieldBeforeSleep(t *testing.T) {
	clock, step := int64(0), time.Microsecond
	el := &Element{now: func() int64 { clock += int64(step); return clock }}
	el.cfg.Policy = Efficient
	l := &el.leader
	l.el = el
	p := pacer{l: l}
	idle := func(what string, want pace) {
		t.Helper()
		if got := p.after(0); got != want {
			t.Fatalf("%s: pace %d, want %d", what, got, want)
		}
	}
	for range vainYields {
		idle("a yield may pay", paceOn)
		idle("it brought nothing", paceSleep)
		p.reset()
	}
	idle("yields have not paid", paceSleep)
	for l.vain%rareYield != rareYield-1 {
		idle("yields have not paid", paceSleep)
	}
	idle("now and then", paceOn)
	if p.after(1); l.vain != 0 {
		t.Fatalf("a frame came after a yield, and %d are in vain", l.vain)
	}
	step = time.Millisecond
	idle("others keep the processor", paceSleep)
	if p.paid(1); l.vain == 0 {
		t.Fatal("a long yield paid")
	}
	l.epfd = -1
	l.vain, step = 0, time.Microsecond
	idle("nobody sleeps in manual mode", paceSleep)
}

// TestInterruptedPoll: one poll in which the processor was away does not have all further ones followed by a yield.
func TestInterruptedPoll(t *testing.T) {
	clock, step := int64(1), int64(100)
	el := &Element{now: func() int64 { return clock }}
	el.cfg.Policy = Latency
	l := &el.leader
	l.el, l.yieldTime, l.yieldPolls, l.pollTime = el, mostYieldTime, firstPolls, firstPollTime
	p := pacer{l: l}
	poll := func(n int) {
		for range n {
			clock += step
			p.after(0)
		}
	}
	poll(100_000)
	usual := l.yieldPolls
	step = int64(10 * time.Millisecond)
	poll(1)
	for ; p.polls != 0; poll(1) { // to the next yield, which learns of it
		step = 100
	}
	if l.yieldPolls < usual/8 {
		t.Errorf("after an interruption there are %d polls between two yields, before there were %d", l.yieldPolls, usual)
	}
	step = 10_000
	poll(100_000)
	if each := l.pollTime; each != step {
		t.Errorf("polls that take %d ns each for a while are taken for %d", step, each)
	}
}

// TestHogged: where a yield gives the processor to somebody who keeps it, nothing is yielded for a while, longer each time that it is tried;
// one yield that does not ends that.
func TestHogged(t *testing.T) {
	clock := int64(1)
	el := &Element{now: func() int64 { clock += int64(time.Microsecond); return clock }}
	el.cfg.Policy = Latency
	l := &el.leader
	l.el, l.yieldTime, l.yieldPolls, l.pollTime = el, mostYieldTime, 1, firstPollTime
	for _, want := range []time.Duration{leastHogged, 2 * leastHogged, 4 * leastHogged} {
		clock = l.hoggedUntil + 1
		l.coarse.Store(clock)
		l.yielded(hogTime)
		if l.hogged != want || l.hoggedUntil != clock+int64(want) {
			t.Fatalf("nothing is yielded for %v, want %v", l.hogged, want)
		}
	}
	p := pacer{l: l}
	coarse := l.coarse.Load()
	slept := 0
	for range 100 {
		if p.after(0) == paceSleep { // also by this policy: whoever answers may wait for the processor
			slept++
			p.reset()
		}
	}
	if slept == 0 {
		t.Fatal("it never slept")
	}
	if l.coarse.Load() == coarse || l.hogged != 4*leastHogged {
		t.Fatal("the clock stands still, or a yield was made")
	}
	for range 10 {
		l.yielded(hogTime)
	}
	if l.hogged != mostHogged {
		t.Fatalf("nothing is yielded for %v, at most %v", l.hogged, mostHogged)
	}
	if l.yielded(hogTime - 1); l.hogged != 0 {
		t.Fatal("a short yield did not end that")
	}
	el.cfg.Policy = Efficient
	l.vain = 0
	if got := p.after(0); got != paceSleep {
		t.Fatalf("policy efficient, before a sleep: pace %d", got)
	}
}
