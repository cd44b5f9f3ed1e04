package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/apart"
)

// leader decides which one goroutine drives progress. Whoever waits for
// something leads (a waiter that polls for its own answer needs no wake-up);
// when none waits, one background goroutine does. A leader that sleeps can
// be relieved: sleeping touches nothing.
type leader struct {
	el   *Element
	tick atomic.Int64 // the longest that a leader sleeps if it is not told: tickPeriod, or what Layer.TickEvery said
	// state is term<<2 | role. The term is raised at each change of leader or of its role: a poll begun in
	// an older one is stale. One word, because a waiter that leads for its own answer takes and leaves it on the way.
	state atomic.Uint64

	want   atomic.Int32 // waiters that would lead instead of the background, or sleep as leaders
	parked atomic.Int32 // waiters that sleep because another leads
	rooms  atomic.Int32 // of them, those in waiting
	// foreground says that a waiter leads, or was the last who did, and not the background goroutine. The leader writes it.
	foreground atomic.Bool
	woken      atomic.Bool  // goroutines were made ready and have not had the processor yet
	computing  atomic.Int32 // goroutines that compute: Layer.Compute, and handlers that handed off
	closed     atomic.Bool
	over       chan struct{}            // closed once no goroutine leads any more
	pollers    atomic.Pointer[[]Poller] // transports, and added pollers
	corkers    []Corker                 // of the transports

	// The leader's.
	rhythm
	watched    <-chan struct{} // of the context whose end rings
	unwatch    func() bool
	lull       bool   // the last sleep took lullTime or more
	first      int    // the poller that was polled before the others: they take turns, for the last is the next to be served
	ran        int    // handlers since the clock was read last in this term
	clocked    bool   // it was
	handling   string // what the last of them handles; "": ran says which message
	handled    FrameID
	heldSaid   int64  // until when no handler is named in the log again
	watchUntil int64  // until when each handler is timed; 0: they are not
	waits      uint32 // waits led

	epfd      int          // -1 in manual mode
	sleeping  atomic.Int32 // goroutines in epoll_wait: the leader, and those relieved that have not woken yet
	bellRung  atomic.Bool
	timers    spares[time.Timer] // of waiters, stopped
	waiters   spares[Waiter]     // of WaitFor
	bellMu    sync.Mutex         // guards bell against being closed under a ring
	bell      int
	bellCount [8]byte // what is written to the bell and read from it, under bellMu; on a stack it would escape in a build with the race detector
	wake      chan struct{}
	patient   atomic.Bool // the background goroutine looks seldom: whoever leaves has it look

	backgrounds sync.WaitGroup // goroutines: one is on duty, which leads or waits to; on others handlers run that handed off

	mu       sync.Mutex
	waiting  []*Waiter // that sleep until a condition holds: woken whenever something has changed
	tickers  []*ticker
	duties   []func() // to be done once
	nextTick atomic.Int64
	early    atomic.Bool  // duties run before they said
	coarse   atomic.Int64 // the clock, when the leader last looked
}

const (
	roleFree    uint64 = iota
	rolePolling        // a goroutine is inside Poll or between polls
	roleAsleep         // a goroutine is in epoll_wait; another may take over

	roleMask = 3
	oneTerm  = roleMask + 1
)

// nextTerm is the state that follows s, in another role.
func nextTerm(s, role uint64) uint64 { return s&^roleMask + oneTerm | role }

func (l *leader) role() uint64 { return l.state.Load() & roleMask }

const (
	// pollBudget bounds the frames of one Poll of one transport, so that timers
	// and other transports get their turn.
	pollBudget = 64
	// backgroundPeriod is how soon the background goroutine looks after an element whose foreground waiter has left: to be told by each that
	// leaves would cost a short call a wake-up. Of one that has slept from one look to the next it is told (patient), and looks half as often each time.
	backgroundPeriod = time.Millisecond
	// tickPeriod is the coarsest timer: keep-alives and expiry.
	tickPeriod = 250 * time.Millisecond
	// tickWaits is how many waits, each too short to look at the clock or to let other goroutines run, may go by
	// before one does: a caller that leads again and again must not hold up timers, nor them.
	tickWaits = 64
	// relieveTries is how often a waiter that is alone lets the background run, so that it leaves the lead, before it sleeps.
	relieveTries = 4
	// closePoll is how often close looks whether everybody has stopped.
	closePoll = 50 * time.Microsecond
)

