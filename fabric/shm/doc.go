// Package shm carries frames between processes of one machine through shared
// memory. Addresses are paths of Unix sockets ("/run/user/0/a.sock") or, with
// a leading "@", names in the abstract namespace.
//
// # Model
//
// The socket is for meeting: HELLO runs over it, Start passes the memory over
// it, its end says that the peer is gone. Frames never touch it. A link is one
// memfd with a ring for each direction: 64-byte slots, each published by one
// atomic store of (sequence, id, length), and beside them a ring of bytes for
// bodies above 56 bytes. So no body can be taken for a sequence, and a peer that
// dies between writing a body and publishing it leaves nothing behind.
//
// A few rings, those with traffic, are polled. For all others the producer sets
// a bit in the consumer's board (one per element and user) and, only if that
// element sleeps, writes its eventfd: thousands of quiet links cost nothing.
// docs/shm.md has the offsets and the order of every store that matters.
//
// # Ownership
//
// Poll, Arm, Disarm and Close belong to the progress leader. Send, SendFD and
// Link.Close may be called from anywhere: a mutex per link guards its producer
// side. The consumer's side is the leader's alone, and only the leader unmaps.
//
// # Trust
//
// Whatever a peer can write is copied once, then checked; counters are kept
// privately and compared, never taken over. Garbage breaks the peer's own link
// (ErrProtocol). Boards and doorbells are shared by peers of one user
// only, because a process can stop others of its user anyway. One thing the kernel
// leaves open: a doorbell's O_NONBLOCK is common to all who hold it, so a hostile
// peer can hold up whoever rings it. That is why sockets have mode 0600 unless
// Config says otherwise.
//
// # Errors
//
// Lost gets an error that wraps ErrPeerGone (the process ended), ErrPeerClosed
// (it closed the link) or ErrProtocol (it broke the rules), or the error that
// Receiver.Frame returned.
package shm
