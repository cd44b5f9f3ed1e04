package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/cputime"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// Store is what a cluster keeps, and how it ends.
type Store struct {
	cluster.Store
	Members cluster.Membership // those that keep it; nil: that is not this program's affair
	Where   string             // for messages
	Close   func() error       // nil: nothing is to be closed
	Failed  <-chan error       // says why it ended by itself; nil: it cannot
}

// managing is a node's part in a managed cluster. The zero value has none.
type managing struct {
	calls *control.Managing
	store *Store           // nil: this node manages nothing
	m     *manager.Manager // nil until Run

	mu     sync.Mutex
	joined []cluster.Member // all components, as managers say
	others []string         // all managers, as the one says that answered last
	said   error            // why it is not registered, logged last
}

// manages reports whether a configuration makes a node a manager.
func (c *Config) manages() bool { return c.Manager != "" || len(c.Etcd) > 0 }

// validateManagers checks what has to do with managers.
func (c *Config) validateManagers() error {
	if c.Manager != "" && len(c.Etcd) > 0 {
		return errors.New("manager and etcd: a node keeps the cluster's state itself or leaves it to an etcd cluster, not both")
	}
	if c.manages() && c.OpenStore == nil {
		return errors.New("manager: this program has no etcd: cmd/wherry has")
	}
	if len(c.ManagerPeers) > 0 && c.Manager == "" {
		return errors.New("manager_peers say where the etcd members of nodes with a manager directory are: give manager, too")
	}
	if c.ManagerNew && len(c.ManagerPeers) == 0 {
		return errors.New("--manager-new begins the cluster of manager_peers: give these, too; a manager without them is alone, and begins by itself")
	}
	for _, name := range c.Managers {
		if name != c.Name && !slices.ContainsFunc(c.Peers, func(m cluster.Member) bool { return m.Name == name }) {
			return fmt.Errorf("managers: %q is not among the peers: give its address there", name)
		}
		if name == c.Name && !c.manages() {
			return fmt.Errorf("managers: %q is this node, and it does not manage: give manager or etcd, or leave it out", name)
		}
	}
	return nil
}

// managers are the names of the managers that this node knows: itself first, where it is one.
func (c *Config) managers() []string {
	var names []string
	if c.manages() {
		names = append(names, c.Name)
	}
	for _, name := range c.Managers {
		if name != c.Name {
			names = append(names, name)
		}
	}
	return names
}

