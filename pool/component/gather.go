package component

import (
	"fmt"
	"sort"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// Gather answers with the elements that a request picks.
func (c *Component) Gather(who cluster.Principal, req []byte) ([]byte, error) {
	p, rest, err := pool.DecodePick(req)
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("%w: %d bytes too many", pool.ErrSpec, len(rest))
	}
	if err != nil {
		return nil, err
	}
	answer := make([]byte, p.Size*p.Count)
	return answer, c.picked(who, &p, fabric.RightRead, answer, fabric.CopyOut)
}

// Scatter writes the elements that a request picks and brings.
func (c *Component) Scatter(who cluster.Principal, req []byte) ([]byte, error) {
	p, data, err := pool.DecodePick(req)
	if err == nil && len(data) != p.Size*p.Count {
		err = fmt.Errorf("%w: %d bytes for %d elements of %d", pool.ErrSpec, len(data), p.Count, p.Size)
	}
	if err != nil {
		return nil, err
	}
	return nil, c.picked(who, &p, fabric.RightWrite, data, func(ours, there []byte) { fabric.CopyIn(there, ours) })
}

// picked calls fn with each element's bytes in buf and in the region, in pieces where it lies in two extents.
func (c *Component) picked(who cluster.Principal, p *pool.Pick, need fabric.Rights, buf []byte, fn func(ours, there []byte)) error {
	r, err := c.use(who, pool.NameRequest{Region: p.Region, Item: p.Item, Epoch: p.Epoch}, need)
	if err != nil {
		return err
	}
	defer r.unpin()
	for i := range p.Count {
		off, ok := p.Off(i, r.size)
		if !ok {
			return fmt.Errorf("%w: element of %d bytes at %d of %s, which has %d", pool.ErrRange, p.Size, off, r.label, r.size)
		}
		if err := r.has(off, uint64(p.Size)); err != nil {
			return err
		}
		ours := buf[i*p.Size : (i+1)*p.Size]
		r.span(off, uint64(p.Size), func(there []byte) {
			fn(ours[:len(there)], there)
			ours = ours[len(there):]
		})
	}
	return nil
}

// used is a region whose memory stays until unpin.
type used struct {
	id      uint16
	item    uint32 // 0: a region
	label   string
	size    uint64
	extents []pinned
	whole   bool // all of the region is here
	turns   *turns
}

// pinned is a run of a region's bytes whose memory stays.
type pinned struct {
	off, size uint64
	at        uint64 // in the segment
	seg       *fabric.Segment
}

// use finds a region and keeps its memory in place, if the principal has the rights.
func (c *Component) use(who cluster.Principal, req pool.NameRequest, need fabric.Rights) (*used, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.Item != 0 {
		return c.useItem(who, req, need)
	}
	r, err := c.find(who, req)
	if err != nil {
		return nil, err
	}
	if missing := need &^ r.rights(who); missing != 0 {
		return nil, r.forbidden(who, cluster.NeedRights(missing))
	}
	u := &used{id: r.id, label: "region " + r.label(), size: r.size, extents: make([]pinned, 0, len(r.extents)), whole: !r.managed, turns: &r.turns}
	for _, e := range r.extents {
		if err := u.pin(e.off, e.size, 0, e.seg); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// useItem is use for an item, whose generation is the request's epoch; c.mu is held.
func (c *Component) useItem(who cluster.Principal, req pool.NameRequest, need fabric.Rights) (*used, error) {
	item := pool.ItemRequest{NameRequest: pool.NameRequest{Name: req.Name, Region: req.Region}, Number: req.Item, Generation: req.Epoch}
	r, it, err := c.findItem(who, &item)
	if err != nil {
		return nil, err
	}
	if missing := need &^ r.itemRights(it, who); missing != 0 {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: fmt.Sprintf("%s on item %s", cluster.NeedRights(missing), it.label(r)), Do: fmt.Sprintf("its owner, %q, can grant it (wherry pool item grant)", it.owner)}
	}
	u := &used{id: r.id, item: it.id, label: "item " + it.label(r), size: it.size, extents: make([]pinned, 0, len(it.pieces)), whole: true}
	for _, p := range it.pieces {
		if err := u.pin(p.off, p.size, p.at, p.seg); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// pin adds a run of bytes and keeps its memory.
func (u *used) pin(off, size, at uint64, seg *fabric.Segment) error {
	if !seg.Pin() { // the element closes
		u.unpin()
		return fmt.Errorf("%w: %s ends with its node", pool.ErrMoved, u.label)
	}
	u.extents = append(u.extents, pinned{off, size, at, seg})
	return nil
}

func (u *used) unpin() {
	for _, e := range u.extents {
		e.seg.Unpin()
	}
}

// has reports n bytes at off that are not the region's, or not all here.
func (u *used) has(off, n uint64) error {
	if off > u.size || n > u.size-off {
		return fmt.Errorf("%w: %d bytes at %d of %s, which has %d", pool.ErrRange, n, off, u.label, u.size)
	}
	if u.whole {
		return nil
	}
	here := uint64(0)
	u.span(off, n, func(mem []byte) { here += uint64(len(mem)) })
	if here < n {
		return fmt.Errorf("%w: %d of %d bytes at %d of %s are at another component", pool.ErrMoved, n-here, n, off, u.label)
	}
	return nil
}

// span calls fn with the memory of n bytes at off, extent by extent.
func (u *used) span(off, n uint64, fn func(mem []byte)) {
	i := sort.Search(len(u.extents), func(i int) bool { e := &u.extents[i]; return off < e.off+e.size })
	for ; i < len(u.extents); i++ {
		e := &u.extents[i]
		from, to := max(off, e.off), min(off+n, e.off+e.size)
		if from >= to {
			return
		}
		fn(e.seg.Bytes()[e.at+from-e.off : e.at+to-e.off])
	}
}
