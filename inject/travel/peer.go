package travel

import (
	"cmp"
	"fmt"
	"slices"
)

// peer is one endpoint: both directions' transfer state, handles, what came
// from there. A number that is used again gets a new one.
type peer struct {
	// What every message touches lies together.
	num Peer
	up  bool
	PeerInfo
	recvLow uint64   // receiving: all numbers below have arrived or were given up
	next    uint64   // sending: transfer number of the next one
	low     uint64   // all below are acknowledged or given up
	sent    []sent   // those from low to next, by number modulo its length
	told    []uint32 // by binding slot: the binding's generation<<2, and told bits
	handles []handle // as the peer declared them
	acks    acks

	outbox    []outMsg
	outBytes  int
	late      list[Run] // whose reports find no number
	lateBytes int
	turns     list[lane]      // of principals whose branches wait to leave for here; whose turn it is first
	lanes     []*lane         // of origins whose branches are not to go there just now, in their order
	inFull    bool            // in Core.full
	pacing    map[uint64]bool // origins whose branches it was told to keep back
	severed   bool

	tenant *tenant

	recvBits [WindowTransfers / 64]uint64 // those above recvLow that have arrived
}

const (
	toldAccepted = 1 << 0 // the peer has the declaration
	toldInline   = 1 << 1 // the objects' bytes were sent along once
)

// outMsg is a message on the reserved class that found no room.
type outMsg struct {
	kind Kind
	body []byte
}

// handle is a binding as a peer declared it.
type handle struct {
	known bool
	gen   uint8  // of the handle, at the sender
	by    uint64 // the message that declared it last
	what  What
	b     *Binding // may have been given to others since
	bgen  uint32
}

func (c *Core) peer(n Peer) *peer {
	if int(n) < len(c.peers) {
		return c.peers[n]
	}
	return nil
}

// PeerUp says that an endpoint is there. The number must be free, above Self
// and below Limits.Peers. Several endpoints to one incarnation are several
// peers, each with its own transfers: both ends then agree on what is lost with one.
func (c *Core) PeerUp(now Instant, n Peer, info PeerInfo) error {
	switch {
	case n == Self || int(n) >= c.lim.Peers:
		return fmt.Errorf("%w: peer number %d is not in 1…%d", ErrLimit, n, c.lim.Peers-1)
	case c.peer(n) != nil:
		return fmt.Errorf("%w: peer number %d is in use", ErrLimit, n)
	case info.Incarnation == 0 || info.Incarnation == c.cfg.Self:
		return fmt.Errorf("%w: incarnation %016x cannot be a peer's", ErrProtocol, info.Incarnation)
	case info.Foreign && (info.Member || info.Injector):
		return fmt.Errorf("%w: a foreign peer has no rights", ErrProtocol)
	}
	if len(info.Name) > maxName {
		info.Name = info.Name[:maxName]
	}
	for len(c.peers) <= int(n) {
		c.peers = append(c.peers, nil)
	}
	p := &peer{num: n, PeerInfo: info, up: true, tenant: c.tenantFor(info.Principal)}
	c.peers[n] = p
	c.meet(now, p)
	c.find(p)
	return nil
}

// PeerIs says that what a peer may do has changed, or whether it is Foreign. What is under way with it goes on.
func (c *Core) PeerIs(n Peer, info PeerInfo) {
	p := c.peer(n)
	if p == nil {
		return
	}
	p.Member, p.Injector, p.Foreign = info.Member, info.Injector, info.Foreign
	if p.Foreign {
		c.succeed(p)
	} else {
		c.find(p)
	}
}

// find has a peer be found by its incarnation, unless another one is.
func (c *Core) find(p *peer) {
	c.speaker = nil
	if !p.Foreign && c.byInc.get(p.Incarnation, 0) == nil {
		c.byInc.put(p.Incarnation, 0, p)
	}
}

