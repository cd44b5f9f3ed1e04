package fabric

import (
	"encoding/binary"
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
		case now < ep.paused:
		case silent > e.cfg.Limits.PeerTime:
			ep.fail(fmt.Errorf("%w: silent for %v", ErrPeerLost, silent.Round(time.Millisecond)))
		case silent > e.cfg.Limits.PeerTime/3:
			ep.say(framePing, nil)
		}
	}
	return e.keepAlive
}

// MaxPause is how long a peer that said that it would be silent is waited for at most: what it holds here stays held.
const MaxPause = time.Hour

// Pause tells all peers that this element is about to stand still for up to d, as where its process is stopped, so that they do not take it for lost
// meanwhile; 0: it goes on. A peer waits for MaxPause at most; one that does not know of pauses waits for its PeerTime, as ever.
func (e *Element) Pause(d time.Duration) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(max(d, 0).Milliseconds()))
	for _, ep := range e.Endpoints() {
		if ep.peer.hello.features&featurePause != 0 {
			ep.say(framePause, b)
		}
	}
}

// pauses takes the peer's word that it will be silent.
func (ep *Endpoint) pauses(b []byte) error {
	if len(b) != 8 {
		return short(framePause, len(b))
	}
	d := time.Duration(min(binary.LittleEndian.Uint64(b), uint64(MaxPause.Milliseconds()))) * time.Millisecond
	if ep.paused = 0; d > 0 {
		ep.paused = ep.el.Now() + int64(d)
	}
	return nil
}
