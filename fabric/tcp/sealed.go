package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// sealed is what a link has besides if TLS secures it. The link's buffers hold
// plain bytes as ever; what the socket gives and takes lies in records.
//
// Locks: txMu before TLS's lock for sending before outMu of records; ioMu before TLS's lock for receiving
// before the one for sending. Inside Read TLS may send, so Read is called without txMu.
type sealed struct {
	conn *tls.Conn
	wire *records
	leaf *x509.Certificate // the peer's

	rest    bool                  // TLS may have more of the last record; the leader's
	waits   bool                  // for the socket to take bytes; under txMu
	fresh   bool                  // the leader has not looked yet at what came with HELLO; under txMu
	refused atomic.Pointer[error] // why the peer's certificate counts no more
}

const (
	// smallOutBytes is the room for sealed bytes that a link keeps; for more it takes a buffer of the transport's.
	smallOutBytes = 2 << 10
	// answerBytes is the room for what TLS itself says (alerts, new keys), besides frames.
	answerBytes = 4 << 10
)

// errCut tells an end that anybody on the way can bring about from one that the peer wanted.
var errCut = errors.New("the connection was cut: it ended without the goodbye of TLS")

// sealedBytes is what n plain bytes need at most, as sendSealed cuts them.
func sealedBytes(n int) int { return n + (2+n/smallBytes)*sealBytes }

// newSealed takes over a connection whose handshake is done, with what was received beyond it.
func newSealed(t *Transport, conn *tls.Conn, w *records, leaf *x509.Certificate) *sealed {
	raw := t.buffer()
	w.end = copy(raw, w.raw[w.at:w.end])
	w.raw, w.at = raw, 0
	w.small = make([]byte, 0, smallOutBytes)
	w.out = w.small
	w.bound = 2*t.cfg.OutBytes + sealedBytes(headerBytes+fabric.MaxFrameBytes) + answerBytes
	w.c = nil
	return &sealed{conn: conn, wire: w, leaf: leaf, rest: true, fresh: true}
}

// ready reports whether there is something to open.
func (s *sealed) ready() bool {
	if s.rest || s.wire.left > 0 {
		return true
	}
	_, whole := s.wire.next()
	return whole
}

// open has TLS open one record with data in it, into dst; 0 if there is none.
func (s *sealed) open(dst []byte) (int, error) {
	for len(dst) > 0 && (s.rest || s.wire.left > 0 || s.wire.show()) {
		n, err := s.conn.Read(dst)
		s.rest = n == len(dst)
		switch {
		case n > 0:
			return n, nil // an error comes again
		case err == dry{}: // the record was TLS's own
		case err == io.EOF:
			return 0, errEOF
		case err != nil && s.wire.over.Load(): // TLS says so at its next write only
			return 0, errOverflow
		case err != nil:
			return 0, fmt.Errorf("TLS: %w", err)
		}
	}
	return 0, nil
}

// readSealed is read for a link with TLS: it opens a record if a whole one is at hand, and
// else receives first.
func (l *link) readSealed() (int, error) {
	s := l.sec
	if why := s.refused.Load(); why != nil {
		return 0, *why
	}
	l.ioMu.Lock()
	n, err := l.openRecord()
	l.ioMu.Unlock()
	if s.wire.owing.Load() { // TLS had something to say itself
		l.txMu.Lock()
		if !l.txDone && l.broken == nil && !s.waits {
			l.push()
		}
		l.txMu.Unlock()
	}
	if n == 0 && err == nil {
		l.recycleSealed()
	}
	return n, err
}

// openRecord does the work of readSealed; ioMu is held.
func (l *link) openRecord() (int, error) {
	if l.fd < 0 {
		return 0, nil
	}
	if !l.sec.ready() {
		if n, err := l.sec.wire.receive(l); n == 0 || err != nil {
			return 0, err
		}
	}
	if len(l.place.dst) > 0 && l.rpos == l.wpos && l.beginWrite() {
		n, err := l.sec.open(l.place.dst)
		l.endWrite()
		l.place.dst = l.place.dst[n:]
		return n, err
	}
	n, err := l.sec.open(l.buf[l.wpos:])
	l.wpos += n
	return n, err
}

// receive takes what the socket has; ioMu is held.
func (w *records) receive(l *link) (int, error) {
	if w.raw == nil {
		w.raw = l.t.buffer()
	}
	b := w.room()
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(l.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, errCut
	}
	w.end += int(n)
	return int(n), nil
}

// recycleSealed gives empty buffers back.
func (l *link) recycleSealed() {
	l.recycle()
	if w := l.sec.wire; w.raw != nil && w.at == w.end && l.t.hot != l {
		l.t.recycle(w.raw)
		w.raw, w.at, w.end = nil, 0, 0
	}
}

