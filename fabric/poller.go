package fabric

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// A Poller is polled by the element's leader, as its transports are: the queues of a device, say. All methods are called by the leader
// only, one at a time.
type Poller interface {
	// Poll does what can be done without blocking, at most budget things of it, and returns how many. Where it calls something that may
	// let another goroutine become the leader (Message.HandOff), it returns at once if turn.Over().
	Poll(budget int, turn Turn) int
	// Arm is called before the leader sleeps: from then on whatever is to be done must make WaitFD readable. It reports whether there is
	// something already; then the leader polls again instead of sleeping. Arm may be called again while armed.
	Arm() (ready bool)
	// Disarm is called when the leader polls again after Arm.
	Disarm()
	// WaitFD is a descriptor (an epoll or eventfd, level-triggered) that is readable while there is something for Poll, given Arm; -1: none
	// is needed. It is the same at each call.
	WaitFD() int
}

// AddPoller has the leader poll p as well. Pollers take turns with the transports, and each other, in coming first. The element must be closed, or RemovePoller have returned,
// before what p uses goes.
func (e *Element) AddPoller(p Poller) error {
	l := &e.leader
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return fmt.Errorf("fabric: new poller: %w", ErrClosed)
	}
	if err := l.watchFD(p.WaitFD()); err != nil {
		return err
	}
	list := append(slices.Clone(*l.pollers.Load()), p)
	l.pollers.Store(&list)
	l.kick() // a leader that sleeps has not armed it
	return nil
}

// RemovePoller ends AddPoller: once it has returned nil, p is not called any more. It drives progress until then, so no handler may call it, nor
// a Poller. To remove what was not added does nothing.
func (e *Element) RemovePoller(ctx context.Context, p Poller) error {
	l := &e.leader
	gone := make(chan struct{})
	l.soon(func() { // by the leader, which is in no Poll then
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(*l.pollers.Load(), p); i >= 0 {
			list := slices.Delete(slices.Clone(*l.pollers.Load()), i, i+1)
			l.pollers.Store(&list)
			if fd := p.WaitFD(); fd >= 0 && l.epfd >= 0 {
				unix.EpollCtl(l.epfd, unix.EPOLL_CTL_DEL, fd, nil)
			}
		}
		close(gone)
	})
	return e.WaitFor(ctx, func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}

// soon has the leader call fn once, between two rounds.
func (l *leader) soon(fn func()) {
	l.mu.Lock()
	l.duties = append(l.duties, fn)
	l.mu.Unlock()
	(*Layer)(l.el).TickSoon()
}

// watchFD has a leader that sleeps woken when fd is readable.
func (l *leader) watchFD(fd int) error {
	if fd < 0 || l.epfd < 0 {
		return nil
	}
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("fabric: epoll add: %w", err)
	}
	return nil
}
