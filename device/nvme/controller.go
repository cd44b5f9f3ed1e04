package nvme

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

// Limits of one lease.
const (
	MaxQueues  = 16
	MinEntries = 2
	MaxEntries = 1024
	// MaxInflight bounds the commands under way of all leases of a principal, so that none has all of an Engine's. One lease may take half of what is free.
	MaxInflight = 512
	// MaxBufferBytes bounds what a queue pair has at the lender.
	MaxBufferBytes = 8 << 20
)

// Controller carries out the commands of one lease. Its methods may be called from any goroutine.
type Controller struct {
	e        *Engine
	lease    uint64
	who      string
	share    *share
	backing  Backing
	base     int64 // of the lease's blocks, in the backing
	span     device.Range
	blocks   uint64
	readOnly bool

	registers *fabric.Segment
	faulted   func(error)

	// Under e.mu.
	windows []*window // by base; none overlaps another
	last    *window   // that was found last; nil: none
	queues  map[uint16]*queue
	going   []*window // that were removed, and have users still
	ending  []*queue  // that were removed, and have commands under way
	shadow  *shadow   // nil: doorbells are registers
	crew    *crew
	load
	commands uint64
	stopped  bool
	quiet    chan struct{}
}

// Spec is what a Controller serves.
type Spec struct {
	Lease    uint64
	Who      string // whose it is: a principal's leases share some limits
	Backing  Backing
	Range    device.Range
	ReadOnly bool
	// Faulted is called once, on a goroutine of its own, where the borrower breaks the queues' rules; the lease is to be ended then.
	Faulted func(error)
}

// NewController makes a Controller. Stop must follow, and Free.
func (e *Engine) NewController(s Spec) (*Controller, error) {
	regs, err := e.el.NewSegment(fabric.RegistersBytes, fabric.Registers)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own := e.shares[s.Who]
	if own == nil {
		own = &share{}
		e.shares[s.Who] = own
	}
	own.leases++
	crew := e.join(s.Backing)
	return &Controller{e: e, lease: s.Lease, who: s.Who, share: own, crew: crew, backing: s.Backing, base: int64(s.Range.Offset), span: s.Range, blocks: s.Range.Size / BlockBytes, readOnly: s.ReadOnly,
		registers: regs, faulted: s.Faulted, queues: map[uint16]*queue{}, quiet: make(chan struct{})}, nil
}

// RegistersKey is a key to the lease's doorbells.
func (c *Controller) RegistersKey() (fabric.Key, error) { return c.registers.Key(fabric.RightsAll) }

