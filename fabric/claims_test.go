package fabric

import (
	"errors"
	"fmt"
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
	ep := newEndpoint(c.e, &peerInfo{&hello{name: who, incarnation: inc, window: 1 << 20, ops: 1}, p}, "attached:"+who)
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
	if len(c.e.claims) != 1 || c.e.idleClaims != 1 {
		t.Errorf("%d claims, %d of them idle", len(c.e.claims), c.e.idleClaims)
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
		if c.e.idleClaims > most {
			t.Fatalf("%d claims of peers that are not there, at most %d", c.e.idleClaims, most)
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
			if ep.claim != nil {
				of[ep.claim]++
			}
			if x := c.e.claims[ep.Incarnation()]; !ep.dialled && (x != ep.claim || x.holder != holderOf(ep.Principal())) {
				r.Fatalf("%v was accepted and has no claim", ep)
			}
		}
		for inc, x := range c.e.claims {
			if x.live != of[x] || (x.live == 0) != (x.idle != 0) {
				r.Fatalf("%v: %+v, %d endpoints", inc, x, of[x])
			}
			if x.live == 0 {
				idle++
			}
		}
		if idle != c.e.idleClaims || idle > 6 {
			r.Fatalf("%d idle claims, %d are counted", idle, c.e.idleClaims)
		}
	})
}
