package client

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

// poolBytes is what the node of newPoolBench lends to regions.
const poolBytes = 1 << 30

// newPoolBench starts one node that lends regions.
func newPoolBench(t testing.TB, scheme string) (*bench, func()) {
	t.Helper()
	b := &bench{dir: t.TempDir(), scheme: scheme, tokens: newTokens(t), nodes: map[string]*node.Node{}}
	b.peers = newPeers(t, b, "n1")
	stop := b.start(t, b.peers[0], func(c *node.Config) { c.Memory, c.PoolMemory = 2*poolBytes, poolBytes })
	return b, stop
}

// TestPool: what is put into a region is got from it, also over the border of two extents, by whoever has the right to.
func TestPool(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, _ := newPoolBench(t, scheme)
		ann, ctx := b.connect(t, tokenOwner), t.Context()
		r, err := ann.Pool().CreateRegion(ctx, "n1", pool.Spec{Name: "work", Size: component.MinExtentBytes + 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Size() != component.MinExtentBytes+fabric.SegmentAlign || r.Info().Extents != 2 {
			t.Fatalf("%+v", r.Info())
		}
		if run := r.MappedRun(10); (run > 0) != (scheme == "shm") || run > 0 && run != component.MinExtentBytes-10 {
			t.Errorf("%d bytes are mapped over %s", run, scheme)
		}
		data := make([]byte, 100_000)
		rand.NewChaCha8([32]byte{1}).Read(data)
		again, err := b.connect(t, tokenOwner).Pool().LookupRegion(ctx, "n1", "work")
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []uint64{0, 4096, component.MinExtentBytes - 50_000, uint64(r.Size()) - 100_000} {
			if err := r.Put(ctx, data, off); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(data))
			if err := again.Get(ctx, got, off); err != nil || !bytes.Equal(got, data) {
				t.Errorf("at %d: %v, or other bytes", off, err)
			}
			clear(got)
			put, get := r.StartPut(data[:100], off+7), again.StartGet(got[200:300], off+200)
			if err := errors.Join(put.Wait(ctx), get.Wait(ctx)); err != nil || !bytes.Equal(got[200:300], data[200:300]) {
				t.Errorf("started at %d: %v, or other bytes", off, err)
			}
		}
		for i := range uint64(3) {
			if old, err := again.Atomic(ctx, fabric.FetchAdd(5), 8, 1<<20); err != nil || old != 5*i {
				t.Errorf("fetch-add: %d, %v", old, err)
			}
		}
		for i, op := range []fabric.AtomicOp{fabric.FetchMaxInt(-3), fabric.FetchMinInt(-9), fabric.FetchMaxUint(4), fabric.Swap(math.Float64bits(1.5)), fabric.FetchFloat64(fabric.KindFetchAddFloat, 2)} {
			want := []uint64{0, 0, ^uint64(8), ^uint64(8), math.Float64bits(1.5)}[i]
			if old, err := again.Atomic(ctx, op, 8, 1<<19); err != nil || old != want {
				t.Errorf("atomic %d: %#x, %v, want %#x", i, old, err, want)
			}
		}
		list, err := ann.Pool().ListRegions(ctx, "n1")
		if err != nil || len(list) != 1 || list[0].Name != "work" || list[0].Owner != tokenOwner || list[0].Rights != "rwa" {
			t.Errorf("%+v, %v", list, err)
		}
		if err := ann.Pool().DestroyRegion(ctx, "n1", "work"); err != nil {
			t.Fatal(err)
		}
		if err := again.Get(ctx, data, 0); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("a region that was destroyed: %v", err)
		}
		if err := again.Discard(ctx, 0, 10); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("discarding in it: %v", err)
		}
		if st, err := ann.Status(ctx, "n1"); err != nil || st.Memory.PoolBytes != 0 || st.Memory.LentBytes != 0 || st.Memory.PoolLimitBytes != poolBytes {
			t.Errorf("%+v, %v", st.Memory, err)
		}
	})
}

