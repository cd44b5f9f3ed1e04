package travel

import (
	"fmt"
	"slices"
	"time"
)

// future is an invocation at its origin: which branches are announced, which
// have ended, what came of them.
type future struct {
	inv      *invocation
	binding  *Binding
	root     branch        // branch 0
	others   table[branch] // all others
	branches uint32        // known ones, announced or not
	limit    uint32
	inAll    bool   // the limit counts those that have ended too
	settled  uint32 // of others: have ended, and could be forgotten
	hops     uint16 // the budget
	pending  int    // announced and not finished
	early    int    // known but not announced yet
	finished uint32
	holders  []*peer // hold state
	waits    int     // branches that wait for room for a while, as far as is known
	roots    []*peer // where each root was sent; nil: it began here
	sentTo   []*peer // the same, each once
}

// branch is what the origin knows of one branch.
type branch struct {
	id        uint64
	announced bool
	done      bool
	counted   bool   // as finished
	parts     uint32 // of its DONE
	lists     uint32
	gotParts  uint32
	gotLists  uint32
	listBits  uint64
	partBits  []uint64
}

func (b *branch) complete() bool { return b.done && b.gotParts == b.parts && b.gotLists == b.lists }

// Start starts an invocation: one branch per root. On an error nothing was
// started, or what was started is being canceled, and Complete is not called.
// With StartArgs.Partly there is a third way: ErrBackpressure and a FutureID that
// is not 0. Then a.Sent roots are on their way, and the caller goes on with Resume or
// gives up with Cancel.
func (c *Core) Start(now Instant, a *StartArgs) (FutureID, error) {
	if err := c.checkStart(now, a); err != nil {
		return 0, err
	}
	c.nextID++
	c.stats.Started++
	a.Sent, a.born = 0, c.cfg.Epoch+int64(now)
	return c.sendRoots(now, InvocationID{c.cfg.Self, c.nextID}, nil, a)
}

// Resume goes on with a start that sent only some of its roots, with the same
// arguments: no root is sent twice. It returns as Start does; ErrNoFuture says that the future
// has ended meanwhile, as Complete was told, so that the others need not start.
func (c *Core) Resume(now Instant, id FutureID, a *StartArgs) error {
	c.expand()
	inv := c.invs.get(uint64(id), c.cfg.Self)
	if inv == nil || inv.fut == nil {
		return fmt.Errorf("%w: %d ended before all its branches were started", ErrNoFuture, id)
	}
	a.born = inv.born
	_, err := c.sendRoots(now, inv.id, inv.fut, a)
	return err
}

// sendRoots sends the roots from a.Sent on. f is nil before the first is sent.
func (c *Core) sendRoots(now Instant, id InvocationID, f *future, a *StartArgs) (FutureID, error) {
	hops := a.hopBudget()
	for i := a.Sent; i < len(a.Roots); i++ {
		p, declares, err := c.sendRoot(now, id, a, i, hops)
		if err == nil && f == nil { // no answer can have come: the caller's mutex is held
			f = c.newFuture(id, a)
		}
		if err == nil && p == nil {
			err = c.beginRoot(now, f, a, i, hops)
		}
		if err != nil {
			if a.Partly && i > 0 && isBackpressure(err) {
				a.Sent = i
				return FutureID(id.Seq), err
			}
			if f != nil {
				c.endFuture(now, f, i > 0)
			}
			return 0, err
		}
		f.roots = append(f.roots, p)
		if p != nil {
			c.sentBranch(p, &sending{id: id, tenant: &c.own, deadline: a.Deadline, binding: a.Binding, branch: uint64(i)}, declares)
			if !slices.Contains(f.sentTo, p) {
				f.sentTo = append(f.sentTo, p)
			}
		}
	}
	a.Sent = len(a.Roots)
	return FutureID(id.Seq), nil
}

