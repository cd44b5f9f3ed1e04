package node

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool/component"
)

const (
	// pastTime is how long a version is kept for its readers after another one has taken its place. It is longer than most questions take,
	// and a client that stays connected without reading does not keep memory for good.
	pastTime = time.Minute
	// maxPastKeys bounds the keys of versions that are kept so: a quarter of what an element has.
	maxPastKeys = 1 << 14
)

// past is what readers still have of versions that others have taken the place of: windows, their keys, and the memory, which stays
// charged. A version goes when none of its readers is connected any more, after pastTime, when its dataset is removed, or, the oldest first, as soon as
// something else needs the memory. Its lock may be taken while the store's is held.
type past struct {
	el      *fabric.Element
	account *component.Account

	mu     sync.Mutex
	shards []*shard // the oldest first
	lent   component.Lent
	keys   int
}

// keep takes over a shard that has had its time, if somebody may be reading it. Of what can be written nothing is kept: a write to it would be lost without
// a word. It returns what the caller is to free, without the store's lock.
func (p *past) keep(sh *shard, now time.Time) (leave []*shard) {
	sh.until = now.Add(pastTime)
	if sh.writable || !sh.isRead(now) {
		return []*shard{sh}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shards = append(p.shards, sh)
	p.count(sh, 1)
	for p.keys > maxPastKeys {
		leave = append(leave, p.takeLocked(0))
	}
	return leave
}

// count adds a shard's memory and keys times n; mu is held.
func (p *past) count(sh *shard, n int) {
	p.lent.Bytes, p.lent.Files = p.lent.Bytes+int64(n)*sh.charge.Bytes, p.lent.Files+n*sh.charge.Files
	p.keys += n * len(sh.windows)
	for _, g := range sh.given {
		for _, keys := range g.keys {
			p.keys += n * len(keys)
		}
	}
}

// takeLocked takes shard i out; mu is held.
func (p *past) takeLocked(i int) *shard {
	sh := p.shards[i]
	p.shards = slices.Delete(p.shards, i, i+1)
	p.count(sh, -1)
	return sh
}

// free gives back what shards have.
func (p *past) free(shards ...*shard) {
	for _, sh := range shards {
		p.account.Release(sh.charge)
		closeAll(sh.windows)
	}
}

// take takes out the shards that gone says; the caller frees them.
func (p *past) take(gone func(*shard) bool) (leave []*shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(p.shards); {
		if !gone(p.shards[i]) {
			i++
			continue
		}
		leave = append(leave, p.takeLocked(i))
	}
	return leave
}

// expire frees the shards that nobody reads any more.
func (p *past) expire(now time.Time) {
	p.free(p.take(func(sh *shard) bool { return !sh.isRead(now) })...)
}

// yield frees shards until what something else lacks is there, or none if all together are not enough. It reports whether it freed any.
func (p *past) yield(lacks component.Lent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lent.Bytes < lacks.Bytes || p.lent.Files < lacks.Files || len(p.shards) == 0 {
		return false
	}
	for lacks.Bytes > 0 || lacks.Files > 0 {
		sh := p.takeLocked(0)
		lacks.Bytes, lacks.Files = lacks.Bytes-sh.charge.Bytes, lacks.Files-sh.charge.Files
		p.free(sh)
	}
	return true
}

// bytes is what is kept of a dataset; "": of all.
func (p *past) bytes(name string) (sum int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sh := range p.shards {
		if name == "" || sh.name == name {
			sum += sh.charge.Bytes
		}
	}
	return sum
}

// regrant revokes keys to what is kept of a dataset, as shard.regrant.
func (p *past) regrant(name string, rights func(cluster.Principal) fabric.Rights) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sh := range p.shards {
		if sh.name == name {
			p.count(sh, -1)
			sh.regrant(p.el, rights)
			p.count(sh, 1)
		}
	}
}

// takeBack revokes all keys that principals have to what is kept.
func (p *past) takeBack(principals []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sh := range p.shards {
		p.count(sh, -1)
		sh.takeBack(p.el, principals)
		p.count(sh, 1)
	}
}

// isRead reports whether a shard of the past has readers that may go on.
func (sh *shard) isRead(now time.Time) bool {
	if !now.Before(sh.until) {
		return false
	}
	for _, g := range sh.given {
		for ep := range g.readers {
			if ep.Err() == nil {
				return true
			}
		}
	}
	return false
}

// regrant revokes the keys that allow more than rights says their holder may do now.
func (sh *shard) regrant(el *fabric.Element, rights func(cluster.Principal) fabric.Rights) {
	for who, g := range sh.given {
		now := rights(g.who)
		for r, keys := range g.keys {
			if r&^now != 0 {
				revoke(el, keys)
				delete(g.keys, r)
			}
		}
		if len(g.keys) == 0 {
			delete(sh.given, who)
		}
	}
}

// takeBack revokes all keys that principals have.
func (sh *shard) takeBack(el *fabric.Element, principals []string) {
	for _, who := range principals {
		if g := sh.given[who]; g != nil {
			for _, keys := range g.keys {
				revoke(el, keys)
			}
			delete(sh.given, who)
		}
	}
}

func revoke(el *fabric.Element, keys []fabric.Key) {
	for _, k := range keys {
		el.Revoke(k) // fails only if it is revoked already
	}
}

// given are the keys that one principal has, by their rights, and how often each of its connections has asked for them.
type given struct {
	who     cluster.Principal
	keys    map[fabric.Rights][]fabric.Key
	readers map[*fabric.Endpoint]int
}

// asked notes who asks, and forgets connections that have ended.
func (g *given) asked(by *fabric.Endpoint) {
	maps.DeleteFunc(g.readers, func(ep *fabric.Endpoint, _ int) bool { return ep.Err() != nil })
	g.readers[by]++
}

// added notes that a load has ended that added to a shard, for which its client had asked once. So a client that does nothing but add keeps no memory.
func (sh *shard) added(l *load) {
	if g := sh.given[l.by.Name]; g != nil && g.readers[l.from] > 1 {
		g.readers[l.from]--
	} else if g != nil {
		delete(g.readers, l.from)
	}
}

// split leaves in g the first keys of each list, and returns the others.
func (g *given) split(first int) *given {
	rest := &given{who: g.who, keys: map[fabric.Rights][]fabric.Key{}, readers: maps.Clone(g.readers)}
	for r, keys := range g.keys {
		if n := min(first, len(keys)); n < len(keys) {
			rest.keys[r] = keys[n:]
			g.keys[r] = keys[:n:n]
		}
	}
	return rest
}
