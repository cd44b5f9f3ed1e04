package travel

import (
	"fmt"

	"github.com/wherry-fabric/wherry/internal/invariants"
	"github.com/wherry-fabric/wherry/internal/share"
)

// What is what an invocation runs.
type What struct {
	Image ID
	Table ID // zero: none
	// Constants make a function derived from the image's: the image's code is the function's, and reads them. They are part of what a
	// function is, so every message to a function that has some carries them, beside a handle too.
	Constants string
	// Maker is the incarnation of the element at which a run made the image (Core.Make): it answers for it, as no other element may have it; 0: the
	// invocation's origin has it.
	Maker uint64
	// Form is in which form of the image's code it is to run, everywhere it goes: the runtime's own number, which travels along. 0: as each element finds best.
	Form uint8
}

// Binding is a function image together with a shard table, and the form in which it is to run.
// An element gives each a slot, which is also its handle towards peers.
type Binding struct {
	What
	// Name is the function's name in errors; the runtime sets it.
	Name string
	// Elements are the incarnations of the elements that its branches may go to, besides where its roots are sent: what the table
	// names. The runtime of an origin sets them.
	Elements []uint64
	// Data is the runtime's, for what it compiled. When the binding lets go of
	// its objects it is handed to Effects.Retire and cleared.
	Data any

	owner   *string // the principal whose run had it made; nil: this element's own program did
	slot    uint16
	gen     uint32 // raised when the slot goes to another binding
	refs    int    // runs, messages under way, futures and Bind
	pinned  bool   // its objects are here and stay
	used    Instant
	parked  list[Run]
	fetches [2]*fetch // what it waits for
}

func (b *Binding) handle() uint16 { return b.slot | uint16(b.gen<<12) }

// Bind is BindAs of two ids, in the form that each element finds best.
func (c *Core) Bind(now Instant, image, table ID) (*Binding, error) {
	return c.BindAs(now, What{Image: image, Table: table})
}

// BindAs finds or makes a binding and keeps it until Unbind. The
// objects need not be in the Store until Start.
func (c *Core) BindAs(now Instant, w What) (*Binding, error) {
	c.expand()
	if err := w.check(); err != nil {
		return nil, err
	}
	b := c.bind(now, w, nil)
	if b == nil {
		return nil, fmt.Errorf("%w: all %d bindings of Limits.Bindings are in use; close prepared functions that are not needed, or raise it (at most %d)", ErrLimit, c.lim.Bindings, MaxSlots)
	}
	b.refs++
	return b, nil
}

// BindFor is BindAs of what a run names: it takes of its principal's share, as what arrives for that does.
func (c *Core) BindFor(now Instant, r *Run, w What) (*Binding, error) {
	c.expand()
	if err := w.check(); err != nil {
		return nil, err
	}
	var owner *string
	if r.inv.originPeer != nil {
		owner = &r.tenant(c).name
	}
	b := c.bind(now, w, owner)
	if b == nil {
		return nil, fmt.Errorf("%w: %s", ErrLimit, c.noBinding(owner))
	}
	b.refs++
	return b, nil
}

func (w *What) check() error {
	if w.Image.IsZero() {
		return fmt.Errorf("%w: the image's id is zero", ErrNoCode)
	}
	if len(w.Constants) > MaxConstantsBytes {
		return fmt.Errorf("%w: %d bytes of constants, at most %d", ErrTooLarge, len(w.Constants), MaxConstantsBytes)
	}
	return nil
}

// Unbind undoes one Bind.
func (c *Core) Unbind(b *Binding) { c.unref(b) }

func (c *Core) unref(b *Binding) {
	b.refs--
	if invariants.Enabled && b.refs < 0 {
		panic("travel: a binding was released more often than taken")
	}
}

// bind finds or makes a binding for a principal (nil: this element's own program), nil if every slot that it may have is in use.
func (c *Core) bind(now Instant, w What, owner *string) *Binding {
	b := c.byWhat[w]
	if b == nil {
		if b = c.freeSlot(owner); b == nil {
			return nil
		}
		c.give(b, owner)
		b.What = w
		c.byWhat[w] = b
	}
	b.used = now
	return b
}

// ownBindings reports whether a principal has as many bindings as one may: three quarters. It then takes the places of its own only.
func (c *Core) ownBindings(owner *string) bool {
	return owner != nil && c.bindingsOf[*owner] >= share.Of(c.lim.Bindings)
}

// give makes a binding a principal's.
func (c *Core) give(b *Binding, owner *string) {
	if b.owner != nil {
		if c.bindingsOf[*b.owner]--; c.bindingsOf[*b.owner] == 0 {
			delete(c.bindingsOf, *b.owner)
		}
	}
	if b.owner = owner; owner != nil {
		c.bindingsOf[*owner]++
	}
}

func (c *Core) freeSlot(owner *string) *Binding {
	own := c.ownBindings(owner)
	if !own && len(c.bindings) < c.lim.Bindings {
		b := &Binding{slot: uint16(len(c.bindings))}
		c.bindings = append(c.bindings, b)
		return b
	}
	var oldest *Binding
	for _, b := range c.bindings {
		if b.refs == 0 && (oldest == nil || b.used < oldest.used) && (!own || b.owner != nil && *b.owner == *owner) {
			oldest = b
		}
	}
	if oldest != nil {
		c.unpin(oldest)
		delete(c.byWhat, oldest.What)
		oldest.gen++
		oldest.Name, oldest.Elements = "", nil
	}
	return oldest
}

