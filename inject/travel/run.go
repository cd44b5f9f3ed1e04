package travel

import "fmt"

// Run is one visit of one branch to this element. The runtime has it from
// Recv or NextRun until it calls Finish; after that the record is used again.
type Run struct {
	// Payload is what the function gets. Of a run that Recv returned it is
	// part of the message until Own.
	Payload []byte
	// User is the runtime's own; it is nil when the runtime gets the run, unless that has waited for room (Await).
	User any

	inv      *invocation // nil: the run is light (Core.light), and the next line says what else its invocation does
	origin   *peer
	seq      uint64
	deadline Instant
	binding  *Binding
	from     *peer // nil: this element
	branch   uint64
	came     uint64  // the number of the message that brought it, if direct
	arrived  Instant // of a light run
	hops     uint16
	state    runState
	runFlags
	runRest

	inInv   node[Run]
	inFork  node[Run] // Core.inForks
	inKept  node[Run] // its tenant's kept
	inQueue node[Run] // the queue, its binding's parked, its invocation's waiting, its origin's late or a peer's stowed
	inDue   node[Run] // Core.rooms.due
}

// runFlags are those that a light run has too.
type runFlags struct {
	direct   bool // its origin sent it here: the answer acknowledges the message that brought it
	owned    bool // Payload is a copy
	ended    bool // the branch has ended here or moved on
	moved    bool // … moved on
	stopped  bool // the runtime was asked to stop it
	hasTrace bool
	worker   uint8 // of the element's
	workers  uint8 // that the invocation has at each element; 0: one
}

// runRest is what only a run has that is not light.
type runRest struct {
	trace        Trace
	parts, lists uint32   // sent so far, by earlier runs of the branch too
	forks        []uint64 // made so far, in no list yet
	counted      counted
	stowed       bool     // its branch waits to leave (inQueue)
	waits        bool     // for room, and does not count as running
	blocked      bool     // what it sent last found no room, at since
	jams         bool     // it is one of Core.jams
	credit       any      // of the message that brought it, withheld from its sender; nil: none
	lane         *lane    // in which it waits to leave, if it is stowed
	as           *Binding // what it runs where it goes
	onto         uint8    // as which worker
	need         uint64   // bytes of room that it waits for
	turn         uint64   // among those that wait
	since        Instant  // when it began to wait, for room to run or to send
	told         bool     // its origin knows that it waits for room, to run or to leave
	pressed      int      // how often those that stand in its way were looked for
	passed       int      // by so many that came later
	awaited      bool     // it has waited for room or for its program, and has a User
	reserved     bool     // and has it, but has not begun
	toward       *peer    // where what found no room was to go; nil: here
	late         *End     // how the branch ended; the report waits for room (inQueue)
}

type runState uint8

const (
	runFree runState = iota
	runParked
	runQueued
	runWaiting
	runRunning
	runAwaiting // for room
	runUnready  // its program is
	runLate     // finished; only its report waits
	runStowed   // finished; only its branch waits to leave
)

// Invocation names the invocation.
func (r *Run) Invocation() InvocationID {
	if r.inv == nil {
		return InvocationID{r.origin.Incarnation, r.seq}
	}
	return r.inv.id
}

// Light reports whether nothing more is kept of a run's invocation than the run itself (see Core.Arrive).
func (r *Run) Light() bool { return r.inv == nil }

// Branch is the branch's id; roots are 0, 1, ….
func (r *Run) Branch() uint64 { return r.branch }

// Binding is what to run.
func (r *Run) Binding() *Binding { return r.binding }

// Deadline is when the invocation's time is up.
func (r *Run) Deadline() Instant {
	if r.inv == nil {
		return r.deadline
	}
	return r.inv.deadline
}

// Worker is which of its element's workers the run is, and of how many.
func (r *Run) Worker() (worker, workers uint8) { return r.worker, max(r.workers, 1) }

// Hops is how many more forwards and forks the branch may do in a row.
func (r *Run) Hops() uint16 { return r.hops }

// Stateful says that the invocation's branches run here one at a time.
func (r *Run) Stateful() bool { return r.inv != nil && r.inv.stateful }

// State is what HoldState last kept for this invocation, nil if nothing.
func (r *Run) State() any {
	if r.inv == nil {
		return nil
	}
	return r.inv.seats.of(r).state
}