// sendSealed is Send for a link with TLS; txMu is held.
func (l *link) sendSealed(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	total := headerBytes + len(head) + len(body)
	if waiting := l.sec.wire.waiting(); waiting > 0 {
		if waiting+sealedBytes(total) > l.t.outLimit(class) && !l.makeRoom() {
			l.full = true
			return fabric.ErrLinkFull
		}
		if l.broken != nil {
			return l.closedError()
		}
	}
	if err := l.seal(id, head, body); err != nil {
		l.breakOff(err)
		return l.closedError()
	}
	switch {
	case l.sec.waits:
		l.count(l.sec.wire.waiting())
	case l.sec.wire.waiting() <= corkBytes && (l.hold || l.t.hold(l)):
		l.held = true
	default:
		l.held = false
		l.push()
	}
	if l.broken != nil {
		return l.closedError()
	}
	return nil
}

// makeRoom sends what is only held back; false if what waits does so for the socket, which will
// say when it has room. txMu is held.
func (l *link) makeRoom() bool {
	if l.held && !l.sec.waits {
		l.held = false
		l.push()
	}
	return !l.sec.waits
}

// seal has TLS make records of a frame. Its start is put together in one
// buffer, the rest of a large body is sealed from where it lies.
func (l *link) seal(id fabric.FrameID, head, body []byte) error {
	s := l.sec
	s.wire.sending.Store(true)
	defer s.wire.sending.Store(false)
	s.wire.reserve(l.t, sealedBytes(headerBytes+len(head)+len(body)))
	binary.LittleEndian.PutUint32(l.small[:], header(id, len(head)+len(body)))
	n := headerBytes
	for len(head)+len(body) > 0 {
		k := copy(l.small[n:], head)
		head = head[k:]
		n += k
		if len(head) == 0 {
			k = copy(l.small[n:], body)
			body = body[k:]
			n += k
		}
		if len(head) == 0 {
			break
		}
		if _, err := s.conn.Write(l.small[:n]); err != nil {
			return err
		}
		n = 0
	}
	if _, err := s.conn.Write(l.small[:n]); err != nil || len(body) == 0 {
		return err
	}
	_, err := s.conn.Write(body)
	return err
}

// reserve makes room in out for n bytes more.
func (w *records) reserve(t *Transport, n int) {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	if len(w.out)+n <= cap(w.out) || cap(w.out) >= bufferBytes {
		return
	}
	b := t.buffer()
	w.out, w.outAt = b[:copy(b, w.out[w.outAt:])], 0
}

// breakOff ends the sending side; the read side sees the end. txMu is held.
func (l *link) breakOff(err error) {
	l.broken = err
	unix.Shutdown(l.fd, unix.SHUT_RDWR)
}

// push gives sealed bytes to the socket; txMu is held and the link is open.
func (l *link) push() {
	s, w := l.sec, l.sec.wire
	w.outMu.Lock()
	defer w.outMu.Unlock()
	w.owing.Store(false)
	b := w.out[w.outAt:]
	if len(b) == 0 {
		return
	}
	var n uintptr
	var errno syscall.Errno
	if len(b) <= smallBytes {
		n, _, errno = syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(syscall.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	}
	if errno != 0 {
		if errno != syscall.EAGAIN && errno != syscall.EINTR {
			l.breakOff(errno)
			return
		}
		n = 0
	}
	w.outAt += int(n)
	if w.outAt == len(w.out) {
		w.drained(l.t)
	}
	if waits := w.outAt < len(w.out); waits != s.waits {
		s.waits = waits
		l.wantWrite(waits)
	}
	if s.waits || l.counted > 0 {
		l.count(len(w.out) - w.outAt)
	}
}

// drained gives the buffer back that large frames needed; outMu is held.
func (w *records) drained(t *Transport) {
	w.out, w.outAt = w.out[:0], 0
	if cap(w.out) == bufferBytes {
		t.recycle(w.out[:bufferBytes])
	}
	w.out = w.small
}

// flushSealed is flush for a link with TLS.
func (l *link) flushSealed() int {
	l.txMu.Lock()
	if l.txDone || l.broken != nil {
		l.txMu.Unlock()
		return 0
	}
	if l.sec.waits || !l.held {
		l.push()
	}
	if l.sec.fresh {
		l.sec.fresh = false
		l.wantWrite(l.sec.waits)
	}
	tell := l.full && l.sec.wire.waiting() <= l.t.cfg.OutBytes/2
	if tell {
		l.full = false
	}
	l.txMu.Unlock()
	l.later() // what came with HELLO makes no event
	if tell {
		l.r.Writable()
	}
	return 1
}

// farewell tells the peer that the end is meant, if the socket takes it; txMu and ioMu are held.
func (l *link) farewell() {
	if l.broken == nil && l.sec.conn.CloseWrite() == nil {
		l.push()
	}
}
