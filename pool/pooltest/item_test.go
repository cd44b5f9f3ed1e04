package pooltest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

// TestItems: items hold what is put there, beside each other, over several components by runs and by blocks, and are found again.
func TestItems(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2", "n3")
		ctx, p := within(t), g.client(ann)
		for _, home := range homes {
			r, err := p.CreateRegion(ctx, home, pool.Spec{Name: "work", Size: 24 * part})
			must(t, err)
			specs := []pool.ItemSpec{{Name: "small", Size: 100}, {Name: "over", Size: part / 2}, {Size: 300}, {Name: "slab", Size: 500, Private: true}, {Name: "own", Size: 100_000, Private: true}}
			if home == pool.Manager {
				specs = append(specs, pool.ItemSpec{Name: "runs", Size: part + 777, Components: 3}, pool.ItemSpec{Name: "blocks", Size: part/2 + 13, Components: 3, Block: 4096},
					pool.ItemSpec{Name: "tiny", Size: 100, Components: 3}, pool.ItemSpec{Name: "two", Size: 70_000, Components: 2, Block: 64, Private: true})
			}
			var items []*pool.Item
			for i, s := range specs {
				it, err := r.CreateItem(ctx, s)
				if err != nil {
					t.Fatal(s, err)
				}
				must(t, it.Put(ctx, random(int(s.Size), byte(i)), 0))
				items = append(items, it)
			}
			list, err := r.ListItems(ctx)
			if err != nil || len(list) != len(specs) {
				t.Errorf("%d items: %+v, %v", len(specs), list, err)
			}
			for i, s := range specs {
				it := items[i]
				if s.Name != "" {
					if it, err = r.LookupItem(ctx, s.Name); err != nil {
						t.Fatal(err)
					}
				}
				checkItem(t, it, s, random(int(s.Size), byte(i)))
				if a := it.Address(5); a != 0 {
					same(t, r, a.Offset(), random(int(s.Size), byte(i))[5:])
				} else if !s.Private && s.Components == 0 {
					t.Errorf("%+v has no address", s)
				}
			}
			for _, it := range items {
				must(t, it.Destroy(ctx))
			}
			whole, err := r.CreateItem(ctx, pool.ItemSpec{Name: "whole", Size: part})
			must(t, err)
			same(t, whole, 0, make([]byte, part)) // nobody gets what another item had
			must(t, r.Destroy(ctx))
		}
		for name, n := range g.nodes {
			if all, _, _ := n.book.Used(); all.Bytes != 0 || all.Files != 0 {
				t.Errorf("%s still lends %+v", name, all)
			}
		}
	})
}

// checkItem reads an item in every way there is.
func checkItem(t *testing.T, it *pool.Item, s pool.ItemSpec, want []byte) {
	t.Helper()
	ctx := within(t)
	if i := it.Info(); i.Size != s.Size || it.Size() != int64(s.Size) || i.Name != s.Name || i.Owner != ann || i.Private != s.Private || i.Rights != "rwa" {
		t.Errorf("%+v of %+v", i, s)
	}
	same(t, it, 0, want)
	const size = 12
	var index, all []uint64
	var picked []byte
	for n := uint64(0); (n+1)*size <= s.Size; n++ {
		all = append(all, n)
	}
	for _, n := range all[:min(len(all), 3)] {
		index = append(index, n, all[len(all)-1]-n)
	}
	for k := uint64(64); k*size < s.Size; k *= 3 {
		index = append(index, k-1)
	}
	for _, n := range index {
		picked = append(picked, want[n*size:(n+1)*size]...)
	}
	got := make([]byte, len(picked))
	if err := it.GatherIndexed(ctx, got, size, index); err != nil || !bytes.Equal(got, picked) {
		t.Errorf("%+v: gathered: %v, or other bytes", s, err)
	}
	if err := it.Get(ctx, make([]byte, 2), s.Size-1); !errors.Is(err, pool.ErrRange) {
		t.Errorf("%+v: beyond its end: %v", s, err)
	}
	for _, off := range []uint64{0, s.Size/2&^7 + 8} {
		if old, err := it.Atomic(ctx, fabric.FetchAdd(0), 8, off); err != nil || old != uint64At(want, off) {
			t.Errorf("%+v: a word at %d: %v, or another", s, off, err)
		}
	}
	half := s.Size / 2
	must(t, it.Discard(ctx, 10, half))
	must(t, it.Put(ctx, want[10:10+half], 10))
	same(t, it, 0, want)
}

