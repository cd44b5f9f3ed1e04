package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// Config describes a client. A zero field means its default, but for Addr.
type Config struct {
	Addr    string        // of the node
	IOBytes int           // a slot, and one read or write; default 256 KiB, at most the node's
	Window  int           // transfers at once ahead of a file's reader, or behind its writer; default 8
	Slots   int           // transfers at once, and chunks kept, of all files; default 64
	Calls   int           // calls under way; default 32
	OpTime  time.Duration // deadline of each call; default 10 s
	Fresh   time.Duration // for how long what was read ahead may be used; default 1 s
}

const (
	maxWindow, maxSlots, maxCalls = 256, 4096, 1024
	// tickTime is how often there is something to look after.
	tickTime = 250 * time.Millisecond
	// redialTime is how long a node that could not be reached is not tried again.
	redialTime = 250 * time.Millisecond
	// maxOpTime bounds OpTime.
	maxOpTime = time.Hour
)

func (c *Config) defaults() {
	for _, p := range [...]struct {
		field *int
		value int
	}{{&c.IOBytes, 256 << 10}, {&c.Window, 8}, {&c.Slots, 64}, {&c.Calls, 32}} {
		if *p.field == 0 {
			*p.field = p.value
		}
	}
	if c.OpTime == 0 {
		c.OpTime = 10 * time.Second
	}
	if c.Fresh == 0 {
		c.Fresh = time.Second
	}
}

// Validate reports what is wrong with a configuration.
func (c Config) Validate() error {
	c.defaults()
	switch {
	case c.IOBytes < 4096 || c.IOBytes > wire.MaxIOBytes || c.IOBytes&(c.IOBytes-1) != 0:
		return fmt.Errorf("remote: IOBytes %d: a power of two between 4096 and %d", c.IOBytes, wire.MaxIOBytes)
	case c.Window < 1 || c.Window > maxWindow || c.Slots < 4 || c.Slots > maxSlots || c.Calls < 1 || c.Calls > maxCalls:
		return fmt.Errorf("remote: Window %d, Slots %d, Calls %d: at least 1, 4 and 1, at most %d, %d and %d", c.Window, c.Slots, c.Calls, maxWindow, maxSlots, maxCalls)
	case c.OpTime < 0 || c.OpTime > maxOpTime || c.Fresh < 0:
		return fmt.Errorf("remote: OpTime %v, Fresh %v: neither can be negative, nor OpTime above %v", c.OpTime, c.Fresh, maxOpTime)
	}
	_, _, err := fabric.SplitAddr(c.Addr)
	return err
}

// Client does I/O at a node. Its methods may be called from any goroutine.
type Client struct {
	cfg   Config
	el    *fabric.Element
	peer  *rpc.Peer
	calls *wire.Calls
	room  chan struct{} // a place for each call under way
	slots chan *slot
	ahead atomic.Int64 // slots that hold what was read ahead

	dialing chan struct{} // holds one: who dials
	current atomic.Pointer[session]
	failed  time.Time // when dialling failed, and why; whoever dials has it
	failure error

	mu     sync.Mutex
	inodes map[inodeKey]*inode
	files  map[*File]struct{}

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

// session is one connection: what a node's handles belong to.
type session struct {
	ep      *fabric.Endpoint
	welcome wire.Welcome
}

// New makes a client on an element, which must not listen or have dialled yet, and
// connects to the node. Close ends it, and is to be called before the element's.
func New(ctx context.Context, el *fabric.Element, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.defaults()
	peer, err := rpc.New(el, rpc.Config{})
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, el: el, peer: peer, calls: wire.NewCalls(), room: make(chan struct{}, cfg.Calls), slots: make(chan *slot, cfg.Slots),
		dialing: make(chan struct{}, 1), inodes: map[inodeKey]*inode{}, files: map[*File]struct{}{}}
	c.life, c.end = context.WithCancel(context.Background())
	for range cfg.Slots {
		c.slots <- &slot{}
	}
	if _, err := c.session(ctx); err != nil {
		c.Close()
		return nil, err
	}
	c.goWork(c.tick)
	return c, nil
}

