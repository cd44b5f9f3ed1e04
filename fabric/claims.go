package fabric

import "fmt"

// CapMember is the capability of a cluster's own elements, its nodes (cluster.CapMember). It is the only one that the fabric looks at.
const CapMember uint32 = 1 << 4

// Member reports whether a principal is one of the cluster's own elements.
func (p Principal) Member() bool { return p.Caps&CapMember != 0 }

// claim says whose an incarnation is. Peers tell anybody their incarnation, and anybody can connect under it; so it
// belongs to whoever first proved to be a principal under it, and for as long as this element lives, also
// while there is no endpoint to them: a pause must not be enough to take their place. Members have one claim among them, as a node may
// have a certificate and a token with different names, and it stands against any other: a node is not kept out by
// somebody who came first.
type claim struct {
	holder claimHolder
	live   int    // endpoints that have it
	idle   uint64 // which of those without any it became; 0: it has some
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

// mayClaim says why a peer that has dialled may not have the incarnation that it shows; e.mu is held. Where this element dials it has
// chosen whom to trust, so that is never refused.
func (e *Element) mayClaim(inc Incarnation, p Principal) error {
	c, who := e.claims[inc], holderOf(p)
	if c == nil || c.holder == who || who.member {
		return nil
	}
	whose := "a member's"
	if !c.holder.member {
		whose = "another principal's"
	}
	return fmt.Errorf("%w: incarnation %v is %s here, and principal %q shows it: an element draws its own at each start; restart this one", ErrRefused, inc, whose, p.Name)
}

// mayClaimInHello is what a peer hears in HELLO, once it has proved who it is.
func (e *Element) mayClaimInHello(info *peerInfo) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mayClaim(info.hello.incarnation, info.principal)
}

// claim gives an endpoint that begins its incarnation; e.mu is held. It returns the endpoints that had that without right: they are to
// be ended.
func (e *Element) claim(ep *Endpoint) (usurpers []*Endpoint) {
	inc, who := ep.Incarnation(), holderOf(ep.peer.principal)
	c := e.claims[inc]
	if c != nil && c.holder != who {
		if !who.member {
			return nil // this element dialled it: it has an endpoint, and no claim
		}
		for other := range e.endpoints {
			if other.claim == c && !other.dialled {
				usurpers = append(usurpers, other)
			}
		}
		e.unclaim(inc, c)
		c = nil
	}
	if c == nil {
		c = &claim{holder: who}
		e.claims[inc] = c
	}
	if c.idle != 0 {
		c.idle = 0
		e.idleClaims--
	}
	c.live++
	ep.claim = c
	return usurpers
}

// unclaim takes a claim off the table.
func (e *Element) unclaim(inc Incarnation, c *claim) {
	delete(e.claims, inc)
	if c.idle != 0 {
		e.idleClaims--
	}
}

// leaveClaim notes that an endpoint has ended; e.mu is held. Of claims without endpoints as many are kept as there may be endpoints.
func (e *Element) leaveClaim(ep *Endpoint) {
	c := ep.claim
	if c == nil {
		return
	}
	if c.live--; c.live > 0 || e.claims[ep.Incarnation()] != c {
		return
	}
	e.claimsLeft++
	c.idle = e.claimsLeft
	if e.idleClaims++; e.idleClaims > e.cfg.Limits.Endpoints {
		e.unclaim(e.leastClaim())
	}
}

// leastClaim is the claim that is given up first of those without endpoints: the oldest of the principal that has most of them, so
// that nobody pushes out others', and a member's only if there are no others.
func (e *Element) leastClaim() (least Incarnation, c *claim) {
	of := map[claimHolder]int{}
	for _, x := range e.claims {
		if x.idle != 0 {
			of[x.holder]++
		}
	}
	before := func(x, y *claim) bool {
		switch {
		case x.holder.member != y.holder.member:
			return y.holder.member
		case of[x.holder] != of[y.holder]:
			return of[x.holder] > of[y.holder]
		case x.holder != y.holder:
			return x.holder.name < y.holder.name
		}
		return x.idle < y.idle
	}
	for inc, x := range e.claims {
		if x.idle != 0 && (c == nil || before(x, c)) {
			least, c = inc, x
		}
	}
	return least, c
}

// endUsurpers ends endpoints whose incarnation has turned out to be a member's.
func (e *Element) endUsurpers(list []*Endpoint, member *Endpoint) {
	for _, ep := range list {
		err := fmt.Errorf("%w: it showed the incarnation of a member, which has connected now", ErrPeerLost)
		e.log.Warn("a peer showed a member's incarnation: connection ended", "peer", ep.String(), "principal", ep.peer.principal.Name, "member", member.String())
		ep.fail(err)
	}
}
