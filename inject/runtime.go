package inject

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// Frame ids of the travel protocol: those that wait for credit, and those
// that must not.
const (
	firstNormal   = fabric.FirstMessageID
	firstReserved = fabric.FirstReservedID
)

func frameID(k travel.Kind) fabric.FrameID {
	if k.Reserved() {
		return firstReserved + fabric.FrameID(k)
	}
	return firstNormal + fabric.FrameID(k)
}

// Config describes a Runtime. The zero value is that of a client: it starts functions and runs none.
type Config struct {
	// Engines run arriving code, one per form. Without any, branches that are
	// sent here are refused.
	Engines []abi.Engine
	// Trust says whose signatures native code needs; nil: none of it runs. Runtime.SetTrust changes it.
	Trust *trust.Policy
	// Loads bounds the functions that are made ready at once, of which one principal has three quarters at most; default 4. Others queue.
	Loads int
	// LoadTime is the most that making a function ready takes; 0: DefaultLoadTime.
	LoadTime time.Duration
	// Limits are the most that a function gets here, whatever its manifest wishes; zero
	// fields leave it to the engine.
	Limits abi.Limits
	// Running bounds the branches that run at once; default 128. Others queue.
	Running int
	// CacheBytes bounds the images and shard tables kept; default 64 MiB.
	CacheBytes int64
	// Travel are the protocol's limits.
	Travel travel.Limits
	// Output gets what functions log; nil: Log, at level info.
	Output func(element, function, text string)
	// Tracer makes spans of the runs whose origin sent a trace context along; nil: none.
	Tracer Tracer
	Log    *slog.Logger // nil: silent
}

// Validate reports what is wrong with a configuration.
func (c *Config) Validate() error {
	if c.Running < 0 || c.Running > 1<<16 {
		return fmt.Errorf("inject: Running is %d: between 1 and 65536, or 0 for the default", c.Running)
	}
	if c.Loads < 0 || c.Loads > 1<<10 || c.LoadTime < 0 {
		return fmt.Errorf("inject: Loads is %d and LoadTime %v: they are at least 0, for the default, and Loads at most 1024", c.Loads, c.LoadTime)
	}
	if c.CacheBytes < 0 {
		return fmt.Errorf("inject: CacheBytes is negative")
	}
	if c.Limits.RunTime < 0 {
		return fmt.Errorf("inject: Limits.RunTime is %v: it cannot be negative", c.Limits.RunTime)
	}
	seen := map[string]bool{}
	for _, e := range c.Engines {
		if e == nil {
			return errors.New("inject: an engine in Engines is nil")
		}
		for _, o := range e.Offers() {
			if _, err := image.ParseForm(o.Form); err != nil {
				return fmt.Errorf("inject: an engine: %w", err)
			}
			if kind := o.Form + o.Triple; o.Why == "" && seen[kind] {
				return fmt.Errorf("inject: two engines for %s", o)
			} else if o.Why == "" {
				seen[kind] = true
			}
		}
	}
	return nil
}

// Runtime runs and starts functions at one element. Its methods may be called
// from any goroutine.
type Runtime struct {
	el    *fabric.Element
	layer *fabric.Layer
	cfg   Config
	log   *slog.Logger

	mu      sync.Mutex
	core    *travel.Core
	store   *store
	tables  [keptTables]travel.ID              // that calls were prepared for last, found without hashing while the store has them
	tabled  int                                // where the next goes
	peers   []*fabric.Endpoint                 // by travel.Peer; nil: free
	about   []about                            // the same
	numbers map[fabric.Incarnation]travel.Peer // of the endpoint that is used where any will do
	came    atomic.Uint64                      // how often an endpoint came or became another element's
	futures futures
	arrived []arrival
	hosts   []*host                // free
	sweep   []*bound               // to be closed
	spares  []*bound               // that may have an instance at hand
	release []releaser             // to go back to their engine
	freeing int                    // of them so many, and of scratch, that are on their way
	sets    map[*boundSet]struct{} // all that have bounds
	loads   loads
	offers  []forms.Offer   // the engines'
	life    context.Context // ends with Close
	end     context.CancelFunc
	closed  bool
	args    travel.StartArgs // scratch

	work    sync.WaitGroup // goroutines of ours
	workers int            // under mu
	turns   turns
	waits   int         // runs that wait for room; under mu
	limits  *abi.Limits // of every run; nil: the program's

	incoming fabric.Message // that the core is given; under mu
	kept     bool           // its credit is withheld
}

