package fabric

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Two elements need one connection between them, also where both dial at once. HELLO sees to that before there is an endpoint:
//
//   - A dialler that learns in HELLO that it has an endpoint to that peer gives up its connection and uses the endpoint.
//   - An acceptor that has one names it (helloOther) instead of saying welcome. The dialler uses it. If the dialler has lost it, and
//     the acceptor has not noticed yet, the dialler insists, and the connection is made.
//   - While both dial, the lower incarnation's connection is made: its element has the other dialler wait for the outcome.
//
// Connections by which a peer shows different principals are different ones.

// connID names a connection: both ends make it of the same HELLO.
type connID [16]byte

func connIDOf(dial, accept []byte) (id connID) {
	d, a := sha256.Sum256(dial), sha256.Sum256(accept)
	sum := sha256.Sum256(slices.Concat([]byte("wherry hello 1 connection\x00"), d[:], a[:]))
	copy(id[:], sum[:])
	return id
}

// peerKey is what there is one connection to.
type peerKey struct {
	incarnation Incarnation
	principal   Principal
}

func (p *peerInfo) key() peerKey { return peerKey{p.hello.incarnation, p.principal} }

// joining is a connection whose peer is known and whose endpoint is about to be made, or not.
type joining struct {
	done   atomic.Bool
	waiter Waiter
}

// joins are an element's, by peer: at most one dialled and one accepted each. Under Element.mu.
type joins struct {
	dialled, accepted map[peerKey]*joining
}

// join begins a connection to a peer, after those that decide whether it is needed. It returns the endpoint that there is already, unless
// that is the one which the peer has lost; else leave ends what it began. Where one of the two does not know this decision, or does not want it (Config.Several), all
// connections are made.
func (e *Element) join(ctx context.Context, info *peerInfo, dials bool, lost *Endpoint) (have *Endpoint, leave func(), err error) {
	key := info.key()
	if key.incarnation == e.incarnation || info.hello.features&e.features()&featureOne == 0 {
		return nil, func() {}, nil
	}
	ctx, cancel := (*Layer)(e).Timeout(ctx, e.cfg.Limits.HelloTime, nil)
	defer cancel()
	for {
		e.mu.Lock()
		if have = e.endpointTo(key, lost); have != nil {
			e.mu.Unlock()
			return have, nil, nil
		}
		before := e.joins.accepted[key]
		if before == nil && (dials || e.incarnation < key.incarnation) {
			before = e.joins.dialled[key]
		}
		if before == nil {
			leave = e.begin(key, dials)
			e.mu.Unlock()
			return nil, leave, nil
		}
		e.mu.Unlock()
		if err := before.waiter.Wait(ctx, before.done.Load); err != nil {
			return nil, nil, fmt.Errorf("another connection to %s is being made (Limits.HelloTime): %w", info.hello.name, err)
		}
	}
}

// endpointTo is the newest endpoint to a peer, nil if there is none, or only the one that is lost or older ones; e.mu is held.
func (e *Element) endpointTo(key peerKey, lost *Endpoint) (newest *Endpoint) {
	c := e.claims[key.incarnation]
	if c == nil {
		return nil
	}
	for _, list := range [][]*Endpoint{c.own, c.others} {
		for _, ep := range list {
			if ep.Principal() == key.principal && ep.Err() == nil && (lost == nil || ep.serial > lost.serial) && (newest == nil || ep.serial > newest.serial) {
				newest = ep
			}
		}
	}
	return newest
}

// begin lists a connection; e.mu is held.
func (e *Element) begin(key peerKey, dials bool) (leave func()) {
	j := &joining{}
	j.waiter.Init(e)
	list := &e.joins.accepted
	if dials {
		list = &e.joins.dialled
	}
	if *list == nil {
		*list = map[peerKey]*joining{}
	}
	(*list)[key] = j
	return func() {
		e.mu.Lock()
		delete(*list, key)
		e.mu.Unlock()
		j.done.Store(true)
		j.waiter.Wake()
	}
}

