package shm

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// maxHot bounds the rings that are polled directly: an empty one costs a
	// few nanoseconds in each Poll.
	maxHot = 16
	// quantum is how many frames one ring may deliver before the next has its turn.
	quantum = 16
	// workPerClock is how many polls and frames pass between two looks at the clock.
	workPerClock = 256
	// lookEvery is how often a Poll that never sleeps asks epoll for dead peers.
	lookEvery = time.Millisecond
	// coolAfter is how many of those a hot ring may be idle.
	coolAfter = 4
	// maxVisits bounds what marks without a cause can cost one Poll.
	maxVisits = 128
)

// Poll delivers frames from hot rings and marked links, each first in every
// other call that has both.
func (t *Transport) Poll(budget int, turn fabric.Turn) int {
	s := &t.leader
	if s.closed {
		return 0
	}
	n := 0
	var gone bool
	marked := t.marked()
	if marked {
		if s.coldTurn = !s.coldTurn; s.coldTurn {
			if n, gone = t.pollBoards(budget, turn); gone {
				return n
			}
		}
	}
	if len(s.hot) > 0 {
		var k int
		k, gone = t.pollHot(budget-n, turn)
		if n += k; gone {
			return n
		}
	}
	if marked && !s.coldTurn {
		var k int
		k, gone = t.pollBoards(budget-n, turn)
		if n += k; gone {
			return n
		}
	}
	if s.work += 1 + n; s.work >= workPerClock || s.look {
		t.look()
	}
	return n
}

// marked reports whether any board has a mark.
func (t *Transport) marked() bool {
	for _, b := range *t.boards.Load() {
		if b.page.summary.Load() != 0 {
			return true
		}
	}
	return false
}

// pollHot goes round the hot rings, again while one of them may have more and
// the budget lasts.
func (t *Transport) pollHot(budget int, turn fabric.Turn) (n int, gone bool) {
	s := &t.leader
	for more := true; more; {
		more = false
		for i := len(s.hot); i > 0 && n < budget; i-- {
			if s.next >= len(s.hot) {
				if s.next = 0; len(s.hot) == 0 {
					return n, false
				}
			}
			l := s.hot[s.next]
			s.next++
			k, gone := l.deliver(min(quantum, budget-n), turn)
			if n += k; gone || s.closed { // a callback may close the transport
				return n, true
			}
			more = more || k == quantum
		}
	}
	return n, false
}

// pollBoards visits marked links. While there are hot rings it leaves them half
// of the budget.
func (t *Transport) pollBoards(budget int, turn fabric.Turn) (n int, gone bool) {
	s := &t.leader
	if len(s.hot) > 0 {
		budget = (budget + 1) / 2
	}
	boards := *t.boards.Load()
	for i := 0; i < len(boards) && n < budget; i++ {
		if s.board++; s.board >= len(boards) {
			s.board = 0
		}
		k, gone := t.pollBoard(boards[s.board], budget-n, turn)
		if n += k; gone {
			return n, true
		}
	}
	return n, false
}

// pollBoard visits the links that are marked in b.
func (t *Transport) pollBoard(b *board, budget int, turn fabric.Turn) (n int, gone bool) {
	for visits := 0; visits < maxVisits && n < budget; visits++ {
		idx := b.pop()
		if idx < 0 {
			break
		}
		if idx >= len(t.links) {
			continue
		}
		l := t.links[idx].Load()
		if l == nil || l.own != b {
			continue
		}
		k, gone := t.visit(l, min(quantum, budget-n), turn)
		if n += k; gone || t.leader.closed {
			return n, true
		}
	}
	return n, false
}

// visit looks at a link whose mark was cleared. Before each callback it marks
// the link again: if the callback gives the lead away, the next leader comes
// back for the rest.
func (t *Transport) visit(l *link, budget int, turn fabric.Turn) (n int, gone bool) {
	if l.state.Load() != stateOpen {
		return t.finish(l, turn)
	}
	if l.takeRoom() || l.takeFDRoom() {
		l.own.set(l.idx)
		l.r.Writable()
		return 1, turn.Over()
	}
	if l.sock || l.rx.ctl.fdsSent.Load() != l.fdsSeen {
		l.own.set(l.idx)
		if n, gone = l.takeFDs(budget, turn); n > 0 || gone {
			return n, gone
		}
	}
	word, ok := l.rx.peek()
	if ok {
		l.own.set(l.idx)
		t.warm(l)
		return l.deliver(budget, turn)
	}
	if err := l.rx.checkEmpty(word); err != nil {
		l.fail(err)
	} else if l.dying {
		l.fail(l.ended())
	} else if !l.hot {
		l.release() // this link is not looked at again before the producer rings
	}
	return 0, false
}

