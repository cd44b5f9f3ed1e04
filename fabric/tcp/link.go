package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// A frame on the wire is a 4-byte little-endian header, the body's length in
// the low 20 bits and the id in the high 12, and then the body.
const (
	headerBytes = 4
	lengthBits  = 20
	// smallBytes is the largest frame that is put together in one buffer; a
	// larger one is written from where it lies.
	smallBytes = 8 << 10
)

// link is one connection.
type link struct {
	t     *Transport
	r     fabric.Receiver
	guard fabric.PlaceGuard // r, or nil if it is none
	sec   *sealed           // nil without TLS

	// Receiving; the leader's.
	buf     []byte // from rpos to wpos: received, not parsed yet
	rpos    int
	wpos    int
	queued  bool // in t.more
	discard int  // bytes of a body to skip
	bulky   int  // reads until bulk data is no longer expected
	place   struct {
		id   fabric.FrameID
		head [fabric.PlaceHeadBytes]byte
		dst  []byte // what is still to come of it
		n    int
		on   bool
	}

	// ioMu guards fd against being closed, and memory named by Place against
	// being written after Close, while the leader receives.
	ioMu sync.Mutex
	fd   int // -1 once closed
	gone atomic.Bool

	// Sending.
	txMu    sync.Mutex
	small   [headerBytes + smallBytes]byte
	iov     [3]unix.Iovec
	msg     unix.Msghdr
	out     []byte // bytes the socket would not take, or that are held back
	outAt   int
	held    bool // out waits for Uncork or Hold(false), not for the socket
	hold    bool // small frames wait for Hold(false)
	full    bool // a sender was told ErrLinkFull
	counted int  // bytes of out among t.waiting: all, or none where they are only held back
	broken  error
	txDone  bool // closed
}

// receive reads once and parses; it returns the frames delivered.
func (l *link) receive(budget int, turn fabric.Turn) int {
	if l.rpos < l.wpos && !l.needsMore() {
		return l.parse(budget, turn)
	}
	n, err := l.read()
	if err != nil {
		l.lost(err)
		return 1
	}
	if n == 0 {
		return 0
	}
	return l.parse(budget, turn)
}

// needsMore reports whether the bytes at hand are no whole step.
func (l *link) needsMore() bool {
	if l.place.on || l.discard > 0 {
		return false
	}
	have := l.wpos - l.rpos
	return have < headerBytes || have < headerBytes+l.bodyLen()
}

func (l *link) bodyLen() int {
	return int(binary.LittleEndian.Uint32(l.buf[l.rpos:]) & (1<<lengthBits - 1))
}

var errEOF = errors.New("the peer closed the connection")

// read receives what the socket has: first what is still to come of a placed
// fragment, then the buffer. 0 means nothing was there.
func (l *link) read() (int, error) {
	if l.buf == nil {
		l.buf, l.rpos, l.wpos = l.t.buffer(), 0, 0
	}
	if l.rpos > 0 && (l.rpos == l.wpos || len(l.buf)-l.rpos < headerBytes+fabric.MaxFrameBytes) {
		l.wpos = copy(l.buf, l.buf[l.rpos:l.wpos])
		l.rpos = 0
	}
	if l.sec != nil {
		return l.readSealed()
	}
	l.ioMu.Lock()
	if l.fd < 0 {
		l.ioMu.Unlock()
		return 0, nil
	}
	var n uintptr
	var errno syscall.Errno
	placing := len(l.place.dst)
	if placing > 0 && l.rpos == l.wpos && l.beginWrite() {
		iov := [2]unix.Iovec{{Base: &l.place.dst[0]}, {Base: &l.buf[0]}}
		iov[0].SetLen(placing)
		iov[1].SetLen(headerBytes + fabric.PlaceHeadBytes) // of the next fragment: its data has a place too
		l.rpos, l.wpos = 0, 0
		n, _, errno = syscall.RawSyscall(syscall.SYS_READV, uintptr(l.fd), uintptr(unsafe.Pointer(&iov[0])), 2)
		l.endWrite()
	} else {
		placing = 0
		room := len(l.buf) - l.wpos
		if l.bulky > 0 {
			l.bulky--
			room = min(room, betweenBytes)
		}
		n, _, errno = syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(l.fd), uintptr(unsafe.Pointer(&l.buf[l.wpos])), uintptr(room), 0, 0, 0)
	}
	l.ioMu.Unlock()
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		l.recycle()
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, errEOF
	}
	into := min(int(n), placing)
	l.place.dst = l.place.dst[into:]
	l.wpos += int(n) - into
	return int(n), nil
}