// TestPoolRefuses: what an operation may not do, with what helps.
func TestPoolRefuses(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, _ := newPoolBench(t, scheme)
		ann, bob, eve, ctx := b.connect(t, tokenOwner), b.connect(t, tokenOther), b.connect(t, tokenReader), t.Context()
		r, err := ann.Pool().CreateRegion(ctx, "n1", pool.Spec{Name: "work", Size: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		create := func(c *Client, name string, size uint64) error {
			_, err := c.Pool().CreateRegion(ctx, "n1", pool.Spec{Name: name, Size: size})
			return err
		}
		lookup := func(c *Client, rights string) error {
			_, err := c.Pool().LookupRegionFor(ctx, "n1", "work", rights)
			return err
		}
		p := make([]byte, 10)
		for what, tc := range map[string]struct {
			err  error
			want error
			text string
		}{
			"range":            {r.Get(ctx, p, 1<<20-9), pool.ErrRange, `get of 10 bytes at 1048567 of region "work" at n1`},
			"range that wraps": {r.Put(ctx, p, ^uint64(0)-3), pool.ErrRange, "which has 1048576 bytes"},
			"discard":          {r.Discard(ctx, 1<<20, 1), pool.ErrRange, ""},
			"taken name":       {create(bob, "work", 1), pool.ErrExists, `of "ann"`},
			"no name":          {create(bob, "", 1), pool.ErrSpec, "lease it"},
			"bad name":         {create(bob, "no name", 1), cluster.ErrName, ""},
			"nothing":          {create(bob, "x", 0), pool.ErrSpec, ""},
			"too large":        {create(bob, "x", 1<<48), pool.ErrSpec, "make several regions"},
			"more than lent":   {create(ann, "x", 1<<30), pool.ErrMemory, "pool_memory"},
			"more than one":    {create(bob, "x", poolBytes-poolBytes/5), pool.ErrMemory, "Limits.PrincipalBytes"},
			"no capability":    {create(eve, "x", 1), cluster.ErrForbidden, "capability write"},
			"not granted":      {lookup(bob, ""), pool.ErrNoRegion, `"work"`},
			"not an owner":     {bob.Pool().DestroyRegion(ctx, "n1", "work"), pool.ErrNoRegion, ""},
			"no node":          {func() error { _, err := ann.Pool().ListRegions(ctx, "n9"); return err }(), nil, "n9"},
		} {
			if tc.err == nil || tc.want != nil && !errors.Is(tc.err, tc.want) || !strings.Contains(tc.err.Error(), tc.text) {
				t.Errorf("%s: %v, want %v …%s…", what, tc.err, tc.want, tc.text)
			}
		}
		if err := ann.Pool().Grant(ctx, "n1", "work", cluster.Everyone, "r"); err != nil {
			t.Fatal(err)
		}
		if err := lookup(bob, "rw"); !errors.Is(err, cluster.ErrForbidden) || !strings.Contains(err.Error(), "right write") {
			t.Errorf("more than granted: %v", err)
		}
		read, err := eve.Pool().LookupRegion(ctx, "n1", "work")
		if err != nil || read.Info().Rights != "r--" {
			t.Fatal(err, read.Info())
		}
		if read.MappedRun(0) != 0 {
			t.Error("a reader has the region mapped, and so could write to it")
		}
		if err := read.Get(ctx, p, 0); err != nil {
			t.Error(err)
		}
		if err := read.Put(ctx, p, 0); !errors.Is(err, pool.ErrRights) {
			t.Errorf("a reader's Put: %v", err)
		}
		if err := read.GatherIndexed(ctx, p, 5, []uint64{3, 1}); err != nil {
			t.Error(err)
		}
		if err := read.Scatter(ctx, p, 5, 0, 1); !errors.Is(err, cluster.ErrForbidden) {
			t.Errorf("a reader's Scatter: %v", err)
		}
		if err := read.CopyTo(ctx, 0, read, 100, 10); !errors.Is(err, cluster.ErrForbidden) {
			t.Errorf("a reader copies: %v", err)
		}
		if err := read.Discard(ctx, 0, 1); !errors.Is(err, cluster.ErrForbidden) {
			t.Errorf("a reader's Discard: %v", err)
		}
		if err := eve.Pool().DestroyRegion(ctx, "n1", "work"); !errors.Is(err, cluster.ErrForbidden) {
			t.Errorf("a reader destroys: %v", err)
		}
		if err := ann.Pool().Grant(ctx, "n1", "work", cluster.Everyone, "none"); err != nil {
			t.Fatal(err)
		}
		if err := read.Get(ctx, p, 0); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("a right that was taken away: %v", err)
		}
	})
}

// TestPoolDiscard: discarded bytes are zeros for everybody, those beside them stay, and their pages go back to the machine.
func TestPoolDiscard(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, _ := newPoolBench(t, scheme)
		ann, ctx := b.connect(t, tokenOwner), t.Context()
		r, err := ann.Pool().CreateRegion(ctx, "n1", pool.Spec{Leased: true, Size: component.MinExtentBytes + 1<<20})
		if err != nil {
			t.Fatal(err)
		}
		const from = component.MinExtentBytes - 100_000
		want := bytes.Repeat([]byte{7}, 200_000)
		if err := r.Put(ctx, want, from); err != nil {
			t.Fatal(err)
		}
		clear(want[10:150_000])
		clear(want[160_000:160_001])
		if err := r.DiscardAll(ctx, []pool.Range{{Off: from + 10, Size: 149_990}, {Off: from + 160_000, Size: 1}}); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if err := r.Get(ctx, got, from); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v, or other bytes", err)
		}
	})
}

