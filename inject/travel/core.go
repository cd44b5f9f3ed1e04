package travel

import (
	"fmt"

	"github.com/wherry-fabric/wherry/internal/share"
)

// Core is one element's side of the travel protocol. It is not safe for
// concurrent use: the caller holds one mutex around every call.
type Core struct {
	// What every message touches lies together.
	fx          Effects
	peers       []*peer // by Peer; nil: none. [0] is never used
	lightFuture lightFuture
	light       *Run // that has no invocation yet
	running     int
	asleep      int          // of the runs here those that wait for room to send (Wait)
	records     int          // messages of ours that were not acknowledged
	sentEnd     Instant      // none of them has an earlier deadline
	runShare    int          // of one principal's at once
	ready       list[tenant] // with runnable ones; whose turn it is first
	draining    bool         // nothing new is taken
	tombs       tombs
	stats       Counters
	out         []byte // scratch for a message's head
	byInc       table[peer]
	speaker     *peer               // the last that byInc was asked for; nil when that may have changed
	invs        fronted[invocation] // by sequence number and origin
	dirty       []*peer             // peers with reports pending, by due time

	cfg    Config
	lim    Limits
	wheel  wheel
	nextID uint64 // counts invocations started here
	forks  uint64 // counts branches made here

	bindings   []*Binding
	lostTo     map[uint64]Instant // incarnations to which the last endpoint was lost, and when
	byWhat     map[What]*Binding  // looked up only, never ranged over
	bindingsOf map[string]int     // of them, by principal; none is 0
	fetches    map[ID]*fetch      // looked up only
	fetchList  list[fetch]
	fetchSum   int     // bytes being put together
	sweepAt    Instant // when idle bindings are looked for; 0: nothing is pinned
	full       []*peer // peers with something in their outbox
	futures    int
	queued     int // runnable
	rooms      rooms
	own        tenant             // what is started here
	tenants    map[string]*tenant // by principal; looked up only
	heldRuns   int
	heldBytes  int
	backlog    int // branches that wait beyond what may be held
	stowed     int // branches that wait to leave
	kept       int // runs whose messages' credit is withheld
	keepers    list[tenant]
	paced      list[tenant] // of whom members keep branches back
	paceAt     Instant      // when they are told again; 0: not yet, or there are none
	inForks    list[Run]    // that wait for room to send
	unready    list[Run]    // that wait for their programs
	jams       int          // of them so many have for long, or had before they went on
	stalled    bool         // stowed branches have for long
	jamAt      Instant      // when lookAtJams is due; 0: no branch waits

	backlogBytes int
	made         int     // functions that runs have made and that are kept for them
	outcome      Outcome // scratch for Complete
	oneRoot      [1]Root

	runPool    pool[Run]
	invPool    pool[invocation]
	futPool    pool[future]
	branchPool pool[branch]
}

// Counters only ever grow.
type Counters struct {
	Started, Succeeded, Failed uint64 // futures
	Runs                       uint64 // runs begun here
	Awaited                    uint64 // branches that waited for room
	Pressed                    uint64 // times that an invocation with scratch here was found in the way of an older one
	Yielded                    uint64 // futures ended to let older invocations have room
	Waits, TakenIn             uint64 // times that a run found no room to send and waited; branches that were taken in beyond what may be held
	Paced                      uint64 // times that a member was told to keep an origin's branches back
	Stuck                      uint64 // branches ended because their forks, or they, waited to leave where no more could be taken in
	Duplicates                 uint64 // messages seen before
	Refused                    uint64 // transfers not taken
	Late                       uint64 // reports on futures that had ended
	PutOff                     uint64 // reports that waited for a number
	Stopped                    uint64 // branches not taken: their invocation had been canceled or had failed
	Forwards, Forks            uint64
	Acks, Needs, Chunks        uint64 // sent
}