// noBinding says which limit leaves a principal none.
func (c *Core) noBinding(owner *string) string {
	whose := fmt.Sprintf("all %d bindings of Limits.Bindings are in use", c.lim.Bindings)
	if c.ownBindings(owner) {
		whose = fmt.Sprintf("%d of the %d bindings of Limits.Bindings are principal %q's, as many as one may have, and all of them are in use", c.bindingsOf[*owner], c.lim.Bindings, *owner)
	}
	return whose + "; run fewer different functions at once or raise it"
}

// ensure pins a binding's objects; false if one is not here.
func (c *Core) ensure(now Instant, b *Binding) bool {
	if b.pinned {
		return true
	}
	if !c.cfg.Store.Pin(b.Image) {
		return false
	}
	if !b.Table.IsZero() && !c.cfg.Store.Pin(b.Table) {
		c.cfg.Store.Unpin(b.Image)
		return false
	}
	b.pinned = true
	if c.sweepAt == 0 {
		c.sweepAt = now + Instant(c.lim.IdleUnpin)
	}
	return true
}

func (c *Core) unpin(b *Binding) {
	if b.pinned {
		if b.Data != nil {
			c.fx.Retire(b.Data)
		}
		b.pinned, b.Data = false, nil
		c.cfg.Store.Unpin(b.Image)
		if !b.Table.IsZero() {
			c.cfg.Store.Unpin(b.Table)
		}
	}
}

// sweep lets bindings that were not used for a while go of their objects, so
// that the Store may evict them.
func (c *Core) sweep(now Instant) {
	idle := Instant(c.lim.IdleUnpin)
	c.sweepAt = 0
	for _, b := range c.bindings {
		if b.refs > 0 {
			b.used = now
		} else if b.pinned && now-b.used >= idle {
			c.unpin(b)
		}
		if b.pinned {
			c.sweepAt = now + idle
		}
	}
}

// LetGo has the binding that nothing has used for longest, of those whose image passes, let go of its objects before its time; false: there is none.
func (c *Core) LetGo(image func(ID) bool) bool {
	c.expand()
	var oldest *Binding
	for _, b := range c.bindings {
		if b.pinned && b.refs == 0 && (oldest == nil || b.used < oldest.used) && image(b.Image) {
			oldest = b
		}
	}
	if oldest != nil {
		c.unpin(oldest)
	}
	return oldest != nil
}

// declare fills in what a message to p must say about its binding; it returns
// whether it says anything.
func (c *Core) declare(p *peer, b *Binding, e *injectExt, room int) bool {
	for len(p.told) <= int(b.slot) {
		p.told = append(p.told, 0)
	}
	if p.told[b.slot]>>2 != b.gen&(1<<30-1) {
		p.told[b.slot] = b.gen << 2
	}
	if p.told[b.slot]&toldAccepted != 0 {
		return false
	}
	e.declared, e.what = true, b.What
	if p.told[b.slot]&toldInline == 0 {
		p.told[b.slot] |= toldInline
		if c.toldParent(p, b) {
			return true
		}
		e.imageBytes = c.cfg.Store.Get(b.Image)
		if !b.Table.IsZero() {
			e.tableBytes = c.cfg.Store.Get(b.Table)
		}
		if n := len(e.imageBytes) + len(e.tableBytes); n > InlineObjectBytes || n > room {
			e.imageBytes, e.tableBytes = nil, nil
		}
	}
	return true
}

// toldParent reports whether p was told of the function that b is derived from, with its objects.
func (c *Core) toldParent(p *peer, b *Binding) bool {
	if b.Constants == "" {
		return false
	}
	parent := c.byWhat[What{Image: b.Image, Table: b.Table, Form: b.Form}]
	return parent != nil && int(parent.slot) < len(p.told) && p.told[parent.slot]>>2 == parent.gen&(1<<30-1) && p.told[parent.slot]&(toldAccepted|toldInline) != 0
}

// declared reports the fast case: p has accepted a declaration of b.
func (p *peer) declared(b *Binding) bool {
	return int(b.slot) < len(p.told) && p.told[b.slot] == b.gen<<2|toldAccepted|p.told[b.slot]&toldInline
}

// learn keeps a declaration, of message t, for the messages that name its handle only. Which of two is newer their messages' numbers say: generations
// come round after 16, and of those that a slot has had for other peers or for derived functions nothing is heard here. No peer names one for a derived function, whose constants are not
// kept for each peer.
func (p *peer) learn(t uint64, wire uint16, e *injectExt) {
	if e.what.Constants != "" {
		return
	}
	slot, gen := int(wire%MaxSlots), uint8(wire>>12)
	for len(p.handles) <= slot {
		p.handles = append(p.handles, handle{})
	}
	h := &p.handles[slot]
	switch {
	case h.known && t < h.by: // a late declaration does not replace a newer one
	case !h.known || h.gen != gen || h.what != e.what:
		*h = handle{known: true, gen: gen, by: t, what: e.what}
	default:
		h.by = t
	}
}

// resolve finds the binding that a message of a principal's names. It is nil if every slot is
// in use; known is false if the handle means nothing here.
func (c *Core) resolve(now Instant, p *peer, owner *string, wire uint16, e *injectExt) (b *Binding, known bool) {
	if e.declared { // it may be older than what its handle means now
		return c.bind(now, e.what, owner), true
	}
	slot, gen := int(wire%MaxSlots), uint8(wire>>12)
	if slot >= len(p.handles) || !p.handles[slot].known || p.handles[slot].gen != gen {
		return nil, false
	}
	h := &p.handles[slot]
	if h.b != nil && h.b.gen == h.bgen {
		h.b.used = now
		return h.b, true
	}
	if b = c.bind(now, h.what, owner); b != nil {
		h.b, h.bgen = b, b.gen
	}
	return b, true
}
