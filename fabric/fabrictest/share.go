package fabrictest

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
)

// What a crowd of connections may take up of an element: places, and memory for answers that nobody fetches.

// helloLimitPrincipal has one principal take as many places as it may, and another one come after it.
func helloLimitPrincipal(r *rig) {
	ours, theirs := tokens{name: "ours", secret: "o"}, tokens{name: "theirs", secret: "t"}
	n := r.node(auth(twoTokens{ours, theirs}), func(c *fabric.Config) { c.Limits.Endpoints, c.Limits.EndpointsPerPrincipal = 8, 2 })
	greedy := r.node(auth(ours), several)
	for range 2 {
		_, err := greedy.Dial(r.Ctx, n.addr)
		r.Must(err)
	}
	r.Eventually("both places are taken", func() bool { return len(n.Endpoints()) == 2 })
	for range 3 { // a refused one takes no place
		if _, err := greedy.Dial(r.Ctx, n.addr); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), "EndpointsPerPrincipal") {
			r.Errorf("a third endpoint of one principal: %v", err)
		}
	}
	r.connect(r.node(auth(theirs)), n)
	for range 3 { // what an element dials is its own affair: it takes no place of the principal's
		ep, err := n.Dial(r.Ctx, greedy.addr)
		r.Must(err)
		ep.Close()
	}
	if _, err := greedy.Dial(r.Ctx, n.addr); !errors.Is(err, fabric.ErrRefused) {
		r.Errorf("a third endpoint after endpoints the other way: %v", err)
	}
	before := len(n.Endpoints())
	greedy.Endpoints()[0].Close()
	r.Eventually("a place is free", func() bool { return len(n.Endpoints()) == before-1 })
	_, err := greedy.Dial(r.Ctx, n.addr)
	r.Must(err)
}

// twoTokens shows the first and knows both.
type twoTokens [2]tokens

func (a twoTokens) Self() (string, []byte) { return a[0].Self() }

func (a twoTokens) Lookup(name string) ([]byte, fabric.Principal, bool) {
	if secret, who, ok := a[0].Lookup(name); ok {
		return secret, who, ok
	}
	return a[1].Lookup(name)
}

func (a twoTokens) Anonymous(c fabric.PeerCred, ok bool) (fabric.Principal, bool) {
	return a[0].Anonymous(c, ok)
}

// messageUnreadCrowd has one element ask over many connections, for far more than may wait, and read nothing, while another
// is answered as ever.
func messageUnreadCrowd(r *rig) {
	const (
		bound   = 8 << 20
		beyond  = 2 << 20 // what one round of polls may add before the leader looks
		crowd   = 12
		rounds  = 500
		answers = 16 << 10
	)
	var lost atomic.Int64
	a := r.node(func(c *fabric.Config) {
		c.Limits.ReservedBytes, c.Limits.ReservedBytesInAll = bound, bound
		c.OnLost = func(_ *fabric.Endpoint, err error) {
			if errors.Is(err, fabric.ErrPeerLost) && strings.Contains(err.Error(), "ReservedBytesInAll") {
				lost.Add(1)
			}
		}
	})
	answer := make([]byte, answers)
	a.Handle(idData, func(m fabric.Message) { m.From.Post(idReply, nil, answer) })
	serveEcho(a)
	hostile, honest := r.node(several, func(c *fabric.Config) { c.Manual = true }), r.node() // nobody drives it: it reads nothing
	var got atomic.Int64
	honest.Handle(idReply, func(m fabric.Message) { got.Add(int64(len(m.Body))) })
	ep, back := r.connect(honest, a)
	var many []*fabric.Endpoint
	for range crowd {
		ep, err := hostile.Dial(r.Ctx, a.addr)
		r.Must(err)
		many = append(many, ep)
	}
	r.Eventually("all are connected", func() bool { return len(a.Endpoints()) == crowd+1 })
	most := 0
	for n := range rounds {
		for _, ep := range many {
			ep.TrySend(idData, nil, nil) // one that was ended says so
		}
		r.Must(ep.Send(r.Ctx, idEcho, nil, make([]byte, 100)))
		r.Must(honest.WaitFor(r.Ctx, func() bool { return got.Load() == int64(n+1)*100 }))
		waiting := 0
		for _, ep := range a.Endpoints() {
			waiting += ep.Stats().Reserved
		}
		most = max(most, waiting)
	}
	if most > bound+beyond {
		r.Errorf("%d bytes of answers waited, where %d may", most, bound)
	}
	if most < bound/2 || lost.Load() == 0 {
		r.Errorf("%d bytes of answers waited at most, and %d connections have ended for it", most, lost.Load())
	}
	if back.Err() != nil || ep.Err() != nil {
		r.Errorf("the honest one: %v, %v", ep.Err(), back.Err())
	}
}

// several has each Dial make a connection.
func several(c *fabric.Config) { c.Several = true }
