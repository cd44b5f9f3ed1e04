/*
Package fabric is the four verbs everything else is built from: Put, Get and
Atomic on a peer's memory, and Send, an active message.

# Model

An Element is a process on the fabric. Each life of it has an Incarnation, a
random number: whatever an earlier life gave out is refused. It lends memory as Segments, which lie
outside the Go heap, and gives out Keys to them: unforgeable references to a
range with rights, which can be handed on, narrowed and revoked.

An Endpoint is a connection to one incarnation of a peer. It carries active
messages (a 12-bit id and up to 64 KiB), each handled by the function that the
peer registered for the id, and leads to the peer's memory: Import turns a Key into
a Remote. On the same machine a Remote may be mapped, and its verbs are plain
copies and processor atomics; elsewhere the owner serves them. Programs need not
care, but docs/ordering.md says what differs.

How frames travel is a Transport's affair (fabric/tcp, fabric/shm, or one from
outside the tree, checked by fabric/fabrictest). What they mean is settled here, and
written down in docs/wire.md.

# Ownership

A slice given to Send, Post, Put or Get is the caller's again when the call
returns, for whatever reason it does. A started operation (StartPut, StartGet) owns its slice until Op.Wait
or Op.Forget returns; the first of them ends it, and later ones do nothing (ErrEnded). When a context ends first,
Wait returns only once the buffer is quiet: late data is thrown away, never written.

A message's Body is the fabric's: it is valid until the handler returns or calls
HandOff. A handler registered with HandleRetaining keeps the message's credit, not its body,
until Release.

Segment.Bytes are the owner's and its peers' together, without locks; they must
not be used after Close. Pin keeps them beyond it.

# Progress

Nothing moves by itself: at any time one goroutine, the leader, polls the
transports, runs handlers and serves peers. A goroutine that waits alone (Wait, Flush, a Send
without credit, WaitFor) leads while it does, so that it finds its answer without any wake-up. Where several
wait, or nobody does, the element's one background goroutine leads: each waiter sleeps, and whoever completes what it
waits for wakes it, once (Waiter). The leader lets those run whom it has woken before it polls on, and sleeps
when there is nothing to do. Policy says how long it polls before that.

So handlers run on anybody's goroutine that waits, and while one runs nothing else
moves on its element. A handler must not block. One that would calls
Message.HandOff: another goroutine leads from there on, and the handler may
take its time and use every call of this package. The waiter on whose goroutine it
runs returns after it. Post never blocks and needs no HandOff.

Element.Close waits for whoever leads: do not call it from a handler or callback.
Endpoint.Close may be called from anywhere.

With Config.Manual there is no background goroutine: the caller calls Progress.

# Flow control

Every queue has a bound. Messages of normal ids (below FirstReservedID) use the
credit that the receiver's window gives; Send waits for it, TrySend does not, and Post
keeps a bounded outbox. Messages of reserved ids, for answers, pass when normal credit is used up, so that
two full queues facing each other drain. They have no credit: send no more of
them than you were asked, for a peer that leaves Limits.ReservedBytes unread is given up.

Both queues have a bound for all endpoints together as well. Beyond OutboxBytesInAll a message is queued
only for a peer for whom none waits; beyond ReservedBytesInAll, of the principal for whom most waits, the endpoint with
most is given up. Where an endpoint is idle, what it kept for the next use goes too.

# Errors

Each call ends exactly once, with a result or an error that wraps one of the
sentinels of this package, for errors.Is; a PeerError says at which peer. ErrPeerLost means that the
incarnation is gone: its endpoint is of no use any more, and operations in flight may
have happened. ErrClosed means that this side closed the endpoint, or its element; whichever of the two came
first stays. ErrBackpressure means that nothing was sent: try again later.
ErrProtocol is a peer's fault, and ends its endpoint. A call whose context has no deadline
fails after Limits.OpTime.

# Example

Two elements, usually in two processes; see the package's example for the whole:

	tr, err := tcp.New(tcp.Config{})
	el, err := fabric.New(fabric.Config{Name: "a", Transports: []fabric.Transport{tr}})
	ep, err := el.Dial(ctx, "tcp://10.0.0.2:7000")
	err = ep.Send(ctx, idHello, nil, []byte("ahoy"))
	mem, err := ep.Import(ctx, key)
	err = mem.Put(ctx, data, 0)
*/
package fabric
