package control

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// pair is two nodes' elements, a before b, that listen and keep links to each other without knowing an address:
// only the test dials.
type pair struct {
	a, b         *element
	addrA, addrB string
}

func newPair(t *testing.T, spare func(context.Context, *fabric.Endpoint, *fabric.Endpoint) bool) *pair {
	t.Helper()
	p := &pair{a: newElement(t, "a", true), b: newElement(t, "b", true)}
	p.b.links.cfg.Spare = spare
	for _, e := range []struct {
		of   *element
		addr *string
		peer string
	}{{p.a, &p.addrA, "b"}, {p.b, &p.addrB, "a"}} {
		var err error
		if *e.addr, err = e.of.el.Listen("tcp://127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		e.of.links.Add(cluster.Member{Name: e.peer})
	}
	return p
}

// dial has both dial: a first, b first, or both at once (0).
func (p *pair) dial(t *testing.T, first byte) (byA, byB *fabric.Endpoint) {
	t.Helper()
	var both sync.WaitGroup
	var errs [2]error
	dials := map[byte]func(){
		'a': func() { byA, errs[0] = p.a.el.Dial(t.Context(), p.addrB) },
		'b': func() { byB, errs[1] = p.b.el.Dial(t.Context(), p.addrA) },
	}
	if fn := dials[first]; fn != nil {
		fn()
		until(t, "the first connection", func() bool { return p.a.links.Endpoint("b") != nil && p.b.links.Endpoint("a") != nil })
		delete(dials, first)
	}
	for _, fn := range dials {
		both.Go(fn)
	}
	both.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return byA, byB
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for tries, end := 0, time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if tries++; tries > 3000 && time.Now().After(end) { // a machine that stood still has not looked
			t.Fatalf("never: %s", what)
		}
	}
}

// one reports whether both have one endpoint, the same connection, and use it.
func (p *pair) one(byA *fabric.Endpoint) bool {
	b := p.b.el.Endpoints()
	return slices.Equal(p.a.el.Endpoints(), []*fabric.Endpoint{byA}) && p.a.links.Endpoint("b") == byA &&
		len(b) == 1 && !b[0].Dialled() && p.b.links.Endpoint("a") == b[0]
}

// Of two connections that two nodes have made at once, that of the earlier one stays.
func TestOneOfTwo(t *testing.T) {
	for _, first := range []byte{0, 0, 0, 0, 0, 0, 'a', 'b'} {
		t.Run(string(max(first, '0')), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, nil)
			byA, _ := p.dial(t, first)
			until(t, "one connection", func() bool { return p.one(byA) })
			byA.Close() // and once more
			until(t, "no connection", func() bool { return len(p.a.el.Endpoints())+len(p.b.el.Endpoints()) == 0 })
			byA, _ = p.dial(t, first)
			until(t, "one connection again", func() bool { return p.one(byA) })
		})
	}
}

// The one that is not needed stays while something is under way on it, and if the other one is lost meanwhile.
func TestSpareInUse(t *testing.T) {
	var busy atomic.Bool
	var asked atomic.Int64
	busy.Store(true)
	p := newPair(t, func(_ context.Context, spare, other *fabric.Endpoint) bool {
		if !spare.Dialled() || other.Dialled() {
			t.Error("it is asked of the wrong one")
		}
		return asked.Add(1)%2 == 0 && busy.Load() // never quiet twice on end
	})
	byA, byB := p.dial(t, 'b')
	until(t, "asked four times", func() bool { return asked.Load() >= 4 })
	if byB.Err() != nil || p.a.links.Endpoint("b") != byA || p.b.links.Endpoint("a") == byB {
		t.Fatalf("in use: a has %v, b has %v", p.a.links.Endpoint("b"), p.b.links.Endpoint("a"))
	}
	byA.Close()
	until(t, "the one that stood by is used", func() bool {
		ep := p.a.links.Endpoint("b")
		return ep != nil && !ep.Dialled() && p.b.links.Endpoint("a") == byB
	})
	busy.Store(false)
	time.Sleep(3 * restEvery)
	if byB.Err() != nil {
		t.Fatalf("the only one was closed: %v", byB.Err())
	}
	byA, err := p.a.el.Dial(t.Context(), p.addrB)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "one connection", func() bool { return p.one(byA) })
}