// beginWrite says that memory named by Place is written to next. If it was taken back, the rest of
// the frame is discarded instead. ioMu is held.
func (l *link) beginWrite() bool {
	if l.guard == nil || l.guard.BeginWrite(l.place.id) {
		return true
	}
	l.discard, l.place.dst = len(l.place.dst), nil
	return false
}

func (l *link) endWrite() {
	if l.guard != nil {
		l.guard.EndWrite(l.place.id)
	}
}

// recycle gives an empty buffer back.
func (l *link) recycle() {
	if l.buf != nil && l.rpos == l.wpos && l.t.hot != l {
		l.t.recycle(l.buf)
		l.buf = nil
	}
}

// idle gives the buffers back of a link that others are received from instead.
func (l *link) idle() {
	switch {
	case l.sec == nil:
		l.recycle()
	case !l.sec.ready():
		l.recycleSealed()
	}
}

// parse delivers what is in the buffer.
func (l *link) parse(budget int, turn fabric.Turn) (frames int) {
	l.t.cork()
	frames, over, err := l.steps(budget, turn)
	if over {
		return frames // another leads, and Uncork was called before
	}
	l.t.Uncork()
	if err != nil {
		l.lost(err)
	}
	return frames
}

// steps delivers frames; over says that the lead is lost.
func (l *link) steps(budget int, turn fabric.Turn) (frames int, over bool, err error) {
	for {
		if l.gone.Load() { // closed here: the receiver hears no more
			l.rpos = l.wpos
			return frames, false, nil
		}
		if frames >= budget {
			l.later()
			return frames, false, nil
		}
		step, err := l.step()
		if turn.Over() {
			return frames + 1, true, nil
		}
		if err != nil {
			return frames + 1, false, err
		}
		if step {
			if frames++; frames%corkFrames == 0 {
				l.t.Uncork()
				l.t.cork()
			}
			continue
		}
		if l.sec == nil || !l.sec.ready() {
			return frames, false, nil
		}
		if n, err := l.read(); err != nil {
			return frames + 1, false, err
		} else if n == 0 {
			return frames, false, nil
		}
	}
}

// later has the next Poll parse on.
func (l *link) later() {
	if !l.queued && (l.rpos < l.wpos || l.sec != nil && l.sec.ready()) {
		l.queued = true
		l.t.more = append(l.t.more, l)
		l.t.moreN.Store(int32(len(l.t.more)))
	}
}

// step makes one step: a frame delivered, placed or skipped. false: more bytes are needed.
func (l *link) step() (bool, error) {
	if l.discard > 0 {
		n := min(l.discard, l.wpos-l.rpos)
		l.discard -= n
		l.rpos += n
		if l.discard > 0 {
			return false, nil
		}
	}
	if l.place.on {
		return l.stepPlaced()
	}
	have := l.wpos - l.rpos
	if have < headerBytes {
		return false, nil
	}
	n := l.bodyLen()
	id := fabric.FrameID(binary.LittleEndian.Uint32(l.buf[l.rpos:]) >> lengthBits)
	if n > fabric.MaxFrameBytes {
		return false, fmt.Errorf("%w: a frame of %d bytes, at most %d", fabric.ErrProtocol, n, fabric.MaxFrameBytes)
	}
	if have < headerBytes+n {
		if fabric.BulkFrame(id) && n >= placeBytes && have >= headerBytes+fabric.PlaceHeadBytes {
			return l.beginPlace(id, n)
		}
		return false, nil
	}
	body := l.buf[l.rpos+headerBytes : l.rpos+headerBytes+n]
	l.rpos += headerBytes + n
	// A goroutine that becomes leader inside the callback finds the rest here.
	l.later()
	return true, l.r.Frame(id, body)
}

func (l *link) beginPlace(id fabric.FrameID, n int) (bool, error) {
	p := &l.place
	p.id, p.n = id, n-fabric.PlaceHeadBytes
	copy(p.head[:], l.buf[l.rpos+headerBytes:])
	dst, err := l.r.Place(id, p.head[:], p.n)
	if err != nil {
		return false, err
	}
	l.rpos += headerBytes + fabric.PlaceHeadBytes
	p.on, p.dst = true, dst
	l.bulky = bulkyReads
	if dst == nil {
		l.discard = p.n
	}
	return true, nil
}

