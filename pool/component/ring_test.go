package component

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// reader is one of many principals.
func reader(i int) cluster.Principal {
	return cluster.Principal{Name: fmt.Sprint("p", i), Caps: cluster.CapRead}
}

// shelf makes a region with items that everybody may read.
func shelf(t *testing.T, c *Component, items int) (ref pool.NameRequest, numbers []uint32) {
	t.Helper()
	r, err := c.Create(ann, nil, &pool.CreateRequest{Name: "shelf", Size: 1 << 20})
	must(t, err)
	ref = pool.NameRequest{Region: r.Region}
	must(t, c.Grant(ann, &pool.GrantRequest{NameRequest: ref, To: cluster.Everyone, Rights: "r"}))
	for range items {
		it, err := c.CreateItem(ann, &pool.ItemCreateRequest{NameRequest: ref, Size: 64})
		must(t, err)
		numbers = append(numbers, it.Number)
	}
	return ref, numbers
}

// key is the first key of a principal's descriptor of an item.
func key(t *testing.T, c *Component, who cluster.Principal, ref pool.NameRequest, number uint32) fabric.Key {
	t.Helper()
	table, err := c.LookupItem(who, &pool.ItemRequest{NameRequest: ref, Number: number})
	must(t, err)
	k, err := fabric.DecodeKey(table.Pieces[0].Key)
	must(t, err)
	return k
}

// TestKeysOfMany: however many principals look items up, others can too: an element has 65,536 keys, and these look up more.
func TestKeysOfMany(t *testing.T) {
	limits, principals := Limits{}, 700
	if testing.Short() { // the race detector makes 70,000 keys long
		limits, principals = Limits{Keys: 4900}, 70
	}
	c, _ := newComponent(t, 1<<30, limits)
	ref, numbers := shelf(t, c, 100)
	for i := range principals {
		for _, n := range numbers {
			if _, err := c.LookupItem(reader(i), &pool.ItemRequest{NameRequest: ref, Number: n}); err != nil {
				t.Fatalf("principal %d, item %d: %v", i, n, err)
			}
		}
	}
	if c.keys.all > c.limits.Keys {
		t.Errorf("%d keys, and the limit is %d", c.keys.all, c.limits.Keys)
	}
}

// TestHoldersBounded: who had a key once, and has none any more, takes no memory for ever.
func TestHoldersBounded(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{Keys: 20})
	ref, numbers := shelf(t, c, 1)
	for i := range 2000 {
		k := key(t, c, reader(i), ref, numbers[0])
		if !c.el.Holds(k) {
			t.Fatalf("principal %d has no key", i)
		}
	}
	if n := len(c.regions[ref.Region].dir.items[numbers[0]].holders); n > 200 {
		t.Errorf("%d principals are remembered, and there are %d keys", n, c.keys.all)
	}
	last := key(t, c, reader(1999), ref, numbers[0])
	must(t, c.Grant(ann, &pool.GrantRequest{NameRequest: ref, To: "p1998", Rights: "r"}))
	if !c.el.Holds(last) {
		t.Error("a grant to another principal took a key away")
	}
	must(t, c.Grant(ann, &pool.GrantRequest{NameRequest: ref, To: cluster.Everyone, Rights: "none"}))
	if c.el.Holds(last) {
		t.Error("a right was taken away, and its key stays")
	}
}

