package sim

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// A wire joins two lives. Below, it has packets, which the network loses, doubles,
// reorders and delays; above, it is a fabric.Link at each end. Between the two
// are sequence numbers: whatever arrives early waits, whatever arrives twice is thrown away.
type wire struct {
	net    *Network
	id     int
	end    [2]wireEnd
	broken bool
}

type packetKind uint8

const (
	packetFrame packetKind = iota
	packetBytes            // of HELLO
	packetEnd              // the other side closed
)

type packet struct {
	kind packetKind
	id   fabric.FrameID
	body []byte
	seq  uint64
}

// wireEnd is one end of a wire: a fabric.Link, and a Pending before that.
type wireEnd struct {
	w    *wire
	side int
	host *Host
	tr   *Transport
	life int
	r    fabric.Receiver // nil until it is a link

	// Sending.
	sent   uint64 // packets
	queued int    // frames sent that the other side has not taken
	full   bool   // somebody was told ErrLinkFull

	// Receiving.
	due     uint64            // the next packet
	early   map[uint64]packet // what came before its turn
	inbox   []packet
	fds     []handedFD
	placing *placing
	deaf    bool  // nothing arrives any more
	lost    error // to be told
	told    bool  // it will be
	room    bool  // to be told: there is room again
	closed  bool
	pending *pending
}

// placing is a frame's bulk data on its way to where Place said.
type placing struct {
	id   fabric.FrameID
	head []byte
	dst  []byte // nil: discard
	data []byte
	at   int
}

type handedFD struct {
	tag uint64
	fd  int
}

// maxFDs is how many descriptors may wait in one direction of a wire.
const maxFDs = 64

func (n *Network) lay(a, b *Host) *wire {
	n.wires++
	w := &wire{net: n, id: n.wires}
	for i, h := range [2]*Host{a, b} {
		w.end[i] = wireEnd{w: w, side: i, host: h, tr: h.tr, life: h.life, early: map[uint64]packet{}}
		h.tr.ends = append(h.tr.ends, &w.end[i])
	}
	n.live = append(n.live, w)
	n.observe(Event{Kind: EventWire, Host: a.Index, Peer: b.Index, Wire: w.id})
	return w
}

func (e *wireEnd) other() *wireEnd { return &e.w.end[1-e.side] }

// alive reports whether the life that the end belongs to goes on.
func (e *wireEnd) alive() bool { return e.host.life == e.life && e.host.Alive() }

func (e *wireEnd) observe(kind EventKind, id fabric.FrameID, bytes int) {
	e.w.net.observe(Event{Kind: kind, Host: e.host.Index, Peer: e.other().host.Index, Wire: e.w.id, ID: id, Bytes: bytes})
}

// attach makes an endpoint of this end, as if HELLO had been exchanged.
func (e *wireEnd) attach(peer *Host) (*fabric.Endpoint, error) {
	hello := fabric.PeerHello{Name: peer.Name, Incarnation: peer.el.Incarnation(), Principal: fabric.Principal{Name: "anonymous"}, Limits: peer.cfg.Limits}
	return e.host.el.Layer(layer.Pass{}).Attach(hello, func(r fabric.Receiver) (fabric.Link, error) {
		e.r = r
		e.host.kick()
		return e, nil
	})
}

// Features implements fabric.Link.
func (e *wireEnd) Features() (f fabric.LinkFeatures) {
	if e.w.net.Faults.Descriptors {
		f.FDs = e
	}
	return f
}

// Send implements fabric.Link.
func (e *wireEnd) Send(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	f := &e.w.net.Faults
	room := f.Room
	if class == fabric.Reserved {
		room = f.RoomReserved
	}
	n := len(head) + len(body)
	switch {
	case e.closed || e.lost != nil:
		return fabric.ErrLinkClosed
	case n > fabric.MaxFrameBytes:
		return fmt.Errorf("sim: a frame of %d bytes, at most %d", n, fabric.MaxFrameBytes)
	case e.queued >= room:
		e.full = true
		return fabric.ErrLinkFull
	}
	e.queued++
	e.tr.active = true
	e.observe(EventSend, id, n)
	e.launch(packet{kind: packetFrame, id: id, body: append(append(make([]byte, 0, n), head...), body...)})
	return nil
}

// Left implements fabric.FDCarrier.
func (e *wireEnd) Left() bool { return e.closed || e.lost != nil || e.other().closed }

// Wake implements fabric.FDCarrier.
func (e *wireEnd) Wake() {
	switch o := e.other(); {
	case o.closed || !o.alive():
	case o.host.port != nil:
		o.host.port.wake()
	default:
		o.host.kick()
	}
}

