package faulttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// words is enough for two pages of 64 KiB.
const words = 1 << 14

// TestKeys covers: a key in the shard table that is wrong, too narrow, without
// the rights, revoked, or made larger or mightier by its holder. The branch is
// refused before it runs; the error names window, element, function and reason.
func TestKeys(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	readable := guestImage(t, "faults", nil)
	writing := guestImage(t, "faults", func(m *image.Manifest) { m.Windows = []image.Window{{Name: "words", Writable: true}} })
	n0 := g.nodes[0].own
	narrow := func(t *testing.T, k fabric.Key, size uint64) fabric.Key {
		k, err := n0.Narrow(k, 0, size, fabric.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, c := range []struct {
		name    string
		img     *image.Image
		payload []byte
		change  func(*testing.T, *cluster.Window)
		reason  []string
	}{
		{"wrong secret", readable, order(8, 0, 0), func(_ *testing.T, w *cluster.Window) { w.Key.Secret[3] ^= 1 }, []string{"no such key"}},
		{"wrong slot", readable, order(8, 0, 0), func(_ *testing.T, w *cluster.Window) { w.Key.Slot = 60000 }, []string{"no such key"}},
		{"revoked", readable, order(8, 0, 0), func(t *testing.T, w *cluster.Window) {
			if err := n0.Revoke(w.Key); err != nil {
				t.Fatal(err)
			}
		}, []string{"revoked"}},
		{"too narrow, and said to be larger", readable, order(8, 0, 0), func(t *testing.T, w *cluster.Window) {
			w.Key = narrow(t, w.Key, 1<<16)
			w.Key.Size = w.Size
		}, []string{"outside the key's range", "covers 65536"}},
		{"narrowed to a part of a page", readable, order(8, 0, 0), func(t *testing.T, w *cluster.Window) {
			w.Key = narrow(t, w.Key, 100)
			w.Size = 100
		}, []string{"pages", "narrow"}},
		{"read-only, for a function that writes", writing, order(8, 0, 0), func(t *testing.T, w *cluster.Window) {
			w.Key = narrow(t, w.Key, w.Size)
		}, []string{"lacks the right"}},
		{"read-only, and said to be writable", writing, order(8, 0, 0), func(t *testing.T, w *cluster.Window) {
			w.Key = narrow(t, w.Key, w.Size)
			w.Key.Rights = fabric.RightsAll
		}, []string{"lacks the right"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := g.table(words, fabric.RightsAll, number)
			table.Kind, table.Rows = cluster.Raw, table.Sharding.Rows
			c.change(t, &table.Shards[0].Windows[0])
			f := g.prepare(g.client, c.img, table)
			_, err := f.Do(within(t, patience), inject.Root{Payload: c.payload}, nil)
			if !errors.Is(err, travel.ErrRefused) {
				t.Errorf("%v is not ErrRefused", err)
			}
			says(t, err, append(c.reason, "n0", "faults", "window 0 of words")...)
			if _, err := f.Do(within(t, patience), inject.Root{Element: 1, Payload: c.payload}, nil); err != nil {
				t.Errorf("at the other element, whose key is good: %v", err)
			}
		})
	}
	g.serves()
}

// TestForgedRights covers: what a key's holder writes into it gives no right to
// host calls either, here or at another element.
func TestForgedRights(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	table := g.table(words, fabric.RightRead, number)
	for i := range table.Shards {
		table.Shards[i].Windows[0].Key.Rights = fabric.RightsAll
	}
	f := g.prepare(g.client, guestImage(t, "faults", nil), table)
	for element := range uint32(2) {
		for name, op := range map[string]uint32{"put": 17, "atomic": 18} {
			_, err := f.Do(within(t, patience), inject.Root{Payload: order(op, element, 64)}, nil)
			says(t, err, "n0", "faults", "status -3")
			got, err := f.Do(within(t, patience), inject.Root{Payload: order(16, element, 64)}, nil)
			if err != nil || got[0] != 8 || strings.Contains(string(got), "\xee") {
				t.Errorf("after %s at element %d: %x, %v", name, element, got, err)
			}
		}
	}
	_, err := f.Do(within(t, patience), inject.Root{Payload: order(16, 1, words*8-7)}, nil)
	says(t, err, "n0", "faults", "status -1", "range")
	g.serves()
}

// TestRevokedMeanwhile covers: a key revoked after functions have used it; the
// next call is refused, there and from other elements.
func TestRevokedMeanwhile(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	table := g.table(words, fabric.RightsAll, number)
	f := g.prepare(g.client, guestImage(t, "faults", nil), table)
	ctx := within(t, patience)
	for e := range uint32(2) {
		if got, err := f.Do(ctx, inject.Root{Element: e, Payload: order(16, 0, 8)}, nil); err != nil || got[0] != 1 {
			t.Fatalf("%x, %v", got, err)
		}
		for range 3 { // which its instance at hand serves at last
			if got, err := f.Do(ctx, inject.Root{Element: e, Payload: order(8, 0, 8)}, nil); err != nil || len(got) != 1 {
				t.Fatalf("%x, %v", got, err)
			}
		}
	}
	if err := g.nodes[0].own.Revoke(table.Shards[0].Windows[0].Key); err != nil {
		t.Fatal(err)
	}
	for _, op := range []uint32{8, 16} { // a load from the window, and a host call
		_, err := f.Do(ctx, inject.Root{Payload: order(op, 0, 8)}, nil)
		if !errors.Is(err, travel.ErrRefused) {
			t.Errorf("op %d: %v is not ErrRefused", op, err)
		}
		says(t, err, "n0", "faults", "window 0", "revoked")
	}
	_, err := f.Do(ctx, inject.Root{Element: 1, Payload: order(16, 0, 8)}, nil)
	says(t, err, "n1", "faults", "status -4", "revoked")
	g.serves()
}

// TestRevokedUnderWay covers: a key revoked while a function that has it runs. Its next host call is refused, on the
// window of its own element and on another's.
func TestRevokedUnderWay(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	table := g.table(words, fabric.RightsAll, number)
	f := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), table)
	ctx := within(t, patience)
	const wait = patience / 2
	roots := []inject.Root{{Payload: order(23, 0, uint64(wait))}, {Element: 1, Payload: order(23, 0, uint64(wait))}}
	for _, r := range roots { // what they need is there
		if _, err := f.Do(ctx, inject.Root{Element: r.Element, Payload: order(23, 0, 0)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var running []*inject.Future
	for _, r := range roots {
		fut, err := f.Start(ctx, []inject.Root{r}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, fut)
	}
	for i := range g.nodes {
		g.runsAt(i, 1)
	}
	if err := g.nodes[0].own.Revoke(table.Shards[0].Windows[0].Key); err != nil {
		t.Fatal(err)
	}
	for i, fut := range running {
		_, err := fut.Wait(ctx)
		says(t, err, g.nodes[i].name, "faults", "status -4")
	}
	g.serves()
}

// TestRestartedElement covers: a shard table of an element's earlier life. The
// error says that it is old; with a new table the element serves, though it has
// lost the code.
func TestRestartedElement(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, []int{1}, nil)
	old := g.plain()
	img := guestImage(t, "journey", nil)
	f := g.prepare(g.client, img, old)
	tour := inject.Root{Payload: order(1, 5, 0)}
	if _, err := f.Do(within(t, patience), tour, nil); err != nil {
		t.Fatal(err)
	}
	g.nodes[1].kill()
	g.serves()
	again := g.add(settings{Name: "n1", Token: "cluster", Engine: true}, true)
	g.ep["n1"] = g.connect(g.client, again)

	// The old table still names the element's earlier incarnation.
	_, err := f.Do(within(t, patience), tour, nil)
	says(t, err, "n0", "journey", "no endpoint to element n1")
	start := time.Now()
	_, err = f.Do(within(t, patience), inject.Root{Element: 1, Payload: order(1, 5, 0)}, nil)
	says(t, err, "n1", "journey", "restarted", "fetch the table again")
	soon(t, start, atOnce)
	_, err = f.Do(within(t, patience), inject.Root{To: g.ep["n1"], Payload: order(1, 5, 0)}, nil)
	says(t, err, "n1", "journey")

	g.nodes = []*node{g.nodes[0], again}
	f = g.prepare(g.client, img, g.plain())
	if _, err := f.Do(within(t, patience), tour, nil); err != nil {
		t.Errorf("with a new table: %v", err)
	}
	g.serves()
}

// TestKeyOfEarlierLife covers: a table whose shard names the element's present
// incarnation cannot carry a key of an earlier one.
func TestKeyOfEarlierLife(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	table := g.plain()
	table.Shards[0].Windows[0].Key.Owner++
	_, err := g.client.rt.Prepare(guestImage(t, "faults", nil), table)
	says(t, err, "incarnation", "window 0", "n0")
	g.serves()
}

// TestNoInject covers: an origin without the capability is refused before its
// code is looked at: what it sends as code is garbage, and nobody says so.
func TestNoInject(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	nobody := g.newClient(settings{Name: "nobody's", Token: "nobody"})
	to := g.connect(nobody, g.nodes[0])
	f := g.prepare(nobody, guestImage(t, "faults", nil), nil)
	_, err := f.Do(within(t, patience), inject.Root{To: to, Payload: order(0, 0, 0)}, nil)
	if !errors.Is(err, travel.ErrRefused) {
		t.Errorf("%v is not ErrRefused", err)
	}
	says(t, err, "n0", "faults", "nobody's may not inject")

	h := newHostile(t, g, "nobody", 0)
	code := []byte(image.Magic + "and then nonsense")
	h.inject(injection{seq: 1, image: idOf(code), inline: code})
	h.expect(kindRefused, "may not inject")
	h.inject(injection{seq: 2, transfer: 1, image: idOf([]byte("asked for"))})
	h.expect(kindRefused, "may not inject")
	if n := h.count(kindNeed); n != 0 {
		t.Errorf("the element asked for code %d times", n)
	}
	if s := g.nodes[0].report(t).Stats; s.CacheCount > 0 {
		t.Errorf("%d objects got into the cache", s.CacheCount)
	}
	g.serves()
}

// TestForwardForOthers covers: a peer that is no member cannot forward on
// another origin's behalf; a member can.
func TestForwardForOthers(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	f := g.prepare(g.client, guestImage(t, "journey", nil), g.plain())
	if _, err := f.Do(within(t, patience), inject.Root{Payload: order(1, 6, 0)}, nil); err != nil {
		t.Fatalf("members forward: %v", err)
	}
	h := newHostile(t, g, "bob", 0)
	h.inject(injection{seq: 1, origin: uint64(g.client.Incarnation()), image: idOf([]byte("x"))})
	h.expect(kindRefused, "no member")
	h.inject(injection{seq: 2, transfer: 1, origin: uint64(g.nodes[0].inc), image: idOf([]byte("x"))})
	h.expect(kindRefused, "no member")
	g.serves()
}

// TestStolenIncarnation covers: a peer that says it is another, by its
// incarnation, is refused, also while that one is away; it gets neither its authority nor its messages.
func TestStolenIncarnation(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	for name, inc := range map[string]uint64{"a client": uint64(g.client.Incarnation()), "a node": uint64(g.nodes[1].inc)} {
		el := strange(t, "bob", inc)
		if ep, err := el.Dial(within(t, patience), g.nodes[0].addrs[0]); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), "bob") {
			t.Errorf("bob as %s: %v, %v", name, ep, err)
		}
	}
	g.serves()
}
