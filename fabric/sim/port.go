package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// Port is the transport of one element of a Live network. To the network it is a
// host whose turns fetch frames off the wires; what they brought waits here for Poll, because the fabric's
// Receivers may only be called without the network's lock.
type Port struct {
	l         *Live
	h         *Host
	accepting sync.WaitGroup

	// Under l.mu.
	in    []arrival
	armed bool
	rung  bool
	bell  int // an eventfd; -1 once closed
}

// portBacklog is how many arrivals may wait for Poll. Others stay on their wires, whose senders find them full.
const portBacklog = 64

// arrival is something for a Receiver.
type arrival struct {
	end  *portEnd
	kind arrivalKind
	id   fabric.FrameID
	head []byte // of bulk data
	body []byte
	dst  []byte // where the rest of it goes
	at   int    // first bytes that are placed alone
	fd   handedFD
	why  error
}

type arrivalKind uint8

const (
	arrivedFrame  arrivalKind = iota
	arrivedBulk               // to be placed
	arrivedPart               // of which some is placed
	arrivedFD                 // a descriptor
	arrivedRoom               // to send more
	arrivedTheEnd             // of the wire
)

var (
	_ fabric.Transport  = (*Port)(nil)
	_ fabric.Link       = (*portEnd)(nil)
	_ fabric.Receiver   = (*portEnd)(nil)
	_ fabric.FDReceiver = (*portEnd)(nil)
	_ fabric.FDCarrier  = (*portEnd)(nil)
)

// hang makes the bell.
func (p *Port) hang() (err error) {
	if p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("sim: eventfd: %w", err)
	}
	return nil
}

// Scheme implements fabric.Transport.
func (p *Port) Scheme() string { return "sim" }

// Listen implements fabric.Transport; addr is any name that no port listens at.
func (p *Port) Listen(addr string, accept func(fabric.Pending)) (string, error) {
	return addr, p.listen(addr, accept)
}

// Dial implements fabric.Transport.
func (p *Port) Dial(ctx context.Context, addr string) (fabric.Pending, error) {
	pending, err := p.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return pending, nil
}

// turn fetches what has arrived at the host, under l.mu.
func (p *Port) turn() {
	t := p.h.tr
	for n := 1 + p.l.net.W.Rand.IntN(p.l.net.Faults.Burst); n > 0 && len(p.in) < portBacklog; n-- {
		e := t.pick(true)
		if e == nil {
			break
		}
		e.step()
	}
	if len(p.in) < portBacklog && t.pick(false) != nil {
		p.h.kick()
	}
	p.ring()
}

// ring wakes the element if there is something for it.
func (p *Port) ring() {
	if len(p.in) > 0 {
		p.wake()
	}
}