func (l *link) stepPlaced() (bool, error) {
	p := &l.place
	if len(p.dst) > 0 && l.rpos < l.wpos {
		l.ioMu.Lock()
		k := 0
		if l.fd >= 0 && l.beginWrite() {
			k = copy(p.dst, l.buf[l.rpos:l.wpos])
			l.endWrite()
		}
		l.ioMu.Unlock()
		if l.discard > 0 {
			return l.step()
		}
		p.dst = p.dst[k:]
		l.rpos += k
	}
	if len(p.dst) > 0 {
		return false, nil
	}
	p.on, p.dst = false, nil
	return true, l.r.Placed(p.id, p.head[:], p.n)
}

// lost ends the link and tells the fabric.
func (l *link) lost(err error) {
	if l.shut() {
		l.r.Lost(err)
	}
}

// Close ends the link.
func (l *link) Close() error {
	l.shut()
	return nil
}

// shut closes the socket; true for the one call that did.
func (l *link) shut() bool {
	l.txMu.Lock()
	defer l.txMu.Unlock()
	l.ioMu.Lock()
	defer l.ioMu.Unlock()
	if l.fd < 0 {
		return false
	}
	if l.sec != nil {
		l.farewell()
	} else if l.held {
		l.give()
	}
	l.t.mu.Lock()
	delete(l.t.links, int32(l.fd))
	l.t.linkN.Store(int32(len(l.t.links)))
	l.t.mu.Unlock()
	unix.Close(l.fd) // takes it out of the epoll set too
	l.fd = -1
	l.gone.Store(true)
	l.txDone = true
	l.out = nil
	l.count(0)
	return true
}

// Send writes one frame, or queues what the socket does not take.
func (l *link) Send(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	n := len(head) + len(body)
	if n > fabric.MaxFrameBytes || id > fabric.MaxFrameID {
		return fmt.Errorf("tcp: frame %d of %d bytes: at most %d", id, n, fabric.MaxFrameBytes)
	}
	l.txMu.Lock()
	defer l.txMu.Unlock()
	if l.txDone || l.broken != nil {
		return l.closedError()
	}
	if l.sec != nil {
		return l.sendSealed(id, class, head, body)
	}
	if l.held && (n > smallBytes || len(l.out)-l.outAt+n > corkBytes || !l.hold && !l.t.hold(l)) {
		l.held = false
		if l.give(); l.broken != nil {
			return l.closedError()
		}
	}
	pendingBytes := len(l.out) - l.outAt
	if pendingBytes == 0 && n <= smallBytes && (l.hold || l.t.hold(l)) {
		l.held = true
		l.queue(id, head, body)
		return nil
	}
	if pendingBytes > 0 {
		if pendingBytes+headerBytes+n > l.t.outLimit(class) {
			l.full = true
			return fabric.ErrLinkFull
		}
		l.queue(id, head, body)
		if !l.held {
			l.count(len(l.out) - l.outAt)
		}
		return nil
	}
	return l.write(id, head, body)
}

// outLimit is what a link that keeps frames may keep, with frames of class.
func (t *Transport) outLimit(class fabric.Class) int {
	limit := t.cfg.OutBytes
	if t.waiting.Load() > int64(t.cfg.OutBytesInAll) {
		limit = fabric.MaxFrameBytes
	}
	if class == fabric.Reserved {
		limit *= 2
	}
	return limit
}

// count says that n bytes wait for the socket; txMu is held.
func (l *link) count(n int) {
	if n != l.counted {
		l.t.waiting.Add(int64(n - l.counted))
		l.counted = n
	}
}

// Features implements fabric.Link.
func (l *link) Features() fabric.LinkFeatures { return fabric.LinkFeatures{Hold: l} }

// Hold keeps small frames back until Hold(false), or until there are many.
func (l *link) Hold(on bool) {
	l.txMu.Lock()
	l.hold = on
	l.txMu.Unlock()
	if !on {
		l.release()
	}
}

func (l *link) closedError() error {
	if l.broken != nil {
		return fmt.Errorf("%w: %v", fabric.ErrLinkClosed, l.broken)
	}
	return fabric.ErrLinkClosed
}

func header(id fabric.FrameID, n int) uint32 { return uint32(id)<<lengthBits | uint32(n) }

