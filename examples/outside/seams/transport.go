package seams

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	headBytes   = 6       // length (4), frame id (2)
	normalBytes = 1 << 20 // that may wait to be sent on a link; reserved frames may have a quarter more
	queued      = 64      // frames that may wait for Poll on a link
)

// Transport carries frames over streams of bytes, with a goroutine for each direction of each link: the plainest way there is.
type Transport struct {
	wake  int // eventfd
	armed atomic.Bool

	mu        sync.Mutex
	links     []*link
	pending   map[*pending]bool
	listeners []net.Listener
	work      sync.WaitGroup
	closed    bool
}

// NewTransport makes one for one element.
func NewTransport() (*Transport, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &Transport{wake: fd, pending: map[*pending]bool{}}, err
}

func (t *Transport) Scheme() string                     { return "stream" }
func (t *Transport) Features() fabric.TransportFeatures { return fabric.TransportFeatures{} }
func (t *Transport) WaitFD() int                        { return t.wake }

func (t *Transport) Listen(addr string, accept func(fabric.Pending)) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		ln.Close()
		return "", fabric.ErrClosed
	}
	t.listeners = append(t.listeners, ln)
	t.work.Go(func() {
		for {
			c, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptors, say
				continue
			}
			go accept(t.hello(c))
		}
	})
	return ln.Addr().String(), nil
}

func (t *Transport) Dial(ctx context.Context, addr string) (fabric.Pending, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return t.hello(c), nil
}

func (t *Transport) hello(c net.Conn) *pending {
	p := &pending{Conn: c, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending[p] = true; t.closed {
		c.Close()
	}
	return p
}

// ready has the leader poll, if it sleeps.
func (t *Transport) ready() {
	if t.armed.CompareAndSwap(true, false) {
		unix.Write(t.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (t *Transport) Arm() bool {
	t.armed.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		if len(l.in) > 0 || l.tell.Load() {
			return true
		}
	}
	return false
}

func (t *Transport) Disarm() {
	t.armed.Store(false)
	unix.Read(t.wake, make([]byte, 8))
}

func (t *Transport) Poll(budget int, turn fabric.Turn) (done int) {
	t.mu.Lock()
	links := t.links // replaced, never changed
	t.mu.Unlock()
	for _, l := range links {
		if l.tell.Swap(false) && !l.closed() {
			done++
			if l.to.Writable(); turn.Over() {
				return done
			}
		}
		for more := true; more && done < budget; {
			select {
			case f := <-l.in:
				done++
				if l.deliver(f); turn.Over() {
					return done
				}
			default:
				more = false
			}
		}
	}
	return done
}

func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	for _, ln := range t.listeners {
		ln.Close()
	}
	for p := range t.pending {
		p.Conn.Close()
	}
	links := t.links
	t.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
	t.work.Wait()
	return unix.Close(t.wake)
}

// pending is a connection in HELLO.
type pending struct {
	net.Conn
	t *Transport
}

func (p *pending) PeerCred() (fabric.PeerCred, bool) { return fabric.PeerCred{}, false }
func (p *pending) RemoteAddr() string                { return "stream://" + p.Conn.RemoteAddr().String() }
func (p *pending) Features() fabric.PendingFeatures  { return fabric.PendingFeatures{} }

func (p *pending) Close() error {
	p.t.mu.Lock()
	delete(p.t.pending, p)
	p.t.mu.Unlock()
	return p.Conn.Close()
}

func (p *pending) Start(r fabric.Receiver, _ bool) (fabric.Link, error) {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.pending, p); t.closed {
		p.Conn.Close()
		return nil, fabric.ErrClosed
	}
	p.SetDeadline(time.Time{})
	l := &link{t: t, c: p.Conn, to: r, in: make(chan frame, queued), free: make(chan []byte, queued+1), over: make(chan struct{})}
	l.more.L = &l.mu
	t.links = append(t.links[:len(t.links):len(t.links)], l)
	t.work.Go(l.read)
	t.work.Go(l.write)
	return l, nil
}

// frame is what was read of a link; lost is its end.
type frame struct {
	id   fabric.FrameID
	body []byte
	lost error
}

// link is one connection. Its reader stops while Poll has enough to do, and so does the peer then.
type link struct {
	t    *Transport
	c    net.Conn
	to   fabric.Receiver
	in   chan frame
	free chan []byte   // bodies to use again
	over chan struct{} // closed by Close
	once sync.Once
	tell atomic.Bool // the receiver waits for room, and there is some

	mu   sync.Mutex
	more sync.Cond
	out  []byte // to be sent
	full bool   // Send has said so
}

func (l *link) Features() fabric.LinkFeatures { return fabric.LinkFeatures{} }

func (l *link) closed() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

func (l *link) Send(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := normalBytes
	if class == fabric.Reserved {
		room += normalBytes / 4
	}
	switch n := len(head) + len(body); {
	case l.closed():
		return fabric.ErrLinkClosed
	case len(l.out)+headBytes+n > room:
		l.full = true
		return fabric.ErrLinkFull
	default:
		l.out = binary.LittleEndian.AppendUint32(l.out, uint32(n))
		l.out = binary.LittleEndian.AppendUint16(l.out, uint16(id))
		l.out = append(append(l.out, head...), body...)
		l.more.Signal()
		return nil
	}
}

// write sends what Send has queued, all of it at once. A connection that fails is the reader's to notice.
func (l *link) write() {
	var sending []byte
	for {
		l.mu.Lock()
		for len(l.out) == 0 && !l.closed() {
			l.more.Wait()
		}
		sending, l.out = l.out, sending[:0]
		wanted := l.full
		l.full = false
		l.mu.Unlock()
		if wanted {
			l.tell.Store(true)
			l.t.ready()
		}
		if _, err := l.c.Write(sending); err != nil || l.closed() {
			return
		}
	}
}

func (l *link) read() {
	r := bufio.NewReaderSize(l.c, 64<<10)
	for {
		f, err := l.frame(r)
		if err != nil {
			f = frame{lost: err}
		}
		select {
		case l.in <- f:
			l.t.ready()
		case <-l.over:
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *link) frame(r *bufio.Reader) (f frame, err error) {
	head, err := r.Peek(headBytes)
	if err != nil {
		return f, err
	}
	n := binary.LittleEndian.Uint32(head)
	if f.id = fabric.FrameID(binary.LittleEndian.Uint16(head[4:])); n > fabric.MaxFrameBytes {
		return f, fmt.Errorf("a frame of %d bytes", n)
	}
	r.Discard(headBytes)
	select {
	case f.body = <-l.free:
	default:
	}
	if uint32(cap(f.body)) < n {
		f.body = make([]byte, n, max(n, 512))
	}
	f.body = f.body[:n]
	_, err = io.ReadFull(r, f.body)
	return f, err
}

// deliver gives a frame to the receiver. The leader calls it.
func (l *link) deliver(f frame) {
	if l.closed() {
		return
	}
	err := f.lost
	if err == nil {
		err = l.to.Frame(f.id, f.body)
		select {
		case l.free <- f.body:
		default:
		}
	}
	if err != nil && !l.closed() {
		l.Close()
		l.to.Lost(err)
	}
}

func (l *link) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		close(l.over)
		l.more.Broadcast()
		l.mu.Unlock()
		l.c.Close()
		l.t.mu.Lock()
		defer l.t.mu.Unlock()
		rest := make([]*link, 0, len(l.t.links))
		for _, other := range l.t.links {
			if other != l {
				rest = append(rest, other)
			}
		}
		l.t.links = rest
	})
	return nil
}
