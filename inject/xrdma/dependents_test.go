package xrdma

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/inject/abi"
)

func TestDependents(t *testing.T) {
	e := newEngine(t)
	img := ready("dependents")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		d := Direction(rapid.Uint32Range(0, 1).Draw(t, "direction"))
		vertices := drawVertices(t, g)
		c := e.cluster(t, img, shards, g.windows(shards, n, 7), order(t))
		defer c.close()
		if r := order(t); rapid.Bool().Draw(t, "full") {
			c.full = func() bool { return r(3) == 0 }
		}
		payload := DependentsArgs(d, vertices)
		if rapid.Bool().Draw(t, "text") {
			payload = args(t, img, nil, map[string]string{"direction": fmt.Sprint(d), "vertices": listText(vertices)})
		}
		parts, err := c.invoke(payload, c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		got := map[uint32]uint64{}
		for _, p := range parts {
			if _, err := AddDependents(got, p); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(vertices)
		vertices = slices.Compact(vertices)
		if len(got) != len(vertices) {
			t.Fatalf("%d vertices have a count, %d were named", len(got), len(vertices))
		}
		for _, v := range vertices {
			if want := len(g.distances(uint32(d), v)); got[v] != uint64(want) {
				t.Fatalf("vertex %d: %d, want %d", v, got[v], want)
			}
		}
		for _, row := range mergedRows(t, img, parts) { // as any other client sees it
			v := uint32(0)
			fmt.Sscan(row[0], &v)
			if row[2] != fmt.Sprint(got[v]) {
				t.Fatalf("merged: vertex %s has %s, not %d", row[0], row[2], got[v])
			}
		}
	})
}

// A graph big enough for lists of several messages, all 64 bits in use.
func TestDependentsBatches(t *testing.T) {
	e := newEngine(t)
	const vertices, n = 40000, 3
	var pairs [][2]uint32
	r := seeded(5)
	for v := uint32(1); v < vertices; v++ {
		pairs = append(pairs, [2]uint32{v, r.Uint32N(min(v, 200))})
	}
	g := newDigraph(vertices, pairs)
	shards := blocks(vertices, n)
	c := e.cluster(t, ready("dependents"), shards, g.windows(shards, n, 0), r.IntN)
	defer c.close()
	var named []uint32
	for v := range uint32(MaxDependents) {
		named = append(named, v*3)
	}
	parts, err := c.invoke(DependentsArgs(Backward, named), c.every()...)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint32]uint64{}
	rounds := uint32(0)
	for _, p := range parts {
		k, err := AddDependents(got, p)
		if err != nil {
			t.Fatal(err)
		}
		rounds = max(rounds, k)
	}
	for _, v := range named {
		if want := len(g.distances(1, v)); got[v] != uint64(want) {
			t.Fatalf("vertex %d: %d, want %d", v, got[v], want)
		}
	}
	if least := n + n*(n-1)*int(rounds); c.branches < least || rounds < 2 {
		t.Errorf("%d rounds, %d branches, at least %d were expected", rounds, c.branches, least)
	}
}

func TestInside(t *testing.T) {
	e := newEngine(t)
	img := ready("inside")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		d := Direction(rapid.Uint32Range(0, 1).Draw(t, "direction"))
		set := drawVertices(t, g)
		for v := range uint32(g.size()) {
			if rapid.Bool().Draw(t, "in") {
				set = append(set, v)
			}
		}
		c := e.cluster(t, img, shards, g.windows(shards, n, 0), order(t))
		defer c.close()
		payloads := InsideArgs(d, set)
		if rapid.Bool().Draw(t, "text") {
			payloads = [][]byte{args(t, img, nil, map[string]string{"direction": fmt.Sprint(d), "vertices": listText(set)})}
		}
		parts, err := c.invoke(payloads[0], c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		got, want := insideSum(t, parts), uint64(0)
		for v := range g.size() {
			if !slices.ContainsFunc(g.edges[d][v], func(to uint32) bool { return !slices.Contains(set, to) }) {
				want++
			}
		}
		if got != want {
			t.Fatalf("%d vertices are inside, want %d", got, want)
		}
	})
}