// Sizes say how full the tables are.
type Sizes struct {
	Futures, Invocations, Running, HeldRuns, HeldBytes, Queued, Awaiting int
	Unready                                                              int // branches that wait for their programs; they are held too
	Records, Tombstones, Fetches, FetchBytes, Timers                     int
	Made                                                                 int // functions that runs have made and that are kept for their calls
	Stateful, Lapsed                                                     int // invocations with a place among tombstones; those that have one
	OutboxBytes, PendingReports, LateReports, LateBytes                  int
	Stowed                                                               int // branches that wait for room to leave; they are held too
	Paced, Lanes                                                         int // origins' branches that members were told to keep back; that are kept back here
	Kept                                                                 int // beyond the bounds, on their senders' credit
	Backlog, BacklogBytes                                                int // beyond the bounds, because the element was jammed or they could wait nowhere else
}

// Owed is how many messages are to come of what happened here: of each branch that was
// sent and not yet acknowledged, and of each acknowledgement that waits for company. It is 0 at every
// element once nothing is on its way any more.
func (s Sizes) Owed() int { return s.Records + s.PendingReports }

// New makes a core.
func New(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Limits.setDefaults()
	c := &Core{cfg: cfg, lim: cfg.Limits, fx: cfg.Effects}
	c.peers = make([]*peer, 1, 16)
	c.out = make([]byte, 0, 512) // at least a head; it grows to the longest
	c.byInc.seed, c.invs.far.seed, c.tombs.byID.seed = cfg.HashSeed, cfg.HashSeed, cfg.HashSeed
	c.invs.front = make([]entry[invocation], nearInvocations)
	c.lostTo = make(map[uint64]Instant)
	c.byWhat, c.bindingsOf = make(map[What]*Binding), make(map[string]int)
	c.fetches = make(map[ID]*fetch)
	c.runShare, c.tenants = share.Of(c.lim.Running), make(map[string]*tenant)
	c.own.init("").peers = 1
	return c, nil
}

// Counters returns what has happened so far.
func (c *Core) Counters() Counters { return c.stats }

// Sizes returns how much is held now. It looks at every peer: for tests and
// metrics, not for the data plane.
func (c *Core) Sizes() Sizes {
	c.expand()
	s := Sizes{Futures: c.futures, Invocations: c.invs.n, Running: c.running, HeldRuns: c.heldRuns,
		HeldBytes: c.heldBytes, Made: c.made, Backlog: c.backlog, BacklogBytes: c.backlogBytes, Kept: c.kept, Stowed: c.stowed, Queued: c.queued, Awaiting: c.rooms.n, Unready: c.unready.n, Records: c.records, Tombstones: len(c.tombs.canceled), Lapsed: len(c.tombs.lapsed), Stateful: c.tombs.places,
		Fetches: len(c.fetches), FetchBytes: c.fetchSum, Timers: c.wheel.n}
	for _, p := range c.peers {
		if p != nil {
			s.OutboxBytes += p.outBytes
			s.Paced += len(p.pacing)
			s.Lanes += len(p.lanes)
			s.PendingReports += p.acks.count
			s.LateReports += p.late.n
			s.LateBytes += p.lateBytes
		}
	}
	return s
}

// invocation is what this element has of one invocation: the origin's future,
// runs, state.
type invocation struct {
	id         InvocationID
	originPeer *peer // nil: this element
	deadline   Instant
	timer      timer
	runs       list[Run]
	fut        *future // only at the origin, until it ended
	stateful   bool
	seats      seats   // of its workers here, if it is stateful
	born       int64   // when it was started, by its origin's clock; only of a stateful one
	rested     Instant // when the last run here ended, while state is held
	inHolders  node[invocation]
	made       []*Binding // functions that its runs have made here, each with a reference
	told       bool       // the origin knows that state, or what it has made, is kept here
	dead       bool       // canceled, expired or complete: only runs being stopped are left
	lapsed     Code       // it is dead, and its origin may not know: branches are refused with this
	placed     bool       // it has a place among tombs
	came       Instant    // then
}

