package exchange

import (
	"fmt"

	"github.com/wherry-fabric/wherry/internal/invariants"
)

// ID names a request on one endpoint: 48 bits of number, from 1, and 16 of slot.
type ID uint64

const (
	slotBits = 16
	// NoSlot is the slot of a request that has no answer.
	NoSlot = 1<<slotBits - 1
	// MaxCalls bounds the calls that can be under way on one endpoint. The
	// callee remembers gaps between numbers (maxSeenRanges), and there can be no more than that.
	MaxCalls = maxSeenRanges - 1
	// MaxNumber is the last number: at two million calls a second it comes after four years.
	MaxNumber = 1<<(64-slotBits) - 1
)

// NewID joins a number and a slot.
func NewID(number uint64, slot int) ID { return ID(number<<slotBits | uint64(slot)&NoSlot) }

// Number is the request's number.
func (id ID) Number() uint64 { return uint64(id) >> slotBits }

// Slot is where the caller keeps its record.
func (id ID) Slot() int { return int(id & NoSlot) }

func (id ID) String() string { return fmt.Sprintf("%d.%d", id.Number(), id.Slot()) }

type slotState uint8

const (
	slotFree slotState = iota
	slotWaiting
	slotAnswered // or ended otherwise; its record is still in use
)

type slot struct {
	id       ID
	deadline int64 // 0: the waiter's own affair
	state    slotState
}

// Caller is the book of our calls on one endpoint.
type Caller struct {
	limit   int
	next    uint64
	low     uint64 // no lower number is waiting
	lowAt   uint64 // next when low was found
	slots   []slot
	free    []uint16
	soonest int64 // no deadline is before it; 0: there is none

	sent, ended uint64 // one-way requests: given a number; of them, known to have ended at the callee
}

// MaxOneWay is how many one-way requests may be under way on one endpoint: those that were sent and of whose end the
// callee has not told. No caller would hear of a refusal, so the callee takes as many, whatever else it does.
const MaxOneWay = 64

// lowEvery is how many numbers go by before the lowest is looked for again: the
// search is over all slots, so it must be rare.
const lowEvery = 1024

// NewCaller makes a book for at most limit calls at once.
func NewCaller(limit int) Caller {
	return Caller{limit: max(1, min(limit, MaxCalls)), next: 1, low: 1, lowAt: 1}
}

// Begin takes a slot and the next number; false if there are limit calls
// already. The request must then be sent before anything else is, or undone.
func (c *Caller) Begin(deadline int64) (ID, bool) {
	if c.next > MaxNumber {
		return 0, false
	}
	if len(c.free) == 0 {
		if len(c.slots) >= c.limit {
			return 0, false
		}
		c.slots = append(c.slots, slot{})
		c.free = append(c.free, uint16(len(c.slots)-1))
	}
	s := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	id := NewID(c.next, int(s))
	c.next++
	c.slots[s] = slot{id, deadline, slotWaiting}
	if deadline != 0 && (c.soonest == 0 || deadline < c.soonest) {
		c.soonest = deadline
	}
	return id, true
}

// OneWay takes the next number for a request without an answer; false if MaxOneWay of them are under way.
func (c *Caller) OneWay() (ID, bool) {
	if c.next > MaxNumber || c.sent-c.ended >= MaxOneWay {
		return 0, false
	}
	c.next++
	c.sent++
	return NewID(c.next-1, NoSlot), true
}

// Undo takes back the number that was given last: its request could not be sent.
func (c *Caller) Undo(id ID) {
	if invariants.Enabled && id.Number() != c.next-1 {
		panic("exchange: a number that was not the last is taken back")
	}
	c.next--
	if id.Slot() == NoSlot {
		c.sent--
	} else {
		c.release(id)
	}
}

// OneWaysEnded takes the callee's word that as many one-way requests as total have ended, of all that were sent. It reports
// whether that can be. An earlier word that comes late changes nothing.
func (c *Caller) OneWaysEnded(total uint64) bool {
	if total > c.sent {
		return false
	}
	c.ended = max(c.ended, total)
	return true
}

// OneWayReturned takes the word that a one-way request came back, because that element serves no calls: it counts as if it had not been
// sent, for the callee will not count it either. It reports whether that can be.
func (c *Caller) OneWayReturned() bool {
	if c.sent == c.ended {
		return false
	}
	c.sent--
	return true
}

func (c *Caller) release(id ID) {
	s := id.Slot()
	c.slots[s] = slot{}
	c.free = append(c.free, uint16(s))
}

// Low is a number below which no request is waiting for its answer, for the callee to forget
// what is below: at most the number that was given last. It may lag behind.
func (c *Caller) Low() uint64 {
	if c.next-c.lowAt >= lowEvery {
		c.lowAt, c.low = c.next, c.next-1 // the number that was given last may be that of a one-way request, which has no slot
		for _, s := range c.slots {
			if s.state == slotWaiting {
				c.low = min(c.low, s.id.Number())
			}
		}
	}
	return c.low
}

func (c *Caller) find(id ID) *slot {
	if s := id.Slot(); s < len(c.slots) && c.slots[s].id == id && c.slots[s].state != slotFree {
		return &c.slots[s]
	}
	return nil
}

// Answer ends a call's wait; false if it has ended before, or never was.
func (c *Caller) Answer(id ID) bool {
	s := c.find(id)
	if s == nil || s.state != slotWaiting {
		return false
	}
	s.state = slotAnswered
	return true
}

// Waiting reports whether a call has no answer yet.
func (c *Caller) Waiting(id ID) bool {
	s := c.find(id)
	return s != nil && s.state == slotWaiting
}

// End frees a call's slot. It reports whether the call was still waiting: then
// the callee should hear that the answer is no longer wanted.
func (c *Caller) End(id ID) (waited bool) {
	s := c.find(id)
	if s == nil {
		return false
	}
	waited = s.state == slotWaiting
	c.release(id)
	return waited
}

// Live is the number of slots in use.
func (c *Caller) Live() int { return len(c.slots) - len(c.free) }

// OneWays is the number of one-way requests of whose end the callee has not told.
func (c *Caller) OneWays() uint64 { return c.sent - c.ended }

// Soonest is no later than the first deadline; 0 if there is none.
func (c *Caller) Soonest() int64 { return c.soonest }

// Due reports whether Expire has something to do.
func (c *Caller) Due(now int64) bool { return c.soonest != 0 && c.soonest <= now }

// Expire ends the wait of calls whose deadline has come, and tells fn of each.
func (c *Caller) Expire(now int64, fn func(ID)) {
	if !c.Due(now) {
		return
	}
	c.soonest = 0
	for i := range c.slots {
		s := &c.slots[i]
		switch {
		case s.state != slotWaiting || s.deadline == 0:
		case s.deadline <= now:
			s.state = slotAnswered
			fn(s.id)
		case c.soonest == 0 || s.deadline < c.soonest:
			c.soonest = s.deadline
		}
	}
}

// Drop ends all waits, because the endpoint has ended, and tells fn of each.
func (c *Caller) Drop(fn func(ID)) {
	for i := range c.slots {
		if s := &c.slots[i]; s.state == slotWaiting {
			s.state = slotAnswered
			fn(s.id)
		}
	}
}
