package debgraph

import (
	"cmp"
	"math/bits"
	"slices"
)

// blockWords is how many machine words of sources are propagated at once when
// everything is counted: 1024 sources, so that the masks of the archive's components take 8 MiB.
const blockWords = 16

// Ranked is a vertex and how many others need it, directly or not.
type Ranked struct {
	ID    uint32
	Count int
}

// Top lists the n vertices that most others need, directly or not, with exact
// counts: by falling count, then by ascending id.
//
// It counts one vertex after the other and leaves out most: whoever needs v is needed by no more
// vertices than v is, because all of those need v as well. So once n counts are known, a vertex whose
// count is below all of them rules out itself and everybody who needs it. Vertices on a common cycle
// have one count. Only the reverse side is looked at.
func (g *Graph) Top(n int) []Ranked {
	n = min(max(n, 0), g.Len())
	order := make([]uint32, g.Len())
	for v := range order {
		order[v] = uint32(v)
	}
	// The sooner the large counts are known, the more is ruled out.
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(g.Rev.Degree(b), g.Rev.Degree(a)), cmp.Compare(a, b))
	})
	members := g.Rev.members()
	best := make([]Ranked, 0, n+1)
	out := make([]bool, g.Len())
	seen := make([]uint32, g.Len()) // the round that saw a vertex last
	var queue []uint32
	for i, v := range order {
		if n == 0 || out[v] {
			continue
		}
		round := uint32(i + 1)
		seen[v] = round
		queue = append(queue[:0], v)
		for k := 0; k < len(queue); k++ {
			for _, t := range g.Rev.Row(queue[k]) {
				if seen[t] != round {
					seen[t] = round
					queue = append(queue, t)
				}
			}
		}
		count := len(queue) - 1
		if len(best) == n && count < best[n-1].Count {
			for _, t := range queue {
				out[t] = true
			}
			continue
		}
		for k, t := range members(v) { // by ascending id: those after the first n cannot be among the best
			if out[t] = true; k < n {
				best = rank(best, Ranked{t, count}, n)
			}
		}
	}
	return best
}

// rank puts r into the best n.
func rank(best []Ranked, r Ranked, n int) []Ranked {
	at, _ := slices.BinarySearchFunc(best, r, compareRanked)
	best = slices.Insert(best, at, r)
	return best[:min(n, len(best))]
}

// members returns a function that lists the vertices of a vertex's component, ascending.
func (c *CSR) members() func(v uint32) []uint32 {
	comp, n := c.components()
	start := make([]uint32, n+1)
	for _, k := range comp {
		start[k+1]++
	}
	for k := range n {
		start[k+1] += start[k]
	}
	list, at := make([]uint32, len(comp)), slices.Clone(start[:n])
	for v, k := range comp {
		list[at[k]] = uint32(v)
		at[k]++
	}
	return func(v uint32) []uint32 { return list[start[comp[v]]:start[comp[v]+1]] }
}

func compareRanked(a, b Ranked) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
}

// Dependents counts for every vertex how many others need it, directly or not:
// the length of Closure(v, NeededBy), for all v at once. Cycles are collapsed;
// then blocks of sources travel as bit masks along what is needed, in topological order.
func (g *Graph) Dependents() []int {
	comp, n := g.Fwd.components()
	weight := make([]int, n) // vertices per component
	for _, c := range comp {
		weight[c]++
	}
	// Components are numbered such that what a component needs has a lower number.
	members := make([][]uint32, n)
	for v, c := range comp {
		members[c] = append(members[c], uint32(v))
	}
	next := make([][]uint32, n)
	for c := range n {
		for _, v := range members[c] {
			for _, t := range g.Fwd.Row(v) {
				if comp[t] != uint32(c) {
					next[c] = append(next[c], comp[t])
				}
			}
		}
		slices.Sort(next[c])
		next[c] = slices.Compact(next[c])
	}
	total := make([]int, n) // per component: members of all components that reach it
	masks := make([][blockWords]uint64, n)
	for base := 0; base < n; base += blockWords * 64 {
		propagate(masks, next, base)
		countBlock(total, masks, weight, base)
	}
	out := make([]int, g.Len())
	for v, c := range comp {
		out[v] = total[c] - 1 // a vertex does not count itself
	}
	return out
}

// propagate sets masks to which of the block's components reach each component.
func propagate(masks [][blockWords]uint64, next [][]uint32, base int) {
	clear(masks)
	n := len(masks)
	for i := base; i < min(n, base+blockWords*64); i++ {
		masks[i][(i-base)/64] |= 1 << ((i - base) % 64)
	}
	// No component above the block is reached by one in it.
	for c := min(n, base+blockWords*64) - 1; c >= 0; c-- {
		m := masks[c]
		if m == ([blockWords]uint64{}) {
			continue
		}
		for _, t := range next[c] {
			dst := &masks[t]
			for w := range m {
				dst[w] |= m[w]
			}
		}
	}
}

// countBlock adds the weights of the block's components to all that they reach.
func countBlock(total []int, masks [][blockWords]uint64, weight []int, base int) {
	for c := range masks {
		for w, word := range masks[c] {
			for ; word != 0; word &= word - 1 {
				total[c] += weight[base+w*64+bits.TrailingZeros64(word)]
			}
		}
	}
}

// components finds the strongly connected components (Tarjan, SIAM J. Comput.
// 1972, with an explicit stack). A component that another one has an edge to has the lower number.
func (c *CSR) components() (comp []uint32, n int) {
	const none = ^uint32(0)
	size := len(c.Off) - 1
	comp = make([]uint32, size)
	low := make([]uint32, size)
	order := make([]uint32, size) // 0: not visited
	for v := range comp {
		comp[v] = none
	}
	type frame struct {
		v    uint32
		next int
	}
	var calls []frame
	var open []uint32
	clock := uint32(0)
	for root := range size {
		if order[root] != 0 {
			continue
		}
		calls = append(calls, frame{v: uint32(root)})
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			if f.next == 0 {
				clock++
				order[f.v], low[f.v] = clock, clock
				open = append(open, f.v)
			}
			row := c.Row(f.v)
			if f.next < len(row) {
				t := row[f.next]
				f.next++
				if order[t] == 0 {
					calls = append(calls, frame{v: t})
				} else if comp[t] == none {
					low[f.v] = min(low[f.v], order[t])
				}
				continue
			}
			v := f.v
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				p := calls[len(calls)-1].v
				low[p] = min(low[p], low[v])
			}
			if low[v] != order[v] {
				continue
			}
			for {
				t := open[len(open)-1]
				open = open[:len(open)-1]
				comp[t] = uint32(n)
				if t == v {
					break
				}
			}
			n++
		}
	}
	return comp, n
}