// TestPoolGather: elements by number, also over the border of two extents and more than one request takes, are those that Get sees.
func TestPoolGather(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, _ := newPoolBench(t, scheme)
		ann, ctx := b.connect(t, tokenOwner), t.Context()
		r, err := ann.Pool().CreateRegion(ctx, "n1", pool.Spec{Leased: true, Size: component.MinExtentBytes + 1<<20})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, size := range []int{1, 8, 13, 4096, 60_000} {
			all := uint64(r.Size()) / uint64(size)
			border := component.MinExtentBytes / uint64(size)
			count := min(20_000, 3<<20/size, 1<<16)
			data, got := make([]byte, size*count), make([]byte, size*count)
			rand.NewChaCha8([32]byte{byte(size)}).Read(data)
			index := make([]uint64, count)
			for i, k := range rng.Perm(int(min(all, 1<<16)))[:min(count, int(all))] {
				index[i] = uint64(k) + all - min(all, 1<<16)
			}
			index[0], index[min(count, int(all))-1] = border, index[0]
			if count > int(all) {
				count = int(all)
				data, got, index = data[:size*count], got[:size*count], index[:count]
			}
			slices.Sort(index)
			index = slices.Compact(index)
			data, got = data[:size*len(index)], got[:size*len(index)]
			if err := r.ScatterIndexed(ctx, data, size, index); err != nil {
				t.Fatal(size, err)
			}
			if err := r.GatherIndexed(ctx, got, size, index); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d indexed of %d bytes: %v, or other bytes", len(index), size, err)
			}
			i := slices.Index(index, border)
			one := make([]byte, size)
			if err := r.Get(ctx, one, border*uint64(size)); err != nil || !bytes.Equal(one, data[i*size:(i+1)*size]) {
				t.Errorf("the element of %d bytes at the border: %v, or other bytes", size, err)
			}
			few := min(len(index), 300)
			if err := r.Scatter(ctx, data[:few*size], size, border-1, 2); uint64(few)*2 < all-border && err != nil {
				t.Errorf("scatter of %d bytes each: %v", size, err)
			} else if err == nil {
				if err := r.Gather(ctx, got[:few*size], size, border-1, 2); err != nil || !bytes.Equal(got[:few*size], data[:few*size]) {
					t.Errorf("%d strided of %d bytes: %v, or other bytes", few, size, err)
				}
			}
		}
		p := make([]byte, 80)
		for what, tc := range map[string]struct{ err, want error }{
			"beyond the end":   {r.Gather(ctx, p, 8, uint64(r.Size())/8-9, 1), pool.ErrRange},
			"an index beyond":  {r.ScatterIndexed(ctx, p[:8], 8, []uint64{uint64(r.Size()) / 8}), pool.ErrRange},
			"numbers go round": {r.Gather(ctx, p[:24], 8, 1, 1<<63), pool.ErrRange},
			"an index wraps":   {r.GatherIndexed(ctx, p[:8], 8, []uint64{1 << 61}), pool.ErrRange},
			"no whole element": {r.Gather(ctx, p, 7, 0, 1), pool.ErrSpec},
			"no size":          {r.Gather(ctx, p, 0, 0, 1), pool.ErrSpec},
			"too few numbers":  {r.GatherIndexed(ctx, p, 8, []uint64{1}), pool.ErrSpec},
			"no numbers":       {r.GatherIndexed(ctx, p, 8, nil), pool.ErrSpec},
			"nothing":          {r.Gather(ctx, nil, 8, 0, 1), nil},
		} {
			if !errors.Is(tc.err, tc.want) {
				t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
			}
		}
	})
}