// Origin is the endpoint of the element that started the invocation.
func (r *Run) Origin() Peer {
	switch {
	case r.inv == nil:
		return r.origin.num
	case r.inv.originPeer == nil:
		return Self
	}
	return r.inv.originPeer.num
}

// Trace is the trace context, if the origin gave one.
func (r *Run) Trace() (Trace, bool) { return r.trace, r.hasTrace }

// SetTrace replaces the trace context for what the run sends from here on.
func (r *Run) SetTrace(t Trace) { r.trace, r.hasTrace = t, true }

// Ended reports whether the branch has moved on, failed or was stopped:
// nothing but Finish may follow.
func (r *Run) Ended() bool { return r.ended }

// freeRun is a run of which no field means anything.
func (c *Core) freeRun() *Run {
	r := c.runPool.get()
	if r == nil {
		r = new(Run)
		r.inInv.v, r.inQueue.v, r.inFork.v, r.inDue.v, r.inKept.v = r, r, r, r, r
	}
	return r
}

func (c *Core) newRun(inv *invocation, branch uint64, hops uint16) *Run {
	r := c.freeRun()
	r.inv, r.branch, r.hops = inv, branch, hops
	r.from, r.binding = nil, nil
	r.runFlags, r.runRest = runFlags{}, runRest{forks: r.forks[:0]}
	inv.runs.push(&r.inInv)
	return r
}

// take keeps what a message's extensions say about the branch.
func (r *Run) take(e *injectExt) {
	r.hasTrace, r.trace = e.hasTrace, e.trace
	r.parts, r.lists = e.parts, e.lists
	r.worker, r.workers = e.worker, e.workers
	for f := e.forks; len(f) > 0; f = f[8:] {
		r.forks = append(r.forks, le.Uint64(f))
	}
}

// Own makes a run's payload its own, so that the message may go.
func (c *Core) Own(r *Run) {
	if !r.owned {
		r.owned = true
		r.Payload = append([]byte(nil), r.Payload...)
	}
}

// HoldState keeps the runtime's state of this invocation at this element until
// FreeState. Only a stateful invocation has any.
func (c *Core) HoldState(r *Run, state any) error {
	c.expand()
	inv := r.inv
	switch {
	case r.ended && !inv.dead:
		return ErrEnded
	case !inv.stateful:
		return fmt.Errorf("%w: the invocation was not started as stateful", ErrLimit)
	case inv.dead:
		return fmt.Errorf("%w: invocation %v", ErrCanceled, inv.id)
	}
	inv.seats.hold(r, state)
	if inv.inHolders.in == nil {
		c.rooms.holders.push(&inv.inHolders)
	}
	return nil
}

// dropRun frees a run.
func (c *Core) dropRun(now Instant, r *Run) {
	inv, b := r.inv, r.binding
	c.unqueue(r)
	r.inInv.leave()
	if b != nil {
		c.unref(b)
	}
	if r.state == runRunning {
		c.endRunning(r)
	} else if r.awaited && r.state != runLate && r.state != runStowed {
		c.fx.Unreserve(r)
	}
	inv.rested = now
	r.state, r.Payload, r.User, r.forks = runFree, nil, nil, r.forks[:0]
	left := inv.seats.leave(r)
	r.inv, r.binding, r.from = nil, nil, nil
	if c.runPool.put(r); left {
		c.turn(now, inv)
	}
}

// unqueue takes a run out of where it waits, if it does.
func (c *Core) unqueue(r *Run) {
	if r.stowed {
		c.unstow(r)
	}
	c.uncharge(r)
	if r.inQueue.in != nil {
		switch r.state {
		case runQueued:
			c.dequeue(r)
		case runAwaiting:
			c.leaveRoom(r)
		case runUnready:
			c.leaveUnready(r)
		default:
			r.inQueue.leave()
		}
		if r.state == runParked && r.binding.parked.n == 0 {
			c.unwait(r.binding)
		}
	}
	if r.late != nil {
		r.inv.originPeer.lateBytes -= len(r.late.Result) + runOverheadBytes
		r.late = nil
	}
}

