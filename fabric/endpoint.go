package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Endpoint is a connection to one incarnation of a peer. It ends when the peer
// does; a new connection to the same place is another endpoint. Its methods may
// be called from any goroutine.
//
// Puts and Sends on one endpoint are unordered unless a Fence stands between
// them; docs/ordering.md says what holds per verb.
type Endpoint struct {
	el      *Element
	serial  uint64 // among the element's endpoints
	link    Link
	fds     FDCarrier // nil where descriptors cannot be handed over
	holder  Holder    // nil where frames are cheap
	holds   atomic.Int32
	peer    *peerInfo
	addr    string
	dialled bool   // from here
	claim   *claim // to the peer's incarnation, that lists it; under Element.mu
	tag     atomic.Uint32

	opening sync.Mutex
	open    atomic.Bool
	dead    atomic.Pointer[PeerError]
	doomed  atomic.Pointer[error] // to be failed by the leader
	gone    sync.Once
	rumour  atomic.Uint32 // of its coming and going: cameBit, wentBit

	// Sending; mu is held over Link.Send, which never blocks.
	mu         sync.Mutex
	scratch    [64]byte
	bounced    []byte // of bounce
	sent       uint64 // cost of all normal messages sent
	sentFrames uint64
	sentBytes  uint64
	outFrames  uint64 // everything given to the link
	outBytes   uint64
	allowed    atomic.Uint64 // cost of all the peer lets us send
	outbox     frameQueue    // posted, waiting for credit or room
	reserved   frameQueue    // answers, waiting for room
	bulk       []*bulkSend
	bulkFree   []*bulkSend
	roomy      Waiter         // of those whose message finds no credit or no room
	wanted     map[uint64]int // the costs of their messages, and how many have that
	linkFull   bool           // it had no room for the last message
	epoch      uint64         // raised by Fence while something is queued
	pumpEpoch  uint64         // of the Puts that may go out now
	inBusy     bool

	// Receiving; the leader's, but for released.
	released  atomic.Uint64 // cost of all normal messages handled here
	announced atomic.Uint64 // what the peer was told of it
	received  uint64        // cost of all normal messages received
	heard     uint64        // frames received
	heardThen uint64
	silentAt  int64
	paused    int64 // until then the peer may be silent

	ops  opTable
	in   incoming
	map_ mappings

	narrowed  int    // keys that the peer narrowed, under the key table's lock
	unhandled uint64 // messages without a handler since the last word of it; the leader's
	warnAt    int64  // no such word before
}

func newEndpoint(e *Element, info *peerInfo, addr string) *Endpoint {
	ep := &Endpoint{el: e, peer: info, addr: addr}
	l := &e.cfg.Limits
	ep.outbox = frameQueue{max: l.OutboxBytes, all: &e.outboxes, allMax: int64(l.OutboxBytesInAll)}
	ep.reserved = frameQueue{max: l.ReservedBytes, all: &e.answers} // the leader sees to the bound in all
	ep.allowed.Store(uint64(info.hello.window))
	ep.roomy.l = &e.leader
	ep.ops.init(ep, min(l.OpsPerEndpoint, int(info.hello.ops)))
	ep.in.init(ep)
	ep.map_.init(ep)
	return ep
}

// Element is the element this endpoint belongs to.
func (ep *Endpoint) Element() *Element { return ep.el }

// Incarnation is the peer's.
func (ep *Endpoint) Incarnation() Incarnation { return ep.peer.hello.incarnation }

// Name is what the peer calls itself.
func (ep *Endpoint) Name() string { return ep.peer.hello.name }

// Principal is who the peer is.
func (ep *Endpoint) Principal() Principal { return ep.peer.principal }

// Dialled reports whether the connection was made from here.
func (ep *Endpoint) Dialled() bool { return ep.dialled }

// Addrs are the addresses the peer said it listens at.
func (ep *Endpoint) Addrs() []string { return ep.peer.hello.addrs }

