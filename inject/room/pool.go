package room

import (
	"context"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// Bound is what a Pool asks of the bound whose instances it keeps.
type Bound interface {
	// Make makes an instance; an error gives its room back.
	Make(ctx context.Context) (Instance, error)
	// Gone says that the pool is closed and its last instance gone.
	Gone()
}

// Pool is the room of one bound's instances, which one principal's runs share, one after the other. With it, a bound is an abi.Bound.
type Pool struct {
	room  *Room
	bound Bound
	user  *user
	base  uint64 // charged for each instance, besides scratch as it is asked for
	most  uint64 // of scratch, whole pages; 0: it is in base

	idle   []*Slot // under Room.mu; the last one was used last
	closed bool    // under Room.mu
	live   int     // instances and places for some, until they are gone; under Room.mu
}

// pageBytes is what scratch is charged in.
const pageBytes = 64 << 10

// Pool makes the pool of a bound. Each instance is charged base, and scratch as it is asked for, up to most.
func (r *Room) Pool(principal string, b Bound, base, most uint64) *Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.users[principal]
	if u == nil {
		u = &user{principal: principal}
		r.users[principal] = u
	}
	u.pools++
	return &Pool{room: r, bound: b, user: u, base: base, most: most}
}

// extra is what scratch takes beyond base.
func (p *Pool) extra(scratch uint64) uint64 {
	return (min(scratch, p.most) + pageBytes - 1) &^ (pageBytes - 1)
}

// Principal is whom the pool is for.
func (p *Pool) Principal() string { return p.user.principal }

// Need is how many bytes of the engine's room an instance takes whose run asks for so much scratch.
func (p *Pool) Need(scratch uint64) uint64 { return p.base + p.extra(scratch) }

// Close discards the idle instances; running ones are discarded when they are released.
func (p *Pool) Close() {
	r := p.room
	r.mu.Lock()
	if p.closed {
		r.mu.Unlock()
		return
	}
	p.closed = true
	p.live++ // until all is done here
	p.user.pools--
	r.vacate(p.user)
	r.mu.Unlock()
	r.Evict(func(in Instance) bool { return in.Slot().pool == p })
	p.left()
}

// left takes an instance off a pool. The last one to leave a closed pool says so.
func (p *Pool) left() {
	p.room.mu.Lock()
	p.live--
	last := p.closed && p.live == 0
	p.room.mu.Unlock()
	if last {
		p.bound.Gone()
	}
}

// place is room for one instance.
type place struct {
	pool    *Pool
	extra   uint64  // room for scratch
	idle    *Slot   // the one that was there; nil: one is to be made
	victims []*Slot // to be discarded, off the count already
}

// Reserve takes room for one instance with so much scratch: that of an idle one, the one used last, or new. Where all room, or three quarters of it for
// one principal, is taken, the longest idle instances of any pool make room; if that does not
// suffice, all stay, and the error is abi.ErrShareBusy for the principal's part, else abi.ErrEngineBusy.
func (p *Pool) Reserve(scratch uint64) (abi.Place, error) {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	var pl *place
	var has usage
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		pl, has = &s.place, s.usage()
		*pl = place{pool: p, idle: s}
		r.take(s)
	} else if p.closed || r.closed {
		return nil, r.config.Closed
	} else {
		pl = &place{pool: p}
	}
	pl.extra = p.extra(scratch)
	var err error
	if pl.victims, err = r.admit(p.user, has, p.base+pl.extra); err != nil {
		if pl.idle != nil {
			r.put(pl.idle)
		}
		return nil, err
	}
	if pl.idle != nil {
		pl.idle.reserved = pl.extra
	} else {
		p.live++
	}
	return pl, nil
}

// Ready reports whether an instance is there, and no other one has to end first.
func (p *place) Ready() bool { return p.idle != nil && len(p.victims) == 0 }

// Acquire gives the instance that was there or makes one. An error gives the room back.
func (p *place) Acquire(ctx context.Context) (abi.Instance, error) {
	discard(p.victims)
	p.victims = nil
	if p.idle != nil {
		return p.idle.owner, nil
	}
	r := p.pool.room
	in, err := p.pool.bound.Make(ctx)
	if err != nil {
		r.leave(p.pool, usage{1, p.pool.base + p.extra})
		return nil, err
	}
	s := in.Slot()
	s.pool, s.owner, s.reserved = p.pool, in, p.extra
	r.mu.Lock()
	r.stats.Created++
	r.mu.Unlock()
	return in, nil
}

// Release gives the room back, if Acquire was not called.
func (p *place) Release() {
	discard(p.victims)
	p.victims = nil
	if p.idle != nil {
		p.idle.owner.Release()
		return
	}
	p.pool.room.leave(p.pool, usage{1, p.pool.base + p.extra})
}