// Close ends the client: calls under way fail, files are closed at the node. Close
// Files first, to learn what became of the last writes.
func (c *Client) Close() error {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	err := c.peer.Close()
	c.work.Wait()
	if s := c.current.Load(); s != nil {
		s.ep.Close()
	}
	for range c.cfg.Slots {
		select {
		case s := <-c.slots:
			s.retire()
		default: // a chunk that was read ahead holds it; the element's Close frees its segment
		}
	}
	return err
}

// Welcome is what the node said of itself.
func (c *Client) Welcome() wire.Welcome { return c.current.Load().welcome }

// session is the connection that there is, or a new one. While a node cannot be
// reached, most callers are told so at once.
func (c *Client) session(ctx context.Context) (*session, error) {
	if s := c.current.Load(); s != nil && s.ep.Err() == nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.OpTime)
	defer cancel()
	select {
	case c.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.dialing }()
	if s := c.current.Load(); s != nil && s.ep.Err() == nil {
		return s, nil
	}
	if c.life.Err() != nil {
		return nil, fmt.Errorf("remote: %w", fabric.ErrClosed)
	}
	if c.failure != nil && time.Since(c.failed) < redialTime {
		return nil, c.failure
	}
	s, err := c.dial(ctx)
	if err != nil {
		c.failed, c.failure = time.Now(), err
		return nil, err
	}
	c.failure = nil
	c.current.Store(s)
	return s, nil
}

func (c *Client) dial(ctx context.Context) (*session, error) {
	ep, err := c.el.Dial(ctx, c.cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("the node at %s: %w", c.cfg.Addr, err)
	}
	w, err := c.calls.Hello.Call(ctx, c.peer, ep, struct{}{})
	if err == nil && int(w.IOBytes) < c.cfg.IOBytes {
		err = fmt.Errorf("it takes %d bytes at once, and the client is set up for %d: lower IOBytes", w.IOBytes, c.cfg.IOBytes)
	}
	if err != nil {
		ep.Close()
		return nil, fmt.Errorf("the node at %s: %w", c.cfg.Addr, err)
	}
	return &session{ep, w}, nil
}

// call makes a call on a connection: the one that there is, if s is nil. A handle's
// calls are for the connection that it was opened on. What the node cannot run yet waits there for its turn; refusals for want of
// room, here or there, are tried again, as nothing has happened yet.
func call[Req, Resp any](ctx context.Context, c *Client, s *session, m rpc.Method[Req, Resp], req Req) (resp Resp, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.OpTime)
	defer cancel()
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		return resp, wire.Local(context.Cause(ctx))
	}
	now, err := c.session(ctx)
	switch {
	case err != nil:
		return resp, fmt.Errorf("%w: %w", syscall.EIO, err)
	case s == nil:
		s = now
	case s != now:
		return resp, fmt.Errorf("%w: the connection was lost and made again", syscall.ESTALE)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		resp, err = m.Call(ctx, c.peer, s.ep, req)
		if !wire.Transient(err) {
			return resp, wire.Local(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return resp, wire.Local(err)
		}
	}
}

// answered reports whether a call came back with the node's own answer, which wire.Local makes a
// number alone: then the node has let go of the memory that it was told of.
func answered(err error) bool {
	_, number := err.(syscall.Errno)
	return err == nil || number
}

// goWork runs fn on a goroutine that Close waits for; it reports false if the client
// was closed.
func (c *Client) goWork(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		fn()
	}()
	return true
}

// tick renews the lease, sends what was written a while ago, and drops what was read
// ahead and nobody wanted.
func (c *Client) tick() {
	every := time.NewTicker(tickTime)
	defer every.Stop()
	renewed := time.Now()
	for {
		select {
		case <-c.life.Done():
			return
		case now := <-every.C:
			c.sendParts()
			c.dropStale(now)
			s := c.current.Load()
			if s.ep.Err() == nil && now.Sub(renewed) >= min(s.welcome.Lease()/3, c.cfg.OpTime) {
				renewed = now
				// If it fails, so will calls that somebody waits for.
				c.goWork(func() { call(c.life, c, s, c.calls.Renew, struct{}{}) })
			}
		}
	}
}
