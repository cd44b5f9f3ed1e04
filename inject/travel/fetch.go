package travel

import (
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/internal/share"
)

// fetch is one object being asked for, on behalf of the branches parked for it.
type fetch struct {
	id        ID
	tenant    *tenant // of the branch that wanted it first: it is charged to that
	sources   []*peer
	at        int // in sources
	tries     int // of this source, in vain
	upTo      int // chunks asked for so far end here
	size      int // 0: not known yet
	buf       []byte
	have      []uint64 // bitmap of chunks
	got       int
	verifying bool // Object was called
	why       string
	waiters   []*Binding
	timer     timer
	node      node[fetch]
}

// park keeps a run until its binding's objects are here.
func (c *Core) park(now Instant, r *Run, e *injectExt) {
	c.charge(r, true)
	b := r.binding
	r.state = runParked
	b.parked.push(&r.inQueue)
	c.want(now, r, b, e)
}

// want makes sure that each missing object of a binding is being asked for.
func (c *Core) want(now Instant, r *Run, b *Binding, e *injectExt) {
	var ids = [2]ID{b.Image, b.Table}
	var inline = [2][]byte{e.imageBytes, e.tableBytes}
	for i, id := range ids {
		if id.IsZero() || c.cfg.Store.Pin(id) {
			if !id.IsZero() {
				c.cfg.Store.Unpin(id)
			}
			continue
		}
		f := c.fetches[id]
		if f == nil {
			t := r.tenant(c)
			if len(c.fetches) >= c.lim.Fetches || t.fetches >= share.Of(c.lim.Fetches) {
				c.failParked(now, b, CodeBackpressure, fmt.Sprintf("%d objects are being asked for already, %d of them for principal %q; Limits.Fetches lets it have %d of %d: try again later",
					len(c.fetches), t.fetches, t.name, share.Of(c.lim.Fetches), c.lim.Fetches))
				return
			}
			t.fetches++
			f = &fetch{id: id, tenant: t}
			f.node.v, f.timer.fetch = f, f
			c.fetches[id] = f
			c.fetchList.push(&f.node)
		}
		if !slices.Contains(f.waiters, b) {
			f.waiters = append(f.waiters, b)
			b.fetches[i] = f
		}
		f.source(r.from)
		if b.Maker != 0 {
			f.source(c.byInc.get(b.Maker, 0))
		}
		f.source(r.inv.originPeer)
		switch {
		case f.verifying:
		case inline[i] != nil:
			c.whole(f, inline[i])
		case !f.timer.armed():
			c.ask(now, f)
		}
		if b.parked.first == nil {
			return // no source has it: they have failed
		}
	}
}

func (t *timer) armed() bool { return t.node.in != nil }

func (f *fetch) source(p *peer) {
	if p != nil && p.up && len(f.sources) < fetchSources && !slices.Contains(f.sources, p) {
		f.sources = append(f.sources, p)
	}
}

// unwait forgets what a binding waits for: no branch of it does any more.
func (c *Core) unwait(b *Binding) {
	for i, f := range b.fetches {
		if f == nil {
			continue
		}
		b.fetches[i] = nil
		f.waiters = slices.DeleteFunc(f.waiters, func(w *Binding) bool { return w == b })
		if len(f.waiters) == 0 {
			c.endFetch(f)
		}
	}
}

func (c *Core) endFetch(f *fetch) {
	c.wheel.disarm(&f.timer)
	f.node.leave()
	delete(c.fetches, f.id)
	c.dropBuf(f)
	if f.tenant.fetches--; f.tenant.peers == 0 {
		c.vacate(f.tenant)
	}
}

func (c *Core) dropBuf(f *fetch) {
	c.fetchSum -= len(f.buf)
	f.tenant.fetchBytes -= len(f.buf)
	f.buf, f.have, f.got, f.size, f.upTo = nil, nil, 0, 0, 0
}

