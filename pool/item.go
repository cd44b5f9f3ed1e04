package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// Item is a named or unnamed allocation in a region that was opened. Its methods may be called from any goroutine.
type Item struct {
	Memory
	region *Region // nil: it was opened without

	mu sync.Mutex // taken by what changes the view
}

// ItemSpec describes an item to be allocated.
type ItemSpec struct {
	// Name is unique in its region: letters, digits and ". _ - /". Without one it is found by its number only.
	Name string
	Size uint64 // in bytes
	// Private: what principals may do with the region says nothing about the item: its owner may do all, others what they are granted. It lies beside the
	// region's extents, on the account of the region's owner: from 64 KiB in a segment of its own.
	Private bool
	// Components is how many of the region's components it is spread over; 0 and 1: it lies at one, the first of the region's that has room.
	Components int
	// Block is how many bytes one of several components has before the next has some, a multiple of ItemAlign; 0: each has one run.
	Block uint64
}

// CreateItem allocates an item. It takes the right to write to the region. The bytes are zeros, unless the region was written there by its offsets before.
func (r *Region) CreateItem(ctx context.Context, s ItemSpec) (*Item, error) {
	v := r.view.Load()
	n := max(s.Components, 1)
	if s.Size == 0 || n > len(v.homes) || n > MaxItemParts || s.Block%ItemAlign != 0 || uint64(n) > s.Size {
		return nil, v.fail("allocation", 0, s.Size, fmt.Errorf("%w: an item of %d bytes over %d of the region's %d components in blocks of %d bytes", ErrSpec, s.Size, n, len(v.homes), s.Block))
	}
	for _, h := range v.homes[:n] {
		if err := v.lost("allocation", h); err != nil {
			return nil, err
		}
	}
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	it, err := r.allocate(ctx, v, s, at, shares(s.Size, uint64(n), s.Block))
	for i := 1; n == 1 && i < len(v.homes) && errors.Is(err, ErrMemory); i++ { // the directory's component is full: another one has the bytes
		if v.homes[i].ep == nil {
			continue
		}
		var e error
		if it, e = r.allocate(ctx, v, s, []int{0, i}, []uint64{0, s.Size}); e == nil {
			return it, nil
		}
		if err = errors.Join(err, e); !errors.Is(e, ErrMemory) {
			break
		}
	}
	return it, err
}

// allocate makes an item's parts: so many bytes at each of these components, the first of which has the directory.
func (r *Region) allocate(ctx context.Context, v *view, s ItemSpec, at []int, sizes []uint64) (*Item, error) {
	n := len(at)
	req := ItemCreateRequest{NameRequest: r.ref(), ItemName: s.Name, Private: s.Private, Solid: s.Block > 0}
	tables, eps := make([]*ItemTable, n), make([]*fabric.Endpoint, n)
	create := func(i int) (err error) {
		one := req
		if one.Size = sizes[i]; i > 0 {
			one.ItemName = "" // the directory has it
		}
		tables[i] = new(ItemTable)
		eps[i], err = r.pool.ask.Ask(ctx, v.homes[at[i]].component, CallItemCreate, one, tables[i])
		return err
	}
	errs := make([]error, n)
	var work sync.WaitGroup
	for i := 1; i < n; i++ {
		work.Go(func() { errs[i] = create(i) })
	}
	work.Wait()
	err := errors.Join(errs...)
	if err == nil {
		for i := 1; i < n; i++ {
			t := tables[i]
			req.Parts = append(req.Parts, ItemPart{v.homes[at[i]].component, t.Number, t.Generation, t.Here})
		}
		if n > 1 {
			req.Whole, req.Spread = s.Size, s.Block
		}
		errs[0] = create(0)
		err = errs[0]
	}
	var it *Item
	if err == nil {
		it, err = r.pool.newItem(ctx, r, tables, eps)
	}
	if err != nil {
		for i, t := range tables { // no one else knows of them
			if t != nil && errs[i] == nil && t.Number != 0 {
				err = errors.Join(err, r.pool.tell(ctx, v.homes[at[i]].component, CallItemDestroy, t.request()))
			}
		}
		return nil, fmt.Errorf("pool: %w", err)
	}
	return it, nil
}

// shares are how many bytes of an item each of n components has.
func shares(size, n, block uint64) []uint64 {
	if n == 1 {
		return []uint64{size}
	}
	out := make([]uint64, n)
	if block == 0 {
		each := ((size+n-1)/n + ItemAlign - 1) &^ (ItemAlign - 1)
		for i := range out { // of a small one the last components have a byte that is not used
			out[i] = max(1, min(each, size-min(size, each*uint64(i))))
		}
		return out
	}
	blocks := (size + block - 1) / block
	for i := range out {
		out[i] = max(1, (blocks-min(blocks, uint64(i))+n-1)/n) * block
	}
	return out
}

func (t *ItemTable) request() ItemRequest {
	return ItemRequest{NameRequest: NameRequest{Region: t.Region}, Number: t.Number, Generation: t.Generation}
}

