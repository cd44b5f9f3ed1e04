package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// Graph is what rounds are measured on: the edges of each vertex, forward and backward.
type Graph struct {
	Offsets [2][]uint64 // vertices + 1 each
	Targets [2][]uint32
}

// Load gets the graph; every process of the benchmark calls it.
type Load func() (*Graph, error)

// fewElements is how many elements the figures of all are compared with.
const fewElements = 4

// lent is a window of a graph's shard.
type lent struct {
	Key  []byte
	Size uint64
}

// graphSharding spreads a graph over the first elements.
func graphSharding(g *Graph, elements int) cluster.Sharding {
	return cluster.Sharding{Kind: cluster.Block, Elements: uint32(elements), Rows: uint64(len(g.Offsets[0]) - 1)}
}

// lendShards lends this server's shard of the graph, spread over a few elements and over all.
func (s *station) lendShards(spec *role, g *Graph) (all [][]lent, err error) {
	for _, elements := range []int{fewElements, spec.Count} {
		var windows []lent
		if spec.Index < elements {
			sharding := graphSharding(g, elements)
			first, count := sharding.ElementRows(uint32(spec.Index))
			for d := range g.Offsets {
				off := g.Offsets[d][first : first+count+1]
				var offsets, targets []byte
				for _, o := range off {
					offsets = binary.LittleEndian.AppendUint64(offsets, o-off[0])
				}
				for _, t := range g.Targets[d][off[0]:off[count]] {
					targets = binary.LittleEndian.AppendUint32(targets, t)
				}
				for _, b := range [][]byte{offsets, targets} {
					w, err := s.lend(b)
					if err != nil {
						return nil, err
					}
					windows = append(windows, w)
				}
			}
		}
		all = append(all, windows)
	}
	return all, nil
}

// lend makes a window of bytes; an absent one of none.
func (s *station) lend(b []byte) (lent, error) {
	if len(b) == 0 {
		return lent{}, nil
	}
	seg, err := s.el.NewSegment(uint64(len(b)), fabric.Writable)
	if err != nil {
		return lent{}, err
	}
	copy(seg.Bytes(), b)
	key, err := seg.Key(fabric.RightRead)
	return lent{key.Append(nil), uint64(len(b))}, err
}

// spreadGraph is a graph on the first elements, with its functions.
type spreadGraph struct {
	path, dependents  *inject.Function
	pathMs, dependsMs samples
}

