package fabric

import (
	"runtime"
	"testing"
	"time"
)

// TestYieldBeforeSleep: whatever the policy, the last thing before a sleep is a yield and a poll: a peer on this processor may have
// answered meanwhile. Efficient yields at once, Balanced when it has polled for a while, or when somebody else ran meanwhile.
func TestYieldBeforeSleep(t *testing.T) {
	clock, step := int64(1), 300*time.Nanosecond
	el := &Element{now: func() int64 { clock += int64(step); return clock }}
	l := &el.leader
	l.el = el
	p := pacer{l: l}
	idle := func(what string, want ...pace) {
		t.Helper()
		for i, want := range want {
			if got := p.after(0); got != want {
				t.Fatalf("%s, poll %d: pace %d, want %d", what, i+1, got, want)
			}
		}
	}
	el.cfg.Policy = Efficient
	for range 50 {
		l.rhythm.init()
		idle("efficient", paceTick, paceSleep)
		p.reset()
	}
	idle("efficient", paceTick)
	if p.after(1); p.tired {
		t.Fatal("something came, and it would sleep still")
	}
	idle("efficient, afterwards", paceTick, paceSleep)
	el.cfg.Policy, step = Balanced, foreignTime+1
	p.reset()
	l.rhythm.init()
	l.yieldPolls = 2
	idle("balanced, where somebody else ran", paceOn, paceTick, paceSleep)
	step = 300 * time.Nanosecond
	p.reset()
	l.rhythm.init()
	yields := 0
	for start := clock; p.after(0) != paceSleep; {
		if yields++; time.Duration(clock-start) > 2*Balanced.spin() {
			t.Fatal("balanced goes on beyond its time")
		}
	}
	if yields < 3 {
		t.Fatalf("balanced slept after %d polls", yields)
	}
}

// TestInterruptedPoll: one poll in which the processor was away does not have all further ones followed by a yield.
func TestInterruptedPoll(t *testing.T) {
	clock, step := int64(1), int64(100)
	el := &Element{now: func() int64 { return clock }}
	el.cfg.Policy = Latency
	l := &el.leader
	l.el = el
	l.rhythm.init()
	l.yieldTime = mostYieldTime
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
	l.el, l.rhythm = el, rhythm{yieldPolls: 1, pollTime: firstPollTime}
	for _, want := range []time.Duration{leastHogged, 2 * leastHogged, 4 * leastHogged} {
		clock = l.hoggedUntil + 1
		l.yielded(clock, hogTime)
		if l.hogged != want || l.hoggedUntil != clock+int64(want) {
			t.Fatalf("nothing is yielded for %v, want %v", l.hogged, want)
		}
		if want := int(int64(shortPoll) / l.pollTime); l.yieldPolls != want {
			t.Fatalf("the clock is read and goroutines are looked after each %d polls, want %d", l.yieldPolls, want)
		}
	}
	p := pacer{l: l}
	coarse := l.coarse.Load()
	slept := 0
	for range 10_000 {
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
		l.yielded(clock, hogTime)
	}
	if l.hogged != mostHogged {
		t.Fatalf("nothing is yielded for %v, at most %v", l.hogged, mostHogged)
	}
	if l.yielded(clock, hogTime-1); l.hogged != 0 {
		t.Fatal("a short yield did not end that")
	}
}

// TestHoggedSpin: where another thread keeps the processor a leader sleeps soon, after a few long polls that bring nothing; some are
// long still, and one that brings something has the next be long too.
func TestHoggedSpin(t *testing.T) {
	clock := int64(1)
	el := &Element{now: func() int64 { return clock }}
	el.cfg.Policy = Balanced
	l := &el.leader
	l.el, l.rhythm = el, rhythm{yieldPolls: 1, pollTime: firstPollTime}
	l.yielded(clock, hogTime)
	// wait polls until it sleeps, or something comes after some time, and returns how long it polled.
	wait := func(comes time.Duration) time.Duration {
		p, start := pacer{l: l}, clock
		for {
			clock += firstPollTime
			took := time.Duration(clock - start)
			if comes != 0 && took >= comes {
				p.after(1)
				return took
			}
			if p.after(0) == paceSleep {
				return took
			}
		}
	}
	long := func(d time.Duration) bool { return d >= Balanced.spin() }
	for i := range mostWorth / forNought {
		if d := wait(0); !long(d) {
			t.Fatalf("wait %d: polled for %v, though long polls have brought nothing only %d times", i, d, i)
		}
	}
	longs := 0
	for range 10 * longTries {
		if d := wait(0); long(d) {
			longs++
		} else if d > 2*shortPoll {
			t.Fatalf("polled for %v, want about %v", d, shortPoll)
		}
	}
	if longs != 10 {
		t.Fatalf("%d of %d polls were long, want one of %d", longs, 10*longTries, longTries)
	}
	for l.tries%longTries != 0 {
		wait(0)
	}
	wait(2 * shortPoll) // a long one
	wait(shortPoll / 2) // says nothing of them
	if d := wait(0); !long(d) {
		t.Fatalf("polled for %v after a long poll that brought something", d)
	}
	if d := wait(0); long(d) {
		t.Fatalf("polled for %v after a long poll that brought nothing", d)
	}
}

// TestStepsAside: a leader that polls lets goroutines run each asideEvery where the runtime has other processors for them, and at each yield where it has not.
func TestStepsAside(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const yields = 1000
	count := func() (n int) {
		var r rhythm
		for i := range yields {
			if r.aside(int64(i) * int64(mostYieldTime)) {
				n++
			}
		}
		return n
	}
	if n, most := count(), yields*int(mostYieldTime)/int(asideEvery)+1; n < most/2 || n > most {
		t.Errorf("with two processors it steps aside %d times, want %d to %d", n, most/2, most)
	}
	runtime.GOMAXPROCS(1)
	if n := count(); n != yields {
		t.Errorf("with one processor it steps aside %d times, want %d", n, yields)
	}
}
