// Package room keeps the accounts of an engine's instances: how many there are and what memory they are charged, of each
// principal and in all, which are idle, and which of those end to make room.
//
// An engine has a Room, each of its bounds a Pool, and each of its instances a Slot.
package room

import (
	"fmt"
	"sync"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/invariants"
	"github.com/wherry-fabric/wherry/internal/share"
)

// Config is what New needs.
type Config struct {
	Instances int    // at most
	Bytes     uint64 // that they are charged, at most
	Noun      string // what they are called in errors
	Busy      error  // what an error for want of room wraps, beside abi.ErrShareBusy or abi.ErrEngineBusy
	Closed    error
	Empty     func() // after Close, when the last instance is gone; may be nil
}

// Stats counts what a room has seen.
type Stats struct {
	Created uint64 // instances made
	Evicted uint64 // idle instances ended to make room
	Failed  uint64 // instances discarded after a failed run
	Live    int    // instances now
	Bytes   uint64 // that they are charged
}

// Room is what an engine has for instances. Its methods may be called from any goroutine.
type Room struct {
	config Config

	mu     sync.Mutex
	all    usage
	unused usage // idle ones' part of it
	users  map[string]*user
	idle   Slot // sentinel: the longest idle instance is first
	closed bool
	stats  Stats
}

// Instance is what lies in a Slot.
type Instance interface {
	abi.Instance
	Slot() *Slot
	Discard() // it is in no pool any more, and no run uses it
}

// Slot is the place of an instance, which has it as a field.
type Slot struct {
	pool       *Pool
	owner      Instance
	reserved   uint64 // charged for scratch, whole pages; of the current acquisition
	prev, next *Slot  // while it is idle
	place      place  // of the current acquisition, if it was idle
}

// usage is what instances take.
type usage struct {
	live  int    // running and idle
	bytes uint64 // of their memory and stacks, windows not counted
}

func (u usage) plus(o usage) usage { return usage{u.live + o.live, u.bytes + o.bytes} }
func (u usage) less(o usage) usage { return usage{u.live - o.live, u.bytes - o.bytes} }

// beyond reports whether one more instance is too much.
func (u usage) beyond(need uint64, instances int, bytes uint64) bool {
	return u.live+1 > instances || u.bytes+need > bytes
}

// user is one principal's part.
type user struct {
	principal string
	pools     int
	all, idle usage
}

// New makes a room.
func New(config Config) *Room {
	r := &Room{config: config, users: map[string]*user{}}
	r.idle.prev, r.idle.next = &r.idle, &r.idle
	return r
}

// Stats returns what there is and was.
func (r *Room) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Live, s.Bytes = r.all.live, r.all.bytes
	return s
}

// Close discards the idle instances and says how many still run; first is false if it was closed before. When the last of those is released,
// Config.Empty is called.
func (r *Room) Close() (running int, first bool) {
	r.mu.Lock()
	first, r.closed = !r.closed, true
	r.mu.Unlock()
	if first {
		r.Evict(func(Instance) bool { return true })
	}
	return r.Stats().Live, first
}

// Evict discards the idle instances that match.
func (r *Room) Evict(match func(Instance) bool) {
	r.mu.Lock()
	var victims []*Slot
	for s := r.idle.next; s != &r.idle; {
		victim := s
		if s = s.next; match(victim.owner) {
			r.forget(victim)
			victims = append(victims, victim)
		}
	}
	r.mu.Unlock()
	discard(victims)
}

func discard(victims []*Slot) {
	for _, v := range victims {
		v.owner.Discard()
		v.pool.left()
	}
}

// vacate forgets a principal that has nothing here: under mu.
func (r *Room) vacate(u *user) {
	if u.pools == 0 && u.all.live == 0 {
		delete(r.users, u.principal)
	}
}

// admit charges a principal need bytes for an instance that has been charged for what it has; nothing if it is new. It takes
// those off the count that have to end for it, the longest idle ones; if that does not suffice, all stay: under mu.
func (r *Room) admit(u *user, has usage, need uint64) (victims []*Slot, err error) {
	instances, bytes := share.Of(r.config.Instances), share.Of(r.config.Bytes)
	if busy := u.all.less(u.idle).less(has); busy.live > 0 && busy.beyond(need, instances, bytes) {
		return nil, abi.ErrShareBusy
	}
	if busy := r.all.less(r.unused).less(has); busy.live > 0 && busy.beyond(need, r.config.Instances, r.config.Bytes) {
		return nil, abi.ErrEngineBusy
	}
	for others := u.all.less(has); others.live > 0 && others.beyond(need, instances, bytes); others = u.all.less(has) {
		victims = append(victims, r.oldest(u))
	}
	for others := r.all.less(has); others.live > 0 && others.beyond(need, r.config.Instances, r.config.Bytes); others = r.all.less(has) {
		victims = append(victims, r.oldest(nil))
	}
	r.recharge(u, has, usage{1, need})
	return victims, nil
}

