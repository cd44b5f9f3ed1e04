package bench

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// token is the client's part in a ring: it counts rounds and sends the token on
// until the last.
type token struct {
	next  *fabric.Endpoint
	left  atomic.Int64 // rounds still to go
	wrong atomic.Bool
	over  func() bool
	body  [8]byte // elements that had it
}

// handleRing passes the token on to the next server, or from the last to the client.
func (s *station) handleRing(spec *role) {
	var next *fabric.Endpoint
	var body [8]byte
	s.el.Handle(idRing, func(m fabric.Message) {
		if next == nil {
			next = s.successor(spec)
		}
		if len(m.Body) != len(body) || next == nil {
			m.From.Close()
			return
		}
		binary.LittleEndian.PutUint64(body[:], binary.LittleEndian.Uint64(m.Body)+1)
		next.Post(idRing, nil, body[:])
	})
}

// successor is the endpoint to the next element of the ring; every server was
// dialled by those that started later.
func (s *station) successor(spec *role) *fabric.Endpoint {
	name := "client"
	if spec.Index+1 < spec.Count {
		name = fmt.Sprintf("server%d", spec.Index+1)
	}
	for _, ep := range s.el.Endpoints() {
		if ep.Name() == name {
			return ep
		}
	}
	return nil
}

// onRing is the client's handler.
func (c *client) onRing(m fabric.Message) {
	t := &c.token
	if len(m.Body) != len(t.body) || binary.LittleEndian.Uint64(m.Body) != uint64(c.spec.Count) {
		t.wrong.Store(true)
		return
	}
	if t.left.Add(-1) > 0 {
		t.next.Post(idRing, nil, t.body[:])
	}
}

// turn sends the token round n times.
func (c *client) turn(n int) error {
	t := &c.token
	t.left.Store(int64(n))
	if err := t.next.Send(c.ctx, idRing, nil, t.body[:]); err != nil {
		return err
	}
	if err := c.el.WaitFor(c.ctx, t.over); err != nil {
		return err
	}
	if t.wrong.Load() {
		return fmt.Errorf("the token came back after the wrong number of elements")
	}
	return nil
}

// ringHops is how many hops are measured by default: the same number in every ring, since one of
// dozens, which share two processors, goes on much more slowly than one of a few.
const ringHops = 800_000

// ringRounds is how often the token goes round: as told, or about ringHops in all.
func ringRounds(spec *role) int {
	if spec.Rounds != 0 {
		return spec.Rounds
	}
	return ringHops / (spec.Count + 1) // the client is an element too
}

// ring measures a token that is passed round processes, one hop after the other.
func (c *client) ring() error {
	rounds := ringRounds(c.spec)
	t := &c.token
	t.next = c.eps[0]
	t.over = func() bool { return t.left.Load() <= 0 || t.wrong.Load() }
	elements := c.spec.Count + 1
	c.say("warm-up", 0)
	if err := c.turn(max(rounds/10, 1)); err != nil {
		return err
	}
	before, err := c.allocs()
	if err != nil {
		return err
	}
	n := max(rounds/ringTurns, 1)
	var rates samples
	for turn := range ringTurns {
		c.say("hops", float64(turn)/ringTurns)
		start := time.Now()
		if err := c.turn(n); err != nil {
			return err
		}
		rates = append(rates, float64(n*elements)/time.Since(start).Seconds())
	}
	after, err := c.allocs()
	if err != nil {
		return err
	}
	c.r.Set("hops_per_s", rates.p(0.5))
	c.r.Set("hops_per_s_min", rates.p(0))
	c.r.Set("ns_per_hop", 1e9/rates.p(0.5))
	c.r.Set("allocs_per_op", allocsPerOp(before, after, ringTurns*n))
	c.r.Set("payload_bytes", len(t.body))
	c.r.Set("hops", ringTurns*n*elements)
	return nil
}