// AddWindow opens a borrower's memory to the lease's commands.
func (c *Controller) AddWindow(w Window) error {
	if w.ID == 0 || w.ID > device.MaxWindows {
		return fmt.Errorf("%w: window %d: 1 to %d", device.ErrSpec, w.ID, device.MaxWindows)
	}
	size := uint64(0)
	if w.Segment != nil {
		size = w.Segment.Size()
	} else {
		size = w.Remote.Size()
	}
	switch {
	case w.Size == 0 || w.Size > device.MaxWindowBytes || w.Size-1 > ^uint64(0)-w.Base:
		return fmt.Errorf("%w: a window of %d bytes at %#x: 1 to %d bytes of 64 bits", device.ErrSpec, w.Size, w.Base, uint64(device.MaxWindowBytes))
	case w.Offset > size || w.Size > size-w.Offset:
		return fmt.Errorf("%w: a window of %d bytes from %d of memory of %d", device.ErrSpec, w.Size, w.Offset, size)
	case w.Offset%8 != 0 || w.Base%8 != 0:
		return fmt.Errorf("%w: a window at %#x from %d of its memory: both are multiples of 8", device.ErrSpec, w.Base, w.Offset)
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.addWindow(&window{Window: w})
}

// addWindow enters a window into the table; e.mu is held.
func (c *Controller) addWindow(w *window) error {
	if c.stopped {
		return fmt.Errorf("%w: lease %d has ended", device.ErrNoLease, c.lease)
	}
	c.forget()
	if slices.ContainsFunc(c.going, func(other *window) bool { return other.ID == w.ID }) {
		return fmt.Errorf("%w: window %d is being taken back, and a command that uses it is under way", device.ErrSpec, w.ID)
	}
	at := len(c.windows)
	for i, other := range c.windows {
		if other.ID == w.ID {
			return fmt.Errorf("%w: there is a window %d", device.ErrSpec, w.ID)
		}
		if w.Base <= other.Base+(other.Size-1) && other.Base <= w.Base+(w.Size-1) {
			return fmt.Errorf("%w: %d bytes at %#x overlap window %d, %d at %#x", device.ErrSpec, w.Size, w.Base, other.ID, other.Size, other.Base)
		}
		if at == len(c.windows) && other.Base > w.Base {
			at = i
		}
	}
	c.windows = slices.Insert(c.windows, at, w)
	return nil
}

// forget lets go of windows and queues that were removed and that nothing uses any more; e.mu is held.
func (c *Controller) forget() {
	c.going = slices.DeleteFunc(c.going, func(w *window) bool { return w.users == 0 })
	c.ending = slices.DeleteFunc(c.ending, func(q *queue) bool { return q.inflight == 0 })
}

// RemoveWindow takes memory back. The queues in it go too. The channel is closed once nothing uses the memory any more; until then it can be asked for again.
func (c *Controller) RemoveWindow(id uint32) (<-chan struct{}, error) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.forget()
	if i := slices.IndexFunc(c.going, func(w *window) bool { return w.ID == id }); i >= 0 {
		return c.going[i].gone, nil
	}
	at := slices.IndexFunc(c.windows, func(w *window) bool { return w.ID == id && !w.ours })
	if at < 0 {
		return nil, fmt.Errorf("%w: there is no window %d", device.ErrSpec, id)
	}
	w := c.windows[at]
	c.windows, c.last = slices.Delete(c.windows, at, at+1), nil
	if s := c.shadow; s != nil && (s.doorbells == w || s.events == w) {
		c.shadow = nil
	}
	w.gone = make(chan struct{})
	w.users++
	for _, q := range c.queues {
		if q.sq == w || q.cq == w || q.bell == w {
			c.drop(q)
		}
	}
	c.going = append(c.going, w)
	w.leave()
	return w.gone, nil
}

// RemoveQueue deletes a queue pair. The channel is closed once none of its commands is under way: all that were fetched have their completions.
func (c *Controller) RemoveQueue(id uint16) (<-chan struct{}, error) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.forget()
	if i := slices.IndexFunc(c.ending, func(q *queue) bool { return q.id == id }); i >= 0 {
		return c.ending[i].gone, nil
	}
	q := c.queues[id]
	if q == nil {
		return nil, fmt.Errorf("%w: there is no queue %d", device.ErrSpec, id)
	}
	c.drop(q)
	return q.gone, nil
}

// drop has no more of a queue's commands fetched, and forgets it; e.mu is held.
func (c *Controller) drop(q *queue) {
	c.e.queues = slices.DeleteFunc(c.e.queues, func(other *queue) bool { return other == q })
	delete(c.queues, q.id)
	c.crew.unclaim(c.e, q)
	c.e.count()
	c.ending = append(c.ending, q)
	q.gone = make(chan struct{})
	if q.inflight == 0 {
		q.leave()
	}
}

// leave is called when nothing of a queue that was removed is under way; e.mu is held.
func (q *queue) leave() {
	close(q.gone)
	for _, w := range []*window{q.sq, q.cq, q.bell} {
		if w == nil {
			continue
		}
		w.leave()
		if w.ours {
			i := slices.Index(q.c.windows, w)
			q.c.windows, q.c.last = slices.Delete(q.c.windows, i, i+1), nil
			w.Segment.Close()
		}
	}
}

// QueueSpec describes a queue pair; see device.QueueRequest.
type QueueSpec struct {
	ID                uint16
	Entries           uint32
	CompletionEntries uint32 // 0: as many
	Commands          uint64
	BufferBytes       uint64
	Completions       uint64
	Bell              uint64
}

