package shm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/share"
)

// Transport is the shared-memory fabric.Transport of one element.
type Transport struct {
	cfg    Config
	geo    geometry
	ep     int // epoll: the boards' eventfds and the links' sockets
	links  []atomic.Pointer[link]
	boards atomic.Pointer[[]*board] // only ever grows
	starts sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	armed     bool  // what new boards begin with
	free      []int // link indices
	listeners []*listener
	pendings  map[*pending]struct{}
	door      share.Door // of those that were accepted

	leader leaderState
}

// leaderState is touched by the progress leader only.
type leaderState struct {
	hot      []*link // polled directly
	next     int     // the hot ring whose turn it is
	board    int     // the board that had its turn
	closed   bool
	asleep   bool
	coldTurn bool // boards go first in this Poll
	look     bool // ask epoll in this Poll
	work     int  // polls and frames since the clock was read
	tick     uint32
	started  time.Time
	lastLook time.Duration // after started
	buf      []byte
	events   [64]unix.EpollEvent
}

// New makes a transport that listens nowhere and has no links.
func New(cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shm: epoll_create1: %w", err)
	}
	t := &Transport{
		cfg:      cfg,
		geo:      geometry{cfg.Slots, cfg.DataBytes},
		ep:       ep,
		links:    make([]atomic.Pointer[link], cfg.MaxLinks),
		pendings: make(map[*pending]struct{}),
		door:     share.Door{Limit: maxPending, Grace: pendingGrace},
	}
	t.boards.Store(&[]*board{})
	for i := cfg.MaxLinks - 1; i >= 0; i-- {
		t.free = append(t.free, i)
	}
	t.leader.hot = make([]*link, 0, maxHot)
	t.leader.started = time.Now()
	t.leader.buf = make([]byte, fabric.MaxFrameBytes)
	return t, nil
}

// Scheme is "shm".
func (t *Transport) Scheme() string { return "shm" }

// WaitFD is the epoll set.
func (t *Transport) WaitFD() int { return t.ep }

// Features implements fabric.Transport.
func (t *Transport) Features() fabric.TransportFeatures { return fabric.TransportFeatures{} }

// Arm makes every ring ring from now on. Each store below is followed by a look
// at what it is about: a producer publishes and then reads the word, so either it
// reads what we stored or we see what it published.
func (t *Transport) Arm() (ready bool) {
	s := &t.leader
	s.asleep = true
	for _, l := range s.hot {
		l.rx.ctl.attention.Store(1)
		l.release()
	}
	t.mu.Lock()
	t.armed = true
	boards := *t.boards.Load()
	for _, b := range boards {
		b.page.armed.Store(1)
	}
	t.mu.Unlock()
	for _, b := range boards {
		ready = ready || b.page.summary.Load() != 0
	}
	for _, l := range s.hot {
		_, ok := l.rx.peek()
		ready = ready || ok
	}
	return ready
}

// Disarm goes back to polling. If a doorbell was rung the next Poll empties it.
// It may have been a socket instead: the next Poll reads the clock.
func (t *Transport) Disarm() {
	s := &t.leader
	if !s.asleep {
		return
	}
	s.asleep, s.work = false, workPerClock
	t.mu.Lock()
	t.armed = false
	for _, b := range *t.boards.Load() {
		s.look = b.page.armed.Swap(0) != 1 || s.look
	}
	t.mu.Unlock()
	for _, l := range s.hot {
		l.rx.ctl.attention.Store(0)
	}
}

