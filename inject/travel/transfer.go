package travel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/internal/share"
)

func isBackpressure(err error) bool { return err != nil && errors.Is(err, ErrBackpressure) }

// sent is a message of ours that its receiver has not acknowledged: a branch, or a report that must arrive. If the endpoint is lost
// before it is, the origin hears that the branch may be lost. It lies in its peer's ring, by its number.
type sent struct {
	origin   uint64 // incarnation of the invocation's origin
	seq      uint64
	branch   uint64
	binding  *Binding // of an INJECT; else nil
	tenant   *tenant
	deadline Instant
	used     bool
	declares bool // carried the binding's declaration
}

// sentMin is how many messages a peer's ring begins with. It grows up to the window.
const sentMin = 64

// sentAt is the message with that number, nil if it is not under way.
func (p *peer) sentAt(t uint64) *sent {
	if t < p.low || t >= p.next {
		return nil
	}
	if s := &p.sent[t%uint64(len(p.sent))]; s.used {
		return s
	}
	return nil
}

// number gives the next message to p its number, and the place for what is to be known of it.
func (c *Core) number(p *peer, tenant *tenant, deadline Instant) *sent {
	if p.next-p.low >= uint64(len(p.sent)) {
		p.growSent()
	}
	s := &p.sent[p.next%uint64(len(p.sent))]
	p.next++
	s.used, s.tenant, s.deadline = true, tenant, deadline
	c.records++
	tenant.records++
	if c.records == 1 || deadline < c.sentEnd {
		c.sentEnd = deadline
	}
	return s
}

func (p *peer) growSent() {
	old := p.sent
	p.sent = make([]sent, max(sentMin, 2*len(old)))
	for t := p.low; t < p.next; t++ {
		p.sent[t%uint64(len(p.sent))] = old[t%uint64(len(old))]
	}
}

// sentBranch notes that a branch is on its way to p.
func (c *Core) sentBranch(p *peer, s *sending, declares bool) {
	n := c.number(p, s.tenant, s.deadline)
	n.origin, n.seq, n.branch, n.binding, n.declares = s.id.Origin, s.id.Seq, s.branch, s.binding, declares
	s.binding.refs++
}

// sentReport notes that a report of a branch's is on its way to its origin.
func (c *Core) sentReport(p *peer, inv *invocation, branch uint64) {
	n := c.number(p, p.tenant, inv.deadline)
	n.origin, n.seq, n.branch, n.declares = inv.id.Origin, inv.id.Seq, branch, false
}

// unsend ends what is known of a message. Its number is given up.
func (c *Core) unsend(p *peer, s *sent) {
	if s.binding != nil {
		c.unref(s.binding)
	}
	c.records--
	if s.tenant.records--; s.tenant.peers == 0 {
		c.vacate(s.tenant)
	}
	*s = sent{}
	for p.low < p.next && p.sentAt(p.low) == nil {
		p.low++
	}
}

// expireSent gives up the numbers of messages whose invocations are over. Endpoints lose nothing, so there are none but on those that
// will be found to be lost: their windows go on meanwhile.
func (c *Core) expireSent(now Instant) {
	c.sentEnd = never
	for _, p := range c.peers {
		if p == nil {
			continue
		}
		for t := p.low; t < p.next; t++ {
			if s := p.sentAt(t); s != nil && s.deadline <= now {
				c.unsend(p, s)
			} else if s != nil {
				c.sentEnd = min(c.sentEnd, s.deadline)
			}
		}
	}
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
// Limits.Records for themselves; of both parts of the latter one tenant has its share at most.
func (c *Core) room(p *peer, t *tenant, report bool) bool {
	window := uint64(WindowTransfers - reportTransfers)
	if report {
		window = WindowTransfers
	}
	return p.next-p.low < window && c.records < c.recordsFor(report) && c.hasShare(t, report)
}

func (c *Core) recordsFor(report bool) int {
	if report {
		return c.lim.Records
	}
	return c.lim.Records * 3 / 4
}

// hasShare reports whether a tenant has fewer messages under way than its share of those that may be.
func (c *Core) hasShare(t *tenant, report bool) bool {
	return t.records < share.Of(c.recordsFor(report))
}

// noRoom says why room found none.
func (c *Core) noRoom(p *peer, t *tenant) error {
	return fmt.Errorf("%w: %d transfers to %s are not acknowledged yet, of principal %q %d to anybody, and %d in all; a window has %d, and Limits.Records lets a principal have %d of %d",
		ErrBackpressure, p.next-p.low, p.Name, t.name, t.records, c.records, WindowTransfers, share.Of(c.lim.Records), c.lim.Records)
}

// accept notes that the receiver has a transfer.
func (c *Core) accept(p *peer, t uint64) {
	if s := p.sentAt(t); s != nil {
		if s.declares && s.binding.Constants == "" {
			p.told[s.binding.slot] |= toldAccepted
		}
		c.unsend(p, s)
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

// acks are acknowledgements to a peer that wait for company.
type acks struct {
	accepted []span
	count    int     // transfers in them
	due      Instant // when they go out
	listed   bool    // in Core.dirty
}

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
	c.note(now, p, t)
	if p.acks.count >= ackAfter {
		c.flush(p)
	}
}

// note is noteAccepted, and the ACK goes out later.
func (c *Core) note(now Instant, p *peer, t uint64) {
	p.acks.accepted = appendSpan(p.acks.accepted, t, maxSpans)
	c.counted(now, p)
}

func (c *Core) noted(now Instant, p *peer) {
	c.counted(now, p)
	if p.acks.count >= ackAfter {
		c.flush(p)
	}
}

func (c *Core) counted(now Instant, p *peer) {
	a := &p.acks
	if a.count++; a.count == 1 || !a.listed {
		a.due = now + ackDelay
		if !a.listed {
			a.listed = true
			c.dirty = append(c.dirty, p)
		}
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

// flush sends what is pending; if it finds no room it stays.
func (c *Core) flush(p *peer) {
	a := &p.acks
	a.accepted = slices.DeleteFunc(a.accepted, func(s span) bool { return s.first+uint64(s.n) <= p.recvLow }) // the mark says it
	if a.count == 0 || !p.up || len(p.outbox) > 0 {
		return
	}
	c.out = appendAck(c.out[:0], p.recvLow, a.accepted)
	if c.fx.Send(p.num, KindAck, c.out, nil) != nil {
		return
	}
	c.stats.Acks++
	a.accepted, a.count = a.accepted[:0], 0
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
		c.accept(p, t)
	}
	for l := m.accepted; len(l) > 0; l = l[spanBytes:] {
		first, ok := expand24(getU24(l), p.low)
		end := first + uint64(le.Uint16(l[3:]))
		if ok && end > p.next {
			return malformed(KindAck, "it accepts transfer %d, %d were sent", end-1, p.next)
		}
		for t := max(first, p.low); ok && t < end; t++ {
			c.accept(p, t)
		}
	}
	c.sendLate(now, p)
	c.sendStowed(now, p)
	return nil
}
