package control

import (
	"context"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// yieldTime is how long the later of two nodes (by name) waits for the earlier one to dial, so that two that
	// start together, or lose their connection, make one.
	yieldTime = 200 * time.Millisecond
	// restEvery is how often it is asked whether a connection that is not needed is in use, and how long it must not have been.
	restEvery = 500 * time.Millisecond
	// restTime bounds each such question.
	restTime = 2 * time.Second
)

// yield has the later of two nodes wait for the earlier one's connection.
func (l *Links) yield(k *link) {
	if l.cfg.Nodes && l.later(k) {
		l.pause(k, yieldTime)
	}
}

// second takes an endpoint to an incarnation that has one: one is enough. Where both nodes have dialled, that of
// the earlier one by name stays: both see that alike. The later one's is used no more, and it closes it. mu is held.
func (l *Links) second(k *link, ep *fabric.Endpoint) {
	if !l.cfg.Nodes || l.closed || ep == k.ep || ep.Dialled() == k.ep.Dialled() || ep.Principal() != k.ep.Principal() {
		return
	}
	later := l.later(k)
	if ep.Dialled() != later {
		k.ep, ep = ep, k.ep
		l.changed()
	}
	if later {
		l.work.Go(func() { l.rest(k, ep) })
	}
}

// later reports whether this element comes after a member by name.
func (l *Links) later(k *link) bool { return l.cfg.Element.Name() > k.member.Name }

// rest closes an endpoint that is not needed as soon as nothing is under way on it, so that nobody loses anything,
// unless the one that is used instead is lost before.
func (l *Links) rest(k *link, spare *fabric.Endpoint) {
	tick := time.NewTicker(restEvery)
	defer tick.Stop()
	for quiet := false; ; {
		l.mu.Lock()
		other := k.ep
		l.mu.Unlock()
		if !alive(spare) || other == spare || other != nil && other.Incarnation() != spare.Incarnation() {
			return
		}
		busy := !alive(other) // which one is used next shows soon
		if !busy && l.cfg.Spare != nil {
			ctx, cancel := context.WithTimeout(l.ctx, restTime)
			busy = l.cfg.Spare(ctx, spare, other)
			cancel()
		}
		if quiet && !busy {
			spare.Close()
			return
		}
		quiet = !busy
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
	}
}