// about is what the data plane asks of an endpoint, in one place. The zero
// about is no peer's.
type about struct {
	incarnation fabric.Incarnation // 0: no member's: not what a table's element is found by
	principal   string
	member      bool // functions may go there, and keys
	foreign     bool // the incarnation that it shows is another principal's
}

// arrival is an object that came in, to be checked outside of the core's call.
type arrival struct {
	id   travel.ID
	data []byte
}

const (
	defaultRunning = 128
	defaultLoads   = 4
	// DefaultLoadTime is Config.LoadTime's: a compiler's worst cases take a second or two.
	DefaultLoadTime = 10 * time.Second
	// keptTables is how many shard tables are found again by their bytes alone: a client's calls are on a few datasets.
	keptTables = 16
	// sparePeers: an endpoint that ends makes room for another before its number is free.
	sparePeers        = 256
	defaultCacheBytes = 64 << 20
)

// NewRuntime makes an element able to start functions, and to run them if
// engines are given. It must be called before the element listens or dials.
func NewRuntime(el *fabric.Element, cfg Config) (*Runtime, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if el == nil {
		return nil, errors.New("inject: no element to run functions at")
	}
	cfg.fill(el)
	rt := &Runtime{el: el, layer: el.Layer(layer.Pass{}), cfg: cfg, log: cfg.Log, store: newStore(cfg.CacheBytes, cfg.Trust),
		numbers: map[fabric.Incarnation]travel.Peer{}, sets: map[*boundSet]struct{}{}}
	if rt.log == nil {
		rt.log = slog.New(slog.DiscardHandler)
	}
	if rt.cfg.Limits != (abi.Limits{}) {
		rt.limits = &rt.cfg.Limits
	}
	rt.loads = loads{byKey: map[loadKey]*load{}, by: map[string]int{}}
	rt.turns.spare.Store(int32(runtime.GOMAXPROCS(0)))
	rt.turns.most = turnsPerProcessor * runtime.GOMAXPROCS(0)
	rt.turns.timer = time.AfterFunc(turnWait, rt.lateTurn)
	rt.life, rt.end = context.WithCancel(context.Background())
	for i, e := range cfg.Engines {
		for _, o := range e.Offers() {
			rt.offers = append(rt.offers, forms.Offer{Engine: i, Offer: o})
		}
	}
	rt.futures.init()
	var err error
	rt.core, err = travel.New(travel.Config{Self: uint64(el.Incarnation()), Name: el.Name(), HashSeed: rand.Uint64(),
		Epoch:  time.Now().UnixNano() - int64(el.Now()),
		Limits: cfg.Travel, Store: rt.store, Effects: (*effects)(rt)})
	if err != nil {
		return nil, err
	}
	rt.peers, rt.about = make([]*fabric.Endpoint, 1, 16), make([]about, 1, 16)
	for k := travel.Kind(0); k < travel.Kinds; k++ {
		handle, fn := el.Handle, func(m fabric.Message) { rt.receive(m, k) }
		if k == travel.KindInject { // what waits here beyond its bounds takes its sender's credit
			handle, fn = el.HandleRetaining, func(m fabric.Message) {
				if !rt.receive(m, k) {
					m.Release()
				}
			}
		}
		if err := handle(frameID(k), fn); err != nil {
			return nil, err
		}
		rt.layer.Describe(frameID(k), "inject's "+k.String())
	}
	if err := rt.layer.HandleReturned(frameID(travel.KindInject), rt.comesBack); err != nil {
		return nil, err
	}
	el.Watch(rt.peerUp, rt.peerLost)
	rt.layer.OnTick(rt.tick)
	return rt, nil
}

