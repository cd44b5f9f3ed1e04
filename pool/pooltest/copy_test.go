package pooltest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// TestCopies: bytes go from every kind of memory to every other, at one node and between two, by the nodes themselves.
func TestCopies(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2", "n3")
		ctx, p := within(t), g.client(ann)
		region := func(home, name string) *pool.Region {
			r, err := p.CreateRegion(ctx, home, pool.Spec{Name: name, Size: 8 * part})
			must(t, err)
			return r
		}
		one, two, wide := region("n1", "one"), region("n2", "two"), region(pool.Manager, "wide")
		item := func(r *pool.Region, s pool.ItemSpec) *pool.Item {
			s.Size = 3 * part
			it, err := r.CreateItem(ctx, s)
			must(t, err)
			return it
		}
		type memory interface {
			pool.Bytes
			Get(ctx context.Context, dst []byte, off uint64) error
			Put(ctx context.Context, src []byte, off uint64) error
			Copy(ctx context.Context, off uint64, dst pool.Bytes, dstOff, n uint64, progress func(uint64)) error
		}
		all := map[string]memory{"region": one, "of another node": two, "of three nodes": wide, "item": item(region("n2", "items"), pool.ItemSpec{}),
			"private": item(one, pool.ItemSpec{Private: true}), "spread": item(region(pool.Manager, "spreads"), pool.ItemSpec{Components: 3, Block: 16384})}
		const n = part + 1000
		i := byte(0)
		for from, a := range all {
			for to, b := range all {
				if a == b {
					continue
				}
				i++
				data := random(n, i)
				must(t, a.Put(ctx, data, 77))
				last := uint64(0)
				if err := a.Copy(ctx, 77, b, 123, n, func(done uint64) { last = done }); err != nil || last != n {
					t.Errorf("from %s to %s: %v after %d", from, to, err, last)
				}
				same(t, b, 123, data)
			}
		}
	})
}

// TestCopyRefuses: rights of both sides, ranges, ends that are gone, and a caller that does not wait any more.
func TestCopyRefuses(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p, eves := within(t), g.client(ann), g.client(eve)
		a, err := p.CreateRegion(ctx, "n1", pool.Spec{Name: "a", Size: 8 * part})
		must(t, err)
		b, err := p.CreateRegion(ctx, "n2", pool.Spec{Name: "b", Size: 8 * part})
		must(t, err)
		must(t, p.Grant(ctx, "n1", "a", cluster.Everyone, "r"))
		must(t, p.Grant(ctx, "n2", "b", cluster.Everyone, "r"))
		ra, err := eves.LookupRegion(ctx, "n1", "a")
		must(t, err)
		rb, err := eves.LookupRegion(ctx, "n2", "b")
		must(t, err)
		gone, stop := context.WithCancel(ctx)
		stop()
		reader := ra.CopyTo(ctx, 0, rb, 0, 100)
		must(t, p.Grant(ctx, "n1", "a", cluster.Everyone, "none"))
		for what, tc := range map[string]struct{ err, want error }{
			"a reader writes":      {reader, cluster.ErrForbidden},
			"a right taken away":   {ra.CopyTo(ctx, 0, ra, 1000, 100), pool.ErrNoRegion},
			"beyond":               {a.CopyTo(ctx, 0, b, 8*part-99, 100), pool.ErrRange},
			"from beyond":          {a.CopyTo(ctx, ^uint64(0)-5, b, 0, 100), pool.ErrRange},
			"overlap":              {a.CopyTo(ctx, 0, a, 99, 100), pool.ErrSpec},
			"nothing":              {a.CopyTo(ctx, 0, a, 0, 0), nil},
			"nobody waits":         {a.CopyTo(gone, 0, b, 0, part), context.Canceled},
			"as it was: one node":  {a.CopyTo(ctx, 0, a, part, 100), nil},
			"as it was: two nodes": {a.CopyTo(ctx, 0, b, part, 100), nil},
		} {
			if !errors.Is(tc.err, tc.want) {
				t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
			}
		}
		hostilePull(t, g, a)
		must(t, b.Destroy(ctx))
		if err := a.CopyTo(ctx, 0, b, 0, 100); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("to a region that is gone: %v", err)
		}
	})
}

// hostilePull asks a component to fetch by keys that are made up, or good for less.
func hostilePull(t *testing.T, g *rig, a *pool.Region) {
	t.Helper()
	ctx, n1 := within(t), g.nodes["n1"]
	must(t, a.Put(ctx, bytes.Repeat([]byte{7}, 100), 0))
	who := cluster.Principal{Name: ann, Caps: cluster.CapWrite | cluster.CapRead}
	seg, err := g.nodes["n2"].el.NewSegment(1<<16, fabric.Writable)
	must(t, err)
	defer seg.Close()
	key, err := seg.KeyRange(0, 100, fabric.RightRead)
	must(t, err)
	blind, err := seg.KeyRange(0, 100, fabric.RightWrite)
	must(t, err)
	made := key
	made.Secret[3]++
	old := key
	old.Owner++
	i := a.Info()
	pull := func(k fabric.Key, off, size uint64) error {
		return n1.pool.Pull(ctx, who, &pool.PullRequest{To: pool.NameRequest{Region: i.Region, Epoch: i.Epoch}, From: "n2",
			Pieces: []pool.Source{{Key: k.Append(nil), Off: off, Size: size}}}, n1.reach)
	}
	for what, tc := range map[string]struct{ err, want error }{
		"made up":          {pull(made, 0, 8), pool.ErrMoved},
		"of another life":  {pull(old, 0, 8), pool.ErrLost},
		"write only":       {pull(blind, 0, 8), pool.ErrRights},
		"beyond the key":   {pull(key, 93, 8), pool.ErrRange},
		"beyond the end":   {pull(key, 0, 9*part), pool.ErrRange},
		"sizes that wrap":  {pull(key, 0, ^uint64(0)-7), pool.ErrSpec},
		"offset that wrap": {pull(key, ^uint64(0)-7, 8), pool.ErrRange},
		"good":             {pull(key, 92, 8), nil},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
		}
	}
	same(t, a, 8, bytes.Repeat([]byte{7}, 92))
}
