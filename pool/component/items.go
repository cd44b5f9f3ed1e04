package component

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/pool"
)

const (
	// ownBytes is from which size on a private item has a segment of its own, so that its holder can map it; smaller ones share segments of slabBytes,
	// which no client maps.
	ownBytes  = 64 << 10
	slabBytes = 1 << 20
)

// directory is what a region has of items. It is under Component.mu.
type directory struct {
	items map[uint32]*item
	names map[string]*item
	last  uint32 // number that was given out last
	space space  // of the extents
	slabs []*slab
}

// slab is a segment that small private items share.
type slab struct {
	seg   *fabric.Segment
	root  fabric.Key
	space space
	items int
}

// item is a range of a region, or private memory of one. Its fields but the constant ones are under Component.mu.
type item struct {
	id      uint32
	gen     uint64
	name    string
	owner   string
	size    uint64 // as asked for
	room    uint64 // as allocated
	off     uint64 // in the region
	private bool
	slab    *slab // of a small private one
	seg     *fabric.Segment
	spread  uint64
	whole   uint64 // of an item at several components
	parts   []pool.ItemPart
	grants  map[string]fabric.Rights
	holders map[string]cluster.Principal
	pieces  []*chunk
}

// chunk is a run of an item's bytes in one segment.
type chunk struct {
	off, size uint64 // in the item
	at        uint64 // in the segment
	place     uint64 // in the region
	seg       *fabric.Segment
	root      fabric.Key
	keys      ring
}

func (it *item) label(r *region) string {
	if it.name != "" {
		return fmt.Sprintf("%q of region %s", it.name, r.label())
	}
	return fmt.Sprintf("number %d of region %s", it.id, r.label())
}

// itemRights are what a principal may do with an item; c.mu is held.
func (r *region) itemRights(it *item, who cluster.Principal) fabric.Rights {
	if who.Name == it.owner || who.Caps.Has(cluster.CapAdmin) {
		return who.Caps.RightsOf(fabric.RightsAll)
	}
	rights := who.Caps.RightsOf(it.grants[who.Name] | it.grants[cluster.Everyone])
	if !it.private {
		rights |= r.rights(who)
	}
	return rights
}

// administers reports whether a principal may do what the item's owner may; the region's may, as it pays.
func (r *region) administers(it *item, who cluster.Principal) bool {
	return who.Name == it.owner || r.owned(who)
}

// findItem is the item that a request is about, if the principal may see it; c.mu is held.
func (c *Component) findItem(who cluster.Principal, req *pool.ItemRequest) (*region, *item, error) {
	r, err := c.known(req.NameRequest)
	if err != nil {
		return nil, nil, err
	}
	it := r.dir.names[req.ItemName]
	if req.ItemName == "" {
		it = r.dir.items[req.Number]
	}
	if req.Generation != 0 && (it == nil || it.gen != req.Generation) {
		return nil, nil, fmt.Errorf("%w: item %v was destroyed or resized, or is another one now: look it up again", pool.ErrMoved, req)
	}
	if it == nil || r.itemRights(it, who) == 0 && !r.administers(it, who) {
		return nil, nil, fmt.Errorf("%w: item %v; wherry pool item ls lists those that you may see", pool.ErrNoItem, req)
	}
	return r, it, nil
}

