package rpc

import (
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// One-way calls. Whoever makes one hears nothing of it, not even that there was no room for it to run. So it is not refused for that:
// the caller has at most exchange.MaxOneWay of them under way, and the callee keeps those that cannot run yet.

// warnEvery is how often a refused one-way call of one peer is written to the log.
const warnEvery = time.Second

// arriveOneWay counts a one-way call that has come; false if its caller has too many under way.
func (c *conn) arriveOneWay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callee.ArriveOneWay()
}

// endOneWay counts one that has ended, and tells the caller now and then.
func (c *conn) endOneWay() {
	c.mu.Lock()
	total, tell := c.callee.EndOneWay()
	c.mu.Unlock()
	if tell {
		c.tellEnded(total)
	}
}

func (c *conn) tellEnded(total uint64) {
	var b [numberBytes]byte
	c.ep.Post(IDEnded, putEnded(&b, total), nil) // which has room until the endpoint's end
}

// onEnded hears how many of our one-way calls have ended.
func (c *conn) onEnded(b []byte) error {
	total, err := decodeEnded(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	possible, wake := c.caller.OneWaysEnded(total), c.waiting > 0
	c.mu.Unlock()
	if !possible {
		return errTooManyEnded
	}
	if wake {
		c.p.el.Wake()
	}
	return nil
}

// warn says that a one-way call will not run, as its caller will not hear it.
func (c *conn) warn(code Code, text string) {
	now, at := c.p.el.CoarseNow(), c.warnAt.Load()
	if at != 0 && now < at || !c.warnAt.CompareAndSwap(at, now+int64(warnEvery)) {
		return
	}
	switch {
	case text != "":
	case code == CodeDeadline:
		text = ErrDeadline.Error()
	case code == CodeNoSuchCall:
		text = ErrNoSuchCall.Error()
	}
	c.p.log.Warn("one-way call refused", "from", c.ep.Name(), "code", int(code), "err", text, "refused", c.p.stats.refused.Load())
}

// park keeps a one-way call until it may run.
func (c *conn) park(k *Call) {
	c.mu.Lock()
	if c.ended != nil { // and the call with it
		c.mu.Unlock()
		return
	}
	c.parked = append(c.parked, k)
	c.p.parked.Add(1)
	c.mu.Unlock()
	c.unpark() // whoever made room meanwhile has not seen it
}

// unpark starts what may run by now, of all peers. They take turns at being the first.
func (p *Peer) unpark() {
	p.mu.RLock()
	waiting := slices.DeleteFunc(slices.Clone(p.order), func(c *conn) bool { return !c.parks() })
	p.mu.RUnlock()
	if n := uint64(len(waiting)); n > 0 {
		first := p.unparks.Add(1)
		for i := range n {
			waiting[(first+i)%n].unpark()
		}
	}
}

func (c *conn) parks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked) > 0
}

// unpark starts what may run by now, and ends what has no time left.
func (c *conn) unpark() {
	for {
		k, code := c.nextParked()
		switch {
		case k == nil:
			return
		case code != codeOK:
			c.refuse(k.request(), code, "")
		default:
			c.fork(k)
		}
	}
}

// nextParked takes out the first one-way call that can go on: it has entered if the code is OK, and is to be refused otherwise.
// It is nil if all have to wait.
func (c *conn) nextParked() (*Call, Code) {
	p, now := c.p, c.p.el.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range c.parked {
		code := codeOK
		if now >= k.deadline {
			code = CodeDeadline
		} else if c.callee.Full() || p.active.Load() >= int64(p.limits.Calls) {
			continue // of those behind it, one may have no time left
		} else if ok, busy := k.m.enter(); busy {
			continue // another call's may run
		} else if !ok {
			code = CodeNoSuchCall
		} else if k.begin() != nil { // another peer's call took the room
			k.m.leave()
			continue
		}
		c.parked = slices.Delete(c.parked, i, i+1)
		c.p.parked.Add(-1)
		return k, code
	}
	return nil, codeOK
}

// request is the head that a call came with, as far as a refusal needs it.
func (k *Call) request() *request {
	r := &request{id: k.id}
	if k.OneWay {
		r.flags |= flagOneWay
	}
	if k.lent {
		r.flags |= flagLent
	}
	return r
}

// errOneWays says that as many one-way calls are under way as may be.
var errOneWays = fmt.Errorf("%w to this peer: of %d one-way calls it has not said that they ended", ErrBusy, exchange.MaxOneWay)

var errTooManyEnded = fmt.Errorf("%w: more one-way calls have ended than were made", ErrWire)
