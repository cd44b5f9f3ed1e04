package travel

import (
	"errors"
	"fmt"
	"slices"
)

func isBackpressure(err error) bool { return err != nil && errors.Is(err, ErrBackpressure) }

// record is one transfer that its receiver has not released: custody of a
// branch (INJECT), or a report that must arrive (DONE, LOST, PART, LIST).
type record struct {
	kind     recordKind
	accepted bool
	declares bool // carried the binding's declaration
	to       *peer
	transfer uint64
	branch   uint64
	inv      *invocation
	hold     *hold    // until accepted: the transfer this one continues
	binding  *Binding // of an INJECT
	inInv    node[record]
}

type recordKind uint8

const (
	recordInject recordKind = iota
	recordReport            // done when accepted
)

// hold is a transfer that arrived here and is not yet released: it counts the
// runs it led to and their transfers that nobody has accepted yet. Its
// predecessor keeps custody until it is zero.
type hold struct {
	pred     *peer // nil: a branch that began here
	transfer uint64
	count    int
	refused  bool // reported as lost: no release
}

func (c *Core) newHold(pred *peer, transfer uint64) *hold {
	h := c.holdPool.get()
	if h == nil {
		h = new(hold)
	}
	*h = hold{pred: pred, transfer: transfer, count: 1}
	return h
}

// settle takes one off a hold; the last one releases the predecessor.
func (c *Core) settle(now Instant, h *hold) {
	if h.count--; h.count > 0 {
		return
	}
	if h.pred != nil && h.pred.up && !h.refused {
		c.noteReleased(now, h.pred, h.transfer)
	}
	h.pred = nil
	c.holdPool.put(h)
}

// refuseHold tells the predecessor that what it sent ended here without its
// origin hearing of it. The origin itself is not told: it has custody until the endpoint to it ends.
func (c *Core) refuseHold(now Instant, h *hold, inv *invocation) {
	if h.refused || h.pred == nil || !h.pred.up {
		return
	}
	if h.refused = true; h.pred == inv.originPeer {
		return
	}
	c.sendRefused(h.pred, h.transfer, CodeOriginLost, reasonOther, "the element lost its connection to the origin")
}

// Refusal is the answer (of KindRefused) to a branch that came over an endpoint
// which is no peer of any core. body is the message that brought it; an error Is ErrProtocol.
func Refusal(body []byte, code Code, text string) ([]byte, error) {
	var m injectMsg
	var ext injectExt
	if err := m.decode(body, &ext); err != nil {
		return nil, err
	}
	r := refusedMsg{transfer: m.transfer, code: code, reason: reasonOther, text: []byte(clip(text, maxText))}
	return r.append(nil), nil
}

// Returned is what to have the core Recv (as KindRefused) when an INJECT comes back, because its receiver takes none. head is the message's
// beginning; an error Is ErrProtocol.
func Returned(head []byte, text string) ([]byte, error) {
	if len(head) < injectHeadBytes {
		return nil, malformed(KindInject, "%d bytes of it come back, at least %d are needed", len(head), injectHeadBytes)
	}
	r := refusedMsg{transfer: getU24(head[6:]), code: CodeRefused, reason: reasonOther, text: []byte(clip(text, maxText))}
	return r.append(nil), nil
}

func (c *Core) sendRefused(p *peer, transfer uint64, code Code, reason uint8, text string) {
	m := refusedMsg{transfer: transfer, code: code, reason: reason, text: []byte(clip(text, maxText))}
	c.out = m.append(c.out[:0])
	c.send(p, KindRefused, c.out, nil)
	c.stats.Refused++
}

// room reports whether a transfer of a tenant's may be numbered towards p. Reports have a part of the window and of
// Limits.Records for themselves; of both parts of the latter one tenant has its share at most. It may use c.out.
func (c *Core) room(p *peer, t *tenant, report bool) bool {
	window, records := uint64(WindowTransfers-reportTransfers), c.lim.Records*3/4
	if report {
		window, records = WindowTransfers, c.lim.Records
	}
	if p.next-p.low < window && c.records < records && t.records < share(records) {
		return true
	}
	if len(c.spent) == 0 {
		return false
	}
	c.putAway() // those are released
	return c.room(p, t, report)
}

