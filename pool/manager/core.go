package manager

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

const (
	// retryTime is the pause before a store or a component that gave no answer is asked again.
	retryTime = 500 * time.Millisecond
	// heldTime is how often a component is asked what it holds, besides when it comes: what no region has any more is freed then.
	heldTime = time.Minute
	// calmTime is how long after the store was away or stood still, or this manager did or began, no component counts as lost: each has this long to
	// register again.
	calmTime = LeaseTime + 2*time.Second
	// graceTime is how long a component counts as there after its entry has gone: one that is alive registers again within RenewTime.
	graceTime = RenewTime * 5 / 4
	// jobTime bounds a request whose asker set no deadline.
	jobTime = 20 * time.Second
)

// Effects are what a Core wants done. Each but Reply has an outcome, which the Core is told by a method.
type (
	// Commit is a transaction.
	Commit struct {
		ID  uint64
		Txn cluster.Txn
	}
	// Lease begins a lease of LeaseTime, Renew goes on with one.
	Lease struct{ ID uint64 }
	Renew struct {
		ID    uint64
		Lease cluster.Lease
	}
	// Load reads everything under a prefix.
	Load struct {
		ID     uint64
		Prefix string
	}
	// Sync reads what is under a prefix, so that the Core knows which revisions it has to wait for.
	Sync struct{ Prefix string }
	// Tell makes a call to a component. Req and the answer are package pool's.
	Tell struct {
		ID        uint64
		Component string
		Call      string
		Req       any
	}
	// Reply answers a request.
	Reply struct {
		Ticket uint64
		Answer any
		Err    error
	}
)

// Config says which manager a Core is.
type Config struct {
	cluster.Member                     // its name and addresses
	Incarnation    cluster.Incarnation // of this life
	Store          string              // for people
}

// Core is one manager's logic. It is used by one goroutine at a time.
type Core struct {
	cfg       Config
	instance  string
	view      view
	loaded    bool             // the view is whole,
	sightless time.Duration    // or is not since then
	at        cluster.Revision // of the last load or change
	ahead     []committed      // this manager's transactions after at, by revision
	effects   []any

	next    uint64 // id of the next effect
	waits   map[uint64]func(now time.Duration, out outcome)
	jobs    map[uint64]*job
	by      map[string]int // jobs, by principal
	works   map[uint16]*work
	placing uint64           // the job or region whose transaction takes or frees extents; 0: none. One at a time
	stale   cluster.Revision // value of view.placed that was too old for a transaction

	listed struct { // members, as at a value of the view's
		of     uint64
		list   []cluster.Member
		digest cluster.Revision
	}
	self    struct{ lease cluster.Lease } // this manager's own entry
	renewAt time.Duration
	busy    bool          // a renewal of the own entry is under way,
	asked   time.Duration // since then
	ran     time.Duration // when the Core was told of anything last
	retryAt time.Duration
	syncing bool // a Sync is under way,
	synced  []*job

	held      map[string]time.Duration // components, and when they are asked next what they hold
	found     []foundHeld              // answers that wait for the load
	foundLoad uint64                   // of this number; 0: there are none
	later     []foundHeld              // answers that came since that load began

	calm     time.Duration            // until then no component counts as lost: none could be heard of for a while
	missing  map[string]time.Duration // keys of components and managers that have gone from the store, and until when these count as there
	leasedTo map[uint16]uint64        // regions that go with a connection
}

// outcome is how an effect ended.
type outcome struct {
	rev   cluster.Revision
	lease cluster.Lease
	reply any
	err   error
}

// New makes a Core. The first thing that it wants is a Load.
func New(cfg Config) *Core {
	c := &Core{cfg: cfg, instance: fmt.Sprintf("%s-%v", cfg.Name, cfg.Incarnation), view: newView(), waits: map[uint64]func(time.Duration, outcome){},
		jobs: map[uint64]*job{}, by: map[string]int{}, works: map[uint16]*work{}, held: map[string]time.Duration{},
		missing: map[string]time.Duration{}, leasedTo: map[uint16]uint64{}, sightless: -RenewTime}
	c.load()
	return c
}

