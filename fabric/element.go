package fabric

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Element is a process on the fabric: it has an incarnation, lends segments,
// handles active messages and holds endpoints to its peers. Its methods may be
// called from any goroutine.
type Element struct {
	cfg         Config
	incarnation Incarnation
	keys        *keyTable
	log         *slog.Logger
	now         func() int64
	start       time.Time // what now counts from, unless Config.Now is set

	handlers [MaxFrameID + 1]atomic.Pointer[handlerEntry]
	returned [FirstReservedID - FirstMessageID]atomic.Pointer[Handler] // by id, from FirstMessageID

	lent        atomic.Int64
	lentMost    atomic.Int64 // Limits.LentBytes, or what SetLentBytes said since
	nextSegment atomic.Uint32
	leader      leader
	workers     workers
	keepAlive   int64 // the leader's: when peers are next looked after
	// writing is held while more than a few bytes are written into lent memory for a peer. Revoke waits for it.
	writing sync.Mutex

	mu        sync.Mutex
	addrs     []string // where peers can dial us
	endpoints map[*Endpoint]struct{}
	opened    map[string]int // by peers, among endpoints, by principal
	adopted   uint64         // endpoints so far
	watchers  []watcher
	closed    bool
	helloing  sync.WaitGroup // accepted connections in HELLO
	readmits  atomic.Uint64  // calls of Readmit
	refusals  refusals

	claims     map[Incarnation]*claim
	idleClaims idleClaims // of them, those without an endpoint
	joins      joins

	// busy holds endpoints with bulk fragments or queued frames to send.
	busyMu sync.Mutex
	busy   []*Endpoint
	spare  []*Endpoint // empty: the memory of busy's next life
	busyN  atomic.Int32
	held   []*Endpoint // that may keep messages back (Hold); under busyMu
	heldN  atomic.Int32

	// What waits for all peers together; see giveUpMost.
	mapped     *atomic.Int64 // bytes of addresses that mappings take, those that have ended included until nothing can be inside any more
	outboxes   atomic.Int64  // bytes in all endpoints' outboxes
	answers    atomic.Int64  // … in their reserved queues
	gaveUp     int           // the leader's: endpoints ended for unread answers since that was logged last
	gaveUpSaid int64         // … before which it is not logged again
}

type handlerEntry struct {
	fn     Handler
	retain bool
	what   string // what the messages are, if they are a layer's of this program
}

// New makes an element; Close ends it.
func New(cfg Config) (*Element, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Limits.defaults()
	cfg.Limits.defaultPrincipal(cfg.Auth != nil)
	e := &Element{cfg: cfg, incarnation: cfg.Incarnation, log: cfg.Log, now: cfg.Now, endpoints: map[*Endpoint]struct{}{}, opened: map[string]int{}, claims: map[Incarnation]*claim{}, mapped: new(atomic.Int64)}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.now == nil {
		e.start = time.Now()
		e.now = func() int64 { return int64(time.Since(e.start)) }
	}
	for e.incarnation == 0 {
		var b [8]byte
		rand.Read(b[:])
		e.incarnation = Incarnation(binary.LittleEndian.Uint64(b[:]))
	}
	e.lentMost.Store(cfg.Limits.LentBytes)
	var err error
	if e.keys, err = newKeyTable(e.incarnation); err != nil {
		return nil, fmt.Errorf("fabric: key table: %w", err)
	}
	if err := e.leader.init(e); err != nil {
		e.keys.gens.CloseFD()
		return nil, err
	}
	return e, nil
}

// Incarnation is this life of the element.
func (e *Element) Incarnation() Incarnation { return e.incarnation }

// Name is what the configuration calls the element.
func (e *Element) Name() string { return e.cfg.Name }

// Now is the element's clock: monotonic nanoseconds from an arbitrary start.
func (e *Element) Now() int64 { return e.now() }

// LentBytes is the memory of all open segments.
func (e *Element) LentBytes() int64 { return e.lent.Load() }

// SetLentBytes changes Limits.LentBytes while the element runs. Segments that are open stay, also beyond it.
func (e *Element) SetLentBytes(n int64) { e.lentMost.Store(n) }

// Limits are the element's, with the defaults filled in.
func (e *Element) Limits() Limits { return e.cfg.Limits }

