package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

const (
	// giveWayTime is how long after its start a node gives way to another of its
	// name that was there first. Later both only say so: what they hold is in use.
	giveWayTime = 10 * time.Second
	// namesakeTime bounds each question about a name that two seem to have. Of a node
	// that was restarted, the former life does not answer.
	namesakeTime = 2 * time.Second
	// maxIntroductions bounds those under way: many clients may have one name. What is
	// left out is noticed at another node, or at the next connection.
	maxIntroductions = 16
)

func isMember(ep *fabric.Endpoint) bool { return control.PrincipalOf(ep).Caps.Has(cluster.CapMember) }

// namesakes looks whether a new peer has the name of this node, or of another one
// that is connected. A node that was restarted meets its former life like this,
// so whether there are two is asked first.
func (n *Node) namesakes(ep *fabric.Endpoint) {
	switch {
	case !isMember(ep):
	case ep.Name() == n.cfg.Name:
		if ep.Incarnation() != n.el.Incarnation() {
			n.introduction(func() { n.meet(ep) })
		}
	default:
		for _, other := range n.el.Endpoints() {
			if other.Name() == ep.Name() && other.Incarnation() != ep.Incarnation() && other.Err() == nil && isMember(other) {
				n.introduction(func() { n.introduce(other, ep) })
				return
			}
		}
	}
}

func (n *Node) introduction(fn func()) {
	if n.introducing.Add(1) > maxIntroductions || !n.work.Go(func() {
		defer n.introducing.Add(-1)
		fn()
	}) {
		n.introducing.Add(-1)
	}
}

// askWho asks a peer about itself; nil if it is no node, is about to stop, or does not answer.
func (n *Node) askWho(ep *fabric.Endpoint) *control.Info {
	ctx, cancel := context.WithTimeout(n.life, namesakeTime)
	defer cancel()
	info, err := control.Do[control.Info](ctx, n.rpc, ep, control.CallInfo, control.InfoRequest{Version: control.Version})
	if err != nil || info.Stopping {
		return nil
	}
	return info
}

// meet looks at a peer that has this node's name.
func (n *Node) meet(ep *fabric.Endpoint) {
	if info := n.askWho(ep); info != nil {
		n.namesake(&control.NamesakeRequest{Name: info.Name, Incarnation: info.Incarnation, Addrs: info.Addrs, UptimeMs: info.UptimeMs})
	}
}

// introduce tells two nodes of one name of each other, if both are there.
func (n *Node) introduce(a, b *fabric.Endpoint) {
	eps := [2]*fabric.Endpoint{a, b}
	var who [2]*control.Info
	var both sync.WaitGroup
	for i, ep := range eps {
		both.Go(func() { who[i] = n.askWho(ep) })
	}
	both.Wait()
	if who[0] == nil || who[1] == nil {
		n.log.Debug("of two elements of one name one does not answer: it was restarted", "name", b.Name(), "earlier", a.String(), "later", b.String())
		return
	}
	n.log.Error("two nodes have one name: give each a name of its own (--name), and stop one until then", "name", b.Name(),
		"one", whereText(who[0].Addrs, who[0].Incarnation), "other", whereText(who[1].Addrs, who[1].Incarnation))
	for i, ep := range eps {
		other := who[1-i]
		both.Go(func() {
			ctx, cancel := context.WithTimeout(n.life, namesakeTime)
			defer cancel()
			_, err := control.Do[control.Nothing](ctx, n.rpc, ep, control.CallNamesake,
				control.NamesakeRequest{Name: other.Name, Incarnation: other.Incarnation, Addrs: other.Addrs, UptimeMs: other.UptimeMs})
			if err != nil {
				n.log.Debug("a node does not hear of its namesake", "node", ep.String(), "err", err)
			}
		})
	}
	both.Wait()
}

func whereText(addrs []string, i control.Incarnation) string {
	return fmt.Sprintf("%s (%v)", strings.Join(addrs[:min(len(addrs), cluster.MaxAddrs)], ", "), i)
}

// heardOfNamesake serves a peer's word that there is another node of this one's name.
func (n *Node) heardOfNamesake(_ context.Context, c *rpc.Call, req *control.NamesakeRequest) (*control.Nothing, error) {
	if who := control.PrincipalOf(c.From); !who.Caps.Has(cluster.CapMember) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability member", Do: "only nodes say this"}
	}
	other := cluster.Member{Name: req.Name, Addrs: req.Addrs}
	if err := other.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrRequest, err)
	}
	if req.Name != n.cfg.Name || req.Incarnation == control.Incarnation(n.el.Incarnation()) {
		return nil, fmt.Errorf("%w: this is %s (%v), not a namesake of %s (%v)", control.ErrRequest, n.cfg.Name, n.el.Incarnation(), req.Name, req.Incarnation)
	}
	n.namesake(req)
	return &control.Nothing{}, nil
}

// namesake takes in that another node has this one's name: the later of the two
// does not start.
func (n *Node) namesake(other *control.NamesakeRequest) {
	up := time.Since(n.started)
	if n.stopping.Load() || n.namesakeSeen.Swap(uint64(other.Incarnation)) == uint64(other.Incarnation) {
		return
	}
	this, that := whereText(n.Addrs(), control.Incarnation(n.el.Incarnation())), whereText(other.Addrs, other.Incarnation)
	n.log.Error("another node has this node's name: give each a name of its own (--name), and stop one until then", "name", n.cfg.Name, "this", this, "other", that)
	if up >= giveWayTime || other.UptimeMs < up.Milliseconds() {
		return
	}
	n.fail(fmt.Errorf("node %s: %w: the node at %s had it first; this one, at %s, does not start: give it a name of its own with --name, or stop the other first",
		n.cfg.Name, control.ErrNameTaken, that, this))
}

// dialNamesake looks once at those addresses of this node's own entry among the peers
// that it does not listen at: whoever is there must not have its name.
func (n *Node) dialNamesake(own cluster.Member) {
	own.Addrs = slices.DeleteFunc(slices.Clone(own.Addrs), func(a string) bool { return slices.Contains(n.addrs, a) || slices.Contains(n.cfg.Listen, a) })
	if len(own.Addrs) == 0 {
		return
	}
	ep, err := n.links.Dial(n.life, own)
	if err != nil {
		return // nobody, or somebody with a name of its own
	}
	defer ep.Close()
	if ep.Incarnation() == n.el.Incarnation() {
		return // itself, by another address
	}
	n.meet(ep)
	timer := time.NewTimer(namesakeTime) // it asks too
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.life.Done():
	}
}
