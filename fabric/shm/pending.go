package shm

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/internal/share"
)

// pending is a fabric.Pending: a connected socket on which the fabric runs HELLO.
type pending struct {
	t    *Transport
	conn *net.UnixConn
	name string
	cred *unix.Ucred // nil if the kernel did not say

	guest    *share.Guest // nil: it was not accepted
	deadline bool         // SetDeadline was called
	started  bool
	once     sync.Once
}

func newPending(t *Transport, conn *net.UnixConn, name string) *pending {
	p := &pending{t: t, conn: conn, name: name}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				p.cred = c
			}
		})
	}
	if p.name == "" {
		p.name = "shm peer"
		if p.cred != nil {
			p.name = fmt.Sprintf("shm peer, pid %d, uid %d", p.cred.Pid, p.cred.Uid)
		}
	}
	return p
}

func (p *pending) Read(b []byte) (int, error)       { return p.conn.Read(b) }
func (p *pending) Write(b []byte) (int, error)      { return p.conn.Write(b) }
func (p *pending) RemoteAddr() string               { return p.name }
func (p *pending) Features() fabric.PendingFeatures { return fabric.PendingFeatures{} }

func (p *pending) SetDeadline(t time.Time) error {
	p.deadline = !t.IsZero()
	return p.conn.SetDeadline(t)
}

func (p *pending) PeerCred() (fabric.PeerCred, bool) {
	if p.cred == nil {
		return fabric.PeerCred{}, false
	}
	return fabric.PeerCred{PID: int(p.cred.Pid), UID: int(p.cred.Uid), GID: int(p.cred.Gid)}, true
}

// Close ends the connection. After Start it does nothing: the link is another
// thing to close.
func (p *pending) Close() error {
	var err error
	p.once.Do(func() {
		p.t.forget(p)
		err = p.conn.Close()
	})
	return err
}

// Start passes the memory over and makes the connection a link. Whatever it
// returns, the connection belongs to p no longer.
func (p *pending) Start(r fabric.Receiver, initiator bool) (fabric.Link, error) {
	if p.started {
		return nil, errors.New("shm: Start was called before")
	}
	p.started = true
	p.t.known(p)
	defer p.Close()
	if err := p.t.beginStart(); err != nil {
		return nil, err
	}
	defer p.t.starts.Done()
	if !p.deadline {
		if err := p.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
			return nil, fmt.Errorf("shm: start: %w", err)
		}
	}
	role := byte(roleAcceptor)
	if initiator {
		role = roleInitiator
	}
	l, err := p.t.reserve(p.cred)
	if err != nil {
		_ = sendSetup(p.conn, setup{role: role, reason: err.Error()})
		return nil, err
	}
	l.r, l.mu = r, &l.ownMu
	if s, ok := r.(fabric.SendLocker); ok {
		l.mu = s.SendLock()
	}
	l.fdr, _ = r.(fabric.FDReceiver)
	if initiator {
		err = l.initiate(p.conn, p.t.geo)
	} else {
		err = l.accept(p.conn)
	}
	if err == nil {
		err = l.adopt(p.conn)
	}
	if err == nil {
		err = p.t.register(l)
	}
	if err != nil {
		l.unmap()
		p.t.unreserve(l)
		return nil, err
	}
	return l, nil
}

// initiate makes the link's memory, passes it and takes the peer's doorbell and board.
func (l *link) initiate(conn *net.UnixConn, geo geometry) error {
	f, err := memfd.Create("wherry-link", int64(geo.size()), false)
	if err != nil {
		return fmt.Errorf("shm: link memory: %w", err)
	}
	defer f.Close()
	if l.mem, err = memfd.Map(f.FD(), int64(geo.size()), true); err != nil {
		return fmt.Errorf("shm: link memory: %w", err)
	}
	l.shape(geo, dirForward)
	err = sendSetup(conn, setup{role: roleInitiator, geo: geo, link: l.idx}, f.FD(), l.own.fd, l.own.mem.FD())
	if err != nil && !errors.Is(err, unix.EPIPE) { // a peer that hung up may have said why
		return err
	}
	peer, fds, err := recvSetup(conn, roleAcceptor, 2)
	if err != nil {
		return err
	}
	return l.takeBell(peer, fds)
}

// accept maps what an initiator passes and answers with this side's doorbell and board.
func (l *link) accept(conn *net.UnixConn) error {
	peer, fds, err := recvSetup(conn, roleInitiator, 3)
	if err == nil {
		l.mem, err = mapPeer(fds[0], peer.geo.size(), "link memory")
		unix.Close(fds[0])
		if err != nil {
			closeAll(fds[1:])
		} else {
			l.shape(peer.geo, dirBack)
			err = l.takeBell(peer, fds[1:])
		}
	}
	if err != nil {
		_ = sendSetup(conn, setup{role: roleAcceptor, reason: err.Error()})
		return err
	}
	return sendSetup(conn, setup{role: roleAcceptor, geo: peer.geo, link: l.idx}, l.own.fd, l.own.mem.FD())
}

// shape finds both rings in the link's memory; out is the direction of this
// side's frames. A new ring is not polled: its producer has to ring.
func (l *link) shape(geo geometry, out int) {
	l.tx = newProducer(geo.cut(l.mem, out))
	l.rx = newConsumer(geo.cut(l.mem, 1-out))
	l.tx.ctl.attention.Store(1)
	l.rx.ctl.attention.Store(1)
}

// takeBell takes the peer's doorbell and board: fds, which it owns from here on.
func (l *link) takeBell(peer setup, fds []int) error {
	err := checkDoorbell(fds[0])
	if err == nil {
		l.peerBoard, err = mapPeer(fds[1], boardBytes, "board")
	}
	unix.Close(fds[1])
	if err != nil {
		unix.Close(fds[0])
		return err
	}
	l.peer = bell{boardAt(l.peerBoard), fds[0]}
	l.peerIdx = peer.link
	return nil
}

// adopt takes a descriptor of the socket for the link: out of Go's poller, for
// the transport's own epoll set.
func (l *link) adopt(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("shm: start: %w", err)
	}
	var fd int
	var dup error
	err = raw.Control(func(s uintptr) { fd, dup = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dup); err != nil {
		return fmt.Errorf("shm: start: duplicate the socket: %w", err)
	}
	l.fd = fd
	return nil
}
