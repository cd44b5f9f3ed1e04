package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// comer connects peers to an element, each under an incarnation and as a principal.
type comer struct {
	t     testing.TB
	e     *Element
	heard []string // what a layer hears of endpoints
}

func newComer(t testing.TB, l Limits) *comer {
	t.Helper()
	c := &comer{t: t}
	e, err := New(Config{Name: "lone", Manual: true, Now: func() int64 { return 1 }, Incarnation: 1, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	e.Watch(func(ep *Endpoint) { c.heard = append(c.heard, "up "+ep.Name()) },
		func(ep *Endpoint, _ error) { c.heard = append(c.heard, "lost "+ep.Name()) })
	c.e = e
	return c
}

// come connects a peer that is called by its principal; "node…" are members'.
func (c *comer) come(inc Incarnation, who string, dialled bool) (*Endpoint, error) {
	p := Principal{Name: who}
	if strings.HasPrefix(who, "node") {
		p.Caps = CapMember
	}
	ep := newEndpoint(c.e, &peerInfo{hello: &hello{name: who, incarnation: inc, window: 1 << 20, ops: 1}, principal: p}, "attached:"+who)
	ep.dialled = dialled
	ep.opening.Lock()
	defer ep.opening.Unlock()
	if err := c.e.mayClaimInHello(ep.peer); err != nil && !dialled {
		if c.e.adopt(ep, &fakeLink{room: -1}) == nil {
			c.t.Fatal("what HELLO refuses is taken nevertheless")
		}
		return nil, err
	}
	return ep, c.e.adopt(ep, &fakeLink{room: -1})
}

func (c *comer) must(inc Incarnation, who string, dialled bool) *Endpoint {
	c.t.Helper()
	ep, err := c.come(inc, who, dialled)
	if err != nil {
		c.t.Fatalf("%s as %v: %v", who, inc, err)
	}
	return ep
}

func (c *comer) mustNot(inc Incarnation, who, says string) {
	c.t.Helper()
	if _, err := c.come(inc, who, false); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says) {
		c.t.Fatalf("%s as %v: %v", who, inc, err)
	}
}

// TestClaims: an incarnation is whose it was first, also when they are not there, and a member's whoever was first.
func TestClaims(t *testing.T) {
	c := newComer(t, Limits{})
	node := c.must(7, "node1", false)
	c.mustNot(7, "bob", "a member's")
	node.Close()
	c.mustNot(7, "bob", "a member's") // a pause is not enough
	c.must(7, "node2", false)         // another name of a member's

	ann := c.must(8, "ann", false)
	c.mustNot(8, "bob", "another principal's")
	second := c.must(8, "ann", false)
	ann.Close()
	c.mustNot(8, "bob", `principal "bob"`)
	second.Close()
	c.mustNot(8, "bob", "another principal's")
	c.must(8, "ann", false)
}

// TestClaimsOfMembers: a member that comes second gets its incarnation, and who had it is gone before anybody hears
// of the member.
func TestClaimsOfMembers(t *testing.T) {
	c := newComer(t, Limits{})
	thief, again := c.must(7, "bob", false), c.must(7, "bob", false)
	c.heard = nil
	node := c.must(7, "node", false)
	if got := fmt.Sprint(c.heard); got != "[lost bob lost bob up node]" {
		t.Errorf("layers heard %s", got)
	}
	for _, ep := range []*Endpoint{thief, again} {
		if err := ep.Err(); !errors.Is(err, ErrPeerLost) || !strings.Contains(err.Error(), "incarnation of a member") {
			t.Errorf("the thief's endpoint: %v", err)
		}
	}
	c.mustNot(7, "bob", "a member's")
	node.Close()
	c.mustNot(7, "bob", "a member's")
}

// TestClaimsOfDialled: whom this element has dialled is its own choice: never refused, and never ended for another's sake.
func TestClaimsOfDialled(t *testing.T) {
	c := newComer(t, Limits{})
	own := c.must(7, "ann", true) // as over shared memory, where a token says who the peer is
	node := c.must(7, "node", true)
	if own.Err() != nil || node.Err() != nil {
		t.Errorf("%v, %v", own.Err(), node.Err())
	}
	again := c.must(7, "ann", true)
	c.mustNot(7, "bob", "a member's")
	c.mustNot(7, "ann", "a member's")
	for _, ep := range []*Endpoint{own, node, again} {
		ep.Close()
	}
	c.mustNot(7, "bob", "a member's")
	if len(c.e.claims) != 1 || c.e.idleClaims.n != 1 {
		t.Errorf("%d claims, %d of them idle", len(c.e.claims), c.e.idleClaims.n)
	}
}

// TestEndpointsTo: an incarnation is reached by all endpoints of whom it belongs to, whatever names members have; by one that shows
// somebody else only if this element has dialled it, and while there is no other.
func TestEndpointsTo(t *testing.T) {
	c := newComer(t, Limits{})
	reach := func(want ...*Endpoint) {
		t.Helper()
		if got := c.e.EndpointsTo(7); !slices.Equal(got, want) {
			t.Errorf("reached by %v, want %v", got, want)
		}
	}
	reach()
	own := c.must(7, "ann", true)
	reach(own)
	node := c.must(7, "node1", false)
	reach(node)
	second := c.must(7, "node2", true)
	reach(node, second)
	bob := c.must(7, "bob", true)
	node.Close()
	reach(second)
	second.Close()
	reach(own, bob)
	node = c.must(7, "node2", false)
	reach(node)
	own.Close()
	node.Close()
	reach(bob)
	bob.Close()
	reach()

	ann := c.must(7+1, "ann", false)
	other := c.must(7+1, "bob", true)
	if got := c.e.EndpointsTo(7 + 1); !slices.Equal(got, []*Endpoint{ann}) {
		t.Errorf("beside ann's: %v", got)
	}
	ann.Close()
	if got := c.e.EndpointsTo(7 + 1); !slices.Equal(got, []*Endpoint{other}) {
		t.Errorf("after ann's: %v", got)
	}
	c.mustNot(7+1, "carol", "another principal's")
	if again := c.must(7+1, "ann", false); !slices.Equal(c.e.EndpointsTo(7+1), []*Endpoint{again}) {
		t.Errorf("ann is back, and is reached by %v", c.e.EndpointsTo(7+1))
	}
}

// TestClaimsAreBounded: who connects under many incarnations loses the oldest of their own, and nobody else any.
func TestClaimsAreBounded(t *testing.T) {
	const most = 8
	c := newComer(t, Limits{Endpoints: most})
	c.must(7, "node", false).Close()
	c.must(8, "ann", false).Close()
	live := c.must(9, "bob", false)
	for i := range Incarnation(5 * most) {
		c.must(100+i, "bob", false).Close()
		if c.e.idleClaims.n > most {
			t.Fatalf("%d claims of peers that are not there, at most %d", c.e.idleClaims.n, most)
		}
	}
	c.mustNot(7, "bob", "a member's")
	c.mustNot(8, "bob", "another principal's")
	c.mustNot(9, "ann", "another principal's")
	c.mustNot(100+5*most-1, "ann", "another principal's")
	c.must(100, "ann", false) // forgotten
	if live.Err() != nil {
		t.Error(live.Err())
	}
}

// TestClaimsModel: whoever is accepted has the claim, and the counts are right, whatever comes and goes.
func TestClaimsModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := newComer(t, Limits{Endpoints: 6})
		var live []*Endpoint
		for range rapid.IntRange(0, 80).Draw(r, "n") {
			if len(live) > 4 || len(live) > 0 && rapid.Bool().Draw(r, "close") {
				i := rapid.IntRange(0, len(live)-1).Draw(r, "which")
				live[i].Close()
				live = append(live[:i], live[i+1:]...)
				continue
			}
			inc := Incarnation(rapid.IntRange(2, 12).Draw(r, "incarnation"))
			who := rapid.SampledFrom([]string{"ann", "bob", "node1", "node2"}).Draw(r, "who")
			if ep, err := c.come(inc, who, rapid.Bool().Draw(r, "dialled")); err == nil {
				live = append(live, ep)
			}
			still := live[:0]
			for _, ep := range live {
				if ep.Err() == nil {
					still = append(still, ep)
				}
			}
			live = still
		}
		idle, of := 0, map[*claim]int{}
		for _, ep := range live {
			of[ep.claim]++
			x := c.e.claims[ep.Incarnation()]
			if x == nil || x != ep.claim || x.holder == holderOf(ep.Principal()) != slices.Contains(x.own, ep) || slices.Contains(x.own, ep) == slices.Contains(x.others, ep) {
				r.Fatalf("%v was accepted, and its claim is %+v", ep, x)
			}
			if reached := slices.Contains(c.e.EndpointsTo(ep.Incarnation()), ep); reached != (len(x.own) == 0 || x.holder == holderOf(ep.Principal())) || !reached && !ep.dialled {
				r.Fatalf("%v: %v, beside %v", ep, reached, x.own)
			}
		}
		for inc, x := range c.e.claims {
			if len(x.own)+len(x.others) != of[x] || (of[x] == 0) != (x.idle != nil) {
				r.Fatalf("%v: %+v, %d endpoints", inc, x, of[x])
			}
			if of[x] == 0 {
				idle++
			}
		}
		if idle != c.e.idleClaims.n || idle > 6 {
			r.Fatalf("%d idle claims, %d are counted", idle, c.e.idleClaims.n)
		}
	})
}