// Validate reports what is wrong with a queue pair.
func (s *QueueSpec) Validate() error {
	if s.CompletionEntries == 0 {
		s.CompletionEntries = s.Entries
	}
	switch {
	case s.ID == 0 || s.ID > MaxQueues:
		return fmt.Errorf("%w: queue %d: 1 to %d", device.ErrSpec, s.ID, MaxQueues)
	case s.Entries < MinEntries || s.Entries > MaxEntries || s.CompletionEntries < MinEntries || s.CompletionEntries > MaxEntries:
		return fmt.Errorf("%w: %d and %d entries: %d to %d", device.ErrSpec, s.Entries, s.CompletionEntries, MinEntries, MaxEntries)
	case s.Commands%CommandBytes != 0 || s.Completions%CompletionBytes != 0 || s.Bell%8 != 0:
		return fmt.Errorf("%w: queues at %#x and %#x, a bell at %#x: they begin at a multiple of an entry's size, and of 8", device.ErrSpec, s.Commands, s.Completions, s.Bell)
	case s.BufferBytes > MaxBufferBytes:
		return fmt.Errorf("%w: %d bytes of buffer: at most %d", device.ErrLimit, s.BufferBytes, MaxBufferBytes)
	}
	return nil
}

// LenderBytes is what a queue pair whose commands lie at the lender takes there.
func (s *QueueSpec) LenderBytes() uint64 {
	bytes := uint64(s.Entries)*CommandBytes + s.BufferBytes
	return (bytes + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1)
}

// AddQueue makes a queue pair. Where its commands lie at the lender, a key to them is returned.
func (c *Controller) AddQueue(s QueueSpec) (key fabric.Key, err error) {
	if err := s.Validate(); err != nil {
		return key, err
	}
	var own *fabric.Segment
	if s.Commands == 0 {
		if own, err = c.e.el.NewSegment(uint64(s.Entries)*CommandBytes+s.BufferBytes, fabric.Writable); err != nil {
			return key, err
		}
		if key, err = own.Key(fabric.RightsAll); err != nil {
			own.Close()
			return key, err
		}
	}
	if err = c.addQueue(&s, own); err != nil && own != nil {
		own.Close()
	}
	return key, err
}

func (c *Controller) addQueue(s *QueueSpec, own *fabric.Segment) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	switch {
	case c.stopped:
		return fmt.Errorf("%w: lease %d has ended", device.ErrNoLease, c.lease)
	case c.queues[s.ID] != nil:
		return fmt.Errorf("%w: there is a queue %d", device.ErrSpec, s.ID)
	}
	c.forget()
	if slices.ContainsFunc(c.ending, func(q *queue) bool { return q.id == s.ID }) {
		return fmt.Errorf("%w: queue %d is being deleted, and a command of it is under way", device.ErrSpec, s.ID)
	}
	q := &queue{c: c, id: s.ID, entries: s.Entries, cqEntries: s.CompletionEntries, phase: true}
	if own != nil {
		w := &window{Window: Window{ID: device.BufferWindow + uint32(s.ID), Base: device.Address(device.BufferWindow+uint32(s.ID), 0), Segment: own, Size: own.Size()}, ours: true}
		if err := c.addWindow(w); err != nil {
			return err
		}
		q.sq = w
	} else if err := c.findCommands(q, s); err != nil {
		return err
	}
	if err := c.findCompletions(q, s); err != nil {
		if own != nil {
			c.windows = slices.DeleteFunc(c.windows, func(w *window) bool { return w == q.sq })
		}
		return err
	}
	var zero [8]byte
	fabric.CopyIn(c.registers.Bytes()[device.SubmissionDoorbell(q.id):], zero[:]) // both doorbells begin at 0
	if sh := c.shadow; sh != nil {
		sh.set(q.id, 0, 0)
		sh.write(sh.events, sh.eventsAt+device.SubmissionDoorbell(q.id), 0)
		sh.write(sh.events, sh.eventsAt+device.CompletionDoorbell(q.id), 0)
	}
	for _, w := range []*window{q.sq, q.cq, q.bell} {
		if w != nil {
			w.users++
		}
	}
	c.queues[s.ID] = q
	c.e.queues = append(c.e.queues, q)
	c.e.count()
	return nil
}

