package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// dialTries is how often connecting is tried before a host is unreachable.
	dialTries = 8
	// linger is how long a reader of HELLO waits before it looks at its deadline.
	linger = 20 * time.Millisecond
	// deadlineGrain rounds deadlines, which are on the machine's clock: what little of
	// that passed until they were set must not show.
	deadlineGrain = 100 * time.Millisecond
)

var errOutside = errors.New("sim: Dial waits: call it inside Host.Go")

// dial connects to a host; it runs on a call's goroutine.
func (n *Network) dial(ctx context.Context, h *Host, addr string) (fabric.Pending, error) {
	if n.cur == nil {
		return nil, errOutside
	}
	var to *Host
	for _, o := range n.hosts {
		if o.Name == addr && o != h {
			to = o
		}
	}
	if to == nil {
		return nil, fmt.Errorf("%w: no other host is called %q", ErrUnreachable, addr)
	}
	for lost := 0; ; lost++ {
		h.Sleep(n.W.Between(n.Faults.MinDelay, n.Faults.MaxDelay))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !n.apart(h, to) && n.W.Rand.Float64() >= n.Faults.Loss {
			break
		}
		if lost == dialTries {
			return nil, fmt.Errorf("%w: %s does not answer", ErrUnreachable, to.Name)
		}
		h.Sleep(min(n.Faults.Retry<<lost, maxRetry))
	}
	if !to.Alive() || to.tr.accept == nil {
		return nil, fmt.Errorf("%w: nobody listens at %s", ErrUnreachable, to.Name)
	}
	w := n.lay(h, to)
	accept := to.tr.accept
	for i := range w.end {
		e := &w.end[i]
		e.pending = &pending{e: e, ctx: ctx}
	}
	theirs := w.end[1].pending
	theirs.ctx = context.Background()
	to.spawn(func() { accept(theirs) }).wake(n.W.Between(n.Faults.MinDelay, n.Faults.MaxDelay))
	return w.end[0].pending, nil
}

// pending is a wire's end while HELLO runs over it: a fabric.Pending.
type pending struct {
	e        *wireEnd
	ctx      context.Context
	deadline int64         // on the world's clock; 0: none
	reader   *proc         // waits for bytes
	more     chan struct{} // of a Live network: there may be some; nil elsewhere
	rest     []byte
}

// Read implements fabric.Pending.
func (p *pending) Read(b []byte) (int, error) {
	for {
		if n, err := p.take(b); n > 0 || err != nil {
			return n, err
		}
		p.reader = p.e.w.net.cur
		p.reader.wake(linger)
		p.reader.park()
		p.reader = nil
	}
}

// take is Read that does not wait: 0 bytes and no error if there is nothing yet.
func (p *pending) take(b []byte) (int, error) {
	e := p.e
	if len(p.rest) == 0 && !e.closed && len(e.inbox) > 0 && e.inbox[0].kind == packetBytes {
		p.rest = e.inbox[0].body
		e.inbox = e.inbox[1:]
	}
	switch {
	case len(p.rest) > 0:
		k := copy(b, p.rest)
		p.rest = p.rest[k:]
		return k, nil
	case e.closed:
		return 0, os.ErrClosed
	case len(e.inbox) > 0 && e.inbox[0].kind == packetEnd:
		return 0, io.EOF
	case len(e.inbox) > 0:
		return 0, fmt.Errorf("sim: %s sent a frame where HELLO was due", e.other().host.Name)
	case e.lost != nil:
		return 0, e.lost
	case p.ctx.Err() != nil:
		return 0, p.ctx.Err()
	case p.deadline != 0 && e.w.net.W.now >= p.deadline:
		return 0, os.ErrDeadlineExceeded
	}
	return 0, nil
}

