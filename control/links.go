package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

const (
	// firstRetry and lastRetry are the first and the longest pause between
	// attempts; each pause is twice the one before, less some chance.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 3 * time.Second
)

// LinksConfig says how Links connects.
type LinksConfig struct {
	Element  *fabric.Element
	Schemes  fabric.Schemes // of the element's transports
	Insecure bool           // tcp addresses beyond loopback may be dialled, without TLS or because there is TLS
	// Nodes: both ends dial and accept, and a peer is one only if it has capability member.
	Nodes bool
	Log   *slog.Logger // nil: silent
	// Minds reports whether a member that cannot be reached is worth a warning; Links may be locked meanwhile. nil: each is.
	Minds func(name string) bool
}

// Links keeps one endpoint to each of a list of members: it dials, accepts what
// members dial, and dials again when an endpoint is lost. Its methods may be called from any goroutine.
type Links struct {
	cfg    LinksConfig
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	links  map[string]*link
	closed bool
	full   bool          // a member was left out
	change chan struct{} // closed and made anew at each change
}

// link is the state of one member.
type link struct {
	member cluster.Member
	ep     *fabric.Endpoint // may be dead
	err    error            // of the last attempt
	tries  int              // attempts that failed since the last success
	ended  uint64           // attempts that ended, in all
	wake   chan struct{}
	gone   bool // Keep has taken it out
}

// NewLinks makes Links; Add gives it members.
func NewLinks(cfg LinksConfig) *Links {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Links{cfg: cfg, links: map[string]*link{}, change: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Add starts keeping an endpoint to a member. A member that is known gets the
// addresses it lacks. Those beyond cluster.MaxMembers are left out, and the log says so once.
func (l *Links) Add(m cluster.Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || m.Name == l.cfg.Element.Name() {
		return
	}
	if k := l.links[m.Name]; k != nil {
		for _, a := range m.Addrs {
			if !slices.Contains(k.member.Addrs, a) && len(k.member.Addrs) < cluster.MaxAddrs {
				k.member.Addrs = append(k.member.Addrs, a)
			}
		}
		return
	}
	if len(l.links) >= cluster.MaxMembers {
		if !l.full {
			l.cfg.Log.Warn("more nodes than can be connected: this one and any further ones are left out", "node", m.Name, "most", cluster.MaxMembers)
		}
		l.full = true
		return
	}
	m.Addrs = slices.Clone(m.Addrs)
	k := &link{member: m, wake: make(chan struct{}, 1), err: errors.New("it has not answered yet")}
	l.links[m.Name] = k
	for _, ep := range l.cfg.Element.Endpoints() {
		if ep.Name() == m.Name && l.trusted(ep) {
			l.take(k, ep)
		}
	}
	l.work.Go(func() { l.keep(k) })
}

// Keep makes list the members: it adds those that are new, gives the others the addresses of the list, and stops dialling those
// that are not in it. Their endpoints stay until they end. It returns the names of both.
func (l *Links) Keep(list []cluster.Member) (added, removed []string) {
	l.mu.Lock()
	for name, k := range l.links {
		i := slices.IndexFunc(list, func(m cluster.Member) bool { return m.Name == name })
		if i >= 0 {
			k.member.Addrs = slices.Clone(list[i].Addrs)
			continue
		}
		k.gone = true
		delete(l.links, name)
		removed = append(removed, name)
		l.changed()
		k.again()
	}
	var fresh []cluster.Member
	for _, m := range list {
		if l.links[m.Name] == nil && m.Name != l.cfg.Element.Name() {
			fresh = append(fresh, m)
			added = append(added, m.Name)
		}
	}
	l.mu.Unlock()
	for _, m := range fresh {
		l.Add(m)
	}
	slices.Sort(removed)
	return added, removed
}

// trusted reports whether an endpoint may count as a member's.
func (l *Links) trusted(ep *fabric.Endpoint) bool {
	return !l.cfg.Nodes || PrincipalOf(ep).Caps.Has(cluster.CapMember)
}

// PeerUp says that there is an endpoint; fabric.Config.OnPeer calls it.
func (l *Links) PeerUp(ep *fabric.Endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.links[ep.Name()]
	if k != nil && l.trusted(ep) {
		l.take(k, ep)
	}
}

// take has a member's endpoint used, or not; mu is held.
func (l *Links) take(k *link, ep *fabric.Endpoint) {
	if alive(k.ep) && k.ep.Incarnation() == ep.Incarnation() {
		return // this one shows another principal
	}
	if alive(k.ep) && !l.cfg.Nodes { // a node asks both before it says so
		l.cfg.Log.Warn("two elements have one name; if this is no restart, give each node a name of its own", "name", ep.Name(),
			"earlier", k.ep.String(), "later", ep.String())
	}
	k.ep, k.err = ep, nil
	l.changed()
}

// PeerLost says that an endpoint is gone; fabric.Config.OnLost calls it.
func (l *Links) PeerLost(ep *fabric.Endpoint, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.links[ep.Name()]
	if k == nil || k.ep != ep {
		return
	}
	k.ep, k.err = nil, err
	for _, other := range l.cfg.Element.Endpoints() { // one that stood by
		if other != ep && other.Name() == ep.Name() && l.trusted(other) && alive(other) {
			k.ep, k.err = other, nil
		}
	}
	l.changed()
	k.again()
}

// changed wakes the goroutines in Wait; mu is held.
func (l *Links) changed() {
	close(l.change)
	l.change = make(chan struct{})
}

func alive(ep *fabric.Endpoint) bool { return ep != nil && ep.Err() == nil }

// Endpoint is the endpoint to a member; nil if there is none now.
func (l *Links) Endpoint(name string) *fabric.Endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.links[name]; k != nil && alive(k.ep) {
		return k.ep
	}
	return nil
}

// Wait is Endpoint that waits for the member to be connected.
func (l *Links) Wait(ctx context.Context, name string) (*fabric.Endpoint, error) {
	return l.wait(ctx, name, false)
}

// Try is Wait that has a member that is not connected dialled now, and fails as
// soon as that has failed, or has made a connection that is lost already.
func (l *Links) Try(ctx context.Context, name string) (*fabric.Endpoint, error) {
	return l.wait(ctx, name, true)
}

func (l *Links) wait(ctx context.Context, name string, once bool) (*fabric.Endpoint, error) {
	var ended uint64 // attempts, at the start
	asked := false
	for {
		l.mu.Lock()
		k, change, closed, full := l.links[name], l.change, l.closed, l.full
		if k != nil && alive(k.ep) {
			defer l.mu.Unlock()
			return k.ep, nil
		}
		if k != nil && once && !closed {
			if !asked {
				asked, ended = true, k.ended
				k.again()
			}
			if k.ended > ended {
				defer l.mu.Unlock()
				return nil, k.notConnected(nil)
			}
		}
		l.mu.Unlock()
		switch {
		case closed:
			return nil, fmt.Errorf("%w: node %s: nothing is dialled any more", ErrNotConnected, name)
		case k == nil && full:
			return nil, fmt.Errorf("%w: %q; nodes beyond the first %d were left out, and it may be one of them", ErrNoNode, name, cluster.MaxMembers)
		case k == nil:
			return nil, fmt.Errorf("%w: %q; %s", ErrNoNode, name, schema.Suggest(name, l.names()))
		}
		select {
		case <-change:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return nil, k.notConnected(context.Cause(ctx))
		}
	}
}

// notConnected says why there is no endpoint, and why it was waited for no longer; mu is held.
func (k *link) notConnected(ended error) error {
	why := k.why()
	if ended != nil {
		why = fmt.Errorf("%w: %w", ended, why)
	}
	return fmt.Errorf("%w: node %s (%s): %w; is it running, and may this program reach it?", ErrNotConnected, k.member.Name, strings.Join(k.member.Addrs, ", "), why)
}

// why is the reason that there is no endpoint: one that has just ended may not be told of yet. mu is held.
func (k *link) why() error {
	if k.err == nil {
		return fabric.ErrPeerLost
	}
	return k.err
}

// again ends the pause between two attempts, or the next one.
func (k *link) again() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// names are the members', sorted.
func (l *Links) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.links))
}

