package component

import (
	"container/list"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// ring are the keys to one thing that principals were given: one for each principal and set of rights, so that they can be taken back one by one.
type ring map[holding]*given

type holding struct {
	who    string
	rights fabric.Rights
}

// given is a key that a principal was given.
type given struct {
	key fabric.Key
	of  ring
	holding
	age *list.Element // among those of its principal; nil: it does not age
}

// keys bound what all rings have. A key that ages goes when its principal has its share and asks for another one; where all keys are given, the
// principal with most gives its oldest. Nobody says that a key is not needed any more, so the one that was asked for longest ago is believed not to be.
type keys struct {
	el        *fabric.Element
	most      int // of all principals together
	principal int // of one
	all       int
	by        map[string]*share
}

// share is what one principal has.
type share struct {
	n   int
	old list.List // of *given, oldest first: those that age
}

// give is a principal's key, made on its first wish by narrowing root.
func (b *keys) give(g ring, root fabric.Key, off, size uint64, who string, rights fabric.Rights, ages bool) (fabric.Key, error) {
	h := holding{who, rights}
	if k := g[h]; k != nil {
		if k.age != nil {
			b.by[who].old.MoveToBack(k.age)
		}
		return k.key, nil
	}
	if err := b.room(who); err != nil {
		return fabric.Key{}, err
	}
	k, err := b.el.Narrow(root, off, size, rights)
	for errors.Is(err, fabric.ErrTooMany) && b.expire(b.richest()) { // the element's other keys are more than was thought
		k, err = b.el.Narrow(root, off, size, rights)
	}
	if err != nil {
		return k, err
	}
	s := b.by[who]
	if s == nil {
		s = new(share)
		b.by[who] = s
	}
	own := &given{key: k, of: g, holding: h}
	if ages {
		own.age = s.old.PushBack(own)
	}
	g[h], b.all, s.n = own, b.all+1, s.n+1
	return k, nil
}

// room makes room for one more key of a principal.
func (b *keys) room(who string) error {
	s := b.by[who]
	if s != nil && s.n >= b.principal && !b.expire(s) {
		return fmt.Errorf("%w: %q has %d keys to regions here, the most that one principal can have, one for each extent: destroy regions, or have the node's operator raise Limits.PrincipalKeys",
			pool.ErrMemory, who, s.n)
	}
	if b.all < b.most {
		return nil
	}
	if s == nil || s.n*len(b.by) <= b.all { // it has less than a fair share
		s = b.richest()
	}
	if !b.expire(s) && !b.expire(b.richest()) {
		return fmt.Errorf("%w: %d keys to regions are given here, the most there can be, one for each extent and principal: destroy regions, or have the node's operator raise Limits.Keys", pool.ErrMemory, b.all)
	}
	return nil
}

// richest is the principal with most keys, of those that have any that age; nil: there is none.
func (b *keys) richest() (most *share) {
	for _, s := range b.by {
		if s.old.Len() > 0 && (most == nil || s.n > most.n) {
			most = s
		}
	}
	return most
}

// expire ends the oldest of a principal's keys that age, and reports whether there was one.
func (b *keys) expire(s *share) bool {
	if s == nil || s.old.Len() == 0 {
		return false
	}
	k := s.old.Front().Value.(*given)
	b.end(k)
	return true
}

func (b *keys) end(k *given) {
	b.el.Revoke(k.key) // fails only if it is revoked already
	b.forget(k)
}

// forget takes a key that has ended out of the count.
func (b *keys) forget(k *given) {
	delete(k.of, k.holding)
	s := b.by[k.who]
	if k.age != nil {
		s.old.Remove(k.age)
	}
	b.all--
	if s.n--; s.n == 0 {
		delete(b.by, k.who)
	}
}

// sweep ends the keys that allow more than their holders may do now.
func (b *keys) sweep(g ring, may func(who string) fabric.Rights) {
	for h, k := range g {
		if h.rights&^may(h.who) != 0 {
			b.end(k)
		}
	}
}

// drop forgets a ring whose segment ends, and its keys with it.
func (b *keys) drop(g ring) {
	for _, k := range g {
		b.forget(k)
	}
}