// queue appends a frame to what waits for the socket; txMu is held.
func (l *link) queue(id fabric.FrameID, head, body []byte) {
	if l.outAt > len(l.out)/2 {
		l.out = l.out[:copy(l.out, l.out[l.outAt:])]
		l.outAt = 0
	}
	l.out = binary.LittleEndian.AppendUint32(l.out, header(id, len(head)+len(body)))
	l.out = append(append(l.out, head...), body...)
}

// write gives a frame to the socket; txMu is held and nothing is queued.
func (l *link) write(id fabric.FrameID, head, body []byte) error {
	total := headerBytes + len(head) + len(body)
	binary.LittleEndian.PutUint32(l.small[:], header(id, total-headerBytes))
	var n uintptr
	var errno syscall.Errno
	if total <= len(l.small) {
		copy(l.small[headerBytes+copy(l.small[headerBytes:], head):], body)
		n, _, errno = syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&l.small[0])), uintptr(total), unix.MSG_NOSIGNAL, 0, 0)
	} else {
		// A large copy into the socket may take a while: Syscall, so that the
		// garbage collector need not wait for it.
		parts := 0
		for _, b := range [...][]byte{l.small[:headerBytes], head, body} {
			if len(b) > 0 {
				l.iov[parts].Base = &b[0]
				l.iov[parts].SetLen(len(b))
				parts++
			}
		}
		l.msg.Iov = &l.iov[0]
		l.msg.SetIovlen(parts)
		n, _, errno = syscall.Syscall(syscall.SYS_SENDMSG, uintptr(l.fd), uintptr(unsafe.Pointer(&l.msg)), unix.MSG_NOSIGNAL)
		l.iov = [3]unix.Iovec{}
	}
	if errno != 0 {
		if errno != syscall.EAGAIN && errno != syscall.EINTR {
			l.broken = errno
			return l.closedError()
		}
		n = 0
	}
	if int(n) == total {
		return nil
	}
	l.queue(id, head, body)
	l.outAt = len(l.out) - total + int(n)
	l.count(len(l.out) - l.outAt)
	l.wantWrite(true)
	return nil
}

// give hands what waits in out to the socket, and has epoll say when it takes
// the rest; txMu is held.
func (l *link) give() {
	if len(l.out) == l.outAt {
		return
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&l.out[l.outAt])), uintptr(len(l.out)-l.outAt), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		if errno != syscall.EAGAIN && errno != syscall.EINTR {
			l.broken = errno // the read side sees the end
			return
		}
		n = 0
	}
	if l.outAt += int(n); l.outAt < len(l.out) {
		l.count(len(l.out) - l.outAt)
		l.wantWrite(true)
		return
	}
	l.out, l.outAt = l.out[:0], 0
}

// release sends what was held back.
func (l *link) release() {
	l.txMu.Lock()
	defer l.txMu.Unlock()
	if l.held && !l.txDone && l.broken == nil {
		l.held = false
		if l.sec == nil {
			l.give()
		} else if !l.sec.waits {
			l.push()
		}
	}
}

// wantWrite asks epoll for the moment when the socket takes bytes again.
func (l *link) wantWrite(on bool) {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.fd)}
	if on {
		ev.Events |= unix.EPOLLOUT
	}
	unix.EpollCtl(l.t.epfd, unix.EPOLL_CTL_MOD, l.fd, &ev)
}

// flush writes what waits; called by the leader when the socket takes bytes.
func (l *link) flush() int {
	if l.sec != nil {
		return l.flushSealed()
	}
	l.txMu.Lock()
	if l.txDone || len(l.out) == l.outAt {
		l.txMu.Unlock()
		return 0
	}
	n, _, errno := syscall.Syscall6(syscall.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&l.out[l.outAt])), uintptr(len(l.out)-l.outAt), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		if errno != syscall.EAGAIN && errno != syscall.EINTR {
			l.broken = errno
			l.wantWrite(false) // the read side sees the end
		}
		l.txMu.Unlock()
		return 0
	}
	l.outAt += int(n)
	l.count(len(l.out) - l.outAt)
	if l.outAt == len(l.out) {
		l.out, l.outAt = l.out[:0], 0
		if cap(l.out) > 2*fabric.MaxFrameBytes {
			l.out = nil
		}
		l.wantWrite(false)
	}
	tell := l.full && len(l.out)-l.outAt <= l.t.cfg.OutBytes/2
	if tell {
		l.full = false
	}
	l.txMu.Unlock()
	if tell {
		l.r.Writable()
	}
	return 1
}
