package node

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

// peerBook is what a node knows of other nodes: those of its configuration, and those that dialled it. A node that is lost stays in
// it, so that its return can be told.
type peerBook struct {
	mu     sync.Mutex
	known  map[string]*knownPeer
	lost   map[string]*lostShards // by dataset
	losses uint64                 // of peers, in all
}

// knownPeer is one node.
type knownPeer struct {
	incarnation fabric.Incarnation // that was connected last
	since       time.Time          // it is connected, or not
	up          bool
	losses      uint64
	why         string // of the last loss
}

// lostShards are the shards of one version of a dataset that are gone, by their element.
type lostShards struct {
	version uint64
	at      map[string]time.Time // when it was noticed
}

func newPeerBook() *peerBook {
	return &peerBook{known: map[string]*knownPeer{}, lost: map[string]*lostShards{}}
}

// peer is the record of a node; nil if there are as many as there can be. mu is held.
func (b *peerBook) peer(name string) *knownPeer {
	p := b.known[name]
	if p == nil && len(b.known) < cluster.MaxMembers {
		p = &knownPeer{}
		b.known[name] = p
	}
	return p
}

// isNode reports whether a peer is another node: a client listens nowhere, whatever token it shows.
func (n *Node) isNode(ep *fabric.Endpoint) bool {
	return isMember(ep) && len(ep.Addrs()) > 0 && ep.Name() != n.cfg.Name
}

func direction(ep *fabric.Endpoint) string {
	if ep.Dialled() {
		return "dialled"
	}
	return "inbound"
}

// peerCame tells of a node that is connected now. A further connection to one that is says nothing new.
func (n *Node) peerCame(ep *fabric.Endpoint) {
	if !n.isNode(ep) {
		return
	}
	now := time.Now()
	b := n.peers
	b.mu.Lock()
	p := b.peer(ep.Name())
	if p == nil || p.up && p.incarnation == ep.Incarnation() {
		b.mu.Unlock()
		return
	}
	first, restarted, away := p.incarnation == 0, p.incarnation != ep.Incarnation(), now.Sub(p.since)
	p.up, p.since, p.incarnation = true, now, ep.Incarnation()
	b.mu.Unlock()
	if first {
		n.log.Info("peer connected", "peer", ep.String(), "principal", control.PrincipalOf(ep).Name, "how", direction(ep))
	} else {
		n.log.Info("peer is back", "peer", ep.String(), "principal", control.PrincipalOf(ep).Name, "how", direction(ep),
			"away", away.Round(time.Millisecond), "restarted", restarted)
	}
	n.work.Go(func() { n.lookForLost(ep) })
}

// peerWent tells of a node to which no connection is left.
func (n *Node) peerWent(ep *fabric.Endpoint, err error) {
	if !n.isNode(ep) || n.stopping.Load() {
		return
	}
	for _, other := range n.el.Endpoints() {
		if other != ep && other.Err() == nil && other.Incarnation() == ep.Incarnation() && isMember(other) {
			return // one of several connections
		}
	}
	b := n.peers
	b.mu.Lock()
	p := b.known[ep.Name()]
	if p == nil || !p.up || p.incarnation != ep.Incarnation() {
		b.mu.Unlock()
		return
	}
	p.up, p.since, p.why = false, time.Now(), err.Error()
	p.losses++
	b.losses++
	b.mu.Unlock()
	n.log.Warn("peer lost", "peer", ep.String(), "principal", control.PrincipalOf(ep).Name, "how", direction(ep), "err", err)
}

// lookForLost looks whether datasets have shards that went with a node's earlier life.
func (n *Node) lookForLost(ep *fabric.Endpoint) {
	now := time.Now()
	for _, s := range n.catalog.ShardsOf(ep.Name()) {
		if s.At == ep.Incarnation() || n.connectedTo(ep.Name(), s.At) || !n.peers.loses(s.Dataset, s.Version, ep.Name(), now) {
			continue
		}
		n.log.Error("shard lost: its node came back without it; remove the dataset, or load it again with --replace",
			"dataset", s.Dataset, "version", s.Version, "peer", ep.Name(), "was", s.At, "is", ep.Incarnation())
	}
}

// connectedTo reports whether an incarnation of a node is connected: of two with one name, say.
func (n *Node) connectedTo(name string, i fabric.Incarnation) bool {
	return slices.ContainsFunc(n.el.Endpoints(), func(ep *fabric.Endpoint) bool {
		return ep.Name() == name && ep.Incarnation() == i && ep.Err() == nil && isMember(ep)
	})
}

// loses keeps that a shard is gone, and reports whether that is new.
func (b *peerBook) loses(dataset string, version uint64, element string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lost[dataset]
	if l == nil || l.version < version {
		l = &lostShards{version, map[string]time.Time{}}
		b.lost[dataset] = l
	}
	if _, known := l.at[element]; known || l.version > version {
		return false
	}
	l.at[element] = now
	return true
}

// lostNow lists the lost shards of datasets that there still are in that version.
func (n *Node) lostNow() []control.LostShard {
	b := n.peers
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []control.LostShard{}
	for name, l := range b.lost {
		if n.catalog.Version(name) != l.version {
			delete(b.lost, name)
			continue
		}
		for element, at := range l.at {
			out = append(out, control.LostShard{Dataset: name, Version: l.version, Element: element, Noticed: at})
		}
	}
	slices.SortFunc(out, func(x, y control.LostShard) int {
		return cmp.Or(cmp.Compare(x.Dataset, y.Dataset), cmp.Compare(x.Element, y.Element))
	})
	return out
}

// peerStatus fills in the peers, and the lost shards of datasets that the asker may use.
func (n *Node) peerStatus(s *control.Status, who cluster.Principal) {
	lost := n.lostNow()
	s.ShardsLost = len(lost)
	s.LostShards = slices.DeleteFunc(lost, func(l control.LostShard) bool { return n.catalog.Rights(who, l.Dataset) == 0 })
	s.LostShards = s.LostShards[:min(len(s.LostShards), control.MaxStatusLost)]
	states := map[string]control.LinkState{}
	for _, l := range n.links.States() {
		states[l.Member.Name] = l
	}
	b := n.peers
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Peers = []control.PeerStatus{}
	for name, p := range b.known {
		st := control.PeerStatus{Name: name, Connected: p.up, Since: p.since, Incarnation: cluster.Incarnation(p.incarnation), Losses: p.losses}
		if !p.up {
			st.Error = p.why
		}
		if l, ok := states[name]; ok {
			st.Configured = true
			if l.Err != nil && !p.up {
				st.Error = l.Err.Error()
			}
			delete(states, name)
		}
		s.Peers = append(s.Peers, st)
	}
	for name, l := range states { // never connected
		st := control.PeerStatus{Name: name, Configured: true}
		if l.Err != nil {
			st.Error = l.Err.Error()
		}
		s.Peers = append(s.Peers, st)
	}
	slices.SortFunc(s.Peers, func(x, y control.PeerStatus) int { return cmp.Compare(x.Name, y.Name) })
}

// peerLosses is how often peers were lost.
func (n *Node) peerLosses() uint64 {
	n.peers.mu.Lock()
	defer n.peers.mu.Unlock()
	return n.peers.losses
}