// ask asks the current source for the next missing chunks.
func (c *Core) ask(now Instant, f *fetch) {
	for f.at < len(f.sources) && !f.sources[f.at].up {
		f.at++
	}
	if f.at >= len(f.sources) {
		c.failFetch(now, f)
		return
	}
	m := needMsg{id: f.id, count: needChunks}
	if f.size > 0 {
		for f.has(int(m.first)) {
			m.first++
		}
		m.count = uint16(min(needChunks, f.chunks()-int(m.first)))
	}
	f.upTo = int(m.first) + int(m.count)
	c.wheel.arm(&f.timer, now+Instant(c.lim.FetchRetry)<<min(f.tries, 4))
	c.out = m.append(c.out[:0])
	c.send(f.sources[f.at], KindNeed, c.out, nil)
	c.stats.Needs++
}

func (f *fetch) has(i int) bool { return i/64 < len(f.have) && f.have[i/64]&(1<<(i%64)) != 0 }
func (f *fetch) chunks() int    { return (f.size + ChunkBytes - 1) / ChunkBytes }

// came reports whether the object is in the store by now, by another way, and
// if so lets the branches that wait for it go on.
func (c *Core) came(now Instant, f *fetch) bool {
	if !c.cfg.Store.Pin(f.id) {
		return false
	}
	c.cfg.Store.Unpin(f.id)
	c.ObjectArrived(now, f.id)
	return true
}

// fetchTimeout asks again, or the next source.
func (c *Core) fetchTimeout(now Instant, f *fetch) {
	if c.came(now, f) {
		return
	}
	if f.tries++; f.tries >= fetchTries {
		c.nextSource(now, f, f.sources[f.at].Name+" does not answer")
		return
	}
	c.ask(now, f)
}

func (c *Core) nextSource(now Instant, f *fetch, why string) {
	if c.came(now, f) {
		return
	}
	if f.why != "" {
		f.why += "; "
	}
	f.why = clip(f.why+why, maxText/4)
	f.at++
	f.tries = 0
	c.dropBuf(f)
	c.ask(now, f)
}

// failFetch ends the branches that wait for an object that no source can give.
func (c *Core) failFetch(now Instant, f *fetch) {
	text := fmt.Sprintf("object %v could not be had: %s", f.id, f.why)
	for len(f.waiters) > 0 {
		b := f.waiters[0]
		if b.Maker != 0 && b.Maker != c.cfg.Self && !c.sees(b.Maker) {
			c.failParked(now, b, CodePeerLost, text+"; a run made it at an element that is gone")
			continue
		}
		c.failParked(now, b, CodeNoCode, text)
	}
}

// sees reports whether there is an endpoint to an incarnation.
func (c *Core) sees(inc uint64) bool {
	p := c.byInc.get(inc, 0)
	return p != nil && p.up
}

// failParked ends all branches parked for a binding. The last one ends what
// the binding waits for.
func (c *Core) failParked(now Instant, b *Binding, code Code, text string) {
	b.refs++
	for b.parked.first != nil {
		c.failRun(now, b.parked.first.v, code, text)
	}
	c.unwait(b)
	b.refs--
}

func (c *Core) fetchSourceLost(now Instant, p *peer) {
	for n := c.fetchList.first; n != nil; {
		f := n.v
		n = n.next
		if f.at < len(f.sources) && f.sources[f.at] == p && !f.verifying {
			c.wheel.disarm(&f.timer)
			c.nextSource(now, f, p.Name+" was lost")
			n = c.fetchList.first // others may have ended with it
		}
	}
}

// whole hands an object over for verification.
func (c *Core) whole(f *fetch, data []byte) {
	f.verifying = true
	c.wheel.disarm(&f.timer)
	c.fx.Object(f.id, data)
	c.dropBuf(f)
}