func (e *Element) lend(n int64) bool {
	if e.lent.Add(n) > e.lentMost.Load() && n > 0 {
		e.lent.Add(-n)
		return false
	}
	return true
}

// SplitAddr cuts "tcp://host:port" into scheme and rest.
func SplitAddr(addr string) (scheme, rest string, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok || scheme == "" || rest == "" {
		return "", "", fmt.Errorf("fabric: %w: %q is not of the form scheme://place, as in tcp://127.0.0.1:7000 or shm:///run/wherry/a.sock", ErrAddress, addr)
	}
	return scheme, rest, nil
}

func (e *Element) transport(addr string) (Transport, string, error) {
	scheme, rest, err := SplitAddr(addr)
	if err != nil {
		return nil, "", err
	}
	for _, t := range e.cfg.Transports {
		if t.Scheme() == scheme {
			return t, rest, nil
		}
	}
	return nil, "", fmt.Errorf("fabric: %s: %w", addr, ErrNoTransport)
}

// Listen accepts peers at addr, and returns the address to dial (with the port
// that was chosen, if it was 0).
func (e *Element) Listen(addr string) (string, error) {
	t, rest, err := e.transport(addr)
	if err != nil {
		return "", err
	}
	bound, err := t.Listen(rest, e.accept)
	if err != nil {
		return "", fmt.Errorf("fabric: listen at %s: %w", addr, err)
	}
	bound = t.Scheme() + "://" + bound
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.addrs) < maxAddrs && len(bound) <= maxTextBytes {
		e.addrs = append(e.addrs, bound)
	}
	return bound, nil
}

// accept runs HELLO with a peer that dialled us, on the transport's goroutine.
func (e *Element) accept(p Pending) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		p.Close()
		return
	}
	e.helloing.Add(1)
	e.mu.Unlock()
	defer e.helloing.Done()
	before := e.readmits.Load()
	info, err := e.helloAsAcceptor(p)
	if err == nil {
		info.admitted = before
		err = e.admit(p, info)
	}
	if err != nil {
		if err != errOther {
			e.refuse(p.RemoteAddr(), err)
		}
		p.Close()
	}
}

// Dial connects to a peer and returns the endpoint to the incarnation that
// answered. If there is an endpoint to that already, by which it shows the same principal, that is returned, whichever side made it, and whatever the
// address: to close it is to close it for all (but see Config.Several). The context bounds all of it, besides Limits.HelloTime.
func (e *Element) Dial(ctx context.Context, addr string) (*Endpoint, error) {
	t, rest, err := e.transport(addr)
	if err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.cfg.Limits.HelloTime)
		defer cancel()
	}
	p, err := t.Dial(ctx, rest)
	if err != nil {
		return nil, fmt.Errorf("fabric: dial %s: %w", addr, err)
	}
	p.SetDeadline(time.Now().Add(e.cfg.Limits.HelloTime))
	stop := context.AfterFunc(ctx, func() { p.SetDeadline(time.Unix(1, 0)) })
	ep, err := e.connect(ctx, p, stop)
	stop()
	if err == nil {
		return ep, nil
	}
	p.Close()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, fmt.Errorf("fabric: dial %s: %w", addr, err)
}

func (e *Element) endpointCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.endpoints)
}

// open makes the endpoint of a connection whose HELLO is done.
func (e *Element) open(p Pending, info *peerInfo, initiator bool) (*Endpoint, error) {
	ep := newEndpoint(e, info, p.RemoteAddr())
	ep.dialled = initiator
	p.SetDeadline(time.Now().Add(e.cfg.Limits.HelloTime))
	// Frames may arrive, at the leader, as soon as the link is started; they
	// wait on ep.mu until the endpoint is whole.
	ep.opening.Lock()
	defer ep.opening.Unlock()
	link, err := p.Start(ep.receiver(), initiator)
	if err != nil {
		return nil, err
	}
	if err := e.adopt(ep, link); err != nil {
		return nil, err
	}
	if e.readmits.Load() != info.admitted && !e.admits(ep) { // its token was withdrawn since HELLO, and Readmit did not find the endpoint
		ep.doom(withdrawn(ep))
	}
	return ep, nil
}

