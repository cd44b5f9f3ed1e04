package xrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"pgregory.net/rapid"
)

// digraph is a graph as adjacency lists, forward and backward.
type digraph struct {
	edges [2][][]uint32
}

func newDigraph(n int, pairs [][2]uint32) *digraph {
	g := &digraph{edges: [2][][]uint32{make([][]uint32, n), make([][]uint32, n)}}
	for _, p := range pairs {
		g.edges[0][p[0]] = append(g.edges[0][p[0]], p[1])
		g.edges[1][p[1]] = append(g.edges[1][p[1]], p[0])
	}
	return g
}

func (g *digraph) size() int { return len(g.edges[0]) }

// windows cuts the graph into the four windows of each element. base is what
// every shard's offsets begin with.
func (g *digraph) windows(shards sharding, elements int, base uint64) [][][]byte {
	out := make([][][]byte, elements)
	for e := range out {
		out[e] = make([][]byte, 4)
		for d := range 2 {
			out[e][2*d] = u64s(base)
		}
	}
	for v := range g.size() {
		e, _, _ := shards.Owner(uint64(v))
		for d := range 2 {
			out[e][2*d+1] = append(out[e][2*d+1], u32s(g.edges[d][v]...)...)
			end := base + uint64(len(out[e][2*d+1])/4)
			out[e][2*d] = binary.LittleEndian.AppendUint64(out[e][2*d], end)
		}
	}
	return out
}

// distances is a plain breadth-first search; vertices that are not reached are missing.
func (g *digraph) distances(direction uint32, from ...uint32) map[uint32]uint32 {
	d := map[uint32]uint32{}
	for _, v := range from {
		d[v] = 0
	}
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		v := queue[0]
		for _, to := range g.edges[direction][v] {
			if _, have := d[to]; !have {
				d[to] = d[v] + 1
				queue = append(queue, to)
			}
		}
	}
	return d
}

func drawGraph(t *rapid.T) *digraph {
	n := rapid.IntRange(1, 60).Draw(t, "vertices")
	vertex := rapid.Uint32Range(0, uint32(n-1))
	pairs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]uint32 {
		return [2]uint32{vertex.Draw(t, "from"), vertex.Draw(t, "to")}
	}), 0, 150).Draw(t, "edges")
	return newDigraph(n, pairs)
}

func drawVertices(t *rapid.T, g *digraph) []uint32 {
	return rapid.SliceOfN(rapid.Uint32Range(0, uint32(g.size()-1)), 0, 4).Draw(t, "vertices")
}

// order draws which waiting branch runs next.
func order(t *rapid.T) func(int) int {
	r := seeded(rapid.Uint64().Draw(t, "order"))
	return r.IntN
}

func within(d map[uint32]uint32, depth uint32) []uint32 {
	var out []uint32
	for v, n := range d {
		if depth == 0 || n <= depth {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

func TestClosure(t *testing.T) {
	e := newEngine(t)
	img := Closure()
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		a := ClosureArgs{
			Direction: Direction(rapid.Uint32Range(0, 1).Draw(t, "direction")),
			MaxDepth:  rapid.SampledFrom([]uint32{0, 0, 1, 2, 3, 7, MaxClosureDepth}).Draw(t, "depth"),
			Vertices:  drawVertices(t, g),
		}
		want := within(g.distances(uint32(a.Direction), a.Vertices...), a.MaxDepth)
		base := rapid.SampledFrom([]uint64{0, 1000}).Draw(t, "base")
		c := e.cluster(t, img, shards, g.windows(shards, n, base), order(t))
		defer c.close()
		if r := order(t); rapid.Bool().Draw(t, "full") {
			c.full = func() bool { return r(3) == 0 }
		}
		payload := a.Encode()
		if rapid.Bool().Draw(t, "text") {
			payload = args(t, img, nil, map[string]string{
				"direction": fmt.Sprint(a.Direction), "max_depth": fmt.Sprint(a.MaxDepth), "vertices": listText(a.Vertices),
			})
		}
		parts, err := c.invoke(payload, c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for _, p := range parts {
			if got, err = AppendVertices(got, p); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("closure of %v is %v, want %v", a.Vertices, got, want)
		}
		if rows := rowsOf(t, img, parts); len(rows) != len(want) {
			t.Fatalf("%d rows, want %d", len(rows), len(want))
		}
	})
}

func listText(list []uint32) string {
	text := ""
	for i, v := range list {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(v)
	}
	return text
}

// reach counts; each edge of what it reaches is followed once, but for those of vertices that are max_depth away.
func TestReach(t *testing.T) {
	e := newEngine(t)
	img := ready("reach")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		from := drawVertices(t, g)
		depth := rapid.SampledFrom([]uint32{0, 1, 2, 3, 5, MaxClosureDepth}).Draw(t, "depth")
		c := e.cluster(t, img, shards, g.windows(shards, n, 0), order(t))
		defer c.close()
		payload := ClosureArgs{Vertices: from, MaxDepth: depth}.Encode()
		if rapid.Bool().Draw(t, "text") {
			payload = args(t, img, nil, map[string]string{"vertices": listText(from), "max_depth": fmt.Sprint(depth)})
		}
		parts, err := c.invoke(payload, c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		reached, edges := g.reach(depth, from...)
		got := mergedRows(t, img, parts)
		want := [][]string{{fmt.Sprint(reached), fmt.Sprint(edges)}}
		if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Fatalf("reach of %v is %v, want %v", from, got, want)
		}
	})
}