// RemoteAddr is the address of the connection, for people.
func (ep *Endpoint) RemoteAddr() string { return ep.addr }

// Shared reports whether memory can be mapped, both ways: the peer is on this machine.
func (ep *Endpoint) Shared() bool { return ep.fds != nil }

// String names the peer.
func (ep *Endpoint) String() string {
	return fmt.Sprintf("%s (%s, %v)", ep.peer.hello.name, ep.addr, ep.Incarnation())
}

// WaitRoom drives progress until the endpoint would take a small message
// without queueing it, or the context ends.
func (ep *Endpoint) WaitRoom(ctx context.Context) error {
	err := ep.roomy.Wait(ctx, func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if ep.dead.Load() != nil || ep.outbox.n == 0 && ep.sent+cost(MaxMessageBytes) <= ep.allowed.Load() {
			return true
		}
		ep.passOver(cost(MaxMessageBytes))
		return false
	})
	if err != nil {
		return &PeerError{Peer: ep.String(), Op: "wait for room", Err: err}
	}
	return ep.Err()
}

// EndpointStats count what went over an endpoint.
type EndpointStats struct {
	NormalFrames uint64 // messages of normal class sent
	NormalBytes  uint64 // their heads and bodies
	SentFrames   uint64 // frames of any kind given to the transport: messages, operations, credit
	SentBytes    uint64 // their bodies; what a transport puts before each is not among them
	Outbox       int    // bytes waiting for credit or room
	Reserved     int    // bytes of answers waiting for room
	Credit       uint64 // what normal messages may still cost before the peer has to release some
	Window       uint64 // … with none unreleased
	Shared       bool   // memory can be mapped, both ways: the peer is on this machine
	Mapped       int    // the peer's segments that are mapped here
	Exported     int    // segments of this element that the peer was given to map
}

// Stats returns the endpoint's counters.
func (ep *Endpoint) Stats() EndpointStats {
	s := EndpointStats{Window: uint64(ep.peer.hello.window), Shared: ep.fds != nil}
	s.Mapped, s.Exported = ep.map_.count()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s.NormalFrames, s.NormalBytes, s.SentFrames, s.SentBytes = ep.sentFrames, ep.sentBytes, ep.outFrames, ep.outBytes
	s.Outbox, s.Reserved = ep.outbox.bytes(), ep.reserved.bytes()
	s.Credit = ep.allowed.Load() - min(ep.sent, ep.allowed.Load())
	return s
}

// Err is nil while the endpoint is alive, and says why it ended after that.
func (ep *Endpoint) Err() error {
	if e := ep.dead.Load(); e != nil {
		return e
	}
	return nil
}

// lost is the endpoint's error for one operation.
func (ep *Endpoint) lost(op string) error {
	e := ep.dead.Load()
	return &PeerError{Peer: e.Peer, Op: op, Err: e.Err}
}

// Close ends the endpoint; the peer sees it go. From here on its error is ErrClosed, whatever the
// peer does meanwhile, unless its loss was noticed before: an endpoint ends once.
func (ep *Endpoint) Close() error {
	ep.fail(ErrClosed)
	return nil
}

// Send sends an active message of normal class: id below FirstReservedID. The
// peer's handler gets head followed by body. It waits for credit if there is
// none, and returns when the message is on its way and both slices are the
// caller's again; that the peer handled it, only an answer says.
func (ep *Endpoint) Send(ctx context.Context, id FrameID, head, body []byte) error {
	err := ep.trySend(id, head, body)
	if err != ErrBackpressure {
		return err
	}
	return ep.sendSlow(ctx, id, head, body)
}

