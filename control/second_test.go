package control

import (
	"context"
	"errors"
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

// look is LinksConfig.Spare.
type look func(ctx context.Context, spare, other *fabric.Endpoint) (busy bool, err error)

func newPair(t *testing.T, spare look) *pair {
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
	p := newPair(t, func(_ context.Context, spare, other *fabric.Endpoint) (bool, error) {
		if !spare.Dialled() || other.Dialled() {
			t.Error("it is asked of the wrong one")
		}
		return asked.Add(1)%2 == 0 && busy.Load(), nil // never quiet twice on end
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

// A look that takes long is followed by as long a pause as any other before the one that decides.
func TestSpareIsQuietForLong(t *testing.T) {
	var ended time.Time // of the look before
	p := newPair(t, func(context.Context, *fabric.Endpoint, *fabric.Endpoint) (bool, error) {
		if pause := time.Since(ended); !ended.IsZero() && pause < restEvery {
			t.Errorf("%v between two looks", pause)
		}
		time.Sleep(2*restEvery + restEvery/4)
		ended = time.Now()
		return false, nil
	})
	byA, _ := p.dial(t, 'b')
	until(t, "one connection", func() bool { return p.one(byA) })
}

// However often the connection in use changes, only one look at a time is had at the one that is not needed.
func TestOneRestEach(t *testing.T) {
	var looks, asked atomic.Int64
	var quiet atomic.Bool
	p := newPair(t, func(context.Context, *fabric.Endpoint, *fabric.Endpoint) (bool, error) {
		if looks.Add(1) > 1 {
			t.Error("two looks at once")
		}
		defer looks.Add(-1)
		if asked.Add(1); !quiet.Load() {
			time.Sleep(2 * restEvery)
		}
		return !quiet.Load(), nil
	})
	byA, byB := p.dial(t, 'b')
	for range 3 {
		byA.Close()
		until(t, "the one that stood by is used", func() bool {
			ep := p.a.links.Endpoint("b")
			return ep != nil && !ep.Dialled() && p.b.links.Endpoint("a") == byB
		})
		var err error
		if byA, err = p.a.el.Dial(t.Context(), p.addrB); err != nil {
			t.Fatal(err)
		}
		until(t, "the new one is used", func() bool { return p.b.links.Endpoint("a") != byB })
	}
	time.Sleep(3 * restEvery)
	quiet.Store(true)
	until(t, "one connection", func() bool { return p.one(byA) })
}

// A peer that refuses to say what it has under way is not asked again, and the connection stays until another one is in use.
func TestSpareIsRefused(t *testing.T) {
	var asked atomic.Int64
	var knows atomic.Bool
	p := newPair(t, func(context.Context, *fabric.Endpoint, *fabric.Endpoint) (bool, error) {
		if asked.Add(1); !knows.Load() {
			return false, errors.New("no such call")
		}
		return false, nil
	})
	byA, byB := p.dial(t, 'b')
	until(t, "asked", func() bool { return asked.Load() > 0 })
	time.Sleep(4 * restEvery)
	if n := asked.Load(); n != 1 || byA.Err() != nil || byB.Err() != nil {
		t.Fatalf("asked %d times; %v, %v", n, byA.Err(), byB.Err())
	}
	byA.Close()
	until(t, "the one that stood by is used", func() bool { return p.b.links.Endpoint("a") == byB })
	knows.Store(true)
	byA, err := p.a.el.Dial(t.Context(), p.addrB)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "one connection", func() bool { return p.one(byA) })
}
