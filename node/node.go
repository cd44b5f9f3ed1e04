package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/device/lender"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/internal/lograte"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/rpc/meter"
)

// Node is a running node. Its methods may be called from any goroutine.
type Node struct {
	cfg      Config                 // as it was started
	live     atomic.Pointer[Config] // with what Reload has changed since
	log      *slog.Logger
	auth     *control.Auth
	tls      *ca.Identity // nil without TLS
	el       *fabric.Element
	rpc      *rpc.Peer
	meter    meter.Meter // of the calls of rpc
	links    *control.Links
	engine   *wasm.Engine
	native   *native.Engine // nil: native code does not run
	compiler *llvm.Compiler
	rt       *inject.Runtime
	catalog  *cluster.Catalog
	account  *component.Account
	data     *store
	pool     *component.Component
	devices  *lender.Lender
	shares   component.Limits
	managing managing
	peers    *peerBook
	roots    *roots
	files    *gate // for loads from files of this node,
	graphs   *gate // and for those of them that are graphs
	web      *web
	traffic  traffic
	resident resident
	bound    []string                 // addresses that it listens at
	addrs    atomic.Pointer[[]string] // peers that connect while it starts ask for them
	schemes  fabric.Schemes           // in use
	made     fabric.Transports
	started  time.Time

	conflictSeen atomic.Uint64 // the incarnation of another node of this name that was last told of
	introducing  atomic.Int64  // peers being asked because of their names

	stopping   atomic.Bool
	failed     chan error    // what ends Run
	peersKnown chan struct{} // closed once links has all of Config.Peers
	life       context.Context
	end        context.CancelFunc // of life, by Close
	reloading  sync.Mutex
	closing    sync.Once
	closeErr   error
	work       workers

	callSegments int64 // what calls may take in segments, besides the memory that is lent
}

// New makes a node and listens. Run must follow, or Close.
func New(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Log, started: time.Now(),
		peers: newPeerBook(), files: newGate("files", maxFiles), graphs: newGate("graphs", maxGraphs), failed: make(chan error, 1), peersKnown: make(chan struct{})}
	n.live.Store(&cfg)
	n.meter.Answer = control.NothingFound
	n.life, n.end = context.WithCancel(context.Background())
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.log = slog.New(lograte.New(n.log.Handler())) // what peers do, they can do thousands of times
	if err := n.build(); err != nil {
		n.Close()
		return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
	}
	return n, nil
}

func (n *Node) build() (err error) {
	if n.auth, n.tls, err = n.cfg.identify(n.log); err != nil {
		return err
	}
	if n.catalog, err = cluster.NewCatalog(n.life, cluster.CatalogLimits{}, cluster.NewMemory()); err != nil {
		return err
	}
	if n.roots, err = openRoots(n.cfg.DataRoots); err != nil {
		return err
	}
	policy := fabric.Balanced
	if n.cfg.Policy != "" {
		if policy, err = fabric.ParsePolicy(n.cfg.Policy); err != nil {
			return err
		}
	}
	if err := n.transports(); err != nil {
		return err
	}
	set, err := n.cfg.setLimits()
	if err != nil {
		return err
	}
	limits := set.fabric
	n.callSegments, _ = set.calls.Memory()
	limits.LentBytes = int64(n.cfg.Memory) + n.callSegments
	n.el, err = fabric.New(fabric.Config{Name: n.cfg.Name, Transports: n.made, Policy: policy, Auth: n.auth,
		Limits: limits, Log: n.log, OnPeer: n.peerUp, OnLost: n.peerLost})
	if err != nil {
		return errors.Join(err, n.made.Close())
	}
	if n.rpc, err = rpc.New(n.el, rpc.Config{Limits: set.calls, Log: n.log, Members: true,
		Callers: []rpc.CallerInterceptor{n.meter.Caller}, Servers: []rpc.ServerInterceptor{n.meter.Server}}); err != nil {
		return err
	}
	if err := n.functions(set); err != nil {
		return err
	}
	n.shares = set.pool
	n.account = component.NewAccount(set.pool.Bounds(int64(n.cfg.Memory), int64(n.cfg.PoolMemory)))
	n.data = newStore(n.el, n.account)
	n.account.YieldBy(n.data.past.yield)
	n.pool = component.New(n.el, n.account, set.pool)
	if err := n.lendDevices(set.devices); err != nil {
		return err
	}
	n.links = control.NewLinks(control.LinksConfig{Element: n.el, Schemes: n.dialled(), Insecure: n.cfg.Insecure || n.tls != nil, Nodes: true, Log: n.log})
	if err := n.openManager(); err != nil {
		return err
	}
	if err := n.serve(); err != nil {
		return err
	}
	if n.web, err = newWeb(n); err != nil {
		return err
	}
	if err := n.listen(); err != nil {
		return err
	}
	if n.tls != nil {
		n.work.Go(func() { n.tls.Guard(n.life, n.made.Recheck) })
	}
	return nil
}

