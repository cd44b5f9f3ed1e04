package component

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// What managers ask: a region that they placed has some of its extents here, and its rights are checked here as those of the component's own regions are.

// placement checks what all of a manager's requests have.
func placement(who cluster.Principal, region uint16, epoch uint64) error {
	if !who.Caps.Has(cluster.CapMember) {
		return &cluster.ForbiddenError{Principal: who.Name, Need: "capability member", Do: "only managers place extents: ask one, or make a region of this node's own"}
	}
	if region < pool.FirstManaged || epoch == 0 {
		return fmt.Errorf("%w: region %d under epoch %d: managers' regions are numbered from %d on, their epochs from 1", pool.ErrSpec, region, epoch, pool.FirstManaged)
	}
	return nil
}

// grants reads what a manager's request says of rights.
func grantsOf(req *pool.EpochRequest) (map[string]fabric.Rights, error) {
	if req.Size == 0 || req.Size > pool.MaxRegionBytes || len(req.Grants) > maxGrants {
		return nil, fmt.Errorf("%w: a region of %d bytes that is granted to %d principals: 1 to %d bytes and at most %d are possible", pool.ErrSpec, req.Size, len(req.Grants), uint64(pool.MaxRegionBytes), maxGrants)
	}
	if err := cluster.ValidateName(req.Owner); err != nil {
		return nil, fmt.Errorf("%w: owner: %w", pool.ErrSpec, err)
	}
	grants := map[string]fabric.Rights{}
	for to, text := range req.Grants {
		rights, err := cluster.ParseRights(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", pool.ErrSpec, err)
		}
		grants[to] = rights
	}
	return grants, nil
}

// Reserve takes memory for parts of a region.
func (c *Component) Reserve(who cluster.Principal, req *pool.ReserveRequest) error {
	if err := placement(who, req.Region, req.Epoch); err != nil {
		return err
	}
	grants, err := grantsOf(&req.EpochRequest)
	if err != nil {
		return err
	}
	if len(req.Parts) > pool.MaxExtents {
		return fmt.Errorf("%w: %d extents, at most %d", pool.ErrSpec, len(req.Parts), pool.MaxExtents)
	}
	for _, p := range req.Parts {
		if p.Size == 0 || p.Size > MaxExtentBytes || p.Off%fabric.SegmentAlign != 0 || p.Size%fabric.SegmentAlign != 0 || p.Off > pool.MaxRegionBytes-p.Size {
			return fmt.Errorf("%w: an extent of %d bytes at %d: multiples of %d, at most %d", pool.ErrSpec, p.Size, p.Off, fabric.SegmentAlign, MaxExtentBytes)
		}
	}
	c.placing.Lock()
	defer c.placing.Unlock()
	c.endEarlier(req)
	r, missing, charge, err := c.reserved(req)
	if err != nil {
		return err
	}
	err = c.clear(r, req.Size)
	var made []*extent
	for i := 0; i < len(missing) && err == nil; i++ {
		var one []*extent
		one, err = c.segments(missing[i].Off, []uint64{missing[i].Size})
		made = append(made, one...)
	}
	c.mu.Lock()
	if err != nil || r.gone {
		empty := len(r.extents) == 0
		c.mu.Unlock()
		closeAll(made)
		c.account.Release(charge)
		if empty {
			c.end(r)
		}
		return cmp.Or(err, fmt.Errorf("%w: region %d was released meanwhile", pool.ErrMoved, r.id))
	}
	defer c.mu.Unlock()
	c.become(r, &req.EpochRequest, grants)
	for _, e := range made {
		r.gained(e, 0)
	}
	r.extents = append(r.extents, made...)
	slices.SortFunc(r.extents, func(a, b *extent) int { return cmp.Compare(a.off, b.off) })
	r.charge.add(charge.Lent)
	r.name = req.Name
	return nil
}

// endEarlier frees what is here of an earlier region of a request's number: this component was away when that was destroyed. c.placing is held.
func (c *Component) endEarlier(req *pool.ReserveRequest) {
	c.mu.Lock()
	r := c.regions[req.Region]
	c.mu.Unlock()
	if r != nil && r.made < req.Made {
		c.end(r)
	}
}