// CreateItem allocates an item.
func (c *Component) CreateItem(who cluster.Principal, req *pool.ItemCreateRequest) (*pool.ItemTable, error) {
	if req.Size == 0 && len(req.Parts) == 0 || req.Size > pool.MaxRegionBytes || req.Spread%pool.ItemAlign != 0 || len(req.Parts) >= pool.MaxItemParts || req.Whole > pool.MaxRegionBytes {
		return nil, fmt.Errorf("%w: an item of %d bytes (%d in all) in blocks of %d at %d more components: 1 to %d bytes, blocks that are multiples of %d, less than %d components are possible",
			pool.ErrSpec, req.Size, req.Whole, req.Spread, len(req.Parts), uint64(pool.MaxRegionBytes), pool.ItemAlign, pool.MaxItemParts)
	}
	if req.ItemName != "" {
		if err := cluster.ValidateName(req.ItemName); err != nil {
			return nil, fmt.Errorf("%w: %w", cluster.ErrName, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.find(who, req.NameRequest)
	if err != nil {
		return nil, err
	}
	if r.rights(who)&fabric.RightWrite == 0 {
		return nil, r.forbidden(who, cluster.NeedRights(fabric.RightWrite))
	}
	switch {
	case req.ItemName != "" && r.dir.names[req.ItemName] != nil:
		return nil, fmt.Errorf("%w: item %q of region %s, of %q: choose another name, or destroy it first", pool.ErrExists, req.ItemName, r.label(), r.dir.names[req.ItemName].owner)
	case c.items >= c.limits.Items:
		return nil, fmt.Errorf("%w: %d items are there, the most there can be: destroy some, or raise Limits.Items", pool.ErrMemory, c.limits.Items)
	case c.itemCount[who.Name] >= c.limits.PrincipalItems:
		return nil, fmt.Errorf("%w: %q has %d items, the most that one principal can have: destroy some, or raise Limits.PrincipalItems", pool.ErrMemory, who.Name, c.limits.PrincipalItems)
	}
	it := &item{name: req.ItemName, owner: who.Name, size: req.Size, room: round(req.Size), private: req.Private, spread: req.Spread, whole: req.Whole, parts: req.Parts,
		grants: map[string]fabric.Rights{}, holders: map[string]cluster.Principal{}}
	switch {
	case req.Size == 0: // its parts have all of it
	case req.Private:
		err = c.allocPrivate(r, it)
	default:
		err = r.allocShared(it, req.Solid)
	}
	if err != nil {
		return nil, err
	}
	for r.dir.last++; r.dir.last == 0 || r.dir.items[r.dir.last] != nil; r.dir.last++ { // there are fewer items than numbers
	}
	it.id = r.dir.last
	c.epoch++
	it.gen = c.epoch
	c.items++
	c.itemCount[it.owner]++
	r.dir.items[it.id] = it
	if it.name != "" {
		r.dir.names[it.name] = it
	}
	t, err := c.itemTable(who, r, it)
	if err != nil { // no principal could use it
		c.forget(r, it)
		c.vacate(r, it)
	}
	return t, err
}

// allocShared gives an item a range of its region's extents; c.mu is held.
func (r *region) allocShared(it *item, solid bool) error {
	var border func(off uint64) uint64
	if solid {
		border = func(off uint64) uint64 {
			e := r.extentAt(off)
			return e.off + e.size
		}
	}
	off, ok := r.dir.space.alloc(it.room, border)
	if !ok {
		sum, largest := r.dir.space.all()
		return fmt.Errorf("%w: an item of %d bytes, and of region %s %d are free here, %d in the longest run: destroy items, or make the region larger (wherry pool resize)",
			pool.ErrMemory, it.size, r.label(), sum, largest)
	}
	it.off = off
	it.chunks(r)
	return nil
}

// extentAt is the extent that has a byte.
func (r *region) extentAt(off uint64) *extent {
	i, _ := slices.BinarySearchFunc(r.extents, off, func(e *extent, off uint64) int {
		if off >= e.off+e.size {
			return -1
		}
		return 1
	})
	return r.extents[i]
}

// chunks says in which segments an item's range of its region lies; c.mu is held.
func (it *item) chunks(r *region) {
	it.pieces = nil
	for done := uint64(0); done < it.room; {
		e := r.extentAt(it.off + done)
		n := min(it.room-done, e.off+e.size-it.off-done)
		it.pieces = append(it.pieces, &chunk{off: done, size: n, at: it.off + done - e.off, place: it.off + done, seg: e.seg, root: e.root, keys: ring{}})
		done += n
	}
}

// allocPrivate gives an item memory that is no part of its region's extents. Its region's owner is charged. c.mu is held.
func (c *Component) allocPrivate(r *region, it *item) error {
	if it.size >= ownBytes {
		size := (it.size + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1)
		seg, root, err := c.ownSegment(r, size)
		if err != nil {
			return err
		}
		it.seg, it.room = seg, size
		it.pieces = []*chunk{{size: size, seg: seg, root: root, keys: ring{}}}
		return nil
	}
	var at uint64
	ok := false
	for _, s := range r.dir.slabs {
		if at, ok = s.space.alloc(it.room, nil); ok {
			it.slab = s
			break
		}
	}
	if !ok {
		seg, root, err := c.ownSegment(r, slabBytes)
		if err != nil {
			return err
		}
		it.slab = &slab{seg: seg, root: root, space: space{free: []pool.Range{{Size: slabBytes}}}}
		r.dir.slabs = append(r.dir.slabs, it.slab)
		at, _ = it.slab.space.alloc(it.room, nil)
	}
	it.slab.items++
	it.off = at
	it.pieces = []*chunk{{size: it.room, at: at, seg: it.slab.seg, root: it.slab.root, keys: ring{}}}
	return nil
}

// ownSegment makes a segment on a region's account; c.mu is held.
func (c *Component) ownSegment(r *region, size uint64) (seg *fabric.Segment, root fabric.Key, err error) {
	charge := r.charge
	charge.Lent, charge.What = Lent{int64(size), 1}, "a private item of region "+r.label()
	if err := c.account.Reserve(charge); err != nil {
		return nil, root, err
	}
	if seg, err = c.el.NewSegment(size, fabric.Writable); err == nil {
		if root, err = seg.Key(fabric.RightsAll); err != nil {
			seg.Close()
		}
	}
	if err != nil {
		c.account.Release(charge)
		return nil, root, err
	}
	r.charge.add(charge.Lent)
	return seg, root, nil
}

// disown closes a segment that ownSegment made; c.mu is held.
func (c *Component) disown(r *region, seg *fabric.Segment) {
	charge := r.charge
	charge.Lent = Lent{int64(seg.Size()), 1}
	r.charge.sub(charge.Lent)
	c.account.Release(charge)
	seg.Close()
}

// holds notes a principal that is given keys to an item.
func (it *item) holds(who cluster.Principal) {
	it.holders = hold(it.holders, who, func(yield func(ring) bool) {
		for _, p := range it.pieces {
			if !yield(p.keys) {
				return
			}
		}
	})
}

// itemTable is an item's table with a principal's keys; c.mu is held.
func (c *Component) itemTable(who cluster.Principal, r *region, it *item) (*pool.ItemTable, error) {
	rights := r.itemRights(it, who)
	if rights == 0 {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "any right on item " + it.label(r), Do: fmt.Sprintf("its owner, %q, can grant it (wherry pool item grant)", it.owner)}
	}
	t := &pool.ItemTable{ItemInfo: c.itemInfo(who, r, it), Here: it.size}
	it.holds(who)
	a := &answer{who: who.Name, rights: rights, ages: ofItem}
	for _, p := range it.pieces {
		if p.off >= it.size {
			break
		}
		n := min(p.size, it.size-p.off)
		size := n
		if it.seg != nil {
			size = it.seg.Size() // a key to all of it can be mapped
		}
		k, err := c.keys.give(a, p.keys, p.root, p.at, size)
		if err != nil {
			return nil, err
		}
		t.Pieces = append(t.Pieces, pool.ItemPiece{Off: p.off, Size: n, At: p.place, Own: it.private, Key: k.Append(nil)})
	}
	return t, nil
}

func (c *Component) itemInfo(who cluster.Principal, r *region, it *item) pool.ItemInfo {
	i := pool.ItemInfo{Region: r.id, Number: it.id, Generation: it.gen, Name: it.name, Component: c.el.Name(), Owner: it.owner, Size: it.size, Private: it.private,
		Rights: r.itemRights(it, who).String(), Spread: it.spread}
	if !it.private {
		i.Off = it.off
	}
	if len(it.parts) > 0 {
		i.Size = it.whole
		i.Parts = append([]pool.ItemPart{{Component: c.el.Name(), Number: it.id, Generation: it.gen, Size: it.size}}, it.parts...)
	}
	if r.administers(it, who) && len(it.grants) > 0 {
		i.Grants = map[string]string{}
		for to, rights := range it.grants {
			i.Grants[to] = rights.String()
		}
	}
	return i
}

// LookupItem gives a principal keys to an item.
func (c *Component) LookupItem(who cluster.Principal, req *pool.ItemRequest) (*pool.ItemTable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, it, err := c.findItem(who, req)
	if err != nil {
		return nil, err
	}
	return c.itemTable(who, r, it)
}

// ListItems lists the items of a region that a principal may see.
func (c *Component) ListItems(who cluster.Principal, req pool.NameRequest) (*pool.ItemList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.known(req)
	if err != nil {
		return nil, err
	}
	list := &pool.ItemList{Items: []pool.ItemInfo{}}
	for _, it := range r.dir.items {
		if r.itemRights(it, who) != 0 || r.administers(it, who) {
			list.Items = append(list.Items, c.itemInfo(who, r, it))
		}
	}
	slices.SortFunc(list.Items, func(a, b pool.ItemInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Number, b.Number))
	})
	return list, nil
}

