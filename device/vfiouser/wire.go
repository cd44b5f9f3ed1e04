package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Commands of the protocol.
const (
	cmdVersion     = 1
	cmdDMAMap      = 2
	cmdDMAUnmap    = 3
	cmdDeviceInfo  = 4
	cmdRegionInfo  = 5
	cmdIRQInfo     = 7
	cmdSetIRQs     = 8
	cmdRegionRead  = 9
	cmdRegionWrite = 10
	cmdReset       = 13
)

const (
	headerBytes = 16
	// maxData bounds what one message reads or writes, and maxBody a message. No register here is larger than 8 bytes; a client may copy the
	// configuration space at once.
	maxData = 4096
	maxBody = 64 << 10
	// maxFDs is how many descriptors come with one message.
	maxFDs = 16

	flagReply   = 1
	flagNoReply = 1 << 4
	flagError   = 1 << 5
	typeMask    = 0xf
)

// errBroken: the client does not keep to the protocol.
var errBroken = errors.New("vfio-user: protocol")

// message is a request.
type message struct {
	id    uint16
	cmd   uint16
	flags uint32
	body  []byte
	fds   []int
}

// claim takes a descriptor, which is the caller's from then on; -1: there is none at i.
func (m *message) claim(i int) int {
	if i >= len(m.fds) {
		return -1
	}
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

// drop closes the descriptors that nobody claimed.
func (m *message) drop() {
	for _, fd := range m.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	m.fds = nil
}

// wire reads and writes messages. It is for one goroutine.
type wire struct {
	c   *net.UnixConn
	buf []byte
	oob []byte
}

func newWire(c *net.UnixConn) *wire {
	return &wire{c: c, buf: make([]byte, headerBytes, 4096), oob: make([]byte, unix.CmsgSpace(4*maxFDs))}
}

// read waits for a message. Its body is the wire's until the next.
func (w *wire) read() (m message, err error) {
	defer func() {
		if err != nil {
			m.drop()
		}
	}()
	w.buf = w.buf[:headerBytes]
	if err := w.fill(w.buf, &m); err != nil {
		return m, err
	}
	le := binary.LittleEndian
	m.id, m.cmd, m.flags = le.Uint16(w.buf), le.Uint16(w.buf[2:]), le.Uint32(w.buf[8:])
	size := le.Uint32(w.buf[4:])
	if size < headerBytes || size > headerBytes+maxBody {
		return m, fmt.Errorf("%w: a message of %d bytes: %d to %d", errBroken, size, headerBytes, headerBytes+maxBody)
	}
	if m.flags&typeMask != 0 {
		return m, fmt.Errorf("%w: message %d is no request (flags %#x)", errBroken, m.id, m.flags)
	}
	n := int(size) - headerBytes
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	m.body = w.buf[:n]
	w.c.SetReadDeadline(time.Now().Add(messageTime)) // the rest is on its way
	defer w.c.SetReadDeadline(time.Time{})
	return m, w.fill(m.body, &m)
}

// fill reads all of p, and descriptors beside it.
func (w *wire) fill(p []byte, m *message) error {
	for len(p) > 0 {
		n, oob, flags, _, err := w.c.ReadMsgUnix(p, w.oob)
		if oob > 0 {
			if e := m.take(w.oob[:oob]); e != nil {
				return e
			}
		}
		switch {
		case err != nil:
			return err
		case n == 0:
			return net.ErrClosed
		case flags&unix.MSG_CTRUNC != 0 || len(m.fds) > maxFDs:
			return fmt.Errorf("%w: more than %d descriptors with a message", errBroken, maxFDs)
		}
		p = p[n:]
	}
	return nil
}

// take parses descriptors.
func (m *message) take(oob []byte) error {
	list, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: control message: %w", errBroken, err)
	}
	for i := range list {
		fds, err := syscall.ParseUnixRights(&list[i])
		if err != nil {
			return fmt.Errorf("%w: descriptors: %w", errBroken, err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		m.fds = append(m.fds, fds...)
	}
	return nil
}

// answer replies to a request, with a body or an errno.
func (w *wire) answer(m *message, body []byte, errno unix.Errno) error {
	if m.flags&flagNoReply != 0 {
		return nil
	}
	flags := uint32(flagReply)
	if errno != 0 {
		flags, body = flags|flagError, nil
	}
	le := binary.LittleEndian
	b := make([]byte, headerBytes, headerBytes+len(body))
	le.PutUint16(b, m.id)
	le.PutUint16(b[2:], m.cmd)
	le.PutUint32(b[4:], uint32(headerBytes+len(body)))
	le.PutUint32(b[8:], flags)
	le.PutUint32(b[12:], uint32(errno))
	w.c.SetWriteDeadline(time.Now().Add(messageTime))
	_, err := w.c.Write(append(b, body...))
	return err
}

// messageTime is how long the rest of a message, or room for an answer, may take.
const messageTime = 30 * time.Second
