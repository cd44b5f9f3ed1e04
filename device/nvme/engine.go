package nvme

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

// Limits of an Engine, for all its borrowers together. Those of one lease are Controller's.
const (
	// turnCommands and turnBytes bound what one turn of the leader carries out, give or take a command: messages wait for no more than that. One queue has at
	// most half of it before the next has its part.
	turnCommands = 16
	turnBytes    = MaxTransferBytes
	// maxOps bounds the commands that are under way for all leases. Of what is free one drive may take half; so may one lease of what its principal
	// has (MaxInflight): a disk that hangs leaves room to the others, and they to the next.
	maxOps = 2048
	// maxBounced bounds the memory for data that leaves by Puts, of all leases, and maxShareBounced that of one principal's; drives and leases share them in the
	// same way. A command that finds no room waits in its queue.
	maxBounced      = 64 << 20
	maxShareBounced = maxBounced / 4
	// maxWorkers bounds the goroutines that carry out what may block, for each drive: a disk gains little from more at once.
	maxWorkers = 16
	// closeTime is how long Close waits for commands that a disk has not answered.
	closeTime = 10 * time.Second
)

// Engine carries out the commands of an element's borrowers. Its methods may be called from any goroutine but the leader's handlers.
type Engine struct {
	el   *fabric.Element
	log  *slog.Logger
	bell int // an eventfd: rung where a worker made room and the leader sleeps

	active atomic.Int32 // queues, and commands in sending: 0 lets Poll return at once
	armed  atomic.Bool
	group  sync.WaitGroup // workers, and calls of faulted

	mu      sync.Mutex
	queues  []*queue
	next    int // the queue whose turn it is
	free    []*op
	load    // of all
	shares  map[string]*share
	crews   map[Backing]*crew
	flying  int    // commands that Starters have
	sending []*op  // whose data is leaving by Puts
	scratch []byte // of the command that the leader carries out: what it reads and sends at once
	closed  bool
}

// load is what commands under way take; Engine.mu guards it.
type load struct {
	ops     int
	bounced int // bytes
}

// share is what one principal's leases have in use, so that none has all: it may be slow to take what it reads. Engine.mu guards it.
type share struct {
	leases int
	load
}

// crew carries out what may block of one drive. Engine.mu guards it.
type crew struct {
	leases  int
	workers int
	work    chan *op
	load
	writing []*op // what changes blocks, and goes on after its turn
	pairs   int   // of these
	claims  []claim
	waits   bool // a queue is blocked by one of these

	reserved map[device.Range]*reservation // for which a lease has registered

	starter Starter // nil: workers do all
	started []*op   // by token; nil: free
}

// join counts a lease of a drive; e.mu is held.
func (e *Engine) join(b Backing) *crew {
	k := e.crews[b]
	if k == nil {
		k = &crew{work: make(chan *op, maxOps), reserved: map[device.Range]*reservation{}} // it has room for all ops
		if s, can := b.(startable); can {
			var err error
			if k.starter, err = s.Starter(e.bell); err != nil {
				k.starter = nil
				e.log.Debug("a drive's blocking commands are done by goroutines", "why", err)
			} else {
				k.started = make([]*op, startedAtOnce)
			}
		}
		e.crews[b] = k
	}
	k.leases++
	return k
}

// leave undoes join; with the last lease, of which nothing is under way, the workers go. e.mu is held.
func (e *Engine) leave(b Backing, k *crew) {
	if k.leases--; k.leases == 0 && e.crews[b] == k {
		delete(e.crews, b)
		e.dismiss(k)
	}
}

// dismiss ends a crew once nothing of it is under way; e.mu is held.
func (e *Engine) dismiss(k *crew) {
	close(k.work)
	switch {
	case k.starter == nil:
	case k.idle():
		k.starter.Close()
	default: // the memory of what was started is the disk's until its end
		e.group.Go(func() { e.drain(k) })
	}
}

func (k *crew) idle() bool {
	return !slices.ContainsFunc(k.started, func(o *op) bool { return o != nil })
}

// drainEvery is how often drain looks.
const drainEvery = 5 * time.Millisecond