// administered is findItem for what takes ownership.
func (c *Component) administered(who cluster.Principal, req *pool.ItemRequest) (*region, *item, error) {
	r, it, err := c.findItem(who, req)
	if err == nil && !r.administers(it, who) {
		err = &cluster.ForbiddenError{Principal: who.Name, Need: "ownership of item " + it.label(r), Do: fmt.Sprintf("only its owner, %q, the region's, %q, or an admin can do this", it.owner, r.owner)}
	}
	return r, it, err
}

// GrantItem sets what a principal may do with an item.
func (c *Component) GrantItem(who cluster.Principal, req *pool.ItemGrantRequest) error {
	rights, err := cluster.ParseRights(req.Rights)
	if err == nil && req.To != cluster.Everyone {
		err = cluster.ValidateName(req.To)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", pool.ErrSpec, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, it, err := c.administered(who, &req.ItemRequest)
	if err != nil {
		return err
	}
	if err := grant(it.grants, req.To, rights, "item "+it.label(r)); err != nil {
		return err
	}
	c.sweepItem(r, it)
	return nil
}

// sweepItem ends keys that allow more than their holders may do now; c.mu is held.
func (c *Component) sweepItem(r *region, it *item) {
	for _, p := range it.pieces {
		c.keys.sweep(p.keys, func(name string) fabric.Rights { return r.itemRights(it, it.holders[name]) })
	}
}

// ResizeItem gives an item another size where it lies. Its keys end: it is another generation.
func (c *Component) ResizeItem(who cluster.Principal, req *pool.ItemResizeRequest) (*pool.ItemTable, error) {
	if req.Size == 0 || req.Size > pool.MaxRegionBytes {
		return nil, fmt.Errorf("%w: %d bytes: 1 to %d are possible", pool.ErrSpec, req.Size, uint64(pool.MaxRegionBytes))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, it, err := c.administered(who, &req.ItemRequest)
	if err != nil {
		return nil, err
	}
	if len(it.parts) > 0 {
		return nil, fmt.Errorf("%w: item %s lies at %d components, and cannot be resized: allocate another and copy", pool.ErrSpec, it.label(r), len(it.parts)+1)
	}
	room := round(req.Size)
	old := it.room
	switch free := &r.dir.space; {
	case it.seg != nil:
		if room > it.room {
			return nil, fmt.Errorf("%w: private item %s has a segment of %d bytes: allocate another and copy", pool.ErrMemory, it.label(r), it.room)
		}
		room = it.room
	default:
		base := it.off
		if it.slab != nil {
			free = &it.slab.space
		}
		if room > old && !free.take(base+old, room-old) {
			return nil, fmt.Errorf("%w: what lies behind item %s is taken: allocate another and copy", pool.ErrMemory, it.label(r))
		}
	}
	for _, p := range it.pieces {
		c.keys.sweep(p.keys, func(string) fabric.Rights { return 0 })
	}
	// The next item to have these bytes, another one or this, sees zeros.
	if err := it.zero(min(it.size, req.Size), it.room); err != nil {
		return nil, err
	}
	if room < old {
		it.give(r, room, old-room)
	}
	it.size, it.room = req.Size, room
	switch {
	case it.slab != nil:
		it.pieces[0].size = room
	case it.seg == nil:
		it.chunks(r)
	}
	c.epoch++
	it.gen = c.epoch
	return c.itemTable(who, r, it)
}

// give gives bytes of an item back to where they are from.
func (it *item) give(r *region, from, n uint64) {
	if n == 0 {
		return
	}
	if it.slab != nil {
		it.slab.space.give(it.off+from, n)
	} else if it.seg == nil {
		r.dir.space.give(it.off+from, n)
	}
}

// zero makes bytes of an item zeros.
func (it *item) zero(from, to uint64) error {
	for _, p := range it.pieces {
		a, b := max(from, p.off), min(to, p.off+p.size)
		if a >= b || !p.seg.Pin() {
			continue
		}
		err := memfd.Zero(p.seg.Bytes(), int(p.at+a-p.off), int(b-a))
		p.seg.Unpin()
		if err != nil {
			return err
		}
	}
	return nil
}

// DestroyItem frees an item; its keys end first, and then its bytes are zeros.
func (c *Component) DestroyItem(who cluster.Principal, req *pool.ItemRequest) error {
	c.placing.Lock() // while its bytes belong to no item, no extent of theirs goes
	defer c.placing.Unlock()
	c.mu.Lock()
	r, it, err := c.administered(who, req)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	c.forget(r, it)
	c.mu.Unlock()
	if it.seg == nil { // it may be much, and no item has these bytes yet
		err = it.zero(0, it.room)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil: // bytes that are not zeros are not given out
	case !r.gone:
		c.vacate(r, it)
	case it.seg != nil: // the region is not charged any more
		it.seg.Close()
	}
	return err
}

// vacate gives an item's memory back; c.mu is held.
func (c *Component) vacate(r *region, it *item) {
	it.give(r, 0, it.room)
	if it.seg != nil {
		c.disown(r, it.seg)
	}
	if s := it.slab; s != nil {
		if s.items--; s.items == 0 {
			r.dir.slabs = slices.DeleteFunc(r.dir.slabs, func(o *slab) bool { return o == s })
			c.disown(r, s.seg)
		}
	}
}

// forget takes an item out of its directory; c.mu is held.
func (c *Component) forget(r *region, it *item) {
	delete(r.dir.items, it.id)
	if it.name != "" {
		delete(r.dir.names, it.name)
	}
	c.items--
	if c.itemCount[it.owner]--; c.itemCount[it.owner] == 0 {
		delete(c.itemCount, it.owner)
	}
	for _, p := range it.pieces {
		c.keys.sweep(p.keys, func(string) fabric.Rights { return 0 })
	}
}

// forgetAll takes all items of a region out, and says which segments were theirs alone; c.mu is held.
func (c *Component) forgetAll(r *region) (own []*fabric.Segment) {
	for it := range maps.Values(r.dir.items) {
		if it.seg != nil {
			own = append(own, it.seg)
		}
		c.forget(r, it)
	}
	for _, s := range r.dir.slabs {
		own = append(own, s.seg)
	}
	r.dir.slabs = nil
	return own
}

// added lets items have bytes that came; c.mu is held.
func (r *region) added(off, n uint64) {
	if r.dir.items == nil {
		r.dir.items, r.dir.names = map[uint32]*item{}, map[string]*item{}
	}
	r.dir.space.give(off, n)
}

// evict ends the items of a region that have bytes from off to end, which the region loses; the caller cuts those. What they have elsewhere becomes
// zeros and free. c.mu is held.
func (c *Component) evict(r *region, off, end uint64) {
	for _, it := range r.dir.items {
		if it.private || it.off >= end || it.off+it.room <= off {
			continue
		}
		c.forget(r, it)
		if it.zero(0, it.room) == nil { // else they are not given out
			c.vacate(r, it)
		}
	}
}

// itemBehind is an item that has bytes from off on; nil: none has.
func (r *region) itemBehind(off uint64) *item {
	for _, it := range r.dir.items {
		if !it.private && it.off+it.room > off {
			return it
		}
	}
	return nil
}
