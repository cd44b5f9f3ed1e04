package fabric

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// tokenMark says which token opened a connection, with which secret, so that it can be asked about again.
type tokenMark struct {
	name   string // "": none did
	secret [sha256.Size]byte
	says   bool // the token names the peer; else its certificate does
}

func markOf(name string, secret []byte, says bool) tokenMark {
	if name == "" {
		return tokenMark{}
	}
	return tokenMark{name, sha256.Sum256(secret), says}
}

// admits reports whether Auth still stands by the token that opened a connection.
func (e *Element) admits(ep *Endpoint) bool {
	m := ep.peer.token
	if m.name == "" {
		return true
	}
	secret, who, ok := e.cfg.Auth.Lookup(m.name)
	if ep.dialled { // with the token that is ours
		var name string
		name, secret = e.cfg.Auth.Self()
		ok = name == m.name
	}
	return ok && markOf(m.name, secret, m.says) == m && (!m.says || who.Caps == ep.peer.principal.Caps)
}

func withdrawn(ep *Endpoint) error {
	return fmt.Errorf("%w: the token %q that opened the connection was withdrawn or changed", ErrPeerLost, ep.peer.token.name)
}

// Readmit asks Auth again about every connection that a token opened. Those whose token is gone, or has another secret or other
// capabilities by now, end. It returns how many have, and the names of their principals. Whoever changes what Auth answers calls it.
func (e *Element) Readmit() (ended int, principals []string) {
	e.readmits.Add(1) // first: a HELLO that goes on asks again at its end
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