// Effects are what the Core wants done since it was asked last.
func (c *Core) Effects() []any {
	out := c.effects
	c.effects = nil
	return out
}

func (c *Core) do(e any) { c.effects = append(c.effects, e) }

// load reads everything anew.
func (c *Core) load() uint64 {
	c.next++
	c.do(Load{c.next, prefix})
	return c.next
}

// wait numbers an effect whose outcome then is told.
func (c *Core) wait(then func(now time.Duration, out outcome)) uint64 {
	c.next++
	c.waits[c.next] = then
	return c.next
}

func (c *Core) ended(now time.Duration, id uint64, out outcome) {
	then := c.waits[id]
	delete(c.waits, id)
	if then != nil {
		then(now, out)
	}
	c.step(now)
}

// Committed is the outcome of a Commit.
func (c *Core) Committed(now time.Duration, id uint64, rev cluster.Revision, err error) {
	c.ended(now, id, outcome{rev: rev, err: err})
}

// Leased is the outcome of a Lease.
func (c *Core) Leased(now time.Duration, id uint64, lease cluster.Lease, err error) {
	c.ended(now, id, outcome{lease: lease, err: err})
}

// Renewed is the outcome of a Renew.
func (c *Core) Renewed(now time.Duration, id uint64, err error) {
	c.ended(now, id, outcome{err: err})
}

// Told is the outcome of a Tell.
func (c *Core) Told(now time.Duration, id uint64, reply any, err error) {
	c.ended(now, id, outcome{reply: reply, err: err})
}

// Loaded is the outcome of a Load. The Core's caller tells of changes after rev from then on.
func (c *Core) Loaded(now time.Duration, id uint64, list []cluster.Pair, rev cluster.Revision, err error) {
	if err != nil {
		c.lostSight(now)
		if id == c.foundLoad {
			c.found, c.foundLoad = nil, 0 // they are asked again
		}
		return
	}
	if !c.loaded && now-c.sightless >= RenewTime {
		c.keepCalm(now)
	}
	c.loaded, c.retryAt = true, 0
	if rev >= c.at { // else changes were told of that are newer
		was := c.view
		c.view, c.at = newView(), rev
		c.view.members = was.members + 1 // the list may be another one
		for _, p := range list {
			c.view.apply(p)
		}
		for _, t := range c.beyond() { // or one that was made since would stand in the view without what it was decided by
			c.apply(t)
		}
		c.view.lacks(&was)
	}
	if id == c.foundLoad {
		c.checkHeld()
	}
	c.step(now)
}

// lostSight: the view may be wrong, and is to be loaded.
func (c *Core) lostSight(now time.Duration) {
	if c.loaded {
		c.loaded, c.sightless = false, now
	}
	c.retryAt = now + retryTime
}

// Changed tells of changes, in order, up to a revision.
func (c *Core) Changed(now time.Duration, list []cluster.Pair, at cluster.Revision) {
	for _, p := range list {
		if p.Changed > c.at {
			c.view.apply(p)
		}
	}
	c.at = max(c.at, at)
	c.beyond()
	c.step(now)
}

// Reload has the Core ask for all that is in the store anew: changes after those that it was told of last were missed.
func (c *Core) Reload() {
	c.loaded = false
	c.load()
}

// Synced is the outcome of a Sync.
func (c *Core) Synced(now time.Duration, list []cluster.Pair, err error) {
	c.syncing = false
	var there view
	there.changed(list)
	if err == nil && there.placed <= c.stale {
		c.stale = 0 // no manager took or freed extents: there is nothing newer to wait for
	}
	for _, j := range c.synced {
		if err != nil {
			c.finish(j, nil, err)
		} else {
			j.placed, j.lost, j.known, j.syncing = there.placed, there.lost, true, false
		}
	}
	c.synced = nil
	c.step(now)
}

// sync has a job wait for a Sync that begins after it.
func (c *Core) sync() {
	if c.syncing {
		return
	}
	for _, j := range c.ordered() {
		if j.wantsSync() {
			j.syncing = true
			c.synced = append(c.synced, j)
		}
	}
	if len(c.synced) > 0 {
		c.syncing = true
		c.do(Sync{keyPlaced})
	}
}

