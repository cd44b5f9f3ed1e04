package fabric

import (
	"errors"
	"fmt"
)

// Sentinels to branch on with errors.Is. Where data belongs to an error, a
// typed error wraps the sentinel.
var (
	// ErrPeerLost: the peer's incarnation is gone (process died, link broke,
	// or it was silent too long). What was in flight may have happened.
	ErrPeerLost = errors.New("peer lost")
	// ErrBackpressure: a bounded queue is full; nothing was sent.
	ErrBackpressure = errors.New("no credit: the peer's queue is full")
	// ErrRevoked: the key was revoked, or its segment closed.
	ErrRevoked = errors.New("key revoked")
	// ErrIncarnation: the key was made by another incarnation of its owner.
	ErrIncarnation = errors.New("key is of another incarnation")
	// ErrKey: no such key at its owner, or a wrong secret.
	ErrKey = errors.New("no such key")
	// ErrRights: the key does not allow this operation.
	ErrRights = errors.New("key lacks the right")
	// ErrRange: the operation leaves the key's range.
	ErrRange = errors.New("outside the key's range")
	// ErrNoWide: an element whose processor, or version, cannot swap 16 bytes at once.
	ErrNoWide = errors.New("no compare-and-swap of 16 bytes: the processor, or the peer's version, cannot do it; use 8 bytes, or a lock")
	// ErrAlign: an atomic's address is not a multiple of its width.
	ErrAlign = errors.New("atomic is not aligned")
	// ErrTooLarge: a message is larger than an active message may be.
	ErrTooLarge = errors.New("message too large")
	// ErrClosed: this element or endpoint was closed here.
	ErrClosed = errors.New("closed")
	// ErrRefused: the peer refused HELLO.
	ErrRefused = errors.New("refused")
	// ErrTaken: the peer refused HELLO because this element's incarnation is another principal's there. Another start has
	// another incarnation.
	ErrTaken = fmt.Errorf("%w: incarnation taken", ErrRefused)
	// ErrProtocol: the peer sent what it must not.
	ErrProtocol = errors.New("protocol violation")
	// ErrAddress: no transport can listen at or dial such an address.
	ErrAddress = errors.New("bad address")
	// ErrNoTransport: no transport for an address's scheme.
	ErrNoTransport = errors.New("no transport for this address")
	// ErrEnded: an Op or Importing was waited for already, or forgotten.
	ErrEnded = errors.New("fabric: this operation was waited for or forgotten before")
	// ErrBacking: what a segment lies in (a device, a file) failed to read or write; the owner's log has the cause.
	ErrBacking = errors.New("the owner could not reach the segment's bytes")
	// ErrTooMany: a table of this element or of the peer is full.
	ErrTooMany = errors.New("too many")
)

// PeerError is an operation's failure at, or by the loss of, a peer.
type PeerError struct {
	Peer string // the peer's name and incarnation
	Op   string // what was tried: "get", "send", …
	Err  error  // wraps one of the sentinels
}

func (e *PeerError) Error() string { return fmt.Sprintf("fabric: %s at %s: %v", e.Op, e.Peer, e.Err) }

func (e *PeerError) Unwrap() error { return e.Err }

// wire status codes of one-sided operations, and the errors they stand for.
type status uint32

const (
	statusOK status = iota
	statusRevoked
	statusIncarnation
	statusKey
	statusRights
	statusRange
	statusAlign
	statusTooMany
	statusProtocol
	statusPeerKeys
	statusBacking
)

var statusErrors = [...]error{nil, ErrRevoked, ErrIncarnation, ErrKey, ErrRights, ErrRange, ErrAlign, ErrTooMany, ErrProtocol,
	fmt.Errorf("%w keys narrowed by this peer: have the owner revoke some, or narrow at the owner (Element.Narrow)", ErrTooMany), ErrBacking}

func (s status) err() error {
	if int(s) < len(statusErrors) {
		return statusErrors[s]
	}
	return fmt.Errorf("%w: unknown status %d", ErrProtocol, s)
}