// SendFD implements fabric.FDCarrier: descriptors travel beside the frames.
func (e *wireEnd) SendFD(tag uint64, fd int) error {
	o, w := e.other(), e.w.net.W
	switch {
	case e.closed || e.lost != nil:
		return fabric.ErrLinkClosed
	case len(o.fds) >= maxFDs:
		return fabric.ErrLinkFull
	}
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("sim: duplicate a descriptor: %w", err)
	}
	w.After(w.Between(e.w.net.Faults.MinDelay, e.w.net.Faults.MaxDelay), func() {
		if o.closed || o.lost != nil || e.w.broken || !o.alive() {
			unix.Close(d)
			return
		}
		o.fds = append(o.fds, handedFD{tag, d})
		o.host.kick()
	})
	return nil
}

// launch sends a packet for the first time.
func (e *wireEnd) launch(p packet) {
	p.seq = e.sent
	e.sent++
	e.try(p, 0)
}

// try sends a packet; one that is lost is sent again later.
func (e *wireEnd) try(p packet, lost int) {
	n := e.w.net
	f, w := &n.Faults, n.W
	if e.w.broken || e.closed && e.other().closed {
		return
	}
	again := min(f.Retry<<min(lost, 16), maxRetry)
	switch {
	case n.cut[[2]int{e.host.Index, e.other().host.Index}]:
		w.After(again, func() { e.try(p, min(lost+1, 16)) })
		return
	case w.Rand.Float64() < f.Loss:
		if lost++; f.Tries > 0 && lost >= f.Tries {
			e.w.breakUp(fmt.Errorf("a packet was lost %d times", lost))
			return
		}
		w.After(again, func() { e.try(p, lost) })
		return
	}
	copies := 1
	if w.Rand.Float64() < f.Duplicate {
		copies = 2
	}
	for range copies {
		w.After(w.Between(f.MinDelay, f.MaxDelay), func() { e.other().arrive(p) })
	}
}

// arrive takes a packet off the network.
func (e *wireEnd) arrive(p packet) {
	switch {
	case e.deaf:
	case e.closed:
		if e.host.Alive() { // whoever is there now knows nothing of this wire
			e.other().tell(fmt.Errorf("%s knows nothing of this connection", e.host.Name), true)
		}
	case p.seq < e.due:
	default:
		e.early[p.seq] = p
		for next, ok := e.early[e.due]; ok; next, ok = e.early[e.due] {
			delete(e.early, e.due)
			e.due++
			e.inbox = append(e.inbox, next)
		}
		e.notice()
	}
}

// notice has the end's host look at it.
func (e *wireEnd) notice() {
	e.host.kick()
	if e.pending != nil {
		e.pending.notice()
	}
}

// tell has an end hear, after a while, that the wire is gone. What has arrived
// by then is delivered first, unless drop is set and chance will have it.
func (e *wireEnd) tell(why error, drop bool) {
	w := e.w.net.W
	life := e.life
	e.told = true
	w.After(w.Between(0, e.w.net.Faults.Detect), func() {
		if e.closed || e.lost != nil || e.host.life != life {
			return
		}
		e.lost, e.deaf = why, true
		if drop && w.Rand.IntN(2) == 0 {
			e.inbox = nil
		}
		e.notice()
	})
}

// breakUp ends a wire: what is under way arrives up to some point in each
// direction, or not at all, and each end that lives hears of it.
func (w *wire) breakUp(why error) {
	if w.broken {
		return
	}
	w.broken = true
	for i := range w.end {
		e := &w.end[i]
		e.cutOff()
		e.tell(why, true)
	}
}

// cutOff ends arrivals at an end at some point within the time that packets need.
func (e *wireEnd) cutOff() {
	w := e.w.net.W
	if w.Rand.IntN(2) == 0 {
		e.deaf = true
		return
	}
	w.After(w.Between(0, e.w.net.Faults.MaxDelay), func() { e.deaf = true })
}

// Close implements fabric.Link: what was sent still arrives, or some of it, and
// then the other side hears that this one closed.
func (e *wireEnd) Close() error {
	if e.closed {
		return nil
	}
	helloing := e.pending != nil // what HELLO has said last is why
	e.shut()
	if helloing || e.w.net.W.Rand.IntN(2) == 0 {
		e.launch(packet{kind: packetEnd})
	} else {
		o := e.other()
		e.w.broken = true
		o.cutOff()
		o.tell(fmt.Errorf("%s closed the connection", e.host.Name), true)
	}
	return nil
}

// crash is the end of the host's life: its element hears of it, so that what it
// has under way ends. The other side hears that the host is gone, or does not.
func (e *wireEnd) crash() {
	if e.closed {
		return
	}
	r := e.r
	e.shut()
	o := e.other()
	o.cutOff()
	if e.w.net.W.Rand.Float64() >= e.w.net.Faults.Silent {
		o.tell(fmt.Errorf("%s crashed", e.host.Name), true)
	}
	if r != nil {
		r.Lost(ErrCrashed)
	}
}