// fill sets what was left to its default, as it is for an element.
func (cfg *Config) fill(el *fabric.Element) {
	if cfg.Running == 0 {
		cfg.Running = defaultRunning
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = defaultCacheBytes
	}
	if cfg.Loads == 0 {
		cfg.Loads = defaultLoads
	}
	if cfg.LoadTime == 0 {
		cfg.LoadTime = DefaultLoadTime
	}
	cfg.Travel.Running = cfg.Running
	if cfg.Travel.Peers == 0 { // all endpoints that there can be, and those that are on their way out
		cfg.Travel.Peers = min(el.Limits().Endpoints+sparePeers, travel.MaxPeers)
	}
	if cfg.Travel.Workers == 0 { // of which each is on a core of its own
		cfg.Travel.Workers = min(runtime.GOMAXPROCS(0), travel.MaxWorkers)
	}
}

// Element is the element the runtime belongs to.
func (rt *Runtime) Element() *fabric.Element { return rt.el }

func (rt *Runtime) now() travel.Instant { return travel.Instant(rt.el.Now()) }

// number is the core's number of an endpoint, kept with it so that a message
// finds it without a map. Numbers are used again, so an endpoint that was lost,
// or never had one, may find another's there: it gets Self, which is no peer. mu is held.
func (rt *Runtime) number(ep *fabric.Endpoint) travel.Peer {
	if n := travel.Peer(rt.layer.Tag(ep)); rt.endpoint(n) == ep {
		return n
	}
	return travel.Self
}

// peerUp hears of an endpoint. There may be several to one incarnation.
func (rt *Runtime) peerUp(ep *fabric.Endpoint) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed || ep.Incarnation() == rt.el.Incarnation() {
		return // branches for this element never leave it
	}
	n := travel.Peer(1)
	for int(n) < len(rt.peers) && rt.peers[n] != nil {
		n++
	}
	foreign := !slices.Contains(rt.el.EndpointsTo(ep.Incarnation()), ep)
	if int(n) == len(rt.peers) {
		rt.peers, rt.about = append(rt.peers, nil), append(rt.about, about{})
	}
	rt.peers[n] = ep
	if err := rt.core.PeerUp(rt.now(), n, rt.infoOf(ep, foreign)); err != nil {
		rt.log.Warn("no injections from or to this peer", "peer", ep.String(), "err", err)
		rt.peers[n] = nil
		return
	}
	rt.describe(n, foreign)
	rt.layer.SetTag(ep, uint32(n))
	rt.settle(ep.Incarnation())
	rt.afterAsync() // futures that began while it was away may have ended
}

// infoOf is what the core is told of an endpoint. Where it is foreign, it must not lend its peer another's authority.
func (rt *Runtime) infoOf(ep *fabric.Endpoint, foreign bool) travel.PeerInfo {
	caps := cluster.Caps(ep.Principal().Caps)
	// A runtime that runs nothing is a client: every peer is a node to it, that
	// must hear of cancellations, whatever token they share.
	member := caps.Has(cluster.CapMember) || len(rt.cfg.Engines) == 0
	return travel.PeerInfo{Incarnation: uint64(ep.Incarnation()), Name: ep.Name(), Principal: ep.Principal().Name,
		Member: member && !foreign, Injector: caps.Has(cluster.CapInject) && !foreign, Foreign: foreign}
}

// describe notes what the data plane asks of an endpoint.
func (rt *Runtime) describe(n travel.Peer, foreign bool) {
	ep := rt.peers[n]
	info := rt.infoOf(ep, foreign)
	is := about{principal: info.Principal, member: info.Member, foreign: foreign}
	if info.Member {
		is.incarnation = ep.Incarnation()
	}
	rt.about[n] = is
	if foreign {
		rt.log.Warn("no injections from or to this peer for now: the incarnation that it shows is another principal's", "peer", ep.String(), "principal", info.Principal)
	}
}