// findCommands finds the submission queue in the borrower's memory.
func (c *Controller) findCommands(q *queue, s *QueueSpec) error {
	if q.sq = c.window(s.Commands, uint64(s.Entries)*CommandBytes); q.sq == nil {
		return fmt.Errorf("%w: %d commands at %#x are in no window of the lease", device.ErrSpec, s.Entries, s.Commands)
	}
	if !q.sq.mapped() {
		return fmt.Errorf("%w: window %d is not mapped here, so commands lie at the lender: ask for a queue with commands 0", device.ErrSpec, q.sq.ID)
	}
	q.sqAt = s.Commands - q.sq.Base
	return nil
}

// findCompletions finds the completion queue, and its bell.
func (c *Controller) findCompletions(q *queue, s *QueueSpec) error {
	if q.cq = c.window(s.Completions, uint64(s.CompletionEntries)*CompletionBytes); q.cq == nil || q.cq.ours {
		return fmt.Errorf("%w: %d completions at %#x are in no window of the lease", device.ErrSpec, s.CompletionEntries, s.Completions)
	}
	q.cqAt = s.Completions - q.cq.Base
	if s.Bell == 0 {
		return nil
	}
	if q.bell = c.window(s.Bell, 8); q.bell == nil || q.bell.ours || !q.bell.mapped() || !q.cq.mapped() {
		return fmt.Errorf("%w: the bell at %#x, for completions at %#x: both are in windows that are mapped here", device.ErrSpec, s.Bell, s.Completions)
	}
	q.bellAt = s.Bell - q.bell.Base
	mem := q.bell.pin(fabric.RightRead)
	if mem == nil {
		return fmt.Errorf("%w: the bell at %#x is in memory that is gone", device.ErrSpec, s.Bell)
	}
	var word [8]byte
	fabric.CopyOut(word[:], mem[q.bellAt:q.bellAt+8])
	q.bell.unpin()
	q.rung = binary.NativeEndian.Uint64(word[:]) // where an earlier queue had got to: the borrower sees each completion as a change
	return nil
}

// Stop has no more commands fetched. The channel is closed once none is under way.
func (c *Controller) Stop() <-chan struct{} {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.stop()
	return c.quiet
}

// stop is Stop; e.mu is held.
func (c *Controller) stop() {
	if c.stopped {
		return
	}
	c.stopped = true
	c.e.queues = slices.DeleteFunc(c.e.queues, func(q *queue) bool { return q.c == c })
	for _, q := range c.queues {
		c.crew.unclaim(c.e, q)
	}
	c.e.count()
	c.settle()
}

// settle closes quiet once nothing is under way, and nothing will be; e.mu is held.
func (c *Controller) settle() {
	if !c.stopped || c.ops > 0 {
		return
	}
	select {
	case <-c.quiet:
	default:
		close(c.quiet)
	}
}

// Free lets go of windows, buffers and registers. Stop's channel has been closed.
func (c *Controller) Free() {
	c.e.mu.Lock()
	windows := c.windows
	c.windows, c.last, c.shadow, c.queues, c.going, c.ending = nil, nil, nil, map[uint16]*queue{}, nil, nil
	if c.share.leases--; c.share.leases == 0 {
		delete(c.e.shares, c.who)
	}
	c.crew.unregister(c)
	c.e.leave(c.backing, c.crew)
	c.e.mu.Unlock()
	for _, w := range windows {
		if w.ours {
			w.Segment.Close()
		}
	}
	c.registers.Close()
}

// Counts are what goes on: queue pairs, windows, commands under way and so far.
func (c *Controller) Counts() (queues, windows, inflight int, commands uint64) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return len(c.queues), len(c.windows), c.ops, c.commands
}

// fault ends the fetching for a borrower that breaks the rules, and tells of it; e.mu is held.
func (c *Controller) fault(err error) {
	if c.stopped {
		return
	}
	c.stop()
	c.e.group.Go(func() { c.faulted(err) })
}