// shut forgets everything at this end.
func (e *wireEnd) shut() {
	e.closed = true
	e.inbox, e.placing, e.early = nil, nil, nil
	for _, f := range e.fds {
		unix.Close(f.fd)
	}
	e.fds = nil
	e.tr.forget(e)
	if e.other().closed {
		n := e.w.net
		if i := slices.Index(n.live, e.w); i >= 0 {
			n.live = slices.Delete(n.live, i, i+1)
		}
	}
	if e.pending != nil {
		e.pending.notice()
	}
}

// step makes one step at an end that has something for its element.
func (e *wireEnd) step() {
	w := e.w.net.W
	switch {
	case e.room:
		e.room = false
		e.r.Writable()
	case len(e.fds) > 0 && w.Rand.IntN(2) == 0:
		f := e.fds[0]
		e.fds = e.fds[1:]
		if to, ok := e.r.(fabric.FDReceiver); ok {
			to.FD(f.tag, f.fd)
		} else {
			unix.Close(f.fd)
		}
	case e.placing != nil:
		e.fill(1 + w.Rand.IntN(len(e.placing.data)-e.placing.at))
	case len(e.inbox) > 0:
		p := e.inbox[0]
		e.inbox[0] = packet{}
		e.inbox = e.inbox[1:]
		e.deliver(p)
	case e.lost != nil:
		e.end(e.lost)
	}
}

// end tells the element that the wire is gone: the last it hears of it.
func (e *wireEnd) end(why error) {
	r := e.r
	e.observe(EventLost, 0, 0)
	e.Close()
	r.Lost(why)
}

func (e *wireEnd) deliver(p packet) {
	if p.kind == packetEnd {
		e.end(fmt.Errorf("%s closed the connection", e.other().host.Name))
		return
	}
	o := e.other()
	if o.queued--; o.full && o.alive() && !o.closed {
		o.full = false
		w := e.w.net.W
		w.After(w.Between(e.w.net.Faults.MinDelay, e.w.net.Faults.MaxDelay), func() {
			if o.room = !o.closed; o.room {
				o.notice()
			}
		})
	}
	e.observe(EventDeliver, p.id, len(p.body))
	if len(p.body) > fabric.PlaceHeadBytes && fabric.BulkFrame(p.id) && !e.whole() {
		e.place(p)
		return
	}
	err := e.r.Frame(p.id, p.body)
	copy(p.body, e.w.net.poison) // who kept it will be seen
	e.judge(err)
}

// whole decides that a frame with bulk data is delivered in one.
func (e *wireEnd) whole() bool {
	w := e.w.net.W
	return w.Rand.Float64() >= e.w.net.Faults.Pieces && w.Rand.IntN(2) == 0
}

// place asks where a frame's bulk data goes, and fills some or all of that.
func (e *wireEnd) place(p packet) {
	head, data := p.body[:fabric.PlaceHeadBytes:fabric.PlaceHeadBytes], p.body[fabric.PlaceHeadBytes:]
	dst, err := e.r.Place(p.id, head, len(data))
	if err != nil || e.closed {
		e.judge(err)
		return
	}
	e.placing = &placing{id: p.id, head: head, dst: dst, data: data}
	if w := e.w.net.W; w.Rand.Float64() < e.w.net.Faults.Pieces {
		e.fill(w.Rand.IntN(len(data)))
	} else {
		e.fill(len(data))
	}
}

// fill writes n more bytes of what is being placed.
func (e *wireEnd) fill(n int) {
	p := e.placing
	guard, _ := e.r.(fabric.PlaceGuard)
	switch {
	case p.dst == nil:
	case guard == nil:
		copy(p.dst[p.at:p.at+n], p.data[p.at:])
	case guard.BeginWrite(p.id):
		copy(p.dst[p.at:p.at+n], p.data[p.at:])
		guard.EndWrite(p.id)
	default:
		p.dst = nil // taken back: the rest is discarded
	}
	if p.at += n; p.at == len(p.data) {
		e.placing = nil
		e.judge(e.r.Placed(p.id, p.head, len(p.data)))
	}
}

// judge ends the wire of a peer that broke the protocol, or said goodbye.
func (e *wireEnd) judge(err error) {
	if err != nil && !e.closed {
		e.end(err)
	}
}

// hasWork reports whether step has something to do.
func (e *wireEnd) hasWork() bool {
	return e.r != nil && !e.closed && (e.room || e.placing != nil || len(e.inbox) > 0 || len(e.fds) > 0 || e.lost != nil)
}
