package manager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

var trials = seeds.Flags("./pool/manager")

// world is a cluster in the simulator: managers are the real Core, the store is cluster.Memory, components are models. Every effect, answer and change
// takes a time of its own, calls and answers get lost, and who acts is drawn by chance.
type world struct {
	*sim.World
	t     seeds.Fail
	store *cluster.Memory
	still time.Duration // the store stands still until then: no lease ends, and no call has an outcome
	loose bool          // the store forgets conditions: the checks must notice
	lossy float64       // of calls to the store and to components: lost before or after they happened

	managers   []*simManager
	components []*simComponent
	made       map[string]*pool.Table // that were answered, and are not known to be destroyed
	unsure     map[string]bool        // names of which nobody knows
	ending     map[string]int         // destroys under way
	ticket     uint64
	replies    map[uint64]func(answer any, err error)
	done       int
}

type simManager struct {
	w     *world
	name  string
	life  int // 0: down
	lives int
	core  *manager.Core
	after cluster.Revision
	ready bool          // loaded once in this life
	still time.Duration // it stands still until then: whatever it is to be told waits
}

type simComponent struct {
	w        *world
	name     string
	life     int
	up       bool
	cut      bool // off: nobody hears of it, and it hears nothing
	capacity uint64
	most     uint64 // what it takes of that, as a component refuses what is above a principal's bound; 0: all
	lease    cluster.Lease
	seen     cluster.Revision
	known    []*simManager // that it registers with, the one that it asks first; at first, one
	held     map[uint16]*simHeld
}

// simHeld is what a component has of a region: the rules of pool/component.
type simHeld struct {
	made, epoch, size uint64
	owner             string
	parts             map[pool.Range]bool
}

func (w *world) now() time.Duration { return time.Duration(w.Now()) }

func (w *world) fail(format string, args ...any) {
	w.t("%v: %s", w.World, fmt.Sprintf(format, args...))
}

func (w *world) later(do func()) { w.After(w.Between(time.Millisecond, 30*time.Millisecond), do) }

func (w *world) chance(p float64) bool { return w.Rand.Float64() < p }

// boot begins a manager's life.
func (m *simManager) boot() {
	m.lives++
	m.life, m.ready, m.after = m.lives, false, 0
	m.core = manager.New(manager.Config{Member: cluster.Member{Name: m.name, Addrs: []string{"sim://" + m.name}},
		Incarnation: cluster.Incarnation(m.life), Store: "the simulator"})
	m.tick(m.life)
	m.watch(m.life)
	m.carryOut()
}

func (m *simManager) tick(life int) {
	if m.life == life && m.w.waits(m.still, func() { m.tick(life) }) {
		return
	}
	if m.life == life {
		m.core.Tick(m.w.now())
		m.carryOut()
		m.w.After(100*time.Millisecond, func() { m.tick(life) })
	}
}

// watch tells of changes a while after they were made.
func (m *simManager) watch(life int) {
	if m.life != life || m.w.waits(max(m.still, m.w.still), func() { m.watch(life) }) {
		return
	}
	if m.ready {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		list, at, err := m.w.store.Watch(ended, "/wherry/1/", m.after)
		switch {
		case err == nil:
			m.after = at
			m.core.Changed(m.w.now(), list, at)
		case errors.Is(err, cluster.ErrCompacted):
			m.ready = false
			m.core.Reload()
		}
		m.carryOut()
	}
	m.w.After(m.w.Between(time.Millisecond, 40*time.Millisecond), func() { m.watch(life) })
}

// then brings an outcome to the life that it is for.
func (m *simManager) then(do func()) {
	life := m.life
	m.w.later(func() { m.told(life, do) })
}

// told brings it, or has it wait until the manager goes on.
func (m *simManager) told(life int, do func()) {
	if m.life != life || m.w.waits(m.still, func() { m.told(life, do) }) {
		return
	}
	do()
	m.carryOut()
}

// waits has something done once a time has come that has not yet, in any order with what else waits for that time.
func (w *world) waits(until time.Duration, do func()) bool {
	if until <= w.now() {
		return false
	}
	w.After(until-w.now()+w.Between(0, 20*time.Millisecond), do)
	return true
}

// stall has the store or a manager stand still.
func (w *world) stall(still *time.Duration, d time.Duration) { *still = max(*still, w.now()+d) }