func uint64At(b []byte, off uint64) (v uint64) {
	for i := range 8 {
		v |= uint64(b[off+uint64(i)]) << (8 * i)
	}
	return v
}

// TestItemGenerations: a descriptor of an item that was destroyed, made again or resized is good for nothing, by whatever way.
func TestItemGenerations(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p := within(t), g.client(ann)
		for _, home := range homes {
			for _, s := range []pool.ItemSpec{{Size: 1000}, {Size: 1000, Private: true}, {Size: 70_000, Private: true}} {
				s.Name = "again"
				r, err := p.CreateRegion(ctx, home, pool.Spec{Name: "work", Size: 4 * part})
				must(t, err)
				old, err := r.CreateItem(ctx, s)
				must(t, err)
				must(t, old.Put(ctx, []byte("before"), 0))
				served, err := g.client(ann).LookupItem(ctx, home, "work", "again")
				must(t, err)
				same(t, served, 0, []byte("before"))
				must(t, r.DestroyItem(ctx, "again"))
				next, err := r.CreateItem(ctx, s)
				must(t, err)
				must(t, next.Put(ctx, []byte("after!"), 0))
				if a, b := old.Info(), next.Info(); a.Off != b.Off || a.Generation == b.Generation {
					t.Errorf("%+v and then %+v: the test wants the same place", a, b)
				}
				for i, it := range []*pool.Item{old, served} {
					stale(t, fmt.Sprintf("descriptor %d of %+v at %q", i, s, home), it)
				}
				same(t, next, 0, []byte("after!"))
				size := s.Size + 100
				must(t, next.Resize(ctx, size))
				same(t, next, 0, append([]byte("after!"), make([]byte, size-6)...))
				must(t, next.Resize(ctx, 3))
				must(t, next.Resize(ctx, 10))
				same(t, next, 0, []byte("aft\x00\x00\x00\x00\x00\x00\x00"))
				must(t, r.Destroy(ctx))
				stale(t, "its region is gone", next)
			}
		}
	})
}

// stale wants every operation to fail with ErrMoved.
func stale(t *testing.T, what string, it *pool.Item) {
	t.Helper()
	ctx := within(t)
	b := make([]byte, 8)
	_, atomic := it.Atomic(ctx, fabric.FetchAdd(1), 8, 0)
	for op, err := range map[string]error{"get": it.Get(ctx, b, 0), "put": it.Put(ctx, b, 0), "atomic": atomic, "started": it.StartPut(b, 0).Wait(ctx),
		"gather": it.Gather(ctx, b, 4, 0, 1), "scatter": it.Scatter(ctx, b, 4, 0, 1), "discard": it.Discard(ctx, 0, 8), "resize": it.Resize(ctx, 9),
		"grant": it.Grant(ctx, bob, "r"), "destroy": it.Destroy(ctx)} {
		if !errors.Is(err, pool.ErrMoved) && !(errors.Is(err, pool.ErrNoRegion) && op != "get" && op != "put") {
			t.Errorf("%s: %s: %v", what, op, err)
		}
	}
}

