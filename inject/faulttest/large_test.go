package faulttest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// network is a graph as adjacency lists.
type network [][]uint32

// scatter is a random graph.
func scatter(vertices, edges int) network {
	g := make(network, vertices)
	r := rand.New(rand.NewPCG(3, 5))
	for range edges {
		from := r.IntN(vertices)
		g[from] = append(g[from], r.Uint32N(uint32(vertices)))
	}
	return g
}

// distances is a plain breadth-first search: each vertex's distance, plus 1; 0: it is not reached.
func (g network) distances(from uint32) []uint32 {
	d := make([]uint32, len(g))
	d[from] = 1
	for queue := []uint32{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range g[queue[0]] {
			if d[to] == 0 {
				d[to] = d[queue[0]] + 1
				queue = append(queue, to)
			}
		}
	}
	return d
}

// graph spreads a graph over the nodes; both directions have the same edges.
func (g *grid) graph(net network, kind cluster.ShardKind) *cluster.Table {
	g.t.Helper()
	t := &cluster.Table{Name: "graph", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: kind, Elements: uint32(len(g.nodes)), Rows: uint64(len(net))}}
	offsets, targets := make([][]byte, len(g.nodes)), make([][]byte, len(g.nodes))
	for e := range offsets {
		offsets[e] = make([]byte, 8)
	}
	for v, list := range net {
		e, _, _ := t.Sharding.Owner(uint64(v))
		for _, to := range list {
			targets[e] = binary.LittleEndian.AppendUint32(targets[e], to)
		}
		offsets[e] = binary.LittleEndian.AppendUint64(offsets[e], uint64(len(targets[e])/4))
	}
	for e, n := range g.nodes {
		at, to := n.segment(g.t, offsets[e], fabric.RightRead), n.segment(g.t, targets[e], fabric.RightRead)
		t.Shards = append(t.Shards, cluster.Shard{Element: n.name, Incarnation: n.inc, Addrs: n.addrs, Windows: []cluster.Window{at, to, at, to}})
	}
	t.FillRows()
	return t
}

// ask runs a ready function on the whole of a table.
func (g *grid) ask(name string, table *cluster.Table, payload []byte) *inject.Result {
	g.t.Helper()
	img, err := xrdma.Lookup(name)
	if err != nil {
		g.t.Fatal(err)
	}
	f := g.prepare(g.client, img, table)
	var roots []inject.Root
	for e := range table.Shards {
		roots = append(roots, inject.Root{Element: uint32(e), Payload: payload})
	}
	res, err := run(within(g.t, time.Minute), f, roots...)
	if err != nil {
		g.t.Fatalf("%s: %v", name, err)
	}
	return res
}

