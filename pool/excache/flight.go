package excache

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// flights is what is on its way between a cache and its store. Sets are of transfers, by number. All but reads of the sets are done with
// Cache.mu held.
type flights struct {
	buffers   []byte
	all       [Transfers]flight
	flying    atomic.Uint64 // under way
	retries   atomic.Uint64 // failed, and to be started again
	wanted    atomic.Uint64 // somebody waits for one of them to end
	waits     atomic.Bool   // a goroutine does: it reaps
	forgotten atomic.Uint64 // discards that have ended, ever
	answered  stalled       // what by points to
	stalls    []stalled     // faults that wait until any has ended
	again     []stalled     // the same, while they are answered
	timer     *time.Timer   // calls look
	looks     atomic.Bool   // it is to
	due       atomic.Bool   // it has
	attended  time.Duration // time that counts as a component's silence, ever
	seen      time.Time     // until when
}

// flight is a transfer's operation.
type flight struct {
	s     *session // whose room it is
	put   bool
	off   uint64
	size  int
	begun time.Duration // of attended
}

// stalled is a fault that could not be answered yet.
type stalled struct {
	s             *session
	view          *view // of a share, nil: the window
	addr          uint64
	page          uint32
	write, inFile bool
}

// maxStalled bounds the faults that wait for room: more threads than that try again by themselves, which takes processor time.
const maxStalled = 256

func (f *flights) init() (err error) {
	f.stalls, f.again = make([]stalled, 0, maxStalled), make([]stalled, 0, maxStalled)
	f.buffers, err = anonymous(Transfers*runBytes, 0)
	return err
}

func (f *flights) buffer(i int) []byte { return f.buffers[i*runBytes:][:runBytes] }

// ready reports whether there is something to reap that somebody waits for, or nobody waits any more.
func (c *Cache) ready() bool {
	w := c.wanted.Load()
	return w == 0 || c.due.Load() || c.config.Store.Done(w&c.flying.Load()) != 0
}

// want says that somebody waits for one of a set.
func (c *Cache) want(set uint64) { c.wanted.Store(c.wanted.Load() | set) }

// answer answers a fault, or keeps it until there is room.
func (c *Cache) answer(f stalled) {
	if f.view != nil {
		c.answered = f
		c.by = &c.answered // which allocates nothing
	}
	effects := c.core.Fault(f.page, f.write, f.inFile)
	c.apply(effects)
	c.by = nil
	if n := len(effects); n == 0 || effects[n-1].kind != stall {
		return
	}
	if len(c.stalls) == maxStalled {
		f.s.faults.Wake(f.addr, PageBytes)
		return
	}
	c.stalls = append(c.stalls, f)
	c.want(c.under())
}

// start starts a transfer's operation.
func (c *Cache) start(i int, f flight) {
	if c.under() == 0 {
		c.seen = time.Now()
	}
	f.begun = c.attended
	c.all[i] = f
	if c.core.transfers[i].wanted {
		c.want(1 << i)
	}
	c.attempt(i)
}

// vain reports whether a flight's process has ended: its room may be given back, and be another's.
func (c *Cache) vain(i int) bool { return c.rooms[c.all[i].off/RoomBytes].s != c.all[i].s }

func (c *Cache) attempt(i int) {
	f, b := &c.all[i], c.flights.buffer(i)
	if f.put {
		c.config.Store.StartPut(i, b[:f.size], f.off)
	} else {
		c.config.Store.StartGet(i, b[:f.size], f.off)
	}
	c.flying.Store(c.flying.Load() | 1<<i)
	c.watch()
}

// place copies pages in from a transfer's buffer.
func (c *Cache) place(s *session, addr uint64, e effect) error {
	b := c.flights.buffer(int(e.transfer))[uint64(e.first)*PageBytes-c.all[e.transfer].off:][:e.n*PageBytes]
	s.placed = 0
	c.moving = moving{s: s, addr: addr, protect: e.kind == placeProtected}
	c.copyIn(b)
	return c.moving.err
}

