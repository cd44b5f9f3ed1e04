package excache

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uffd"
)

// one is what an eventfd is written.
var one = [8]byte{1}

// LeastProcessors is what a program that serves faults gives runtime.GOMAXPROCS at least, however few there are: the Go runtime takes the only one
// away from each system call that lasts, and looks every 20 µs whether one does.
const LeastProcessors = 2

const (
	// hands is how many loops a session has: while one waits for the store the other reads faults.
	hands = 2
	// reliefTime is how often the other loop looks whether one waits still, where faults are one thread's. To wake it for each wait takes as
	// long as a round trip where processors are busy, and so does a timer of its own for each wait on a virtual machine.
	reliefTime = 20 * time.Millisecond
	// dormantLooks in a row without a wait, it sleeps until there is one.
	dormantLooks = 20
	// A fault of another thread than the last one's adds changeWorth to a sum, up to mostChanges, and each other fault takes 1. Above
	// manyThreads, which two changes reach, there may be another fault at any time, and the other loop is woken for each wait.
	changeWorth = 8
	manyThreads = changeWorth
	mostChanges = 8 * changeWorth
)

// turns decides which of a session's two loops reads faults.
type turns struct {
	hired   atomic.Int32
	looping sync.WaitGroup
	lent    atomic.Uint64 // the number of the wait in which the other loop may take over; 0: none
	urgent  atomic.Bool   // it is to take over at once
	dormant atomic.Bool   // it sleeps
	kick    int           // eventfd that wakes it

	// Of the loop that reads faults.
	wait uint64 // the last one's number
	last int    // the thread that faulted last
	many int    // how much threads have taken turns
}

// hand is a loop's own.
type hand struct {
	s      *session
	reads  bool // faults are its to read
	at     placement
	events [faultsAtOnce]uffd.Event
	faults []unix.PollFd
	relief []unix.PollFd
	ready  func() bool
	lying  int    // looks without a wait
	seen   uint64 // the wait at the last look
}

// hire starts another loop of s, if there may be one more.
func (c *Cache) hire(s *session) {
	if n := s.hired.Load(); n < hands && s.hired.CompareAndSwap(n, n+1) {
		s.looping.Go(func() { c.loop(s, n == 0) })
	}
}

// loop answers faults, on a thread of its own. One loop of a session reads faults; when it waits for the store, the other may take its place.
func (c *Cache) loop(s *session, reads bool) {
	runtime.LockOSThread() // it is pinned to processors, and not unlocked: the thread ends with the goroutine
	stop := unix.PollFd{Fd: int32(s.stop), Events: unix.POLLIN}
	h := &hand{s: s, at: placement{cpu: -1, stat: -1}, reads: reads}
	h.faults = []unix.PollFd{{Fd: int32(s.faults.FD()), Events: unix.POLLIN}, stop}
	h.relief = []unix.PollFd{{Fd: int32(s.kick), Events: unix.POLLIN}, stop}
	h.ready = func() bool { return s.stopping.Load() || c.ready() }
	defer h.at.close()
	for {
		if !h.reads {
			if h.standBy() != nil {
				return
			}
			continue
		}
		// Read first: the thread that was woken last has most often run at once, on this processor, up to its next fault.
		n, err := s.faults.Read(h.events[:])
		if err != nil || s.stopping.Load() {
			return
		}
		if n == 0 {
			if _, err := unix.Poll(h.faults, -1); err != nil && err != unix.EINTR || h.faults[1].Revents != 0 {
				return
			}
			continue
		}
		if c.answerAll(h, n); c.wanted.Load() != 0 && c.waits.CompareAndSwap(false, true) {
			c.hire(s)
			c.await(h)
		}
		h.at.end()
	}
}

// standBy waits until the other loop should be relieved; an error says that the session ends.
func (h *hand) standBy() error {
	period := int(reliefTime / time.Millisecond)
	if h.lying >= dormantLooks {
		if h.s.dormant.Store(true); h.s.lent.Load() == 0 {
			period = -1
		}
	}
	_, err := unix.Poll(h.relief, period)
	h.s.dormant.Store(false)
	if err != nil && err != unix.EINTR || h.relief[1].Revents != 0 {
		return net.ErrClosed
	}
	if h.relief[0].Revents != 0 {
		var b [8]byte
		unix.Read(h.s.kick, b[:])
		h.lying = 0
	}
	wait := h.s.lent.Load()
	if wait != 0 && (wait == h.seen || h.s.urgent.Load()) {
		h.reads = h.s.lent.CompareAndSwap(wait, 0)
	}
	if h.lying++; wait != 0 {
		h.lying = 0
	}
	h.seen = wait
	return nil
}

// lend lets the other loop read faults, at once if there are several threads.
func (h *hand) lend() {
	if !h.reads {
		return
	}
	s := h.s
	s.wait++
	urgent := s.many > manyThreads
	s.urgent.Store(urgent)
	if s.lent.Store(s.wait); urgent || s.dormant.CompareAndSwap(true, false) {
		unix.Write(s.kick, one[:])
	}
}

// reclaim ends lend, if the other loop has not taken over.
func (h *hand) reclaim() {
	if h.reads && !h.s.lent.CompareAndSwap(h.s.wait, 0) {
		h.reads = false
	}
}

// answerAll answers the first n events.
func (c *Cache) answerAll(h *hand, n int) {
	if h.s.follow {
		h.at.begin(h.s.pid, h.events[0].Thread())
	}
	for i := range h.events[:n] {
		t := h.events[i].Thread()
		h.s.many = min(max(h.s.many+map2(t == h.s.last, -1, changeWorth), 0), mostChanges)
		h.s.last = t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range h.events[:n] {
		if e := &h.events[i]; e.Fault() {
			c.fault(h.s, e.Addr, e.Write(), e.Minor())
		}
	}
	c.reap()
}

// await waits for transfers under way, as long as a fault or a call waits for one: one loop does so for all. A loop that ends before that leaves it
// to a goroutine.
func (c *Cache) await(h *hand) {
	for {
		h.lend()
		err := c.config.Store.Wait(c.ctx, h.ready)
		h.reclaim()
		c.mu.Lock()
		c.reap()
		c.mu.Unlock()
		h.at.end()
		if c.wanted.Load() == 0 {
			c.waits.Store(false)
			if c.wanted.Load() == 0 || !c.waits.CompareAndSwap(false, true) {
				return
			}
		}
		switch {
		case c.ctx.Err() != nil:
			c.waits.Store(false)
			return
		case h.s != nil && h.s.stopping.Load():
			c.serving.Go(c.awaitAlone)
			return
		case err != nil:
			time.Sleep(retryPause) // it cannot wait at all, and says why at the operations
		}
	}
}

// awaitAlone awaits in a goroutine that answers no faults.
func (c *Cache) awaitAlone() {
	h := &hand{ready: c.ready}
	c.await(h)
}

const (
	// lookTime is how long at most a wait goes on before it is looked whether the component is silent.
	lookTime = 250 * time.Millisecond
	// retryPause is between attempts of an operation that the store could not take.
	retryPause = time.Millisecond
)

// look is called by the timer: the waiting loop then checks transfers under way, for retries and for silence. A deadline for each wait would take memory, and
// setting a timer for each some microseconds.
func (c *Cache) look() {
	c.due.Store(true)
	c.config.Store.Wake()
	c.looks.Store(false)
	c.watch()
}

// watch sets the timer while anything is under way.
func (c *Cache) watch() {
	if c.under() != 0 && !c.looks.Load() && !c.looks.Swap(true) {
		c.timer.Reset(lookTime)
	}
}
