package travel

import "fmt"

// sending is what an INJECT says beside its payload.
type sending struct {
	id           InvocationID
	tenant       *tenant
	fromHere     bool // this element is the origin
	stateful     bool
	born         int64 // of a stateful one
	deadline     Instant
	binding      *Binding
	branch       uint64
	hops         uint16
	worker       uint8 // there, of so many; 0: one
	workers      uint8
	trace        *Trace
	parts, lists uint32
	forks        []uint64
}

// sendInject sends a branch to p; the caller notes it (sentBranch) at once.
// It is sent first and noted down afterwards: the way to p takes longer than that.
func (c *Core) sendInject(now Instant, p *peer, s *sending, payload []byte) (declares bool, err error) {
	if len(payload) > MaxDataBytes {
		return false, tooLong("payload", len(payload))
	}
	if p.keepsBack(s.id.Origin) {
		return false, keptBack(p)
	}
	if !c.room(p, s.tenant, false) {
		return false, c.noRoom(p, s.tenant)
	}
	var left uint16
	if d := s.deadline - now; s.fromHere {
		left = encodeTime(d - min(d/16, reportTime))
	} else {
		left = encodeTimeOnward(d, (s.id.Seq^p.next<<40)*hashA)
	}
	m := injectMsg{hops: s.hops, left: left, handle: s.binding.handle(),
		transfer: p.next, seq: s.id.Seq, branch: s.branch}
	if m.left == 0 {
		return false, fmt.Errorf("%w: it would arrive with none left", ErrDeadline)
	}
	if !s.fromHere {
		m.flags |= flagOrigin
		m.origin = s.id.Origin
	}
	if s.branch != 0 {
		m.flags |= flagBranch
	}
	if s.stateful {
		m.flags |= flagState
		m.born = s.born
	}
	if !c.ensure(now, s.binding) {
		return false, fmt.Errorf("%w: %v or its table %v is not in the store of %s", ErrNoCode, s.binding.Image, s.binding.Table, c.cfg.Name)
	}
	declares = !p.declared(s.binding)
	if declares || s.trace != nil || s.parts|s.lists != 0 || len(s.forks) > 0 || s.workers > 1 {
		m.flags |= flagExt
	}
	c.out = c.out[:m.putHead((*[injectHeadBytes + 24]byte)(c.out[:injectHeadBytes+24]))]
	if m.flags&flagExt != 0 {
		c.out = c.appendExts(p, s, c.out, len(payload))
	}
	if err := c.fx.Send(p.num, KindInject, c.out, payload); err != nil {
		if declares {
			p.told[s.binding.slot] &^= toldInline // not sent after all
		}
		return false, err
	}
	return declares, nil
}

func tooLong(what string, n int) error {
	return fmt.Errorf("%w: a %s of %d bytes, at most %d; what is larger belongs into a segment", ErrTooLarge, what, n, MaxDataBytes)
}

func (c *Core) appendExts(p *peer, s *sending, b []byte, payload int) []byte {
	var e injectExt
	const others = 65 + 3*9 + 2 + traceBytes + 8 + 8 + 2 // ids, heads of extensions, trace, counts, maker, worker
	c.declare(p, s.binding, &e, MaxMessageBytes-len(b)-payload-others-8*len(s.forks)-len(s.binding.Constants))
	if s.trace != nil {
		e.hasTrace, e.trace = true, *s.trace
	}
	e.parts, e.lists = s.parts, s.lists
	e.worker, e.workers = s.worker, s.workers
	return e.append(b, s.forks)
}