// revoke ends all leases, whoever holds them is alive: so does an etcd leader that stood still, comes back and has not heard yet that there is another one.
func (w *world) revoke() {
	list, _, _ := w.store.Get(context.Background(), "/wherry/1/")
	for _, p := range list {
		if p.Lease != 0 {
			w.store.End(context.Background(), p.Lease) // it fails where a pair before had the same one
		}
	}
}

// lost says that no answer comes, or none to a call that was not made either.
func (w *world) lost() (call, answer bool) {
	if !w.chance(w.lossy) {
		return false, false
	}
	return w.chance(0.5), true
}

func (m *simManager) carryOut() {
	w, life := m.w, m.life
	for _, e := range m.core.Effects() {
		w.later(func() { m.try(life, e) })
	}
}

// storeTime is how long a manager waits for the store, renewTime how long for a renewal.
const (
	storeTime = 5 * time.Second
	renewTime = manager.RenewTime * 3 / 4
)

// try carries an effect out, once the store does: or has it fail.
func (m *simManager) try(life int, e any) {
	w := m.w
	_, tell := e.(manager.Tell)
	_, reply := e.(manager.Reply)
	patience := storeTime
	if _, renew := e.(manager.Renew); renew {
		patience = renewTime
	}
	switch left := w.still - w.now(); {
	case tell || reply || left <= 0:
		m.effect(e, false)
	case left < patience:
		w.waits(w.still, func() { m.try(life, e) })
	default:
		w.After(patience, func() {
			if m.life == life {
				m.effect(e, true)
			}
		})
	}
}

func (m *simManager) effect(e any, away bool) {
	w, ctx := m.w, context.Background()
	noCall, noAnswer := w.lost()
	noCall, noAnswer = noCall || away, noAnswer || away
	outcome := func(err error) error {
		if noAnswer {
			return cluster.ErrAway
		}
		return err
	}
	switch e := e.(type) {
	case manager.Commit:
		var rev cluster.Revision
		var err error
		if w.loose {
			e.Txn.If = nil
		}
		if !noCall {
			rev, err = w.store.Commit(ctx, e.Txn)
			if len(e.Txn.If) != 1 { // it takes or frees extents
				w.checkStore()
			}
		}
		m.then(func() { m.core.Committed(w.now(), e.ID, rev, outcome(err)) })
	case manager.Lease:
		l, err := w.store.Lease(ctx, manager.LeaseTime)
		m.then(func() { m.core.Leased(w.now(), e.ID, l, outcome(err)) })
	case manager.Renew:
		var err error
		if !away {
			err = w.store.Renew(ctx, e.Lease)
		}
		m.then(func() { m.core.Renewed(w.now(), e.ID, outcome(err)) })
	case manager.Load:
		list, rev, err := w.store.Get(ctx, e.Prefix)
		m.then(func() {
			if err = outcome(err); err == nil {
				m.after, m.ready = max(m.after, rev), true
			}
			m.core.Loaded(w.now(), e.ID, list, rev, err)
		})
	case manager.Sync:
		list, _, err := w.store.Get(ctx, e.Prefix)
		m.then(func() { m.core.Synced(w.now(), list, outcome(err)) })
	case manager.Tell:
		c := w.component(e.Component)
		var reply any
		err := error(fabric.ErrPeerLost)
		if c != nil && c.up && !c.cut && !noCall {
			reply, err = c.serve(e.Req)
		}
		if noAnswer {
			reply, err = nil, fabric.ErrPeerLost
		}
		m.then(func() { m.core.Told(w.now(), e.ID, reply, err) })
	case manager.Reply:
		if got := w.replies[e.Ticket]; got != nil {
			delete(w.replies, e.Ticket)
			got(e.Answer, e.Err)
		}
	}
}

func (w *world) component(name string) *simComponent {
	for _, c := range w.components {
		if c.name == name {
			return c
		}
	}
	return nil
}

// serve is what pool/component does.
func (c *simComponent) serve(req any) (any, error) {
	switch req := req.(type) {
	case *pool.ReserveRequest:
		return &pool.Nothing{}, c.reserve(req)
	case *pool.ReleaseRequest:
		h := c.held[req.Region]
		switch {
		case h == nil:
			return &pool.Nothing{}, nil
		case req.Epoch < h.epoch:
			return nil, pool.ErrMoved
		}
		for _, p := range req.Parts {
			delete(h.parts, p)
		}
		if len(req.Parts) == 0 || len(h.parts) == 0 {
			delete(c.held, req.Region)
		}
		return &pool.Nothing{}, nil
	case *pool.Nothing:
		reply := &pool.HeldReply{}
		for _, id := range slices.Sorted(maps.Keys(c.held)) {
			one := pool.Held{Region: id, Epoch: c.held[id].epoch}
			for p := range c.held[id].parts {
				one.Parts = append(one.Parts, p)
			}
			reply.Parts = append(reply.Parts, one)
		}
		return reply, nil
	}
	panic(fmt.Sprintf("%T", req))
}

