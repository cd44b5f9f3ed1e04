package manager

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// work is what this manager does for a region that is not ready, under one revision of its record.
type work struct {
	rev        cluster.Revision
	told       map[int]*telling // by place
	committing bool
	again      time.Duration // when a loss is committed again that another transaction overtook
	last       error         // why it is not further
}

// telling is how far a place is told.
type telling struct {
	done, busy bool
	again      time.Duration
}

// drive brings each region a step on that this manager has to do with.
func (c *Core) drive(now time.Duration) {
	for id := range c.works {
		c.view.dirty[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(c.view.dirty)) {
		delete(c.view.dirty, id)
		r := c.view.regions[id]
		if r == nil || r.State == ready && !c.lostPlace(r) && !c.orphaned(r) {
			delete(c.works, id)
			continue
		}
		w := c.works[id]
		if w == nil || w.rev != r.rev {
			w = &work{rev: r.rev, told: map[int]*telling{}}
			c.works[id] = w
		}
		if !w.committing {
			c.driveOne(now, r, w)
		}
	}
}

// gone reports whether a place's component counts as lost, and the region's record does not say so.
func (c *Core) gone(p place) bool {
	if p.Lost || c.view.alive(p) || c.calm != 0 {
		return false
	}
	return c.view.components[p.Name] != nil || c.missing[keyComponent+p.Name] == 0 // another life: that one has ended
}

func (c *Core) lostPlace(r *regionView) bool { return slices.ContainsFunc(r.Places, c.gone) }

// orphaned reports whether what a leased region goes with is gone.
func (c *Core) orphaned(r *regionView) bool {
	if r.Leased == c.instance {
		return c.leasedTo[r.Region] == 0 && c.jobs[r.Job] == nil
	}
	return r.Leased != "" && c.calm == 0 && c.view.managers[r.Leased] == "" && c.missing[keyManager+r.Leased] == 0
}

func (c *Core) driveOne(now time.Duration, r *regionView, w *work) {
	mine := r.By == c.instance
	switch {
	case r.State == ready && c.orphaned(r):
		c.change(r, w, func(n *record) { n.State, n.Name = ending, "" })
	case r.State == ready:
		c.lose(now, r, w)
	case !mine && c.view.managers[r.By] != "":
		// another manager is at it
	case !mine && r.State == making:
		c.change(r, w, func(n *record) { n.State, n.Name = ending, "" })
	case !mine:
		c.change(r, w, func(*record) {})
	case r.State == making && (c.lostPlace(r) || c.jobs[r.Job] == nil):
		c.change(r, w, func(n *record) { n.State, n.Name = ending, "" })
	case r.State == moving && c.lostPlace(r):
		c.lose(now, r, w)
	case c.tellAll(now, r, w):
		c.settle(r, w)
	}
}

// lose commits that components are gone: if none of them has registered since. The epoch rises, and those that are left are told.
func (c *Core) lose(now time.Duration, r *regionView, w *work) {
	if now < w.again {
		return
	}
	n := r.clone()
	n.By, n.Job, n.State, n.Epoch = c.instance, 0, moving, n.Epoch+1
	t := cluster.Txn{If: map[string]cluster.Revision{regionKey(r.Region): r.rev}}
	for i, p := range n.Places {
		if !c.gone(p) || len(t.If) == cluster.MaxTxn {
			continue // those above the limit are next
		}
		n.Places[i].Lost = true
		t.If[keyComponent+p.Name] = 0
		if other := c.view.components[p.Name]; other != nil {
			t.If[keyComponent+p.Name] = other.rev
		}
	}
	t.Put = []cluster.Pair{{Key: keyLost, Value: []byte(c.instance)}, put(n)}
	w.committing = true
	c.commit(t, func(now time.Duration, _ cluster.Revision, err error) {
		w.committing, w.last = false, err // the watch brings what was first: the region's record, or a component's entry
		w.again = now + retryTime
	})
}

// change commits another record of a region; this manager then goes on with it.
func (c *Core) change(r *regionView, w *work, how func(n *record)) {
	n := r.clone()
	n.By, n.Job = c.instance, 0
	how(n)
	w.committing = true
	c.commit(cluster.Txn{If: map[string]cluster.Revision{regionKey(r.Region): r.rev}, Put: []cluster.Pair{put(n)}},
		func(_ time.Duration, _ cluster.Revision, err error) { w.ended(err) })
}

// ended: after a conflict the watch brings the record that was put instead, and this work is dropped with its revision.
func (w *work) ended(err error) {
	w.committing = errors.Is(err, cluster.ErrConflict)
	w.last = err
}

// settle commits that all components are told.
func (c *Core) settle(r *regionView, w *work) {
	if r.State != ending {
		n := r.clone()
		n.State, n.By = ready, ""
		freed := len(n.Drop) > 0
		n.Drop, n.Was = nil, nil
		w.committing = true
		t := cluster.Txn{If: map[string]cluster.Revision{regionKey(r.Region): r.rev}, Put: []cluster.Pair{put(n)}}
		if !freed {
			c.commit(t, func(_ time.Duration, _ cluster.Revision, err error) { w.ended(err) })
			return
		}
		w.committing = false
		c.free(r, w, func(t *cluster.Txn) { t.Put = append(t.Put, put(n)) })
		return
	}
	c.free(r, w, func(t *cluster.Txn) { t.Remove = []string{regionKey(r.Region)} })
}

// free commits that extents are free.
func (c *Core) free(r *regionView, w *work, how func(t *cluster.Txn)) {
	if !c.mayPlace() {
		return // it is driven again when that has changed
	}
	t := c.placedTxn(r.Region, r.rev)
	how(&t)
	w.committing = true
	c.commitPlaced(uint64(r.Region), t, func(_ time.Duration, _ cluster.Revision, err error) {
		w.last = err
		w.committing = false // whether the region's revision or that of all extents was too old: see what comes
	})
}

// tellAll tells the components of a region what it is now, and reports whether all know.
func (c *Core) tellAll(now time.Duration, r *regionView, w *work) bool {
	all := true
	for i, p := range r.Places {
		if p.Lost || c.gone(p) {
			continue // what it still has is found when it comes back
		}
		t := w.told[i]
		if t == nil {
			t = &telling{}
			w.told[i] = t
		}
		if t.done {
			continue
		}
		all = false
		if !t.busy && now >= t.again {
			t.busy = true
			c.tell(r, w, i, t)
		}
	}
	return all
}

// tell makes the calls that a place needs: of an ending region to free all, else to have what it should and no more.
func (c *Core) tell(r *regionView, w *work, at int, t *telling) {
	var dropped []pool.Range
	for _, d := range r.Drop {
		if d.Place == at {
			dropped = append(dropped, d.Range)
		}
	}
	release := pool.ReleaseRequest{Region: r.Region, Epoch: r.Epoch, Parts: dropped}
	parts := r.ranges(at)
	if r.State == ending || len(parts) == 0 {
		release.Parts = nil
		c.call(r, w, at, t, pool.CallRelease, &release, nil)
		return
	}
	reserve := pool.ReserveRequest{EpochRequest: pool.EpochRequest{Region: r.Region, Epoch: r.Epoch, Made: r.Made, Size: r.Size, Owner: r.Owner, Grants: r.Grants},
		Name: r.Name, Parts: parts}
	c.call(r, w, at, t, pool.CallReserve, &reserve, func() bool {
		if len(dropped) == 0 {
			return false
		}
		c.call(r, w, at, t, pool.CallRelease, &release, nil)
		return true
	})
}

// call makes one of them; more, if not nil, begins the next.
func (c *Core) call(r *regionView, w *work, at int, t *telling, call string, req any, more func() bool) {
	c.do(Tell{c.wait(func(now time.Duration, out outcome) {
		if c.works[r.Region] != w {
			return // the record has changed since, and what holds now is told anew
		}
		switch {
		case out.err == nil && more != nil && more():
			return
		case out.err == nil:
			t.done = true
		default:
			w.last = out.err
			t.again = now + retryTime
			if call == pool.CallReserve && refused(out.err) {
				c.refusedBy(now, r, w, r.Places[at].Name, out.err)
			}
		}
		t.busy = false
	}), r.Places[at].Name, call, req})
}

// refused reports whether a component answered that it will not, rather than that it could not be asked.
func refused(err error) bool {
	for _, e := range []error{pool.ErrMemory, pool.ErrSpec, pool.ErrExists, pool.ErrMoved, cluster.ErrForbidden} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refusedBy gives up what was to be placed at a component that will not have it: a new region ends, and its job tries elsewhere; a region
// that was to grow is what it was before.
func (c *Core) refusedBy(_ time.Duration, r *regionView, w *work, name string, err error) {
	j := c.jobs[r.Job]
	if j != nil {
		j.last = err
		if j.except == nil {
			j.except = map[string]bool{}
		}
		j.except[name] = true
	}
	switch {
	case r.State == making && !w.committing:
		c.change(r, w, func(n *record) { n.State, n.Name = ending, "" })
	case r.State == moving && r.Was != nil && !w.committing:
		c.change(r, w, undo)
	}
}

// undo makes a record again what it was before it began to grow: what was reserved since is dropped.
func undo(n *record) {
	off := uint64(0)
	for i, p := range n.Parts {
		if i >= n.Was.Parts {
			n.Drop = append(n.Drop, drop{p.Place, pool.Range{Off: off, Size: p.Size}})
		}
		off += p.Size
	}
	n.Parts, n.Size, n.Was = n.Parts[:n.Was.Parts], n.Was.Size, nil
	n.Epoch++
}
