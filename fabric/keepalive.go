package fabric

import (
	"fmt"
	"time"
)

// tick is the element's own duty: keep-alives, and the end of silent peers.
func (e *Element) tick(now int64) int64 {
	if now < e.keepAlive {
		return e.keepAlive
	}
	period := int64(e.cfg.Limits.PeerTime) / 8
	// Time in which this element itself stood still (stopped, or held up by a
	// handler) tells nothing of its peers.
	late := now - e.keepAlive
	if late < period || e.keepAlive == 0 {
		late = 0
	}
	e.keepAlive = now + period
	e.sayRefusals(now)
	e.workers.trim()
	for _, ep := range e.Endpoints() {
		if ep.silentAt != 0 {
			ep.silentAt += late
		}
		if ep.heard != ep.heardThen || ep.silentAt == 0 {
			ep.heardThen, ep.silentAt = ep.heard, now
			continue
		}
		ep.trim()
		silent := time.Duration(now - ep.silentAt)
		switch {
		case silent > e.cfg.Limits.PeerTime:
			ep.fail(fmt.Errorf("%w: silent for %v", ErrPeerLost, silent.Round(time.Millisecond)))
		case silent > e.cfg.Limits.PeerTime/3:
			ep.say(framePing, nil)
		}
	}
	return e.keepAlive
}
