package demotest

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
)

func windowsOf(d debgraph.Direction) (offsets, targets demo.Window) {
	if d == debgraph.Needs {
		return demo.FwdOffsets, demo.FwdTargets
	}
	return demo.RevOffsets, demo.RevTargets
}

// rule is a fixed point over vertices.
type rule struct {
	// improve is told what arrives for a vertex and says whether that changed it.
	improve func(item) bool
	// pass is the word that a changed vertex passes on.
	pass func(v uint32) uint64
	// merge makes one of two items for the same vertex.
	merge func(a, b item) item
}

// relax runs the rule until nothing changes. An element takes in a whole message,
// then works off what changed and lies there; what lies elsewhere is sent when it is done, one item
// a vertex.
func (r *run) relax(ctx context.Context, starts []item, d debgraph.Direction, f rule) error {
	offsets, targets := windowsOf(d)
	r.send(-1, 1, starts)
	return r.deliver(ctx, func(m message) error {
		var work []uint32
		queued := map[uint32]bool{}
		remote := map[uint32]item{}
		take := func(it item) {
			if f.improve(it) && !queued[it.vertex] {
				queued[it.vertex] = true
				work = append(work, it.vertex)
			}
		}
		for _, it := range m.items {
			take(it)
		}
		for len(work) > 0 {
			v := work[0]
			work, queued[v] = work[1:], false
			row, err := r.b.row(v, offsets, targets)
			if err != nil {
				return err
			}
			for _, t := range row {
				out := item{t, f.pass(v), v}
				if e, _ := r.b.layout.Owner(uint64(t)); e == m.to {
					take(out)
				} else if old, ok := remote[t]; ok {
					remote[t] = f.merge(old, out)
				} else {
					remote[t] = out
				}
			}
		}
		items := make([]item, 0, len(remote))
		for _, it := range remote {
			items = append(items, it)
		}
		slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.vertex, b.vertex) })
		r.send(m.to, m.depth+1, items)
		return nil
	})
}

// touched is how many elements own one of the vertices.
func (r *run) touched(ids []uint32) int {
	seen := map[int]bool{}
	for _, v := range ids {
		e, _ := r.b.layout.Owner(uint64(v))
		seen[e] = true
	}
	return len(seen)
}