func (c *Core) checkStart(now Instant, a *StartArgs) error {
	switch {
	case c.draining:
		return fmt.Errorf("%w: %s starts nothing new", ErrStopping, c.cfg.Name)
	case a.Binding == nil:
		return fmt.Errorf("%w: StartArgs.Binding is nil", ErrNoCode)
	case len(a.Roots) == 0:
		return fmt.Errorf("%w: StartArgs.Roots is empty", ErrLimit)
	case a.Hops > MaxHops:
		return fmt.Errorf("%w: a budget of %d hops, at most %d", ErrHopLimit, a.Hops, MaxHops)
	case a.Branches > c.lim.Branches || uint32(len(a.Roots)) > c.branchLimit(a):
		return fmt.Errorf("%w: %d roots, %d branches, at most %d", ErrForkLimit, len(a.Roots), a.Branches, c.lim.Branches)
	case !a.seated():
		return fmt.Errorf("%w: %d workers at an element, at most %d, and each root's is one of them", ErrLimit, a.Workers, MaxWorkers)
	case a.Deadline <= now:
		return ErrDeadline
	case a.Deadline-now > Instant(c.lim.MaxTime):
		return fmt.Errorf("%w: a deadline %v away, at most %v", ErrLimit, time.Duration(a.Deadline-now), c.lim.MaxTime)
	case c.crowded(now):
		return fmt.Errorf("%w: %d futures are under way", ErrBackpressure, c.futures)
	case c.nextID == maxSeq:
		return fmt.Errorf("%w: this incarnation has started %d invocations; restart it", ErrLimit, uint64(maxSeq))
	case !c.ensure(now, a.Binding):
		return fmt.Errorf("%w: %v or its table %v is not in the store", ErrNoCode, a.Binding.Image, a.Binding.Table)
	}
	return nil
}

// crowded reports whether there is no room for another future. Near the limit it looks closely: what is
// put off counts neither too much nor too little.
func (c *Core) crowded(now Instant) bool {
	if c.futures < c.lim.Futures && c.invs.n+2 < c.lim.Invocations {
		return false
	}
	c.expand()
	return c.futures >= c.lim.Futures || c.invs.n >= c.lim.Invocations
}

// seated reports whether each root has a worker.
func (a *StartArgs) seated() bool {
	return a.Workers <= MaxWorkers && !slices.ContainsFunc(a.Roots, func(r Root) bool { return r.Worker >= max(a.Workers, 1) })
}

func (a *StartArgs) hopBudget() uint16 {
	if a.Hops == 0 {
		return DefaultHops
	}
	return a.Hops
}

func (c *Core) branchLimit(a *StartArgs) uint32 {
	if a.Branches == 0 {
		return c.lim.Branches
	}
	return a.Branches
}

func (c *Core) newFuture(id InvocationID, a *StartArgs) *future {
	inv := c.newInvocation(id, nil, a.Deadline)
	c.enter(inv)
	if a.Stateful {
		inv.stateful, inv.born = true, a.born
	}
	f := c.futPool.get()
	if f == nil {
		f = new(future)
		f.others.seed = c.cfg.HashSeed
	}
	f.inv, f.binding = inv, a.Binding
	f.root = branch{partBits: f.root.partBits[:0]}
	f.branches, f.pending, f.early, f.finished = 0, 0, 0, 0
	f.limit, f.hops, f.inAll, f.settled, f.waits = c.branchLimit(a), a.hopBudget(), a.Branches != 0, 0, 0
	f.holders, f.roots, f.sentTo = f.holders[:0], f.roots[:0], f.sentTo[:0]
	inv.fut = f
	a.Binding.refs++
	c.futures++
	for i := range a.Roots {
		f.announce(c, uint64(i))
	}
	return f
}