// TestKeysAge: a principal that has its share loses the key that it has not asked for longest. Where all keys are given, the principal with most
// gives; who has less than its fair share keeps what it has. Keys to regions of one's own do not age.
func TestKeysAge(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{Keys: 122, PrincipalKeys: 60})
	ref, numbers := shelf(t, c, 90)
	region, err := c.Lookup(ann, nil, &pool.LookupRequest{NameRequest: ref})
	must(t, err)
	first := key(t, c, bob, ref, numbers[0])
	var last fabric.Key
	for _, n := range numbers[1:60] {
		last = key(t, c, bob, ref, n)
	}
	again := key(t, c, bob, ref, numbers[0])
	if first != again || !c.el.Holds(first) {
		t.Error("a key aged below the bound")
	}
	second := key(t, c, bob, ref, numbers[1])
	for _, n := range numbers[60:80] {
		key(t, c, bob, ref, n)
	}
	if !c.el.Holds(first) || !c.el.Holds(second) || !c.el.Holds(last) || c.keys.by["bob"].n > 60 {
		t.Errorf("bob has %d keys, and not those that it asked for last", c.keys.by["bob"].n)
	}
	var small []fabric.Key
	for i := range 5 {
		small = append(small, key(t, c, reader(i), ref, numbers[i]))
	}
	for range 3 {
		for _, n := range numbers {
			key(t, c, bob, ref, n)
			key(t, c, ann, ref, n)
		}
	}
	for i, k := range small {
		if !c.el.Holds(k) {
			t.Errorf("principal %d had one key, and lost it to principals that had %d and %d", i, c.keys.by["bob"].n, c.keys.by["ann"].n)
		}
	}
	if k, err := fabric.DecodeKey(region.Parts[0].Key); err != nil || !c.el.Holds(k) {
		t.Error("a key to a region aged")
	}
	if c.keys.all > 122 {
		t.Errorf("%d keys of 122", c.keys.all)
	}
	must(t, c.Destroy(ann, ref))
	if c.keys.all != 0 || len(c.keys.by) != 0 {
		t.Errorf("%d keys of %d principals are left, and the region is destroyed", c.keys.all, len(c.keys.by))
	}
}

// TestKeysOfRegions: keys to regions are bounded as well, and the error says what to do.
func TestKeysOfRegions(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{Keys: 20, PrincipalKeys: 10})
	for i := range 11 {
		_, err := c.Create(ann, nil, &pool.CreateRequest{Name: fmt.Sprint("r", i), Size: 1})
		if i < 10 {
			must(t, err)
		} else if !errors.Is(err, pool.ErrMemory) || !strings.Contains(err.Error(), "Limits.PrincipalKeys") {
			t.Errorf("an eleventh region's keys: %v", err)
		}
	}
	if _, err := c.Create(bob, nil, &pool.CreateRequest{Name: "other", Size: 1}); err != nil {
		t.Errorf("another principal: %v", err)
	}
	must(t, c.Destroy(ann, pool.NameRequest{Name: "r0"}))
	if _, err := c.Create(ann, nil, &pool.CreateRequest{Name: "next", Size: 1}); err != nil {
		t.Errorf("after one was destroyed: %v", err)
	}
}

// regions is a component, the regions there of two owners, which everybody may read, and what their owners were given.
type regions struct {
	t    *testing.T
	c    *Component
	refs []pool.NameRequest
	own  []*pool.Table
}

func newRegions(t *testing.T, n int, l Limits) *regions {
	t.Helper()
	g := &regions{t: t}
	g.c, _ = newComponent(t, 1<<30, l)
	for i := range n {
		owner := []cluster.Principal{ann, reader(1)}[i%2]
		owner.Caps |= cluster.CapWrite
		g.own = append(g.own, g.create(owner, fmt.Sprint("r", i), 4096))
		g.refs = append(g.refs, pool.NameRequest{Region: g.own[i].Region})
	}
	return g
}

func (g *regions) create(owner cluster.Principal, name string, size uint64) *pool.Table {
	g.t.Helper()
	table, err := g.c.Create(owner, nil, &pool.CreateRequest{Name: name, Size: size})
	must(g.t, err)
	must(g.t, g.c.Grant(owner, &pool.GrantRequest{NameRequest: pool.NameRequest{Region: table.Region}, To: cluster.Everyone, Rights: "r"}))
	return table
}

// good is how many of a table's keys have not ended.
func (g *regions) good(table *pool.Table) (n int) {
	g.t.Helper()
	for _, p := range table.Parts {
		k, err := fabric.DecodeKey(p.Key)
		must(g.t, err)
		if g.c.el.Holds(k) {
			n++
		}
	}
	return n
}