// ObjectArrived says that an object is in the Store, verified: what waits
// for it goes on (NextRun). It is called for every object that enters the
// Store, also those that no branch is known to wait for.
func (c *Core) ObjectArrived(now Instant, id ID) {
	c.expand()
	f := c.fetches[id]
	if f == nil {
		return
	}
	waiters := f.waiters
	f.waiters = nil
	c.endFetch(f)
	for _, b := range waiters {
		for i := range b.fetches {
			if b.fetches[i] == f {
				b.fetches[i] = nil
			}
		}
		if b.fetches != [2]*fetch{} {
			continue
		}
		if !c.ensure(now, b) { // the store has let go of it, or of the other one, already
			if n := b.parked.first; n != nil {
				c.want(now, n.v, b, &injectExt{})
			}
			continue
		}
		for n := b.parked.first; n != nil; n = b.parked.first {
			n.leave()
			c.admit(now, n.v, false)
		}
	}
}

// ObjectFailed says that what Object handed over was not the object, or could
// not be kept. The next source is asked.
func (c *Core) ObjectFailed(now Instant, id ID, why error) {
	c.expand()
	f := c.fetches[id]
	if f == nil || !f.verifying {
		return
	}
	f.verifying = false
	text := "what came was not the object"
	if why != nil {
		text = why.Error()
	}
	c.nextSource(now, f, text)
}

// recvNeed answers with the chunks asked for. It keeps nothing: what finds no
// room is asked for again.
func (c *Core) recvNeed(p *peer, body []byte) error {
	var m needMsg
	if err := m.decode(body); err != nil {
		return err
	}
	data := c.cfg.Store.Get(m.id)
	a := codeMsg{id: m.id, size: uint32(len(data))}
	if len(data) == 0 {
		c.out = a.append(c.out[:0])
		c.send(p, KindCode, c.out, nil)
		return nil
	}
	for i := int(m.first); i < int(m.first)+int(m.count) && p.up && len(p.outbox) == 0; i++ {
		first, end := chunk(len(data), i)
		if first == end {
			break
		}
		a.index = uint16(i)
		c.out = a.append(c.out[:0])
		if c.fx.Send(p.num, KindCode, c.out, data[first:end]) != nil {
			break
		}
		c.stats.Chunks++
	}
	return nil
}

func (c *Core) recvCode(now Instant, p *peer, body []byte) error {
	var m codeMsg
	if err := m.decode(body); err != nil {
		return err
	}
	f := c.fetches[m.id]
	if f == nil || f.verifying || f.at >= len(f.sources) || f.sources[f.at] != p {
		return nil // it was not asked for, or not from this peer
	}
	size := int(m.size)
	switch {
	case size == 0:
		c.nextSource(now, f, p.Name+" does not have it")
		return nil
	case size > c.lim.ObjectBytes:
		c.nextSource(now, f, fmt.Sprintf("%s says it has %d bytes, at most %d are taken", p.Name, size, c.lim.ObjectBytes))
		return nil
	case f.size != 0 && size != f.size:
		c.nextSource(now, f, fmt.Sprintf("%s says it has %d bytes, and then %d", p.Name, f.size, size))
		return nil
	case f.size == 0 && (c.fetchSum+size > c.lim.FetchBytes || f.tenant.fetchBytes > 0 && f.tenant.fetchBytes+size > share.Of(c.lim.FetchBytes)):
		return nil // too much under way: asked for again later
	case f.size == 0:
		f.size, f.buf = size, make([]byte, size)
		f.have = make([]uint64, f.chunks()/64+1)
		c.fetchSum += size
		f.tenant.fetchBytes += size
	}
	c.chunkIn(now, f, &m)
	return nil
}

func (c *Core) chunkIn(now Instant, f *fetch, m *codeMsg) {
	i := int(m.index)
	if f.has(i) {
		return
	}
	first, _ := chunk(f.size, i)
	copy(f.buf[first:], m.data)
	f.have[i/64] |= 1 << (i % 64)
	f.got++
	f.tries = 0
	if f.got == f.chunks() {
		c.whole(f, f.buf)
		return
	}
	for k := range f.upTo {
		if !f.has(k) {
			return
		}
	}
	c.ask(now, f)
}