// settle sees to it that an incarnation is found by an endpoint of which the fabric says that it leads there, and by no
// other: what a peer shows is its own word. That can change when an endpoint to it comes or goes. mu is held.
func (rt *Runtime) settle(inc fabric.Incarnation) {
	eps := rt.el.EndpointsTo(inc)
	was, next := rt.numbers[inc], travel.Self
	for i, ep := range rt.peers {
		if ep == nil || ep.Incarnation() != inc {
			continue
		}
		n, foreign := travel.Peer(i), !slices.Contains(eps, ep)
		if foreign != rt.about[n].foreign {
			rt.core.PeerIs(n, rt.infoOf(ep, foreign))
			rt.describe(n, foreign)
		}
		if !foreign && (next == travel.Self || n == was) {
			next = n
		}
	}
	switch {
	case next == travel.Self:
		delete(rt.numbers, inc)
	case next != was:
		rt.numbers[inc] = next
		rt.came.Add(1)
	}
}

// element is the endpoint to an element that a table names, if it is a member's: functions, and the keys with them, go to
// no others, whatever incarnation those show. mu is held.
func (rt *Runtime) element(inc fabric.Incarnation) (travel.Peer, bool) {
	n, ok := rt.numbers[inc]
	return n, ok && rt.about[n].member
}

// peerLost hears that an endpoint is gone.
func (rt *Runtime) peerLost(ep *fabric.Endpoint, err error) {
	rt.mu.Lock()
	defer rt.after()
	defer rt.mu.Unlock()
	n := rt.number(ep)
	if n == travel.Self {
		return
	}
	rt.peers[n], rt.about[n] = nil, about{}
	rt.core.PeerLost(rt.now(), n, err)
	rt.settle(ep.Incarnation())
}

// receive handles one message of the protocol, on the leader's goroutine. It reports whether the message's credit is
// kept.
func (rt *Runtime) receive(m fabric.Message, kind travel.Kind) (kept bool) {
	now := travel.Instant(rt.layer.CoarseNow())
	rt.mu.Lock()
	from := rt.number(m.From)
	if kind == travel.KindDone && rt.core.Done(now, from, m.Body) {
		rt.mu.Unlock()
		return false
	}
	if kind == travel.KindInject && rt.cfg.Tracer == nil && !m.Waits() {
		if run := rt.core.Arrive(now, from, m.Body); run != nil {
			h := rt.hostOf(run)
			rt.mu.Unlock()
			h.message, h.leads, h.now = m, true, now
			if rt.visit(h) {
				rt.after()
			}
			return false
		}
	}
	rt.incoming, rt.kept = m, false
	run, err := rt.core.Recv(now, from, kind, m.Body)
	kept, rt.incoming = rt.kept, fabric.Message{}
	more := false
	if run != nil && m.Waits() {
		rt.core.Own(run)
		rt.work.Add(1)
		h := rt.host(run)
		rt.layer.Compute(func() { rt.apart(h) })
		rt.mu.Unlock()
	} else if run != nil {
		h := rt.host(run)
		rt.mu.Unlock()
		h.message, h.leads, h.now = m, true, now
		more = rt.execute(h)
	} else {
		more = rt.pending()
		rt.soon(now)
		rt.mu.Unlock()
	}
	if err != nil && errors.Is(err, travel.ErrNoPeer) && kind == travel.KindInject {
		rt.turnAway(m)
	}
	if err != nil && errors.Is(err, travel.ErrProtocol) {
		rt.log.Warn("peer broke the travel protocol", "peer", m.From.String(), "err", err)
		m.From.Close()
	}
	if more {
		rt.after()
	}
	return kept
}

// turnAway refuses a branch that came over an endpoint which is no peer of ours
// (see peerUp), so that its origin need not wait until its time is over. An
// endpoint that has ended is no peer either: then it is dropped. Once the runtime
// is closed there are no peers, while the element may yet live for a moment.
func (rt *Runtime) turnAway(m fabric.Message) {
	code, text := travel.CodeRefused, fmt.Sprintf("%s takes no functions over this connection; its log says why", rt.el.Name())
	rt.mu.Lock()
	if rt.closed {
		code, text = travel.CodeStopping, travel.StoppingText
	}
	rt.mu.Unlock()
	answer, err := travel.Refusal(m.Body, code, text)
	if err != nil {
		rt.log.Warn("peer broke the travel protocol", "peer", m.From.String(), "err", err)
		m.From.Close()
		return
	}
	if err := m.From.Post(frameID(travel.KindRefused), answer, nil); err != nil {
		rt.log.Debug("a refusal is not heard", "peer", m.From.String(), "err", err)
	}
}