// notice wakes whoever reads.
func (p *pending) notice() {
	if p.reader != nil {
		p.reader.wake(0)
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// Write implements fabric.Pending.
func (p *pending) Write(b []byte) (int, error) {
	if p.e.closed || p.e.lost != nil {
		return 0, fabric.ErrLinkClosed
	}
	p.e.launch(packet{kind: packetBytes, body: append([]byte(nil), b...)})
	return len(b), nil
}

// SetDeadline implements fabric.Pending. t is on the machine's clock; as long a time is
// given on the world's. A time that has passed is how the fabric ends a Dial whose context
// ended; Read looks at that context itself.
func (p *pending) SetDeadline(t time.Time) error {
	switch d := time.Until(t).Round(deadlineGrain); {
	case t.IsZero():
		p.deadline = 0
	case d > 0:
		p.deadline = p.e.w.net.W.now + int64(d)
	}
	return nil
}

// PeerCred implements fabric.Pending: all hosts are this process, which says nothing.
func (p *pending) PeerCred() (fabric.PeerCred, bool) { return fabric.PeerCred{}, false }

// RemoteAddr implements fabric.Pending.
func (p *pending) RemoteAddr() string { return "sim://" + p.e.other().host.Name }

// Features implements fabric.Pending.
func (p *pending) Features() fabric.PendingFeatures { return fabric.PendingFeatures{} }

// Start implements fabric.Pending.
func (p *pending) Start(r fabric.Receiver, initiator bool) (fabric.Link, error) {
	e := p.e
	if e.closed || e.lost != nil {
		return nil, fabric.ErrLinkClosed
	}
	e.r, e.pending = r, nil
	e.host.kick()
	return e, nil
}

// Close implements fabric.Pending.
func (p *pending) Close() error { return p.e.Close() }

// portPending is a pending of a Live network: its reader is a goroutine, and deadlines are on the machine's clock.
type portPending struct {
	l        *Live
	p        *pending
	deadline time.Time // under l.mu
}

// Read implements fabric.Pending.
func (x *portPending) Read(b []byte) (int, error) {
	for {
		x.l.enter()
		n, err := 0, error(nil)
		x.l.leap(func() bool {
			n, err = x.p.take(b)
			return n > 0 || err != nil
		})
		until := x.deadline
		x.l.leave()
		switch {
		case n > 0 || err != nil:
			return n, err
		case until.IsZero():
			<-x.p.more
			continue
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-x.p.more:
		case <-timer.C:
			return 0, os.ErrDeadlineExceeded
		}
		timer.Stop()
	}
}

// Write implements fabric.Pending.
func (x *portPending) Write(b []byte) (int, error) {
	x.l.enter()
	defer x.l.leave()
	return x.p.Write(b)
}

// SetDeadline implements fabric.Pending.
func (x *portPending) SetDeadline(t time.Time) error {
	x.l.enter()
	defer x.l.leave()
	x.deadline = t
	x.p.notice()
	return nil
}

// PeerCred implements fabric.Pending: all ports are this process, which says nothing.
func (x *portPending) PeerCred() (fabric.PeerCred, bool) { return x.p.PeerCred() }

// RemoteAddr implements fabric.Pending.
func (x *portPending) RemoteAddr() string {
	x.l.enter()
	defer x.l.leave()
	return x.p.RemoteAddr()
}

// Features implements fabric.Pending.
func (x *portPending) Features() fabric.PendingFeatures { return x.p.Features() }

// Start implements fabric.Pending.
func (x *portPending) Start(r fabric.Receiver, initiator bool) (fabric.Link, error) {
	x.l.enter()
	defer x.l.leave()
	e := x.p.e
	if e.host.port == nil {
		return nil, fabric.ErrLinkClosed
	}
	end := &portEnd{p: e.host.port, e: e, r: r}
	_, err := x.p.Start(end, initiator)
	return end, err
}

// Close implements fabric.Pending.
func (x *portPending) Close() error {
	x.l.enter()
	defer x.l.leave()
	return x.p.Close()
}
