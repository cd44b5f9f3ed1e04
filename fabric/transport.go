package fabric

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// This file is the whole contract between the fabric and a transport. A
// transport moves frames; everything that has a meaning (keys, credits,
// operations, HELLO) is the fabric's. A transport from outside the tree
// implements these interfaces and runs the suite in fabric/fabrictest.

// FrameID says what a frame carries. Ids below FirstMessageID are the fabric's
// own; the others are active messages. It has 12 bits on every wire.
type FrameID uint16

const (
	// FirstMessageID is the lowest id an active message can have.
	FirstMessageID FrameID = 64
	// MaxFrameID is the highest id: ids travel in 12 bits.
	MaxFrameID FrameID = 1<<12 - 1

	// MaxFrameBytes bounds one frame's body: a 64 KiB fragment and its header.
	// Whatever is larger is cut into fragments above the transport, so that a
	// small Send never waits for more than one fragment.
	MaxFrameBytes = 64<<10 + 128

	// PlaceHeadBytes is the length of the fixed prefix that a Receiver is shown
	// before it says where the rest of a bulk frame goes.
	PlaceHeadBytes = 16
)

// Class picks the room a frame may take in a transport's queue.
type Class uint8

const (
	// Normal frames may fill a link up to its reserve.
	Normal Class = iota
	// Reserved frames (replies, credits, need-code, cancel) may use all of it:
	// two full queues facing each other can then always drain.
	Reserved
)

// A Transport carries frames between elements. All methods but Dial and Listen
// are called by the element's progress leader only, one at a time.
type Transport interface {
	// Scheme is the transport's name in an address, as in "tcp" of
	// "tcp://127.0.0.1:7000".
	Scheme() string
	// Listen accepts peers at addr (without the scheme) and hands each to
	// accept, on a goroutine of its own, before anything was exchanged. It
	// returns the address as peers should dial it, port filled in.
	Listen(addr string, accept func(Pending)) (bound string, err error)
	// Dial connects to addr. The context bounds connecting only.
	Dial(ctx context.Context, addr string) (Pending, error)
	// A transport's Poll moves what can be moved without blocking: it delivers up to budget
	// arrived frames to their Receivers, flushes what is queued, and reports
	// lost links. It returns how many frames and events it handled. Given Arm, a peer's frame makes WaitFD readable.
	//
	// A Receiver may, from inside a callback, let another goroutine become the
	// leader; that goroutine then calls Poll while this call is still on the
	// stack. So Poll takes a frame off its link before it delivers it, and
	// after every callback asks turn.Over() whether to return at once, touching
	// nothing.
	Poller
	// Features are the same at each call.
	Features() TransportFeatures
	// Close stops listening and closes every link. No callback runs after it.
	Close() error
}

// Turn is one leader's turn at polling. The zero Turn is never over.
type Turn struct {
	term *atomic.Uint64
	mine uint64
}

// NewTurn makes a Turn that is over once term holds anything but mine; tests of
// transports use it.
func NewTurn(term *atomic.Uint64, mine uint64) Turn { return Turn{term, mine} }

// Over reports whether another goroutine has become, or may become, the leader.
func (t Turn) Over() bool { return t.term != nil && t.term.Load() != t.mine }

// TransportFeatures, PendingFeatures and LinkFeatures are what one can do besides what each must: nil is what it cannot. Whoever
// wraps another passes on what it is able to.
type TransportFeatures struct {
	Cork    Corker     // frames leave together
	Recheck func() int // judges the certificates of all connections again, and says how many it has ended
}

// PendingFeatures are described at TransportFeatures.
type PendingFeatures struct {
	Certified Certified // the peer is known without a token
}

// LinkFeatures are described at TransportFeatures.
type LinkFeatures struct {
	FDs  FDCarrier // the peer is on the same machine
	Hold Holder    // small frames can wait for each other
}

// Pending is a connection on which HELLO has not been exchanged yet. The fabric
// runs HELLO over its byte stream, then starts a link or closes it. One
// goroutine uses it.
type Pending interface {
	io.Reader
	io.Writer
	// SetDeadline bounds Read, Write and Start.
	SetDeadline(time.Time) error
	// PeerCred names the peer process where the transport knows it (Unix
	// socket credentials); ok is false elsewhere.
	PeerCred() (cred PeerCred, ok bool)
	// RemoteAddr is for messages to people.
	RemoteAddr() string
	// Features are the same at each call.
	Features() PendingFeatures
	// Start makes the connection a link: frames arrive at r, from Poll, from
	// now on. initiator is true on the side that dialled. Both sides must have
	// finished HELLO: the byte stream holds nothing more of it. Start does not call r.
	Start(r Receiver, initiator bool) (Link, error)
	Close() error
}