func (c *simComponent) reserve(req *pool.ReserveRequest) error {
	h := c.held[req.Region]
	if h != nil && h.made < req.Made {
		delete(c.held, req.Region)
		h = nil
	}
	if h != nil && (req.Epoch < h.epoch || req.Made < h.made) {
		return pool.ErrMoved
	}
	used, more := uint64(0), uint64(0)
	for _, other := range c.held {
		for p := range other.parts {
			used += p.Size
		}
	}
	for _, p := range req.Parts {
		if h == nil || !h.parts[p] {
			more += p.Size
		}
	}
	if used+more > c.capacity || c.most > 0 && used+more > c.most {
		return fmt.Errorf("%w: %d of %d are used, %d more are asked for", pool.ErrMemory, used, c.capacity, more)
	}
	if h == nil {
		h = &simHeld{made: req.Made, parts: map[pool.Range]bool{}}
		c.held[req.Region] = h
	}
	h.epoch, h.size, h.owner = req.Epoch, req.Size, req.Owner
	for _, p := range req.Parts {
		h.parts[p] = true
	}
	return nil
}

// register has a component tell a manager of itself, each second, and another one after one that gave no answer. At first it knows one, as package node may.
func (c *simComponent) register(life int) {
	w, answered := c.w, false
	if !c.up || c.life != life {
		return
	}
	if len(c.known) == 0 {
		c.known = []*simManager{w.managers[w.Rand.IntN(len(w.managers))]}
	}
	c.registerWith(c.known[0], life, func(r *manager.RegisterReply) {
		answered = true
		for _, m := range w.managers {
			if slices.Contains(r.Managers, m.name) && !slices.Contains(c.known, m) {
				c.known = append(c.known, m)
			}
		}
	})
	w.After(manager.RenewTime+w.Between(0, 50*time.Millisecond), func() {
		if !answered {
			c.known = append(c.known[1:], c.known[0])
		}
		c.register(life)
	})
}

func (c *simComponent) registerWith(m *simManager, life int, then func(*manager.RegisterReply)) {
	w := c.w
	if m.life != 0 && w.waits(m.still, func() { c.registerWith(m, life, then) }) {
		return // the manager finds it when it goes on
	}
	if c.cut || m.life == 0 || w.chance(w.lossy) {
		return
	}
	w.ticket++
	w.replies[w.ticket] = func(answer any, err error) {
		if r, ok := answer.(*manager.RegisterReply); ok && c.life == life && c.up && !c.cut {
			c.lease, c.seen = r.Lease, r.Members
			then(r)
		}
	}
	m.core.Register(w.now(), w.ticket, manager.RegisterRequest{Member: cluster.Member{Name: c.name, Addrs: []string{"sim://" + c.name}},
		Incarnation: cluster.Incarnation(life), Capacity: c.capacity, Lease: c.lease, Seen: c.seen})
	m.carryOut()
}

func (c *simComponent) boot() {
	c.life++
	c.up, c.lease, c.held = true, 0, map[uint16]*simHeld{}
	life := c.life
	c.w.After(c.w.Between(0, manager.RenewTime), func() { c.register(life) })
}

// checkStore: the bytes of a component's life are promised once. That is what "no extent given twice" means where each extent has bytes of its own.
func (w *world) checkStore() {
	list, _, _ := w.store.Get(context.Background(), "/wherry/1/")
	regions, components := manager.StoredRegions(list)
	used := map[string]uint64{}
	names := map[string]bool{}
	for _, r := range regions {
		if r.Name != "" && names[r.Name] {
			w.fail("two regions have the name %q", r.Name)
		}
		names[r.Name] = true
		r.Extents(func(name string, inc cluster.Incarnation, lost, _ bool, _, size uint64) {
			if c, there := components[name]; there && c.Incarnation == inc && !lost {
				used[name] += size
			}
		})
	}
	for name, n := range used {
		if n > components[name].Capacity {
			w.fail("%d bytes of component %s are given, and it has %d", n, name, components[name].Capacity)
		}
	}
}