// drain waits for what a crew has started, when no leader polls any more, and ends it.
func (e *Engine) drain(k *crew) {
	for {
		e.mu.Lock()
		k.starter.Submit()
		k.starter.Reap(startedAtOnce, func(token uint64, _ int, err error) {
			o := k.started[token]
			k.started[token] = nil
			e.flying--
			o.finish(err) // of a controller that was stopped: nobody is told
		})
		over := k.idle()
		e.mu.Unlock()
		if over {
			k.starter.Close()
			return
		}
		time.Sleep(drainEvery)
	}
}

// admits reports whether a lease may have another command under way.
func (e *Engine) admits(c *Controller) bool {
	return c.crew.ops < maxOps-e.ops && c.ops < MaxInflight-c.share.ops
}

// bounces reports whether there is room for size bytes of a lease that leave by Puts.
func (e *Engine) bounces(c *Controller, size int) bool {
	return c.crew.bounced+size <= maxBounced-e.bounced && c.bounced+size <= maxShareBounced-c.share.bounced
}

// add counts what a lease has more, or less, under way.
func (e *Engine) add(c *Controller, ops, bytes int) {
	for _, l := range [...]*load{&e.load, &c.share.load, &c.crew.load, &c.load} {
		l.ops, l.bounced = l.ops+ops, l.bounced+bytes
	}
}

// NewEngine makes an Engine, which an element's leader drives from now on.
func NewEngine(el *fabric.Element, log *slog.Logger) (*Engine, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("nvme: eventfd: %w", err)
	}
	e := &Engine{el: el, log: log, bell: bell, shares: map[string]*share{}, crews: map[Backing]*crew{}, scratch: make([]byte, MaxTransferBytes)}
	if err := el.AddPoller(e); err != nil {
		unix.Close(bell)
		return nil, err
	}
	return e, nil
}

// Close ends the Engine, whose controllers have been stopped. Where a disk does not answer for long it gives up waiting, with an error.
func (e *Engine) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := e.el.RemovePoller(ctx, e)
	if errors.Is(err, fabric.ErrClosed) { // then nobody polls
		err = nil
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return err
	}
	e.closed = true
	for b, k := range e.crews {
		delete(e.crews, b)
		e.dismiss(k)
	}
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		e.group.Wait()
		close(done)
	}()
	select {
	case <-done:
		unix.Close(e.bell)
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("nvme: a disk has not answered for %v: its commands are left behind", closeTime))
	}
	return err
}

// Poll implements fabric.Poller: one turn, in which each queue that has something gets its part.
func (e *Engine) Poll(int, fabric.Turn) int {
	if e.active.Load() == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.sent() + e.reap()
	commands, bytes := turnCommands, turnBytes
	for range len(e.queues) { // a queue goes where its borrower breaks the rules
		if commands <= 0 || bytes <= 0 || len(e.queues) == 0 {
			break
		}
		if e.next++; e.next >= len(e.queues) {
			e.next = 0
		}
		k, b := e.queues[e.next].serve(turnCommands/2, turnBytes/2)
		n, commands, bytes = n+k, commands-k, bytes-b
	}
	e.submit()
	return n
}

// Arm implements fabric.Poller. Whoever rings a doorbell after this look wakes the leader; before it, the look sees it.
func (e *Engine) Arm() bool {
	e.armed.Store(true)
	if e.active.Load() == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.queues {
		if q.arm(); q.ready() {
			return true
		}
	}
	return e.armStarters() || slices.ContainsFunc(e.sending, func(o *op) bool { return o.put.Poll() })
}

// Disarm implements fabric.Poller.
func (e *Engine) Disarm() {
	e.armed.Store(false)
	var b [8]byte
	unix.Read(e.bell, b[:])
	e.disarmStarters()
}

// WaitFD implements fabric.Poller.
func (e *Engine) WaitFD() int { return e.bell }

// ring wakes a leader that sleeps, because there may be room for more commands.
func (e *Engine) ring() {
	if e.armed.Load() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		unix.Write(e.bell, one[:])
	}
}

// count is called when queues, sending or flying have changed; e.mu is held.
func (e *Engine) count() { e.active.Store(int32(len(e.queues) + len(e.sending) + e.flying)) }