// LinkState is how things stand with one member.
type LinkState struct {
	Member   cluster.Member
	Endpoint *fabric.Endpoint // nil if it is not connected
	Err      error            // then: why
	Tries    int              // attempts since the last success
}

// States lists the members by name.
func (l *Links) States() []LinkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]LinkState, 0, len(l.links))
	for _, k := range l.links {
		s := LinkState{Member: cluster.Member{Name: k.member.Name, Addrs: slices.Clone(k.member.Addrs)}, Tries: k.tries}
		if alive(k.ep) {
			s.Endpoint = k.ep
		} else {
			s.Err = k.why()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b LinkState) int { return strings.Compare(a.Member.Name, b.Member.Name) })
	return out
}

// Close stops dialling. Endpoints stay.
func (l *Links) Close() {
	l.mu.Lock()
	l.closed = true
	l.changed()
	l.mu.Unlock()
	l.cancel()
	l.work.Wait()
}

// keep dials a member whenever there is no endpoint to it.
func (l *Links) keep(k *link) {
	pause := firstRetry
	for l.ctx.Err() == nil {
		l.mu.Lock()
		up, m, gone := alive(k.ep), k.member, k.gone
		m.Addrs = slices.Clone(m.Addrs)
		l.mu.Unlock()
		if gone {
			return
		}
		if up {
			pause = firstRetry
			select {
			case <-k.wake:
			case <-l.ctx.Done():
			}
			continue
		}
		ep, err := l.Dial(l.ctx, m)
		l.settle(k, ep, err)
		if err == nil { // a peer that takes connections and drops them is not dialled without end
			select {
			case <-time.After(firstRetry):
			case <-l.ctx.Done():
			}
			continue
		}
		l.pause(k, pause-time.Duration(rand.Int64N(int64(pause)/4+1)))
		pause = min(2*pause, lastRetry)
	}
}

// pause waits, unless something happens to the member's endpoint.
func (l *Links) pause(k *link, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.wake:
	case <-l.ctx.Done():
	}
}

// settle takes the outcome of an attempt.
func (l *Links) settle(k *link, ep *fabric.Endpoint, err error) {
	l.mu.Lock()
	k.ended++
	if err != nil {
		if k.tries == 0 && !l.closed && !k.gone { // else the attempt was given up, and there is no other
			level := slog.LevelWarn
			if l.cfg.Minds != nil && !l.cfg.Minds(k.member.Name) {
				level = slog.LevelDebug
			}
			l.cfg.Log.Log(l.ctx, level, "peer cannot be reached; trying again", "peer", k.member.Name, "err", err)
		}
		k.tries++
		if !alive(k.ep) {
			k.err = err
		}
		l.changed()
		l.mu.Unlock()
		return
	}
	k.tries = 0
	if !alive(k.ep) {
		k.ep, k.err = ep, nil
		l.changed()
	}
	l.mu.Unlock()
	if !l.cfg.Nodes { // a node tells of all its connections itself
		l.cfg.Log.Info("connected", "peer", ep.String())
	}
}