func (n *Node) listen() error {
	var addrs []string
	for _, addr := range n.cfg.Listen {
		bound, err := n.el.Listen(addr)
		if err != nil {
			return inUse(err, "listen")
		}
		addrs = append(addrs, bound)
		n.log.Info("listening", "addr", bound)
		if n.tls == nil && !n.schemes.Loopback(addr) {
			n.log.Warn("listening beyond loopback without encryption: whoever sees this network's traffic sees all data and keys", "addr", bound)
		}
	}
	n.bound = addrs
	n.advertise(n.cfg.Advertise)
	return nil
}

// advertise says which addresses others are told to dial: those of the list, or else all that are listened at.
func (n *Node) advertise(list []string) {
	if len(list) == 0 {
		list = n.bound
	}
	list = slices.Clone(list)
	n.addrs.Store(&list)
	n.checkHosts()
}

// inUse adds what to do to an error that says where another process listens already.
func inUse(err error, setting string) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%w: end what listens there (is this node running already?), or give another address (--%s, or %[2]s in the configuration file)", err, setting)
	}
	return err
}

// Element is the node's element, for what is built on it.
func (n *Node) Element() *fabric.Element { return n.el }

// RPC is the node's part in calls.
func (n *Node) RPC() *rpc.Peer { return n.rpc }

// Name is the node's name.
func (n *Node) Name() string { return n.cfg.Name }

// Addrs are the addresses that others are told to dial.
func (n *Node) Addrs() []string {
	if addrs := n.addrs.Load(); addrs != nil {
		return slices.Clone(*addrs)
	}
	return slices.Clone(n.cfg.Advertise) // it does not listen at all of them yet
}

// Catalog is what the node knows of datasets.
func (n *Node) Catalog() *cluster.Catalog { return n.catalog }

// Peer is the endpoint to a static peer; nil if it is not connected.
func (n *Node) Peer(name string) *fabric.Endpoint { return n.links.Endpoint(name) }

// peerUp hears of each new endpoint.
func (n *Node) peerUp(ep *fabric.Endpoint) {
	n.traffic.add(ep)
	n.links.PeerUp(ep)
	n.peerCame(ep)
	n.checkName(ep)
}

// peerLost hears of each endpoint's end.
func (n *Node) peerLost(ep *fabric.Endpoint, err error) {
	n.traffic.remove(ep)
	n.links.PeerLost(ep, err)
	n.peerWent(ep, err)
	n.abandoned(ep)
	n.managing.calls.Lost(ep)
	n.work.Go(func() { // it takes time to give memory back
		n.pool.Abandoned(ep)
		n.devices.Abandoned(ep)
	})
}

