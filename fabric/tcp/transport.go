// Package tcp carries the fabric's frames over TCP sockets. It drives its
// sockets itself, from the element's one leader through one epoll set, because a
// goroutine per connection would pay a wake-up for every message.
//
// With Config.TLS the same sockets carry TLS 1.3: the handshake blocks, like HELLO,
// and from then on crypto/tls works on buffers that the leader fills and drains.
package tcp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/share"
)

// Config describes the transport. The zero value is usable.
type Config struct {
	// OutBytes bounds what a link keeps of frames that the socket would not
	// take; reserved frames may use as much again. Default 256 KiB.
	OutBytes int
	// OutBytesInAll bounds that for all links together: beyond it each keeps no more than
	// one frame of the largest size, and as much again reserved. Default 256 MiB, or OutBytes if that is more.
	OutBytesInAll int
	// AcceptTime bounds how long an accepted connection may take until its
	// HELLO is done, besides the element's own limit. Default 10 s.
	AcceptTime time.Duration
	// TLS, if it is there, secures every connection; both ends must have it.
	TLS Credentials
}

// Transport is the "tcp" transport.
type Transport struct {
	cfg     Config
	epfd    int
	started time.Time

	mu        sync.Mutex
	links     map[int32]*link
	linkN     atomic.Int32 // how many
	hellos    share.Door   // accepted, in HELLO
	listeners []net.Listener
	closed    bool
	accepting sync.WaitGroup

	// The leader's.
	events  [64]unix.EpollEvent
	reading *link // was received from last
	hot     *link // the link that spoke hotAfter times in a row: asked first, without epoll
	last    *link // that spoke last
	woken   bool  // from WaitFD: epoll knows who it is
	row     int   // how often last spoke without another in between
	cold    int   // polls since hot spoke
	alone   int   // polls of hot, or frames from it, since epoll was asked
	more    []*link
	free    [][]byte // receive buffers
	other   []*link  // the list that heldBack is not
	freeMu  sync.Mutex
	moreN   atomic.Int32
	waiting atomic.Int64 // bytes that links keep because sockets would not take them

	// While corked, small frames stay with their links until Uncork.
	corked    atomic.Bool
	corkUntil atomic.Int64 // after started, in nanoseconds
	corkMu    sync.Mutex
	heldBack  []*link
}

const (
	// bufferBytes is a receive buffer: a whole frame, and the start of the next.
	bufferBytes = fabric.MaxFrameBytes + 64<<10
	// freeBuffers bounds the buffers kept for reuse.
	freeBuffers = 16
	// hotPolls is how long a silent link stays the one that is asked first.
	hotPolls = 4096
	// hotAfter is how often a link must speak in a row to be asked first.
	hotAfter = 8
	// epollEvery is how many polls of the hot link, or frames from it, go to one look at the others.
	epollEvery = 16
	// placeBytes is the smallest fragment that is received in place: below it
	// a copy is cheaper than a second system call.
	placeBytes = 4 << 10
	// betweenBytes is how much is received at once between two fragments of bulk
	// data, so that what follows a small frame is not received into the buffer first and copied
	// from there; bulkyReads is after how many reads without a fragment that ends.
	betweenBytes = 4 << 10
	bulkyReads   = 4
	// corkFrames and corkBytes bound what is held back: during how many frames that
	// are delivered in a row, and how many bytes on one link.
	corkFrames = 16
	corkBytes  = 16 << 10
	// corkTime is more than goroutines take that take an answer and send again, many of them, and little beside a wake-up.
	corkTime = 50 * time.Microsecond
)

// New makes a transport.
func New(cfg Config) (*Transport, error) {
	if cfg.OutBytes == 0 {
		cfg.OutBytes = 256 << 10
	}
	if cfg.OutBytes < fabric.MaxFrameBytes {
		return nil, fmt.Errorf("tcp: OutBytes %d: at least %d, one frame", cfg.OutBytes, fabric.MaxFrameBytes)
	}
	if cfg.OutBytesInAll == 0 {
		cfg.OutBytesInAll = max(256<<20, cfg.OutBytes)
	}
	if cfg.OutBytesInAll < cfg.OutBytes {
		return nil, fmt.Errorf("tcp: OutBytesInAll %d: at least OutBytes, which is %d", cfg.OutBytesInAll, cfg.OutBytes)
	}
	if cfg.AcceptTime < 0 {
		return nil, fmt.Errorf("tcp: AcceptTime %v: it cannot be negative", cfg.AcceptTime)
	}
	if cfg.AcceptTime == 0 {
		cfg.AcceptTime = 10 * time.Second
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tcp: epoll: %w", err)
	}
	return &Transport{cfg: cfg, epfd: epfd, started: time.Now(), links: map[int32]*link{}, hellos: share.Door{Limit: maxHellos, Grace: helloGrace}}, nil
}