func (c *Core) newInvocation(id InvocationID, origin *peer, deadline Instant) *invocation {
	inv := c.invPool.get()
	if inv == nil {
		inv = new(invocation)
		inv.timer.inv, inv.inHolders.v = inv, inv
	}
	inv.id, inv.originPeer, inv.deadline = id, origin, deadline
	inv.stateful, inv.told, inv.dead, inv.lapsed, inv.placed = false, false, false, CodeOK, false
	inv.born = 0
	return inv
}

// expand gives what was kept short its full records.
func (c *Core) expand() {
	if c.light != nil {
		c.expandRun()
	}
	if c.lightFuture.open {
		c.register()
	}
}

// enter puts an invocation into the tables.
func (c *Core) enter(inv *invocation) {
	c.invs.put(inv.id.Seq, inv.id.Origin, inv)
	c.wheel.arm(&inv.timer, inv.deadline)
}

// extend moves an invocation's deadline out: what arrives later may have a
// little more time, because remaining times are rounded and travel. By less than
// that rounding it is left alone.
func (c *Core) extend(now Instant, inv *invocation, deadline Instant) {
	if deadline > inv.deadline+(deadline-now)>>10 && inv.fut == nil && !inv.dead {
		inv.deadline = deadline
		c.wheel.arm(&inv.timer, deadline)
	}
}

// tidy frees an invocation's record once nothing of it is left here.
func (c *Core) tidy(inv *invocation) {
	if inv.runs.n > 0 || inv.fut != nil || !inv.dead && inv.keeps() {
		return
	}
	c.freeState(inv)
	c.freeMade(inv)
	if inv.placed {
		inv.placed = false
		c.tombs.leave(inv.originPeer.Principal)
	}
	c.wheel.disarm(&inv.timer)
	c.invs.del(inv.id.Seq, inv.id.Origin)
	inv.originPeer = nil
	inv.seats.clear()
	c.invPool.put(inv)
}

func (c *Core) freeState(inv *invocation) {
	if inv.seats.held == 0 {
		return
	}
	inv.inHolders.leave()
	inv.seats.all(func(s *seat) {
		if s.holds {
			state := s.state
			s.holds, s.state = false, nil
			inv.seats.held--
			c.fx.FreeState(inv.id, state)
		}
	})
}

// kill ends everything of an invocation here. Runs with the runtime are asked
// to stop and keep the record until they have; all else goes at once. why is
// reported for each branch that was here if it is not CodeOK; then, and if its origin was lost, a
// tombstone stays for what it kept here.
func (c *Core) kill(now Instant, inv *invocation, why Code, text string) {
	if inv.dead {
		return
	}
	inv.dead = true
	c.wheel.disarm(&inv.timer)
	if why != CodeOK {
		inv.lapsed = why
	}
	if inv.lapsed != CodeOK && inv.seats.held > 0 && inv.placed {
		inv.placed = false
		c.tombs.lapse(inv.id, c.wellOver(now, inv), inv.lapsed, inv.originPeer.Principal)
	}
	for n := inv.runs.first; n != nil; {
		r := n.v
		n = n.next
		if r.stowed {
			c.unstow(r)
			r.ended = false
		}
		if why != CodeOK && !r.ended {
			c.reportEnd(now, r, End{Code: why, Text: text + c.awaits(r)})
		}
		if r.state != runRunning {
			c.dropRun(now, r)
			continue
		}
		c.unqueue(r) // its report is not awaited any more
		if !r.stopped {
			r.ended, r.stopped = true, true
			c.fx.Stop(r)
		}
	}
	c.tidy(inv)
}

// wellOver is when an invocation is over at its origin too, whatever of its time this element did not get: the
// origin keeps some back, and what travels is rounded at every hop.
func (c *Core) wellOver(now Instant, inv *invocation) Instant {
	return max(now, inv.deadline) + (inv.deadline-inv.came)/8 + Instant(c.lim.TombstoneTime)
}

