package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/memfd"
)

// States of a link.
const (
	stateOpen   = iota
	stateBroken // Lost is due
	stateClosed // the fabric closed it and hears no more
)

// link is both ends' worth of one peer: a producer guarded by mu, a consumer
// that is the leader's.
type link struct {
	t   *Transport
	r   fabric.Receiver
	fdr fabric.FDReceiver // nil if r takes none
	own *board            // where the peer leaves word for us
	idx int               // our bit there
	pid int

	state atomic.Uint32

	// The leader's.
	rx      consumer
	hot     bool
	seen    uint32 // tick of the last frame
	fdsSeen uint32 // control.fdsSent as of the last empty socket
	sock    bool   // epoll saw something on the socket
	out     bool   // epoll saw room on the socket
	dying   bool   // the socket ended: drain, then Lost
	drain   int    // frames still to take from a dying link

	_ [64]byte // senders on other cores below

	mu        *sync.Mutex // the Receiver's, if it holds one over Send; else own
	ownMu     sync.Mutex
	tx        producer
	peer      bell
	peerIdx   int
	wanting   atomic.Bool // a Send found no room; set under mu
	fdWanting bool        // a SendFD found no room
	torn      bool        // nothing below is mapped or open
	err       error       // why the link broke
	fd        int         // the socket
	mem       []byte
	peerBoard []byte
}

var (
	_ fabric.Link      = (*link)(nil)
	_ fabric.FDCarrier = (*link)(nil)
	_ fabric.Transport = (*Transport)(nil)
)

// Features implements fabric.Link.
func (l *link) Features() fabric.LinkFeatures { return fabric.LinkFeatures{FDs: l} }

// Send publishes a frame in the ring and rings the peer if it does not poll.
func (l *link) Send(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	if id > fabric.MaxFrameID || class > fabric.Reserved || len(head)+len(body) > fabric.MaxFrameBytes {
		return fmt.Errorf("shm: frame %d of class %d with %d bytes; ids go to %d, classes to %d, bytes to %d",
			id, class, len(head)+len(body), fabric.MaxFrameID, fabric.Reserved, fabric.MaxFrameBytes)
	}
	if l.mu == &l.ownMu {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	if l.torn || l.state.Load() != stateOpen {
		return fabric.ErrLinkClosed
	}
	err := l.tx.push(id, class, head, body)
	if err != nil {
		return l.unsentLocked(err)
	}
	if l.tx.ctl.attention.Load() != 0 {
		l.peer.ring(l.peerIdx)
	}
	return nil
}

// unsentLocked deals with what push returned.
func (l *link) unsentLocked(err error) error {
	if err == fabric.ErrLinkFull {
		l.wanting.Store(true)
		return err
	}
	l.failLocked(err)
	return fabric.ErrLinkClosed
}

// SendFD sends fd over the socket. Frames sent afterwards arrive after it.
// The socket's send buffer bounds how many are under way.
func (l *link) SendFD(tag uint64, fd int) error {
	rec := fdRecord(tag)
	rights := unix.UnixRights(fd)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn || l.state.Load() != stateOpen {
		return fabric.ErrLinkClosed
	}
	_, err := unix.SendmsgN(l.fd, rec[:], rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	switch {
	case err == nil:
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ETOOMANYREFS):
		l.fdWanting = true
		if err := l.watch(unix.EPOLL_CTL_MOD, true); err != nil {
			return err
		}
		return fabric.ErrLinkFull
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return fabric.ErrLinkClosed // Poll finds out and says why
	default:
		return fmt.Errorf("shm: send descriptor %d: %w", fd, err)
	}
	l.tx.ctl.fdsSent.Add(1)
	l.peer.ring(l.peerIdx) // also if it polls the ring, where nothing shows
	return nil
}

// Wake rings the peer's doorbell if its leader sleeps, and marks nothing: what there is to see is not on the ring.
func (l *link) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.torn && l.state.Load() == stateOpen {
		l.peer.wake()
	}
}

// Left reports whether there is an end, which the leader may not have seen.
func (l *link) Left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.torn || l.state.Load() != stateOpen || l.rx.ctl.bye.Load() != byeNone
}

// Close says goodbye and leaves the rest to the leader.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Swap(stateClosed) == stateClosed || l.torn {
		return nil
	}
	l.goodbyeLocked(byeClosed)
	l.own.ring(l.idx)
	return nil
}

// fail breaks the link: the next Poll reports err. Any goroutine may call it.
func (l *link) fail(err error) {
	l.mu.Lock()
	l.failLocked(err)
	l.mu.Unlock()
}