// ticker is a periodic duty of the leader.
type ticker struct {
	fn   func(now int64) (next int64)
	next int64
}

func (l *leader) init(e *Element) error {
	l.el, l.epfd, l.bell = e, -1, -1
	l.tick.Store(int64(tickPeriod))
	l.rhythm.init()
	e.workers.l = l
	l.wake, l.over = make(chan struct{}, 1), make(chan struct{})
	l.tickers = []*ticker{{fn: e.tick}}
	var pollers []Poller
	for _, t := range e.cfg.Transports {
		pollers = append(pollers, t)
		if c := t.Features().Cork; c != nil {
			l.corkers = append(l.corkers, c)
		}
	}
	l.pollers.Store(&pollers)
	if e.cfg.Manual {
		return nil
	}
	var err error
	if l.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("fabric: epoll: %w", err)
	}
	if l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(l.epfd)
		return fmt.Errorf("fabric: eventfd: %w", err)
	}
	err = l.watchFD(l.bell)
	for _, p := range pollers {
		if err == nil {
			err = l.watchFD(p.WaitFD())
		}
	}
	if err != nil {
		l.closeFDs()
		return err
	}
	l.standIn()
	return nil
}

func (l *leader) closeFDs() {
	l.bellMu.Lock()
	defer l.bellMu.Unlock()
	if l.bell >= 0 {
		unix.Close(l.epfd)
		unix.Close(l.bell)
		l.bell = -1
	}
}

// take tries to become leader, in place of one that sleeps only if relieve says so.
func (l *leader) take(relieve, foreground bool) (term uint64, ok bool) {
	s := l.state.Load()
	role := s & roleMask
	if role == rolePolling || role == roleAsleep && !relieve {
		return 0, false
	}
	if term = nextTerm(s, rolePolling); !l.state.CompareAndSwap(s, term) {
		return 0, false
	}
	if l.closed.Load() { // close waits until no goroutine polls: it sees us, or we see closed
		l.state.Store(nextTerm(term, roleFree))
		return 0, false
	}
	l.ran, l.clocked = 0, false
	if l.foreground.Load() != foreground {
		l.foreground.Store(foreground)
	}
	if role == roleAsleep {
		now := l.el.now()
		l.lull = now-l.coarse.Load() >= int64(lullTime) // the sleeper looked at the clock just before
		l.coarse.Store(now)
		l.disarm()
		l.ring() // the sleeper finds itself relieved
	}
	return term, true
}

// leave ends a term, if it has not ended already (HandOff).
func (l *leader) leave(term uint64) {
	if l.state.CompareAndSwap(term, nextTerm(term, roleFree)) {
		if l.parked.Load() > 0 || l.patient.Load() || l.el.hasBusy() {
			l.nudge() // a goroutine that parks after this look finds the lead free
		}
	}
}

// stepBack is for a goroutine that may have waited, and led, and will not come back to that. Else the background goroutine
// would take some time to look after an element that no goroutine drives.
func (l *leader) stepBack() {
	if l.role() == roleFree {
		l.nudge()
	}
}

// nudge makes the background goroutine look at once.
func (l *leader) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// ring wakes a leader that sleeps in epoll_wait.
func (l *leader) ring() {
	if l.epfd < 0 || !l.bellRung.CompareAndSwap(false, true) {
		return
	}
	l.bellMu.Lock()
	if l.bell >= 0 {
		binary.NativeEndian.PutUint64(l.bellCount[:], 1)
		unix.Write(l.bell, l.bellCount[:])
	}
	l.bellMu.Unlock()
}

// hush takes the ring off the bell. The flag goes last: a goroutine that finds it set does
// not ring, and we look at everything once more after it.
func (l *leader) hush() {
	l.bellMu.Lock()
	unix.Read(l.bell, l.bellCount[:])
	l.bellMu.Unlock()
	l.bellRung.Store(false)
}

// kick makes sure that a goroutine polls soon, whichever leads.
func (l *leader) kick() {
	if l.role() == roleAsleep {
		l.ring()
	}
	l.nudge()
}

func (l *leader) disarm() {
	for _, p := range *l.pollers.Load() {
		p.Disarm()
	}
}