// reserved finds or makes the record of a manager's region, and reserves what is missing of it.
func (c *Component) reserved(req *pool.ReserveRequest) (r *region, missing []pool.Range, charge Charge, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r = c.regions[req.Region]
	if err := overtaken(r, &req.EpochRequest); err != nil {
		return nil, nil, charge, err
	}
	charge = Charge{What: fmt.Sprintf("region %d, which a manager places,", req.Region), Region: true, Principal: req.Owner}
	for _, p := range req.Parts {
		if r != nil {
			if over := r.overlap(p); over != nil && over.off == p.Off && over.seg.Size() == p.Size {
				continue
			} else if over != nil {
				return nil, nil, charge, fmt.Errorf("%w: %d bytes at %d of region %d overlap the extent of %d bytes at %d that is here", pool.ErrSpec, p.Size, p.Off, req.Region, over.seg.Size(), over.off)
			}
		}
		for _, q := range missing {
			if p.Off < q.Off+q.Size && q.Off < p.Off+p.Size {
				return nil, nil, charge, fmt.Errorf("%w: the parts at %d and %d overlap", pool.ErrSpec, p.Off, q.Off)
			}
		}
		missing = append(missing, p)
		charge.add(Lent{int64(p.Size), 1})
	}
	if r == nil {
		if err := c.another(req.Owner); err != nil {
			return nil, nil, charge, err
		}
	}
	if err := c.account.Reserve(charge); err != nil {
		return nil, nil, charge, err
	}
	if r == nil {
		r = &region{id: req.Region, managed: true, made: cmp.Or(req.Made, req.Epoch), shrunk: req.Epoch, owner: req.Owner, leasing: req.Leased,
			charge: charge, holders: map[string]cluster.Principal{}}
		r.charge.Lent = Lent{}
		c.regions[r.id] = r
		c.count[r.owner]++
	}
	return r, missing, charge, nil
}

// overlap is an extent that has some of a range's bytes.
func (r *region) overlap(p pool.Range) *extent {
	for _, e := range r.extents {
		if p.Off < e.off+e.seg.Size() && e.off < p.Off+p.Size {
			return e
		}
	}
	return nil
}

// overtaken reports a request whose sender knows of a later region less than the component does; r may be nil.
func overtaken(r *region, req *pool.EpochRequest) error {
	switch {
	case r == nil:
		return nil
	case req.Epoch < r.epoch || req.Made != 0 && req.Made < r.made:
		return fmt.Errorf("%w: region %d is under epoch %d here, and the request is of epoch %d: another manager decided since", pool.ErrMoved, r.id, r.epoch, req.Epoch)
	case req.Owner != r.owner:
		return fmt.Errorf("%w: region %d is owned by %q, and cannot become %q's", pool.ErrSpec, r.id, r.owner, req.Owner)
	}
	return nil
}

// become makes a region what a manager says, and ends the keys that allow too much then, and the items that have bytes behind its end; c.mu is held.
func (c *Component) become(r *region, req *pool.EpochRequest, grants map[string]fabric.Rights) {
	was := r.size
	if req.Size < was {
		r.shrunk = req.Epoch
		c.evict(r, req.Size, math.MaxUint64)
		r.dir.space.cut(req.Size, math.MaxUint64)
	}
	r.epoch, r.size, r.grants = req.Epoch, req.Size, grants
	for _, e := range r.extents {
		r.gained(e, was)
	}
	c.sweep(r)
}

// gained lets items have the bytes of an extent that lie behind what was the region's end, and before what is; c.mu is held.
func (r *region) gained(e *extent, was uint64) {
	if from, to := max(e.off, was), min(e.off+e.size, r.size); from < to {
		r.added(from, to-from)
	}
}

// SetEpoch says what a region is from now on.
func (c *Component) SetEpoch(who cluster.Principal, req *pool.EpochRequest) error {
	if err := placement(who, req.Region, req.Epoch); err != nil {
		return err
	}
	grants, err := grantsOf(req)
	if err != nil {
		return err
	}
	c.placing.Lock()
	defer c.placing.Unlock()
	c.mu.Lock()
	r := c.regions[req.Region]
	if r == nil {
		err = fmt.Errorf("%w: nothing of region %d is here", pool.ErrNoRegion, req.Region)
	} else {
		err = overtaken(r, req)
	}
	c.mu.Unlock()
	if err == nil {
		err = c.clear(r, req.Size)
	}
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.become(r, req, grants)
	}
	return err
}

