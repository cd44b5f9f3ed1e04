package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// watchPolls is how many polls of a leader that does not sleep go to one look at the clock.
const watchPolls = 256

// watch notices what completions do not tell: that the connection or the lease is gone, or that the lender does not answer. It is a poller and not a goroutine with a
// timer: the leader wakes now and then anyway.
type watch struct {
	d       *Drive
	polls   int
	next    int64 // when it looks again
	word    [4]byte
	asked   fabric.Op // for a word of the lease's registers, which are revoked with it
	looking bool
}

// Poll implements fabric.Poller.
func (w *watch) Poll(int, fabric.Turn) int {
	if w.polls++; w.polls >= watchPolls {
		w.look()
	}
	return 0
}

// Arm implements fabric.Poller.
func (w *watch) Arm() bool {
	w.look()
	return false
}

// Disarm implements fabric.Poller.
func (w *watch) Disarm() {}

// WaitFD implements fabric.Poller.
func (w *watch) WaitFD() int { return -1 }

// look looks at everything, if it is time.
func (w *watch) look() {
	w.polls = 0
	d := w.d
	if d.dead.Load() != nil || d.lost() {
		return
	}
	now := d.cfg.Element.Now()
	if now < w.next {
		return
	}
	w.next = now + int64(d.cfg.LookEvery)
	if w.looking && w.asked.Poll() {
		w.looking = false
		if err := w.asked.Wait(context.Background()); err != nil && !errors.Is(err, fabric.ErrBackpressure) { // it has ended, so nothing waits
			d.fail(fmt.Errorf("the lease has ended: %w", err))
			return
		}
	}
	if !w.looking {
		w.asked, w.looking = d.regs.StartGet(w.word[:], 0), true
	}
	for i := range d.slots {
		s := &d.slots[i]
		if state := s.state.Load() & stateMask; (state == pending || state == submitted) && now-s.since.Load() > int64(d.cfg.CommandTime) {
			d.fail(fmt.Errorf("%w: a command was not completed in %v", ErrTimeout, d.cfg.CommandTime))
			return
		}
	}
}

// end has the leader look no more. Where that cannot be had in time the watch stays until the element ends.
func (w *watch) end(ctx context.Context) error {
	err := w.d.cfg.Element.RemovePoller(ctx, w)
	if err != nil && !errors.Is(err, fabric.ErrClosed) {
		return err
	}
	if w.looking {
		w.asked.Forget()
		w.looking = false
	}
	return nil
}