// sendSlow waits for credit; apart from Send, so that Send allocates nothing. Senders are woken one after the other, each by
// the one before that found room: woken all at once, all but few would find none. One that finds credit only for a smaller message than
// its own wakes the next all the same.
func (ep *Endpoint) sendSlow(ctx context.Context, id FrameID, head, body []byte) (err error) {
	c := cost(len(head) + len(body))
	ep.want(c, 1)
	defer ep.want(c, -1)
	werr := ep.roomy.Wait(ctx, func() bool {
		if err = ep.trySend(id, head, body); err == ErrBackpressure {
			ep.mu.Lock()
			ep.passOver(c)
			ep.mu.Unlock()
			return false
		}
		return true
	})
	if werr != nil {
		return &PeerError{Peer: ep.String(), Op: "send", Err: fmt.Errorf("%w: %w", ErrBackpressure, werr)}
	}
	return err
}

// want counts a message that waits for credit.
func (ep *Endpoint) want(c uint64, n int) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.wanted == nil {
		ep.wanted = map[uint64]int{}
	}
	if ep.wanted[c] += n; ep.wanted[c] == 0 {
		delete(ep.wanted, c)
	}
}

// passOver wakes the next waiter for credit, after one that needs c and finds less, if there is enough for any message: there may be
// no more until that one's message was handled. ep.mu is held.
func (ep *Endpoint) passOver(c uint64) {
	left := ep.allowed.Load() - min(ep.sent, ep.allowed.Load())
	if left >= c || left < cost(0) || ep.outbox.n > 0 || ep.linkFull {
		return // the link or the outbox says when there is room
	}
	for other := range ep.wanted {
		if other <= left {
			ep.roomy.next()
			return
		}
	}
}

// TrySend is Send that fails with ErrBackpressure where Send would wait.
func (ep *Endpoint) TrySend(id FrameID, head, body []byte) error { return ep.trySend(id, head, body) }

func checkMessage(id FrameID, n int) error {
	if id < FirstMessageID || id > MaxFrameID {
		return fmt.Errorf("fabric: message id %d: between %d and %d", id, FirstMessageID, MaxFrameID)
	}
	if n > MaxMessageBytes {
		return fmt.Errorf("fabric: %w: %d bytes, at most %d; put it into a segment and send the key", ErrTooLarge, n, MaxMessageBytes)
	}
	return nil
}

func (ep *Endpoint) trySend(id FrameID, head, body []byte) error {
	n := len(head) + len(body)
	if id < FirstMessageID || id >= FirstReservedID || n > MaxMessageBytes {
		if err := checkMessage(id, n); err != nil {
			return err
		}
		return ep.Post(id, head, body)
	}
	ep.mu.Lock()
	err := ep.sendNormal(id, head, body, cost(n))
	ep.mu.Unlock()
	return err
}

// sendNormal sends one charged message; ep.mu is held.
func (ep *Endpoint) sendNormal(id FrameID, head, body []byte, c uint64) error {
	if ep.dead.Load() != nil {
		return ep.lost("send")
	}
	if ep.outbox.n > 0 || ep.sent+c > ep.allowed.Load() {
		return ErrBackpressure
	}
	return ep.sendCharged(id, head, body, c)
}

func (ep *Endpoint) sendCharged(id FrameID, head, body []byte, c uint64) error {
	switch err := ep.transmit(id, Normal, head, body); err {
	case nil:
		ep.linkFull = false
		ep.charge(c, len(head)+len(body))
		return nil
	case ErrLinkFull:
		ep.linkFull = true
		return ErrBackpressure
	default:
		return ep.linkBroke(err, "send")
	}
}

// Hold keeps back what is sent on this endpoint until Release, so that several small messages
// that are started in a row leave together: over a socket each would be a system call. It is for those who know that
// they send more at once; without it nothing is ever delayed. Holds are counted: the last Release sends. A
// wait on any endpoint of the element sends too, so that nobody waits for the answer to what was kept back;
// what follows the wait goes at once, until the next Hold. It reports whether the link can keep anything back: if not,
// there is nothing to release.
func (ep *Endpoint) Hold() bool {
	if ep.holder == nil {
		return false
	}
	ep.holds.Add(1)
	ep.el.hold(ep)
	return true
}