// noRoom says why room found none.
func (c *Core) noRoom(p *peer, t *tenant) error {
	return fmt.Errorf("%w: %d transfers to %s are not acknowledged yet, of principal %q %d to anybody, and %d in all; a window has %d, and Limits.Records lets a principal have %d of %d",
		ErrBackpressure, p.next-p.low, p.Name, t.name, t.records, c.records, WindowTransfers, share(c.lim.Records), c.lim.Records)
}

// record counts by records more for a tenant.
func (c *Core) record(t *tenant, by int) {
	c.records += by
	t.records += by
}

// number gives the next transfer to p its number and its record. h, if any,
// counts it until it is accepted.
func (c *Core) number(p *peer, kind recordKind, inv *invocation, branch uint64, h *hold) *record {
	r := c.keep(p, p.next, kind, inv, branch, h)
	p.next++
	c.record(c.tenantOf(inv), 1)
	return r
}

// keep makes the record of a transfer that has its number.
func (c *Core) keep(p *peer, t uint64, kind recordKind, inv *invocation, branch uint64, h *hold) *record {
	r := c.recordPool.get()
	if r == nil {
		r = new(record)
		r.inInv.v = r
	}
	r.kind, r.accepted, r.declares = kind, false, false
	r.to, r.transfer, r.branch, r.inv, r.hold, r.binding = p, t, branch, inv, h, nil
	if h != nil {
		h.count++
	}
	p.records.put(t, 0, r)
	inv.records.push(&r.inInv)
	return r
}

// giveUp marks a transfer as accepted for the window's sake.
func (p *peer) giveUp(t uint64) {
	if t < p.low {
		return
	}
	if t != p.low {
		p.acked[t%WindowTransfers/64] |= 1 << (t % 64)
		return
	}
	for p.low++; p.low < p.next; p.low++ {
		w, bit := &p.acked[p.low%WindowTransfers/64], uint64(1)<<(p.low%64)
		if *w&bit == 0 {
			return
		}
		*w &^= bit
	}
}

// accept notes that the receiver has a transfer.
func (c *Core) accept(now Instant, p *peer, t uint64) {
	if t < p.low || p.acked[t%WindowTransfers/64]&(1<<(t%64)) != 0 {
		return
	}
	p.giveUp(t)
	if s := p.relayed(t); s != nil {
		c.acceptRelay(now, s)
		return
	}
	r := p.records.get(t, 0)
	if r == nil || r.accepted {
		return
	}
	r.accepted = true
	if r.declares {
		p.told[r.binding.slot] |= toldAccepted
	}
	if h := r.hold; h != nil {
		r.hold = nil
		c.settle(now, h)
	}
	if r.kind == recordReport {
		c.dropRecord(now, r)
	}
}

// dropRecord ends a transfer's record, whatever became of it.
func (c *Core) dropRecord(now Instant, r *record) {
	p, inv := r.to, r.inv
	p.records.del(r.transfer, 0)
	if !r.accepted {
		p.giveUp(r.transfer)
	}
	r.inInv.leave()
	c.record(c.tenantOf(inv), -1)
	if r.binding != nil {
		c.unref(r.binding)
		r.binding = nil
	}
	h := r.hold
	r.hold, r.to, r.inv = nil, nil, nil
	c.recordPool.put(r)
	if h != nil {
		c.settle(now, h)
	}
	if !inv.dead && inv.records.n == 0 {
		c.tidy(inv)
	}
}