// lookup looks a region up; all keys of the answer are good.
func (g *regions) lookup(who cluster.Principal, ref pool.NameRequest) *pool.Table {
	g.t.Helper()
	table, err := g.c.Lookup(who, nil, &pool.LookupRequest{NameRequest: ref})
	must(g.t, err)
	if n := g.good(table); n != len(table.Parts) {
		g.t.Fatalf("%d of the %d keys to region %v that %s was given just now are good", n, len(table.Parts), ref, who.Name)
	}
	return table
}

// TestRegionKeysAge: whoever looks up more regions of others than it may have keys loses the key that it asked for longest ago, keys to items first. Owners
// keep the keys to their own regions. No key of an answer ends for another one of it.
func TestRegionKeysAge(t *testing.T) {
	g := newRegions(t, 14, Limits{Keys: 200, PrincipalKeys: 10})
	it, err := g.c.CreateItem(ann, &pool.ItemCreateRequest{NameRequest: g.refs[0], Size: 64})
	must(t, err)
	item := key(t, g.c, bob, g.refs[0], it.Number)
	var his []*pool.Table
	for i := range 9 {
		his = append(his, g.lookup(bob, g.refs[i]))
	}
	g.lookup(bob, g.refs[0])
	g.lookup(bob, g.refs[9])
	if g.c.el.Holds(item) || g.good(his[0]) != 1 || g.good(his[1]) != 1 {
		t.Error("at the bound a key to a region ended, and there was one to an item")
	}
	g.lookup(bob, g.refs[10])
	if g.good(his[0]) != 1 || g.good(his[1]) != 0 || g.good(his[2]) != 1 {
		t.Error("the key that ended is not the one that bob had asked for longest ago")
	}
	for range 3 {
		for _, ref := range g.refs {
			g.lookup(bob, ref)
		}
	}
	maker := reader(2)
	maker.Caps |= cluster.CapWrite
	big := pool.NameRequest{Region: g.create(maker, "big", 1<<16).Region}
	for i := range uint64(9) {
		_, err := g.c.Resize(maker, &pool.ResizeRequest{NameRequest: big, Size: (i + 2) << 16})
		must(t, err)
	}
	if table := g.lookup(bob, big); len(table.Parts) != 10 { // as many as bob may have keys
		t.Fatalf("%d extents, want 10", len(table.Parts))
	}
	g.c.keys.principal = 9
	if _, err := g.c.Lookup(reader(3), nil, &pool.LookupRequest{NameRequest: big}); !errors.Is(err, pool.ErrMemory) || !strings.Contains(err.Error(), "Limits.PrincipalKeys") {
		t.Errorf("a region of more extents than a principal may have keys: %v", err)
	}
	for i, table := range g.own {
		if g.good(table) != 1 {
			t.Errorf("the owner of region %d lost its key", i)
		}
	}
}

// TestRegionKeysOfMany: however many principals look a region up, others can too; owners keep their keys, and who has none any more is forgotten.
func TestRegionKeysOfMany(t *testing.T) {
	g := newRegions(t, 4, Limits{Keys: 50})
	for i := range 300 {
		g.lookup(reader(10+i), g.refs[1])
	}
	if n := len(g.c.regions[g.refs[1].Region].holders); n > 150 || g.c.keys.all > 50 {
		t.Errorf("%d keys, and %d principals are remembered", g.c.keys.all, n)
	}
	for i, table := range g.own {
		if g.good(table) != 1 {
			t.Errorf("the owner of region %d lost its key", i)
		}
	}
	last := g.lookup(reader(309), g.refs[1])
	must(t, g.c.Grant(reader(1), &pool.GrantRequest{NameRequest: g.refs[1], To: cluster.Everyone, Rights: "none"}))
	if g.good(last) != 0 {
		t.Error("a right was taken away, and its key stays")
	}
}