// wake wakes the element if it sleeps.
func (p *Port) wake() {
	if p.armed && !p.rung && p.bell >= 0 {
		p.rung = true
		unix.Write(p.bell, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// Poll implements fabric.Transport.
func (p *Port) Poll(budget int, turn fabric.Turn) int {
	for n := range budget {
		a, ok := p.next()
		if !ok {
			return n
		}
		a.end.deliver(&a)
		if turn.Over() {
			return n + 1
		}
	}
	return budget
}

// next takes the oldest arrival.
func (p *Port) next() (a arrival, ok bool) {
	p.l.enter()
	defer p.l.leave()
	if len(p.in) == 0 {
		return a, false
	}
	if len(p.in) >= portBacklog {
		p.h.kick()
	}
	a = p.in[0]
	p.in = slices.Delete(p.in, 0, 1)
	return a, true
}

// Arm implements fabric.Transport. An element that is about to sleep has nothing else to do, so
// time leaps to what comes next.
func (p *Port) Arm() bool {
	p.l.enter()
	defer p.l.leave()
	p.armed = true
	p.l.leap(p.full)
	return p.full()
}

func (p *Port) full() bool { return len(p.in) > 0 }

// Disarm implements fabric.Transport.
func (p *Port) Disarm() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.armed = false
	if p.rung && p.bell >= 0 {
		var b [8]byte
		unix.Read(p.bell, b[:])
	}
	p.rung = false
}

// WaitFD implements fabric.Transport.
func (p *Port) WaitFD() int { return p.bell }

// Features implements fabric.Transport.
func (p *Port) Features() fabric.TransportFeatures { return fabric.TransportFeatures{} }

// Close implements fabric.Transport.
func (p *Port) Close() error {
	p.end(func(e *wireEnd) { e.Close() })
	p.accepting.Wait()
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.bell >= 0 {
		unix.Close(p.bell)
		p.bell = -1
	}
	return nil
}

// Crash is what kill -9 is to a process: what was under way from the port arrives up to some
// point or not at all, nothing arrives here any more, and peers hear that it is gone, or do not (WireFaults.Silent). Its
// element hears ErrCrashed, reaches nobody, and is to be closed by whoever made it. That takes its memory from peers
// who mapped it, which no crash does before they have heard; so Crash waits for those who hear, though not for ever.
func (p *Port) Crash() {
	var peers []*wireEnd
	p.end(func(e *wireEnd) {
		e.crash()
		peers = append(peers, e.other())
	})
	for until := time.Now().Add(longestCrash); time.Now().Before(until); time.Sleep(crashPoll) {
		p.l.enter()
		peers = slices.DeleteFunc(peers, func(e *wireEnd) bool {
			x, open := e.r.(*portEnd)
			return !e.told || !open || x.over.Load()
		})
		p.l.leave()
		if len(peers) == 0 {
			break
		}
	}
}

const (
	longestCrash = 2 * time.Second
	crashPoll    = 100 * time.Microsecond
)

// Freeze is what a SIGSTOP is to a process: for its peers it is silent until on is false.
func (p *Port) Freeze(on bool) {
	p.l.enter()
	defer p.l.leave()
	for _, h := range p.l.net.hosts {
		p.l.net.Partition(p.h, h, on)
		p.l.net.Partition(h, p.h, on)
	}
}

// end takes the port from the network.
func (p *Port) end(how func(*wireEnd)) {
	p.l.enter()
	defer p.l.leave()
	if p.h.port == nil {
		return
	}
	for _, a := range p.in {
		a.drop()
	}
	p.in = nil
	for _, e := range slices.Clone(p.h.tr.ends) {
		how(e)
	}
	p.h.tr.accept, p.h.port = nil, nil
	p.h.life++
	if i := slices.Index(p.l.net.hosts, p.h); i >= 0 {
		p.l.net.hosts = slices.Delete(p.l.net.hosts, i, i+1)
	}
	p.ring()
}

// drop lets go of what nobody will take.
func (a *arrival) drop() {
	if a.kind == arrivedFD {
		unix.Close(a.fd.fd)
	}
}

// portEnd is one end of a wire: the element's Link, and the wire's Receiver.
type portEnd struct {
	p       *Port
	e       *wireEnd
	r       fabric.Receiver
	bulk    []byte      // what the wire is filling, under l.mu
	gone    atomic.Bool // the element closed it, or was told of its end
	over    atomic.Bool // and has been told, or knows
	writing sync.Mutex  // held while what Place named is written
}

// Features implements fabric.Link.
func (x *portEnd) Features() fabric.LinkFeatures {
	f := x.e.Features()
	if f.FDs != nil {
		f.FDs = x
	}
	return f
}

// Left implements fabric.FDCarrier.
func (x *portEnd) Left() bool {
	x.p.l.enter()
	defer x.p.l.leave()
	return x.e.Left()
}

// Wake implements fabric.FDCarrier.
func (x *portEnd) Wake() {
	x.p.l.enter()
	defer x.p.l.leave()
	x.e.Wake()
}

// SendFD implements fabric.FDCarrier.
func (x *portEnd) SendFD(tag uint64, fd int) error {
	x.p.l.enter()
	defer x.p.l.leave()
	return x.e.SendFD(tag, fd)
}

// Send implements fabric.Link.
func (x *portEnd) Send(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	x.p.l.enter()
	defer x.p.l.leave()
	if x.gone.Load() {
		return fabric.ErrLinkClosed
	}
	return x.e.Send(id, class, head, body)
}

// Close implements fabric.Link.
func (x *portEnd) Close() error {
	x.shut()
	x.over.Store(true)
	return nil
}

// shut closes the end; true for the one call that did.
func (x *portEnd) shut() bool {
	x.p.l.enter()
	first := x.gone.CompareAndSwap(false, true)
	x.e.Close()
	x.p.l.leave()
	x.writing.Lock() // what is being written is written
	defer x.writing.Unlock()
	return first
}

// arrive keeps something for Poll. It is called under l.mu.
func (x *portEnd) arrive(a arrival) {
	a.end = x
	if x.gone.Load() || x.p.h.port == nil && a.kind != arrivedTheEnd {
		a.drop()
		return
	}
	x.p.in = append(x.p.in, a)
	x.p.ring()
}

// Frame implements fabric.Receiver: the wire calls it.
func (x *portEnd) Frame(id fabric.FrameID, body []byte) error {
	x.arrive(arrival{kind: arrivedFrame, id: id, body: slices.Clone(body)})
	return nil
}

// Place implements fabric.Receiver. Where the data goes is asked when Poll comes to it.
func (x *portEnd) Place(_ fabric.FrameID, _ []byte, n int) ([]byte, error) {
	x.bulk = make([]byte, n)
	return x.bulk, nil
}

// Placed implements fabric.Receiver.
func (x *portEnd) Placed(id fabric.FrameID, head []byte, n int) error {
	a := arrival{kind: arrivedBulk, id: id, head: slices.Clone(head), body: x.bulk, at: n}
	if w := x.p.l.net.W; w.Rand.Float64() < x.p.l.net.Faults.Pieces {
		a.at = w.Rand.IntN(n)
	}
	x.arrive(a)
	return nil
}

// FD implements fabric.FDReceiver.
func (x *portEnd) FD(tag uint64, fd int) { x.arrive(arrival{kind: arrivedFD, fd: handedFD{tag, fd}}) }

// Writable implements fabric.Receiver.
func (x *portEnd) Writable() { x.arrive(arrival{kind: arrivedRoom}) }

// Lost implements fabric.Receiver.
func (x *portEnd) Lost(why error) { x.arrive(arrival{kind: arrivedTheEnd, why: why}) }

// deliver gives an arrival to the element, on the leader's goroutine.
func (x *portEnd) deliver(a *arrival) {
	if x.gone.Load() {
		a.drop()
		return
	}
	var err error
	switch a.kind {
	case arrivedFrame:
		err = x.r.Frame(a.id, a.body)
		copy(a.body, x.p.l.net.poison) // who kept it will be seen
	case arrivedBulk:
		a.dst, err = x.r.Place(a.id, a.head, len(a.body))
		if err == nil {
			err = x.fill(a)
		}
	case arrivedPart:
		a.at = len(a.body)
		err = x.fill(a)
	case arrivedFD:
		if to, ok := x.r.(fabric.FDReceiver); ok {
			to.FD(a.fd.tag, a.fd.fd)
		} else {
			a.drop()
		}
	case arrivedRoom:
		x.r.Writable()
	case arrivedTheEnd:
		err = a.why
	}
	if err != nil && x.shut() {
		x.r.Lost(err)
		x.over.Store(true)
	}
}

// fill writes bulk data as far as a.at says. The rest comes with a later Poll, before all else.
func (x *portEnd) fill(a *arrival) error {
	from := 0
	if a.kind == arrivedPart {
		from = len(a.body) - len(a.dst)
	}
	a.dst = x.write(a.id, a.dst, a.body[from:a.at])
	if a.at == len(a.body) {
		return x.r.Placed(a.id, a.head, len(a.body))
	}
	a.kind = arrivedPart
	x.p.l.enter()
	x.p.in = slices.Insert(x.p.in, 0, *a)
	x.p.l.leave()
	return nil
}

// write writes to what Place named, and returns what is left of it: nothing if it was taken back.
func (x *portEnd) write(id fabric.FrameID, dst, data []byte) []byte {
	x.writing.Lock()
	defer x.writing.Unlock()
	if dst == nil || x.gone.Load() {
		return nil
	}
	if guard, ok := x.r.(fabric.PlaceGuard); ok {
		if !guard.BeginWrite(id) {
			return nil
		}
		defer guard.EndWrite(id)
	}
	return dst[copy(dst, data):]
}
