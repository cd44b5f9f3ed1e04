package rpc

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
)

// budget bounds bytes that this element keeps for its peers. Each endpoint has a share of it, which may grow to as much as is left
// free: alone to half of the budget, and beside others to less, so no endpoint can take what the next one needs. A Peer has
// one for each kind of payload that lies in segments until a peer has read it, one for answers that wait until they can, and one for
// answers that come here before anybody waits for them.
type budget struct {
	limit int64
	el    *fabric.Element

	mu    sync.Mutex // a leaf: nothing of ours is locked within
	used  int64
	line  list.List // of *portion: those with waiters, in the order of their turns
	short bool      // the next in line waits for what other endpoints have
}

// portion is what one endpoint has of a budget. The zero value has no budget.
type portion struct {
	b     *budget
	used  int64         // under b.mu
	waits list.List     // of *claim, the first that came in front; under b.mu
	place *list.Element // in b.line; nil without a waiter
}

// claim is one waiter for bytes.
type claim struct {
	n       int64
	waiter  fabric.Waiter
	settled atomic.Bool
	err     error // why there will be none; set before settled
}

func (b *budget) init(el *fabric.Element, limit int64) { b.el, b.limit = el, limit }

// inUse is how much of the budget is taken.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// inUse is how much of it the share is.
func (s *portion) inUse() int64 {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.used
}

// fits reports whether the share may grow by n; b.mu is held.
func (s *portion) fits(n int64) bool { return s.used+n <= s.b.limit-s.b.used }

// take takes n bytes, unless the share or the budget has no room for them, or others have waited for it longer.
func (s *portion) take(n int64) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if !s.fits(n) || s.b.short || s.waits.Len() > 0 {
		return false
	}
	s.add(n)
	return true
}

func (s *portion) add(n int64) {
	s.used += n
	s.b.used += n
}

// give gives n bytes back, and has those go on whose turn it is.
func (s *portion) give(n int64) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.add(-n)
	s.b.serve()
}

// serve gives waiters what there is. Endpoints take turns. One that has all that it may have is passed over;
// one that has nothing keeps others from what it waits for, or small payloads would keep large ones waiting for ever. b.mu is held.
func (b *budget) serve() {
	b.short = false
	for e := b.line.Front(); e != nil; {
		s := e.Value.(*portion)
		first := s.waits.Front()
		c := first.Value.(*claim)
		if !s.fits(c.n) {
			if b.short = s.used == 0; b.short {
				return
			}
			e = e.Next()
			continue
		}
		s.add(c.n)
		b.line.MoveToBack(e)
		s.settle(first, nil)
		e = b.line.Front()
	}
}

// settle ends a wait; b.mu is held.
func (s *portion) settle(e *list.Element, err error) {
	c := s.waits.Remove(e).(*claim)
	if s.waits.Len() == 0 {
		s.b.line.Remove(s.place)
		s.place = nil
	}
	c.err = err
	c.settled.Store(true)
	c.waiter.Wake()
}

// wait takes n bytes when it is their turn. It fails when the context ends, or with the error that fail gives; or gone does, which
// is asked once fail can find the claim. It must not be called on the goroutine that drives the fabric.
func (s *portion) wait(ctx context.Context, n int64, gone func() error) error {
	c := &claim{n: n}
	c.waiter.Init(s.b.el)
	s.b.mu.Lock()
	e := s.waits.PushBack(c)
	if s.place == nil {
		s.place = s.b.line.PushBack(s)
	}
	s.b.serve()
	s.b.mu.Unlock()
	err := gone()
	if err == nil {
		if err = c.waiter.Wait(ctx, c.settled.Load); err != nil {
			err = fmt.Errorf("%w: %w", s.lacks(n), timedOut(err))
		}
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if !c.settled.Load() {
		s.settle(e, err)
		s.b.serve() // it may have been in others' way
	}
	return c.err
}

// fail ends an endpoint's waits.
func (s *portion) fail(err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for s.waits.Len() > 0 {
		s.settle(s.waits.Front(), err)
	}
	s.b.serve()
}

// crowded reports whether the share is half of what it may come to.
func (s *portion) crowded() bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return 2*s.used >= s.b.limit-s.b.used
}

// noRoom says that payloads take up all they may. It is ErrBusy, in other words.
type noRoom struct{ need, used, all, limit int64 }

// lacks says why there is no room for n bytes.
func (s *portion) lacks(n int64) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return &noRoom{n, s.used, s.b.used, s.b.limit}
}

func (e *noRoom) Error() string {
	return fmt.Sprintf("rpc: no room for a payload: it takes %d bytes, where %d that the peer has not read lie here, and %d of all peers; all may take %d (Limits.BulkBytes), and one as much as it leaves to others",
		e.need, e.used, e.all, e.limit)
}

func (e *noRoom) Is(target error) bool { return target == ErrBusy }

func isNoRoom(err error) bool {
	var e *noRoom
	return errors.As(err, &e)
}
