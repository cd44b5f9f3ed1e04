package nbd

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device/nvme/host"
)

const (
	// inBytes is what is received at once of a client.
	inBytes = 64 << 10
	// maxRequests bounds the requests of one client that are under way, and maxBytes what is kept for them, give or take the data of one: beyond either the client waits.
	maxRequests = 64
	maxBytes    = 2 << 20
	// maxAnswers bounds the answers of one system call.
	maxAnswers = 32
)

// conn is a client past its handshake. Once the Server has it, it is the leader's.
type conn struct {
	s      *Server
	fd     int
	from   string
	events uint32 // that epoll tells of

	in       []byte // received
	at       int    // what is before it has been parsed
	arriving *job   // a write, some of whose data has not come
	wants    *job   // waits for slots, and no later request begins before it
	jobs     int    // under way
	kept     int    // bytes of their data
	leaving  error  // why nothing more is taken; nil: it is

	heads   [maxAnswers][replyBytes]byte // of answers to be sent
	batch   [][]byte                     // they, and their data
	answers int
	slots   []host.Slot // whose buffers are in batch
	out     []byte      // what the socket did not take
	sent    int         // of out
	since   int64       // when it took something last
	over    bool
}

const replyBytes = 16

// takes reports whether more may be received.
func (c *conn) takes() bool {
	return c.leaving == nil && c.wants == nil && c.jobs < maxRequests && c.kept+len(c.out)-c.sent < maxBytes
}

// watch has epoll tell of events.
func (c *conn) watch(events uint32) error {
	op := unix.EPOLL_CTL_MOD
	if c.events == 0 {
		op = unix.EPOLL_CTL_ADD
	}
	const always = unix.EPOLLERR | unix.EPOLLHUP // which are told of in any case: 0 means that there is no entry
	events |= always
	if c.events == events {
		return nil
	}
	c.events = events
	if err := unix.EpollCtl(c.s.epfd, op, c.fd, &unix.EpollEvent{Events: events, Fd: int32(c.fd)}); err != nil {
		return fmt.Errorf("nbd: epoll: %w", err)
	}
	return nil
}

// watchAll has epoll tell of what the client may do next.
func (c *conn) watchAll() {
	events := uint32(0)
	if c.takes() {
		events |= unix.EPOLLIN
	}
	if c.sent < len(c.out) {
		events |= unix.EPOLLOUT
	}
	if err := c.watch(events); err != nil {
		c.end(err)
	}
}

// unheard reports whether more may be received, and epoll does not tell of it: not by EPOLLOUT either, which is always true of a client that reads.
func (c *conn) unheard() bool {
	return c.events&unix.EPOLLIN == 0 && (c.events&unix.EPOLLOUT == 0 || c.sent < len(c.out)) && c.takes()
}

// ready is called with what epoll says. It reports whether something was done.
func (c *conn) ready(events uint32) bool {
	if events&unix.EPOLLOUT != 0 && c.sent < len(c.out) {
		c.drain()
	}
	if c.takes() {
		return c.receive()
	}
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 { // nobody takes answers any more
		c.end(io.EOF)
		return true
	}
	return false
}

// receive takes what has come, and begins what is complete. False: nothing had come.
func (c *conn) receive() bool {
	if !c.takes() {
		return false
	}
	into := c.room()
	n, err := unix.Read(c.fd, into)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case err != nil:
		c.end(os.NewSyscallError("read", err))
		return true
	case n == 0:
		c.leave(io.EOF)
		return true
	}
	c.s.hot = c
	if j := c.arriving; j != nil {
		j.have += n
	} else {
		c.in = c.in[:len(c.in)+n]
	}
	c.parse()
	return true
}

// room is where the next bytes go.
func (c *conn) room() []byte {
	if j := c.arriving; j != nil {
		return j.data[j.have:]
	}
	if c.at > 0 {
		c.in = c.in[:copy(c.in, c.in[c.at:])]
		c.at = 0
	}
	return c.in[len(c.in):cap(c.in)]
}

// parse begins the requests that are there, as many as may be under way.
func (c *conn) parse() {
	for c.takes() {
		if j := c.arriving; j != nil {
			if j.have < len(j.data) {
				return
			}
			c.arriving = nil
			c.s.begin(j)
			continue
		}
		q, ok, err := parseRequest(c.in[c.at:])
		if err != nil {
			c.leave(err)
			return
		}
		if !ok || !c.take(q) {
			return
		}
	}
}

