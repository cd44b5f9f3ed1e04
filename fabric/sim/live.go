package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Live is a network for elements that drive themselves, on goroutines and the machine's
// clock, as they do over any other transport: Port makes the transport of one. The
// wires are those of a Network, with its WireFaults from one seed. Its clock goes with the machine's, and
// leaps to the next event when an element has nothing left to do. Which goroutine comes first no seed
// decides: a failure is likely to come again with its seed, and not sure to.
//
// Nothing runs but what elements ask for, and a timer while something is under way.
type Live struct {
	mu     sync.Mutex // guards everything below, and the network with all its wires
	net    *Network
	start  time.Time
	leaped int64       // how far the world's clock is before the machine's
	timer  *time.Timer // for the next event
	due    int64       // when it runs out, on the world's clock; 0: it does not
	ports  int
}

// longestLeap bounds by how much an idle element lets the world's clock leap: what is later (packets for a host
// that is cut off are tried for ever) comes when its time has come.
const longestLeap = int64(10 * time.Millisecond)

// NewLive makes a network that has no ports yet. There is nothing to close but the ports.
func NewLive(seed uint64, f WireFaults) *Live {
	return &Live{net: NewNetwork(New(seed, Faults{}), f), start: time.Now()}
}

// String names the network by its seed.
func (l *Live) String() string {
	l.enter()
	defer l.leave()
	return l.net.W.String()
}

// Port makes the transport of one element, a *Port, and says where the element can
// listen. It is what a conformance suite calls a factory.
func (l *Live) Port() (fabric.Transport, string, error) {
	p := &Port{l: l, bell: -1}
	if err := p.hang(); err != nil {
		return nil, "", err
	}
	l.enter()
	defer l.leave()
	l.ports++
	p.h = &Host{Name: fmt.Sprint("port", l.ports), Index: l.ports, net: l.net, port: p}
	p.h.tr = &Transport{h: p.h}
	l.net.hosts = append(l.net.hosts, p.h)
	return p, "sim://" + p.h.Name, nil
}

// enter locks the network and brings it up to the present.
func (l *Live) enter() {
	l.mu.Lock()
	if to := int64(time.Since(l.start)) + l.leaped; to > l.net.W.now {
		l.net.W.Run(time.Duration(to - l.net.W.now))
	}
}

// leave unlocks it, and sees to what comes next.
func (l *Live) leave() {
	defer l.mu.Unlock()
	w := l.net.W
	if len(w.events) == 0 {
		return
	}
	next := w.events[0].at
	if l.due != 0 && l.due <= next {
		return
	}
	if l.due = next; l.timer == nil {
		l.timer = time.AfterFunc(time.Duration(next-w.now), l.tick)
	} else {
		l.timer.Reset(time.Duration(next - w.now))
	}
}

func (l *Live) tick() {
	l.mu.Lock()
	l.due = 0
	l.mu.Unlock()
	l.enter()
	l.leave()
}

// leap lets one event after the other happen, until one brought what the caller has nothing to
// do without, or the next ones are far away.
func (l *Live) leap(brought func() bool) {
	w := l.net.W
	for far := w.now + longestLeap; !brought() && len(w.events) > 0 && w.events[0].at <= far; {
		d := w.events[0].at - w.now
		l.leaped += d
		w.Run(time.Duration(d))
	}
}

// listener is the port that listens at an address, nil if none does.
func (l *Live) listener(addr string) *Port {
	for _, h := range l.net.hosts {
		if h.Name == addr && h.port != nil && h.tr.accept != nil {
			return h.port
		}
	}
	return nil
}

var errTaken = errors.New("somebody listens there")

// listen has a port be found at addr.
func (p *Port) listen(addr string, accept func(fabric.Pending)) error {
	p.l.enter()
	defer p.l.leave()
	switch {
	case p.h.port == nil:
		return fabric.ErrClosed
	case p.h.tr.accept != nil:
		return fmt.Errorf("sim: %s listens already", p.h.Name)
	case addr == "" || p.l.listener(addr) != nil:
		return fmt.Errorf("sim: %q: %w", addr, errTaken)
	}
	p.h.Name, p.h.tr.accept = addr, accept
	return nil
}

// dial lays a wire to whoever listens at addr.
func (p *Port) dial(ctx context.Context, addr string) (*portPending, error) {
	l := p.l
	l.enter()
	defer l.leave()
	n := l.net
	to := l.listener(addr)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case p.h.port == nil:
		return nil, fabric.ErrClosed
	case to == nil:
		return nil, fmt.Errorf("%w: nobody listens at %q", ErrUnreachable, addr)
	}
	delay := n.W.Between(n.Faults.MinDelay, n.Faults.MaxDelay)
	for lost := 0; n.apart(p.h, to.h) || n.W.Rand.Float64() < n.Faults.Loss; lost++ {
		if lost == dialTries {
			return nil, fmt.Errorf("%w: %s does not answer", ErrUnreachable, addr)
		}
		delay += min(n.Faults.Retry<<lost, maxRetry)
	}
	w := n.lay(p.h, to.h)
	for i := range w.end {
		e := &w.end[i]
		e.pending = &pending{e: e, ctx: context.Background(), more: make(chan struct{}, 1)}
	}
	n.W.After(delay, func() { to.accept(&w.end[1]) })
	return &portPending{l, w.end[0].pending, time.Time{}}, nil
}

// accept hands a wire's end to whoever listens, on a goroutine of its own.
func (p *Port) accept(e *wireEnd) {
	take := p.h.tr.accept
	if take == nil || e.closed {
		e.w.breakUp(fmt.Errorf("%w: nobody listens at %s", ErrUnreachable, p.h.Name))
		return
	}
	p.accepting.Go(func() { take(&portPending{p.l, e.pending, time.Time{}}) })
}