// reportEnd tells the origin that a branch ended, and marks the run.
func (c *Core) reportEnd(now Instant, r *Run, end End) {
	r.ended = true
	inv := r.inv
	if end.Code == CodeOK && end.HasResult && len(end.Result) > MaxDataBytes {
		end = End{Code: CodeLimit, Text: tooLong("reply", len(end.Result)).Error() + "; or send it in parts"}
	}
	m := doneMsg{seq: inv.id.Seq, branch: r.branch, parts: r.parts, lists: r.lists}
	if m.branch != 0 {
		m.flags |= doneBranch
	}
	if end.Code != CodeOK {
		m.flags |= doneError
		m.code, m.status = end.Code, end.Status
		m.element, m.function = []byte(c.cfg.Name), []byte(r.function())
		m.text = []byte(clip(end.Text, maxText))
	} else if end.HasResult {
		m.flags |= doneResult
	}
	if m.parts|m.lists != 0 {
		m.flags |= doneSent
	}
	if len(r.forks) > 0 {
		m.flags |= doneForks
	}
	if inv.originPeer == nil {
		if inv.fut != nil {
			m.result = end.Result
			m.settled = !r.moved
			c.ended(now, inv.fut, nil, &m, r.forks)
		}
		return
	}
	if inv.keeps() {
		m.flags |= doneHolds
		inv.told = true
	}
	result := end.Result
	if m.flags&doneResult == 0 {
		result = nil
	}
	if !c.sendDone(now, r, &m, result) {
		c.putOff(now, r, end)
	}
}

// putOff keeps a report that finds no room in the window to its origin, and with it the run: it goes out as the
// origin acknowledges others.
func (c *Core) putOff(now Instant, r *Run, end End) {
	p := r.inv.originPeer
	n := len(end.Result) + runOverheadBytes
	if p.lateBytes+n > c.lim.PrincipalHeldBytes {
		c.sever(p, fmt.Errorf("%w: %s has %d reports that it does not acknowledge, and %d more wait", ErrBackpressure, p.Name, p.next-p.low, p.late.n))
		return
	}
	c.unqueue(r)
	end.Result = append([]byte(nil), end.Result...)
	r.late = &end
	p.lateBytes += n
	p.late.push(&r.inQueue)
	c.behind(p)
	c.stats.PutOff++
}

// sendLate sends the reports to p that waited for room in the window, as far as there is some.
func (c *Core) sendLate(now Instant, p *peer) {
	for n := p.late.first; n != nil && c.room(p, p.tenant, true); n = p.late.first {
		r, end := n.v, *n.v.late
		c.unqueue(r)
		c.reportEnd(now, r, end)
		if r.state == runLate {
			c.retire(now, r)
		}
	}
}

// sendDone sends DONE. It acknowledges the message with which the origin itself sent the branch here, if there was one;
// any other is numbered, so that its loss is known where the origin has another endpoint. It returns false if it needs a number and none is free.
func (c *Core) sendDone(now Instant, r *Run, m *doneMsg, result []byte) bool {
	inv, p := r.inv, r.inv.originPeer
	final := r.direct && r.from == p && !r.moved
	numbered := !final && !inv.dead && p.up
	switch {
	case final:
		m.flags |= doneFinal
		m.final = r.came
		p.unnote(r.came)
		r.direct = false // a run that fails after its end says so by another
	case numbered && !c.room(p, p.tenant, true):
		return false
	case numbered:
		m.flags |= doneNumbered
		m.transfer = p.next
		c.sentReport(p, inv, r.branch)
	}
	c.out = m.append(c.out[:0], r.forks)
	c.send(p, KindDone, c.out, result)
	return true
}

// sendList sends the forks made so far ahead, in a LIST of their own.
func (c *Core) sendList(now Instant, r *Run) error {
	inv, p := r.inv, r.inv.originPeer
	if r.lists >= maxLists {
		return c.abort(now, r, CodeForkLimit, fmt.Sprintf("one branch made more than %d forks", maxLists*listForks))
	}
	if p != nil && !c.room(p, p.tenant, true) {
		return c.noRoom(p, p.tenant)
	}
	c.out = c.out[:0]
	for _, f := range r.forks {
		c.out = le.AppendUint64(c.out, f)
	}
	if p == nil {
		if inv.fut != nil {
			c.listed(now, inv.fut, r.branch, r.lists, c.out)
		}
	} else {
		m := partMsg{transfer: p.next, seq: inv.id.Seq, branch: r.branch, index: r.lists}
		var head [24]byte
		c.sentReport(p, inv, r.branch)
		c.send(p, KindList, m.append(head[:0]), c.out)
	}
	r.lists++
	r.forks = r.forks[:0]
	return c.check(now, r)
}

