package rpc

import (
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// One-way calls. Their callers hear nothing of them, not even that there was no room to run. So it is not refused for that:
// the caller has at most exchange.MaxOneWay of them under way, and the callee queues those that cannot run yet, whatever else it has.

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
	} else if c.p.closed.Load() {
		c.tellRest()
	}
}

// tellRest tells the caller of ends that it has not heard of.
func (c *conn) tellRest() {
	c.mu.Lock()
	total, tell := c.callee.TellRest()
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
		c.oneWays.Wake()
	}
	return nil
}

// warn says that a one-way call will not run, as its caller will not hear it.
func (c *conn) warn(code Code, text string) {
	now, at := c.p.layer.CoarseNow(), c.warnAt.Load()
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

// errOneWays says that as many one-way calls are under way as may be.
var errOneWays = fmt.Errorf("%w to this peer: of %d one-way calls it has not said that they ended", ErrBusy, exchange.MaxOneWay)

var errTooManyEnded = fmt.Errorf("%w: more one-way calls have ended than were made", ErrWire)