// reach is what a plain breadth-first search finds: vertices within depth (0: any), and the edges of those that are nearer.
func (g *digraph) reach(depth uint32, from ...uint32) (vertices, edges int) {
	for v, d := range g.distances(0, from...) {
		if depth == 0 || d <= depth {
			vertices++
		}
		if depth == 0 || d < depth {
			edges += len(g.edges[0][v])
		}
	}
	return vertices, edges
}

// TestReachDepth: in whatever order the lists of several elements arrive, an edge counts once. In this graph each vertex is met on
// longer ways first: a chain goes round the elements, and from each vertex of it an edge to every one behind it.
func TestReachDepth(t *testing.T) {
	e := newEngine(t)
	const vertices = 60
	var pairs [][2]uint32
	for v := uint32(0); v < vertices; v++ {
		for to := v + 1; to < vertices; to += 1 + v%3 {
			pairs = append(pairs, [2]uint32{v, to})
		}
	}
	g := newDigraph(vertices, pairs)
	for kind, shards := range kinds(vertices, 4) {
		for _, depth := range []uint32{1, 2, 3, 10, MaxClosureDepth} {
			reached, edges := g.reach(depth, 0)
			want := [][]string{{fmt.Sprint(reached), fmt.Sprint(edges)}}
			for seed := range uint64(5) {
				c := e.cluster(t, ready("reach"), shards, g.windows(shards, 4, 0), seeded(seed).IntN)
				parts, err := c.invoke(ClosureArgs{Vertices: []uint32{0}, MaxDepth: depth}.Encode(), c.every()...)
				if err != nil {
					t.Fatal(err)
				}
				if got := mergedRows(t, ready("reach"), parts); !slices.EqualFunc(got, want, slices.Equal[[]string]) {
					t.Errorf("%s, depth %d, order %d: %v, want %v", kind, depth, seed, got, want)
				}
				c.close()
			}
		}
	}
}