// reached reads a closure's result, sorted.
func reached(t testing.TB, res *inject.Result) (list []uint32) {
	t.Helper()
	for _, p := range res.Pieces {
		var err error
		if list, err = xrdma.AppendVertices(list, p.Data); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(list)
	return list
}

// checkGraph compares what closure, level and dependents find from a vertex with a plain search.
func (g *grid) checkGraph(net network, table *cluster.Table, from uint32) {
	g.t.Helper()
	want := net.distances(from)
	var all []uint32
	for v, d := range want {
		if d > 0 {
			all = append(all, uint32(v))
		}
	}
	args := xrdma.ClosureArgs{Vertices: []uint32{from}}
	if got := reached(g.t, g.ask("closure", table, args.Encode())); !slices.Equal(got, all) {
		g.t.Errorf("the closure has %d vertices, want %d", len(got), len(all))
	}
	levels := make([]uint32, len(net))
	for _, p := range g.ask("level", table, append(binary.LittleEndian.AppendUint32(nil, from), make([]byte, 8)...)).Pieces {
		for b := p.Data[8:]; len(b) > 0; b = b[8:] {
			levels[binary.LittleEndian.Uint32(b)] = binary.LittleEndian.Uint32(b[4:]) + 1
		}
	}
	if !slices.Equal(levels, want) {
		g.t.Error("level's distances are wrong")
	}
	g.checkCounts(net, table, from, from+1)
}

// checkCounts compares how many vertices dependents counts with plain searches.
func (g *grid) checkCounts(net network, table *cluster.Table, from ...uint32) {
	g.t.Helper()
	counts := map[uint32]uint64{}
	for _, p := range g.ask("dependents", table, xrdma.DependentsArgs(xrdma.Forward, from)).Pieces {
		if _, err := xrdma.AddDependents(counts, p.Data); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, v := range from {
		want := uint64(0)
		for _, d := range net.distances(v) {
			want += uint64(min(d, 1))
		}
		if counts[v] != want {
			g.t.Errorf("%d vertices are counted from %d, want %d", counts[v], v, want)
		}
	}
}

// TestLargeLists covers: functions whose elements all send each other, in one round, ten times what the queues between them hold. They wait
// for room, take in what arrives meanwhile, and are right.
func TestLargeLists(t *testing.T) { overBoth(t, largeLists) }

func largeLists(t *testing.T, change func(*settings)) {
	g := newGrid(t, 3, nil, func(s *settings) {
		change(s)
		s.OutboxBytes, s.WindowBytes = 64<<10, 160<<10
		s.Travel = travel.Limits{PrincipalHeldBytes: 64 << 10}
	})
	for kind, vertices := range map[cluster.ShardKind]int{cluster.Block: 450_000, cluster.Cyclic: 150_000} { // rows that are dealt out are asked for one by one
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			g.t = t
			if testing.Short() {
				vertices /= 3
			}
			net := scatter(vertices, 3*vertices)
			table := g.graph(net, kind)
			g.checkGraph(net, table, 7)
			g.checkCounts(net, table, 1, 2, 3, 5)
		})
	}
	g.t = t
	for _, n := range g.nodes {
		switch s := n.report(t).Stats; {
		case s.Waits == 0 || s.TakenIn == 0:
			t.Errorf("on %s forks waited %d times, and %d branches were taken in beyond what may be held: the lists were not long", n.name, s.Waits, s.TakenIn)
		case s.Stuck > 0 || s.Sizes.Kept+s.Sizes.Backlog+s.Sizes.BacklogBytes > 0:
			t.Errorf("%s ended %d branches that it found to be stuck, and has left %+v", n.name, s.Stuck, s.Sizes)
		}
	}
	g.serves()
}

// TestLongChain covers: a function that gets on is ended by no limit of runaways. A search along a chain changes elements at each
// step, so it takes as many hops and branches, one after the other, as there are vertices.
func TestLongChain(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, nil, func(s *settings) { s.Travel.Branches = 3000 })
	chain := func(vertices int) network {
		net := make(network, vertices)
		for v := range vertices - 1 {
			net[v] = []uint32{uint32(v + 1)}
		}
		return net
	}
	net := chain(5000) // hop budgets have 12 bits
	args := xrdma.ClosureArgs{Vertices: []uint32{0}}
	if got := reached(t, g.ask("closure", g.graph(net, cluster.Cyclic), args.Encode())); len(got) != len(net) {
		t.Errorf("the closure has %d vertices, want %d", len(got), len(net))
	}
	net = chain(1500)
	g.checkGraph(net, g.graph(net, cluster.Cyclic), 0)
	g.serves()
}

// TestWideClosure covers: a search whose front is wide does not send ever more and ever shorter lists. In this graph each list leads to others
// for all elements, and hardly any edge stays in its element.
func TestWideClosure(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 4, nil, func(s *settings) { s.Travel.Branches = 2500 })
	net := scatter(120_000, 240_000)
	table := g.graph(net, cluster.Block)
	want := 0
	for _, d := range net.distances(7) {
		want += int(min(d, 1))
	}
	for _, depth := range []uint32{0, 200} {
		args := xrdma.ClosureArgs{Vertices: []uint32{7}, MaxDepth: depth}
		if got := reached(t, g.ask("closure", table, args.Encode())); len(got) != want {
			t.Errorf("the closure up to depth %d has %d vertices, want %d", depth, len(got), want)
		}
	}
	g.serves()
}