// Release undoes one Hold.
func (ep *Endpoint) Release() {
	if ep.holder != nil && ep.holds.Add(-1) == 0 {
		ep.el.unhold(ep)
	}
}

// hold notes an endpoint that keeps messages back.
func (e *Element) hold(ep *Endpoint) {
	e.busyMu.Lock()
	defer e.busyMu.Unlock()
	if slices.Contains(e.held, ep) {
		return
	}
	ep.holder.Hold(true)
	e.held = append(e.held, ep)
	e.heldN.Store(int32(len(e.held)))
}

func (e *Element) unhold(ep *Endpoint) {
	e.busyMu.Lock()
	if i := slices.Index(e.held, ep); i >= 0 { // else a wait has sent it
		e.held = slices.Delete(e.held, i, i+1)
		e.heldN.Store(int32(len(e.held)))
	}
	e.busyMu.Unlock()
	ep.holder.Hold(false)
}

// letGo sends everything that is kept back, as a goroutine is about to wait.
func (e *Element) letGo() {
	e.busyMu.Lock()
	list := e.held
	e.held = nil
	e.heldN.Store(0)
	e.busyMu.Unlock()
	for _, ep := range list {
		ep.holder.Hold(false)
	}
}

// transmit gives the link a frame and counts it; ep.mu is held.
func (ep *Endpoint) transmit(id FrameID, class Class, head, body []byte) error {
	err := ep.link.Send(id, class, head, body)
	if err == nil {
		ep.outFrames++
		ep.outBytes += uint64(len(head) + len(body))
	}
	return err
}

// charge counts a normal message that was sent.
func (ep *Endpoint) charge(c uint64, n int) {
	ep.sent += c
	ep.sentFrames++
	ep.sentBytes += uint64(n)
}

// linkBroke turns a link's error into the endpoint's end; ep.mu may be held.
func (ep *Endpoint) linkBroke(err error, op string) error {
	ep.doom(fmt.Errorf("%w: %v", ErrPeerLost, err))
	return &PeerError{Peer: ep.String(), Op: op, Err: fmt.Errorf("%w: %v", ErrPeerLost, err)}
}

// Post sends an active message without ever waiting: what has no credit yet is
// kept in a bounded outbox and leaves in order when credit comes; a full outbox, or
// too much in all outboxes together, is ErrBackpressure. Messages with ids from FirstReservedID travel on reserved
// credits. It may be called from handlers.
func (ep *Endpoint) Post(id FrameID, head, body []byte) error {
	n := len(head) + len(body)
	if err := checkMessage(id, n); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if id >= FirstReservedID {
		if ep.dead.Load() != nil {
			return ep.lost("send")
		}
		return ep.sayLocked(id, head, body)
	}
	err := ep.sendNormal(id, head, body, cost(n))
	if err != ErrBackpressure {
		return err
	}
	if !ep.outbox.push(id, head, body) {
		return ErrBackpressure
	}
	ep.markBusy()
	return nil
}

// say sends a reserved frame of the fabric's own.
func (ep *Endpoint) say(id FrameID, head []byte) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.sayLocked(id, head, nil)
}

// sayLocked sends a reserved frame; what finds no room waits in the reserved queue. A
// peer that lets it overflow does not read, and is given up; so is the peer with most when all have too much (giveUpMost).
func (ep *Endpoint) sayLocked(id FrameID, head, body []byte) error {
	if ep.link == nil || ep.dead.Load() != nil {
		return ErrClosed
	}
	if ep.reserved.n == 0 {
		switch err := ep.transmit(id, Reserved, head, body); err {
		case nil:
			return nil
		case ErrLinkFull:
		default:
			return ep.linkBroke(err, "send")
		}
	}
	if !ep.reserved.push(id, head, body) {
		err := fmt.Errorf("%w: it left %d bytes of answers unread", ErrPeerLost, ep.reserved.bytes())
		ep.doom(err)
		return &PeerError{Peer: ep.String(), Op: "send", Err: err}
	}
	ep.markBusy()
	return nil
}