// Part sends a part of the branch's result ahead. ErrBackpressure means that
// nothing was sent and that the caller may try again later, ErrTooLarge that it
// must cut the part; the branch goes on. One part too many fails the branch: a
// result without it would be a partial one.
func (c *Core) Part(now Instant, r *Run, data []byte) error {
	c.expand()
	if err := c.check(now, r); err != nil {
		return err
	}
	if len(data) > MaxDataBytes {
		return tooLong("part", len(data))
	}
	if r.parts >= c.lim.Parts {
		err := fmt.Errorf("%w: a branch may send %d", ErrPartLimit, c.lim.Parts)
		c.reportEnd(now, r, End{Code: CodeLimit, Text: err.Error()})
		return err
	}
	inv, p := r.inv, r.inv.originPeer
	if p == nil {
		if inv.fut != nil {
			c.part(now, inv.fut, r.branch, r.parts, data)
		}
		r.parts++
		return nil
	}
	if !c.room(p, p.tenant, false) {
		return c.noRoom(p, p.tenant)
	}
	m := partMsg{transfer: p.next, seq: inv.id.Seq, branch: r.branch, index: r.parts}
	c.out = m.append(c.out[:0])
	if err := c.fx.Send(p.num, KindPart, c.out, data); err != nil {
		return err
	}
	c.sentReport(p, inv, r.branch)
	r.parts++
	return nil
}

// tellHold tells the origin that something is kept here, where no DONE does.
func (c *Core) tellHold(r *Run) {
	inv := r.inv
	if inv.keeps() && !inv.told && inv.originPeer != nil {
		inv.told = true
		c.out = appendU40(c.out[:0], inv.id.Seq)
		c.send(inv.originPeer, KindHold, c.out, nil)
	}
}

// reportLost tells a branch's origin that a message of it was lost on its way, or with the element that had it. Where the origin has no endpoint
// here it sees for itself that it lost this element.
func (c *Core) reportLost(now Instant, s *sent, code Code, e *PeerLostError) {
	if s.origin == c.cfg.Self {
		if f := c.futureOf(s.seq); f != nil {
			c.lost(now, f, s.branch, lostError(code, e))
		}
		return
	}
	p := c.byInc.get(s.origin, 0)
	if p == nil {
		return
	}
	m := lostMsg{mayHaveRun: e.MayHaveRun, code: code, seq: s.seq, branch: s.branch,
		incarnation: e.Incarnation, name: []byte(e.Element), text: []byte(clip(e.Text, maxText))}
	if c.room(p, p.tenant, true) {
		m.numbered, m.transfer = true, p.next
		n := c.number(p, p.tenant, s.deadline)
		n.origin, n.seq, n.branch = s.origin, s.seq, s.branch
	}
	c.out = m.append(c.out[:0])
	c.send(p, KindLost, c.out, nil)
}

func lostError(code Code, e *PeerLostError) error {
	if code == CodePeerLost || code == CodeOriginLost {
		lost := *e
		return &lost
	}
	return &RefusedError{Branch: e.Branch, Element: e.Element, Code: code, Text: e.Text}
}

// recvRefused hears that a transfer was not taken, or came to nothing.
func (c *Core) recvRefused(now Instant, p *peer, body []byte) error {
	var m refusedMsg
	if err := m.decode(body); err != nil {
		return err
	}
	t, ok := expand24(m.transfer, p.next)
	if !ok || t >= p.next {
		return malformed(KindRefused, "transfer %d was never sent", t)
	}
	s := p.sentAt(t)
	if s == nil || s.binding == nil {
		return nil // it ended meanwhile
	}
	if m.reason == reasonUnknownHandle {
		p.told[s.binding.slot] = s.binding.gen << 2
	}
	lost := *s
	c.unsend(p, s)
	c.reportLost(now, &lost, m.code, &PeerLostError{Branch: lost.branch, Element: p.Name, Incarnation: p.Incarnation, Text: string(m.text)})
	return nil
}
