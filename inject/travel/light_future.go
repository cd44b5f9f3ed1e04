package travel

// lightFuture is a future in the common case: one root, sent to a peer that knows
// the function, which most likely answers. Until it does, or something asks for more, nothing else
// is kept of it; expand makes a future with its records of it. There is one at a time: the next
// one's start does so with the one before.
type lightFuture struct {
	open          bool
	p             *peer
	binding       *Binding
	seq, transfer uint64
	deadline      Instant
}

// Ask starts an invocation as Start does with one root and nothing else, if
// that can be done in the quick way. It returns 0, having done nothing, if it cannot.
func (c *Core) Ask(now Instant, b *Binding, to Peer, deadline Instant, payload []byte) FutureID {
	p := c.peer(to)
	if p == nil || !b.pinned || p.keepsBack(c.cfg.Self) || !p.declared(b) || c.draining || len(payload) > MaxDataBytes ||
		deadline <= now || deadline-now > Instant(c.lim.MaxTime) || c.nextID == maxSeq ||
		c.futures+1 >= c.lim.Futures || c.invs.n+2 >= c.lim.Invocations || !c.room(p, &c.own, false) {
		return 0
	}
	left := deadline - now
	m := injectMsg{hops: DefaultHops, left: encodeTime(left - min(left/16, reportTime)), handle: b.handle(), transfer: p.next, seq: c.nextID + 1}
	if m.left == 0 {
		return 0
	}
	n := m.putHead((*[injectHeadBytes + 24]byte)(c.out[:injectHeadBytes+24]))
	if c.fx.Send(p.num, KindInject, c.out[:n], payload) != nil {
		return 0
	}
	if c.lightFuture.open {
		c.register()
	}
	c.lightFuture = lightFuture{true, p, b, m.seq, p.next, deadline}
	c.nextID++
	c.sentBranch(p, &sending{id: InvocationID{c.cfg.Self, m.seq}, tenant: &c.own, deadline: deadline, binding: b}, false)
	c.futures++
	b.refs++
	c.stats.Started++
	return FutureID(m.seq)
}

// register makes the light future a future with its record.
func (c *Core) register() {
	e := c.lightFuture
	c.lightFuture = lightFuture{}
	f := c.newFuture(InvocationID{c.cfg.Self, e.seq}, &StartArgs{Binding: e.binding, Roots: c.oneRoot[:], Deadline: e.deadline})
	c.futures--
	c.unref(e.binding)
	f.roots = append(f.roots, e.p)
	f.sentTo = append(f.sentTo, e.p)
}

// Done takes a DONE as Recv does, if it is the light future's answer. It returns false,
// having done nothing, if it is any other.
func (c *Core) Done(now Instant, from Peer, body []byte) bool {
	const head = 1 + 5 + 3 // flags, sequence number, the transfer that it releases
	e := &c.lightFuture
	if !e.open || e.p.num != from || len(body) < head || len(body) > MaxMessageBytes || body[0]&^doneResult != doneFinal ||
		getU40(body[1:]) != e.seq || getU24(body[6:]) != e.transfer&(1<<24-1) || body[0]&doneResult == 0 && len(body) > head {
		return false
	}
	e.open = false
	c.accept(e.p, e.transfer)
	e.binding.refs--
	e.binding.used = now
	c.futures--
	c.stats.Succeeded++
	c.outcome = Outcome{Branches: 1, Reply: body[head:], HasReply: body[0]&doneResult != 0}
	c.fx.Complete(FutureID(e.seq), &c.outcome)
	return true
}