// Close stops listening, waits for the accepting goroutines and for Starts under
// way, which fail, and closes every link. A second Close does nothing.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	listeners := t.listeners
	pendings := make([]*pending, 0, len(t.pendings))
	for p := range t.pendings {
		pendings = append(pendings, p)
	}
	t.mu.Unlock()

	t.leader.closed = true
	var errs []error
	for _, ln := range listeners {
		errs = append(errs, ln.close())
	}
	for _, p := range pendings {
		p.Close()
	}
	t.starts.Wait()
	for i := range t.links {
		if l := t.links[i].Load(); l != nil {
			l.Close()
			t.teardown(l)
		}
	}
	for _, b := range *t.boards.Load() {
		b.close()
	}
	t.boards.Store(&[]*board{})
	errs = append(errs, unix.Close(t.ep))
	return errors.Join(errs...)
}

// beginStart counts a Start, so that Close can wait for it.
func (t *Transport) beginStart() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.starts.Add(1)
	return nil
}

// reserve picks an index and the board for a new link.
func (t *Transport) reserve(cred *unix.Ucred) (*link, error) {
	if cred == nil {
		return nil, errors.New("shm: the kernel does not say who the peer is")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		return nil, fmt.Errorf("shm: this element has %d links, which is its limit (MaxLinks)", len(t.links))
	}
	b, err := t.boardLocked(int(cred.Uid))
	if err != nil {
		return nil, err
	}
	l := &link{t: t, own: b, pid: int(cred.Pid), fd: -1, idx: t.free[len(t.free)-1]}
	l.peer.fd = -1
	t.free = t.free[:len(t.free)-1]
	return l, nil
}

// boardLocked finds or makes the board for uid's processes.
func (t *Transport) boardLocked(uid int) (*board, error) {
	boards := *t.boards.Load()
	for _, b := range boards {
		if b.uid == uid {
			return b, nil
		}
	}
	if len(boards) == maxBoards {
		return nil, fmt.Errorf("shm: peers of %d users are linked, which is the limit", maxBoards)
	}
	b, err := newBoard(uid)
	if err != nil {
		return nil, err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(-1 - len(boards))}
	if err := unix.EpollCtl(t.ep, unix.EPOLL_CTL_ADD, b.fd, &ev); err != nil {
		b.close()
		return nil, fmt.Errorf("shm: watch a doorbell: %w", err)
	}
	if t.armed {
		b.page.armed.Store(1)
	}
	grown := append(append([]*board(nil), boards...), b)
	t.boards.Store(&grown)
	return b, nil
}

// register makes l known to Poll, which looks at it once: the peer may have
// sent before.
func (t *Transport) register(l *link) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.links[l.idx].Store(l)
	if err := l.watch(unix.EPOLL_CTL_ADD, false); err != nil {
		t.links[l.idx].Store(nil)
		return err
	}
	l.own.ring(l.idx)
	return nil
}

func (t *Transport) unreserve(l *link) {
	t.mu.Lock()
	t.free = append(t.free, l.idx)
	t.mu.Unlock()
}

// teardown takes l away. Only the leader calls it, so no other goroutine reads the
// rings meanwhile.
func (t *Transport) teardown(l *link) {
	s := &t.leader
	for i, h := range s.hot {
		if h == l {
			s.hot = append(s.hot[:i], s.hot[i+1:]...)
			break
		}
	}
	t.links[l.idx].Store(nil)
	l.unmap()
	t.unreserve(l)
}

// track remembers a connection until it is closed or started. One that was accepted may have to wait for a place first; nil, and then it has none.
func (t *Transport) track(p *pending, accepted bool) (wait time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, ErrClosed
	}
	if accepted {
		var out func()
		if p.guest, out, wait = t.door.Enter(time.Now(), p.name, func() { p.conn.Close() }); p.guest == nil {
			return wait, nil
		}
		if out != nil {
			out() // whoever runs its HELLO sees the end
		}
	}
	t.pendings[p] = struct{}{}
	return 0, nil
}

// known takes a connection whose HELLO is done out of the way of others'.
func (t *Transport) known(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.guest != nil {
		t.door.Leave(p.guest)
	}
}

func (t *Transport) forget(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.guest != nil {
		t.door.Leave(p.guest)
	}
	delete(t.pendings, p)
}
