package component

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPlan: extents cover a region, are of one size but the last, and are few.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Uint64Range(1, 1<<28), rapid.Uint64Range(1, 1<<34), rapid.Uint64Range(1, pool.MaxExtents*MaxExtentBytes)).Draw(t, "size")
		sizes, err := Plan(size)
		if err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for i, n := range sizes {
			sum += n
			if n == 0 || n%fabric.SegmentAlign != 0 || n > MaxExtentBytes || i > 0 && n > sizes[0] || i < len(sizes)-1 && (n != sizes[0] || n < MinExtentBytes) {
				t.Fatalf("extent %d of %d has %d bytes, the first %d", i, len(sizes), n, sizes[0])
			}
		}
		if sum < size || sum-size >= fabric.SegmentAlign {
			t.Fatalf("%d bytes for %d", sum, size)
		}
		if len(sizes) > fewExtents && sizes[0] < MaxExtentBytes {
			t.Fatalf("%d extents of %d bytes", len(sizes), sizes[0])
		}
	})
	for _, size := range []uint64{0, pool.MaxExtents*MaxExtentBytes + 1, pool.MaxRegionBytes + 1, ^uint64(0)} {
		if _, err := Plan(size); !errors.Is(err, pool.ErrSpec) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestAccountFiles: one principal's regions, however small, leave descriptors to others.
func TestAccountFiles(t *testing.T) {
	a := NewAccount(Bounds{1 << 30, 1 << 30, 1 << 29})
	a.files = func() (int, int, error) { return 20, 40, nil }
	small := Charge{Lent: Lent{Bytes: 1, Files: 1}, What: "region", Region: true, Principal: "greedy"}
	n := 0
	for a.Reserve(small) == nil {
		n++
	}
	if n != 15 {
		t.Errorf("one principal got %d of 20 descriptors, want 15", n)
	}
	if err := a.Reserve(small); !errors.Is(err, pool.ErrMemory) || !strings.Contains(err.Error(), "0 more of the 15") {
		t.Errorf("%v", err)
	}
	small.Principal = "other"
	if err := a.Reserve(small); err != nil {
		t.Error(err)
	}
}

// TestAccount: whatever is reserved and released, no bound is broken, and in the end nothing is lent.
func TestAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := NewAccount(Bounds{1000, 600, 400})
		a.files = func() (int, int, error) { return 20, 40, nil }
		var held []Charge
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				a.Release(held[i])
				held = append(held[:i], held[i+1:]...)
				continue
			}
			c := Charge{Lent: Lent{rapid.Int64Range(0, 700).Draw(t, "bytes"), rapid.IntRange(0, 12).Draw(t, "files")},
				Region: rapid.Bool().Draw(t, "region"), Principal: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "who")}
			var all, regions Lent
			var by Lent
			for _, h := range append(held, c) {
				all.add(h.Lent)
				if h.Region {
					regions.add(h.Lent)
				}
				if h.Region && h.Principal == c.Principal {
					by.add(h.Lent)
				}
			}
			fits := all.Bytes <= 1000 && all.Files <= 20 && (!c.Region || regions.Bytes <= 600 && by.Bytes <= 400 && by.Files <= 15)
			err := a.Reserve(c)
			if (err == nil) != fits || err != nil && !errors.Is(err, pool.ErrMemory) {
				t.Fatalf("%+v beside %+v: %v, and it fits: %v", c, held, err, fits)
			}
			if err == nil {
				held = append(held, c)
			}
		}
		for _, h := range held {
			a.Release(h)
		}
		if all, regions, _ := a.Used(); all != (Lent{}) || regions != (Lent{}) || len(a.by) != 0 {
			t.Fatalf("%+v, %+v, %v are left", all, regions, a.by)
		}
	})
	a := NewAccount(Bounds{1000, 600, 400})
	if err := a.Reserve(Charge{Lent: Lent{400, 1}, Region: true, Principal: "ann"}); err != nil {
		t.Fatal(err)
	}
	if over, poolOver := a.SetBounds(Bounds{300, 100, 100}); over != 100 || poolOver != 300 {
		t.Errorf("over by %d and %d", over, poolOver)
	}
}

