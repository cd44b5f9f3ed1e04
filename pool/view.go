package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// view is where bytes are, as they are reached from here: one table of extents. It does not change; a region that gets another table gets another view.
type view struct {
	info    Info
	extents []extent // by offset, without gaps
	homes   []*home
	mapped  bool // all of it is
	// An offset without shift bits names a slot, and that the extents it can lie in.
	shift  uint
	slots  []slot
	closed bool

	item   *ItemInfo // it is one
	stripe uint64    // its components have blocks of so many bytes in turn; each extent is what one has. 0: they have one run each
}

// extent is an extent as it is reached from here.
type extent struct {
	off, size uint64
	at        uint64 // its offset in the words of its component
	home      *home
	remote    *fabric.Remote // nil: it is lost
}

// home is a component that has some of the extents.
type home struct {
	component string
	ep        *fabric.Endpoint
	ref       NameRequest // what the bytes are called there
}

type slot struct{ first, last uint16 } // extents: MaxExtents fits

// maxSlots bounds a view's slots. Extents of one size, as regions have that were not resized, get at least one each.
const maxSlots = 2 * MaxExtents

// index makes the slots.
func (v *view) index() {
	n := len(v.extents)
	if n == 0 {
		return
	}
	size := v.extents[n-1].off + v.extents[n-1].size
	for v.shift = 16; (size-1)>>v.shift >= maxSlots; v.shift++ {
	}
	v.slots = make([]slot, (size-1)>>v.shift+1)
	i := 0
	for k := range v.slots {
		from, to := uint64(k)<<v.shift, min(uint64(k+1)<<v.shift, size)
		for v.extents[i].off+v.extents[i].size <= from {
			i++
		}
		last := i
		for v.extents[last].off+v.extents[last].size < to {
			last++
		}
		v.slots[k] = slot{uint16(i), uint16(last)}
	}
}

// locate is the extent that has the byte at off, where in it that is, and how many bytes it has from there on; nil: there is none.
func (v *view) locate(off uint64) (e *extent, within, run uint64) {
	if v.stripe == 0 {
		if e = v.find(off); e == nil {
			return nil, 0, 0
		}
		return e, off - e.off, e.size - (off - e.off)
	}
	if off >= v.info.Size {
		return nil, 0, 0
	}
	block, in, n := off/v.stripe, off%v.stripe, uint64(len(v.extents))
	return &v.extents[block%n], block/n*v.stripe + in, min(v.stripe-in, v.info.Size-off)
}

// find is locate's extent where there are no stripes.
func (v *view) find(off uint64) *extent {
	k := off >> v.shift
	if k >= uint64(len(v.slots)) {
		return nil
	}
	s := v.slots[k]
	i := int(s.first)
	if s.first != s.last {
		i += sort.Search(int(s.last-s.first), func(j int) bool { e := &v.extents[i+j]; return off < e.off+e.size })
	}
	if e := &v.extents[i]; off-e.off < e.size {
		return e
	}
	return nil
}

// piece is a run of bytes in one extent.
type piece struct {
	e        *extent
	within   uint64 // where in the extent it begins
	from, to uint64 // which of the operation's bytes it has
}

// each calls fn for the piece of n bytes at off that each extent has, in order, until it fails.
func (v *view) each(off, n uint64, fn func(p piece) error) error {
	for done := uint64(0); done < n; {
		e, within, run := v.locate(off + done)
		p := piece{e, within, done, min(n, done+run)}
		if err := fn(p); err != nil {
			return err
		}
		done = p.to
	}
	return nil
}

// openBatch is how many components are asked at a time.
const openBatch = 32