// keepCalm lets no component count as lost for a while.
func (c *Core) keepCalm(now time.Duration) { c.calm = max(c.calm, now+calmTime) }

// look notices that this manager or the store stood still: leases ran out meanwhile, whether those who hold them are alive or not. It also notices which
// entries have gone. Nothing is decided before it.
func (c *Core) look(now time.Duration) {
	if now-c.ran > RenewTime || c.busy && now-c.asked > RenewTime {
		c.keepCalm(now)
	}
	c.ran = now
	for _, key := range c.view.left {
		if c.missing[key] = now + graceTime; key == keyManager+c.instance {
			c.keepCalm(now) // this manager is alive, so others may be
		}
	}
	c.view.left = nil
}

// endCalm has regions looked at once what they lack may count as lost.
func (c *Core) endCalm(now time.Duration) {
	if c.calm != 0 && now >= c.calm {
		c.calm = 0
		c.view.allDirty()
	}
	for key, until := range c.missing {
		if now >= until {
			delete(c.missing, key)
			c.view.allDirty()
		}
	}
}

// Tick says how late it is.
func (c *Core) Tick(now time.Duration) {
	c.look(now)
	if c.retryAt != 0 && now >= c.retryAt {
		c.retryAt = 0
		c.load()
	}
	if now >= c.renewAt && !c.busy {
		c.renewSelf(now)
	}
	if c.loaded && !c.mayPlace() && c.placing == 0 && !c.syncing { // it may be the region's own record that was too old
		c.syncing = true
		c.do(Sync{keyPlaced})
	}
	for _, j := range c.ordered() {
		if now >= j.deadline {
			c.finish(j, nil, fmt.Errorf("%w: %w", ErrTime, c.why(j)))
		}
	}
	c.endCalm(now)
	c.askHeld(now)
	c.step(now)
}

// why says what a job still waits for.
func (c *Core) why(j *job) error {
	switch w := c.works[j.region]; {
	case !c.loaded:
		return c.away()
	case j.last != nil:
		return j.last
	case w != nil && w.last != nil:
		return w.last
	}
	return errors.New("its turn did not come")
}

// step does what can be done now.
func (c *Core) step(now time.Duration) {
	if c.look(now); !c.loaded {
		return
	}
	c.drive(now)
	for _, j := range c.ordered() {
		c.advance(j)
	}
	c.drive(now)
	c.sync()
}

// ordered are the jobs in the order in which they came.
func (c *Core) ordered() []*job {
	list := make([]*job, 0, len(c.jobs))
	for _, j := range c.jobs {
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job) int { return int(a.ticket) - int(b.ticket) })
	return list
}

// commit makes a transaction and applies it to the view once it is made.
func (c *Core) commit(t cluster.Txn, then func(now time.Duration, rev cluster.Revision, err error)) {
	c.do(Commit{c.wait(func(now time.Duration, out outcome) {
		switch {
		case out.err == nil:
			c.applied(t, out.rev)
		case !errors.Is(out.err, cluster.ErrConflict) && !errors.Is(out.err, cluster.ErrLease) && !errors.Is(out.err, cluster.ErrTxn):
			c.lostSight(now) // it may have been made: look
		}
		then(now, out.rev, out.err)
	}), t})
}

// committed is a transaction that was made.
type committed struct {
	cluster.Txn
	rev cluster.Revision
}

// applied puts a transaction into the view before the watch tells of it. If the watch was first, what it told of may be undone since.
func (c *Core) applied(t cluster.Txn, rev cluster.Revision) {
	if rev <= c.at {
		return
	}
	c.ahead = append(c.ahead, committed{t, rev})
	slices.SortFunc(c.ahead, func(a, b committed) int { return cmp.Compare(a.rev, b.rev) })
	c.apply(committed{t, rev})
}

func (c *Core) apply(t committed) {
	for _, p := range t.Put {
		p.Changed = t.rev
		c.view.apply(p)
	}
	for _, key := range t.Remove {
		c.view.apply(cluster.Pair{Key: key, Changed: t.rev, Removed: true})
		c.view.removed[key] = t.rev
	}
}