// cork holds back what handlers send until Uncork: answers to frames that came
// together leave together, and a handler's last steps do not come after a system call, which
// leaves little of what they need in the processor's nearest cache.
func (t *Transport) cork() {
	t.corkUntil.Store(math.MaxInt64)
	t.corked.Store(true)
}

// Features implements fabric.Transport.
func (t *Transport) Features() fabric.TransportFeatures {
	return fabric.TransportFeatures{Cork: t, Recheck: t.Recheck}
}

// Cork is cork for goroutines that run while the leader does not. Each of them may compute for a while: who sends
// later than corkTime sends at once.
func (t *Transport) Cork() {
	t.corkUntil.Store(int64(time.Since(t.started) + corkTime))
	t.corked.Store(true)
}

// Uncork sends what was held back. The leader calls it, and who is about to
// give the lead away from inside a callback.
func (t *Transport) Uncork() {
	if !t.corked.Load() {
		return
	}
	t.corkMu.Lock()
	t.corked.Store(false)
	list := t.heldBack
	t.heldBack = t.other[:0]
	t.corkMu.Unlock()
	for i, l := range list {
		list[i] = nil
		l.release()
	}
	t.other = list
}

// hold notes that l's frames wait for Uncork; false if no caller of Uncork would come.
// l.txMu is held.
func (t *Transport) hold(l *link) bool {
	if !t.corked.Load() {
		return false
	}
	if until := t.corkUntil.Load(); until != math.MaxInt64 && int64(time.Since(t.started)) > until {
		return false
	}
	t.corkMu.Lock()
	defer t.corkMu.Unlock()
	if !t.corked.Load() {
		return false
	}
	if !l.held {
		t.heldBack = append(t.heldBack, l)
	}
	return true
}

// Scheme is "tcp".
func (t *Transport) Scheme() string { return "tcp" }

// Listen accepts connections at host:port.
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
	t.accepting.Add(1)
	go t.acceptLoop(ln, accept)
	return ln.Addr().String(), nil
}

const (
	// maxHellos bounds the connections that are in HELLO at once, of all listeners. Each takes a goroutine and, with TLS, some ten KiB.
	maxHellos = 1024
	// helloGrace is what each has for HELLO at least. With TLS it takes three round trips, of 200 ms each on a long link, and processor time of a node that may be
	// busy. As many places as silent connections fill in that time go to others meanwhile: a crowd delays another connection by a second for each maxHellos of it.
	helloGrace = time.Second
	// helloLook is how often a listener that waits for a place looks whether the transport is closed.
	helloLook = 20 * time.Millisecond
)

func (t *Transport) acceptLoop(ln net.Listener, accept func(fabric.Pending)) {
	defer t.accepting.Done()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the peer left again: go on
			time.Sleep(10 * time.Millisecond)
			continue
		}
		guest := t.hello(c)
		if guest == nil {
			c.Close()
			return
		}
		t.accepting.Add(1)
		go func() {
			defer t.accepting.Done()
			defer t.helloDone(guest)
			c.SetDeadline(time.Now().Add(t.cfg.AcceptTime))
			accept(t.accepted(c.(*net.TCPConn)))
		}()
	}
}

// accepted is an accepted connection before HELLO.
func (t *Transport) accepted(c *net.TCPConn) fabric.Pending {
	p := pending{t: t, c: c}
	if t.cfg.TLS == nil {
		return &p
	}
	s, err := t.secure(p, "")
	if err != nil { // with this element itself: the reader of the connection is told
		p.err = err
		return &p
	}
	return s
}

// hello finds a place for an accepted connection, and keeps it for Close to end; nil after Close.
func (t *Transport) hello(c net.Conn) *share.Guest {
	from := origin(c.RemoteAddr())
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return nil
		}
		guest, out, wait := t.hellos.Enter(time.Now(), from, func() { c.Close() })
		t.mu.Unlock()
		if out != nil {
			out()
		}
		if guest != nil {
			return guest
		}
		time.Sleep(min(wait, helloLook))
	}
}

// origin is where a connection counts as coming from: a host, by its address. Of IPv6 that is the network, as a host can have any address of it. It
// is "" where the connection has gone.
func origin(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap()
	if ip.Is6() && !ip.IsLinkLocalUnicast() {
		net, _ := ip.Prefix(64) // which an address of IPv6 has
		return net.String()
	}
	return ip.String()
}

func (t *Transport) helloDone(g *share.Guest) {
	t.mu.Lock()
	t.hellos.Leave(g)
	t.mu.Unlock()
}

// Dial connects to host:port.
func (t *Transport) Dial(ctx context.Context, addr string) (fabric.Pending, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if t.cfg.TLS != nil {
		return t.dialSecure(c.(*net.TCPConn), addr)
	}
	return &pending{t: t, c: c.(*net.TCPConn)}, nil
}

// start makes a link of a socket, which it closes if that fails.
func (t *Transport) start(fd int, r fabric.Receiver, sec *sealed) (*link, error) {
	l := &link{t: t, fd: fd, r: r, sec: sec}
	l.guard, _ = r.(fabric.PlaceGuard)
	if err := t.add(l); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return l, nil
}