// sent looks after data that left by Puts.
func (e *Engine) sent() (n int) {
	if len(e.sending) == 0 {
		return 0
	}
	defer e.count()
	e.sending = slices.DeleteFunc(e.sending, func(o *op) bool {
		if o.unsent {
			if o.goFar() {
				return false
			}
		} else if !o.put.Poll() {
			return false
		} else if o.nextFar(o.put.Wait(context.Background())) { // it has ended, so nothing waits
			n++
			return false
		}
		e.end(o)
		n++
		return true
	})
	return n
}

// op is a command under way.
type op struct {
	c      *Controller
	q      *queue
	id     uint16
	req    Request
	ranges []Request // of Dataset Management
	status Status

	pins    []pinned
	pieces  [][]byte // where the data is
	far     []piece  // or where it goes by Puts, from bounce
	bounce  []byte   // … or what Compare reads; the leader's scratch until keep
	bounced int
	into    [1][]byte // bounce, as a Request has it
	put     fabric.Op // of far[0], once it is sent
	unsent  bool      // far[0] found no room, and is tried again
	second  *op       // the write of Compare and Write
	noted   bool      // it is in its crew's writing
}

// take is an op for a command; nil if there are too many.
func (e *Engine) take(q *queue, id uint16) *op {
	if e.ops >= maxOps {
		return nil
	}
	e.add(q.c, 1, 0)
	var o *op
	if n := len(e.free); n > 0 {
		o = e.free[n-1]
		e.free = e.free[:n-1]
	} else {
		o = new(op)
	}
	o.c, o.q, o.id, o.status = q.c, q, id, StatusOK
	q.inflight++
	return o
}

// end lets go of what a command has. Its controller may be quiet then.
func (e *Engine) end(o *op) {
	e.over(o.c.crew, o)
	if o.second != nil {
		e.end(o.second)
	}
	for i := range o.pins {
		if o.pins[i].mem != nil {
			o.pins[i].w.unpin()
		}
		o.pins[i].w.leave()
	}
	c := o.c
	if o.q.inflight--; o.q.inflight == 0 && o.q.gone != nil {
		o.q.leave()
	}
	e.add(c, -1, -o.bounced)
	clear(o.pins)
	clear(o.pieces)
	clear(o.far)
	*o = op{pins: o.pins[:0], pieces: o.pieces[:0], far: o.far[:0], ranges: o.ranges[:0]}
	e.free = append(e.free, o)
	c.settle()
}

// hand gives an op to a worker.
func (e *Engine) hand(o *op) {
	k := o.c.crew
	k.begun(o)
	if k.workers < maxWorkers && k.workers < k.ops {
		k.workers++
		e.group.Go(func() { e.worker(k) })
	}
	k.work <- o
}

func (e *Engine) worker(k *crew) {
	for o := range k.work {
		err := o.do(true)
		e.mu.Lock()
		o.finish(err)
		backlog := slices.ContainsFunc(e.queues, (*queue).ready)
		e.mu.Unlock()
		if backlog {
			e.ring()
		}
	}
}

// finish concludes a command that has memory of its own, so that it waits for none; e.mu is held.
func (o *op) finish(err error) {
	if far := o.q.cq.far(); far != nil && far.Hold() { // data and completion leave together
		defer far.Release()
	}
	o.conclude(err)
}

// do carries out what the command wants of the backing.
func (o *op) do(wait bool) error {
	if o.second != nil {
		return o.doPair(wait)
	}
	if len(o.ranges) == 0 {
		if o.req.Op == OpDataset {
			return nil // no range, or a hint
		}
		return o.c.backing.Do(&o.req, wait)
	}
	if !wait {
		return ErrWait
	}
	for i := range o.ranges {
		if err := o.c.backing.Do(&o.ranges[i], wait); err != nil {
			return err
		}
	}
	return nil
}

// compare is Compare's second half.
func (o *op) compare() Status {
	at := 0
	for _, p := range o.pieces {
		if string(o.bounce[at:at+len(p)]) != string(p) {
			return StatusCompareFails
		}
		at += len(p)
	}
	return StatusOK
}