func (l *link) failLocked(err error) {
	if l.torn || !l.state.CompareAndSwap(stateOpen, stateBroken) {
		return
	}
	l.err = err
	if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrPeerClosed) {
		l.goodbyeLocked(byeBroken)
	}
	l.own.ring(l.idx)
}

func (l *link) goodbyeLocked(why uint32) {
	l.tx.ctl.bye.CompareAndSwap(byeNone, why)
	_ = unix.Shutdown(l.fd, unix.SHUT_RDWR) // fails if the peer is gone already
}

// ended is the error for a socket that has ended.
func (l *link) ended() error {
	switch l.rx.ctl.bye.Load() {
	case byeClosed:
		return fmt.Errorf("%w (pid %d)", ErrPeerClosed, l.pid)
	case byeBroken:
		return fmt.Errorf("%w: pid %d says that this side broke the protocol; its log has the reason", ErrPeerClosed, l.pid)
	}
	return fmt.Errorf("%w (pid %d): its process ended or its socket was closed", ErrPeerGone, l.pid)
}

// watch tells epoll what to look for on the socket.
func (l *link) watch(op int, room bool) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(l.idx)}
	if room {
		ev.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(l.t.ep, op, l.fd, &ev); err != nil {
		return fmt.Errorf("shm: watch a link's socket: %w", err)
	}
	return nil
}

// takeRoom reports whether a Send that found no room may be told to try again:
// the consumer has taken our wish away.
func (l *link) takeRoom() bool {
	if !l.wanting.Load() || l.tx.ctl.wantRoom.Load() != 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := l.wanting.Load() && l.tx.ctl.wantRoom.Load() == 0
	if ok {
		l.wanting.Store(false)
	}
	return ok
}

// takeFDRoom is takeRoom for descriptors.
func (l *link) takeFDRoom() bool {
	if !l.out {
		return false
	}
	l.out = false
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := l.fdWanting
	l.fdWanting = false
	_ = l.watch(unix.EPOLL_CTL_MOD, false)
	return ok
}

// release gives what was taken back to the producer and rings it if it waits.
func (l *link) release() {
	if l.rx.publish() {
		l.peer.ring(l.peerIdx)
	}
}

// unmap gives up everything the link holds.
func (l *link) unmap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		return
	}
	l.torn = true
	for _, fd := range []int{l.fd, l.peer.fd} {
		if fd >= 0 {
			unix.Close(fd) // which takes it out of epoll: there is no duplicate
		}
	}
	for _, mem := range [][]byte{l.mem, l.peerBoard} {
		if mem != nil {
			_ = memfd.Unmap(mem)
		}
	}
	l.mem, l.peerBoard = nil, nil
	l.tx, l.rx = producer{}, consumer{}
}

const (
	fdMagic       = 0x64666877 // "whfd"
	fdRecordBytes = 16
)

// fdRecord is what goes beside a descriptor.
func fdRecord(tag uint64) (b [fdRecordBytes]byte) {
	binary.LittleEndian.PutUint32(b[:], fdMagic)
	binary.LittleEndian.PutUint64(b[8:], tag)
	return b
}

// decodeFDRecord returns the record's tag.
func decodeFDRecord(b []byte) (tag uint64, err error) {
	if len(b) != fdRecordBytes || binary.LittleEndian.Uint32(b) != fdMagic || binary.LittleEndian.Uint32(b[4:]) != 0 {
		return 0, fmt.Errorf("%w: %x on the socket is no descriptor record", ErrProtocol, b)
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}

// recvFD reads one descriptor from the socket. done means that there is none
// now; at its end it sets dying.
func (l *link) recvFD() (tag uint64, fd int, done bool, err error) {
	var rec [fdRecordBytes]byte
	var oob [64]byte // room for more than one, so that a surplus shows
	n, oobn, flags, _, err := unix.Recvmsg(l.fd, rec[:], oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR: // epoll asks again
		return 0, -1, true, nil
	case err != nil || n == 0:
		l.die()
		return 0, -1, true, nil
	}
	fds, err := parseRights(oob[:oobn])
	if err == nil && (len(fds) != 1 || flags&unix.MSG_CTRUNC != 0) {
		err = fmt.Errorf("%w: %d descriptors with a record, want 1 (or this process has no free ones: ulimit -n)", ErrProtocol, len(fds))
	}
	if err == nil {
		tag, err = decodeFDRecord(rec[:n])
	}
	if err != nil {
		closeAll(fds)
		return 0, -1, true, err
	}
	return tag, fds[0], false, nil
}

// die notes that the peer is gone: what it published is still delivered.
func (l *link) die() {
	if !l.dying {
		l.dying = true
		l.drain = len(l.rx.slots)
		l.own.set(l.idx)
	}
}