// lost reports a region that is closed here, or a component that is gone with its bytes, and with its items.
func (v *view) lost(op string, h *home) error {
	switch {
	case v.closed:
		return v.fail(op, 0, 0, ErrClosed)
	case h.ep != nil:
		return nil
	}
	return v.failAt(h.component, op, 0, 0, fmt.Errorf("%w: node %s had the region's items, or was to have some", ErrLost, h.component))
}

// LookupItem opens an item by its name, with all rights that the caller has.
func (r *Region) LookupItem(ctx context.Context, name string) (*Item, error) {
	v := r.view.Load()
	if err := v.lost("item "+name, v.homes[0]); err != nil {
		return nil, err
	}
	var lost []string
	for _, h := range v.homes {
		if h.ep == nil {
			lost = append(lost, h.component)
		}
	}
	return r.pool.lookupItem(ctx, r, v.homes[0].component, ItemRequest{NameRequest: r.ref(), ItemName: name}, lost)
}

// LookupItem opens an item of a region that need not be opened: the caller may have rights to the item only.
func (p *Pool) LookupItem(ctx context.Context, component, region, name string) (*Item, error) {
	ref := NameRequest{Name: region}
	var lost []string
	if component == Manager {
		t := new(Table)
		if _, err := p.askHome(ctx, Manager, CallLookup, LookupRequest{NameRequest: ref}, t); err != nil {
			return nil, err
		}
		if first := t.Parts[0]; first.Lost {
			return nil, fmt.Errorf("pool: %w: node %s had the directory of items of region %q", ErrLost, first.Component, region)
		}
		component, ref = t.Parts[0].Component, NameRequest{Region: t.Region, Epoch: t.Epoch}
		lost = t.lost()
	}
	return p.lookupItem(ctx, nil, component, ItemRequest{NameRequest: ref, ItemName: name}, lost)
}

// lookupItem asks component, which has the directory. lost are components whose bytes of the region are gone.
func (p *Pool) lookupItem(ctx context.Context, r *Region, component string, req ItemRequest, lost []string) (*Item, error) {
	head := new(ItemTable)
	ep, err := p.ask.Ask(ctx, component, CallItemLookup, req, head)
	var it *Item
	if err == nil {
		it, err = p.wholeItem(ctx, r, head, ep, lost)
	}
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	return it, nil
}