// conclude is called with what the backing said. Not done: data could not leave at once, and there is no memory to keep it; the command is to be fetched again.
// e.mu is held.
func (o *op) conclude(err error) (done bool) {
	if err != nil {
		o.status = statusOf(o.req.Op, err)
		if o.status != StatusCapacity {
			o.c.e.log.Warn("a drive's backing failed", "lease", o.c.lease, "op", o.req.Op, "err", err)
		}
	} else if len(o.bounce) > 0 && len(o.far) == 0 && o.second == nil {
		o.status = o.compare()
	}
	if o.status == StatusOK && len(o.far) > 0 && !o.c.stopped {
		return o.sendFar()
	}
	if s := o.second; s != nil {
		if o.status != StatusOK {
			s.status = StatusFusedFailed
		}
		o.postPair()
	} else {
		o.c.post(o.q, o.id, o.status)
	}
	o.c.e.end(o)
	return true
}

// sendFar sends data and the completion behind it, which are over then, or go on by themselves. Not done: see conclude.
func (o *op) sendFar() (done bool) {
	over, err := o.postFar()
	if !over && err == nil {
		if !o.keep() {
			return false
		}
		if over = !o.goFar(); !over {
			o.c.e.sending = append(o.c.e.sending, o)
			o.c.e.count()
			return true
		}
	}
	if err != nil {
		o.c.post(o.q, o.id, StatusTransfer)
	}
	o.c.e.end(o)
	return true
}

// postFar sends what the endpoint takes at once: not answered, so it costs the borrower nothing. It is over if all of it left, and the completion.
func (o *op) postFar() (over bool, err error) {
	for len(o.far) > 0 {
		p := o.far[0]
		if p.size > fabric.MaxPostBytes { // in fragments, in turn with what others send
			return false, nil
		}
		switch err := p.remote.Post(o.bounce[:p.size], p.off); {
		case errors.Is(err, fabric.ErrBackpressure):
			return false, nil
		case err != nil:
			return false, err
		}
		o.next()
	}
	o.q.cq.fence()
	o.c.post(o.q, o.id, o.status)
	return true, nil
}

// keep gives a command memory of its own for its data, which lies in the leader's; false: there is none now.
func (o *op) keep() bool {
	if o.bounced > 0 || len(o.bounce) == 0 {
		return true
	}
	was := o.bounce
	if !o.borrow(len(was)) {
		return false
	}
	copy(o.bounce, was)
	return true
}

// goFar sends the first piece, and behind the last the completion. False: the command has ended. e.mu is held.
func (o *op) goFar() bool {
	if o.c.stopped {
		return false
	}
	p := o.far[0]
	o.put, o.unsent = p.remote.StartPut(o.bounce[:p.size], p.off), false
	if o.put.Poll() {
		err := o.put.Wait(context.Background())
		if errors.Is(err, fabric.ErrBackpressure) { // other operations have all that the endpoint has
			o.unsent = true
			return true
		}
		if err != nil {
			o.c.post(o.q, o.id, StatusTransfer)
			return false
		}
		o.put = fabric.Op{} // which has succeeded
	}
	if len(o.far) == 1 {
		o.q.cq.fence()
		o.c.post(o.q, o.id, o.status)
	}
	return true
}

// nextFar goes on with a command when a piece's Put has ended with err. False: the command has ended. e.mu is held.
func (o *op) nextFar(err error) bool {
	switch {
	case len(o.far) == 1 && err != nil: // its completion is on the way, and says another thing
		o.c.fault(fmt.Errorf("queue %d: what a command read could not be written: %w", o.q.id, err))
		return false
	case len(o.far) == 1:
		return false
	case err != nil:
		o.c.post(o.q, o.id, StatusTransfer)
		return false
	}
	o.next()
	return o.goFar()
}

// next is the piece behind far[0], which has left.
func (o *op) next() {
	o.bounce = o.bounce[o.far[0].size:]
	o.far = o.far[:copy(o.far, o.far[1:])] // it is one piece mostly, and the next command has the array
}

// statusOf is how a command ends whose backing failed.
func statusOf(op Opcode, err error) Status {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return StatusCapacity
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EBADF), errors.Is(err, unix.EPERM):
		return StatusProtected
	case op == OpRead:
		return StatusReadError
	}
	return StatusWriteFault
}