// Message is an active message at its handler. Body is valid until the handler
// returns or calls HandOff, and is the fabric's.
type Message struct {
	From *Endpoint
	ID   FrameID
	Body []byte
	cost uint64
	term uint64
}

// Handler handles an active message.
type Handler func(m Message)

// Release gives a retained message's credit back to its sender.
func (m Message) Release() {
	if m.cost > 0 {
		m.From.release(m.cost)
	}
}

// HandOff lets another goroutine drive the fabric from here on, so that the
// handler may run long or block. Body is gone with it.
func (m Message) HandOff() { m.From.el.leader.handOff(m.term) }

// Waits reports whether the handler runs on a goroutine that waits for something of
// its own and drives progress meanwhile. It cannot go on before the handler
// returns, handed off or not: what may run long belongs on another.
func (m Message) Waits() bool { return m.From.el.leader.foreground.Load() }

func (ep *Endpoint) message(id FrameID, body []byte) error {
	m := Message{From: ep, ID: id, Body: body, term: ep.el.leader.state.Load()}
	if id < FirstReservedID {
		m.cost = cost(len(body))
		if ep.received += m.cost; ep.received-ep.released.Load() > uint64(ep.el.cfg.Limits.WindowBytes) {
			return fmt.Errorf("%w: the peer sent more messages than it had credit for", ErrProtocol)
		}
	}
	h := ep.el.handlers[id].Load()
	if h == nil {
		ep.notHandled(m)
		return nil
	}
	m.handle(h.fn)
	if !h.retain {
		m.Release()
	}
	return nil
}

func (m Message) handle(fn Handler) {
	l := &m.From.el.leader
	l.ran, l.handled, l.handling = l.ran+1, m.ID, ""
	if l.watchUntil == 0 {
		fn(m)
	} else {
		l.timed(fn, m)
	}
}

// notHandled sends the beginning of a message of normal class back: a caller that waits for its answer would do so until
// its deadline. Those of reserved class are answers themselves.
func (ep *Endpoint) notHandled(m Message) {
	ep.warnUnhandled(m.ID)
	if m.ID < FirstReservedID {
		ep.mu.Lock()
		b := binary.LittleEndian.AppendUint16(ep.scratch[:0], uint16(m.ID))
		ep.sayLocked(frameUnhandled, append(b, m.Body[:min(len(m.Body), unhandledBytes)]...), nil)
		ep.mu.Unlock()
	}
	m.Release()
}

// returned hears that the peer has no handler for a message.
func (ep *Endpoint) returned(b []byte) error {
	if len(b) < 2 || len(b) > 2+unhandledBytes {
		return short(frameUnhandled, len(b))
	}
	id := FrameID(binary.LittleEndian.Uint16(b))
	if id < FirstMessageID || id >= FirstReservedID {
		return fmt.Errorf("%w: message %d comes back, which is not of normal class", ErrProtocol, id)
	}
	if h := ep.el.returned[id-FirstMessageID].Load(); h != nil {
		Message{From: ep, ID: id, Body: b[2:], term: ep.el.leader.state.Load()}.handle(*h)
	}
	return nil
}

// warnEvery is how often one endpoint's unhandled messages are logged.
const warnEvery = int64(time.Second)

// warnUnhandled says that messages without a handler arrive, but not for each
// one: a peer must not be able to fill the log.
func (ep *Endpoint) warnUnhandled(id FrameID) {
	ep.unhandled++
	if now := ep.el.Now(); now >= ep.warnAt {
		ep.el.log.Warn("messages without a handler; is the peer's program newer?", "id", id, "count", ep.unhandled, "peer", ep.String())
		ep.unhandled, ep.warnAt = 0, now+warnEvery
	}
}

