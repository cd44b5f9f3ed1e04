package debgraph

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

const (
	// MaxMade bounds Make: 4 million vertices take 200 MB.
	MaxMade = 1 << 22

	madeSeed  = 1976 // the same graph every time
	madeGroup = 500  // vertices that need each other
	madeCore  = 200  // one vertex of so many belongs to the core, which all groups need
	madeNeeds = 6    // vertices that one needs at most
)

// Make makes a graph that is like an archive, but as large as one asks for: vertices
// come in groups, each needs up to six that came before it in its group, and some of a
// small core, of which few are needed by most. The same number gives the same graph.
func Make(vertices int) (*Graph, error) {
	if vertices < 1 || vertices > MaxMade {
		return nil, fmt.Errorf("%w: a graph of %d vertices: 1 to %d can be made", ErrTooLarge, vertices, MaxMade)
	}
	r := rand.New(rand.NewPCG(madeSeed, uint64(vertices)))
	core := max(1, vertices/madeCore)
	g := &Graph{Names: make([]string, vertices)}
	g.Meta.Title = "made for the occasion"
	g.Fwd.Off = make([]uint64, 1, vertices+1)
	row := make([]uint32, 0, madeNeeds)
	for v := range vertices {
		g.Names[v] = fmt.Sprintf("v%07d", v) // in the order of their numbers
		row = row[:0]
		for range r.IntN(madeNeeds + 1) {
			first := max(core, v-v%madeGroup) // of the group; the core is one of its own
			if v < core {
				first = 0
			}
			to := uint32(float64(min(core, v)) * r.Float64() * r.Float64() * r.Float64()) // the first are needed most
			if first < v && r.IntN(10) < 7 {
				to = uint32(first + r.IntN(v-first))
			}
			if int(to) < v && !slices.Contains(row, to) {
				row = append(row, to)
			}
		}
		slices.Sort(row)
		g.Fwd.Dst = append(g.Fwd.Dst, row...)
		g.Fwd.Off = append(g.Fwd.Off, uint64(len(g.Fwd.Dst)))
	}
	g.Rev = transpose(&g.Fwd)
	return g, nil
}
