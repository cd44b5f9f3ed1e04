package node

import (
	"cmp"
	"context"
	"errors"
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
	// nameCheckTime bounds each question about a name that two seem to have, and
	// nameCheckTries how often a busy node is asked. Of a node that was restarted, the former life does not answer.
	nameCheckTime  = 2 * time.Second
	nameCheckTries = 3
	// maxIntroductions bounds those under way: many clients may have one name. What is
	// left out is noticed at another node, or at the next connection.
	maxIntroductions = 16
)

func isMember(ep *fabric.Endpoint) bool { return control.PrincipalOf(ep).Caps.Has(cluster.CapMember) }

// checkName looks whether a new peer has the name of this node, or of another one
// that is connected. A node that was restarted meets its former life like this,
// so whether there are two is asked first.
func (n *Node) checkName(ep *fabric.Endpoint) {
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
	for range nameCheckTries {
		ctx, cancel := context.WithTimeout(n.life, nameCheckTime)
		info, err := control.Do[control.Info](ctx, n.rpc, ep, control.CallInfo, control.InfoRequest{Version: control.Version})
		cancel()
		switch {
		case err == nil && !info.Stopping:
			return info
		case !errors.Is(err, context.DeadlineExceeded) || ep.Err() != nil:
			return nil
		}
	}
	return nil
}

// meet looks at a peer that has this node's name, and tells it of this one: one of
// them may be about to end, and with it the connection.
func (n *Node) meet(ep *fabric.Endpoint) {
	other := n.askWho(ep)
	if other == nil {
		return
	}
	n.tell(ep, &control.NameConflict{Name: n.cfg.Name, Incarnation: cluster.Incarnation(n.el.Incarnation()), Addrs: n.Addrs(),
		UptimeMs: time.Since(n.started).Milliseconds(), StartedUnixMs: n.started.UnixMilli()})
	n.nameConflict(nameConflictOf(other))
}

func nameConflictOf(i *control.Info) *control.NameConflict {
	return &control.NameConflict{Name: i.Name, Incarnation: i.Incarnation, Addrs: i.Addrs, UptimeMs: i.UptimeMs, StartedUnixMs: i.StartedUnixMs}
}

// tell tells a node of another of its name.
func (n *Node) tell(ep *fabric.Endpoint, other *control.NameConflict) {
	ctx, cancel := context.WithTimeout(n.life, nameCheckTime)
	defer cancel()
	if _, err := control.Do[control.Nothing](ctx, n.rpc, ep, control.CallNameConflict, other); err != nil {
		n.log.Debug("a node does not hear of the other node of its name", "node", ep.String(), "err", err)
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
		both.Go(func() { n.tell(ep, nameConflictOf(who[1-i])) })
	}
	both.Wait()
}

func whereText(addrs []string, i cluster.Incarnation) string {
	return fmt.Sprintf("%s (%v)", strings.Join(addrs[:min(len(addrs), cluster.MaxAddrs)], ", "), i)
}

// heardOfNameConflict serves a peer's word that there is another node of this one's name.
func (n *Node) heardOfNameConflict(_ context.Context, c *rpc.Call, req *control.NameConflict) (*control.Nothing, error) {
	if who := control.PrincipalOf(c.From); !who.Caps.Has(cluster.CapMember) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability member", Do: "only nodes say this"}
	}
	if len(req.Addrs) > cluster.MaxAddrs {
		return nil, fmt.Errorf("%w: %d addresses, at most %d are allowed", control.ErrRequest, len(req.Addrs), cluster.MaxAddrs)
	}
	for _, a := range req.Addrs { // none of a node that is just starting to listen
		if err := cluster.ValidateAddr(a); err != nil {
			return nil, fmt.Errorf("%w: %w", control.ErrRequest, err)
		}
	}
	if req.Name != n.cfg.Name || req.Incarnation == cluster.Incarnation(n.el.Incarnation()) {
		return nil, fmt.Errorf("%w: this is %s (%v), which is not of the same name as %s (%v)", control.ErrRequest, n.cfg.Name, n.el.Incarnation(), req.Name, req.Incarnation)
	}
	n.nameConflict(req)
	return &control.Nothing{}, nil
}

// nameConflict takes in that another node has this one's name: the later of the two
// does not start.
func (n *Node) nameConflict(other *control.NameConflict) {
	if n.stopping.Load() || n.conflictSeen.Swap(uint64(other.Incarnation)) == uint64(other.Incarnation) {
		return
	}
	this, that := whereText(n.Addrs(), cluster.Incarnation(n.el.Incarnation())), whereText(other.Addrs, other.Incarnation)
	n.log.Error("another node has this node's name: give each a name of its own (--name), and stop one until then", "name", n.cfg.Name, "this", this, "other", that)
	if !givesWay(time.Since(n.started), n.started.UnixMilli(), cluster.Incarnation(n.el.Incarnation()), other) {
		return
	}
	n.fail(fmt.Errorf("node %s: %w: the node at %s had it first; this one, at %s, does not start: give it a name of its own with --name, or stop the other first",
		n.cfg.Name, control.ErrNameTaken, that, this))
}

// givesWay decides whether a node does not start because of another of its name. Both
// compare the same constants, each one's start by its own clock and its incarnation, so of
// two that start at once one stays, in whatever order and however often they hear of each other.
// One that is long there stays even if its clock is ahead.
func givesWay(up time.Duration, startedUnixMs int64, this cluster.Incarnation, other *control.NameConflict) bool {
	if up >= giveWayTime {
		return false
	}
	return other.UptimeMs >= giveWayTime.Milliseconds() ||
		cmp.Or(cmp.Compare(startedUnixMs, other.StartedUnixMs), cmp.Compare(this, other.Incarnation)) > 0
}

// dialSameName looks once at those addresses of this node's own entry among the peers
// that it does not listen at: an element there must not have its name.
func (n *Node) dialSameName(own cluster.Member) {
	known := append(n.Addrs(), n.cfg.Listen...)
	own.Addrs = slices.DeleteFunc(slices.Clone(own.Addrs), func(a string) bool { return slices.Contains(known, a) })
	if len(own.Addrs) == 0 {
		return
	}
	ep, err := n.links.Dial(n.life, own)
	if err != nil {
		return // nothing is there, or an element with a name of its own
	}
	if ep.Incarnation() == n.el.Incarnation() {
		ep.Close() // to itself, by another address: each dial makes one of its own
		return
	}
	n.meet(ep)
}