func (e *Element) adopt(ep *Endpoint, link Link) error {
	ep.link = link
	can := link.Features()
	ep.fds, ep.holder = can.FDs, can.Hold
	var err error
	var usurpers []*Endpoint
	e.mu.Lock()
	switch {
	case e.closed:
		err = ErrClosed
	case len(e.endpoints) >= e.cfg.Limits.Endpoints:
		err = fmt.Errorf("fabric: %w endpoints: this element has %d, its limit", ErrTooMany, len(e.endpoints))
	default:
		if !ep.dialled {
			err = e.mayClaim(ep.Incarnation(), ep.peer.principal)
		}
		if err == nil {
			err = e.roomFor(ep)
		}
		if err == nil {
			usurpers = e.claim(ep)
			e.endpoints[ep] = struct{}{}
			e.adopted++
			ep.serial = e.adopted
		}
	}
	e.mu.Unlock()
	if err != nil {
		ep.dead.Store(&PeerError{Peer: ep.String(), Op: "connection", Err: err}) // no caller ever sees it
		link.Close()
		return err
	}
	e.endUsurpers(usurpers, ep) // layers hear of their end first
	ep.tellUp()
	e.leader.kick()
	return nil
}

// watcher is a layer that follows endpoints.
type watcher struct {
	up   func(*Endpoint)
	lost func(*Endpoint, error)
}

// Watch has a layer follow this element's endpoints, as Config.OnPeer and
// OnLost do for whoever made it. It must be called before the element listens or
// dials; of each endpoint lost comes after up. Layers hear of both before OnPeer and OnLost do, so that
// who hears there can use them. The functions must not block.
func (e *Element) Watch(up func(*Endpoint), lost func(*Endpoint, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchers = append(append([]watcher(nil), e.watchers...), watcher{up, lost})
}

func (e *Element) watching() []watcher {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watchers
}

// PeerHello is what HELLO would have said of a peer; see Attach.
type PeerHello struct {
	Name        string
	Incarnation Incarnation
	Principal   Principal
	Limits      Limits
}

// Endpoints lists the live endpoints, oldest first.
func (e *Element) Endpoints() []*Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*Endpoint, 0, len(e.endpoints))
	for ep := range e.endpoints {
		list = append(list, ep)
	}
	slices.SortFunc(list, func(a, b *Endpoint) int { return cmp.Compare(a.serial, b.serial) })
	return list
}

// Addrs are the addresses the element listens at.
func (e *Element) Addrs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.addrs...)
}

// Handle registers the handler of an active message. A message of normal class that has none goes back to its sender (HandleReturned). Handlers run on the
// goroutine that drives progress: they must not block; one that may run long
// calls Message.HandOff first. The message's credit goes back to the sender
// when the handler returns.
func (e *Element) Handle(id FrameID, fn Handler) error { return e.handle(id, fn, false) }

// HandleRetaining is Handle for messages that are kept: their credit goes back
// when Message.Release is called, which must happen exactly once.
func (e *Element) HandleRetaining(id FrameID, fn Handler) error { return e.handle(id, fn, true) }

var errNoHandler = errors.New("fabric: the handler is nil")

func (e *Element) handle(id FrameID, fn Handler, retain bool) error {
	if fn == nil {
		return errNoHandler
	}
	if id < FirstMessageID || id > MaxFrameID {
		return fmt.Errorf("fabric: message id %d: between %d and %d", id, FirstMessageID, MaxFrameID)
	}
	if !e.handlers[id].CompareAndSwap(nil, &handlerEntry{fn: fn, retain: retain}) {
		return fmt.Errorf("fabric: message id %d has a handler already", id)
	}
	return nil
}

// Close ends every endpoint, closes the transports and frees all segments.
// Operations in flight fail with ErrClosed, and so does everything on an endpoint from then on,
// unless its peer's loss was noticed before.
func (e *Element) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	for _, ep := range e.Endpoints() {
		ep.end(ErrClosed)
	}
	e.leader.close()
	var first error
	for _, t := range e.cfg.Transports {
		if err := t.Close(); err != nil && first == nil {
			first = err
		}
	}
	e.helloing.Wait()
	for _, ep := range e.Endpoints() {
		ep.fail(ErrClosed)
	}
	e.keys.close()
	e.workers.close()
	e.leader.closeFDs()
	return first
}