// comesBack hears that a branch was sent to an element that has no runtime. It cannot refuse the branch, so that is done here.
func (rt *Runtime) comesBack(m fabric.Message) {
	refusal, err := travel.Returned(m.Body, fmt.Sprintf("%s takes no functions: its program has made no inject.Runtime", m.From.Name()))
	if err != nil {
		rt.log.Warn("peer broke the travel protocol", "peer", m.From.String(), "err", err)
		m.From.Close()
		return
	}
	m.Body = refusal
	rt.receive(m, travel.KindRefused)
}

// apart runs a branch that came to a goroutine which waits for something else.
func (rt *Runtime) apart(h *host) {
	defer rt.work.Done()
	if rt.execute(h) {
		rt.after()
	}
}

// pending reports whether after has something to do. mu is held.
func (rt *Runtime) pending() bool {
	return rt.core.Ready() || len(rt.arrived) > 0 || len(rt.sweep) > 0 || len(rt.release) > 0
}

// after does what an event left to do outside of the core's call: check objects
// that arrived, and run branches that became ready. It is called without mu.
func (rt *Runtime) after() {
	rt.mu.Lock()
	if !rt.pending() {
		rt.mu.Unlock()
		return
	}
	if rt.closed || rt.workers >= rt.cfg.Running+rt.waits {
		rt.mu.Unlock() // the workers that there are go on until nothing is left
		return
	}
	rt.workers++
	rt.work.Add(1)
	rt.mu.Unlock()
	rt.layer.Compute(rt.worker)
}

// tidy gives one instance back, or closes one bound, that nothing needs any more. mu is held, and no more if it reports true; false: there is none.
func (rt *Runtime) tidy() bool {
	switch {
	case len(rt.release) > 0:
		in := rt.release[0]
		rt.release = append(rt.release[:0], rt.release[1:]...)
		rt.freeing++
		rt.mu.Unlock()
		in.Release()
		rt.roomFreed()
	case len(rt.sweep) > 0:
		b := rt.sweep[0]
		rt.sweep = append(rt.sweep[:0], rt.sweep[1:]...)
		rt.mu.Unlock()
		b.close()
	default:
		return false
	}
	return true
}

// worker runs branches until none is ready.
func (rt *Runtime) worker() {
	defer rt.work.Done()
	for {
		rt.mu.Lock()
		switch {
		case len(rt.arrived) > 0:
			a := rt.arrived[0]
			rt.arrived = append(rt.arrived[:0], rt.arrived[1:]...)
			rt.mu.Unlock()
			rt.check(a)
		case rt.tidy():
		default:
			run := rt.core.NextRun()
			if run == nil {
				rt.workers--
				rt.mu.Unlock()
				return
			}
			h := rt.host(run)
			rt.mu.Unlock()
			rt.execute(h)
		}
	}
}