// Certified is what Pendings have of a transport that learns by itself who
// is at the other end, as from a certificate.
type Certified interface {
	// SelfCertified reports whether the peer learns that way who we are: then no
	// token is shown to it.
	SelfCertified() bool
	// PeerPrincipal, once something was read, is who the peer is; ok is false if the
	// transport does not know, and a token must say it.
	PeerPrincipal() (who Principal, ok bool)
}

// PeerCred is what the kernel says about the process at the other end.
type PeerCred struct {
	PID, UID, GID int
}

// Link carries frames to one incarnation of a peer: in order, each once, or it
// breaks. Methods may be called from any goroutine and never block.
type Link interface {
	// Send queues one frame, its body being head followed by body (together at
	// most MaxFrameBytes; either may be empty). A lone frame goes out at once. On return both slices are the
	// caller's again. It returns ErrLinkFull, having sent nothing, if the
	// room for class is used up (Receiver.Writable says when to try again), and ErrLinkClosed
	// after the link broke.
	Send(id FrameID, class Class, head, body []byte) error
	// Features are the same at each call.
	Features() LinkFeatures
	// Close closes the link; frames already queued may be lost. The Receiver
	// hears no more, and once Close has returned nothing is written to memory that
	// Place named. It may be called from any goroutine, also from inside a callback, and twice.
	Close() error
}

// Receiver is the fabric's side of a link. All methods are called from
// Transport.Poll, on the leader's goroutine.
type Receiver interface {
	// Frame delivers a frame; body belongs to the transport again when Frame
	// returns. The body is a private copy: no peer can change it meanwhile. An error means
	// that the peer broke the protocol: the transport closes the link and calls Lost with that error.
	Frame(id FrameID, body []byte) error
	// Place is asked about a frame that Wants says carries bulk data, once its
	// first PlaceHeadBytes bytes (head) are there: where shall the
	// remaining n bytes go? The transport then fills dst (len n) and calls Placed. A nil dst
	// discards them. A transport that has the whole body in memory already
	// may call Frame instead.
	Place(id FrameID, head []byte, n int) (dst []byte, err error)
	// Placed says that what Place asked for is filled or discarded.
	Placed(id FrameID, head []byte, n int) error
	// Writable says that a link which returned ErrLinkFull has room again.
	Writable()
	// Lost is the last call: the link is gone, and why.
	Lost(err error)
}

// Corker is what transports have for which each frame costs a system call. They hold frames back while Poll delivers
// others, and between Cork and Uncork, while goroutines run that were woken or started by what was delivered: what they send leaves
// together. Uncork sends what was held back; it is also called before a handler goes on for longer while another goroutine polls.
// Nothing is held back for long where one of those goroutines computes: a transport bounds the time.
type Corker interface {
	Cork()
	Uncork()
}

// Holder is what links have for which each frame costs a system call. After
// Hold(true) small frames may wait, a bounded number of bytes of them, until Hold(false) sends them together;
// nothing is sent later than what comes after it. It never blocks, and may be called from any goroutine.
type Holder interface {
	Hold(on bool)
}

// SendLocker is implemented by Receivers that call Link.Send with a lock of
// theirs held, and no other method of the Link. A transport may take that lock for its own use on the sending side
// instead of another one, which a small frame would notice; then it calls nothing of the Receiver's with it held.
type SendLocker interface {
	SendLock() *sync.Mutex
}

// PlaceGuard is implemented by Receivers who may take memory back that Place named. A transport calls BeginWrite
// before each of its writes there, and EndWrite after it, with nothing between but the write. Where BeginWrite
// is false there is no EndWrite: what is still to come of the frame is discarded, and Placed is called as ever.
type PlaceGuard interface {
	BeginWrite(id FrameID) bool
	EndWrite(id FrameID)
}

// FDCarrier is what links have whose peer is on the same machine: they
// can hand over descriptors, so that a segment is mapped and not copied.
type FDCarrier interface {
	// SendFD hands the peer a duplicate of fd, marked with tag. It never
	// blocks; ErrLinkFull if too many are under way.
	SendFD(tag uint64, fd int) error
	// Left reports whether the link is over, or the peer has closed it, also where no Poll has come to that
	// yet: what the peer did to mapped memory after its Close shows at once. It never blocks.
	Left() bool
	// Wake wakes the peer's leader if it sleeps: what was stored in memory of the peer's before, its pollers see. It never blocks.
	Wake()
}

// FDReceiver is implemented by Receivers of an FDCarrier link.
type FDReceiver interface {
	// FD delivers a descriptor sent with SendFD; the Receiver owns it.
	FD(tag uint64, fd int)
}

// BulkFrame reports whether frames with this id may be placed (Receiver.Place).
func BulkFrame(id FrameID) bool { return id == framePutData || id == frameGetData }
