package nbd

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// led makes a Server that no leader polls, and a client of it: the test is the leader. peer is the client's end of the socket, which does not block.
func led(t *testing.T) (s *Server, c *conn, peer int) {
	t.Helper()
	s = &Server{drive: newMemory(t, 1<<20), log: slog.New(slog.DiscardHandler), lost: make(chan struct{}), greeted: map[net.Conn]struct{}{}, clients: 1}
	s.conns = map[int]*conn{}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	c = &conn{s: s, fd: pair[0], in: make([]byte, 0, inBytes)}
	s.conns[c.fd] = c
	if err := c.watch(unix.EPOLLIN | unix.EPOLLOUT); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.end(net.ErrClosed)
		unix.Close(s.epfd)
		unix.Close(pair[1])
	})
	return s, c, pair[1]
}

// TestBehind: of a client that reads steadily but is always behind only what it has not read is kept, and it reads all, in order.
func TestBehind(t *testing.T) {
	_, c, peer := led(t)
	const answerBytes, total = 256 << 10, 64 << 20
	var want, got uint64 // the number of the next answer
	var heard []byte
	buf := make([]byte, 100<<10)
	for got < total/answerBytes {
		for want < total/answerBytes && len(c.out)-c.sent < 2*answerBytes {
			c.answer(&request{handle: want}, 0, bytes.Repeat([]byte{byte(want)}, answerBytes), 0, false)
			c.flush()
			want++
		}
		if n := cap(c.out); n > 2*maxBytes {
			t.Fatalf("%d bytes are kept for a client that lacks %d", n, len(c.out)-c.sent)
		}
		n, err := unix.Read(peer, buf)
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, buf[:n]...)
		for ; len(heard) >= replyBytes+answerBytes; heard = heard[replyBytes+answerBytes:] {
			if be.Uint64(heard[8:]) != got || heard[replyBytes] != byte(got) || heard[replyBytes+answerBytes-1] != byte(got) {
				t.Fatalf("answer %d is %x", got, heard[:replyBytes+1])
			}
			got++
		}
		if c.sent < len(c.out) {
			c.drain()
		}
	}
}

// TestHeardWhileAwake: a client from which nothing was taken when the leader last went to sleep is heard again when there is room, though the leader does not
// sleep in between: others may keep it awake for as long as they like.
func TestHeardWhileAwake(t *testing.T) {
	s, c, peer := led(t)
	c.jobs = maxRequests
	s.Arm()
	s.Disarm()
	c.jobs = 0
	if _, err := unix.Write(peer, requestOf(request{kind: cmdFlush, handle: 7})); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, replyBytes+1)
	for range 4 * epollEvery {
		s.Poll(0, fabric.Turn{})
		if n, err := unix.Read(peer, reply); err == nil {
			if n != replyBytes || be.Uint64(reply[8:]) != 7 {
				t.Errorf("the reply is %x", reply[:n])
			}
			return
		}
	}
	t.Error("the client is not heard")
}

// TestNothingWantsSlots: what clients that are gone waited for does not keep the leader awake.
func TestNothingWantsSlots(t *testing.T) {
	s, c, _ := led(t)
	s.drive.(*memory).full = true
	s.begin(s.job(c, request{kind: cmdFlush}))
	if len(s.wanting) != 1 {
		t.Fatal("the flush does not wait")
	}
	c.end(net.ErrClosed)
	s.Poll(0, fabric.Turn{})
	if s.Arm() {
		t.Error("the leader is kept awake")
	}
}