// A graph big enough for lists that fill several messages and parts.
func TestClosureBatches(t *testing.T) {
	e := newEngine(t)
	const vertices, n = 60000, 3
	var pairs [][2]uint32
	r := seeded(7)
	for v := uint32(1); v < vertices; v++ {
		pairs = append(pairs, [2]uint32{r.Uint32N(min(v, 50)), v}) // few hubs point to all
	}
	g := newDigraph(vertices, pairs)
	shards := blocks(vertices, n)
	c := e.cluster(t, Closure(), shards, g.windows(shards, n, 0), r.IntN)
	defer c.close()
	for _, depth := range []uint32{0, 3, 40} {
		want := within(g.distances(0, 0), depth)
		parts, err := c.invoke(ClosureArgs{Vertices: []uint32{0}, MaxDepth: depth}.Encode(), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for _, p := range parts {
			got, _ = AppendVertices(got, p)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("depth %d: %d vertices, want %d", depth, len(got), len(want))
		}
		// Each vertex goes to its owner once at most per sender: 4 (8) bytes in 32 KiB.
		if most := n + n*(n-1)*(vertices/n/4096+2) + 20; depth == 0 && c.branches > most {
			t.Errorf("%d branches, want at most %d", c.branches, most)
		}
	}
}

func TestClosureErrors(t *testing.T) {
	e := newEngine(t)
	g := newDigraph(4, [][2]uint32{{0, 1}, {1, 2}})
	broken := newDigraph(4, nil)
	broken.edges[0][0] = []uint32{77}
	shards := blocks(4, 2)
	img := Closure()
	text := func(values map[string]string) []byte { return anyArgs(t, img, nil, values) }
	for name, tc := range map[string]struct {
		g       *digraph
		payload []byte
	}{
		"no such vertex":         {g, text(map[string]string{"vertices": "4"})},
		"number too large":       {g, text(map[string]string{"vertices": "99999999999999999999"})},
		"negative":               {g, text(map[string]string{"vertices": "-1"})},
		"direction":              {g, text(map[string]string{"vertices": "1", "direction": "2"})},
		"depth":                  {g, text(map[string]string{"vertices": "1", "max_depth": "255"})},
		"short":                  {g, make([]byte, 15)},
		"list outside":           {g, u32s(0, 0, 16, 1)},
		"passed list outside":    {g, u32s(0, 0, 20, 4, 0)},
		"binary of 5 bytes":      {g, append(u32s(0, 0, 20, 5, 0), 0, 0, 0, 0, 0)},
		"edge to no vertex":      {broken, text(map[string]string{"vertices": "0"})},
		"edge to no vertex deep": {broken, text(map[string]string{"vertices": "0", "max_depth": "3"})},
	} {
		c := e.cluster(t, img, shards, tc.g.windows(shards, 2, 0), nil)
		if _, err := c.invoke(tc.payload, 0, 1); !errors.Is(err, statusError(abi.ErrArgument)) {
			t.Errorf("%s: %v, want ErrArgument", name, err)
		}
		c.close()
	}
	counts := e.cluster(t, ready("reach"), shards, g.windows(shards, 2, 0), nil)
	defer counts.close()
	if _, err := counts.invoke(ClosureArgs{Vertices: []uint32{0}, Trail: true}.Encode(), 0, 1); !errors.Is(err, statusError(abi.ErrArgument)) {
		t.Errorf("a trail of counts: %v, want ErrArgument", err)
	}
	windows := g.windows(shards, 2, 0)
	copy(windows[0][0], u64s(5)) // offsets that fall
	c := e.cluster(t, img, shards, windows, nil)
	defer c.close()
	if _, err := c.invoke(ClosureArgs{Vertices: []uint32{0}}.Encode(), 0, 1); !errors.Is(err, statusError(abi.ErrArgument)) {
		t.Errorf("broken offsets: %v, want ErrArgument", err)
	}
}

func TestLevel(t *testing.T) {
	e := newEngine(t)
	img := ready("level")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		from := rapid.Uint32Range(0, uint32(g.size()-1)).Draw(t, "from")
		direction := rapid.Uint32Range(0, 1).Draw(t, "direction")
		depth := rapid.Uint32Range(0, 4).Draw(t, "depth")
		c := e.cluster(t, img, shards, g.windows(shards, n, 0), order(t))
		defer c.close()
		parts, err := c.invoke(args(t, img, nil, map[string]string{
			"from": fmt.Sprint(from), "direction": fmt.Sprint(direction), "max_depth": fmt.Sprint(depth),
		}), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		want := g.distances(direction, from)
		maps.DeleteFunc(want, func(_, d uint32) bool { return depth != 0 && d > depth })
		got := map[uint32]uint32{}
		for _, row := range rowsOf(t, img, parts) {
			v, d := number(t, row[0]), number(t, row[1])
			if _, twice := got[v]; twice {
				t.Fatalf("vertex %d is reported twice", v)
			}
			got[v] = d
		}
		if !maps.Equal(got, want) {
			t.Fatalf("levels from %d are %v, want %v", from, got, want)
		}
	})
}

