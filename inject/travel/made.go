package travel

import (
	"fmt"

	"github.com/wherry-fabric/wherry/internal/share"
)

// A run can make a function: an image that no other element has, so the origin cannot be asked for it. The element where that happened is its
// maker (What.Maker). It keeps the image until the invocation is over, and an element that is sent the function and lacks it can ask there.
// The origin hears that something is kept, as it does of state (HOLD, DONE), and says when it can go (FREE, CANCEL).

// Make binds a function that a run has made, whose image is in the Store, and keeps the binding until Unbind. Until
// the invocation is over here, the image stays too.
func (c *Core) Make(now Instant, r *Run, image ID) (*Binding, error) {
	c.expand()
	if err := c.check(now, r); err != nil {
		return nil, err
	}
	inv, t := r.inv, r.tenant(c)
	w := What{Image: image, Table: r.binding.Table, Maker: c.cfg.Self}
	for _, b := range inv.made {
		if b.What == w {
			b.refs++
			return b, nil
		}
	}
	if t.made >= share.Of(c.lim.Made) || c.made >= c.lim.Made {
		return nil, fmt.Errorf("%w: calls that are under way have made %d functions on %s, those of principal %q %d; Limits.Made lets it have %d of %d: make fewer, or the same one again",
			ErrLimit, c.made, c.cfg.Name, t.name, t.made, share.Of(c.lim.Made), c.lim.Made)
	}
	b, err := c.BindFor(now, r, w)
	if err != nil {
		return nil, err
	}
	if !c.ensure(now, b) {
		c.unref(b)
		return nil, fmt.Errorf("%w: %v is not on %s any more", ErrNoCode, image, c.cfg.Name)
	}
	b.refs++
	inv.made = append(inv.made, b)
	t.made++
	c.made++
	return b, nil
}

// keeps reports whether something stays here until the invocation is over, of which its origin has to know.
func (inv *invocation) keeps() bool { return inv.seats.held > 0 || len(inv.made) > 0 }

// freeMade lets go of what an invocation has made here.
func (c *Core) freeMade(inv *invocation) {
	if len(inv.made) == 0 {
		return
	}
	t := c.tenantOf(inv)
	for _, b := range inv.made {
		c.unref(b)
	}
	t.made -= len(inv.made)
	c.made -= len(inv.made)
	clear(inv.made)
	inv.made = inv.made[:0]
	if t.peers == 0 {
		c.vacate(t)
	}
}