// deliver takes up to budget frames off l's ring. Each is off before it is
// delivered, and after each callback nothing is touched if the lead is lost.
func (l *link) deliver(budget int, turn fabric.Turn) (n int, gone bool) {
	rx := &l.rx
	buf := l.t.leader.buf
	for n < budget && l.state.Load() == stateOpen {
		word, ok := rx.peek()
		if !ok {
			if rx.pos != rx.told && rx.ctl.wantRoom.Load() != 0 {
				l.release()
			}
			break
		}
		if rx.ctl.fdsSent.Load() != l.fdsSeen {
			k, gone := l.takeFDs(budget-n, turn)
			if n += k; gone {
				return n, true
			}
			continue
		}
		if l.dying {
			if l.drain--; l.drain < 0 {
				l.fail(fmt.Errorf("%w: it closed its socket and went on sending", ErrProtocol))
				break
			}
		}
		id, size, err := rx.take(word, buf)
		if err != nil {
			l.fail(err)
			break
		}
		if rx.due() {
			l.release()
		}
		l.seen = l.t.leader.tick
		n++
		if err := l.r.Frame(id, buf[:size:size]); err != nil {
			l.fail(err)
		}
		if turn.Over() {
			return n, true
		}
	}
	return n, false
}

// takeFDs delivers up to budget descriptors that are on the socket. Only when
// it has found the socket empty do frames go on.
func (l *link) takeFDs(budget int, turn fabric.Turn) (n int, gone bool) {
	for n < budget && l.state.Load() == stateOpen {
		sent := l.rx.ctl.fdsSent.Load()
		tag, fd, done, err := l.recvFD()
		if err != nil {
			l.fail(err)
			return n, false
		}
		if done {
			l.sock, l.fdsSeen = false, sent
			return n, false
		}
		n++
		if l.fdr == nil {
			_ = unix.Close(fd)
			continue
		}
		l.fdr.FD(tag, fd)
		if turn.Over() {
			return n, true
		}
	}
	return n, false
}

// finish takes a broken or closed link away and tells its Receiver, unless the
// fabric closed it.
func (t *Transport) finish(l *link, turn fabric.Turn) (n int, gone bool) {
	t.teardown(l)
	l.mu.Lock()
	err, broken := l.err, l.state.Load() == stateBroken
	l.mu.Unlock()
	if !broken {
		return 1, false
	}
	l.r.Lost(err)
	return 1, turn.Over()
}

// warm makes l hot if there is room among the hot, or one that is idle.
func (t *Transport) warm(l *link) {
	s := &t.leader
	if l.hot || s.asleep {
		return
	}
	if len(s.hot) == maxHot {
		idle := -1
		for i, h := range s.hot {
			if s.tick-h.seen > 1 {
				idle = i
				break
			}
		}
		if idle < 0 {
			return
		}
		t.cool(idle)
	}
	l.hot, l.seen = true, s.tick
	s.hot = append(s.hot, l)
	l.rx.ctl.attention.Store(0)
}

// cool stops polling the hot ring at i: its producer rings from now on, and what
// it published before it knew is marked here.
func (t *Transport) cool(i int) {
	s := &t.leader
	l := s.hot[i]
	s.hot = append(s.hot[:i], s.hot[i+1:]...)
	l.hot = false
	l.rx.ctl.attention.Store(1)
	l.release()
	l.own.set(l.idx) // what was published before the producer knew, or garbage
}

// look reads the clock and, if it is time, asks epoll about sockets and
// doorbells. It only marks links: the next Poll visits them.
func (t *Transport) look() {
	s := &t.leader
	s.work = 0
	now := time.Since(s.started)
	if !s.look && now-s.lastLook < lookEvery {
		return
	}
	if now-s.lastLook >= lookEvery {
		s.tick++
	}
	s.look, s.lastLook = false, now
	n, _ := unix.EpollWait(t.ep, s.events[:], 0)
	boards := *t.boards.Load()
	for _, ev := range s.events[:max(n, 0)] {
		if i := int(-1 - ev.Fd); i >= 0 {
			boards[i].hush()
			continue
		}
		if l := t.links[ev.Fd].Load(); l != nil {
			l.sock = l.sock || ev.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
			l.out = l.out || ev.Events&unix.EPOLLOUT != 0
			l.own.set(l.idx)
		}
	}
	s.look = n == len(s.events)
	for i := len(s.hot) - 1; i >= 0; i-- {
		if s.tick-s.hot[i].seen > coolAfter {
			t.cool(i)
		}
	}
}