// release counts a handled message and tells the peer now and then: credit
// reports are cumulative, and go out each quarter of the window.
func (ep *Endpoint) release(c uint64) {
	ep.released.Add(c)
	var total uint64
	for { // several goroutines may release: one that loses the race looks again, so that no more than a quarter stays untold
		told := ep.announced.Load()
		total = ep.released.Load()
		if int64(total-told) < int64(ep.el.cfg.Limits.WindowBytes)/4 {
			return
		}
		if ep.announced.CompareAndSwap(told, total) {
			break
		}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.sayLocked(frameCredit, binary.LittleEndian.AppendUint64(ep.scratch[:0], total), nil)
}

// credit takes the peer's report.
func (ep *Endpoint) credit(body []byte) error {
	if len(body) != 8 {
		return fmt.Errorf("%w: credit frame of %d bytes", ErrProtocol, len(body))
	}
	allowed := binary.LittleEndian.Uint64(body) + uint64(ep.peer.hello.window)
	ep.mu.Lock()
	if allowed-uint64(ep.peer.hello.window) > ep.sent {
		ep.mu.Unlock()
		return fmt.Errorf("%w: the peer released more messages than it was sent", ErrProtocol)
	}
	if allowed > ep.allowed.Load() {
		ep.allowed.Store(allowed)
	}
	if ep.outbox.n > 0 {
		ep.markBusy()
	}
	ep.mu.Unlock()
	ep.roomy.Wake()
	return nil
}

// doom has the leader fail the endpoint: the caller may hold its locks.
func (ep *Endpoint) doom(err error) {
	if ep.doomed.CompareAndSwap(nil, &err) {
		ep.el.addBusy(ep)
	}
}

// end settles why the endpoint ended: the first reason stays. A goodbye leaves only after that, or the
// peer's answer to it could be taken for the peer's loss.
func (ep *Endpoint) end(err error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.dead.CompareAndSwap(nil, &PeerError{Peer: ep.String(), Op: "connection", Err: err}) {
		return
	}
	if err == ErrClosed {
		ep.transmit(frameGoodbye, Reserved, nil, nil) // a link that cannot take it ends without
	}
}

// fail ends the endpoint: everything in flight fails with err, or with what it had ended of before.
func (ep *Endpoint) fail(err error) {
	ep.end(err)
	first := false
	ep.gone.Do(func() {
		first = true
		err := ep.dead.Load().Err
		ep.mu.Lock()
		ep.outbox.drop()
		ep.reserved.drop()
		bulk := ep.bulk
		ep.bulk = nil
		ep.mu.Unlock()
		ep.link.Close()
		ep.mu.Lock() // a caller that abandons a Put looks at its transfer under it
		for _, b := range bulk {
			b.drop()
		}
		ep.mu.Unlock()
		ep.ops.failAll(err)
		ep.in.close()
		ep.map_.close()
		ep.el.keys.dropPeer(ep)
		ep.el.forget(ep)
		ep.roomy.Wake()
		ep.ops.roomy.Wake()
		ep.el.leader.changed()
	})
	if first && ep.rumour.Or(wentBit)&cameBit != 0 {
		ep.tellLost() // outside gone: it may call Close
	}
}

const (
	cameBit = 1 << iota // everybody was told that the endpoint is there
	wentBit             // it has ended; the side that finds the other bit set tells
)

// tellUp tells that the endpoint is there, and then, if it has ended meanwhile, that it is gone: it
// can be found, and closed, from the moment that the element lists it.
func (ep *Endpoint) tellUp() {
	for _, w := range ep.el.watching() {
		w.up(ep)
	}
	if ep.el.cfg.OnPeer != nil { // last: OnPeer may use the layers at once
		ep.el.cfg.OnPeer(ep)
	}
	if ep.rumour.Or(cameBit)&wentBit != 0 {
		ep.tellLost()
	}
}

func (ep *Endpoint) tellLost() {
	for _, w := range ep.el.watching() {
		w.lost(ep, ep.dead.Load())
	}
	if ep.el.cfg.OnLost != nil {
		ep.el.cfg.OnLost(ep, ep.dead.Load())
	}
}