// named is the endpoint of the connection that an acceptor has named, nil if this element has none of it: then it has lost it, or it is
// another principal's that shows this incarnation. One that the peer has dialled may not be listed yet: it is waited for.
func (e *Element) named(ctx context.Context, key peerKey, id connID) (*Endpoint, error) {
	ctx, cancel := (*Layer)(e).Timeout(ctx, e.cfg.Limits.HelloTime, nil)
	defer cancel()
	for {
		e.mu.Lock()
		ep, accepted := e.endpointTo(key, nil), e.joins.accepted[key]
		e.mu.Unlock()
		if ep != nil && ep.peer.id == id {
			return ep, nil
		}
		if accepted == nil {
			return nil, nil
		}
		if err := accepted.waiter.Wait(ctx, accepted.done.Load); err != nil {
			return nil, err
		}
	}
}

// mostNamed bounds how many connections one dialler hears of. Another one can be made while it says that it has lost the first.
const mostNamed = 4

// errOther says that a dialler uses another connection: no error.
var errOther = errors.New("another connection is used")

// connect runs HELLO on a connection that this element has opened, and makes its endpoint, unless there is one. stop ends what
// else sets the connection's deadlines, and says whether it had not begun to.
func (e *Element) connect(ctx context.Context, p Pending, stop func() bool) (*Endpoint, error) {
	before := e.readmits.Load()
	info, answer, err := e.helloAsDialler(p)
	if err != nil {
		return nil, err
	}
	info.admitted = before
	have, leave, err := e.join(ctx, info, true, nil)
	if err != nil {
		return nil, err
	}
	if have != nil {
		_ = writeHello(p, []byte{byte(helloOther)}) // else its end says it
		p.Close()
		return have, nil
	}
	defer leave()
	last, err := say(p, answer)
	for err == nil && helloKind(last[0]) == helloOther && len(last) == 1+len(connID{}) {
		if have, err = e.named(ctx, info.key(), connID(last[1:])); have != nil {
			p.Close()
			return have, nil
		}
		if err == nil {
			last, err = say(p, []byte{byte(helloInsist)})
		}
	}
	switch {
	case err != nil:
		return nil, err
	case helloKind(last[0]) != helloWelcome:
		return nil, errHello
	}
	if !stop() { // nothing may touch the connection's deadlines beside open
		return nil, context.Cause(ctx)
	}
	return e.open(p, info, true)
}

// say sends an acceptor a message, and returns its answer. A refusal is an error.
func say(p Pending, msg []byte) (answer []byte, err error) {
	if err = writeHello(p, msg); err == nil {
		answer, err = readHello(p)
	}
	if err != nil {
		return nil, fmt.Errorf("HELLO with %s broke off: %w", p.RemoteAddr(), err)
	}
	return answer, refusal(answer)
}

// admit makes the endpoint of a peer that has dialled and proved who it is, unless it is to use another one. A refusal
// tells the peer why.
func (e *Element) admit(p Pending, info *peerInfo) error {
	leave, err := e.joinAccepted(p, info)
	if err == errOther {
		return err
	}
	if err == nil {
		defer leave()
		if err = e.roomForPrincipal(info.principal.Name); err == nil {
			if err = writeHello(p, []byte{byte(helloWelcome)}); err == nil {
				_, err = e.open(p, info, false)
			}
			return err
		}
	}
	writeRefusal(p, err)
	return err
}

// joinAccepted is join for a connection that was accepted: a peer that there is an endpoint to hears which.
func (e *Element) joinAccepted(p Pending, info *peerInfo) (leave func(), err error) {
	if err := e.mayClaimInHello(info); err != nil {
		return nil, err
	}
	var lost *Endpoint
	for range mostNamed {
		have, leave, err := e.join(context.Background(), info, false, lost)
		if have == nil || err != nil {
			return leave, err
		}
		answer, err := say(p, append([]byte{byte(helloOther)}, have.peer.id[:]...))
		if err != nil || helloKind(answer[0]) != helloInsist {
			return nil, errOther
		}
		lost = have
	}
	return nil, fmt.Errorf("%s has lost %d connections, one after the other, while it dialled this one: it may dial again", info.hello.name, mostNamed)
}