// poll is one round of the leader's work. It returns at once, having touched
// nothing more, when its term ended inside.
func (l *leader) poll(term uint64) (handled int) {
	if l.woken.Load() {
		l.giveWay()
	}
	turn := Turn{&l.state, term}
	list := *l.pollers.Load()
	if l.first++; l.first >= len(list) {
		l.first = 0
	}
	for i := range list {
		at := l.first + i
		if at >= len(list) {
			at -= len(list)
		}
		handled += list[at].Poll(pollBudget, turn)
		if turn.Over() {
			return handled
		}
	}
	handled += l.el.pumpBusy()
	if handled > 0 && l.rooms.Load() > 0 {
		l.wakeRooms() // a handler may have made any condition true
	}
	return handled
}

// giveWay lets the goroutines run that were woken or started: they may send, and all of it leaves together.
func (l *leader) giveWay() {
	l.woken.Store(false)
	l.clock(l.el.now()) // what others do is no handler's time
	for _, c := range l.corkers {
		c.Cork()
	}
	for range giveWays { // the runtime comes back to us now and then before all had their turn
		before := l.el.workers.busy.Load()
		runtime.Gosched()
		if n := l.el.workers.busy.Load(); n == 0 || n >= before {
			break
		}
	}
	l.uncork()
	l.coarse.Store(l.el.now())
}

// giveWays is how often the leader steps aside in a row for handlers of one round.
const giveWays = 4

func (l *leader) uncork() {
	for _, c := range l.corkers {
		c.Uncork()
	}
}

// heldTime is how long a handler may hold the leader before the log names it: peers take an element for lost that is silent for long.
const heldTime = 10 * time.Millisecond

// watchTime is how long each handler is timed, once some have taken long and it was not clear which.
const watchTime = int64(time.Second)

// clock keeps the time for CoarseNow, and sees how long the handlers took that ran since it did so last. Each by itself is timed
// only for a while after they took long together: reading the clock takes a tenth of what a message does.
func (l *leader) clock(now int64) {
	if held := time.Duration(now - l.coarse.Load()); l.clocked && l.ran > 0 && held > heldTime && l.watchUntil == 0 {
		if held >= min(time.Duration(l.ran), 10)*heldTime { // one of so few took that long, or they are slow indeed
			l.sayHeld(now, held)
		} else {
			l.watchUntil = now + watchTime
		}
	}
	if l.watchUntil != 0 && now >= l.watchUntil {
		l.watchUntil = 0
	}
	l.coarse.Store(now)
	l.ran, l.clocked = 0, true
}

// sayHeld logs that the last handler, or one before it, held up the fabric: a warning, unless it is one of this program's own layers'.
func (l *leader) sayHeld(now int64, held time.Duration) {
	if now < l.heldSaid {
		return
	}
	l.heldSaid = now + int64(time.Second)
	level, name := slog.LevelWarn, l.handling
	if h := l.el.handlers[l.handled].Load(); name == "" && h != nil && h.what != "" {
		level, name = slog.LevelInfo, h.what
	} else if name == "" {
		name = fmt.Sprintf("message %d", l.handled)
	}
	l.el.log.Log(context.Background(), level, "handlers held up the fabric: nothing else moved meanwhile; let the handler run on a goroutine (rpc: without Options.Inline), unless the machine is overloaded",
		"held", held.Round(time.Millisecond), "handlers", l.ran, "last", name)
}

// timed runs a handler while each is timed.
func (l *leader) timed(fn Handler, m Message) {
	start := l.el.now()
	fn(m)
	if now := l.el.now(); time.Duration(now-start) > heldTime && l.state.Load() == m.term {
		l.sayHeld(now, time.Duration(now-start))
	}
}

// runTickers runs the duties that are due; called by the leader every few polls.
func (l *leader) runTickers(term uint64) {
	now := l.el.now()
	l.clock(now)
	if now < l.nextTick.Load() {
		return
	}
	// TickBy raises early and then lowers nextTick, and what is to be asked or done is listed before; in the opposite order nothing
	// it says is lost.
	l.nextTick.Store(now + l.tick.Load())
	early := l.early.Swap(false)
	l.mu.Lock()
	list, duties := l.tickers, l.duties
	l.duties = nil
	l.mu.Unlock()
	for _, do := range duties {
		do()
	}
	if l.rooms.Load() > 0 {
		l.wakeRooms() // a condition may be one of time
	}
	next := now + l.tick.Load()
	for _, t := range list {
		if early || t.next <= now {
			t.next = t.fn(now)
		}
		next = min(next, t.next)
		if l.state.Load() != term {
			return
		}
	}
	for {
		cur := l.nextTick.Load()
		if cur <= next || l.nextTick.CompareAndSwap(cur, next) {
			return
		}
	}
}

