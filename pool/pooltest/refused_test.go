package pooltest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// TestRefused: what a principal with the right to read may not do is ErrRights, whichever call it is, and whether a key or a component's check refuses it.
func TestRefused(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		for _, home := range []string{"n1", pool.Manager} {
			refusals(t, g, home)
		}
	})
}

func refusals(t *testing.T, g *rig, home string) {
	ctx := within(t)
	own, his := g.client(ann), g.client(bob)
	r, err := own.CreateRegion(ctx, home, pool.Spec{Name: "shared", Size: 4 * part})
	must(t, err)
	must(t, own.Grant(ctx, home, "shared", bob, "r"))
	_, err = r.CreateItem(ctx, pool.ItemSpec{Name: "item", Size: 256})
	must(t, err)
	region, err := his.LookupRegion(ctx, home, "shared")
	must(t, err)
	item, err := region.LookupItem(ctx, "item")
	must(t, err)
	var backup, small bytes.Buffer
	must(t, region.Backup(ctx, &backup, nil))
	must(t, item.Backup(ctx, &small, nil))
	b := make([]byte, 16)
	calls := map[string]error{
		"for writing":          second(his.LookupRegionFor(ctx, home, "shared", "rw")),
		"discard in turn":      region.DiscardInTurn(ctx, []pool.Range{{Off: 0, Size: 8}}),
		"allocate":             second(region.CreateItem(ctx, pool.ItemSpec{Size: 64})),
		"resize an item":       item.Resize(ctx, 128),
		"grant an item":        item.Grant(ctx, bob, "all"),
		"destroy an item":      item.Destroy(ctx),
		"destroy it by name":   region.DestroyItem(ctx, "item"),
		"restore a region":     region.Restore(ctx, &backup, nil),
		"restore an item":      item.Restore(ctx, &small, nil),
		"make a region to eve": second(g.client(eve).CreateRegion(ctx, "n1", pool.Spec{Size: part})),
	}
	if home != pool.Manager { // the rig's own manager lets everybody do so
		calls["resize a region"] = region.Resize(ctx, part)
		calls["grant"] = his.Grant(ctx, home, "shared", bob, "all")
		calls["destroy"] = region.Destroy(ctx)
		calls["destroy by name"] = his.DestroyRegion(ctx, home, "shared")
	}
	for name, m := range map[string]*pool.Memory{"region": &region.Memory, "item": &item.Memory} {
		calls["put to a "+name] = m.Put(ctx, b, 0)
		calls["start to put to a "+name] = m.StartPut(b, 0).Wait(ctx)
		calls["scatter to a "+name] = m.Scatter(ctx, b, 8, 0, 1)
		calls["scatter to numbers of a "+name] = m.ScatterIndexed(ctx, b, 8, []uint64{3, 0})
		calls["discard of a "+name] = m.Discard(ctx, 0, 8)
		calls["copy within a "+name] = m.CopyTo(ctx, 0, m, 64, 8)
		calls["add to a "+name] = second(m.Atomic(ctx, fabric.FetchAdd(1), 8, 0))
	}
	for what, err := range calls {
		if !errors.Is(err, pool.ErrRights) {
			t.Errorf("%q: %s: %v, want %v", home, what, err, pool.ErrRights)
		}
	}
	if err := calls["discard of a region"]; !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("a component's refusal: %v, want %v", err, cluster.ErrForbidden)
	}
	must(t, r.Destroy(ctx))
}

func second[T any](_ T, err error) error { return err }
