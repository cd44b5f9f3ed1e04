package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/demo/debgraph"
)

// FirstCandidates is how many vertices with the most direct dependents the
// injected ranking starts from. Their needs come on top: for bookworm, 64 become 383.
const FirstCandidates = 64

// Ranking is what the injected ranking found.
type Ranking struct {
	Top []debgraph.Ranked
	// Proven is how many of the first ranks no uncounted vertex can hold: see InjectTop.
	Proven int
	// Counted is how many vertices have an exact count, out of all.
	Counted int
	// Chain is the sum of the replies' chains; Trips is how many calls there were.
	Chain int
	Trips uint64
}

// InjectTop ranks the vertices that most others need, by injected functions.
// Counts are exact. It looks for candidates first, then proves that nobody was overlooked:
//
//   - The candidates C are the vertices with the most direct dependents and all that these need.
//     C is therefore closed: what a member needs is a member. Whoever is needed by a member is
//     needed by all who need that member, so the first ranks tend to be in C.
//   - Every candidate's dependents are counted, MaxStarts of them in one call.
//   - Let s be the number of vertices that need, directly, nothing outside C. What such a vertex
//     draws in lies in C, itself aside. So a vertex outside C is needed by at most n-s vertices.
//     Ranks with more than that are proven.
//
// If prove is set, the candidates are doubled until all n ranks are proven; a
// graph that has no such gap ends with everybody counted, which is proof as well.
func InjectTop(ctx context.Context, b Backend, l Layout, n int, prove bool) (*Ranking, error) {
	n = min(max(n, 0), int(l.Vertices))
	rk := &Ranking{}
	counted := make([]bool, l.Vertices)
	var all []debgraph.Ranked
	for k := max(FirstCandidates, n); ; k *= 2 {
		k = min(k, int(l.Vertices))
		candidates, err := rk.candidates(ctx, b, l, k)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(slices.DeleteFunc(slices.Clone(candidates), func(v uint32) bool { return counted[v] }), MaxStarts) {
			counts, err := rk.call(ctx, b, l, &Call{Op: OpDependents, Starts: part})
			if err != nil {
				return nil, err
			}
			if len(counts.Counts) != len(part) {
				return nil, fmt.Errorf("demo: %d counts came back for %d vertices", len(counts.Counts), len(part))
			}
			for i, v := range part {
				counted[v] = true
				all = append(all, debgraph.Ranked{ID: v, Count: int(counts.Counts[i])})
			}
		}
		slices.SortFunc(all, func(a, b debgraph.Ranked) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
		})
		rk.Counted = len(all)
		rk.Top = all[:min(n, len(all))]
		if err := rk.prove(ctx, b, l, counted); err != nil {
			return nil, err
		}
		if !prove || rk.Proven == n || rk.Counted == int(l.Vertices) {
			return rk, nil
		}
	}
}

// call injects and keeps the books.
func (rk *Ranking) call(ctx context.Context, b Backend, l Layout, c *Call) (*Reply, error) {
	reply, err := b.Inject(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := checkIDs(reply.IDs, l); err != nil {
		return nil, err
	}
	rk.Trips += max(1, reply.Trips)
	rk.Chain += reply.Chain
	return reply, nil
}

// checkIDs refuses vertices that do not exist.
func checkIDs(ids []uint32, l Layout) error {
	for _, v := range ids {
		if uint64(v) >= l.Vertices {
			return fmt.Errorf("%w: a reply names vertex %d of %d", ErrBadData, v, l.Vertices)
		}
	}
	return nil
}

// candidates are the k most direct and what they need, ascending.
func (rk *Ranking) candidates(ctx context.Context, b Backend, l Layout, k int) ([]uint32, error) {
	direct, err := rk.call(ctx, b, l, &Call{Op: OpMostDirect, Limit: k})
	if err != nil {
		return nil, err
	}
	closed, err := rk.call(ctx, b, l, &Call{Op: OpClosure, Dir: debgraph.Needs, Starts: direct.IDs})
	if err != nil {
		return nil, err
	}
	return closed.IDs, nil
}

// prove finds how many of the first ranks are certain, given who was counted.
func (rk *Ranking) prove(ctx context.Context, b Backend, l Layout, counted []bool) error {
	set := make([]uint64, (l.Vertices+63)/64)
	for v, in := range counted {
		if in {
			set[v/64] |= 1 << (v % 64)
		}
	}
	inside, err := rk.call(ctx, b, l, &Call{Op: OpInside, Set: set})
	if err != nil {
		return err
	}
	if len(inside.Counts) != 1 || inside.Counts[0] > l.Vertices {
		return fmt.Errorf("demo: the count of vertices inside a set came back as %v", inside.Counts)
	}
	bound := int(l.Vertices - inside.Counts[0])
	rk.Proven = 0
	for _, r := range rk.Top {
		if r.Count > bound || rk.Counted == int(l.Vertices) {
			rk.Proven++
		}
	}
	return nil
}
