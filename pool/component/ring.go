package component

import (
	"container/list"
	"errors"
	"fmt"
	"iter"

	"github.com/wherry-fabric/wherry/cluster"
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
	ages ages
	age  *list.Element // among those of its principal that age so; nil: it does not
}

// ages is how a key ages.
type ages int

const (
	ofItem   ages = iota // before those to regions
	ofRegion             // of another principal's
	kinds
	never = kinds // to a region of the principal's own, which it pays for
)

// keys bound what all rings have. A key that ages goes when its principal has its share and asks for another one; where all keys are given, the
// principal with most gives its oldest. Clients do not say that a key is not needed any more, so the one that was asked for longest ago is believed not to be.
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
	old [kinds]list.List // of *given, oldest first
}

// answer is what one principal is given at a time: none of its keys ends for another of them.
type answer struct {
	who    string
	rights fabric.Rights
	ages   ages
	n      int // keys that it has so far
}

// give is a principal's key, made on its first wish by narrowing root. It becomes part of an answer.
func (b *keys) give(a *answer, g ring, root fabric.Key, off, size uint64) (fabric.Key, error) {
	h := holding{a.who, a.rights}
	if k := g[h]; k != nil {
		if k.age != nil {
			b.by[a.who].old[k.ages].MoveToBack(k.age)
			a.n++
		}
		return k.key, nil
	}
	if err := b.room(a); err != nil {
		return fabric.Key{}, err
	}
	k, err := b.el.Narrow(root, off, size, a.rights)
	for errors.Is(err, fabric.ErrTooMany) && b.expire(b.richest(a)) { // the element's other keys are more than was thought
		k, err = b.el.Narrow(root, off, size, a.rights)
	}
	if err != nil {
		return k, err
	}
	s := b.by[a.who]
	if s == nil {
		s = new(share)
		b.by[a.who] = s
	}
	own := &given{key: k, of: g, holding: h, ages: a.ages}
	if a.ages != never {
		own.age = s.old[a.ages].PushBack(own)
		a.n++
	}
	g[h], b.all, s.n = own, b.all+1, s.n+1
	return k, nil
}

// room makes room for one more key of an answer.
func (b *keys) room(a *answer) error {
	s := b.by[a.who]
	if s != nil && s.n >= b.principal && !b.expire(b.oldest(s, a)) {
		return fmt.Errorf("%w: %q has %d keys to its regions, and to what it asks for, here, the most that one principal can have, one for each extent: destroy regions, or have the node's operator raise Limits.PrincipalKeys",
			pool.ErrMemory, a.who, s.n)
	}
	if b.all < b.most {
		return nil
	}
	var old *given
	if s != nil && s.n*len(b.by) > b.all { // it has more than a fair share
		old = b.oldest(s, a)
	}
	if !b.expire(old) && !b.expire(b.richest(a)) {
		return fmt.Errorf("%w: %d keys are given here, the most there can be, one for each extent and principal, and none is to another's region or item: destroy regions, or have the node's operator raise Limits.Keys",
			pool.ErrMemory, b.all)
	}
	return nil
}

// oldest is the key that a principal gives up first, and none of a's; nil: there is none.
func (b *keys) oldest(s *share, a *answer) *given {
	for kind := range s.old {
		n := s.old[kind].Len()
		if ages(kind) == a.ages && s == b.by[a.who] {
			n -= a.n // those are at the back
		}
		if n > 0 {
			return s.old[kind].Front().Value.(*given)
		}
	}
	return nil
}

// richest is the oldest key of the principal with most, of those that have any that age; nil: there is none.
func (b *keys) richest(a *answer) (old *given) {
	most := 0
	for _, s := range b.by {
		if k := b.oldest(s, a); k != nil && s.n > most {
			most, old = s.n, k
		}
	}
	return old
}

// expire ends a key that ages, and reports whether there was one.
func (b *keys) expire(k *given) bool {
	if k == nil {
		return false
	}
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
		s.old[k.ages].Remove(k.age)
	}
	b.all--
	if s.n--; s.n == 0 {
		delete(b.by, k.who)
	}
}

// spareHolders are so few that it is not looked which of them have keys still.
const spareHolders = 16

// hold notes a principal that is given keys of rings, and returns the map that has it. Principals that have none any more, as theirs have aged, are forgotten once they are
// the most.
func hold(holders map[string]cluster.Principal, who cluster.Principal, rings iter.Seq[ring]) map[string]cluster.Principal {
	holders[who.Name] = who
	n := spareHolders
	for g := range rings {
		n += len(g)
	}
	if len(holders) <= 2*n {
		return holders
	}
	have := map[string]cluster.Principal{who.Name: who}
	for g := range rings {
		for h := range g {
			have[h.who] = holders[h.who]
		}
	}
	return have
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
