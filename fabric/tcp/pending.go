package tcp

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// pending is a connection in HELLO.
type pending struct {
	t   *Transport
	c   *net.TCPConn
	err error // why there can be no HELLO
	fed bool  // something was read
}

// Read reads what HELLO says. An alert of TLS, which is what a peer that wants TLS
// answers, has a length that no HELLO has.
func (p *pending) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.c.Read(b)
	if !p.fed && n >= 3 && b[0] == tlsAlert && b[1] == 3 {
		p.err = fmt.Errorf("%w: %s speaks TLS and this element does not: give it a certificate", fabric.ErrRefused, p.RemoteAddr())
		return 0, p.err
	}
	p.fed = p.fed || n > 0
	return n, err
}

// tlsAlert is the type of a TLS record that says why TLS ends.
const tlsAlert = 21

func (p *pending) Write(b []byte) (int, error)       { return p.c.Write(b) }
func (p *pending) SetDeadline(d time.Time) error     { return p.c.SetDeadline(d) }
func (p *pending) PeerCred() (fabric.PeerCred, bool) { return fabric.PeerCred{}, false }
func (p *pending) RemoteAddr() string                { return "tcp://" + p.c.RemoteAddr().String() }
func (p *pending) Features() fabric.PendingFeatures  { return fabric.PendingFeatures{} }
func (p *pending) Close() error                      { return p.c.Close() }

// Start makes a link of the connection.
func (p *pending) Start(r fabric.Receiver, _ bool) (fabric.Link, error) {
	if p.err != nil {
		return nil, p.err
	}
	fd, err := p.detach()
	if err != nil {
		return nil, err
	}
	l, err := p.t.start(fd, r, nil)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// detach takes the socket away from Go's own poller.
func (p *pending) detach() (fd int, err error) {
	f, err := p.c.File()
	if err != nil {
		return -1, err
	}
	fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	f.Close()
	if err != nil {
		return -1, err
	}
	addr := p.c.RemoteAddr()
	p.c.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		// Nothing to congest: a controller that paces (BBR, a common default) only
		// delays. Where the kernel has no Reno, it stays as it is.
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	}
	return fd, nil
}
