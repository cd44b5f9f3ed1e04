package excache

import (
	"context"
	"errors"
	"time"
)

// discardPages of a room are freed before the store hears of it, in one request: its memory goes back to the machine that lends it.
const discardPages = 256

// discardRanges bounds the ranges of a request. What is left over goes with a later one.
const discardRanges = 512

const (
	// discardTime bounds a request. Until one is answered its pages do not leave; the store drops those before it.
	discardTime = 10 * time.Second
	// discardPause is between attempts.
	discardPause = time.Second
)

// Range is a part of a room, in bytes.
type Range struct{ Off, Size uint64 }

// Discard picks a room of which much was freed that the store has bytes of, and says what of it is to be forgotten. Until Discarded those pages
// do not leave: their new bytes might come before the request. One room is discarded at a time.
func (c *Core) Discard(to []Range) (room int, ranges []Range) {
	t := &c.transfers[Transfers]
	if t.kind != idle {
		return 0, nil
	}
	for room, n := range c.freed {
		if n < discardPages || c.gone[room] || c.forks[room] != 0 {
			continue
		}
		c.freed[room] = 0
		t.first, t.n, t.walk = uint32(room)*roomPages, roomPages, -1
		if to = c.discardRoom(t, to[:0]); len(to) > 0 {
			t.kind = sending
			return room, to
		}
	}
	return 0, nil
}

// discards reports whether the store is asked to forget some of a room.
func (c *Core) discards(room int) bool {
	t := &c.transfers[Transfers]
	return t.kind != idle && t.first == uint32(room)*roomPages
}

func (c *Core) discardRoom(t *transfer, to []Range) []Range {
	for q := t.first; q < t.first+t.n; q++ {
		g := &c.pages[q]
		if g.state != zero || !g.stored || g.transfer != 0 {
			continue
		}
		off := uint64(q-t.first) * PageBytes
		if n := len(to); n > 0 && to[n-1].Off+to[n-1].Size == off {
			to[n-1].Size += PageBytes
		} else if n == discardRanges {
			c.freed[q/roomPages]++
			continue
		} else {
			to = append(to, Range{off, PageBytes})
		}
		g.transfer = Transfers + 1
	}
	return to
}

// Discarded says that the store has forgotten what Discard named.
func (c *Core) Discarded() {
	t := &c.transfers[Transfers]
	for q := t.first; q < t.first+t.n; q++ {
		if g := &c.pages[q]; g.transfer == Transfers+1 {
			g.stored = false
		}
	}
	c.end(Transfers)
}

// discard has the store forget what programs have freed, in the background: a free waits for no answer. c.mu is held.
func (c *Cache) discard() {
	if c.closed {
		return
	}
	room, ranges := c.core.Discard(c.ranges)
	if len(ranges) == 0 {
		return
	}
	s := c.rooms[room].s
	c.serving.Go(func() {
		if !c.forget(s, room, ranges) {
			return
		}
		defer c.config.Store.Wake() // without mu
		c.mu.Lock()
		defer c.mu.Unlock()
		c.core.Discarded()
		c.forgotten.Add(1)
		for _, r := range ranges {
			c.core.Counts.Discarded += r.Size / PageBytes
		}
		c.goOn() // they may leave again
		c.discard()
	})
}

// forget asks the store until it says yes, s gives the room back, or its memory is lost; false: the cache ends.
func (c *Cache) forget(s *session, room int, ranges []Range) bool {
	for {
		ctx, cancel := context.WithTimeout(c.ctx, discardTime)
		err := c.config.Store.Discard(ctx, room, ranges)
		cancel()
		if err == nil || c.ctx.Err() != nil {
			return err == nil
		}
		c.mu.Lock()
		over := c.rooms[room].s != s
		if !over && errors.Is(err, ErrLost) {
			c.lose(&lostError{err})
		}
		over = over || c.lost != nil
		c.mu.Unlock()
		if over {
			return true
		}
		select {
		case <-time.After(discardPause):
		case <-c.ctx.Done():
			return false
		}
	}
}
