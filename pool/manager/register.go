package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// Register takes what a component says of itself, for the Reply of that ticket.
func (c *Core) Register(now time.Duration, ticket uint64, req RegisterRequest) {
	old := c.view.components[req.Name]
	switch {
	case req.Validate() != nil:
		c.do(Reply{ticket, nil, fmt.Errorf("%w: %w", cluster.ErrName, req.Validate())})
	case !c.loaded && req.Lease == 0:
		c.do(Reply{ticket, nil, c.away()})
	case !c.loaded:
		c.renewUnseen(ticket, req)
	case old == nil && len(c.view.components) >= MaxComponents:
		c.do(Reply{ticket, nil, fmt.Errorf("%w: %d components, the most there can be", ErrBusy, MaxComponents)})
	case old != nil && old.Incarnation != req.Incarnation:
		c.do(Reply{ticket, nil, fmt.Errorf("%w: another life of %q was heard of in the last %v; if this is no restart, give each node a name of its own", ErrTaken, req.Name, LeaseTime)})
	case req.Lease == 0 || old == nil:
		c.enlist(ticket, req)
	default:
		c.do(Renew{c.wait(func(now time.Duration, out outcome) {
			switch {
			case errors.Is(out.err, cluster.ErrLease):
				c.enlist(ticket, req)
			case out.err != nil:
				c.do(Reply{ticket, nil, out.err})
			case changed(&old.Component, &req):
				c.write(ticket, req, req.Lease)
			default:
				c.registered(ticket, req, req.Lease)
			}
		}), req.Lease})
	}
}

// renewUnseen keeps a component's lease, which is all that can be done for it without a view: else a manager that looks anew each second, as where each
// write of its fails, would let those go that ask it just then.
func (c *Core) renewUnseen(ticket uint64, req RegisterRequest) {
	c.do(Renew{c.wait(func(_ time.Duration, out outcome) {
		switch {
		case errors.Is(out.err, cluster.ErrLease):
			c.do(Reply{ticket, nil, c.away()})
		case out.err != nil:
			c.do(Reply{ticket, nil, out.err})
		default:
			c.do(Reply{ticket, &RegisterReply{Lease: req.Lease, Members: req.Seen}, nil})
		}
	}), req.Lease})
}

// away says that the store has to be read first.
func (c *Core) away() error { return fmt.Errorf("%w (%s)", cluster.ErrAway, c.cfg.Store) }

// changed reports whether a component's entry is to be written anew: the store bears far fewer writes than there are reports.
func changed(old *Component, req *RegisterRequest) bool {
	step := max(req.Capacity/64, 1)
	apart := max(old.Local, req.Local) - min(old.Local, req.Local)
	return old.Capacity != req.Capacity || apart >= step || max(old.Load, req.Load)-min(old.Load, req.Load) >= 10 || !slices.Equal(old.Addrs, req.Addrs)
}

// enlist begins a lease and enters a component under it.
func (c *Core) enlist(ticket uint64, req RegisterRequest) {
	c.do(Lease{c.wait(func(now time.Duration, out outcome) {
		if out.err != nil {
			c.do(Reply{ticket, nil, out.err})
			return
		}
		c.held[req.Name] = now // it may have what is no region's any more
		c.write(ticket, req, out.lease)
	})})
}

// write puts a component's entry, unless another manager has since it was seen here.
func (c *Core) write(ticket uint64, req RegisterRequest, lease cluster.Lease) {
	key, rev := keyComponent+req.Name, cluster.Revision(0)
	if old := c.view.components[req.Name]; old != nil {
		if rev = old.rev; old.Incarnation != req.Incarnation {
			c.do(Reply{ticket, nil, fmt.Errorf("%w: another life of %q was first", ErrTaken, req.Name)})
			return
		}
	}
	text, err := json.Marshal(Component{req.Member, req.Incarnation, req.Capacity, req.Local, req.Load})
	if err != nil {
		panic(err) // numbers and text
	}
	c.commit(cluster.Txn{If: map[string]cluster.Revision{key: rev}, Put: []cluster.Pair{{Key: key, Value: text, Lease: lease}}},
		func(now time.Duration, _ cluster.Revision, err error) {
			if err != nil {
				c.do(Reply{ticket, nil, err}) // it says so again soon
				return
			}
			c.registered(ticket, req, lease)
		})
}