// managers are those of the configuration, and those that managers name.
func (n *Node) managers() []string {
	names := n.cfg.managers()
	n.managing.mu.Lock()
	defer n.managing.mu.Unlock()
	for _, name := range n.managing.others {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// openManager opens the store; nothing is served from it before Run.
func (n *Node) openManager() error {
	n.managing.calls = control.NewManaging(n.managers)
	if !n.cfg.manages() {
		return nil
	}
	s, err := n.cfg.OpenStore(&n.cfg)
	if err != nil {
		return err
	}
	n.managing.store = s
	return nil
}

// manage runs the manager, if this node is one, and registers the node with managers, if it knows any.
func (n *Node) manage() {
	if s := n.managing.store; s != nil {
		n.managing.m = manager.Start(manager.Config{Member: cluster.Member{Name: n.cfg.Name, Addrs: n.Addrs()},
			Incarnation: cluster.Incarnation(n.el.Incarnation()), Store: s.Where}, s, components{n, control.NewAsker(n.rpc, n.links.Wait)}, n.log)
		n.managing.calls.Set(n.managing.m, s.Members)
		n.log.Info("managing", "store", s.Where)
		if s.Failed != nil {
			n.work.Go(func() {
				select {
				case err := <-s.Failed:
					n.fail(fmt.Errorf("node %s: %s: %w", n.cfg.Name, s.Where, err))
				case <-n.life.Done():
				}
			})
		}
	}
	if len(n.cfg.managers()) > 0 {
		n.work.Go(n.register)
	}
}

// closeManager ends the manager, then its store.
func (n *Node) closeManager() error {
	if n.managing.m != nil {
		n.managing.m.Close()
	}
	if s := n.managing.store; s != nil && s.Close != nil {
		return s.Close()
	}
	return nil
}

// register tells a manager of this node every second, and another one where the first does not answer.
func (n *Node) register() {
	var req manager.RegisterRequest
	used, at := processTime(), time.Now()
	t := time.NewTicker(manager.RenewTime)
	defer t.Stop()
	for i := 0; n.life.Err() == nil; {
		managers := n.managers()
		name := managers[i%len(managers)]
		busy, now := processTime(), time.Now()
		if d := now.Sub(at); d >= manager.RenewTime/2 {
			req.Load = int(100 * (busy - used) / d / time.Duration(runtime.GOMAXPROCS(0)))
			used, at = busy, now
		}
		n.describe(&req)
		reply, err := n.registerWith(name, &req)
		n.sayRegistered(name, err)
		if err == nil {
			req.Lease, req.Seen = reply.Lease, reply.Members
			n.heardOf(name, reply)
			i = slices.Index(n.managers(), name)
		} else if i++; i%len(managers) != 0 {
			continue // the next one at once: leases are short
		}
		select {
		case <-t.C:
		case <-n.life.Done():
		}
	}
}

// processTime is the processor time of this process; 0 where it cannot be read.
func processTime() time.Duration {
	d, err := cputime.Process(os.Getpid())
	if err != nil {
		return 0
	}
	return d
}

// describe fills in what this node says of itself.
func (n *Node) describe(req *manager.RegisterRequest) {
	req.Name, req.Addrs, req.Incarnation = n.cfg.Name, n.Addrs(), cluster.Incarnation(n.el.Incarnation())
	req.Capacity, req.Local = 0, 0
	all, regions, bounds := n.account.Used()
	if bounds.Pool > 0 && !n.stopping.Load() {
		lendable := min(bounds.Pool, bounds.Bytes-(all.Bytes-regions.Bytes)+n.data.past.bytes("")) // datasets may have taken some of it
		req.Capacity = uint64(max(lendable, 0))
		req.Local = uint64(max(regions.Bytes-n.managedBytes(), 0))
	}
}

func (n *Node) registerWith(name string, req *manager.RegisterRequest) (*manager.RegisterReply, error) {
	ctx, cancel := context.WithTimeout(n.life, manager.RenewTime)
	defer cancel()
	if name == n.cfg.Name {
		return n.managing.m.Register(ctx, req)
	}
	ep, err := n.links.Wait(ctx, name)
	if err != nil {
		return nil, err
	}
	return control.Do[manager.RegisterReply](ctx, n.rpc, ep, manager.CallRegister, req)
}

// sayRegistered logs that the node is not known to managers, and that it is again, once each.
func (n *Node) sayRegistered(name string, err error) {
	g := &n.managing
	g.mu.Lock()
	was := g.said
	g.said = err
	g.mu.Unlock()
	switch {
	case n.life.Err() != nil:
	case err != nil && was == nil:
		n.log.Warn("not registered with a manager; trying on, and others", "manager", name, "err", err)
	case err == nil && was != nil:
		n.log.Info("registered with a manager", "manager", name)
	}
}

// heardOf takes whom a manager names, besides itself. The nodes become this node's peers, besides the configured ones; one that has left is not dialled any
// more, unless it is a manager still, or the one that answers.
func (n *Node) heardOf(name string, reply *manager.RegisterReply) {
	n.managing.mu.Lock()
	was := n.managing.joined
	if reply.Managers != nil {
		n.managing.others = append(slices.Clip(reply.Managers), name)
	}
	if reply.Nodes != nil {
		n.managing.joined = slices.Clip(reply.Nodes)
	}
	for _, m := range was { // this node is renewed over its connections to managers: an entry of theirs that is gone for a moment must not end these
		if reply.Nodes != nil && slices.Contains(n.managing.others, m.Name) && !slices.ContainsFunc(reply.Nodes, func(o cluster.Member) bool { return o.Name == m.Name }) {
			n.managing.joined = append(n.managing.joined, m)
		}
	}
	n.managing.mu.Unlock()
	if reply.Nodes == nil {
		return
	}
	added, removed := n.links.Keep(n.members(n.live.Load().Peers))
	for _, name := range added {
		n.log.Info("node joined", "peer", name)
	}
	for _, name := range removed {
		n.log.Info("node left", "peer", name)
	}
}

// members are the configured peers and those whom managers name.
func (n *Node) members(peers []cluster.Member) []cluster.Member {
	all := slices.Clone(peers)
	n.managing.mu.Lock()
	defer n.managing.mu.Unlock()
	for _, m := range n.managing.joined {
		if m.Name != n.cfg.Name && !slices.ContainsFunc(peers, func(p cluster.Member) bool { return p.Name == m.Name }) {
			all = append(all, m)
		}
	}
	return all
}

// components is how a manager reaches components: this node's own without a connection.
type components struct {
	n   *Node
	far pool.Asker
}

func (c components) Ask(ctx context.Context, name, call string, req, reply any) (*fabric.Endpoint, error) {
	if name != c.n.cfg.Name {
		return c.far.Ask(ctx, name, call, req, reply)
	}
	self := c.n.self()
	switch req := req.(type) {
	case *pool.ReserveRequest:
		return nil, cmp.Or(c.n.stoppingErr(), c.n.pool.Reserve(self, req))
	case *pool.ReleaseRequest:
		return nil, c.n.pool.Release(self, req)
	}
	held, err := c.n.pool.Held(self)
	if to, ok := reply.(*pool.HeldReply); ok && err == nil {
		*to = *held
	}
	return nil, err
}

func (c components) Call(ctx context.Context, ep *fabric.Endpoint, call string, req []byte) ([]byte, error) {
	return c.far.Call(ctx, ep, call, req)
}

// self is this node where it asks itself.
func (n *Node) self() cluster.Principal {
	return cluster.Principal{Name: n.cfg.Name, Caps: cluster.CapMember}
}

// managedBytes is what managers have placed here.
func (n *Node) managedBytes() (sum int64) {
	held, err := n.pool.Held(n.self())
	if err != nil {
		return 0
	}
	for _, h := range held.Parts {
		for _, p := range h.Parts {
			sum += int64(p.Size)
		}
	}
	return sum
}