// check verifies an object that arrived and puts it into the store.
func (rt *Runtime) check(a arrival) {
	o, err := parseObject(a.data, rt.policy())
	if err == nil && o.id != a.id {
		err = fmt.Errorf("its content has the identity %v", o.id)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err == nil {
		_, err = rt.store.add(o)
	}
	if err != nil {
		rt.core.ObjectFailed(rt.now(), a.id, err)
		return
	}
	rt.core.ObjectArrived(rt.now(), a.id)
}

// tick is the core's clock, run by the element's leader.
func (rt *Runtime) tick(now int64) int64 {
	rt.mu.Lock()
	next, ok := rt.core.Tick(travel.Instant(now))
	rt.mu.Unlock()
	rt.after()
	if !ok {
		return now + int64(time.Second)
	}
	return int64(next)
}

// Stats are a runtime's counters and levels, for metrics.
type Stats struct {
	travel.Counters
	Sizes       travel.Sizes
	CacheBytes  int64
	CacheCount  int
	CacheHits   uint64
	CacheMisses uint64
	Evicted     uint64
	LongestLoad time.Duration // the longest that making a function ready took
}

// Stats returns what has happened so far.
func (rt *Runtime) Stats() Stats {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return Stats{Counters: rt.core.Counters(), Sizes: rt.core.Sizes(), CacheBytes: rt.store.bytes, CacheCount: len(rt.store.byID),
		CacheHits: rt.store.hits, CacheMisses: rt.store.misses, Evicted: rt.store.evicted, LongestLoad: rt.loads.longest}
}

// Close ends all futures and stops all runs. Close it before its element, which
// waits for the functions that run on its own goroutines.
func (rt *Runtime) Close() error {
	rt.mu.Lock()
	rt.closed = true
	for n, ep := range rt.peers {
		if ep != nil {
			rt.peers[n], rt.about[n] = nil, about{}
			delete(rt.numbers, ep.Incarnation())
			rt.core.PeerLost(rt.now(), travel.Peer(n), fabric.ErrClosed)
		}
	}
	rt.futures.cancelAll(rt)
	rt.mu.Unlock()
	rt.end()
	rt.work.Wait()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for s := range rt.sets {
		s.retire(rt)
	}
	rt.drop()
	for _, c := range rt.store.codes {
		c.close()
	}
	return nil
}

// drop gives back what is kept at hand or is to be closed: there is no worker
// any more that would. mu is held.
func (rt *Runtime) drop() {
	for len(rt.spares) > 0 {
		rt.release = rt.unlist(rt.spares[0], rt.release)
	}
	for _, in := range rt.release {
		in.Release()
	}
	for _, b := range rt.sweep {
		b.close()
	}
	rt.release, rt.sweep = nil, nil
}

// effects carries out what the core decides. Its methods run under Runtime.mu.
type effects Runtime

func (fx *effects) Send(to travel.Peer, kind travel.Kind, head, body []byte) error {
	if int(to) >= len(fx.peers) || fx.peers[to] == nil {
		return fabric.ErrPeerLost
	}
	err := fx.peers[to].Post(frameID(kind), head, body)
	if err != nil && errors.Is(err, fabric.ErrBackpressure) {
		return fmt.Errorf("%w: that to %s", travel.ErrBackpressure, fx.peers[to].Name())
	}
	return err
}

func (fx *effects) Part(f travel.FutureID, branch uint64, index uint32, last bool, data []byte) {
	if fut := fx.futures.find(f); fut != nil {
		fut.part(branch, index, last, data)
	}
}

func (fx *effects) Complete(f travel.FutureID, o *travel.Outcome) {
	if fut := fx.futures.remove(f); fut != nil {
		if o.HasReply {
			fut.part(0, 0, true, o.Reply)
		}
		fut.complete(o)
	}
}

func (fx *effects) Stop(r *travel.Run) {
	if h, ok := r.User.(*host); ok {
		h.stop()
	}
}

func (fx *effects) FreeState(_ travel.InvocationID, state any) {
	if in, ok := state.(*held); ok {
		in.release((*Runtime)(fx))
	}
}

func (fx *effects) Retire(data any) {
	if set, ok := data.(*boundSet); ok {
		set.retire((*Runtime)(fx))
	}
}

func (fx *effects) Keep() any {
	m := fx.incoming
	m.Body = nil
	fx.kept = true
	return m
}

func (fx *effects) Release(credit any) {
	if m, ok := credit.(fabric.Message); ok {
		m.Release()
	}
}

func (fx *effects) Object(id travel.ID, data []byte) {
	fx.arrived = append(fx.arrived, arrival{id, append([]byte(nil), data...)})
}

func (fx *effects) Sever(p travel.Peer, err error) {
	if ep := fx.peers[p]; ep != nil {
		rt := (*Runtime)(fx)
		rt.log.Warn("peer given up", "peer", ep.String(), "err", err)
		if !rt.closed {
			rt.work.Add(1)
			go func() { // Close calls back, and mu is held
				defer rt.work.Done()
				ep.Close()
			}()
		}
	}
}