// TestLeastClaim: which claim goes is found without looking at all of them (comparisons are counted under the tag invariants), in the order that is promised.
func TestLeastClaim(t *testing.T) {
	const many = 1 << 12
	var q idleClaims
	var next Incarnation
	add := func(who claimHolder) {
		next++
		q.add(&claim{incarnation: next, holder: who})
	}
	for i := range many {
		add(claimHolder{name: fmt.Sprint(i)})
		add(claimHolder{member: true})
	}
	crowd := claimHolder{name: "17"}
	for range 100 {
		add(crowd)
	}
	for i := range 100 { // the one before the crowd is the oldest, and the last of it stays
		if least := q.least(); least.holder != crowd || i > 0 && least.incarnation != 2*many+Incarnation(i) {
			t.Fatalf("claim %d to go is %+v", i, least)
		}
		q.remove(q.least())
	}
	for n := many; n > 0; n-- {
		q.looked = 0
		add(claimHolder{name: fmt.Sprint("new", n)})
		least := q.least()
		q.remove(least)
		if least.holder.member || q.looked > 8*12 { // up and down a heap of 2^12 twice, two comparisons a level
			t.Fatalf("%+v goes after %d comparisons", least, q.looked)
		}
	}
}

// TestLeastClaimModel: the heap and the counts agree with a plain look at all.
func TestLeastClaimModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var q idleClaims
		var all []*claim // oldest first
		for i := range rapid.IntRange(1, 60).Draw(r, "n") {
			if len(all) > 0 && rapid.Bool().Draw(r, "remove") {
				at := rapid.IntRange(0, len(all)-1).Draw(r, "which")
				q.remove(all[at])
				q.remove(all[at])
				all = slices.Delete(all, at, at+1)
			} else {
				c := &claim{incarnation: Incarnation(i), holder: claimHolder{name: rapid.SampledFrom([]string{"ann", "bob", "carol"}).Draw(r, "who")}}
				if rapid.Bool().Draw(r, "member") {
					c.holder = claimHolder{member: true}
				}
				q.add(c)
				all = append(all, c)
			}
			of, most := map[claimHolder]int{}, 0
			for _, c := range all {
				if of[c.holder]++; !c.holder.member {
					most = max(most, of[c.holder])
				}
			}
			if q.n != len(all) || len(q.order) != len(of) || len(q.of) != len(of) {
				r.Fatalf("%d claims of %d principals, counted %d and %d", len(all), len(of), q.n, len(q.order))
			}
			if len(all) == 0 {
				continue
			}
			least := q.least()
			first := all[slices.IndexFunc(all, func(c *claim) bool { return c.holder == least.holder })]
			if least != first || least.holder.member && most > 0 || !least.holder.member && of[least.holder] != most {
				r.Fatalf("%+v goes, of %v", least, of)
			}
		}
	})
}