func number(t tb, s string) uint32 {
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

// checkPath checks that rows are a shortest path.
func checkPath(t tb, g *digraph, direction, from, to, depth uint32, rows [][]string) {
	t.Helper()
	want, reachable := g.distances(direction, from)[to]
	if !reachable || (depth != 0 && want > depth) {
		if len(rows) != 0 {
			t.Fatalf("a path from %d to %d, which is not in reach: %v", from, to, rows)
		}
		return
	}
	path := make([]uint32, len(rows))
	for _, row := range rows {
		path[number(t, row[0])] = number(t, row[1])
	}
	if len(path) != int(want)+1 || path[0] != from || path[want] != to {
		t.Fatalf("path from %d to %d is %v; the distance is %d", from, to, path, want)
	}
	for i := range want {
		if !slices.Contains(g.edges[direction][path[i]], path[i+1]) {
			t.Fatalf("path %v goes from %d to %d without an edge", path, path[i], path[i+1])
		}
	}
}

func invokePath(t tb, c *cluster, img *image.Image, from, to, direction, depth uint32) [][]byte {
	t.Helper()
	parts, err := c.invoke(args(t, img, nil, map[string]string{
		"from": fmt.Sprint(from), "to": fmt.Sprint(to), "direction": fmt.Sprint(direction), "max_depth": fmt.Sprint(depth),
	}), c.every()...)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func TestPath(t *testing.T) {
	e := newEngine(t)
	img := ready("path")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		vertex := rapid.Uint32Range(0, uint32(g.size()-1))
		from, to := vertex.Draw(t, "from"), vertex.Draw(t, "to")
		direction := rapid.Uint32Range(0, 1).Draw(t, "direction")
		depth := rapid.SampledFrom([]uint32{0, 0, 1, 2, 5}).Draw(t, "depth")
		c := e.cluster(t, img, shards, g.windows(shards, n, 0), order(t))
		defer c.close()
		parts := invokePath(t, c, img, from, to, direction, depth)
		rows := rowsOf(t, img, parts)
		checkPath(t, g, direction, from, to, depth, rows)
		for i, row := range rows { // short enough to come in order
			if number(t, row[0]) != uint32(i) {
				t.Fatalf("rows are out of order: %v", rows)
			}
		}
	})
}

// A path longer than one part, through all shards again and again.
func TestPathLong(t *testing.T) {
	e := newEngine(t)
	img := ready("path")
	const vertices, n = 9001, 3
	var pairs [][2]uint32
	for i := range uint32(vertices - 1) {
		pairs = append(pairs, [2]uint32{i, i + 1})
	}
	g := newDigraph(vertices, pairs)
	shards := blocks(vertices, n)
	c := e.cluster(t, img, shards, g.windows(shards, n, 0), nil)
	defer c.close()
	rows := rowsOf(t, img, invokePath(t, c, img, 0, vertices-1, 0, 0))
	checkPath(t, g, 0, 0, vertices-1, 0, rows)
}

func TestTopdeg(t *testing.T) {
	e := newEngine(t)
	img := ready("topdeg")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		k := rapid.IntRange(1, 70).Draw(t, "k")
		direction := rapid.Uint32Range(0, 1).Draw(t, "direction")
		merge := rapid.Bool().Draw(t, "merge")
		c := e.cluster(t, img, shards, g.windows(shards, n, 3), order(t))
		defer c.close()
		m := map[bool]string{true: "1", false: "0"}[merge]
		parts, err := c.invoke(args(t, img, nil, map[string]string{
			"k": fmt.Sprint(k), "direction": fmt.Sprint(direction), "merge": m,
		}), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		vertices := make([]uint32, g.size())
		for v := range vertices {
			vertices[v] = uint32(v)
		}
		degree := func(v uint32) int { return len(g.edges[direction][v]) }
		slices.SortStableFunc(vertices, func(a, b uint32) int { return degree(b) - degree(a) })
		var want [][]string
		add := func(of func(uint32) bool) {
			left := k
			for _, v := range vertices {
				if of(v) && left > 0 {
					want = append(want, []string{fmt.Sprint(v), fmt.Sprint(degree(v))})
					left--
				}
			}
		}
		if merge {
			add(func(uint32) bool { return true })
		} else {
			for s := range n {
				add(func(v uint32) bool { o, _, _ := shards.Owner(uint64(v)); return int(o) == s })
			}
		}
		got := rowsOf(t, img, parts)
		if !merge {
			byVertex := func(a, b []string) int { return slices.Compare(a, b) }
			slices.SortFunc(got, byVertex)
			slices.SortFunc(want, byVertex)
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Fatalf("top %d is %v, want %v", k, got, want)
		}
	})
}
