package fabric

import (
	"container/heap"
	"container/list"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/internal/invariants"
)

// CapMember is the capability of a cluster's own elements, its nodes (cluster.CapMember). It is the only one that the fabric looks at.
const CapMember uint32 = 1 << 4

// Member reports whether a principal is one of the cluster's own elements.
func (p Principal) Member() bool { return p.Caps&CapMember != 0 }

// claim says whose an incarnation is. Peers tell anybody their incarnation, and anybody can connect under it; so it
// belongs to whoever first proved to be a principal under it, and for as long as this element lives, also
// while there is no endpoint to them: a pause must not be enough to take their place. Members have one claim among them, as a node may
// have a certificate and a token with different names, and it stands against any other: a node is not kept out by
// a peer that came first.
type claim struct {
	incarnation Incarnation
	holder      claimHolder
	own         []*Endpoint   // the holder's, oldest first
	others      []*Endpoint   // that this element dialled and that show another principal
	idle        *list.Element // among the claims without endpoints
}

// claimHolder is a principal, or all members.
type claimHolder struct {
	member bool
	name   string // "" of members
}

func holderOf(p Principal) claimHolder {
	if p.Member() {
		return claimHolder{member: true}
	}
	return claimHolder{name: p.Name}
}

// EndpointsTo lists the endpoints by which an incarnation is reached, oldest first: those of the principal that it belongs to. While there
// is none, those that this element has dialled: it chose their addresses. No other endpoint is to be taken for that
// element, whatever it shows. What this says changes only with an endpoint's coming or going (Watch).
func (e *Element) EndpointsTo(inc Incarnation) []*Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.claims[inc]
	switch {
	case c == nil:
		return nil
	case len(c.own) > 0:
		return slices.Clone(c.own)
	}
	return slices.Clone(c.others)
}

// mayClaim says why a peer that has dialled may not have the incarnation that it shows; e.mu is held. Where this element dials it has
// chosen the principal to trust, so that claim is never refused.
func (e *Element) mayClaim(inc Incarnation, p Principal) error {
	c, who := e.claims[inc], holderOf(p)
	if c == nil || c.holder == who || who.member {
		return nil
	}
	whose := "a member's"
	if !c.holder.member {
		whose = "another principal's"
	}
	return fmt.Errorf("%w: incarnation %v is %s here, and principal %q shows it: an element draws its own at each start; restart this one", ErrTaken, inc, whose, p.Name)
}

// mayClaimInHello is what a peer hears in HELLO, once it has proved who it is.
func (e *Element) mayClaimInHello(info *peerInfo) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mayClaim(info.hello.incarnation, info.principal)
}

// claim lists an endpoint that begins under its incarnation; e.mu is held. It returns the endpoints that had that without right: they
// are to be ended.
func (e *Element) claim(ep *Endpoint) (usurpers []*Endpoint) {
	inc, who := ep.Incarnation(), holderOf(ep.peer.principal)
	c := e.claims[inc]
	if c == nil {
		c = &claim{incarnation: inc, holder: who}
		e.claims[inc] = c
	}
	e.idleClaims.remove(c)
	if c.holder != who && who.member {
		for _, other := range c.own {
			if other.dialled {
				c.others = append(c.others, other)
			} else {
				usurpers = append(usurpers, other)
				other.claim = nil
			}
		}
		c.holder, c.own = who, nil
	}
	ep.claim = c
	if c.holder == who {
		c.own = append(c.own, ep)
	} else {
		c.others = append(c.others, ep) // this element dialled it
	}
	return usurpers
}

// leaveClaim notes that an endpoint has ended; e.mu is held. Of claims without endpoints as many are kept as there may be endpoints.
func (e *Element) leaveClaim(ep *Endpoint) {
	c := ep.claim
	if c == nil {
		return
	}
	is := func(other *Endpoint) bool { return other == ep }
	c.own, c.others = slices.DeleteFunc(c.own, is), slices.DeleteFunc(c.others, is)
	if len(c.own)+len(c.others) > 0 {
		return
	}
	e.idleClaims.add(c)
	if e.idleClaims.n > e.cfg.Limits.Endpoints {
		least := e.idleClaims.least()
		e.idleClaims.remove(least)
		delete(e.claims, least.incarnation)
	}
}

// idleClaims are the claims without endpoints. The one to be given up first is the oldest of the principal that has most of them, so
// that no principal pushes out others' claims; a member's only if there are no others. It is found, and each change made, in
// the logarithm of the number of principals: a peer that connects and leaves does not cost a walk over all claims.
type idleClaims struct {
	n      int
	of     map[claimHolder]*idleOf
	order  []*idleOf // a heap
	looked int       // comparisons, where invariants are checked
}

// idleOf are one holder's, oldest first.
type idleOf struct {
	holder claimHolder
	list   list.List
	at     int // in the heap
}

func (q *idleClaims) add(c *claim) {
	of := q.of[c.holder]
	if of == nil {
		if q.of == nil {
			q.of = map[claimHolder]*idleOf{}
		}
		of = &idleOf{holder: c.holder}
		q.of[c.holder] = of
		heap.Push(q, of)
	}
	c.idle = of.list.PushBack(c)
	heap.Fix(q, of.at)
	q.n++
}

// remove takes a claim off, if it is there.
func (q *idleClaims) remove(c *claim) {
	if c.idle == nil {
		return
	}
	of := q.of[c.holder]
	of.list.Remove(c.idle)
	c.idle = nil
	q.n--
	if of.list.Len() > 0 {
		heap.Fix(q, of.at)
		return
	}
	heap.Remove(q, of.at)
	delete(q.of, of.holder)
}

func (q *idleClaims) least() *claim { return q.order[0].list.Front().Value.(*claim) }

// The heap's.

func (q *idleClaims) Len() int { return len(q.order) }

func (q *idleClaims) Less(i, j int) bool {
	if invariants.Enabled {
		q.looked++
	}
	x, y := q.order[i], q.order[j]
	if x.holder.member != y.holder.member {
		return y.holder.member
	}
	return x.list.Len() > y.list.Len()
}

func (q *idleClaims) Swap(i, j int) {
	q.order[i], q.order[j] = q.order[j], q.order[i]
	q.order[i].at, q.order[j].at = i, j
}

func (q *idleClaims) Push(of any) {
	of.(*idleOf).at = len(q.order)
	q.order = append(q.order, of.(*idleOf))
}

func (q *idleClaims) Pop() any {
	last := len(q.order) - 1
	of := q.order[last]
	q.order[last] = nil
	q.order = q.order[:last]
	return of
}

// endUsurpers ends endpoints whose incarnation has turned out to be a member's.
func (e *Element) endUsurpers(list []*Endpoint, member *Endpoint) {
	for _, ep := range list {
		err := fmt.Errorf("%w: it showed the incarnation of a member, which has connected now", ErrPeerLost)
		e.log.Warn("a peer showed a member's incarnation: connection ended", "peer", ep.String(), "principal", ep.peer.principal.Name, "member", member.String())
		ep.fail(err)
	}
}
