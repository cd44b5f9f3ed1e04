package fabric

import "fmt"

// What one principal may have of what is there for all: places for endpoints, and
// memory for answers that are not fetched.

// roomFor counts an endpoint that begins, if its principal may have one more; e.mu is held. Only those that the
// peer opened count: this element's own dials are its own affair.
func (e *Element) roomFor(ep *Endpoint) error {
	if ep.dialled {
		return nil
	}
	who := ep.peer.principal.Name
	if e.opened[who] >= e.cfg.Limits.EndpointsPerPrincipal {
		return e.noRoom(who)
	}
	e.opened[who]++
	return nil
}

// roomForPrincipal is what a peer hears in HELLO, once it has proved who it is.
func (e *Element) roomForPrincipal(who string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opened[who] >= e.cfg.Limits.EndpointsPerPrincipal {
		return e.noRoom(who)
	}
	return nil
}

func (e *Element) noRoom(who string) error {
	return fmt.Errorf("%w endpoints: principal %q has opened %d here, the most for one (Limits.EndpointsPerPrincipal): close some, or try again later",
		ErrTooMany, who, e.cfg.Limits.EndpointsPerPrincipal)
}

// forget takes an endpoint that has ended off the lists.
func (e *Element) forget(ep *Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := e.endpoints[ep]; !there {
		return // it was never adopted
	}
	delete(e.endpoints, ep)
	e.leaveClaim(ep)
	if ep.dialled {
		return
	}
	who := ep.peer.principal.Name
	if e.opened[who]--; e.opened[who] == 0 {
		delete(e.opened, who)
	}
}

// giveUpMost ends endpoints until no more answers wait for all peers together than may. Only the leader calls it, which holds
// no endpoint's lock: where one is pushed past the bound, the leader comes here before it polls again.
func (e *Element) giveUpMost() {
	for e.answers.Load() > int64(e.cfg.Limits.ReservedBytesInAll) {
		ep, n := e.leastRead()
		if ep == nil {
			return // they are ending already
		}
		err := fmt.Errorf("%w: it left %d bytes of answers unread, and %d wait for all peers together, the most of them for its principal, where %d may (Limits.ReservedBytesInAll)",
			ErrPeerLost, n, e.answers.Load(), e.cfg.Limits.ReservedBytesInAll)
		e.gaveUp++
		if now := e.now(); now >= e.gaveUpSaid { // a crowd must not be able to fill the log
			e.log.Warn("answers that nobody reads: connection ended", "peer", ep.String(), "principal", ep.peer.principal.Name, "ended", e.gaveUp, "err", err)
			e.gaveUp, e.gaveUpSaid = 0, now+warnEvery
		}
		ep.fail(err)
	}
}

// leastRead is the endpoint with most bytes of answers waiting, of the principal for whom most wait: a crowd of
// connections cannot hide behind another principal's single connection with more than each of them.
func (e *Element) leastRead() (most *Endpoint, bytes int) {
	list := e.Endpoints()
	waiting, of := make([]int, len(list)), map[string]int{}
	for i, ep := range list {
		ep.mu.Lock()
		waiting[i] = ep.reserved.bytes()
		ep.mu.Unlock()
		of[ep.peer.principal.Name] += waiting[i]
	}
	sum := 0
	for i, ep := range list {
		if s := of[ep.peer.principal.Name]; s > sum || s == sum && waiting[i] > bytes {
			most, sum, bytes = ep, s, waiting[i]
		}
	}
	return most, bytes
}

// trim lets go of memory that is there for the next use only. The leader calls it where nothing was heard of the peer
// for a while: what thousands of idle endpoints kept would come to more than all that is under way.
func (ep *Endpoint) trim() {
	ep.mu.Lock()
	ep.outbox.trim()
	ep.reserved.trim()
	if len(ep.bulk) == 0 {
		ep.bulk, ep.bulkFree = nil, nil
	}
	ep.in.trim()
	ep.mu.Unlock()
	ep.ops.trim()
}