// add has the transport look after a link; what cannot be added leaves no trace.
func (t *Transport) add(l *link) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fabric.ErrClosed
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.fd)}
	if l.sec != nil {
		ev.Events |= unix.EPOLLOUT // comes at once: see sealed.fresh
	}
	if err := unix.EpollCtl(t.epfd, unix.EPOLL_CTL_ADD, l.fd, &ev); err != nil {
		return fmt.Errorf("tcp: watch a socket: %w", err)
	}
	t.links[int32(l.fd)] = l // only now: the caller closes a socket that is not added, and its number may be another file's then
	t.linkN.Store(int32(len(t.links)))
	return nil
}

func (t *Transport) find(fd int32) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.links[fd]
}

// Poll delivers what has arrived.
func (t *Transport) Poll(budget int, turn fabric.Turn) int {
	n := 0
	for len(t.more) > 0 && n < budget {
		l := t.more[len(t.more)-1]
		t.more = t.more[:len(t.more)-1]
		t.moreN.Store(int32(len(t.more)))
		l.queued = false
		t.turnTo(l)
		n += l.parse(budget-n, turn)
		if turn.Over() {
			return n
		}
	}
	if h := t.hot; h != nil && !t.woken {
		t.turnTo(h)
		k := h.receive(budget-n, turn)
		if turn.Over() {
			return n + k
		}
		if k > 0 {
			t.cold = 0
			if n += k; n >= budget {
				return n
			}
		} else if t.cold++; t.cold > hotPolls {
			t.cool()
		}
		if t.alone += max(k, 1); t.alone < epollEvery {
			return n
		}
	}
	t.woken, t.alone = false, 0
	return n + t.pollAll(budget-n, turn)
}

// turnTo has the link that was received from before l give its buffer back,
// unless something is in it: of the links that have nothing to say, only that
// one and the hot one keep theirs, however many there are.
func (t *Transport) turnTo(l *link) {
	if p := t.reading; p != l {
		t.reading = l
		if p != nil {
			p.idle()
		}
	}
}

// cool ends a link's being hot.
func (t *Transport) cool() {
	if h := t.hot; h != nil {
		t.hot, t.row = nil, 0
		if h != t.reading {
			h.idle()
		}
	}
}

func (t *Transport) pollAll(budget int, turn fabric.Turn) (n int) {
	if t.linkN.Load() == 0 {
		return 0
	}
	// Non-blocking, so RawSyscall does not hold up the garbage collector.
	got, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(t.epfd), uintptr(unsafe.Pointer(&t.events[0])), uintptr(len(t.events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	// A new leader may refill events while a callback of ours runs; then our
	// turn is over and we touch it no more.
	for i := 0; i < int(got); i++ {
		ev := t.events[i]
		l := t.find(ev.Fd)
		if l == nil {
			continue
		}
		if ev.Events&unix.EPOLLOUT != 0 {
			n += l.flush()
			if turn.Over() {
				return n
			}
		}
		if ev.Events&^uint32(unix.EPOLLOUT) != 0 {
			t.turnTo(l)
			k := l.receive(budget, turn)
			if n += k; turn.Over() {
				return n
			}
			if k > 0 {
				t.spoke(l)
			}
		}
	}
	return n
}

// spoke notes who sent something. Whoever does often in a row is asked first
// from then on; with several peers that take turns, epoll finds them sooner.
func (t *Transport) spoke(l *link) {
	if t.last != l {
		t.cool()
		t.last, t.row = l, 0
	} else if t.row++; t.row >= hotAfter {
		if t.hot != l {
			t.cool()
		}
		t.hot, t.cold = l, 0
	}
}

// Arm has nothing to do: the sockets themselves make WaitFD readable.
func (t *Transport) Arm() bool { return t.moreN.Load() > 0 }

// Disarm has the next Poll ask epoll first.
func (t *Transport) Disarm() { t.woken = true }

// WaitFD is the epoll set of all links.
func (t *Transport) WaitFD() int { return t.epfd }

// Close closes the listeners and all links.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	for _, ln := range t.listeners {
		ln.Close()
	}
	t.hellos.Each(func(end func()) { end() }) // a silent peer must not hold up the end
	var open []*link
	for _, l := range t.links {
		open = append(open, l)
	}
	t.mu.Unlock()
	for _, l := range open {
		l.Close()
	}
	t.accepting.Wait()
	return unix.Close(t.epfd)
}

func (t *Transport) buffer() []byte {
	t.freeMu.Lock()
	defer t.freeMu.Unlock()
	if n := len(t.free); n > 0 {
		b := t.free[n-1]
		t.free = t.free[:n-1]
		return b
	}
	return make([]byte, bufferBytes)
}

func (t *Transport) recycle(b []byte) {
	t.freeMu.Lock()
	defer t.freeMu.Unlock()
	if len(t.free) < freeBuffers {
		t.free = append(t.free, b)
	}
}