// reap ends what has ended, answers who waited for it, and then makes room for the next misses.
func (c *Cache) reap() {
	c.reapFlights()
	c.apply(c.core.MakeRoom())
}

func (c *Cache) reapFlights() {
	due := c.due.Swap(false)
	flying, before := c.flying.Load(), c.under()
	if before == 0 {
		return
	}
	c.attend()
	done := c.config.Store.Done(flying)
	each(done, func(i int) { c.landed(i, c.config.Store.End(i)) })
	if due {
		each(c.flying.Load(), func(i int) {
			if c.attended-c.all[i].begun > Silence {
				answered := c.config.Store.Done(1<<i) != 0
				err := c.config.Store.End(i)
				if err != nil && !answered {
					c.config.Store.Silent()
				}
				c.landed(i, err)
			}
		})
	}
	if r := c.retries.Load(); r != 0 && (done != 0 || due) {
		c.retries.Store(0)
		each(r, func(i int) {
			if c.vain(i) {
				c.landed(i, nil)
			} else {
				c.attempt(i)
			}
		})
	}
	if c.under() != before {
		c.resume()
	}
	if c.core.holds() { // what ends next makes room
		c.want(c.under())
	}
}

// attend adds the time since it was last called to what counts as silence, at most twice lookTime. More has passed where this process was stopped or got
// no processor, or where nobody waited: the answer may lie here unread, and tells nothing of the component.
func (c *Cache) attend() {
	now := time.Now()
	c.attended += min(now.Sub(c.seen), 2*lookTime)
	c.seen = now
}

// under is what has not ended yet.
func (c *Cache) under() uint64 { return c.flying.Load() | c.retries.Load() }

// landed takes the result of an operation. An error that comes of the room having been given back is nobody's.
func (c *Cache) landed(i int, err error) {
	c.flying.Store(c.flying.Load() &^ (1 << i))
	if c.vain(i) {
		err = nil
	}
	if err != nil && !errors.Is(err, ErrLost) {
		if c.attended-c.all[i].begun <= Silence {
			c.retries.Store(c.retries.Load() | 1<<i)
			c.timer.Reset(retryPause)
			return
		}
		err = fmt.Errorf("%w: no success in %v: %w", ErrLost, Silence, err)
	}
	c.wanted.Store(c.wanted.Load() &^ (1 << i))
	if err == nil {
		c.apply(c.core.Ended(uint8(i)))
		return
	}
	if sh := c.rooms[c.all[i].off/RoomBytes].share; sh != nil {
		c.loseShare(sh, err)
	} else {
		c.lose(&lostError{err})
	}
	c.apply(c.core.Failed(uint8(i)))
}

// resume answers those who waited for room.
func (c *Cache) resume() {
	c.apply(c.core.Resume())
	c.stalls, c.again = c.again[:0], c.stalls
	for _, f := range c.again {
		if r := &c.rooms[f.page/roomPages]; r.s == f.s || r.share != nil && !f.s.ended {
			c.answer(f)
		}
	}
}

// more lets others have the cache until something has ended that was on its way; c.mu is held.
func (c *Cache) more() {
	flying, forgotten := c.flying.Load(), c.forgotten.Load()
	c.mu.Unlock()
	err := c.config.Store.Wait(c.ctx, func() bool {
		return c.config.Store.Done(flying&c.flying.Load()) != 0 || flying != c.flying.Load() || forgotten != c.forgotten.Load() || c.due.Load()
	})
	if err != nil && c.ctx.Err() == nil {
		time.Sleep(retryPause)
	}
	c.mu.Lock()
	c.reap()
}

// land gives up what is on its way: nobody is served any more.
func (c *Cache) land() {
	c.mu.Lock()
	defer c.mu.Unlock()
	each(c.flying.Swap(0), func(i int) { c.config.Store.End(i) })
}