// TestPoolCopy: the component copies between two regions and within one, also from one extent into two.
func TestPoolCopy(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, _ := newPoolBench(t, scheme)
		ann, ctx := b.connect(t, tokenOwner), t.Context()
		var r [2]*pool.Region
		for i := range r {
			var err error
			if r[i], err = ann.Pool().CreateRegion(ctx, "n1", pool.Spec{Leased: true, Size: component.MinExtentBytes + 1<<20}); err != nil {
				t.Fatal(err)
			}
		}
		const n = 9 << 20
		data, got := make([]byte, n), make([]byte, n)
		rand.NewChaCha8([32]byte{3}).Read(data)
		put := r[0].StartPut(data, 1001)
		r[0].Fence()
		if err := errors.Join(r[0].Quiet(ctx), put.Wait(ctx)); err != nil {
			t.Fatal(err)
		}
		const border = component.MinExtentBytes - n/2
		for _, tc := range []struct {
			to  *pool.Region
			off uint64
		}{{r[1], 77}, {r[1], border - n - n}, {r[0], border - n - n}} {
			if err := r[0].CopyTo(ctx, 1001, tc.to, tc.off, n); err != nil {
				t.Fatal(err)
			}
			if err := tc.to.Get(ctx, got, tc.off); err != nil || !bytes.Equal(got, data) {
				t.Errorf("at %d: %v, or other bytes", tc.off, err)
			}
		}
		if err := r[0].CopyTo(ctx, 1001, r[1], component.MinExtentBytes-500, 1000); err != nil {
			t.Fatal(err)
		}
		if err := r[1].Get(ctx, got[:1000], component.MinExtentBytes-500); err != nil || !bytes.Equal(got[:1000], data[:1000]) {
			t.Errorf("over a border: %v, or other bytes", err)
		}
		for what, tc := range map[string]struct{ err, want error }{
			"overlap":      {r[0].CopyTo(ctx, 0, r[0], 99, 100), pool.ErrSpec},
			"side by side": {r[0].CopyTo(ctx, 0, r[0], 100, 100), nil},
			"beyond":       {r[0].CopyTo(ctx, 0, r[1], uint64(r[1].Size())-99, 100), pool.ErrRange},
			"from beyond":  {r[0].CopyTo(ctx, ^uint64(0)-5, r[1], 0, 100), pool.ErrRange},
			"nothing":      {r[0].CopyTo(ctx, 5, r[0], 5, 0), nil},
		} {
			if !errors.Is(tc.err, tc.want) {
				t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
			}
		}
	})
}

// TestPoolLeased: a leased region goes with its client's connection, another one stays.
func TestPoolLeased(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, _ := newPoolBench(t, scheme)
		ann, root, ctx := b.connect(t, tokenOwner), b.connect(t, tokenAdmin), t.Context()
		for _, s := range []pool.Spec{{Name: "stays", Size: 1 << 16}, {Leased: true, Size: 1 << 16}, {Leased: true, Size: 1 << 16, Name: "named"}, {Leased: true, Size: 1 << 16}} {
			r, err := ann.Pool().CreateRegion(ctx, "n1", s)
			if err != nil {
				t.Fatal(err)
			}
			if s.Name == "named" {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				if err := r.Get(ctx, make([]byte, 1), 0); !errors.Is(err, pool.ErrClosed) {
					t.Errorf("closed: %v", err)
				}
			}
		}
		count := func() int {
			list, err := root.Pool().ListRegions(ctx, "n1")
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if n := count(); n != 3 {
			t.Errorf("%d regions, and one of four was closed", n)
		}
		ann.Close()
		waitFor(t, "leased regions go", func() bool { return count() == 1 })
	})
}

// TestPoolLost: operations on a region whose node is gone say so, and nobody reads zeros in its place.
func TestPoolLost(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b, stop := newPoolBench(t, scheme)
		ann, ctx := b.connect(t, tokenOwner), t.Context()
		r, err := ann.Pool().CreateRegion(ctx, "n1", pool.Spec{Name: "work", Size: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		p := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
		waitFor(t, "the loss is noticed", func() bool { return errors.Is(r.Get(ctx, p, 0), pool.ErrLost) })
		for what, err := range map[string]error{"put": r.Put(ctx, p, 0), "word": r.Get(ctx, p[:8], 0), "started": r.StartGet(p, 0).Wait(ctx)} {
			if !errors.Is(err, pool.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := r.Access(0, 9, func([]byte) { t.Error("the memory of a node that is gone was accessed") }); err == nil {
			t.Error("access to a node that is gone")
		}
	})
}

// TestPoolAccess: over shm the holder of all rights works on the bytes themselves, without allocating.
func TestPoolAccess(t *testing.T) {
	b, _ := newPoolBench(t, "shm")
	r, err := b.connect(t, tokenOwner).Pool().CreateRegion(t.Context(), "n1", pool.Spec{Leased: true, Size: component.MinExtentBytes + 1<<16})
	if err != nil {
		t.Fatal(err)
	}
	var runs atomic.Int64
	fill := func(mem []byte) { runs.Add(int64(len(mem))); mem[0]++ }
	if n := testing.AllocsPerRun(99, func() {
		if err := r.Access(4096, 8192, fill); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	got := []byte{0}
	if err := r.Get(t.Context(), got, 4096); err != nil || got[0] != 100 || runs.Load() != 100*8192 {
		t.Errorf("%v after %d bytes, %v", got, runs.Load(), err)
	}
	if err := r.Access(component.MinExtentBytes-1, 2, fill); !errors.Is(err, pool.ErrNotMapped) {
		t.Errorf("over a border: %v", err)
	}
	if err := r.Access(uint64(r.Size())-1, 2, fill); !errors.Is(err, pool.ErrRange) {
		t.Errorf("over the end: %v", err)
	}
	if n := testing.AllocsPerRun(99, func() {
		if err := r.Put(t.Context(), got, 5); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("a Put: %v allocations", n)
	}
}