// Wake makes waiters look at their conditions: for layers that complete
// something a goroutine may be in WaitFor for.
func (e *Element) Wake() { e.leader.changed() }

// sleep lets the leader wait in epoll_wait until a transport has something, or
// for at most d. It reports whether the caller still leads, and in which term,
// and whether cond (which may be nil) held when it was about to sleep.
func (l *leader) sleep(ctx context.Context, term uint64, d time.Duration, cond func() bool) (now uint64, leads, held bool) {
	ready := false
	armed := l.pollers.Load()
	for _, p := range *armed {
		ready = p.Arm() || ready
	}
	if ready || l.closed.Load() || l.woken.Load() || l.el.hasBusy() {
		l.disarm()
		return term, true, false
	}
	still := nextTerm(term, rolePolling)
	if !l.state.CompareAndSwap(term, still) { // ends the term: what is stacked on it is stale
		return term, false, false
	}
	foreground, lull, slept := l.foreground.Load(), l.lull, time.Duration(0)
	l.sleeping.Add(1)
	asleep := nextTerm(still, roleAsleep)
	l.state.Store(asleep)
	// A goroutine that queued something, asked for a tick or made cond true before it could
	// see that we sleep has not rung: look once more.
	held = cond != nil && cond()
	if until := time.Duration(l.nextTick.Load() - l.el.now()); until < d {
		d = until
	}
	if d > 0 && !held && ctx.Err() == nil && !l.closed.Load() && !l.el.hasBusy() && l.pollers.Load() == armed {
		slept = l.epollWait(d, lull)
	}
	term = nextTerm(asleep, rolePolling)
	leads = l.state.CompareAndSwap(asleep, term)
	if l.sleeping.Add(-1) > 0 {
		l.ring() // the ring that we may have taken was meant for another sleeper too
	}
	if !leads {
		return 0, false, held
	}
	l.foreground.Store(foreground)
	l.lull = slept >= lullTime
	l.coarse.Store(l.el.now())
	l.disarm()
	return term, true, held
}

// epollWait sleeps until a descriptor is readable or d is over; an error
// (EINTR) is as good as an event, because the leader polls next. Where functions run on other goroutines, they get the processor at once; in a lull the
// runtime has it at once. It returns how long it slept.
func (l *leader) epollWait(d time.Duration, lull bool) (slept time.Duration) {
	var events [8]unix.EpollEvent
	n, start := 0, l.el.now()
	if lull || l.computing.Load() > 0 {
		n, slept = apart.EpollWait(l.epfd, events[:], d)
	} else if n = l.nap(&events, min(d, napTime)); n == 0 && d > napTime {
		n, _ = unix.EpollWait(l.epfd, events[:], int((d-napTime+time.Millisecond-1)/time.Millisecond))
	}
	if slept == 0 {
		slept = time.Duration(l.el.now() - start)
	}
	for _, e := range events[:max(n, 0)] {
		if int(e.Fd) == l.bell {
			l.hush()
		}
	}
	return slept
}

// napTime is how long the runtime is not told that the leader sleeps. Where it has one processor it would take that away after 20 µs, put its
// monitor to sleep as nothing is left to watch, and wake it when the leader is back. To stop the world the runtime interrupts a nap with a signal.
// RATIONALE has what naps are worth.
const napTime = 50 * time.Microsecond

// lullTime is how long the runtime's monitor leaves a processor with a goroutine in a system call. Until then it looks after it, some 55 times, so a leader that
// has slept as long, and expects no more of the next sleep, gives the processor up: else a process that does nothing but wake for its tick takes five times as much.
const lullTime = 10 * time.Millisecond

// nap sleeps for at most d and returns the number of events; negative if it
// was interrupted or this kernel (before 5.11) cannot.
func (l *leader) nap(events *[8]unix.EpollEvent, d time.Duration) int {
	until := unix.NsecToTimespec(int64(d))
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epfd), uintptr(unsafe.Pointer(events)), uintptr(len(events)), uintptr(unsafe.Pointer(&until)), 0, 0)
	switch errno {
	case 0:
		return int(n)
	case unix.ENOSYS:
		return 0
	}
	return -1
}