// view asks for the keys that a table has not, and imports them all. from and ep are where the table came from; ep is nil for a manager.
func (p *Pool) view(ctx context.Context, t *Table, from string, ep *fabric.Endpoint) (_ *view, err error) {
	own := *t // the table is the caller's
	own.Parts = slices.Clone(t.Parts)
	t = &own
	v := &view{info: t.Info, mapped: true}
	defer func() {
		if err != nil {
			err = fmt.Errorf("pool: region %s at %s: %w", v.label(), v.where(), err)
		}
	}()
	v.info.Extents = len(t.Parts)
	homes := map[string]*home{}
	for _, name := range t.components() {
		h := &home{component: name, ref: NameRequest{Region: t.Region, Epoch: t.Epoch}}
		if name == "" {
			h.component, h.ep = from, ep
		}
		homes[name] = h
		v.homes = append(v.homes, h)
	}
	if err := p.ownKeys(ctx, t, homes); err != nil {
		return nil, err
	}
	v.info.Rights = t.Rights
	keys, err := t.keys()
	if err != nil {
		return nil, fmt.Errorf("its table makes no sense: %w", err)
	}
	for i, e := range t.Parts {
		x := extent{off: e.Off, size: e.Size, at: e.Off, home: homes[e.Component]}
		if e.Lost || x.home.ep == nil {
			v.mapped = false
		} else if keys[i].Owner != x.home.ep.Incarnation() {
			return nil, fmt.Errorf("%w: extent %d was node %s's before it was restarted", ErrLost, i, x.home.component)
		}
		v.extents = append(v.extents, x)
	}
	if err := v.imported(ctx, keys); err != nil {
		return nil, err
	}
	v.index()
	return v, nil
}

// ownKeys has each component that a manager's table names give the caller its keys to the extents there.
func (p *Pool) ownKeys(ctx context.Context, t *Table, homes map[string]*home) error {
	byHome := map[*home][]*Extent{}
	var asked []*home
	for i := range t.Parts {
		e := &t.Parts[i]
		if e.Lost || e.Component == "" {
			continue
		}
		h := homes[e.Component]
		if byHome[h] == nil {
			asked = append(asked, h)
		}
		byHome[h] = append(byHome[h], e)
	}
	for len(asked) > 0 {
		batch := asked[:min(len(asked), openBatch)]
		asked = asked[len(batch):]
		var work sync.WaitGroup
		errs, rights := make([]error, len(batch)), make([]string, len(batch))
		for i, h := range batch {
			work.Go(func() { rights[i], errs[i] = p.askKeys(ctx, t, h, byHome[h]) })
		}
		work.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		t.Rights = rights[0]
	}
	return nil
}

func (p *Pool) askKeys(ctx context.Context, t *Table, h *home, extents []*Extent) (rights string, err error) {
	part := new(Table)
	if h.ep, err = p.ask.Ask(ctx, h.component, CallLookup, LookupRequest{NameRequest: h.ref, Rights: t.want}, part); err != nil {
		return "", err
	}
	there := map[uint64]Extent{}
	for _, e := range part.Parts {
		there[e.Off] = e
	}
	for _, e := range extents {
		got := there[e.Off]
		if got.Size < e.Size {
			return "", fmt.Errorf("%w: node %s has %d bytes at %d of region %d, and should have %d: look it up again", ErrMoved, h.component, got.Size, e.Off, t.Region, e.Size)
		}
		e.Key = got.Key
	}
	return part.Rights, nil
}

// importBatch is how many keys are imported in one round trip: well below what may be under way on a connection.
const importBatch = 64

// imported makes the keys usable.
func (v *view) imported(ctx context.Context, keys []fabric.Key) (err error) {
	for from := 0; from < len(keys); from += importBatch {
		to := min(from+importBatch, len(keys))
		started := make([]fabric.Importing, to-from)
		for i := from; i < to; i++ {
			if !keys[i].IsZero() {
				started[i-from] = v.extents[i].home.ep.StartImport(keys[i])
			}
		}
		for i := from; i < to; i++ { // each must end
			if keys[i].IsZero() {
				continue
			}
			e := &v.extents[i]
			remote, failed := started[i-from].Wait(ctx)
			if errors.Is(failed, fabric.ErrBackpressure) {
				remote, failed = e.home.ep.Import(ctx, keys[i]) // waits for its turn
			}
			if failed != nil {
				if err == nil {
					err = VerbError(failed)
				}
				continue
			}
			e.remote = remote
			v.mapped = v.mapped && remote.Mapped()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