// turn gives a stateful invocation's next branches their turn.
func (c *Core) turn(now Instant, inv *invocation) {
	for !inv.dead {
		r := inv.seats.next(c.lim.Workers)
		if r == nil {
			return
		}
		r.inQueue.leave()
		c.admit(now, r, false)
	}
}

// failRun ends a branch that the runtime does not have.
func (c *Core) failRun(now Instant, r *Run, code Code, text string) {
	inv := r.inv
	c.reportEnd(now, r, End{Code: code, Text: text})
	if r.inv == inv { // else its future ended with it
		c.retire(now, r)
	}
}

// retire drops a run, or keeps it until its report, or its branch, finds room.
func (c *Core) retire(now Instant, r *Run) {
	inv := r.inv
	if r.late != nil || r.stowed {
		if r.state == runRunning {
			c.endRunning(r)
		} else if r.awaited && r.state != runStowed {
			c.fx.Unreserve(r)
		}
		r.User = nil
		if r.late != nil {
			r.state, r.Payload = runLate, nil
			return
		}
		if r.state = runStowed; inv.seats.leave(r) {
			c.turn(now, inv)
		}
		return
	}
	c.dropRun(now, r)
	c.tidy(inv)
}

// check says whether a run may still do something, and ends its branch if its
// time is up.
func (c *Core) check(now Instant, r *Run) error {
	if r.ended {
		if r.inv.dead {
			return fmt.Errorf("%w: invocation %v", ErrCanceled, r.inv.id)
		}
		return ErrEnded
	}
	if now >= r.inv.deadline {
		return c.abort(now, r, CodeDeadline, "the invocation's time ran out")
	}
	return nil
}

// abort ends the branch of a running run with an error, and returns it.
func (c *Core) abort(now Instant, r *Run, code Code, text string) error {
	e := &RemoteError{Branch: r.branch, Code: code, Element: c.cfg.Name, Function: r.function(), Text: text}
	c.reportEnd(now, r, End{Code: code, Text: text})
	return e
}

func (r *Run) function() string {
	switch {
	case r.binding == nil:
		return ""
	case r.binding.Name != "":
		return clip(r.binding.Name, maxName)
	}
	return r.binding.Image.String()
}

// Forward moves the branch to another element with a new payload; here only
// Finish may follow. ErrBackpressure without an end of the branch (Run.Ended) means that nothing was sent and that
// the caller may try again later. Any other forward that cannot be sent fails the branch: its
// origin hears why, and so does the caller.
func (c *Core) Forward(now Instant, r *Run, to Peer, payload []byte) error {
	return c.ForwardAs(now, r, to, r.worker, nil, payload)
}

// ForwardAs is Forward, and the branch goes on there as a run of b (nil: the same as r), of that worker.
func (c *Core) ForwardAs(now Instant, r *Run, to Peer, worker uint8, b *Binding, payload []byte) error {
	c.expand()
	if err := c.check(now, r); err != nil {
		return err
	}
	if b == nil {
		b = r.binding
	}
	if err := c.pass(now, r, to, worker, b, r.branch, payload); err != nil {
		return err
	}
	c.stats.Forwards++
	if r.ended = true; r.stowed {
		return nil
	}
	r.moved = true
	r.forks = r.forks[:0]
	c.tellHold(r)
	return nil
}

// Fork starts another branch of the invocation at to, running b (nil: the
// same as r). As with Forward, one that finds no room can be tried again, and any other that
// cannot be sent fails the branch that makes it: a result without it would be a partial one.
func (c *Core) Fork(now Instant, r *Run, to Peer, b *Binding, payload []byte) (branch uint64, err error) {
	return c.ForkAs(now, r, to, r.worker, b, payload)
}

// ForkAs is Fork, and the branch begins there as that worker's.
func (c *Core) ForkAs(now Instant, r *Run, to Peer, worker uint8, b *Binding, payload []byte) (branch uint64, err error) {
	c.expand()
	if err := c.check(now, r); err != nil {
		return 0, err
	}
	if len(r.forks) == listForks {
		if err := c.sendList(now, r); err != nil {
			return 0, err
		}
	}
	if b == nil {
		b = r.binding
	}
	for branch = r.branch; branch == r.branch; { // its starter may have foreseen this one's
		c.forks++
		branch = mix(c.cfg.Self+c.forks) | 1<<63
	}
	if err := c.pass(now, r, to, worker, b, branch, payload); err != nil {
		return 0, err
	}
	r.forks = append(r.forks, branch)
	r.blocked = false
	c.stats.Forks++
	return branch, nil
}

