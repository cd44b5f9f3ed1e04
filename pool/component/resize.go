package component

import (
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/pool"
)

// Resize gives a region of this component another size. Extents are added, or closed from the end; one of which a part only goes keeps its
// segment, and what is left of that is used first when the region grows again.
func (c *Component) Resize(who cluster.Principal, req *pool.ResizeRequest) (*pool.Table, error) {
	if req.Size == 0 || req.Size > pool.MaxRegionBytes {
		return nil, fmt.Errorf("%w: %d bytes: 1 to %d are possible", pool.ErrSpec, req.Size, uint64(pool.MaxRegionBytes))
	}
	c.placing.Lock()
	defer c.placing.Unlock()
	c.mu.Lock()
	r, err := c.owning(who, req.NameRequest)
	size := (req.Size + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1)
	smaller := err == nil && size < r.size
	if err == nil && r.managed {
		err = fmt.Errorf("%w: managers placed region %s: ask one of them", pool.ErrSpec, r.label())
	} else if smaller {
		if it := r.itemBehind(size); it != nil {
			err = fmt.Errorf("%w: item %s has bytes at %d to %d: destroy it first", pool.ErrSpec, it.label(r), it.off, it.off+it.room)
		} else {
			r.dir.space.cut(size, r.size)
		}
	}
	c.mu.Unlock() // placing keeps extents and size as they are, unless the region goes
	if err != nil {
		return nil, err
	}
	if smaller {
		c.shrink(r, size)
	} else if err := c.grow(r, size); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.gone {
		return nil, fmt.Errorf("%w: region %s was destroyed meanwhile", pool.ErrMoved, r.label())
	}
	return c.table(who, r, r.rights(who))
}

// shrink frees a region's bytes from size on.
func (c *Component) shrink(r *region, size uint64) {
	c.mu.Lock()
	if r.gone {
		c.mu.Unlock()
		return
	}
	freed := c.take(r, func(e *extent) bool { return e.off >= size })
	c.epoch++
	r.size, r.epoch, r.shrunk = size, c.epoch, c.epoch
	last := r.extents[len(r.extents)-1]
	tail := last.off+last.size > size
	if tail {
		last.size = size - last.off
		// Keys are to the whole segment, so that it can be mapped: holders of one know the old size.
		c.keys.sweep(last.keys, func(string) fabric.Rights { return 0 })
	}
	c.mu.Unlock()
	closeAll(freed)
	if tail {
		last.zero(last.size, last.seg.Size()-last.size) // its pages go back to the machine; what fails is zeroed when the region grows
	}
}

// zero makes bytes of an extent's segment zeros.
func (e *extent) zero(off, n uint64) error {
	if n == 0 || !e.seg.Pin() {
		return nil
	}
	defer e.seg.Unpin()
	return memfd.Zero(e.seg.Bytes(), int(off), int(n))
}

// grow adds bytes up to size.
func (c *Component) grow(r *region, size uint64) error {
	c.mu.Lock()
	if r.gone || size == r.size {
		c.mu.Unlock()
		return nil
	}
	last := r.extents[len(r.extents)-1]
	spare := min(last.seg.Size()-last.size, size-r.size)
	var sizes []uint64
	var err error
	if more := size - r.size - spare; more > 0 {
		sizes, err = Plan(more)
	}
	if n := len(r.extents) + len(sizes); err == nil && n > pool.MaxExtents {
		err = fmt.Errorf("%w: region %s would have %d extents, at most %d: make several regions", pool.ErrSpec, r.label(), n, pool.MaxExtents)
	}
	charge := r.charge
	charge.Lent = Lent{Files: len(sizes)}
	for _, n := range sizes {
		charge.Bytes += int64(n)
	}
	if err == nil {
		err = c.account.Reserve(charge)
	}
	off := r.size + spare
	c.mu.Unlock()
	if err != nil {
		return err
	}
	err = last.zero(last.size, spare) // a client that had the segment mapped may have written there since
	var made []*extent
	if err == nil {
		made, err = c.segments(off, sizes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.gone {
		closeAll(made)
		c.account.Release(charge)
		return err
	}
	last.size += spare
	r.extents = append(r.extents, made...)
	r.charge.add(charge.Lent)
	c.epoch++
	r.added(r.size, size-r.size)
	r.size, r.epoch = size, c.epoch
	return nil
}
