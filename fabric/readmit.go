package fabric

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// tokenMark says which token opened a connection, with which secret and capabilities, so that it can be asked about again.
type tokenMark struct {
	name   string // "": none did
	secret [sha256.Size]byte
	caps   uint32
}

func (e *Element) markOf(name string, secret []byte) tokenMark {
	if name == "" {
		return tokenMark{}
	}
	_, who, _ := e.cfg.Auth.Lookup(name)
	return tokenMark{name, sha256.Sum256(secret), who.Caps}
}

// admits reports whether Auth still stands by the token that opened a connection.
func (e *Element) admits(ep *Endpoint) bool {
	m := ep.peer.token
	if m.name == "" {
		return true
	}
	if ep.dialled { // with the token that is ours
		name, secret := e.cfg.Auth.Self()
		return name == m.name && e.markOf(name, secret) == m
	}
	secret, _, ok := e.cfg.Auth.Lookup(m.name)
	return ok && e.markOf(m.name, secret) == m
}

func withdrawn(ep *Endpoint) error {
	return fmt.Errorf("%w: the token %q that opened the connection was withdrawn or changed", ErrPeerLost, ep.peer.token.name)
}

// Readmit asks Auth again about every connection that a token opened. Those whose token is gone, or has another secret or other
// capabilities by now, end. It returns how many have, and the names of their principals. Whoever changes what Auth answers calls it.
func (e *Element) Readmit() (ended int, principals []string) {
	for _, ep := range e.Endpoints() {
		if e.admits(ep) {
			continue
		}
		ep.fail(withdrawn(ep))
		ended++
		if name := ep.peer.principal.Name; !slices.Contains(principals, name) {
			principals = append(principals, name)
		}
	}
	return ended, principals
}
