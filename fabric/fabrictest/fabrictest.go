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
// leaves a goroutine or a descriptor behind.
package fabrictest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
)

// A Factory makes the transport of one element, and says where an element that
// has it can listen: an address with its scheme, another one each time or one that the
// system completes, as port 0.
type Factory func() (t fabric.Transport, listen string, err error)

// patience bounds every wait of the suite: no test comes near it unless something hangs.
const patience = 30 * time.Second

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
}

// Run checks a transport.
func Run(t *testing.T, f Factory) { RunWith(t, f, Traits{}) }

// RunWith is Run for a transport with traits.
func RunWith(t *testing.T, f Factory, traits Traits) {
	if beChild(f) {
		return
	}
	warm(t, f)
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
		{"process", processChecks()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.checks {
				t.Run(c.name, func(t *testing.T) { runCheck(t, f, traits, c) })
			}
		})
	}
}

// warm connects once, so that what the runtime makes once (its poller's
// descriptors) is there before leaks are counted.
func warm(t *testing.T, f Factory) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := &rig{T: t, make: f, ctx: ctx}
	defer r.close()
	r.pair()
}

func runCheck(t *testing.T, f Factory, traits Traits, c check) {
	before := goleak.IgnoreCurrent()
	open := openFiles(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r := &rig{T: t, make: f, traits: traits, ctx: ctx}
	t.Cleanup(func() {
		start := time.Now()
		r.close()
		cancel()
		if d := time.Since(start); d > patience/2 {
			t.Errorf("closing the elements took %v", d)
		}
		goleak.VerifyNone(t, before)
		checkFiles(t, open)
	})
	c.run(r)
}

// openFiles lists this process's descriptors.
func openFiles(t testing.TB) map[string]string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			list[e.Name()] = to
		}
	}
	return list
}

// checkFiles fails the test if more descriptors are open than before. What is
// being closed gets a moment.
func checkFiles(t testing.TB, before map[string]string) {
	var now map[string]string
	for range 100 {
		if now = openFiles(t); len(now) <= len(before) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	for fd, to := range now {
		if before[fd] != to {
			t.Errorf("descriptor %s (%s) was left open", fd, to)
		}
	}
}

// rig is what one check works with: elements that end with it.
type rig struct {
	*testing.T
	make   Factory
	traits Traits
	ctx    context.Context
	nodes  []*node
	closer []func()
}

// node is an element and where it listens.
type node struct {
	*fabric.Element
	addr string
}

// atEnd has fn called before the elements are closed, last one first.
func (r *rig) atEnd(fn func()) { r.closer = append(r.closer, fn) }

func (r *rig) close() {
	for i := len(r.closer) - 1; i >= 0; i-- {
		r.closer[i]()
	}
	for _, n := range r.nodes {
		if err := n.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// transport makes one that no element owns.
func (r *rig) transport() (fabric.Transport, string) {
	r.Helper()
	tr, listen, err := r.make()
	r.must(err)
	r.atEnd(func() { tr.Close() })
	return tr, listen
}

// node makes a listening element.
func (r *rig) node(change ...func(*fabric.Config)) *node {
	r.Helper()
	n, err := newNode(r.make, append([]func(*fabric.Config){func(c *fabric.Config) {
		c.Name = fmt.Sprintf("node %d", len(r.nodes))
	}}, change...)...)
	r.must(err)
	r.nodes = append(r.nodes, n)
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
	ab, err := a.Dial(r.ctx, b.addr)
	r.must(err)
	r.eventually("the accepting side has its endpoint", func() bool {
		for _, ep := range b.Endpoints() {
			if ep.Incarnation() == a.Incarnation() && ep != ab {
				ba = ep
			}
		}
		return ba != nil
	})
	return ab, ba
}

// eventually polls cond; the elements make progress by themselves.
func (r *rig) eventually(what string, cond func() bool) {
	r.Helper()
	for !cond() {
		if r.ctx.Err() != nil {
			r.Fatalf("never: %s", what)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// within runs fn on a goroutine and fails the test if it takes longer than d.
func (r *rig) within(d time.Duration, what string, fn func() error) {
	r.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		if err != nil {
			r.Fatalf("%s: %v", what, err)
		}
	case <-time.After(d):
		r.Fatalf("%s: not done in %v", what, d)
	}
}

// pattern fills n bytes that differ with seed and place.
func pattern(n int, seed uint32) []byte {
	b := make([]byte, n)
	x := seed*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