// take begins a request, or waits for its data. False: the rest of it is to come first.
func (c *conn) take(q request) bool {
	rest, carries := c.in[c.at+requestBytes:], 0
	switch {
	case q.kind == cmdDisconnect:
		c.leave(errDone)
		return false
	case q.kind != cmdWrite:
	case q.size > MaxRequestBytes:
		c.leave(fmt.Errorf("%w: a write of %d bytes, at most %d", errBroken, q.size, MaxRequestBytes))
		return false
	default:
		carries = int(q.size)
	}
	if carries <= inBytes-requestBytes && len(rest) < carries {
		return false
	}
	j := c.s.job(c, q)
	if carries <= len(rest) {
		j.data = rest[:carries]
		c.at += requestBytes + carries
		c.s.begin(j)
		return true
	}
	j.own(carries)
	j.have = copy(j.data, rest)
	c.at, c.in, c.arriving = 0, c.in[:0], j
	return true
}

// leave takes nothing more, and ends the connection when what is under way has been answered.
func (c *conn) leave(why error) {
	if c.leaving == nil {
		c.leaving = why
		c.settle()
	}
}

// settle ends a connection that is leaving, once nothing is under way.
func (c *conn) settle() {
	if c.leaving != nil && c.jobs == c.unfinished() && c.answers == 0 && c.sent == len(c.out) {
		c.end(c.leaving)
	}
}

// unfinished counts the request that has not come, and will not.
func (c *conn) unfinished() int {
	if c.arriving != nil {
		return 1
	}
	return 0
}

// answer has an answer sent with what else there is: data, which lies in a slot's buffer if held says so.
func (c *conn) answer(q *request, errno uint32, data []byte, slot host.Slot, held bool) {
	if c.answers == maxAnswers {
		c.flush()
	}
	if c.over {
		if held {
			c.s.drive.Release(slot)
		}
		return
	}
	if c.answers == 0 {
		c.s.answers = append(c.s.answers, c)
	}
	head := c.heads[c.answers][:]
	be.PutUint32(head, magicReply)
	be.PutUint32(head[4:], errno)
	be.PutUint64(head[8:], q.handle)
	c.answers++
	c.batch = append(c.batch, head)
	if len(data) > 0 {
		c.batch = append(c.batch, data)
	}
	if held {
		c.slots = append(c.slots, slot)
	}
}

// send sends the answers of all clients that have some.
func (s *Server) send() {
	for i := 0; i < len(s.answers); i++ {
		c := s.answers[i]
		if c.answers > 0 {
			c.flush()
		}
		c.settle()
		c.parse() // what waited for room, and may be answered at once
	}
	clear(s.answers)
	s.answers = s.answers[:0]
}

// flush sends the answers. What the socket does not take is kept, and the slots are free.
func (c *conn) flush() {
	n := 0
	var err error
	if c.sent == len(c.out) {
		n, err = unix.Writev(c.fd, c.batch)
		c.since = 0
	}
	if err == unix.EAGAIN || err == unix.EINTR {
		n, err = 0, nil
	}
	if err == nil {
		c.forget()
		for _, b := range c.batch {
			k := min(n, len(b))
			c.out = append(c.out, b[k:]...)
			n -= k
		}
	}
	c.unbatch()
	if err != nil {
		c.end(os.NewSyscallError("write", err))
	} else if c.sent < len(c.out) {
		if c.since == 0 {
			c.since = c.s.drive.Element().Now()
		}
		c.watchAll()
	}
}

// unbatch lets go of answers.
func (c *conn) unbatch() {
	for _, slot := range c.slots {
		c.s.drive.Release(slot)
	}
	clear(c.batch)
	c.slots, c.batch, c.answers = c.slots[:0], c.batch[:0], 0
}

// forget lets go of what has been sent of out, once that is most of it: a client that is always a little behind never empties it.
func (c *conn) forget() {
	if c.sent > len(c.out)/2 {
		c.out = c.out[:copy(c.out, c.out[c.sent:])]
		c.sent = 0
	}
}

// drain sends what the socket did not take before.
func (c *conn) drain() {
	n, err := unix.Write(c.fd, c.out[c.sent:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil:
		c.end(os.NewSyscallError("write", err))
		return
	}
	c.since = c.s.drive.Element().Now()
	if c.sent += n; c.sent < len(c.out) {
		return
	}
	c.out, c.sent = nil, 0 // it was large
	c.settle()
	c.parse()
}

// age ends a client that does not read its answers.
func (c *conn) age(now int64) {
	if c.sent < len(c.out) && now-c.since > int64(writeTime) {
		c.end(fmt.Errorf("nbd: the client has read none of its answers for %v", writeTime))
	}
}

// end ends the connection. Commands under way go on, and nobody hears of them.
func (c *conn) end(why error) {
	if c.over {
		return
	}
	c.over = true
	if c.leaving == nil {
		c.leaving = why
	}
	c.unbatch()
	delete(c.s.conns, c.fd)
	unix.Close(c.fd) // which takes it from epoll, as nobody else has it
	if c.s.hot == c {
		c.s.hot, c.s.alone = nil, 0
	}
	c.s.left(c.from, why)
}