// sendRoot sends a root to its peer, which is nil if it begins here.
func (c *Core) sendRoot(now Instant, id InvocationID, a *StartArgs, i int, hops uint16) (*peer, bool, error) {
	root := &a.Roots[i]
	if root.To == Self {
		return nil, false, nil
	}
	p := c.peer(root.To)
	if p == nil {
		return nil, false, fmt.Errorf("%w: number %d", ErrNoPeer, root.To)
	}
	s := sending{id: id, tenant: &c.own, fromHere: true, stateful: a.Stateful, born: a.born, deadline: a.Deadline,
		binding: a.Binding, branch: uint64(i), hops: hops, worker: root.Worker, workers: a.Workers, trace: a.Trace}
	declares, err := c.sendInject(now, p, &s, root.Payload)
	return p, declares, err
}

// beginRoot queues a root that begins here.
func (c *Core) beginRoot(now Instant, f *future, a *StartArgs, i int, hops uint16) error {
	root := &a.Roots[i]
	if len(root.Payload) > MaxDataBytes {
		return tooLong("payload", len(root.Payload))
	}
	r := c.newRun(f.inv, uint64(i), hops)
	r.binding, r.worker, r.workers = a.Binding, root.Worker, a.Workers
	a.Binding.refs++
	r.Payload = root.Payload
	if a.Trace != nil {
		r.hasTrace, r.trace = true, *a.Trace
	}
	if c.heldRuns >= c.lim.HeldRuns || c.heldBytes+len(r.Payload)+runOverheadBytes > c.lim.HeldBytes {
		c.dropRun(now, r)
		return fmt.Errorf("%w: %d branches wait here with %d bytes, at most %d (Limits.HeldRuns) and %d (Limits.HeldBytes); try again later or raise them",
			ErrBackpressure, c.heldRuns, c.heldBytes, c.lim.HeldRuns, c.lim.HeldBytes)
	}
	c.admit(now, r, false)
	return nil
}

// find returns what is known of a branch, nil if nothing.
func (f *future) find(id uint64) *branch {
	if id == 0 {
		return &f.root
	}
	return f.others.get(id, 0)
}

// know finds or notes a branch; nil if there are too many.
func (f *future) know(c *Core, id uint64) *branch {
	if b := f.find(id); b != nil && (id != 0 || b.announced) {
		return b
	}
	if f.branches >= f.limit && !f.forget(c) {
		return nil
	}
	f.branches++
	f.early++
	if id == 0 {
		return &f.root
	}
	b := c.branchPool.get()
	if b == nil {
		b = new(branch)
	}
	*b = branch{id: id, partBits: b.partBits[:0]}
	f.others.put(id, 0, b)
	return b
}

// forget drops the records of branches that have ended, and nothing more is to come of; false: they are too few to be
// worth the search, so that as many as the limit are under way, or the limit counts them too. What is
// forgotten can still be reported as lost: the future then fails, although it need not.
func (f *future) forget(c *Core) bool {
	if f.inAll || f.settled == 0 || f.settled < f.limit/4 {
		return false
	}
	var gone []*branch
	for i := range f.others.slots {
		b := f.others.slots[i].v
		if b == nil {
			continue
		}
		if b.counted {
			gone = append(gone, b)
		}
	}
	for _, b := range gone {
		f.others.del(b.id, 0)
		c.branchPool.put(b)
	}
	f.branches -= uint32(len(gone))
	f.settled = 0
	return true
}

// count notes that a branch has ended and that all of it is in.
func (f *future) count(b *branch) {
	b.counted = true
	f.finished++
	if b != &f.root {
		f.settled++
	}
}

// announce notes that a branch exists; false if there are too many.
func (f *future) announce(c *Core, id uint64) bool {
	b := f.know(c, id)
	if b == nil {
		return false
	}
	if !b.announced {
		b.announced = true
		f.early--
		if !b.complete() {
			f.pending++
		} else {
			f.count(b)
		}
	}
	return true
}

