package ionode

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// Limits bound what a node keeps. A zero field means its default.
type Limits struct {
	IOBytes          int           // one read or write; default and most wire.MaxIOBytes
	Buffers          int           // of IOBytes each, for reads and writes under way; default 32
	BuffersPerClient int           // of them, for one connection; default a quarter of them, so that a client that stands still does not stop others
	Calls            int           // under way, of all clients; further ones wait their turn, as many of a client as rpc.Limits.Queued has by default; default 256
	CallsPerClient   int           // of them, for one connection; default 64
	Handles          int           // open at once; default 4096
	HandlesPerClient int           // default 1024
	Lease            time.Duration // of a client that makes no call; default 30 s
	CallTime         time.Duration // the longest that a call may run; default 1 min
}

func fill[T int | time.Duration](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

func (l *Limits) defaults() {
	fill(&l.IOBytes, wire.MaxIOBytes)
	fill(&l.Buffers, 32)
	fill(&l.BuffersPerClient, max(l.Buffers/4, 1))
	fill(&l.Calls, 256)
	fill(&l.CallsPerClient, 64)
	fill(&l.Handles, 4096)
	fill(&l.HandlesPerClient, 1024)
	fill(&l.Lease, 30*time.Second)
	fill(&l.CallTime, time.Minute)
}

// Validate reports what is wrong with limits.
func (l Limits) Validate() error {
	l.defaults()
	switch {
	case l.IOBytes < 4096 || l.IOBytes > wire.MaxIOBytes:
		return fmt.Errorf("ionode: IOBytes %d: between 4096 and %d", l.IOBytes, wire.MaxIOBytes)
	case l.Buffers < 1 || l.Calls < 1 || l.CallsPerClient < 2 || l.Handles < 1 || l.HandlesPerClient < 1:
		return fmt.Errorf("ionode: Buffers %d, Calls %d, CallsPerClient %d, Handles %d, HandlesPerClient %d: at least 1 each, and CallsPerClient 2",
			l.Buffers, l.Calls, l.CallsPerClient, l.Handles, l.HandlesPerClient)
	case l.BuffersPerClient < 1 || l.BuffersPerClient > l.Buffers:
		return fmt.Errorf("ionode: BuffersPerClient %d: between 1 and Buffers (%d)", l.BuffersPerClient, l.Buffers)
	case l.Lease < wire.MinLease || l.Lease > wire.MaxLease:
		return fmt.Errorf("ionode: Lease %v: between %v and %v", l.Lease, wire.MinLease, wire.MaxLease)
	case l.CallTime < 0:
		return fmt.Errorf("ionode: CallTime %v: it cannot be negative", l.CallTime)
	}
	return nil
}

// Config describes a node.
type Config struct {
	Dir      string // the directory that is served
	ReadOnly bool   // whatever would change something is refused (EROFS)
	// Open lets everybody do everything who may connect to the element. Without it a
	// principal needs the capabilities read and write.
	Open   bool
	Limits Limits
	Log    *slog.Logger // nil: silent
}

// Stats are a node's counters and levels.
type Stats struct {
	Clients, Handles      int
	ReadBytes, WroteBytes uint64
	Moving, MostMoving    int64  // reads and writes under way: now, and at most so far
	Expired               uint64 // leases that ran out with handles open
}

// Node serves a directory. Its methods may be called from any goroutine.
type Node struct {
	cfg   Config
	root  *os.Root
	peer  *rpc.Peer
	calls *wire.Calls
	bufs  chan []byte // nil where a buffer was not needed yet

	mu      sync.Mutex
	clients map[*fabric.Endpoint]*client
	open    int
	doomed  []*os.File // to be closed by the sweeper

	kick   chan struct{}
	stop   chan struct{}
	swept  sync.WaitGroup
	closed atomic.Bool

	read, wrote, expired atomic.Uint64
	moving, most         atomic.Int64
}

// New makes an element serve a directory. It must be called before the element
// listens. Close ends the Node, and is to be called before the element's.
func New(el *fabric.Element, cfg Config) (*Node, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	cfg.Limits.defaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("ionode: the directory to serve: %w", err)
	}
	n := &Node{cfg: cfg, root: root, calls: wire.NewCalls(), bufs: make(chan []byte, cfg.Limits.Buffers),
		clients: map[*fabric.Endpoint]*client{}, kick: make(chan struct{}, 1), stop: make(chan struct{})}
	for range cfg.Limits.Buffers {
		n.bufs <- nil
	}
	rc := rpc.Config{Log: cfg.Log, Limits: rpc.Limits{Calls: cfg.Limits.Calls, CallsPerPeer: cfg.Limits.CallsPerClient, MaxTime: cfg.Limits.CallTime}}
	if !cfg.Open {
		rc.Servers = append(rc.Servers, rpc.Authorize(n.allow))
	}
	if n.peer, err = rpc.New(el, rc); err != nil {
		root.Close()
		return nil, err
	}
	el.Watch(n.arrived, n.lost)
	if err := n.register(); err != nil {
		n.peer.Close()
		root.Close()
		return nil, err
	}
	n.swept.Add(1)
	go n.sweep()
	return n, nil
}

// changing are the calls that need the capability write. Open, which may need either,
// looks for itself.
func (n *Node) changing(call string) bool {
	c := n.calls
	switch call {
	case c.Write.Name(), c.Remove.Name(), c.Mkdir.Name(), c.Rename.Name(), c.Set.Name():
		return true
	}
	return false
}

func (n *Node) allow(who fabric.Principal, call string) error {
	need := cluster.CapRead
	if n.changing(call) {
		need = cluster.CapWrite
	}
	if !cluster.Caps(who.Caps).Has(need) {
		return fmt.Errorf("%s needs the capability %v, which %s has not", call, need, who.Name)
	}
	return nil
}

// Stats returns what has happened so far.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Stats{Clients: len(n.clients), Handles: n.open, ReadBytes: n.read.Load(), WroteBytes: n.wrote.Load(),
		Moving: n.moving.Load(), MostMoving: n.most.Load(), Expired: n.expired.Load()}
}

// Close ends all calls, waits for them, and closes what clients had open.
func (n *Node) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	err := n.peer.Close()
	n.mu.Lock()
	for ep := range n.clients {
		n.forget(ep)
	}
	n.mu.Unlock()
	close(n.stop)
	n.swept.Wait()
	if e := n.root.Close(); err == nil {
		err = e
	}
	return err
}

// buffer is room for a read's or write's data: one of the node's, which counts in its client's share.
type buffer struct {
	bytes []byte
	share chan struct{}
}

// take waits for a buffer; give puts it back. It waits for a place in the client's share first: of
// a client that does not move its data, only so many stand in the way of others.
func (n *Node) take(ctx context.Context, share chan struct{}) (b buffer, err error) {
	select {
	case share <- struct{}{}:
	case <-ctx.Done():
		return b, context.Cause(ctx)
	}
	select {
	case bytes := <-n.bufs:
		if bytes == nil {
			bytes = make([]byte, n.cfg.Limits.IOBytes)
		}
		for now := n.moving.Add(1); ; {
			most := n.most.Load()
			if now <= most || n.most.CompareAndSwap(most, now) {
				return buffer{bytes, share}, nil
			}
		}
	case <-ctx.Done():
		<-share
		return b, context.Cause(ctx)
	}
}

func (n *Node) give(b buffer) {
	n.moving.Add(-1)
	n.bufs <- b.bytes
	<-b.share
}