// Run connects to the peers and serves until the context ends, the node is closed,
// or another node turns out to have had its name first (control.ErrNameTaken). Then it
// stops: it takes no new loads and functions, waits up to Config.StopTime for calls
// and functions that are under way, cancels what is left, and closes. An end in order is no error; where Close takes longer than
// what is left of StopTime, and 2 s, Run does not wait for it (ErrStillCloses).
func (n *Node) Run(ctx context.Context) error {
	for _, m := range n.cfg.Peers {
		if m.Name == n.cfg.Name {
			n.work.Go(func() { n.dialSameName(m) })
		}
		n.links.Add(m)
	}
	close(n.peersKnown)
	n.manage()
	n.work.Go(n.reap)
	if n.web.listener != nil {
		n.work.Go(func() {
			if err := n.web.server.Serve(n.web.listener); !errors.Is(err, http.ErrServerClosed) {
				n.fail(fmt.Errorf("node %s: http: %w", n.cfg.Name, err))
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case <-n.life.Done():
	case err = <-n.failed:
	}
	n.stopping.Store(true)
	n.log.Info("stopping")
	until := time.Now().Add(n.cfg.StopTime)
	n.drain()
	return errors.Join(err, n.closeBy(until))
}

// closeTime is how long Run waits for Close at least. What cannot be interrupted, such as a compiler, may take longer: then the process ends without it.
const closeTime = 2 * time.Second

// ErrStillCloses says that something of a node's goes on that could not be interrupted.
var ErrStillCloses = errors.New("something still runs that cannot be interrupted, such as a compiler")

// closeBy is Close that does not wait for ever.
func (n *Node) closeBy(until time.Time) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	wait := max(closeTime, time.Until(until))
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return fmt.Errorf("node %s: not closed after %v: %w", n.cfg.Name, wait.Round(time.Millisecond), ErrStillCloses)
	}
}

// fail ends Run with an error; the first counts.
func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
}

// cutTime is how long functions that are told to stop may take, and the word
// of it to the goroutines that wait for them: they look every 100 µs or so.
const cutTime = time.Second

// drain waits for the calls and functions under way, and ends those that take too long.
func (n *Node) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), n.live.Load().StopTime)
	defer cancel()
	defer context.AfterFunc(n.life, cancel)()
	var both sync.WaitGroup
	both.Go(func() {
		if err := n.rpc.Drain(ctx); err != nil {
			n.log.Warn("calls are cut off", "err", err)
		}
	})
	both.Go(func() {
		if err := n.rt.Drain(ctx); err != nil {
			n.log.Warn("functions are cut off", "err", err)
			cut, cancel := context.WithTimeout(context.Background(), cutTime)
			defer cancel()
			if err := n.rt.EndAll(cut, fmt.Sprintf("it stops, and waited %v for functions to end", n.live.Load().StopTime)); err != nil {
				n.log.Warn("functions do not stop at once", "err", err)
			}
		}
	})
	both.Wait()
}

// Close stops at once and frees everything.
func (n *Node) Close() error {
	n.closing.Do(func() {
		n.stopping.Store(true)
		n.end()
		var errs []error
		if n.web != nil {
			errs = append(errs, n.web.close())
		}
		errs = append(errs, n.closeManager())
		if n.links != nil {
			n.links.Close()
		}
		if n.rpc != nil {
			errs = append(errs, n.rpc.Close())
		}
		if n.rt != nil { // first, so that functions stop: the element waits for those it runs
			errs = append(errs, n.rt.Close())
		}
		if n.devices != nil { // first, as the element drives what is under way
			errs = append(errs, n.devices.Close())
		}
		if n.el != nil {
			errs = append(errs, n.el.Close())
		}
		errs = append(errs, n.closeEngines())
		n.work.Wait()
		if n.roots != nil {
			n.roots.close()
		}
		n.closeErr = errors.Join(errs...)
	})
	return n.closeErr
}

// workers counts goroutines; none starts once Wait was called.
type workers struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// Go runs fn on a goroutine, or not at all.
func (w *workers) Go(fn func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.wg.Go(fn)
	return true
}

// Wait waits for all of them.
func (w *workers) Wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}
