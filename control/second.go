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
	// restEvery is how long after a look at a connection that is not needed the next one comes. At the second on end that
	// finds nothing under way it is closed, so nothing was for so long.
	restEvery = 500 * time.Millisecond
	// restTime bounds each such look, at which the peer is asked.
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
	if later && !l.resting[ep] { // or it has become a spare again before that was noticed
		l.resting[ep] = true
		l.work.Go(func() { l.rest(k, ep) })
	}
}

// later reports whether this element comes after a member by name.
func (l *Links) later(k *link) bool { return l.cfg.Element.Name() > k.member.Name }

// rest closes an endpoint that is not needed as soon as nothing is under way on it, so that nobody loses anything,
// unless the one that is used instead is lost before. Where the peer refuses to say what it has under way, as an older program or
// one to which this node is no member, the endpoint stays.
func (l *Links) rest(k *link, spare *fabric.Endpoint) {
	var quiet, refused *fabric.Endpoint // what was used instead when nothing was under way, and when the peer refused
	for {
		other, on := l.instead(k, spare, refused)
		if !on {
			return
		}
		busy, err := l.look(spare, other)
		switch {
		case err != nil:
			l.cfg.Log.Info("a second connection to a peer stays open: the peer does not say whether it needs it", "peer", spare.String(), "err", err)
			refused = other
			continue
		case !busy && quiet == other && l.uses(k, other):
			spare.Close()
			continue
		case busy:
			quiet = nil
		default:
			quiet = other
		}
		select {
		case <-time.After(restEvery): // from the end of a look on, however long that took
		case <-l.ctx.Done():
			return
		}
	}
}

// instead is the endpoint that is used instead of a spare, nil if there is none now. The spare's rest ends, and on is false, where it
// has ended or is used itself, or stays beside the one at which the peer refused.
func (l *Links) instead(k *link, spare, refused *fabric.Endpoint) (other *fabric.Endpoint, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	other = k.ep
	if !alive(spare) || other == spare || other != nil && (other == refused || other.Incarnation() != spare.Incarnation()) {
		delete(l.resting, spare)
		return nil, false
	}
	return other, true
}

// uses reports whether an endpoint is the one in use, and alive.
func (l *Links) uses(k *link, ep *fabric.Endpoint) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.ep == ep && alive(ep)
}

// look has a spare used no more and reports whether anything is under way on it. Its error is the peer's refusal to say so.
func (l *Links) look(spare, other *fabric.Endpoint) (busy bool, err error) {
	if !alive(other) {
		return true, nil // which one is used next shows soon
	}
	if l.cfg.Spare == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, restTime)
	defer cancel()
	return l.cfg.Spare(ctx, spare, other)
}
