package debgraph

import (
	"fmt"
	"slices"
)

// Direction picks a graph's side.
type Direction uint8

const (
	// Needs follows edges: from a package to what it needs.
	Needs Direction = iota
	// NeededBy follows edges backwards: from a package to who needs it.
	NeededBy
)

// String names the direction as the demo prints it.
func (d Direction) String() string {
	if d == Needs {
		return "needs"
	}
	return "needed by"
}

// Side is the rows of one direction.
func (g *Graph) Side(d Direction) *CSR {
	if d == Needs {
		return &g.Fwd
	}
	return &g.Rev
}

// Closure lists everything reachable from start in the given direction, start itself
// left out, in ascending order.
func (g *Graph) Closure(start uint32, d Direction) []uint32 {
	side := g.Side(d)
	seen := make([]bool, g.Len())
	seen[start] = true
	queue := []uint32{start}
	for i := 0; i < len(queue); i++ {
		for _, t := range side.Row(queue[i]) {
			if !seen[t] {
				seen[t] = true
				queue = append(queue, t)
			}
		}
	}
	out := queue[1:]
	slices.Sort(out)
	return out
}

// Path is a shortest chain of needs from one vertex to another, both ends
// included; nil if there is none. Of several shortest ones it is the one that,
// read from the end, takes the smallest id at every step: so everybody who asks gets the same.
func (g *Graph) Path(from, to uint32) []uint32 {
	depth := make([]int32, g.Len()) // 0: not seen, else distance+1
	depth[from] = 1
	queue := []uint32{from}
	for i := 0; i < len(queue) && depth[to] == 0; i++ {
		v := queue[i]
		for _, t := range g.Fwd.Row(v) {
			if depth[t] == 0 {
				depth[t] = depth[v] + 1
				queue = append(queue, t)
			}
		}
	}
	if depth[to] == 0 {
		return nil
	}
	path := []uint32{to}
	for v := to; v != from; {
		for _, p := range g.Rev.Row(v) { // ascending: the first that fits is the smallest
			if depth[p] == depth[v]-1 {
				v = p
				break
			}
		}
		path = append(path, v)
	}
	slices.Reverse(path)
	return path
}

// CheckPath says what is wrong with a chain of needs from one vertex to
// another, or nil if every step is an edge. It does not ask whether the chain is a shortest one.
func (g *Graph) CheckPath(path []uint32, from, to uint32) error {
	if len(path) == 0 || path[0] != from || path[len(path)-1] != to {
		return fmt.Errorf("debgraph: the path does not lead from %s to %s", g.Names[from], g.Names[to])
	}
	for i, v := range path[1:] {
		if int(v) >= g.Len() {
			return fmt.Errorf("debgraph: the path visits vertex %d of %d", v, g.Len())
		}
		if _, ok := slices.BinarySearch(g.Fwd.Row(path[i]), v); !ok {
			return fmt.Errorf("debgraph: the path steps from %s to %s, which is no edge", g.Names[path[i]], g.Names[v])
		}
	}
	return nil
}