// meet ends futures that began after the last endpoint to a peer's incarnation was lost, and may have branches there: the peer may
// have heard of that later than this element. Then it took such branches, and lost what it had to say of them.
func (c *Core) meet(now Instant, p *peer) {
	if _, lost := c.lostTo[p.Incarnation]; lost {
		delete(c.lostTo, p.Incarnation)
		c.expand()
		c.failOver(now, p, "its endpoint had been lost when the function was started; now there is another, and what it said before is lost")
	}
}

// parted notes that the last endpoint to an incarnation was lost. Most never come back, so the earliest make room.
func (c *Core) parted(now Instant, inc uint64) {
	for _, other := range c.peers {
		if other != nil && other.Incarnation == inc {
			return
		}
	}
	if len(c.lostTo) >= c.lim.Peers {
		oldest, first := uint64(0), never
		for other, at := range c.lostTo {
			if at < first || at == first && other < oldest {
				oldest, first = other, at
			}
		}
		delete(c.lostTo, oldest)
	}
	c.lostTo[inc] = now
}

// failOver fails the futures that may have a branch at a peer.
func (c *Core) failOver(now Instant, p *peer, text string) {
	var over []*invocation
	c.invs.all(func(inv *invocation) {
		if inv.fut != nil && inv.fut.mayBeAt(p) {
			over = append(over, inv)
		}
	})
	slices.SortFunc(over, func(a, b *invocation) int { return cmp.Compare(a.id.Seq, b.id.Seq) })
	for _, inv := range over {
		c.fail(now, inv.fut, &PeerLostError{Branch: inv.fut.unfinished(), Element: p.Name, Incarnation: p.Incarnation, MayHaveRun: true, Text: text})
	}
}

// mayBeAt reports whether a future may have a branch at a peer, or a report of one may be under way from there.
func (f *future) mayBeAt(p *peer) bool {
	return slices.Contains(f.sentTo, p) || slices.Contains(f.binding.Elements, p.Incarnation)
}

// PeerLost says that an endpoint is gone, and everything under way on it. Futures started here that may have a branch
// at its element fail. Branches of that origin end here. Branches that were on their way there are reported as lost.
func (c *Core) PeerLost(now Instant, n Peer, why error) {
	c.expand()
	p := c.peer(n)
	if p == nil {
		return
	}
	p.up = false
	c.peers[n] = nil
	c.succeed(p)
	text := "its endpoint was lost"
	if why != nil {
		text = clip(why.Error(), maxText)
	}
	c.parted(now, p.Incarnation)
	c.failOver(now, p, text)
	for _, inv := range c.startedBy(p) {
		c.originLost(now, inv)
	}
	c.stowedLost(now, p)
	for t := p.low; t < p.next; t++ {
		if s := p.sentAt(t); s != nil {
			c.sentLost(now, p, s, text)
		}
	}
	p.outbox, p.outBytes = nil, 0
	c.unpace(p)
	c.fetchSourceLost(now, p)
	p.tenant.peers--
	c.vacate(p.tenant)
}

// succeed lets another endpoint to the same incarnation, if there is one, be the one by which that is found; if
// there is none, this one stays it while it is up.
func (c *Core) succeed(p *peer) {
	c.speaker = nil
	if c.byInc.get(p.Incarnation, 0) != p {
		return
	}
	c.byInc.del(p.Incarnation, 0)
	for _, other := range c.peers {
		if other != nil && other != p && other.Incarnation == p.Incarnation && !other.Foreign {
			c.byInc.put(p.Incarnation, 0, other)
			return
		}
	}
	if p.up {
		c.find(p)
	}
}

// startedBy lists what is here of an origin's invocations, in their order.
func (c *Core) startedBy(p *peer) (invs []*invocation) {
	c.invs.all(func(inv *invocation) {
		if inv.originPeer == p {
			invs = append(invs, inv)
		}
	})
	slices.SortFunc(invs, func(a, b *invocation) int { return cmp.Compare(a.id.Seq, b.id.Seq) })
	return invs
}

