package nbd

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// epollEvery is how many looks at the client that spoke last go to one at the others.
	epollEvery = 16
	// flyingEvery is how many polls go to one look at sockets while commands are under way: a look is a system call, and their ends come by memory.
	flyingEvery = 8
	// ageEvery is how often the leader looks for clients that do not read.
	ageEvery = int64(time.Second)
)

// Poll implements fabric.Poller: answers of commands that have ended, then new requests.
func (s *Server) Poll(int, fabric.Turn) (n int) {
	if s.drive.Err() != nil {
		s.lose()
		s.endAll(s.drive.Err())
	}
	s.meet()
	if s.closing.Load() {
		s.endAll(net.ErrClosed)
	}
	if len(s.conns) > 0 || s.flying > 0 || len(s.wanting) > 0 {
		n = s.reap()
		s.send()
		n += s.listen()
		s.serve()
		s.send() // of requests that need no command
	}
	if s.closing.Load() && !s.quiet.Load() && (s.flying == 0 || s.drive.Err() != nil) {
		s.quiet.Store(true)
		s.drive.Element().Wake()
	}
	return n
}

// meet takes clients over that are past their handshakes.
func (s *Server) meet() {
	s.mu.Lock()
	fresh := s.fresh
	s.fresh = nil
	s.mu.Unlock()
	for _, c := range fresh {
		s.conns[c.fd] = c
		c.parse()
	}
}

// listen receives requests.
func (s *Server) listen() (n int) {
	if s.flying > 0 && s.alone < epollEvery {
		if s.passed++; s.passed < flyingEvery {
			return 0
		}
	}
	s.passed = 0
	if c := s.hot; c != nil && s.alone < epollEvery {
		s.alone++
		if c.receive() {
			n++
		}
		return n
	}
	s.alone = 0
	s.age()
	for _, c := range s.conns {
		if c.unheard() { // it had no room when the leader last went to sleep, which may be long ago
			c.watchAll()
		}
	}
	k, _ := unix.EpollWait(s.epfd, s.events[:], 0)
	for _, e := range s.events[:max(k, 0)] {
		if c := s.conns[int(e.Fd)]; c != nil && c.ready(e.Events) {
			n++
		}
	}
	return n
}

// age ends clients that do not read.
func (s *Server) age() {
	now := s.drive.Element().Now()
	if now < s.nextAge {
		return
	}
	s.nextAge = now + ageEvery
	for _, c := range s.conns {
		c.age(now)
	}
}

// Arm implements fabric.Poller.
func (s *Server) Arm() bool {
	for _, c := range s.conns {
		c.watchAll()
	}
	if len(s.wanting) == 0 {
		return false
	}
	slot, free := s.drive.TryAcquire() // the connection to the lender had no room
	if free {
		s.drive.Release(slot)
	}
	return free
}

// Disarm implements fabric.Poller: the next look is at all clients.
func (s *Server) Disarm() { s.alone = epollEvery }

// WaitFD implements fabric.Poller.
func (s *Server) WaitFD() int { return s.epfd }

// endAll ends all connections.
func (s *Server) endAll(why error) {
	s.mu.Lock()
	fresh := s.fresh
	s.fresh = nil
	s.mu.Unlock()
	for _, c := range fresh {
		s.conns[c.fd] = c
	}
	for _, c := range s.conns {
		c.end(why)
	}
}