// receive notes an arriving transfer number; false if it was there before, or
// is too old to tell.
func (p *peer) receive(t uint64) bool {
	if t < p.recvLow {
		return false
	}
	if t == p.recvLow {
		p.slide()
		return true
	}
	for p.recvLow+WindowTransfers <= t {
		if t-p.recvLow >= 2*WindowTransfers {
			clear(p.recvBits[:])
			p.recvLow = t - WindowTransfers
		}
		p.slide() // what is missing there was given up by its sender
	}
	w, bit := &p.recvBits[t%WindowTransfers/64], uint64(1)<<(t%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

// slide moves the low-water mark past one number and all that are there above it.
func (p *peer) slide() {
	for {
		p.recvBits[p.recvLow%WindowTransfers/64] &^= 1 << (p.recvLow % 64)
		p.recvLow++
		if p.recvBits[p.recvLow%WindowTransfers/64]&(1<<(p.recvLow%64)) == 0 {
			return
		}
	}
}

// acks are reports to a peer that wait for company.
type acks struct {
	accepted []span
	released []span
	count    int     // transfers in them
	due      Instant // when they go out
	listed   bool    // in Core.dirty
}

// maxReleases bounds the ranges kept while a peer takes no ACK. More are
// dropped: their records end with the invocation's deadline.
const maxReleases = 4096

func appendSpan(l []span, t uint64, limit int) []span {
	if n := len(l); n > 0 && l[n-1].first+uint64(l[n-1].n) == t && l[n-1].n < WindowTransfers {
		l[n-1].n++
		return l
	}
	if len(l) >= limit {
		return l
	}
	return append(l, span{t, 1})
}

func (c *Core) noteAccepted(now Instant, p *peer, t uint64) {
	p.acks.accepted = appendSpan(p.acks.accepted, t, maxSpans)
	c.noted(now, p)
}

func (c *Core) noteReleased(now Instant, p *peer, t uint64) {
	p.acks.released = appendSpan(p.acks.released, t, maxReleases)
	c.noted(now, p)
}

func (c *Core) noted(now Instant, p *peer) {
	a := &p.acks
	if a.count++; a.count == 1 || !a.listed {
		a.due = now + ackDelay
		if !a.listed {
			a.listed = true
			c.dirty = append(c.dirty, p)
		}
	}
	if a.count >= ackAfter {
		c.flush(p)
	}
}

// unnote takes back the latest acceptance: a DONE says it better.
func (p *peer) unnote(t uint64) {
	a := &p.acks
	if n := len(a.accepted); n > 0 {
		s := &a.accepted[n-1]
		if s.first+uint64(s.n)-1 == t {
			if s.n--; s.n == 0 {
				a.accepted = a.accepted[:n-1]
			}
			a.count--
		}
	}
}

// flush sends what is pending; what finds no room stays.
func (c *Core) flush(p *peer) {
	a := &p.acks
	a.accepted = slices.DeleteFunc(a.accepted, func(s span) bool { return s.first+uint64(s.n) <= p.recvLow }) // the mark says it
	for a.count > 0 && p.up && len(p.outbox) == 0 {
		rel := a.released[:min(len(a.released), maxSpans)]
		c.out = appendAck(c.out[:0], p.recvLow, a.accepted, rel)
		if c.fx.Send(p.num, KindAck, c.out, nil) != nil {
			return
		}
		c.stats.Acks++
		a.accepted = a.accepted[:0]
		a.released = append(a.released[:0], a.released[len(rel):]...)
		a.count = 0
		for _, s := range a.released {
			a.count += int(s.n)
		}
	}
}

// flushDue sends the reports of peers whose time has come.
func (c *Core) flushDue(now Instant) {
	keep := c.dirty[:0]
	for _, p := range c.dirty {
		if p.acks.count > 0 && p.acks.due <= now {
			c.flush(p)
			p.acks.due = now + ackDelay
		}
		if p.acks.count > 0 && p.up {
			keep = append(keep, p)
		} else {
			p.acks.listed = false
		}
	}
	clear(c.dirty[len(keep):])
	c.dirty = keep
}

func (c *Core) recvAck(now Instant, p *peer, body []byte) error {
	var m ackMsg
	if err := m.decode(body); err != nil {
		return err
	}
	low, ok := expand24(m.low, p.low)
	if !ok || low > p.next {
		return malformed(KindAck, "it accepts transfers up to %d, %d were sent", low, p.next)
	}
	for t := p.low; t < low; t++ {
		c.accept(now, p, t)
	}
	for l := m.accepted; len(l) > 0; l = l[spanBytes:] {
		first, ok := expand24(getU24(l), p.low)
		end := first + uint64(le.Uint16(l[3:]))
		if ok && end > p.next {
			return malformed(KindAck, "it accepts transfer %d, %d were sent", end-1, p.next)
		}
		for t := max(first, p.low); ok && t < end; t++ {
			c.accept(now, p, t)
		}
	}
	for l := m.released; len(l) > 0; l = l[spanBytes:] {
		first, ok := expand24(getU24(l), p.next)
		end := first + uint64(le.Uint16(l[3:]))
		if ok && end > p.next {
			return malformed(KindAck, "it releases transfer %d, %d were sent", end-1, p.next)
		}
		for t := first; ok && t < end; t++ {
			c.accept(now, p, t)
			if s := p.relayed(t); s != nil {
				c.endRelay(p, s)
			} else if r := p.records.get(t, 0); r != nil {
				c.dropRecord(now, r)
			}
		}
	}
	c.sendLate(now, p)
	c.sendStowed(now, p)
	return nil
}