// progress counts a branch as finished once all of it is in, and completes the
// future with the last one.
func (c *Core) progress(now Instant, f *future, b *branch) {
	if b.announced && !b.counted && b.complete() {
		f.count(b)
		f.pending--
	}
	if f.pending == 0 && f.early == 0 {
		c.outcome = Outcome{Branches: f.finished}
		c.stats.Succeeded++
		id := FutureID(f.inv.id.Seq)
		c.endFuture(now, f, false)
		c.fx.Complete(id, &c.outcome)
	}
}

// ended takes a DONE, from a peer or (p nil) from here. forks are those of a
// local one; a message brings its own.
func (c *Core) ended(now Instant, f *future, p *peer, m *doneMsg, forks []uint64) {
	b := f.know(c, m.branch)
	if b == nil {
		c.tooMany(now, f)
		return
	}
	if b.done {
		c.stats.Duplicates++
		return
	}
	if m.flags&doneHolds != 0 {
		f.holder(p)
	}
	if m.flags&doneError != 0 {
		if m.settled && m.lists == 0 && len(forks)+len(m.forks) == 0 {
			b.done, b.parts = true, b.gotParts // nothing of it is left anywhere
			if b.announced {
				f.pending--
				b.counted = true
			}
		}
		e := &RemoteError{Branch: m.branch, Code: m.code, Status: m.status,
			Element: string(m.element), Function: string(m.function), Text: string(m.text)}
		if m.code == CodeHopLimit { // only the origin knows how much there was
			e.Text += fmt.Sprintf(" (a budget of %d; %d is none)", f.hops, MaxHops)
		}
		c.fail(now, f, e)
		return
	}
	b.done, b.parts, b.lists = true, m.parts, m.lists
	for _, id := range forks {
		if !f.announce(c, id) {
			c.tooMany(now, f)
			return
		}
	}
	for l := m.forks; len(l) > 0; l = l[8:] {
		if !f.announce(c, le.Uint64(l)) {
			c.tooMany(now, f)
			return
		}
	}
	if m.flags&doneResult != 0 {
		c.fx.Part(FutureID(f.inv.id.Seq), b.id, m.parts, true, m.result)
	}
	c.progress(now, f, b)
}

func (c *Core) tooMany(now Instant, f *future) {
	what := "at once in one invocation"
	if f.inAll {
		what = "in one invocation"
	}
	c.fail(now, f, fmt.Errorf("%w: more than %d %s", ErrForkLimit, f.limit, what))
}

func (f *future) holder(p *peer) {
	if p != nil && !slices.Contains(f.holders, p) {
		f.holders = append(f.holders, p)
	}
}

// part takes one part of a branch's result.
func (c *Core) part(now Instant, f *future, id uint64, index uint32, data []byte) {
	b := f.know(c, id)
	if b == nil {
		c.tooMany(now, f)
		return
	}
	if index >= c.lim.Parts {
		c.fail(now, f, fmt.Errorf("%w: branch %x sent part %d, at most %d are taken", ErrPartLimit, id, index, c.lim.Parts))
		return
	}
	w := int(index / 64)
	for len(b.partBits) <= w {
		b.partBits = append(b.partBits, 0)
	}
	if b.partBits[w]&(1<<(index%64)) != 0 || b.done && b.gotParts == b.parts {
		c.stats.Duplicates++
		return
	}
	b.partBits[w] |= 1 << (index % 64)
	b.gotParts++
	c.fx.Part(FutureID(f.inv.id.Seq), id, index, false, data)
	c.progress(now, f, b)
}

// listed takes one list of a branch's forks.
func (c *Core) listed(now Instant, f *future, id uint64, index uint32, forks []byte) {
	b := f.know(c, id)
	if b == nil {
		c.tooMany(now, f)
		return
	}
	if b.listBits&(1<<index) != 0 || b.done && b.gotLists == b.lists {
		c.stats.Duplicates++
		return
	}
	b.listBits |= 1 << index
	b.gotLists++
	for ; len(forks) > 0; forks = forks[8:] {
		if !f.announce(c, le.Uint64(forks)) {
			c.tooMany(now, f)
			return
		}
	}
	c.progress(now, f, b)
}