// TestItemRights: who may do what with an item, its region's rights apart.
func TestItemRights(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1")
		ctx, p, bobs, eves := within(t), g.client(ann), g.client(bob), g.client(eve)
		r, err := p.CreateRegion(ctx, "n1", pool.Spec{Name: "work", Size: 4 * part})
		must(t, err)
		open, err := r.CreateItem(ctx, pool.ItemSpec{Name: "open", Size: 200})
		must(t, err)
		private := map[string]*pool.Item{}
		for name, size := range map[string]uint64{"slab": 200, "own": 100_000} {
			private[name], err = r.CreateItem(ctx, pool.ItemSpec{Name: name, Size: size, Private: true})
			must(t, err)
			must(t, private[name].Put(ctx, []byte("secret"), 0))
		}
		b := make([]byte, 6)
		if _, err := bobs.LookupItem(ctx, "n1", "work", "open"); !errors.Is(err, pool.ErrNoItem) {
			t.Errorf("nothing was granted: %v", err)
		}
		must(t, open.Grant(ctx, bob, "r"))
		it, err := bobs.LookupItem(ctx, "n1", "work", "open") // and he may not see the region
		must(t, err)
		must(t, it.Get(ctx, b, 0))
		if err := it.Put(ctx, b, 0); !errors.Is(err, pool.ErrRights) {
			t.Errorf("a reader's put: %v", err)
		}
		for what, err := range map[string]error{"discard": it.Discard(ctx, 0, 1), "scatter": it.Scatter(ctx, b, 1, 0, 1), "destroy": it.Destroy(ctx), "resize": it.Resize(ctx, 1), "grant": it.Grant(ctx, bob, "all")} {
			if !errors.Is(err, cluster.ErrForbidden) {
				t.Errorf("a reader's %s: %v", what, err)
			}
		}
		if _, err := bobs.LookupRegion(ctx, "n1", "work"); !errors.Is(err, pool.ErrNoRegion) {
			t.Errorf("the region by an item's grant: %v", err)
		}
		must(t, open.Grant(ctx, bob, "none"))
		if err := it.Get(ctx, b, 0); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("a right that was taken away: %v", err)
		}
		// All of the region, and still nothing of what is private.
		must(t, p.Grant(ctx, "n1", "work", cluster.Everyone, "all"))
		bobsRegion, err := bobs.LookupRegion(ctx, "n1", "work")
		must(t, err)
		everything := make([]byte, bobsRegion.Size())
		must(t, bobsRegion.Get(ctx, everything, 0))
		if bytes.Contains(everything, []byte("secret")) {
			t.Error("a private item lies where whoever has the region reads")
		}
		for name, mine := range private {
			if _, err := bobsRegion.LookupItem(ctx, name); !errors.Is(err, pool.ErrNoItem) {
				t.Errorf("%s: %v", name, err)
			}
			must(t, mine.Grant(ctx, eve, "all")) // her token reads only
			hers, err := eves.LookupItem(ctx, "n1", "work", name)
			must(t, err)
			same(t, hers, 0, []byte("secret"))
			if hers.MappedRun(0) != 0 || hers.Info().Rights != "r--" || hers.Put(ctx, b, 0) == nil {
				t.Errorf("eve has %+v", hers.Info())
			}
		}
		if run := private["own"].MappedRun(0); (run > 0) != (r.MappedRun(0) > 0) {
			t.Errorf("a private item with a segment of its own has %d bytes mapped", run)
		}
		guestItem(t, p, r, bobsRegion)
	})
}

// guestItem is bob's item in ann's region: ann pays, and may end it.
func guestItem(t *testing.T, p *pool.Pool, r, bobsRegion *pool.Region) {
	ctx, b := within(t), make([]byte, 6)
	his, err := bobsRegion.CreateItem(ctx, pool.ItemSpec{Name: "his", Size: 100})
	must(t, err)
	if err := p.Grant(ctx, "n1", "work", cluster.Everyone, "none"); err != nil {
		t.Fatal(err)
	}
	must(t, his.Put(ctx, b, 0))
	if _, err := bobsRegion.CreateItem(ctx, pool.ItemSpec{Size: 1}); err == nil {
		t.Error("bob allocates where he may not write any more")
	}
	must(t, r.DestroyItem(ctx, "his"))
	stale(t, "ended by the region's owner", his)
}