func (c *Core) registered(ticket uint64, req RegisterRequest, lease cluster.Lease) {
	if _, known := c.held[req.Name]; !known {
		c.held[req.Name] = 0
	}
	nodes, digest := c.nodes()
	r := &RegisterReply{Lease: lease, Members: digest, Managers: c.view.managerNames()}
	if r.Members != req.Seen {
		r.Nodes = nodes
	}
	c.do(Reply{ticket, r, nil})
}

// nodes are all components, by name, and a number that each manager gives the same list and no other. Both are made once for each change of it: when a
// cluster starts all ask.
func (c *Core) nodes() ([]cluster.Member, cluster.Revision) {
	if l := &c.listed; l.of != c.view.members || l.list == nil {
		l.of, l.list = c.view.members, make([]cluster.Member, 0, len(c.view.components))
		h := fnv.New64a()
		for _, name := range slices.Sorted(maps.Keys(c.view.components)) {
			one := c.view.components[name]
			l.list = append(l.list, one.Member)
			fmt.Fprintf(h, "%q %v %q\n", name, one.Incarnation, one.Addrs)
		}
		l.digest = cluster.Revision(h.Sum64()&(1<<52-1) | 1) // exact where JSON's numbers are floating-point, and never 0: that is nothing seen
	}
	return c.listed.list, c.listed.digest
}

// foundHeld is what a component answered that it holds.
type foundHeld struct {
	name string
	*pool.HeldReply
}

// askHeld asks the components that register here what they hold.
func (c *Core) askHeld(now time.Duration) {
	if !c.loaded {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.held)) {
		switch at := c.held[name]; {
		case c.view.components[name] == nil:
			delete(c.held, name)
		case now >= at:
			c.held[name] = now + heldTime
			c.do(Tell{c.wait(func(_ time.Duration, out outcome) {
				reply, ok := out.reply.(*pool.HeldReply)
				if out.err != nil || !ok || len(reply.Parts) == 0 {
					return
				}
				// What is held is compared with a view that is newer than the answer: what was reserved before it was in the store before.
				if c.later = append(c.later, foundHeld{name, reply}); c.foundLoad == 0 {
					c.loadForHeld()
				}
			}), name, pool.CallHeld, &pool.Nothing{}})
		}
	}
}

// loadForHeld begins a load for the answers that came.
func (c *Core) loadForHeld() {
	c.found, c.later, c.foundLoad = c.later, nil, 0
	if len(c.found) > 0 {
		c.foundLoad = c.load()
	}
}

// checkHeld has components free what is no region's, with a view that is newer than their answers.
func (c *Core) checkHeld() {
	for _, f := range c.found {
		comp := c.view.components[f.name]
		for _, h := range f.Parts {
			r := c.view.regions[h.Region]
			if comp == nil || r != nil && h.Epoch > r.Epoch {
				continue // of a decision that is newer still
			}
			var stray []pool.Range
			for _, p := range h.Parts {
				if r == nil || !r.has(place{Name: f.name, Incarnation: comp.Incarnation}, p) {
					stray = append(stray, p)
				}
			}
			if len(stray) > 0 {
				c.do(Tell{c.wait(func(time.Duration, outcome) {}), f.name, pool.CallRelease, &pool.ReleaseRequest{Region: h.Region, Epoch: h.Epoch, Parts: stray}})
			}
		}
	}
	c.loadForHeld()
}

// has reports whether an extent is a region's, or is to be dropped in order.
func (r *record) has(at place, want pool.Range) bool {
	off := uint64(0)
	for _, p := range r.Parts {
		if r.Places[p.Place] == at && want == (pool.Range{Off: off, Size: p.Size}) {
			return true
		}
		off += p.Size
	}
	return slices.ContainsFunc(r.Drop, func(d drop) bool { return r.Places[d.Place] == at && d.Range == want })
}