// Recv takes one message from a peer. It may return a run that the caller may
// execute at once, on its own stack, after it has released its mutex; that
// run's Payload is part of body (see Own). Others wait for NextRun. An error
// Is ErrProtocol: the peer broke the rules and the caller closes the endpoint.
func (c *Core) Recv(now Instant, from Peer, kind Kind, body []byte) (*Run, error) {
	p := c.peer(from)
	if p == nil {
		return nil, fmt.Errorf("%w: number %d", ErrNoPeer, from)
	}
	switch kind {
	case KindInject:
		c.expand()
		return c.recvInject(now, p, body)
	case KindDone:
		return nil, c.recvDone(now, p, body)
	}
	c.expand()
	return nil, c.recvOther(now, p, kind, body)
}

func (c *Core) recvOther(now Instant, p *peer, kind Kind, body []byte) error {
	if len(body) > MaxMessageBytes {
		return malformed(kind, "%d bytes, at most %d are allowed", len(body), MaxMessageBytes)
	}
	switch kind {
	case KindPart, KindList:
		return c.recvPart(now, p, kind, body)
	case KindAck:
		return c.recvAck(now, p, body)
	case KindNeed:
		return c.recvNeed(p, body)
	case KindCode:
		return c.recvCode(now, p, body)
	case KindCancel:
		return c.recvCancel(now, p, body)
	case KindFree:
		return c.recvFree(now, p, body)
	case KindHold:
		return c.recvHold(p, body)
	case KindLost:
		return c.recvLost(now, p, body)
	case KindRefused:
		return c.recvRefused(now, p, body)
	case KindRoom:
		return c.recvRoom(now, p, body)
	case KindPace:
		return c.recvPace(now, p, body)
	}
	return fmt.Errorf("%w: kind %d is unknown", ErrProtocol, kind)
}

// Tick does what is due at now and says when to call it next; ok is false if
// nothing waits for time to pass.
func (c *Core) Tick(now Instant) (next Instant, ok bool) {
	c.expand()
	if c.records > 0 && now >= c.sentEnd {
		c.expireSent(now)
	}
	for t := c.wheel.advance(now); t != nil; t = c.wheel.advance(now) {
		if t.inv != nil {
			c.expire(now, t.inv)
		} else {
			c.fetchTimeout(now, t.fetch)
		}
	}
	c.tombs.expire(now)
	c.flushDue(now)
	c.drainAll(now)
	if c.sweepAt != 0 && now >= c.sweepAt {
		c.sweep(now)
	}
	if c.rooms.look != 0 && now >= c.rooms.look {
		c.giveWay(now)
	}
	if c.paced.n > 0 && now >= c.paceAt {
		c.renewPaces(now)
	}
	if c.jamAt != 0 && now >= c.jamAt {
		c.lookAtJams(now)
	}
	return c.Next(now)
}

// Next says when Tick is to be called next; ok is false if nothing waits for
// time to pass. Any call of the core may make it sooner.
func (c *Core) Next(now Instant) (next Instant, ok bool) {
	c.expand()
	if tick, some := c.wheel.next(); some {
		next, ok = Instant(tick<<tickBits), true
	}
	sooner := func(t Instant) {
		if !ok || t < next {
			next, ok = t, true
		}
	}
	if t, some := c.tombs.earliest(); some {
		sooner(t)
	}
	for _, p := range c.dirty {
		if p.acks.count > 0 {
			sooner(p.acks.due)
		}
	}
	if len(c.full) > 0 {
		sooner(now + ackDelay)
	}
	if c.stowed > 0 {
		sooner(now + stowDelay)
	}
	if c.sweepAt != 0 {
		sooner(c.sweepAt)
	}
	if c.paced.n > 0 {
		sooner(max(c.paceAt, now))
	}
	if c.jamAt != 0 {
		sooner(c.jamAt)
	}
	if c.rooms.look != 0 {
		sooner(c.rooms.look)
	}
	if c.records > 0 {
		sooner(c.sentEnd)
	}
	return next, ok
}

// expire ends an invocation whose time is up.
func (c *Core) expire(now Instant, inv *invocation) {
	if inv.fut != nil {
		c.fail(now, inv.fut, c.deadlineError(inv.fut))
		return
	}
	c.kill(now, inv, CodeDeadline, "the invocation's time ran out while the branch was here")
}
