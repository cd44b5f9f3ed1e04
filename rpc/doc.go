/*
Package rpc is calls with bulk data between elements, over the fabric's active
messages and one-sided operations. docs/rpc.md has the protocol.

# Model

A Peer is one element's part in it: it serves the calls that were registered
with it, and calls those of others. A call is one message to the peer and one
back, joined by an id that belongs to the endpoint. A Method gives a name the types of its request and
answer, and codecs for them; underneath, both are bytes.

Call waits for the answer and drives the fabric meanwhile; Start returns a Future to wait
for, select on, cancel or forget; Send is one-way. A call has a deadline,
which travels as time remaining, and can be cancelled: the handler's context ends then. Where there
is no room (the peer's credit, Limits.Outgoing, Limits.BulkBytes), Call and Send wait, and Start fails. Where the peer
runs as many calls as it may, further ones wait there for their turn, within bounds beyond which they are refused (ErrBusy), as are
those that handlers make.

A payload above Limits.EagerBytes is put into a sealed segment, and the other
side fetches it with Get: what is large goes one-sided, and nobody who calls or serves notices. The
segment is free again as soon as it has been read, and is kept for the same peer, within bounds. An answer
that has no room stays with the callee until somebody waits for it, but not longer than to the call's deadline. So
many calls can be started and waited for in any order, whatever their answers come to.

A Bulk is memory that somebody else shall read or write at his own pace: a list of segment
ranges, whose bytes go into a request, an answer, or on to a third. Whoever has it pulls and pushes
any part of it.

# Handlers

A handler runs on a goroutine of its own, where it may wait, call others and take its time. With Options.Inline it
runs on the goroutine that drives the fabric, at once: that saves about a microsecond, and nothing else moves on the element
meanwhile. So an inline handler must be short and must not wait; a call that waits, made with its context, fails with ErrInline. One
that needs another's answer starts the call, calls Detach and replies later. Do not count on inline handlers to exclude each other: a
large request is fetched on a goroutine, and its handler runs there. A handler that panics ends the process, as any goroutine does.

# At most once

A call runs at most once in an incarnation of the callee: numbers already seen are dropped, and nothing is
ever sent twice. If the peer is lost after the request was sent, the call fails at once with
ErrOutcomeUnknown; whether to call again, on the endpoint to the next incarnation, only the caller can know. What must hold
under any network is a pure core, package exchange.

# Ownership

The request given to Call, Start or Send is the caller's again when that returns. A handler's
request, context and Call end with the handler, or with Reply if it called Detach. What it wants to keep of the request it
copies: the peer's next one, small or large, comes into the same memory. (A Method's handler gets what the codec made,
which may be kept.) What it returns is the Peer's until the answer was sent, and may be the request itself. Answers are copied
for whoever waits; CallAppend and WaitAppend copy them into the caller's buffer, and allocate nothing.

# Errors

What a handler returns comes back as a *RemoteError with its code, its text in full,
the peer's name and the call's; errors.Is tells the package's own codes apart (ErrNoSuchCall,
ErrBusy, ErrDeadline, ErrDenied, …). Everything else wraps the fabric's error.

# Interceptors

Config.Callers and Config.Servers see each call begin and end, and may refuse it: Authorize does, by
principal. Package meter counts calls and times them; oteltrace makes spans of them.
*/
package rpc