// recharge charges a principal for what an instance is now instead of what it was: under mu.
func (r *Room) recharge(u *user, was, is usage) {
	r.all = r.all.less(was).plus(is)
	u.all = u.all.less(was).plus(is)
}

// oldest takes the longest idle instance, if u is not nil of that principal, off the count: under mu.
func (r *Room) oldest(u *user) *Slot {
	victim := r.idle.next
	for u != nil && victim.pool.user != u {
		victim = victim.next
	}
	r.forget(victim)
	r.stats.Evicted++
	return victim
}

// forget takes an idle instance, which the caller will discard, off the count: under mu.
func (r *Room) forget(s *Slot) {
	r.take(s)
	r.recharge(s.pool.user, s.usage(), usage{})
	r.vacate(s.pool.user)
}

// put adds an instance to the idle ones: under mu.
func (r *Room) put(s *Slot) {
	s.pool.idle = append(s.pool.idle, s)
	s.prev, s.next = r.idle.prev, &r.idle
	r.idle.prev.next, r.idle.prev = s, s
	r.unused, s.pool.user.idle = r.unused.plus(s.usage()), s.pool.user.idle.plus(s.usage())
}

// take removes an instance from the idle ones: under mu.
func (r *Room) take(s *Slot) {
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
	u := s.pool.user
	r.unused, u.idle = r.unused.less(s.usage()), u.idle.less(s.usage())
	idle := s.pool.idle
	for i := len(idle) - 1; i >= 0; i-- {
		if idle[i] == s {
			copy(idle[i:], idle[i+1:])
			idle[len(idle)-1] = nil
			s.pool.idle = idle[:len(idle)-1]
			return
		}
	}
}

// leave takes an instance, or room that was for one, off the count.
func (r *Room) leave(p *Pool, was usage) {
	r.mu.Lock()
	r.recharge(p.user, was, usage{})
	r.vacate(p.user)
	last := r.closed && r.all.live == 0
	r.mu.Unlock()
	if p.left(); last && r.config.Empty != nil {
		r.config.Empty()
	}
}

// usage is what the instance is charged.
func (s *Slot) usage() usage { return usage{1, s.pool.base + s.reserved} }

// Idle reports whether the instance is in its pool.
func (s *Slot) Idle() bool { return s.next != nil }

// Extend charges a running instance for bytes of scratch in all, at least what it is charged now. The error, if there is no room,
// is abi.ErrShareBusy or ErrEngineBusy, and says how much there is.
func (s *Slot) Extend(scratch uint64) error {
	p, r := s.pool, s.pool.room
	bytes := p.extra(scratch)
	if bytes <= s.reserved {
		return nil
	}
	r.mu.Lock()
	victims, err := r.admit(p.user, s.usage(), p.base+bytes)
	if err == nil {
		s.reserved = bytes
	}
	r.mu.Unlock()
	discard(victims)
	return p.Explain(err, scratch)
}

// Trim gives back what an instance is charged for scratch beyond what it has.
func (s *Slot) Trim(scratch uint64) {
	p, r := s.pool, s.pool.room
	bytes := p.extra(scratch)
	if bytes >= s.reserved {
		return
	}
	r.mu.Lock()
	was := s.usage()
	s.reserved = bytes
	r.recharge(p.user, was, s.usage())
	r.mu.Unlock()
}

// Release puts an instance back, charged for no scratch any more, or discards it if it is broken or the pool is gone.
func (s *Slot) Release(broken bool) {
	p, r := s.pool, s.pool.room
	r.mu.Lock()
	if !broken && !p.closed && !r.closed {
		if invariants.Enabled && s.Idle() {
			panic("room: an instance is released twice")
		}
		was := s.usage()
		s.reserved = 0
		r.recharge(p.user, was, s.usage())
		r.put(s)
		r.mu.Unlock()
		return
	}
	if broken {
		r.stats.Failed++
	}
	r.mu.Unlock()
	s.owner.Discard()
	r.leave(p, s.usage())
}

// Explain says of an error for want of room how much of it is taken.
func (p *Pool) Explain(err error, scratch uint64) error {
	if err == nil {
		return nil
	}
	r, c := p.room, p.room.config
	r.mu.Lock()
	all, own := r.all, p.user.all
	r.mu.Unlock()
	switch err {
	case abi.ErrShareBusy:
		return fmt.Errorf("%w (%w: %q has %d %s of %d, %d MiB of %d; %d KiB are needed)", c.Busy, err, p.user.principal,
			own.live, c.Noun, share.Of(c.Instances), own.bytes>>20, share.Of(c.Bytes)>>20, p.Need(scratch)>>10)
	case abi.ErrEngineBusy:
		return fmt.Errorf("%w (%d %s of %d, %d MiB of %d; %d KiB are needed)", c.Busy,
			all.live, c.Noun, c.Instances, all.bytes>>20, c.Bytes>>20, p.Need(scratch)>>10)
	}
	return err
}