func newComponent(t testing.TB, memory int64, l Limits) (*Component, *Account) {
	t.Helper()
	el, err := fabric.New(fabric.Config{Name: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	a := NewAccount(l.Bounds(memory, memory))
	return New(el, a, l), a
}

var (
	ann = cluster.Principal{Name: "ann", Caps: cluster.CapWrite | cluster.CapRead}
	bob = cluster.Principal{Name: "bob", Caps: cluster.CapWrite | cluster.CapRead}
)

// TestNumbers: a number is not given out again while another one is free, and never without another epoch.
func TestNumbers(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{})
	first, err := c.Create(ann, nil, &pool.CreateRequest{Name: "a", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	old := pool.NameRequest{Region: first.Region, Epoch: first.Epoch}
	if err := c.Destroy(ann, old); err != nil {
		t.Fatal(err)
	}
	second, err := c.Create(ann, nil, &pool.CreateRequest{Name: "a", Size: 1})
	if err != nil || second.Region == first.Region {
		t.Fatalf("%+v after %+v, %v", second, first, err)
	}
	c.last = first.Region - 1 // as after 65,535 of them
	third, err := c.Create(ann, nil, &pool.CreateRequest{Name: "b", Size: 1})
	if err != nil || third.Region != first.Region || third.Epoch == first.Epoch {
		t.Fatalf("%+v, %v", third, err)
	}
	if err := c.Destroy(ann, old); !errors.Is(err, pool.ErrMoved) {
		t.Errorf("an old region whose number is another's: %v", err)
	}
	c.last = lastRegion
	if r, err := c.Create(ann, nil, &pool.CreateRequest{Name: "c", Size: 1}); err != nil || r.Region == 0 || r.Region == first.Region {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNextLife: a handle of a node's earlier life is good for no region of its next, though numbers begin anew.
func TestNextLife(t *testing.T) {
	var tables []*pool.Table
	for range 2 {
		c, _ := newComponent(t, 1<<30, Limits{})
		table, err := c.Create(ann, nil, &pool.CreateRequest{Name: "a", Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(tables) == 1 {
			old := pool.NameRequest{Region: tables[0].Region, Epoch: tables[0].Epoch}
			if err := c.Discard(ann, &pool.DiscardRequest{NameRequest: old, Ranges: []pool.Range{{Off: 0, Size: 1}}}); !errors.Is(err, pool.ErrMoved) {
				t.Errorf("%+v and then %+v: discarding by the first: %v", tables[0], table, err)
			}
		}
		tables = append(tables, table)
	}
}

// TestBounds: one principal cannot take what there is for all.
func TestBounds(t *testing.T) {
	c, a := newComponent(t, 16<<20, Limits{Regions: 6, PrincipalRegions: 4})
	make1 := func(who cluster.Principal, name string, size uint64) error {
		_, err := c.Create(who, nil, &pool.CreateRequest{Name: name, Size: size})
		return err
	}
	if err := make1(ann, "half", 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := make1(ann, "more", 5<<20); !errors.Is(err, pool.ErrMemory) || !strings.Contains(err.Error(), `"ann" may take 4.0 MiB more of the 12.0 MiB for one principal`) {
		t.Errorf("beyond three quarters: %v", err)
	}
	for i := range 3 {
		if err := make1(ann, fmt.Sprint("a", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := make1(ann, "a4", 1); !errors.Is(err, pool.ErrMemory) || !strings.Contains(err.Error(), "Limits.PrincipalRegions") {
		t.Errorf("a fifth region: %v", err)
	}
	for i := range 2 {
		if err := make1(bob, fmt.Sprint("b", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := make1(bob, "b2", 1); !errors.Is(err, pool.ErrMemory) || !strings.Contains(err.Error(), "Limits.Regions") {
		t.Errorf("a seventh region of all: %v", err)
	}
	for _, r := range append(c.List(ann).Regions, c.List(bob).Regions...) {
		c.Destroy(ann, pool.NameRequest{Name: r.Name}) // bob's it may not
		c.Destroy(bob, pool.NameRequest{Name: r.Name})
	}
	if all, _, _ := a.Used(); all != (Lent{}) || len(c.count) != 0 || len(c.names) != 0 {
		t.Errorf("%+v, %v, %v are left", all, c.count, c.names)
	}
}

// TestMakeAndDestroyAtOnce: regions of one name that are made and destroyed at the same time leave nothing behind.
func TestMakeAndDestroyAtOnce(t *testing.T) {
	c, a := newComponent(t, 1<<30, Limits{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 50 {
				_, err := c.Create(ann, nil, &pool.CreateRequest{Name: "x", Size: 1 << 16})
				if err != nil && !errors.Is(err, pool.ErrExists) && !errors.Is(err, pool.ErrNoRegion) {
					t.Error(err)
				}
				c.Lookup(ann, nil, &pool.LookupRequest{NameRequest: pool.NameRequest{Name: "x"}})
				c.Destroy(ann, pool.NameRequest{Name: "x"})
			}
		})
	}
	work.Wait()
	c.Destroy(ann, pool.NameRequest{Name: "x"})
	if all, _, _ := a.Used(); all != (Lent{}) || c.Count() != 0 {
		t.Errorf("%+v in %d regions are left", all, c.Count())
	}
}

// TestTakeBack: keys of principals whose token was withdrawn end; others' stay.
func TestTakeBack(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{})
	table, err := c.Create(ann, nil, &pool.CreateRequest{Name: "x", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Grant(ann, &pool.GrantRequest{NameRequest: pool.NameRequest{Name: "x"}, To: "bob", Rights: "r"}); err != nil {
		t.Fatal(err)
	}
	bobs, err := c.Lookup(bob, nil, &pool.LookupRequest{NameRequest: pool.NameRequest{Name: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	c.TakeBack([]string{"bob"})
	for name, want := range map[*pool.Table]bool{table: true, bobs: false} {
		k, err := fabric.DecodeKey(name.Parts[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		if holds := c.el.Holds(k); holds != want {
			t.Errorf("%v holds: %v", k, holds)
		}
	}
}

// TestLateDiscard: a discard that comes after a later one of its writer's leaves what was written since alone.
func TestLateDiscard(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{})
	table, err := c.Create(ann, nil, &pool.CreateRequest{Name: "a", Size: 2 * fabric.SegmentAlign})
	if err != nil {
		t.Fatal(err)
	}
	ref := pool.NameRequest{Region: table.Region, Epoch: table.Epoch}
	mem := c.regions[table.Region].extents[0].seg.Bytes()
	discard := func(turn uint64) error {
		return c.Discard(ann, &pool.DiscardRequest{NameRequest: ref, Ranges: []pool.Range{{Off: 0, Size: 8}}, Turn: turn})
	}
	for _, turn := range []uint64{5, 0} {
		mem[0] = 1
		if err := discard(turn); err != nil || mem[0] != 0 {
			t.Fatalf("turn %d: %v, and it reads %d", turn, err, mem[0])
		}
	}
	for _, turn := range []uint64{4, 5, 1} {
		mem[0] = 1
		if err := discard(turn); !errors.Is(err, pool.ErrSpec) || mem[0] != 1 {
			t.Errorf("turn %d after 5: %v, and it reads %d", turn, err, mem[0])
		}
	}
	if err := discard(6); err != nil || mem[0] != 0 {
		t.Errorf("the next one: %v", err)
	}
}