// spares keeps a few of what sleepers need, so that a sleep allocates nothing. A
// sync.Pool would do, but for the collector, which empties it.
type spares[T any] struct {
	mu   sync.Mutex
	free []*T
}

// maxSpares bounds them; more goroutines than that seldom sleep at once.
const maxSpares = 8

// get is nil if there is none.
func (s *spares[T]) get() (v *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		v, s.free = s.free[n-1], s.free[:n-1]
	}
	return v
}

func (s *spares[T]) put(v *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < maxSpares {
		s.free = append(s.free, v)
	}
}

// standIn puts a background goroutine on duty: at the start, and in place of one whose handler handed off.
func (l *leader) standIn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed.Load() {
		l.backgrounds.Add(1)
		l.el.workers.run(l.background)
	}
}

// background leads while no other goroutine does, until a handler hands off.
func (l *leader) background() {
	defer l.backgrounds.Done()
	busy := &l.el.workers.busy
	busy.Add(-1) // it has nothing to do but this
	handed := false
	defer func() {
		if handed { // handOff counted the handler, which went on here, as busy too
			l.computing.Add(-1)
		} else {
			busy.Add(1)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	period, seen := backgroundPeriod, uint64(0)
	for !l.closed.Load() {
		period, seen = l.nextLook(period, seen)
		if term, ok := l.take(false, false); ok && l.lead(term) {
			handed = true
			return
		}
		timer.Reset(period)
		select {
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// nextLook is how long after this look the background goroutine takes the next if it is not told: period was the last wait, seen the state at the last look. It says whether it
// wants to be told before it looks whether the lead is free, so one of the two is noticed.
func (l *leader) nextLook(period time.Duration, seen uint64) (next time.Duration, now uint64) {
	next, now = backgroundPeriod, l.state.Load()
	if now&roleMask == roleAsleep && now == seen {
		next = min(2*period, tickPeriod)
	}
	if patient := next > backgroundPeriod; l.patient.Load() != patient {
		l.patient.Store(patient)
	}
	return next, now
}

// lead polls and sleeps until a foreground waiter wants to lead. It reports whether a handler handed off.
func (l *leader) lead(term uint64) (handed bool) {
	p := pacer{l: l}
	for !l.closed.Load() {
		n := l.poll(term)
		if l.state.Load() != term {
			return true
		}
		if l.want.Load() > 0 && l.parked.Load() == 0 {
			break // to a waiter that is alone: one that leads need not be woken
		}
		pace := p.after(n)
		if pace == paceOn {
			continue
		}
		l.runTickers(term)
		if l.state.Load() != term {
			return true
		}
		if pace == paceSleep {
			var leads bool
			if term, leads, _ = l.sleep(context.Background(), term, time.Duration(l.tick.Load()), nil); !leads {
				return false
			}
			p.reset()
		}
	}
	l.leave(term)
	return false
}

// Progress makes one round of progress, unless another goroutine is leading,
// and returns how many frames and events were handled. Only elements with Manual need it.
func (e *Element) Progress() int {
	term, ok := e.leader.take(false, false)
	if !ok {
		return 0
	}
	n := e.leader.poll(term)
	e.leader.runTickers(term)
	e.leader.leave(term)
	return n
}

// close ends all leading: once it has returned no goroutine polls or sleeps.
func (l *leader) close() {
	l.closed.Store(true)
	l.mu.Lock() // no standIn after this
	l.mu.Unlock()
	l.nudge()
	// The leader sees closed at its next look, a sleeper once it is woken.
	for l.sleeping.Load() > 0 || l.role() == rolePolling {
		l.ring()
		time.Sleep(closePoll)
	}
	l.backgrounds.Wait()
	if l.unwatch != nil { // nobody leads any more
		l.unwatch()
	}
	close(l.over)
}

// handOff ends a leader's term from inside one of its callbacks.
func (l *leader) handOff(term uint64) {
	still := nextTerm(term, rolePolling)
	if !l.state.CompareAndSwap(term, still) {
		return
	}
	l.uncork()
	waiter := l.foreground.Load() // and the background goroutine on duty waits to lead
	l.state.Store(nextTerm(still, roleFree))
	switch {
	case l.epfd < 0:
	case waiter:
		l.nudge()
	default:
		l.el.workers.busy.Add(1)
		l.computing.Add(1)
		l.standIn()
	}
	l.changed() // for what was handled before, in the same round: its end is nobody's now
}