// closure: every element keeps who was seen; only who is new is followed.
func (r *run) closure(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	seen := make([]bool, r.b.layout.Vertices)
	var ids []uint32
	starts := make([]item, len(c.Starts))
	for i, v := range c.Starts {
		starts[i] = item{vertex: v}
	}
	err := r.relax(ctx, starts, c.Dir, rule{
		improve: func(it item) bool {
			if seen[it.vertex] {
				return false
			}
			seen[it.vertex] = true
			ids = append(ids, it.vertex)
			return true
		},
		pass:  func(uint32) uint64 { return 0 },
		merge: func(a, _ item) item { return a },
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	return &demo.Reply{IDs: ids, Chain: r.reply(r.touched(ids), 4*len(ids))}, nil
}

// path: every element keeps each vertex's distance and, among the ways of that
// distance, the smallest vertex before it; then the way is followed back from the goal.
func (r *run) path(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	type state struct {
		dist   uint64 // 0: not seen, else distance+1
		before uint32
	}
	states := make([]state, r.b.layout.Vertices)
	start := c.Starts[0]
	err := r.relax(ctx, []item{{start, 1, start}}, debgraph.Needs, rule{
		improve: func(it item) bool {
			s := &states[it.vertex]
			if s.dist == it.word {
				s.before = min(s.before, it.from)
			}
			if s.dist != 0 && s.dist <= it.word {
				return false
			}
			*s = state{it.word, it.from}
			return true
		},
		pass: func(v uint32) uint64 { return states[v].dist + 1 },
		merge: func(a, b item) item {
			if cmp.Or(cmp.Compare(a.word, b.word), cmp.Compare(a.from, b.from)) > 0 {
				return b
			}
			return a
		},
	})
	if err != nil {
		return nil, err
	}
	var path []uint32
	if states[c.Goal].dist != 0 {
		path = []uint32{c.Goal}
		for v := c.Goal; v != start; {
			before := states[v].before
			from, _ := r.b.layout.Owner(uint64(v))
			if to, _ := r.b.layout.Owner(uint64(before)); to != from {
				r.depth++
				r.b.traffic.Messages++
				r.b.traffic.Between += headBytes + uint64(4*len(path))
			}
			v = before
			path = append(path, v)
		}
		slices.Reverse(path)
	}
	return &demo.Reply{IDs: path, Chain: r.reply(1, 4*len(path))}, nil
}

// dependents: one bit a start travels along NeededBy; each element keeps a word a vertex
// and at the end counts its bits.
func (r *run) dependents(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	if len(c.Starts) > demo.MaxStarts {
		return nil, fmt.Errorf("%w: %d starts, at most %d are possible", errCall, len(c.Starts), demo.MaxStarts)
	}
	words := make([]uint64, r.b.layout.Vertices)
	starts := make([]item, len(c.Starts))
	for i, v := range c.Starts {
		starts[i] = item{vertex: v, word: 1 << i}
	}
	err := r.relax(ctx, starts, debgraph.NeededBy, rule{
		improve: func(it item) bool {
			news := it.word &^ words[it.vertex]
			words[it.vertex] |= news
			return news != 0
		},
		pass:  func(v uint32) uint64 { return words[v] },
		merge: func(a, b item) item { return item{a.vertex, a.word | b.word, a.from} },
	})
	if err != nil {
		return nil, err
	}
	counts := make([]uint64, len(c.Starts))
	for _, w := range words {
		for ; w != 0; w &= w - 1 {
			counts[bits.TrailingZeros64(w)]++
		}
	}
	for i := range counts {
		counts[i]-- // a start reaches itself
	}
	return &demo.Reply{Counts: counts, Chain: r.reply(len(r.b.shards), 8*len(counts)*len(r.b.shards))}, nil
}

// ask charges one message of n bytes to every element.
func (r *run) ask(n int) {
	r.depth = 1
	r.b.traffic.Messages += uint64(len(r.b.shards))
	r.b.traffic.FromClient += uint64(len(r.b.shards) * (headBytes + n))
}

// mostDirect: every element names its best, who asked merges them.
func (r *run) mostDirect(c *demo.Call) (*demo.Reply, error) {
	if c.Limit < 0 {
		return nil, fmt.Errorf("%w: the first %d vertices", errCall, c.Limit)
	}
	r.ask(8)
	type direct struct {
		id uint32
		n  uint64
	}
	order := func(a, b direct) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.id, b.id)) }
	var all []direct
	for _, s := range r.b.shards {
		var own []direct
		for i := range s.Rows {
			o := s.Windows[demo.RevOffsets][8*i:]
			own = append(own, direct{uint32(s.First + i), binary.LittleEndian.Uint64(o[8:]) - binary.LittleEndian.Uint64(o)})
		}
		slices.SortFunc(own, order)
		all = append(all, own[:min(c.Limit, len(own))]...)
	}
	chain := r.reply(len(r.b.shards), 12*len(all))
	slices.SortFunc(all, order)
	reply := &demo.Reply{Chain: chain}
	for _, d := range all[:min(c.Limit, len(all))] {
		reply.IDs = append(reply.IDs, d.id)
		reply.Counts = append(reply.Counts, d.n)
	}
	return reply, nil
}

// inside: every element counts its own vertices.
func (r *run) inside(c *demo.Call) (*demo.Reply, error) {
	if uint64(len(c.Set)) != (r.b.layout.Vertices+63)/64 {
		return nil, fmt.Errorf("%w: a set of %d words", errCall, len(c.Set))
	}
	r.ask(8 * len(c.Set))
	n := uint64(0)
	for v := range uint32(r.b.layout.Vertices) {
		row, err := r.b.row(v, demo.FwdOffsets, demo.FwdTargets)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(row, func(t uint32) bool { return c.Set[t/64]>>(t%64)&1 == 0 }) {
			n++
		}
	}
	return &demo.Reply{Counts: []uint64{n}, Chain: r.reply(len(r.b.shards), 8*len(r.b.shards))}, nil
}

// chase: as far as the element's own indices lead, then on to the owner of the next.
func (r *run) chase(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	at := uint64(c.Starts[0])
	r.send(-1, 1, []item{{uint32(at), c.Hops, 0}})
	err := r.deliver(ctx, func(m message) error {
		left := m.items[0].word
		for left > 0 {
			e, row := r.b.layout.Owner(at)
			if e != m.to {
				r.send(m.to, m.depth+1, []item{{uint32(at), left, 0}})
				return nil
			}
			at = binary.LittleEndian.Uint64(r.b.shards[e].Windows[demo.ChaseNext][8*row:])
			left--
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &demo.Reply{Counts: []uint64{at}, Chain: r.reply(1, 8)}, nil
}