// wholeItem asks for the parts at other components, none of which may be lost: nobody may know such a component by its name any more.
func (p *Pool) wholeItem(ctx context.Context, r *Region, head *ItemTable, ep *fabric.Endpoint, lost []string) (*Item, error) {
	n := max(len(head.Parts), 1)
	tables, eps, errs := make([]*ItemTable, n), make([]*fabric.Endpoint, n), make([]error, n)
	tables[0], eps[0] = head, ep
	named := head.request()
	named.ItemName = head.Name
	var work sync.WaitGroup
	for i := 1; i < n; i++ {
		part := head.Parts[i]
		if slices.Contains(lost, part.Component) {
			errs[i] = fmt.Errorf("%w: node %s had %d bytes of item %v", ErrLost, part.Component, part.Size, named)
			continue
		}
		tables[i] = new(ItemTable)
		req := ItemRequest{NameRequest: NameRequest{Region: head.Region}, Number: part.Number, Generation: part.Generation}
		work.Go(func() {
			if eps[i], errs[i] = p.ask.Ask(ctx, part.Component, CallItemLookup, req, tables[i]); errs[i] != nil {
				errs[i] = fmt.Errorf("node %s has %d bytes of item %v: %w", part.Component, part.Size, named, errs[i])
			}
		})
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p.newItem(ctx, r, tables, eps)
}

func (p *Pool) newItem(ctx context.Context, r *Region, tables []*ItemTable, eps []*fabric.Endpoint) (*Item, error) {
	v, err := itemView(ctx, r, tables, eps)
	if err != nil {
		return nil, err
	}
	it := &Item{Memory: Memory{pool: p}, region: r}
	it.view.Store(v)
	return it, nil
}

// itemView makes a view of an item's tables, one of each component, the directory's first.
func itemView(ctx context.Context, r *Region, tables []*ItemTable, eps []*fabric.Endpoint) (*view, error) {
	head := tables[0]
	info := head.ItemInfo
	v := &view{item: &info, stripe: info.Spread, mapped: true, info: Info{Region: info.Region, Epoch: info.Generation, Name: info.Name, Component: info.Component,
		Owner: info.Owner, Size: info.Size, Rights: info.Rights}}
	off := uint64(0)
	for i, t := range tables {
		if t.Size == 0 || i > 0 && t.Here != info.Parts[i].Size || len(t.Pieces) != 1 && v.stripe > 0 {
			return nil, fmt.Errorf("%w: part %d of item %d has %d bytes, and its directory says otherwise: look it up again", ErrMoved, i, head.Number, t.Here)
		}
		h := &home{component: t.Component, ep: eps[i], ref: NameRequest{Region: t.Region, Item: t.Number, Epoch: t.Generation}}
		v.homes = append(v.homes, h)
		for _, p := range t.Pieces {
			remote, err := pieceRemote(ctx, r, h, &p)
			if err != nil {
				return nil, VerbError(err)
			}
			v.mapped = v.mapped && remote.Mapped()
			if size := p.Size; v.stripe > 0 || off+p.Off < info.Size { // a part may have a byte that is not used
				if v.stripe == 0 {
					size = min(size, info.Size-off-p.Off)
				}
				v.extents = append(v.extents, extent{off: off + p.Off, size: size, at: p.Off, home: h, remote: remote})
			}
		}
		off += t.Here
	}
	if v.stripe > 0 {
		return v, nil // every block has its component
	}
	if off < info.Size {
		return nil, fmt.Errorf("%w: parts of %d bytes for an item of %d: look it up again", ErrMoved, off, info.Size)
	}
	v.index()
	return v, nil
}

// pieceRemote makes a piece's key usable: through the region's mapping, if there is one, as a segment of its own, or served by its component.
func pieceRemote(ctx context.Context, r *Region, h *home, p *ItemPiece) (*fabric.Remote, error) {
	k, err := fabric.DecodeKey(p.Key)
	if err == nil && k.Size < p.Size {
		err = fmt.Errorf("a piece of %d bytes with a key to %d", p.Size, k.Size)
	}
	if err != nil {
		return nil, err
	}
	if p.Own {
		return h.ep.Import(ctx, k)
	}
	if r != nil {
		if e := r.view.Load().find(p.At); e != nil && e.remote != nil && e.remote.Mapped() && e.remote.Endpoint() == h.ep && p.At-e.off+k.Size <= e.size {
			return e.remote.Part(k, p.At-e.off)
		}
	}
	return h.ep.Served(k), nil
}

// Info is the item as it was when it was opened.
func (it *Item) Info() ItemInfo { return *it.view.Load().item }

// Address is the address of a byte of the item, for clients that may use its region. A private item has none, and neither has one that does not lie, whole, at
// the region's first component: 0.
func (it *Item) Address(off uint64) Address {
	i := it.Info()
	if i.Private || len(i.Parts) > 0 {
		return 0
	}
	return MakeAddress(i.Region, i.Off+off)
}

// parts calls fn with each component that has some of the item, and what the item is there, the directory's last; all of them, and joins the errors.
func (it *Item) parts(fn func(component string, req ItemRequest) error) error {
	v := it.view.Load()
	var errs []error
	for i := len(v.homes) - 1; i >= 0; i-- {
		h := v.homes[i]
		errs = append(errs, fn(h.component, ItemRequest{NameRequest: NameRequest{Region: h.ref.Region}, Number: h.ref.Item, Generation: h.ref.Epoch}))
	}
	return errors.Join(errs...)
}

// Destroy frees the item, for everybody. It takes ownership of it or of its region.
func (it *Item) Destroy(ctx context.Context) error {
	return it.parts(func(component string, req ItemRequest) error {
		return it.pool.tell(ctx, component, CallItemDestroy, req)
	})
}

// Grant sets what a principal may do with the item beyond what it may do with the region, as in "r" or "all"; "none" takes it away.
func (it *Item) Grant(ctx context.Context, to, rights string) error {
	return it.parts(func(component string, req ItemRequest) error {
		return it.pool.tell(ctx, component, CallItemGrant, ItemGrantRequest{req, to, rights})
	})
}

// Resize gives the item another size where it lies; it fails with ErrMemory where what follows is taken. Clients that opened it before get ErrMoved. It takes ownership.
func (it *Item) Resize(ctx context.Context, size uint64) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	v := it.view.Load()
	h := v.homes[0]
	t := new(ItemTable)
	req := ItemRequest{NameRequest: NameRequest{Region: h.ref.Region}, Number: h.ref.Item, Generation: h.ref.Epoch}
	ep, err := it.pool.ask.Ask(ctx, h.component, CallItemResize, ItemResizeRequest{req, size}, t)
	if err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	next, err := itemView(ctx, it.region, []*ItemTable{t}, []*fabric.Endpoint{ep})
	if err == nil {
		it.view.Store(next)
	}
	return err
}

// DestroyItem frees an item by its name.
func (r *Region) DestroyItem(ctx context.Context, name string) error {
	it, err := r.LookupItem(ctx, name)
	if err != nil {
		return err
	}
	return it.Destroy(ctx)
}

// ListItems lists the region's items that the caller may see, by name and then by number. Parts that other components have of an item are not listed.
func (r *Region) ListItems(ctx context.Context) ([]ItemInfo, error) {
	v := r.view.Load()
	if err := v.lost("list of items", v.homes[0]); err != nil {
		return nil, err
	}
	list := new(ItemList)
	if _, err := r.pool.ask.Ask(ctx, v.homes[0].component, CallItemList, r.ref(), list); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	return list.Items, nil
}
