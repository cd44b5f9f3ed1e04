package fabric

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pacer says after each poll what a leader does next: poll on, let others have the processor, or sleep. It is new for each
// time that something is waited for; what it learns about the processor is the leader's, in rhythm.
type pacer struct {
	l     *leader
	count int   // polls
	since int64 // when the idling began; 0: not yet
	last  int64 // the last yield; 0: none since something came
	polls int   // empty ones since then
	tired bool  // the last yield said to sleep, if the poll after it brings nothing
}

// rhythm is what a leader has learnt from how long its yields took: how many empty polls go between two of them, and
// whether another thread on this processor keeps it.
type rhythm struct {
	yieldPolls  int
	yieldTime   time.Duration // what they shall take
	pollTime    int64         // how long one takes, in nanoseconds
	hogged      time.Duration // how long nothing is yielded, as another thread computes here: until hoggedUntil
	hoggedUntil int64
	worth       int   // of long polls there: what they have brought of late, 0 to mostWorth
	tries       uint  // sleeps there: some short polls are long ones, to see what they bring
	lone        bool  // the runtime has one processor, so goroutines run only where the leader steps aside
	nextAside   int64 // when it steps aside in any case
}

type pace int

const (
	paceOn    pace = iota
	paceTick       // run the duties that are due, and poll on
	paceSleep      // run them, and sleep
)

const (
	// Empty polls go on for a while between two yields of the processor:
	// elements that outnumber the cores must let each other run. How long, is
	// learnt: a yield that took longer than foreignTime let another thread run, so the
	// next one comes sooner; one that took no longer than its system call was for nothing.
	leastYieldTime = 250 * time.Nanosecond
	mostYieldTime  = 16 * time.Microsecond
	foreignTime    = 1500 * time.Nanosecond
	firstPolls     = 16
	// firstPollTime is what a poll is taken for at first, in nanoseconds. What is learnt no more than doubles at a time: a single
	// interruption would have every poll followed by a yield, and where an answer comes meanwhile nothing would be learnt any more.
	firstPollTime = 200
	// A yield that took hogTime gave the processor to a thread that computes: it keeps it for a whole slice, some
	// milliseconds, each time. So nothing is yielded for leastHogged then, and twice as long each time that it is
	// tried and so again: a polling thread shares the processor like any that computes, and a sleeping one is woken in its turn.
	hogTime     = time.Millisecond
	leastHogged = 50 * time.Millisecond
	mostHogged  = time.Second
	// Who polls there keeps the others from computing, and maybe the very one that is to answer. So a leader sleeps after shortPoll, unless
	// longer polls, of Balanced's time, are worth it: one that brings something saves a sleep and a wake-up, a fourth of what one for
	// nothing costs. One of longTries is long in any case.
	shortPoll = 8 * time.Microsecond
	mostWorth = 16
	forNought = 4
	longTries = 8
	// asideEvery is how often goroutines get the processor of a leader that polls, where the runtime has others for them. With each Gosched
	// the runtime wakes a thread for a processor that is idle, to look whether there is something to run: RATIONALE has what that costs.
	asideEvery = time.Millisecond
)

func (r *rhythm) init() {
	r.yieldPolls, r.yieldTime, r.pollTime = firstPolls, leastYieldTime, firstPollTime
}

func (p *pacer) reset() { *p = pacer{l: p.l} }

func (p *pacer) after(handled int) pace {
	l := p.l
	p.count++
	if handled > 0 {
		if p.since != 0 && l.hogged != 0 {
			l.worth = min(l.worth+1, mostWorth)
		}
		p.since, p.last, p.polls, p.tired = 0, 0, 0, false
		if p.count&31 == 0 || l.ran >= pollBudget { // the coarse clock must go on, and few handlers be between two looks at it
			return paceTick
		}
		return paceOn
	}
	if p.tired {
		if l.hogged != 0 {
			l.worth = max(l.worth-forNought, 0)
			l.tries++
		}
		return paceSleep
	}
	// A policy that sleeps at once yields at once: a peer that shares the processor may answer meanwhile, which takes a fifth of
	// falling asleep and being woken.
	if p.polls++; p.polls < l.yieldPolls && l.el.cfg.Policy != Efficient {
		return paceOn
	}
	return p.yield()
}

// yield lets others run: goroutines of this process, and other processes unless one of them keeps the processor.
func (p *pacer) yield() pace {
	l := p.l
	now := l.el.now()
	l.clock(now)
	if p.last != 0 {
		l.pollTime = min(max((now-p.last)/int64(p.polls), 1), 2*l.pollTime)
	}
	if p.since == 0 {
		p.since = now
	}
	if l.aside(now) {
		runtime.Gosched()
	}
	start := l.el.now()
	p.last, p.polls = start, 0
	spin, foreign := l.el.cfg.Policy.spin(), false
	if start < l.hoggedUntil {
		spin = min(spin, l.hoggedSpin()) // also where the policy is never to sleep: the answering thread may wait for this processor
	} else {
		schedYield()
		p.last = l.el.now()
		foreign = l.yielded(p.last, time.Duration(p.last-start)) && l.el.cfg.Policy != Latency
	}
	l.coarse.Store(p.last)
	p.tired = foreign || time.Duration(now-p.since) >= spin // where others want this processor, it is theirs while we sleep
	return paceTick
}

// hoggedSpin is how long a leader goes on polling after shortPoll where another thread keeps the processor.
func (r *rhythm) hoggedSpin() time.Duration {
	if r.worth > 0 || r.tries%longTries == 0 {
		return Balanced.spin()
	}
	return 0
}

// aside reports whether a leader is to let other goroutines run.
func (r *rhythm) aside(now int64) bool {
	if now >= r.nextAside {
		r.nextAside = now + int64(asideEvery)
		r.lone = runtime.GOMAXPROCS(0) == 1
		return true
	}
	return r.lone
}

// yielded learns from how long a yield took, which is over now. It reports whether another thread ran.
func (r *rhythm) yielded(now int64, took time.Duration) (foreign bool) {
	foreign = took > foreignTime
	switch {
	case took >= hogTime: // while nothing is yielded the clock and the goroutines need no look at each poll either
		if r.hogged == 0 {
			r.worth = mostWorth
		}
		r.hogged = min(max(2*r.hogged, leastHogged), mostHogged)
		r.hoggedUntil = now + int64(r.hogged)
		r.yieldTime = shortPoll
	case foreign:
		r.hogged = 0
		r.yieldTime = max(r.yieldTime/4, leastYieldTime)
	default:
		r.hogged = 0
		r.yieldTime = min(r.yieldTime*2, mostYieldTime)
	}
	r.yieldPolls = max(int(int64(r.yieldTime)/max(r.pollTime, 1)), 1)
	return foreign
}

// schedYield lets another process on this core run. It goes through Syscall:
// RawSyscall would hold up the garbage collector's stops.
func schedYield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
