// Package fabrictest is the conformance suite of fabric transports. A transport,
// also one from outside this tree, passes if Run does:
//
//	func TestConformance(t *testing.T) {
//		fabrictest.Run(t, func() (fabric.Transport, string, error) {
//			tr, err := tcp.New(tcp.Config{})
//			return tr, "tcp://127.0.0.1:0", err
//		})
//	}
//
// The suite drives real elements over the transport, in one process and in
// several: for the latter it runs the test binary again, so Run must be called
// from a top-level test. Every subtest has fresh elements, and fails if it
// leaves a goroutine or a descriptor behind. What the fabric does by itself, whatever its transport, is left to this package's own tests.
package fabrictest

import (
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// A Factory makes the transport of one element, and says where an element that
// has it can listen: an address with its scheme, another one each time or one that the
// system completes, as port 0.
type Factory func() (t fabric.Transport, listen string, err error)

// patience bounds every wait of the suite: no test comes near it unless something hangs.
const patience = time.Minute

// A check is one subtest.
type check struct {
	name string
	run  func(*rig)
}

// Traits are what a transport cannot help. The zero value allows nothing.
type Traits struct {
	// Allocs is how often a small operation may allocate, at either end, because
	// something that the transport is made of does.
	Allocs int
	// Local says that the transport reaches no other process. It must be a suite.Mortal then: what are processes over
	// another one are goroutines here, and its Crash is what kills them. What a process uses of the machine is not looked at.
	Local bool
}

// Run checks a transport.
func Run(t *testing.T, f Factory) { RunWith(t, f, Traits{}) }

// RunWith is Run for a transport with traits.
func RunWith(t *testing.T, f Factory, traits Traits) {
	if suite.BeChild(roles(f)) {
		return
	}
	for _, group := range []struct {
		name   string
		checks []check
	}{
		{"hello", helloChecks()},
		{"message", messageChecks()},
		{"memory", memoryChecks()},
		{"key", keyChecks()},
		{"order", orderChecks()},
		{"progress", progressChecks()},
		{"life", lifeChecks()},
		{"process", processChecks(traits.Local)},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.checks {
				suite.Run(t, c.name, patience, func(r *suite.Rig) { c.run(&rig{Rig: r, make: f, traits: traits}) })
			}
		})
	}
}

// rig is what one check works with: elements that end with it.
type rig struct {
	*suite.Rig
	make   Factory
	traits Traits
	nodes  int
}

// child has a role played, by a process if the transport reaches one.
func (r *rig) child(role string, args ...string) suite.Child {
	r.Helper()
	if !r.traits.Local {
		return r.Spawn(role, args...)
	}
	f, made := suite.Kept(r.make)
	return r.Play(roles(f)[role], made, args...)
}

// node is an element and where it listens.
type node struct {
	*fabric.Element
	addr string
}

// transport makes one that no element owns.
func (r *rig) transport() (fabric.Transport, string) {
	r.Helper()
	tr, listen, err := r.make()
	r.Must(err)
	r.AtEnd(func() { tr.Close() })
	return tr, listen
}

// node makes a listening element.
func (r *rig) node(change ...func(*fabric.Config)) *node {
	r.Helper()
	n, err := newNode(r.make, append([]func(*fabric.Config){func(c *fabric.Config) {
		c.Name = fmt.Sprintf("node %d", r.nodes)
	}}, change...)...)
	r.Must(err)
	r.nodes++
	r.AtEnd(func() {
		if err := n.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
	})
	return n
}

func newNode(f Factory, change ...func(*fabric.Config)) (*node, error) {
	tr, listen, err := f()
	if err != nil {
		return nil, err
	}
	cfg := fabric.Config{Transports: []fabric.Transport{tr}}
	for _, c := range change {
		c(&cfg)
	}
	el, err := fabric.New(cfg)
	if err != nil {
		tr.Close()
		return nil, err
	}
	addr, err := el.Listen(listen)
	if err != nil {
		el.Close()
		return nil, err
	}
	return &node{el, addr}, nil
}

// untold is how long leaders sleep in checks of wake-ups if nobody tells them: a wake-up that is lost then stays lost, and
// on a slow machine nothing else fails.
const untold = time.Hour

// untoldPair is pair, of elements that do nothing by the clock.
func (r *rig) untoldPair(change ...func(*fabric.Config)) (a, b *node, ab, ba *fabric.Endpoint) {
	r.Helper()
	a, b, ab, ba = r.pair(append(change, func(c *fabric.Config) { c.Limits.PeerTime = 8 * untold })...)
	for _, n := range []*node{a, b} {
		n.Layer(layer.Pass{}).TickEvery(untold)
	}
	return a, b, ab, ba
}

// pair makes two elements that are connected: a dialled b. change is for both.
func (r *rig) pair(change ...func(*fabric.Config)) (a, b *node, ab, ba *fabric.Endpoint) {
	r.Helper()
	a, b = r.node(change...), r.node(change...)
	ab, ba = r.connect(a, b)
	return a, b, ab, ba
}

// connect dials b from a; b must have no other endpoint to a.
func (r *rig) connect(a, b *node) (ab, ba *fabric.Endpoint) {
	r.Helper()
	ab, err := a.Dial(r.Ctx, b.addr)
	r.Must(err)
	r.Eventually("the accepting side has its endpoint", func() bool {
		for _, ep := range b.Endpoints() {
			if ep.Incarnation() == a.Incarnation() && ep != ab {
				ba = ep
			}
		}
		return ba != nil
	})
	return ab, ba
}