// lost takes the loss of a branch. One that has ended cannot be lost.
func (c *Core) lost(now Instant, f *future, id uint64, err error) {
	if b := f.find(id); b != nil && b.complete() {
		c.stats.Late++
		return
	}
	c.fail(now, f, err)
}

// deadlineError names what had not ended, and where that may be: an element that could would have said so by now.
func (c *Core) deadlineError(f *future) error {
	e := &DeadlineError{Pending: f.pending, Named: f.named()}
	here := f.inv.runs.n
	if here > 0 {
		e.Elements = append(e.Elements, c.cfg.Name)
	}
	for _, p := range c.peers {
		switch {
		case here >= f.pending: // it has all of them
		case p == nil || !f.mayBeAt(p) || !f.unfinishedAt(p) || slices.Contains(e.Elements, p.Name):
		case len(e.Elements) < maxNamed:
			e.Elements = append(e.Elements, p.Name)
		default:
			e.More++
		}
	}
	if len(e.Elements) == 0 { // nobody else has one: it was not sent, or what was reported of it is incomplete
		e.Elements = append(e.Elements, c.cfg.Name)
	}
	return e
}

// unfinishedAt reports whether a branch that has not ended may be at a peer: roots of a function that goes nowhere are where they were sent.
func (f *future) unfinishedAt(p *peer) bool {
	if len(f.binding.Elements) > 0 {
		return true
	}
	for i, at := range f.roots {
		if at != p {
			continue
		}
		if b := f.find(uint64(i)); b != nil && !b.counted { // nil: it ended, and was forgotten
			return true
		}
	}
	return f.branches > uint32(len(f.roots)) // some were forked
}

// named are some of the branches that have not ended.
func (f *future) named() (ids []uint64) {
	if f.root.announced && !f.root.counted {
		ids = append(ids, 0)
	}
	for i := range f.others.slots {
		if b := f.others.slots[i].v; b != nil && b.announced && !b.counted {
			ids = append(ids, b.id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), maxNamed)]
}

// unfinished is one of them.
func (f *future) unfinished() uint64 {
	if ids := f.named(); len(ids) > 0 {
		return ids[0]
	}
	return 0
}

// fail ends a future with an error.
func (c *Core) fail(now Instant, f *future, err error) {
	id := FutureID(f.inv.id.Seq)
	out := Outcome{Err: err, Branches: f.finished}
	c.stats.Failed++
	c.endFuture(now, f, f.pending > 0 || f.early > 0)
	c.outcome = out
	c.fx.Complete(id, &c.outcome)
}

// Cancel ends a future with ErrCanceled.
func (c *Core) Cancel(now Instant, id FutureID) error {
	c.expand()
	inv := c.invs.get(uint64(id), c.cfg.Self)
	if inv == nil || inv.fut == nil {
		return fmt.Errorf("%w: %d has ended or never was", ErrNoFuture, id)
	}
	c.fail(now, inv.fut, ErrCanceled)
	return nil
}

// endFuture lets go of everything. Peers that may have branches hear CANCEL;
// if there are none, peers that keep scratch hear FREE.
func (c *Core) endFuture(now Instant, f *future, outstanding bool) {
	inv := f.inv
	if outstanding {
		c.sendCancels(now, f)
	} else {
		for _, p := range f.holders {
			c.out = appendU40(c.out[:0], inv.id.Seq)
			c.send(p, KindFree, c.out, nil)
		}
	}
	inv.fut = nil
	c.unref(f.binding)
	f.binding.used = now
	f.binding, f.inv = nil, nil
	for i := range f.others.slots {
		if b := f.others.slots[i].v; b != nil {
			c.branchPool.put(b)
		}
	}
	f.others.clear()
	clear(f.holders)
	clear(f.roots)
	clear(f.sentTo)
	c.futures--
	c.futPool.put(f)
	c.kill(now, inv, CodeOK, "")
}