// insideSum is what all elements together count.
func insideSum(t tb, parts [][]byte) (sum uint64) {
	t.Helper()
	for _, p := range parts {
		n, err := InsideResult(p)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// A set that does not fit one payload, its lists in any order.
func TestInsideLists(t *testing.T) {
	e := newEngine(t)
	const vertices, n = 30000, 3
	var pairs [][2]uint32
	var set []uint32
	r := seeded(9)
	for v := range uint32(vertices) {
		pairs = append(pairs, [2]uint32{v, r.Uint32N(vertices)})
		if v%3 != 0 {
			set = append(set, v)
		}
	}
	g := newDigraph(vertices, pairs)
	shards := blocks(vertices, n)
	c := e.cluster(t, ready("inside"), shards, g.windows(shards, n, 0), r.IntN)
	defer c.close()
	payloads := InsideArgs(Forward, set)
	if len(payloads) < 3 {
		t.Fatalf("%d payloads", len(payloads))
	}
	for _, p := range payloads[1:] {
		for _, i := range c.every() {
			c.queue = append(c.queue, branch{i, p})
		}
	}
	parts, err := c.invoke(payloads[0], c.every()...)
	if err != nil {
		t.Fatal(err)
	}
	got, want := insideSum(t, parts), uint64(0)
	for v := range g.size() {
		if g.edges[0][v][0]%3 != 0 {
			want++
		}
	}
	if got != want {
		t.Fatalf("%d vertices are inside, want %d", got, want)
	}
}

func TestDegrees(t *testing.T) {
	e := newEngine(t)
	const vertices, n = 30000, 3 // more than a part at each
	var pairs [][2]uint32
	r := seeded(2)
	for range 3 * vertices {
		pairs = append(pairs, [2]uint32{r.Uint32N(vertices), r.Uint32N(vertices)})
	}
	g := newDigraph(vertices, pairs)
	for kind, shards := range kinds(vertices, n) {
		c := e.cluster(t, ready("degrees"), shards, g.windows(shards, n, 11), nil)
		defer c.close()
		for _, d := range []Direction{Forward, Backward} {
			parts, err := c.invoke(DegreesArgs(d), c.every()...)
			if err != nil {
				t.Fatal(err)
			}
			var got []Degree
			for _, p := range parts {
				if got, err = AppendDegrees(got, p); err != nil {
					t.Fatal(err)
				}
			}
			if kind == "block" && !slices.IsSortedFunc(got, func(a, b Degree) int { return cmp.Compare(a.Vertex, b.Vertex) }) {
				t.Error("blocks: the vertices are not in order")
			}
			seen := map[uint32]bool{}
			for _, v := range got {
				if seen[v.Vertex] || int(v.Edges) != len(g.edges[d][v.Vertex]) {
					t.Fatalf("%s: vertex %d has %d edges, not %d (or is there twice)", kind, v.Vertex, len(g.edges[d][v.Vertex]), v.Edges)
				}
				seen[v.Vertex] = true
			}
			if len(seen) != vertices {
				t.Fatalf("%s: %d vertices", kind, len(seen))
			}
		}
	}
	if _, err := AppendDegrees(nil, make([]byte, 12)); !errors.Is(err, ErrReply) {
		t.Errorf("a vertex and a half: %v", err)
	}
}

// What a closure's trail says is how many messages led to a branch.
func TestClosureTrail(t *testing.T) {
	e := newEngine(t)
	const vertices, n = 40, 4
	var pairs [][2]uint32
	for v := range uint32(vertices - 1) {
		pairs = append(pairs, [2]uint32{v, v + 1})
	}
	g := newDigraph(vertices, pairs)
	shards := blocks(vertices, n)
	c := e.cluster(t, Closure(), shards, g.windows(shards, n, 0), nil)
	defer c.close()
	for _, depth := range []uint32{0, 100} {
		parts, err := c.invoke(ClosureArgs{Vertices: []uint32{5}, Trail: true, MaxDepth: depth}.Encode(), 0)
		if err != nil {
			t.Fatal(err)
		}
		var reached []uint32
		for i, p := range parts {
			rest, messages, err := CutTrail(p)
			if err != nil || messages != uint32(i) {
				t.Errorf("branch %d: %d messages (%v)", i, messages, err)
			}
			if reached, err = AppendVertices(reached, rest); err != nil {
				t.Fatal(err)
			}
		}
		if len(parts) != n || len(reached) != vertices-5 {
			t.Errorf("%d branches reached %d vertices", len(parts), len(reached))
		}
	}
	// A chain through all elements leads on for as long as it is: two bytes do not hold how far.
	for _, name := range []string{"closure", "reach"} {
		c := e.cluster(t, ready(name), shards, g.windows(shards, n, 0), nil)
		parts, err := c.invoke(words(0, 0, 20, 4, 1<<16-1, 5), 0)
		if err != nil || len(parts) != n {
			t.Errorf("%s, far from where it began: %d branches (%v)", name, len(parts), err)
		}
		c.close()
	}
	if _, _, err := CutTrail([]byte{1, 2}); !errors.Is(err, ErrReply) {
		t.Errorf("a trail in two bytes: %v", err)
	}
}

// Payloads that make no sense are refused, by the caller's mistake or an element's.
func TestDependentsRefuses(t *testing.T) {
	e := newEngine(t)
	g := newDigraph(10, [][2]uint32{{0, 9}})
	shards := blocks(10, 2)
	list := func(v ...uint32) []byte { return words(v...) }
	many := make([]uint32, MaxDependents+1)
	for i := range many {
		many[i] = uint32(i)
	}
	const listed = 1<<31 | uint32(Backward)
	for name, c := range map[string]struct {
		function string
		payload  []byte
		want     abi.Status
	}{
		"no payload":         {"dependents", nil, abi.ErrArgument},
		"no such direction":  {"dependents", DependentsArgs(2, []uint32{1}), abi.ErrArgument},
		"no such vertex":     {"dependents", DependentsArgs(1, []uint32{10}), abi.ErrArgument},
		"a negative vertex":  {"dependents", append(words(1, 12, 2), "-1"...), abi.ErrArgument},
		"a huge vertex":      {"dependents", append(words(1, 12, 10), "4294967296"...), abi.ErrArgument},
		"text elsewhere":     {"dependents", append(words(1, 13, 2), "12"...), abi.ErrArgument},
		"a list cut short":   {"dependents", list(listed, 0, 1, 0, 0, 0, 1), abi.ErrArgument},
		"a list too far":     {"dependents", list(listed, 2, 1, 0, 0, 0, 0), abi.ErrArgument},
		"a foreign vertex":   {"dependents", list(listed, 0, 1, 0, 0, 0, 1, 9, 1, 0), abi.ErrArgument},
		"inside: none":       {"inside", words(0, 0, 16, 0), abi.ErrArgument},
		"inside: no vertex":  {"inside", InsideArgs(0, []uint32{10})[0], abi.ErrArgument},
		"inside: half":       {"inside", append(words(0, 1|listBinary, 16, 3), 1, 2, 3), abi.ErrArgument},
		"inside: direction":  {"inside", InsideArgs(2, []uint32{1})[0], abi.ErrArgument},
		"degrees: direction": {"degrees", DegreesArgs(2), abi.ErrArgument},
		"degrees: nothing":   {"degrees", nil, abi.ErrArgument},
	} {
		cl := e.cluster(t, ready(c.function), shards, g.windows(shards, 2, 0), nil)
		if _, err := cl.invoke(c.payload, 0); !errors.Is(err, statusError(c.want)) {
			t.Errorf("%s: %v, want status %d", name, err, c.want)
		}
		cl.close()
	}
	big := newDigraph(MaxDependents+1, nil)
	shards = blocks(uint64(big.size()), 2)
	cl := e.cluster(t, ready("dependents"), shards, big.windows(shards, 2, 0), nil)
	defer cl.close()
	if _, err := cl.invoke(DependentsArgs(1, many), 0); !errors.Is(err, statusError(abi.ErrLimit)) {
		t.Errorf("%d vertices: %v", len(many), err)
	}
}

func TestReplyDecoders(t *testing.T) {
	part := func(rows uint32, records ...uint32) []byte { return append(words(rows, 0), words(records...)...) }
	path, err := AppendPath(nil, part(2, 0, 5, 1, 6))
	if err != nil || !slices.Equal(path, []uint32{5, 6}) {
		t.Errorf("%v, %v", path, err)
	}
	top, err := AppendTop(nil, part(1, 3, 4))
	if err != nil || !slices.Equal(top, []Degree{{3, 4}}) {
		t.Errorf("%v, %v", top, err)
	}
	n, err := InsideResult(binary.LittleEndian.AppendUint64(part(1), 77))
	if err != nil || n != 77 {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range [][]byte{nil, {1}, part(2, 1, 2), part(0, 1), part(1, 1<<30, 5)} {
		_, err := AppendPath(nil, bad)
		if !errors.Is(err, ErrReply) {
			t.Errorf("%x is a path: %v", bad, err)
		}
		if len(bad) == 16 && binary.LittleEndian.Uint32(bad) == 1 {
			continue // a fair row for the others
		}
		if _, err := AppendTop(nil, bad); !errors.Is(err, ErrReply) {
			t.Errorf("%x is a ranking: %v", bad, err)
		}
		if _, err := InsideResult(bad); !errors.Is(err, ErrReply) {
			t.Errorf("%x is a count: %v", bad, err)
		}
		if _, err := AddDependents(map[uint32]uint64{}, bad); !errors.Is(err, ErrReply) {
			t.Errorf("%x are counts: %v", bad, err)
		}
	}
}

// TestRoundsMessages: a round of many elements takes some messages of each, not one to every other.
func TestRoundsMessages(t *testing.T) {
	e := newEngine(t)
	const vertices, n = 640, 64
	messages, _ := Round(n)
	if messages != 168 { // 56 members to their heads and back, eight heads to each other
		t.Fatalf("%d messages a round", messages)
	}
	var pairs [][2]uint32
	r := seeded(3)
	for range 4 * vertices {
		pairs = append(pairs, [2]uint32{r.Uint32N(vertices), r.Uint32N(vertices)})
	}
	g := newDigraph(vertices, pairs)
	shards := blocks(vertices, n)
	want := g.distances(0, 1)
	far := uint32(1)
	for v, d := range want {
		if d > want[far] {
			far = v
		}
	}
	for _, name := range []string{"path", "dependents"} {
		c := e.cluster(t, ready(name), shards, g.windows(shards, n, 0), r.IntN)
		payload := PathArgs(1, far, Forward, 0)
		if name == "dependents" {
			payload = DependentsArgs(Forward, []uint32{1})
		}
		parts, err := c.invoke(payload, c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		rounds, got := want[far], map[uint32]uint64{}
		for _, p := range parts {
			if name == "dependents" {
				if rounds, err = AddDependents(got, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		if name == "dependents" && got[1] != uint64(len(want)) {
			t.Errorf("%d vertices are counted, want %d", got[1], len(want))
		}
		if most := n + int(rounds)*messages + int(want[far]); c.branches > most || rounds < 3 {
			t.Errorf("%s: %d branches in %d rounds, at most %d were expected", name, c.branches, rounds, most)
		}
		c.close()
	}
}

// TestRoundsSleep: elements that have nothing to go on with, and for which there is nothing, take no part in rounds: of
// a search along a chain through all elements two groups have something to do at a time.
func TestRoundsSleep(t *testing.T) {
	e := newEngine(t)
	const n, each = 64, 3
	const vertices = n * each
	var pairs [][2]uint32
	for v := range uint32(vertices - 1) {
		pairs = append(pairs, [2]uint32{v, v + 1})
	}
	g := newDigraph(vertices, pairs)
	r := seeded(4)
	whole, _ := Round(n)
	for kind, shards := range kinds(vertices, n) {
		c := e.cluster(t, ready("path"), shards, g.windows(shards, n, 0), r.IntN)
		rows := rowsOf(t, ready("path"), invokePath(t, c, ready("path"), 0, vertices-1, 0, 0))
		checkPath(t, g, 0, 0, vertices-1, 0, rows)
		// All take part at first; then the heads, and one or two to whom something is said and who answer.
		if most := n + whole + vertices*(8*7+4) + n; c.branches > most {
			t.Errorf("path, %s: %d branches, at most %d were expected", kind, c.branches, most)
		}
		c.close()
		c = e.cluster(t, ready("dependents"), shards, g.windows(shards, n, 0), r.IntN)
		parts, err := c.invoke(DependentsArgs(Forward, []uint32{0}), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		got, rounds := map[uint32]uint64{}, uint32(0)
		for _, p := range parts {
			if rounds, err = AddDependents(got, p); err != nil {
				t.Fatal(err)
			}
		}
		if most := n + 2*whole + int(rounds)*(8*7+4); got[0] != vertices || c.branches > most {
			t.Errorf("dependents, %s: %d vertices, want %d; %d branches, at most %d were expected", kind, got[0], vertices, c.branches, most)
		}
		c.close()
	}
}
