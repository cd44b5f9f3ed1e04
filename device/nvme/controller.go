package nvme

import (
	"fmt"
	"math/bits"
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
	windows map[uint32]*window
	queues  map[uint16]*queue
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
		registers: regs, faulted: s.Faulted, windows: map[uint32]*window{}, queues: map[uint16]*queue{}, quiet: make(chan struct{})}, nil
}

// RegistersKey is a key to the lease's doorbells.
func (c *Controller) RegistersKey() (fabric.Key, error) { return c.registers.Key(fabric.RightsAll) }

// AddWindow opens a borrower's memory to the lease's commands.
func (c *Controller) AddWindow(id uint32, r *fabric.Remote) error {
	if id == 0 || id > device.MaxWindows {
		return fmt.Errorf("%w: window %d: 1 to %d", device.ErrSpec, id, device.MaxWindows)
	}
	if r.Size() > device.MaxWindowBytes {
		return fmt.Errorf("%w: a window of %d bytes, at most %d", device.ErrSpec, r.Size(), uint64(device.MaxWindowBytes))
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	switch {
	case c.stopped:
		return fmt.Errorf("%w: lease %d has ended", device.ErrNoLease, c.lease)
	case c.windows[id] != nil:
		return fmt.Errorf("%w: there is a window %d", device.ErrSpec, id)
	}
	c.windows[id] = &window{remote: r, size: r.Size()}
	return nil
}

// QueueSpec describes a queue pair; see device.QueueRequest.
type QueueSpec struct {
	ID          uint16
	Entries     uint32
	Commands    uint64
	BufferBytes uint64
	Completions uint64
}

// Validate reports what is wrong with a queue pair.
func (s *QueueSpec) Validate() error {
	switch {
	case s.ID == 0 || s.ID > MaxQueues:
		return fmt.Errorf("%w: queue %d: 1 to %d", device.ErrSpec, s.ID, MaxQueues)
	case s.Entries < MinEntries || s.Entries > MaxEntries || bits.OnesCount32(s.Entries) != 1:
		return fmt.Errorf("%w: %d entries: a power of two from %d to %d", device.ErrSpec, s.Entries, MinEntries, MaxEntries)
	case s.Commands%CommandBytes != 0 || s.Completions%CompletionBytes != 0:
		return fmt.Errorf("%w: queues at %#x and %#x: they begin at a multiple of an entry's size", device.ErrSpec, s.Commands, s.Completions)
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
	q := &queue{c: c, id: s.ID, entries: s.Entries, phase: true}
	if own != nil {
		q.sq = &window{own: own, size: own.Size()}
	} else {
		id, off := device.Split(s.Commands)
		if q.sq, q.sqAt = c.windows[id], off; q.sq == nil || !q.sq.holds(off, uint64(s.Entries)*CommandBytes) {
			return fmt.Errorf("%w: %d commands at %#x are in no window of the lease", device.ErrSpec, s.Entries, s.Commands)
		}
		if !q.sq.mapped() {
			return fmt.Errorf("%w: window %d is not mapped here, so commands lie at the lender: ask for a queue with commands 0", device.ErrSpec, id)
		}
	}
	id, off := device.Split(s.Completions)
	if q.cq, q.cqAt = c.windows[id], off; q.cq == nil || q.cq.remote == nil || !q.cq.holds(off, uint64(s.Entries)*CompletionBytes) {
		return fmt.Errorf("%w: %d completions at %#x are in no window of the lease", device.ErrSpec, s.Entries, s.Completions)
	}
	regs := c.registers.Bytes()
	fabric.CopyIn(regs[device.SubmissionDoorbell(q.id):], make([]byte, 8)) // both doorbells begin at 0
	if own != nil {
		c.windows[device.BufferWindow+uint32(s.ID)] = q.sq
	}
	c.queues[s.ID] = q
	c.e.queues = append(c.e.queues, q)
	c.e.count()
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
	c.windows, c.queues = map[uint32]*window{}, map[uint16]*queue{}
	if c.share.leases--; c.share.leases == 0 {
		delete(c.e.shares, c.who)
	}
	c.crew.unregister(c)
	c.e.leave(c.backing, c.crew)
	c.e.mu.Unlock()
	for _, w := range windows {
		if w.own != nil {
			w.own.Close()
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
