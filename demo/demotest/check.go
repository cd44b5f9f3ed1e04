package demotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
)

// checkTimeout bounds each of Check's cases.
const checkTimeout = time.Minute

// trafficEvery is how often Check looks at a Backend's traffic.
const trafficEvery = 8

// Check holds a Backend against the reference computations: every operation, on
// graphs with cycles, with vertices that nothing touches, and with fewer vertices than elements, and one-sided reads.
// lend makes a Backend that reaches the given shards.
func Check(t *testing.T, elements int, lend func(t *testing.T, l demo.Layout, shards []demo.Shard) demo.Backend) {
	for name, g := range graphs(t) {
		t.Run(name, func(t *testing.T) {
			l, shards, err := demo.GraphShards(g, elements)
			if err != nil {
				t.Fatal(err)
			}
			c := checker{t: t, g: g, l: l, b: lend(t, l, shards), r: rand.New(rand.NewPCG(1, uint64(g.Len())))}
			ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
			defer cancel()
			c.reads(ctx, shards)
			c.searches(ctx)
			c.dependents(ctx)
			c.scans(ctx)
			c.refusals(ctx)
		})
	}
	t.Run("chase", func(t *testing.T) { checkChase(t, elements, lend) })
}

func graphs(t *testing.T) map[string]*debgraph.Graph {
	t.Helper()
	read := func(text string) *debgraph.Graph {
		g, err := debgraph.ReadEdgeList("check", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	var ring, wild strings.Builder
	r := rand.New(rand.NewPCG(3, 4))
	for v := range 300 {
		fmt.Fprintf(&ring, "v%03d v%03d\n", v, (v+1)%300)
		fmt.Fprintf(&wild, "v%03d\n", v)
		for range r.IntN(3) {
			fmt.Fprintf(&wild, "v%03d v%03d\n", v, r.IntN(300))
		}
	}
	debian, err := debgraph.Load()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*debgraph.Graph{
		"single": read("a\n"), "few": read("a b\nb c\n"), "diamond": read("a b\na c\nb d\nc d\nd e\nx e\n"),
		"ring": read(ring.String()), "wild": read(wild.String()), "debian": debian,
	}
}

type checker struct {
	t *testing.T
	g *debgraph.Graph
	l demo.Layout
	b demo.Backend
	r *rand.Rand
	// soFar is the traffic that was seen: it only grows.
	soFar      demo.Traffic
	injections int
}

func (c *checker) vertex() uint32 { return uint32(c.r.IntN(c.g.Len())) }

func (c *checker) traffic(ctx context.Context) demo.Traffic {
	c.t.Helper()
	sum, err := c.b.Traffic(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	c.soFar = sum
	return sum
}

func (c *checker) inject(ctx context.Context, call *demo.Call) *demo.Reply {
	c.t.Helper()
	reply, err := c.b.Inject(ctx, call)
	if err != nil {
		c.t.Fatalf("%+v: %v", *call, err)
	}
	if reply.Chain < 2 {
		c.t.Fatalf("operation %d: a chain of %d messages; call and reply are two", call.Op, reply.Chain)
	}
	// Counting waits until it is quiet, so it is not done each time; some operations come seldom.
	c.injections++
	if c.injections%trafficEvery != 0 && call.Op != demo.OpDependents && call.Op != demo.OpInside {
		return reply
	}
	before := c.soFar
	if after := c.traffic(ctx); after.Messages < before.Messages+2 || after.ToClient <= before.ToClient || after.FromClient <= before.FromClient {
		c.t.Fatalf("operation %d: the traffic went from %+v to %+v", call.Op, before, after)
	}
	return reply
}

// reads compares every window with what was lent, by one Get a window and by many.
func (c *checker) reads(ctx context.Context, shards []demo.Shard) {
	var many []demo.Read
	var want [][]byte
	for e, s := range shards {
		for w, bytes := range s.Windows {
			if len(bytes) == 0 {
				continue
			}
			from := c.r.IntN(len(bytes))
			dst := make([]byte, c.r.IntN(len(bytes)-from)+1)
			read := demo.Read{Element: e, Window: demo.Window(w), Offset: uint64(from), Dst: dst}
			if err := c.b.Get(ctx, read); err != nil {
				c.t.Fatal(err)
			}
			if !slices.Equal(dst, bytes[from:from+len(dst)]) {
				c.t.Fatalf("element %d window %d: %d bytes at %d are not what was lent", e, w, len(dst), from)
			}
			many = append(many, demo.Read{Element: e, Window: demo.Window(w), Dst: make([]byte, len(bytes))})
			want = append(want, bytes)
		}
	}
	if err := c.b.GetMany(ctx, many); err != nil {
		c.t.Fatal(err)
	}
	for i := range many {
		if !slices.Equal(many[i].Dst, want[i]) {
			c.t.Fatalf("element %d window %d is not what was lent", many[i].Element, many[i].Window)
		}
	}
}

func (c *checker) searches(ctx context.Context) {
	for range 20 {
		from, to := c.vertex(), c.vertex()
		for _, d := range []debgraph.Direction{debgraph.Needs, debgraph.NeededBy} {
			want := append(c.g.Closure(from, d), from)
			slices.Sort(want)
			if got := c.inject(ctx, &demo.Call{Op: demo.OpClosure, Dir: d, Starts: []uint32{from}}); !slices.Equal(got.IDs, want) {
				c.t.Fatalf("closure of %d (%v): %d vertices, not %d", from, d, len(got.IDs), len(want))
			}
		}
		// Paths that exist are rare between any two: half of the goals are taken from the closure.
		if near := c.g.Closure(from, debgraph.Needs); len(near) > 0 && c.r.IntN(2) == 0 {
			to = near[c.r.IntN(len(near))]
		}
		want := c.g.Path(from, to)
		got := c.inject(ctx, &demo.Call{Op: demo.OpPath, Starts: []uint32{from}, Goal: to}).IDs
		if len(got) != len(want) {
			c.t.Fatalf("path from %d to %d: %v, not %v", from, to, got, want)
		}
		if want != nil {
			if err := c.g.CheckPath(got, from, to); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	var starts, want []uint32
	for range 10 {
		v := c.vertex()
		starts = append(starts, v)
		want = append(append(want, v), c.g.Closure(v, debgraph.Needs)...)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if got := c.inject(ctx, &demo.Call{Op: demo.OpClosure, Starts: starts}); !slices.Equal(got.IDs, want) {
		c.t.Fatalf("closure of %v: %d vertices, not %d", starts, len(got.IDs), len(want))
	}
}

func (c *checker) dependents(ctx context.Context) {
	for _, n := range []int{1, 7, demo.MaxStarts} {
		var starts []uint32
		for range n {
			starts = append(starts, c.vertex())
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		got := c.inject(ctx, &demo.Call{Op: demo.OpDependents, Starts: starts})
		if len(got.Counts) != len(starts) {
			c.t.Fatalf("%d counts for %d starts", len(got.Counts), len(starts))
		}
		for i, v := range starts {
			if want := len(c.g.Closure(v, debgraph.NeededBy)); got.Counts[i] != uint64(want) {
				c.t.Fatalf("vertex %d has %d dependents, not %d", v, want, got.Counts[i])
			}
		}
	}
}

func (c *checker) scans(ctx context.Context) {
	limit := min(50, c.g.Len())
	got := c.inject(ctx, &demo.Call{Op: demo.OpMostDirect, Limit: limit})
	all := make([]uint32, c.g.Len())
	for v := range all {
		all[v] = uint32(v)
	}
	slices.SortStableFunc(all, func(a, b uint32) int { return c.g.Rev.Degree(b) - c.g.Rev.Degree(a) })
	if !slices.Equal(got.IDs, all[:limit]) || len(got.Counts) != limit {
		c.t.Fatalf("the most direct dependents have %v, not %v", got.IDs, all[:limit])
	}
	for i, v := range got.IDs {
		if got.Counts[i] != uint64(c.g.Rev.Degree(v)) {
			c.t.Fatalf("vertex %d has %d direct dependents, not %d", v, c.g.Rev.Degree(v), got.Counts[i])
		}
	}
	set := make([]uint64, (c.g.Len()+63)/64)
	for range c.g.Len() / 2 {
		v := c.vertex()
		set[v/64] |= 1 << (v % 64)
	}
	want := uint64(0)
	for v := range c.g.Names {
		outside := func(t uint32) bool { return set[t/64]>>(t%64)&1 == 0 }
		if !slices.ContainsFunc(c.g.Fwd.Row(uint32(v)), outside) {
			want++
		}
	}
	if got := c.inject(ctx, &demo.Call{Op: demo.OpInside, Set: set}); !slices.Equal(got.Counts, []uint64{want}) {
		c.t.Fatalf("%v vertices need nothing outside the set, not %d", got.Counts, want)
	}
}

// refusals: what makes no sense is an error, and the Backend lives on.
func (c *checker) refusals(ctx context.Context) {
	for _, call := range []*demo.Call{
		{Op: demo.OpClosure},
		{Op: demo.OpClosure, Starts: []uint32{uint32(c.g.Len())}},
		{Op: demo.OpPath, Starts: []uint32{0}, Goal: ^uint32(0)},
		{Op: demo.OpDependents, Starts: make([]uint32, demo.MaxStarts+1)},
		{Op: demo.OpInside, Set: make([]uint64, 1+len(c.g.Names))},
		{Op: 200, Starts: []uint32{0}},
	} {
		if _, err := c.b.Inject(ctx, call); err == nil {
			c.t.Errorf("%+v was answered", *call)
		}
	}
	for _, r := range []demo.Read{
		{Element: c.l.Elements, Dst: make([]byte, 8)},
		{Element: 0, Window: 200, Dst: make([]byte, 8)},
		{Element: 0, Window: demo.FwdOffsets, Offset: c.l.WindowBytes[0][0] - 4, Dst: make([]byte, 8)},
		{Element: 0, Window: demo.FwdOffsets, Offset: ^uint64(0) - 3, Dst: make([]byte, 8)},
	} {
		if c.b.Get(ctx, r) == nil || c.b.GetMany(ctx, []demo.Read{r}) == nil {
			c.t.Errorf("a read of 8 bytes at %d of window %d at element %d was answered", r.Offset, r.Window, r.Element)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.b.Inject(gone, &demo.Call{Op: demo.OpClosure, Starts: []uint32{0}}); !errors.Is(err, context.Canceled) {
		c.t.Errorf("a call whose context is over gave %v", err)
	}
	c.inject(ctx, &demo.Call{Op: demo.OpClosure, Starts: []uint32{0}})
}

func checkChase(t *testing.T, elements int, lend func(*testing.T, demo.Layout, []demo.Shard) demo.Backend) {
	next, err := demo.Permutation(10_000, 7)
	if err != nil {
		t.Fatal(err)
	}
	l, shards, err := demo.ChaseShards(next, elements)
	if err != nil {
		t.Fatal(err)
	}
	b := lend(t, l, shards)
	ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
	defer cancel()
	for _, hops := range []uint64{0, 1, 2, 999, 10_000, 10_001} {
		got, err := b.Inject(ctx, &demo.Call{Op: demo.OpChase, Starts: []uint32{17}, Hops: hops})
		if err != nil {
			t.Fatal(err)
		}
		if want := demo.Chase(next, 17, hops); !slices.Equal(got.Counts, []uint64{want}) {
			t.Fatalf("%d hops lead to %v, not %d", hops, got.Counts, want)
		}
	}
}