// TestItemRefuses: what cannot be, with an error that says which limit, and nothing is left behind.
func TestItemRefuses(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p := within(t), g.client(ann)
		for _, home := range homes {
			r, err := p.CreateRegion(ctx, home, pool.Spec{Name: "work", Size: 4 * part})
			must(t, err)
			it, err := r.CreateItem(ctx, pool.ItemSpec{Name: "there", Size: 64})
			must(t, err)
			next, err := r.CreateItem(ctx, pool.ItemSpec{Name: "next", Size: 64})
			must(t, err)
			create := func(s pool.ItemSpec) error { _, err := r.CreateItem(ctx, s); return err }
			for what, tc := range map[string]struct{ err, want error }{
				"no size":         {create(pool.ItemSpec{}), pool.ErrSpec},
				"taken":           {create(pool.ItemSpec{Name: "there", Size: 1}), pool.ErrExists},
				"bad name":        {create(pool.ItemSpec{Name: "no name", Size: 1}), cluster.ErrName},
				"more than it is": {create(pool.ItemSpec{Size: 5 * part}), pool.ErrMemory},
				"private":         {create(pool.ItemSpec{Size: 1 << 30, Private: true}), pool.ErrMemory},
				"components":      {create(pool.ItemSpec{Size: 1000, Components: 3}), pool.ErrSpec},
				"blocks":          {create(pool.ItemSpec{Size: 1000, Block: 100}), pool.ErrSpec},
				"wraps":           {create(pool.ItemSpec{Size: ^uint64(0)}), pool.ErrSpec},
				"no room behind":  {it.Resize(ctx, 65), pool.ErrMemory},
				"none of it":      {next.Resize(ctx, 0), pool.ErrSpec},
				"resize too far":  {next.Resize(ctx, 1<<50), pool.ErrSpec},
			} {
				if !errors.Is(tc.err, tc.want) {
					t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
				}
			}
			if home != pool.Manager {
				if err := r.Resize(ctx, 1); err != nil { // both lie in what stays
					t.Error(err)
				}
				far, err := r.CreateItem(ctx, pool.ItemSpec{Name: "far", Size: 1000})
				must(t, err)
				must(t, r.Resize(ctx, 2*part))
				big, err := r.CreateItem(ctx, pool.ItemSpec{Name: "big", Size: part})
				must(t, err)
				if err := r.Resize(ctx, 1); !errors.Is(err, pool.ErrSpec) {
					t.Errorf("an item lies in what would go: %v", err)
				}
				same(t, big, 0, make([]byte, part))
				must(t, far.Put(ctx, []byte("x"), 999))
			}
			list, err := r.ListItems(ctx)
			if want := map[bool]int{true: 2, false: 4}[home == pool.Manager]; err != nil || len(list) != want {
				t.Errorf("%q: %+v, %v", home, list, err)
			}
			must(t, r.Destroy(ctx))
		}
		for name, n := range g.nodes {
			if all, _, _ := n.book.Used(); all.Bytes != 0 || all.Files != 0 {
				t.Errorf("%s still lends %+v", name, all)
			}
		}
	})
}

// TestItemsElsewhere: where the component that has the directory is full, an item lies at another one of the region's; it is found and freed as any other.
func TestItemsElsewhere(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2", "n3")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, pool.Manager, pool.Spec{Name: "work", Size: 3 * part})
		must(t, err)
		for round := range 2 {
			var items []*pool.Item
			for i := range 6 { // two at each component
				it, err := r.CreateItem(ctx, pool.ItemSpec{Name: fmt.Sprint("half", i), Size: part / 2})
				must(t, err)
				same(t, it, 0, make([]byte, part/2))
				must(t, it.Put(ctx, random(part/2, byte(10*round+i)), 0))
				items = append(items, it)
			}
			if _, err := r.CreateItem(ctx, pool.ItemSpec{Name: "more", Size: part / 2}); !errors.Is(err, pool.ErrMemory) {
				t.Errorf("a seventh half of three parts: %v", err)
			}
			list, err := r.ListItems(ctx)
			if err != nil || len(list) != 6 {
				t.Errorf("%d items, want 6: %+v, %v", len(list), list, err)
			}
			for _, i := range list {
				if i.Size != part/2 || i.Component != "n1" {
					t.Errorf("listed as %+v", i)
				}
			}
			other, err := g.client(ann).LookupRegion(ctx, pool.Manager, "work")
			must(t, err)
			for i := range items {
				it, err := other.LookupItem(ctx, fmt.Sprint("half", i))
				must(t, err)
				checkItem(t, it, pool.ItemSpec{Name: fmt.Sprint("half", i), Size: part / 2}, random(part/2, byte(10*round+i)))
				must(t, it.Destroy(ctx))
				stale(t, "destroyed by another", items[i])
			}
		}
		g.nodes["n1"].book.SetBounds(component.Bounds{Bytes: lent, Pool: part, Principal: part}) // all of it the region has
		own, err := r.CreateItem(ctx, pool.ItemSpec{Name: "own", Size: 100_000, Private: true})
		must(t, err)
		must(t, own.Grant(ctx, bob, "r"))
		his, err := g.client(bob).LookupItem(ctx, pool.Manager, "work", "own")
		must(t, err)
		must(t, own.Put(ctx, []byte("private"), 99_000))
		same(t, his, 99_000, []byte("private"))
		must(t, r.Destroy(ctx))
		for name, n := range g.nodes {
			if all, _, _ := n.book.Used(); all.Bytes != 0 || all.Files != 0 {
				t.Errorf("%s still lends %+v", name, all)
			}
		}
	})
}
