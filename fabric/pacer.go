package fabric

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pacer turns polls into a rhythm: yield now and then, look at the clock now
// and then, sleep once nothing came for the policy's time.
type pacer struct {
	l     *leader
	idle  int
	since int64 // when the idling began; 0: not yet
	last  int64 // the last yield
	polls int   // empty ones since

	yielded bool // in place of a sleep, and nothing has come since
}

type pace int

const (
	paceOn pace = iota
	paceTick
	paceSleep
)

const (
	// Empty polls go on for a while between two yields of the processor:
	// elements that outnumber the cores must let each other run. How long, is
	// learnt: a yield that took longer than foreignTime let somebody else run, so the
	// next one comes sooner; one that took no longer than its system call was for nothing.
	leastYieldTime = 250 * time.Nanosecond
	mostYieldTime  = 16 * time.Microsecond
	foreignTime    = 1500 * time.Nanosecond
	firstPolls     = 16
	// firstPollTime is what a poll is taken for at first, in nanoseconds. What is learnt no more than doubles at a time: a single
	// interruption would have every poll followed by a yield, and where an answer comes meanwhile nothing would be learnt any more.
	firstPollTime = 200
	// crowdedSpin tells policies that poll for a while from the one that never sleeps.
	crowdedSpin = time.Second
	// Who is about to sleep at once lets others have the processor first: a peer that shares it may
	// answer, which takes a fifth of falling asleep and being woken. After vainYields that brought nothing, or
	// took longer than longYield, it is tried once in rareYield sleeps.
	vainYields = 16
	rareYield  = 64
	longYield  = 200 * time.Microsecond
	// A yield that took hogTime gave the processor to somebody who computes: that one keeps it for a whole slice, some
	// milliseconds, each time. So nothing is yielded for leastHogged then, and twice as long each time that it is
	// tried and so again: whoever polls shares the processor as anybody does who computes, and whoever sleeps is woken in its turn.
	hogTime     = time.Millisecond
	leastHogged = 50 * time.Millisecond
	mostHogged  = time.Second
)

func (p *pacer) reset() { *p = pacer{l: p.l} }

// paid hears what the poll after a yield has brought.
func (p *pacer) paid(handled int) {
	if p.yielded && handled > 0 {
		p.yielded, p.l.vain = false, 0
	}
}

// beforeSleep yields once, if that has paid lately.
func (p *pacer) beforeSleep() pace {
	l := p.l
	if p.yielded || l.epfd < 0 {
		p.yielded = false
		return paceSleep
	}
	if l.vain++; l.vain > vainYields && l.vain%rareYield != 0 {
		return paceSleep
	}
	l.clock(l.el.now())
	runtime.Gosched()
	start := l.el.now()
	l.coarse.Store(start)
	if l.guests.Load() == 0 {
		if start < l.hoggedUntil {
			return paceSleep
		}
		schedYield()
	}
	now := l.el.now()
	l.coarse.Store(now)
	l.yielded(time.Duration(now - start))
	p.yielded = time.Duration(now-start) < longYield
	if !p.yielded { // somebody else works here: asleep we are woken before their time is over
		return paceSleep
	}
	return paceOn
}

func (p *pacer) after(handled int) pace {
	p.idle++
	if handled > 0 {
		p.since, p.last, p.polls = 0, 0, 0
		p.paid(handled)
		if p.idle&31 == 0 || p.l.ran >= pollBudget { // the coarse clock must go on, and few handlers be between two looks at it
			return paceTick
		}
		return paceOn
	}
	if p.l.el.cfg.Policy == Efficient {
		return p.beforeSleep()
	}
	p.polls++
	if p.polls < p.l.yieldPolls && p.l.guests.Load() == 0 {
		return paceOn
	}
	return p.yield()
}

// yield lets others run, and learns how many polls fit between two yields.
func (p *pacer) yield() pace {
	l := p.l
	now := l.el.now()
	l.clock(now)
	each := l.pollTime
	if p.last != 0 {
		each = min(max((now-p.last)/int64(p.polls), 1), 2*each)
		l.pollTime = each
	}
	runtime.Gosched()
	p.polls = 0
	if l.guests.Load() > 0 { // this process has work of its own for the processor
		p.last = l.el.now()
		l.coarse.Store(p.last)
		return p.rest(p.last, false)
	}
	start := l.el.now()
	if start < l.hoggedUntil {
		p.last = start
		l.coarse.Store(start)
		return p.rest(now, false)
	}
	schedYield()
	p.last = l.el.now()
	l.coarse.Store(p.last)
	l.yielded(time.Duration(p.last - start))
	foreign := time.Duration(p.last-start) > foreignTime
	if foreign {
		l.yieldTime = max(l.yieldTime/4, leastYieldTime)
	} else {
		l.yieldTime = min(l.yieldTime*2, mostYieldTime)
	}
	l.yieldPolls = max(int(int64(l.yieldTime)/max(each, 1)), 1)
	return p.rest(now, foreign)
}

// yielded learns from how long a yield took.
func (l *leader) yielded(took time.Duration) {
	if took < hogTime {
		l.hogged = 0
		return
	}
	l.hogged = min(max(2*l.hogged, leastHogged), mostHogged)
	l.hoggedUntil = l.coarse.Load() + int64(l.hogged)
}

// rest ends a yield: after the policy's time without anything, or where others want this processor, the leader sleeps.
func (p *pacer) rest(now int64, foreign bool) pace {
	if p.since == 0 {
		p.since = now
	}
	spin := p.l.el.cfg.Policy.spin()
	if now < p.l.hoggedUntil { // also where the policy is never to sleep: whoever answers may wait for this processor
		spin = min(spin, Balanced.spin())
	}
	if time.Duration(now-p.since) > spin || foreign && spin < crowdedSpin {
		return paceSleep // asleep we leave it to them
	}
	return paceTick
}

// schedYield lets another process on this core run. It goes through Syscall:
// RawSyscall would hold up the garbage collector's stops.
func schedYield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