// clear makes bytes zeros that lie in extents of a region but not both in the region as it is and as it will be, with size bytes: the next owner that
// gets them, when the region grows, sees zeros. placing is held, so that no other call resizes.
func (c *Component) clear(r *region, size uint64) error {
	c.mu.Lock()
	from, extents := min(r.size, size), slices.Clone(r.extents)
	same := r.size == size || r.size == 0
	if size < r.size { // from now on no key reaches there
		for _, e := range extents {
			if e.off+e.size > size {
				c.keys.sweep(e.keys, func(string) fabric.Rights { return 0 })
			}
		}
	}
	c.mu.Unlock()
	if same {
		return nil
	}
	for _, e := range extents {
		if at := max(from, e.off) - e.off; at < e.seg.Size() {
			if err := e.zero(at, e.seg.Size()-at); err != nil {
				return err
			}
		}
	}
	return nil
}

// Release frees parts of a region, or all that is here.
func (c *Component) Release(who cluster.Principal, req *pool.ReleaseRequest) error {
	if err := placement(who, req.Region, req.Epoch); err != nil {
		return err
	}
	c.placing.Lock()
	defer c.placing.Unlock()
	c.mu.Lock()
	r := c.regions[req.Region]
	if r == nil {
		c.mu.Unlock()
		return nil
	}
	if err := overtaken(r, &pool.EpochRequest{Region: req.Region, Epoch: req.Epoch, Owner: r.owner}); err != nil {
		c.mu.Unlock()
		return err
	}
	freed := c.take(r, func(e *extent) bool {
		return len(req.Parts) == 0 || slices.Contains(req.Parts, pool.Range{Off: e.off, Size: e.seg.Size()})
	})
	if len(freed) > 0 {
		r.epoch, r.shrunk = req.Epoch, req.Epoch
	}
	empty := len(r.extents) == 0
	c.mu.Unlock()
	closeAll(freed)
	if empty {
		c.end(r)
	}
	return nil
}

// take takes extents out of a region and its charge; the caller closes them. c.mu is held.
func (c *Component) take(r *region, which func(e *extent) bool) (taken []*extent) {
	var lent Lent
	r.extents = slices.DeleteFunc(r.extents, func(e *extent) bool {
		if !which(e) {
			return false
		}
		c.evict(r, e.off, e.off+e.size)
		r.dir.space.cut(e.off, e.off+e.size)
		c.keys.drop(e.keys)
		taken = append(taken, e)
		lent.add(Lent{int64(e.seg.Size()), 1})
		return true
	})
	r.charge.sub(lent)
	charge := r.charge
	charge.Lent = lent
	c.account.Release(charge)
	return taken
}

// Held lists what is here of managers' regions.
func (c *Component) Held(who cluster.Principal) (*pool.HeldReply, error) {
	if err := placement(who, pool.FirstManaged, 1); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	reply := &pool.HeldReply{Parts: []pool.Held{}}
	for _, r := range c.regions {
		if !r.managed || len(r.extents) == 0 {
			continue
		}
		h := pool.Held{Region: r.id, Epoch: r.epoch}
		for _, e := range r.extents {
			h.Parts = append(h.Parts, pool.Range{Off: e.off, Size: e.seg.Size()})
		}
		reply.Parts = append(reply.Parts, h)
	}
	slices.SortFunc(reply.Parts, func(a, b pool.Held) int { return cmp.Compare(a.Region, b.Region) })
	return reply, nil
}

// lease has a region that waits for its client go with the connection that its owner opens it over; c.mu is held.
func (r *region) lease(who cluster.Principal, from *fabric.Endpoint) error {
	if !r.leasing || who.Name != r.owner {
		return nil
	}
	if from == nil {
		return errors.New("a leased region is opened over a connection")
	}
	r.leased, r.leasing = from, false
	if err := from.Err(); err != nil { // lost meanwhile, before the lease was there to be ended
		r.leased, r.leasing = nil, true
		return err
	}
	return nil
}