// mix is a bijection of 64 bits that leaves no pattern (the finalizer of
// splitmix64): ids made from different incarnations do not meet.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// oneLess is what is left of a hop budget after a hop.
func oneLess(hops uint16) uint16 {
	if hops == MaxHops { // it is not counted
		return hops
	}
	return hops - 1
}

// pass sends a branch on.
func (c *Core) pass(now Instant, r *Run, to Peer, worker uint8, b *Binding, branch uint64, payload []byte) error {
	if worker >= max(r.workers, 1) {
		return c.abort(now, r, CodeLimit, fmt.Sprintf("there is no worker %d at an element, only %d of them", worker, max(r.workers, 1)))
	}
	if r.hops == 0 {
		return c.abort(now, r, CodeHopLimit, fmt.Sprintf("%s used up its hop budget on %s", r.function(), c.cfg.Name))
	}
	if to == Self {
		return c.passHere(now, r, worker, b, branch, payload)
	}
	p := c.peer(to)
	if p == nil {
		return c.abort(now, r, CodePeerLost, fmt.Sprintf("peer number %d has no endpoint on %s", to, c.cfg.Name))
	}
	if !p.Member {
		return c.abort(now, r, CodeRefused, fmt.Sprintf("%s, where the branch was to go, is no member: its principal %q lacks the capability member", p.Name, p.Principal))
	}
	if branch == r.branch && b.Constants != "" && len(r.forks) > derivedForks {
		if err := c.sendList(now, r); err != nil {
			return err
		}
	}
	r.toward = p
	if c.outOfTurn(r, p) {
		if branch == r.branch && c.stow(now, r, p, worker, b, payload) {
			return nil
		}
		return fmt.Errorf("%w: %d branches wait to leave for %s", ErrBackpressure, p.waits(), p.Name)
	}
	s := c.sending(r, worker, b, branch)
	declares, err := c.sendInject(now, p, &s, payload)
	switch {
	case err == nil:
		c.sentBranch(p, &s, declares)
		return nil
	case isBackpressure(err) && branch == r.branch && c.stow(now, r, p, worker, b, payload):
		return nil
	case isBackpressure(err):
		return err
	}
	return c.abort(now, r, unsentCode(err), err.Error())
}

// passHere continues or forks on this element itself.
func (c *Core) passHere(now Instant, r *Run, worker uint8, b *Binding, branch uint64, payload []byte) error {
	n := len(payload) + runOverheadBytes
	if len(payload) > MaxDataBytes {
		return c.abort(now, r, CodeLimit, tooLong("payload", len(payload)).Error())
	}
	if t := r.tenant(c); !c.fitsHeld(t, n) && !((branch == r.branch || r.jams) && c.fitsBacklog(t, n)) {
		r.toward = nil
		return fmt.Errorf("%w: %s", ErrBackpressure, c.overfull(t))
	}
	if !c.ensure(now, b) {
		return c.abort(now, r, CodeNoCode, fmt.Sprintf("%v is not on %s any more", b.Image, c.cfg.Name))
	}
	next := c.newRun(r.inv, branch, oneLess(r.hops))
	next.hasTrace, next.trace = r.hasTrace, r.trace
	next.worker, next.workers = worker, r.workers
	if branch == r.branch {
		next.parts, next.lists = r.parts, r.lists
		next.forks = append(next.forks, r.forks...)
	}
	b.refs++
	next.binding, next.from, next.Payload = b, r.from, payload
	c.admit(now, next, false)
	return nil
}

// Finish gives a run back. If its branch is still here, it ends as end says
// and its origin hears so; a run that failed after it moved on fails its
// branch too. Every run needs exactly one Finish, also after Stop.
func (c *Core) Finish(now Instant, r *Run, end End) {
	c.expand()
	inv := r.inv
	if r.stowed && end.Code != CodeOK {
		c.unstow(r)
		r.ended = false
	}
	if !r.ended || r.moved && end.Code != CodeOK && !r.stopped && !inv.dead {
		r.stopped = true // no Stop for it any more, even if this ends its future
		c.reportEnd(now, r, end)
	}
	c.retire(now, r)
}