// originLost ends an invocation whose origin was to hear of it over an endpoint that is gone. If there is another one, the origin may
// not know that the lost one was used for it (it saw the loss earlier).
func (c *Core) originLost(now Instant, inv *invocation) {
	if inv.dead {
		return
	}
	for n := inv.runs.first; n != nil; n = n.next {
		if r := n.v; r.ended && !r.stowed && r.late == nil {
			continue // what became of its branch is said elsewhere
		}
		s := sent{origin: inv.id.Origin, seq: inv.id.Seq, branch: n.v.branch, deadline: inv.deadline}
		c.reportLost(now, &s, CodePeerLost, &PeerLostError{Branch: s.branch, Element: c.cfg.Name, Incarnation: c.cfg.Self, MayHaveRun: true,
			Text: "the connection over which it was to report was lost"})
	}
	inv.lapsed = CodePeerLost
	c.kill(now, inv, CodeOK, "")
}

// sentLost deals with a message whose receiver is gone before it acknowledged it.
func (c *Core) sentLost(now Instant, p *peer, s *sent, text string) {
	lost := *s
	c.unsend(p, s)
	e := &PeerLostError{Branch: lost.branch, Element: p.Name, Incarnation: p.Incarnation, MayHaveRun: true, Text: text}
	if lost.binding == nil {
		e.Element, e.Incarnation, e.Text = c.cfg.Name, c.cfg.Self, "a connection was lost with a report of it: "+text
	}
	c.reportLost(now, &lost, CodePeerLost, e)
}

// send sends a message on the reserved class, or keeps it until there is room.
// It returns false if the peer is or must be given up.
func (c *Core) send(p *peer, kind Kind, head, body []byte) bool {
	if !p.up {
		return false
	}
	if len(p.outbox) == 0 {
		err := c.fx.Send(p.num, kind, head, body)
		if err == nil {
			return true
		}
		if !isBackpressure(err) {
			return false // PeerLost follows
		}
		c.behind(p)
	}
	if p.outBytes+len(head)+len(body)+outMsgBytes > c.lim.OutboxBytes {
		c.sever(p, fmt.Errorf("%w: %s takes nothing, and %d bytes of reports wait for it", ErrBackpressure, p.Name, p.outBytes))
		return false
	}
	b := make([]byte, 0, len(head)+len(body))
	b = append(append(b, head...), body...)
	p.outbox = append(p.outbox, outMsg{kind, b})
	p.outBytes += len(b) + outMsgBytes
	return true
}

// behind lists a peer for which something waits.
func (c *Core) behind(p *peer) {
	if !p.inFull {
		p.inFull = true
		c.full = append(c.full, p)
	}
}

// sever gives a peer up that takes no reports: its loss is known, theirs would not be.
func (c *Core) sever(p *peer, why error) {
	if !p.severed {
		p.severed = true
		c.fx.Sever(p.num, why)
	}
}

// outMsgBytes is charged per message in an outbox beside its bytes.
const outMsgBytes = 48

func (c *Core) drain(p *peer) (empty bool) {
	i := 0
	for ; i < len(p.outbox); i++ {
		m := p.outbox[i]
		if err := c.fx.Send(p.num, m.kind, m.body, nil); isBackpressure(err) {
			break
		}
		p.outBytes -= len(m.body) + outMsgBytes
		p.outbox[i].body = nil
	}
	if i > 0 {
		p.outbox = append(p.outbox[:0], p.outbox[i:]...)
	}
	return len(p.outbox) == 0
}

// drainAll sends what has waited for peers.
func (c *Core) drainAll(now Instant) {
	list := c.full
	c.full = nil // what is sent may list others
	for _, p := range list {
		p.inFull = false
		c.sendLate(now, p)
		c.openDue(now, p)
		c.sendStowed(now, p)
		if len(p.outbox) > 0 && !c.drain(p) || p.late.n+p.turns.n+len(p.lanes) > 0 {
			c.behind(p)
		}
	}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
