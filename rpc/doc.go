// Package rpc is request and response between elements, over the fabric's
// active messages.
//
// # Model
//
// A Peer is one element's part in it: it serves the calls that were registered
// with it, and calls those of others. A call is one message to the peer and one
// back, joined by a number that belongs to the endpoint. Small payloads
// travel in the messages (Limits.EagerBytes); a larger one is put into a
// sealed segment that lives as long as the call, and the other side fetches it
// with Get: what is large goes one-sided, and never through anybody's queue.
//
// A call has a deadline, which travels as time remaining, and can be cancelled:
// the handler's context ends then. It runs at most once in an incarnation of the
// callee: numbers already seen are dropped, and nothing is ever sent twice. If the peer is
// lost meanwhile, the call fails at once with fabric.ErrPeerLost, and may
// or may not have happened.
//
// # Ownership
//
// Handlers run on goroutines of their own, at most Limits.Calls at once; the
// goroutine that drives the fabric never waits for one. A handler owns its
// request, and gives its answer away. The request of Call is the
// caller's again when Call returns.
//
// # Errors
//
// What a handler returns comes back as a *RemoteError with its code, its text
// and the peer's name; errors.Is tells the package's own codes apart (ErrNoSuchCall,
// ErrBusy, ErrDeadline, …). Everything else is the fabric's error.
package rpc