// beyond are the transactions that the last load or change does not tell of.
func (c *Core) beyond() []committed {
	c.ahead = slices.DeleteFunc(c.ahead, func(t committed) bool { return t.rev <= c.at })
	return c.ahead
}

// placedTxn is a transaction that takes or frees extents, if no other manager has since this one looked.
func (c *Core) placedTxn(id uint16, rev cluster.Revision) cluster.Txn {
	return cluster.Txn{If: map[string]cluster.Revision{keyPlaced: c.view.placed, regionKey(id): rev}, Put: []cluster.Pair{{Key: keyPlaced, Value: []byte(c.instance)}}}
}

// commitPlaced makes such a transaction for an owner, a job or a region. The owner must have asked mayPlace.
func (c *Core) commitPlaced(owner uint64, t cluster.Txn, then func(now time.Duration, rev cluster.Revision, err error)) {
	seen := c.view.placed
	c.placing = owner
	c.commit(t, func(now time.Duration, rev cluster.Revision, err error) {
		c.placing = 0
		if errors.Is(err, cluster.ErrConflict) {
			c.stale = seen
		}
		then(now, rev, err)
	})
}

// mayPlace reports whether a transaction of extents may begin: none is under way, and the view is newer than the last that was refused.
func (c *Core) mayPlace() bool {
	return c.placing == 0 && (c.stale == 0 || c.view.placed > c.stale)
}

// put is a region's record as a pair.
func put(r *record) cluster.Pair {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers and text
	}
	return cluster.Pair{Key: regionKey(r.Region), Value: text}
}

// renewSelf keeps this manager's own entry.
func (c *Core) renewSelf(now time.Duration) {
	c.busy, c.asked, c.renewAt = true, now, now+RenewTime
	// ended judges the store by a call: where this one fails or takes long, so do those that renew leases of components.
	ended := func(now time.Duration, err error) {
		if c.busy = false; err != nil || now-c.asked > RenewTime {
			c.keepCalm(now)
		}
	}
	if l := c.self.lease; l != 0 {
		c.do(Renew{c.wait(func(now time.Duration, out outcome) {
			if ended(now, out.err); errors.Is(out.err, cluster.ErrLease) {
				c.self.lease, c.renewAt = 0, now
			}
		}), l})
		return
	}
	c.do(Lease{c.wait(func(now time.Duration, out outcome) {
		if out.err != nil {
			ended(now, out.err)
			return
		}
		text, err := json.Marshal(managerEntry{c.cfg.Member, c.instance})
		if err != nil {
			panic(err) // text
		}
		c.do(Commit{c.wait(func(now time.Duration, o outcome) {
			if ended(now, o.err); o.err == nil {
				c.self.lease = out.lease
			}
		}), cluster.Txn{Put: []cluster.Pair{{Key: keyManager + c.instance, Value: text, Lease: out.lease}}}})
	})})
}

// table is a region as a client gets it: without keys, which components give.
func (c *Core) table(r *record, rights string) *pool.Table {
	t := &pool.Table{Info: r.info(rights)}
	off := uint64(0)
	for _, p := range r.Parts {
		if off >= r.Size {
			break // room for a later resize
		}
		at := r.Places[p.Place]
		t.Parts = append(t.Parts, pool.Extent{Off: off, Size: min(p.Size, r.Size-off), Component: at.Name, Lost: at.Lost})
		off += p.Size
	}
	for _, p := range r.Places {
		if c.view.alive(p) {
			t.Members = append(t.Members, c.view.components[p.Name].Member)
		}
	}
	return t
}

func (r *record) info(rights string) pool.Info {
	i := pool.Info{Region: r.Region, Epoch: r.Epoch, Made: r.Made, Name: r.Name, Owner: r.Owner, Size: r.Size, Extents: len(r.Parts), Leased: r.Leased != "", Rights: rights}
	for _, p := range r.Places {
		if p.Lost {
			i.Lost = append(i.Lost, p.Name)
		} else {
			i.Placed = append(i.Placed, p.Name)
		}
	}
	return i
}