func (c *client) spread(g *Graph, i, elements int) (*spreadGraph, error) {
	t := &cluster.Table{Name: "graph", Version: 1, Kind: cluster.Raw, Sharding: graphSharding(g, elements)}
	for _, s := range c.spec.Servers[:elements] {
		shard := cluster.Shard{Element: s.Name, Incarnation: s.Incarnation, Addrs: []string{s.Addr}}
		for _, w := range s.Graphs[i] {
			window := cluster.Window{Size: w.Size}
			if w.Size > 0 {
				var err error
				if window.Key, err = fabric.DecodeKey(w.Key); err != nil {
					return nil, err
				}
			}
			shard.Windows = append(shard.Windows, window)
		}
		t.Shards = append(t.Shards, shard)
	}
	t.FillRows()
	var out spreadGraph
	for _, f := range []struct {
		name string
		to   **inject.Function
	}{{"path", &out.path}, {"dependents", &out.dependents}} {
		img, err := xrdma.Lookup(f.name)
		if err == nil {
			*f.to, err = c.rt.Prepare(img, t)
		}
		if err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// timed calls a function on all elements of its table and takes the time.
func (c *client) timed(f *inject.Function, payload []byte, times *samples) (*inject.Result, error) {
	var roots []inject.Root
	for e := range f.Table().Shards {
		roots = append(roots, inject.Root{Element: uint32(e), Payload: payload})
	}
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	start := time.Now()
	fut, err := f.Start(ctx, roots, inject.Options{})
	if err != nil {
		return nil, err
	}
	r, err := fut.Wait(ctx)
	*times = append(*times, float64(time.Since(start))/1e6)
	return r, err
}

// question is what a turn asks: a path, and the dependents of some vertices; with the right answers.
type question struct {
	from, to uint32
	distance int // edges; -1: there is no path
	vertices []uint32
	counts   []uint64
}

// pathOf asks for the path and checks it.
func (c *client) pathOf(g *Graph, s *spreadGraph, q *question) error {
	r, err := c.timed(s.path, xrdma.PathArgs(q.from, q.to, xrdma.Forward, 0), &s.pathMs)
	if err != nil {
		return err
	}
	var path []uint32
	for _, p := range r.Pieces {
		if path, err = xrdma.AppendPath(path, p.Data); err != nil {
			return err
		}
	}
	if len(path) != q.distance+1 {
		return fmt.Errorf("the path from %d to %d has %d vertices, want %d", q.from, q.to, len(path), q.distance+1)
	}
	return nil
}

// dependentsOf asks for the vertices' dependents and checks the counts.
func (c *client) dependentsOf(s *spreadGraph, q *question) error {
	r, err := c.timed(s.dependents, xrdma.DependentsArgs(xrdma.Backward, q.vertices), &s.dependsMs)
	if err != nil {
		return err
	}
	got := map[uint32]uint64{}
	for _, p := range r.Pieces {
		if _, err := xrdma.AddDependents(got, p.Data); err != nil {
			return err
		}
	}
	for i, v := range q.vertices {
		if got[v] != q.counts[i] {
			return fmt.Errorf("%d vertices need %d, want %d", got[v], v, q.counts[i])
		}
	}
	return nil
}

// distances is a plain breadth-first search: -1 is not reached.
func (g *Graph) distances(direction int, from uint32) (d []int, reached uint64) {
	d = make([]int, len(g.Offsets[0])-1)
	for i := range d {
		d[i] = -1
	}
	d[from] = 0
	queue := []uint32{from}
	for i := 0; i < len(queue); i++ {
		v := queue[i]
		for _, to := range g.Targets[direction][g.Offsets[direction][v]:g.Offsets[direction][v+1]] {
			if d[to] < 0 {
				d[to] = d[v] + 1
				queue = append(queue, to)
			}
		}
	}
	return d, uint64(len(queue))
}

// question draws a question whose path is a long one.
func (c *client) question(g *Graph) question {
	n := uint32(len(g.Offsets[0]) - 1)
	q := question{from: c.rand.Uint32N(n)}
	d, _ := g.distances(0, q.from)
	q.to = q.from
	for v, k := range d {
		if k > d[q.to] {
			q.to = uint32(v)
		}
	}
	q.distance = d[q.to]
	for range 8 {
		v := c.rand.Uint32N(n)
		_, count := g.distances(1, v)
		q.vertices, q.counts = append(q.vertices, v), append(q.counts, count)
	}
	return q
}

// rounds measures functions that go on in rounds of all elements, on all and on a few of them.
func (c *client) rounds(load Load) error {
	if load == nil {
		return fmt.Errorf("there is no graph to measure rounds on")
	}
	g, err := load()
	if err != nil {
		return err
	}
	sizes := []int{fewElements, c.spec.Count}
	var on []*spreadGraph
	for i, n := range sizes {
		s, err := c.spread(g, i, n)
		if err != nil {
			return err
		}
		on = append(on, s)
	}
	turns := c.spec.Rounds
	if turns == 0 {
		turns = 2 * roundTurns
	}
	for turn := range turns + 1 { // the first warms up
		q := c.question(g)
		for i, s := range on {
			c.say(fmt.Sprintf("path, dependents on %d elements", sizes[i]), float64(turn)/float64(turns+1))
			if err := c.pathOf(g, s, &q); err != nil {
				return fmt.Errorf("path on %d elements: %w", sizes[i], err)
			}
			if err := c.dependentsOf(s, &q); err != nil {
				return fmt.Errorf("dependents on %d elements: %w", sizes[i], err)
			}
			if turn == 0 {
				s.pathMs, s.dependsMs = nil, nil
			}
		}
	}
	few, all := on[0], on[1]
	c.r.Set("path_ms_p50", all.pathMs.p(0.5))
	c.r.Set("dependents_ms_p50", all.dependsMs.p(0.5))
	c.r.Set("path_few_ms_p50", few.pathMs.p(0.5))
	c.r.Set("dependents_few_ms_p50", few.dependsMs.p(0.5))
	c.r.Set("path_over_few", all.pathMs.p(0.5)/few.pathMs.p(0.5))
	c.r.Set("dependents_over_few", all.dependsMs.p(0.5)/few.dependsMs.p(0.5))
	c.r.Set("few_elements", fewElements)
	c.r.Set("vertices", len(g.Offsets[0])-1)
	c.r.Set("calls_each", turns)
	return nil
}
