package xrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	table "github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
)

// weightOf is an edge's weight: few different ones, 0 among them, exact in sums.
func weightOf(direction int, from, to uint32) float64 {
	if direction == 1 {
		from, to = to, from
	}
	return float64((from*31+to*17)%9) / 4
}

// weighted are a graph's windows, with weights.
func (g *digraph) weighted(shards sharding, elements int, weight func(direction int, from, to uint32) float64) [][][]byte {
	out := g.windows(shards, elements, 0)
	for e := range out {
		out[e] = append(out[e], nil, nil, nil, nil) // no names
	}
	for v := range g.size() {
		e, _, _ := shards.Owner(uint64(v))
		for d := range 2 {
			for _, to := range g.edges[d][v] {
				out[e][6+d] = binary.LittleEndian.AppendUint64(out[e][6+d], math.Float64bits(weight(d, uint32(v), to)))
			}
		}
	}
	return out
}

// nearest are shortest distances, by going over all edges until nothing changes.
func (g *digraph) nearest(direction int, from uint32) map[uint32]float64 {
	d := map[uint32]float64{from: 0}
	for changed := true; changed; {
		changed = false
		for v := range uint32(g.size()) {
			at, met := d[v]
			for _, to := range g.edges[direction][v] {
				if was, have := d[to]; met && (!have || at+weightOf(direction, v, to) < was) {
					d[to], changed = at+weightOf(direction, v, to), true
				}
			}
		}
	}
	return d
}

// Shortest distances are right on every sharding, over few elements and many, whatever order messages come in.
func TestSssp(t *testing.T) {
	e := newEngine(t)
	img := ready("sssp")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		shards, n := drawShards(t, uint64(g.size()))
		from := rapid.Uint32Range(0, uint32(g.size()-1)).Draw(t, "from")
		direction := rapid.IntRange(0, 1).Draw(t, "direction")
		most := float64(rapid.IntRange(0, 6).Draw(t, "most"))
		c := e.cluster(t, img, shards, g.weighted(shards, n, weightOf), order(t))
		defer c.close()
		parts, err := c.invoke(args(t, img, nil, map[string]string{
			"from": fmt.Sprint(from), "direction": fmt.Sprint(direction), "max_distance": fmt.Sprint(most),
		}), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		want := g.nearest(direction, from)
		maps.DeleteFunc(want, func(_ uint32, d float64) bool { return most != 0 && d > most })
		got := map[uint32]float64{}
		for _, row := range rowsOf(t, img, parts) {
			d, err := strconv.ParseFloat(row[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			v := number(t, row[0])
			if _, twice := got[v]; twice {
				t.Fatalf("vertex %d is reported twice", v)
			}
			got[v] = d
		}
		if !maps.Equal(got, want) {
			t.Fatalf("distances from %d are %v, want %v", from, got, want)
		}
	})
}

// Where most edges lead to another element, vertices are not gone through dozens of times: each of a grid on two and four elements
// two and four times, where Dijkstra's algorithm on each element until nothing is left takes 24 and 46.
func TestSsspWork(t *testing.T) {
	const side = 100
	var edges [][2]uint32
	for v := range uint32(side * side) {
		if v%side+1 < side {
			edges = append(edges, [2]uint32{v, v + 1}, [2]uint32{v + 1, v})
		}
		if v+side < side*side {
			edges = append(edges, [2]uint32{v, v + side}, [2]uint32{v + side, v})
		}
	}
	g, img, e := newDigraph(side*side, edges), ready("sssp"), newEngine(t)
	weight := func(direction int, from, to uint32) float64 {
		if direction == 1 {
			from, to = to, from
		}
		return seeded(uint64(from)<<32 | uint64(to)).Float64()
	}
	for elements, most := range map[int]int{2: 15, 4: 50} { // owner calls a vertex: one when it comes nearer, and one when it is sent; they were 59 and 179
		shards := spread(table.Hash, side*side, elements)
		c := e.cluster(t, img, shards, g.weighted(shards, elements, weight), nil)
		c.calls = map[string]int{}
		parts, err := c.invoke(args(t, img, nil, map[string]string{"from": "0"}), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(rowsOf(t, img, parts)); n != side*side {
			t.Errorf("%d elements: %d vertices are reached", elements, n)
		}
		if n := c.calls["owner"]; n > most*side*side {
			t.Errorf("%d elements: the host was asked %d times who has a vertex, want %d at most", elements, n, most*side*side)
		}
		c.close()
	}
}

// A weight below zero, or none at all, ends the call.
func TestSsspRefuses(t *testing.T) {
	e := newEngine(t)
	img := ready("sssp")
	g := newDigraph(3, [][2]uint32{{0, 1}, {1, 2}})
	shards := blocks(3, 2)
	negative := func(int, uint32, uint32) float64 { return -1 }
	nan := func(int, uint32, uint32) float64 { return math.NaN() }
	for what, windows := range map[string][][][]byte{
		"negative": g.weighted(shards, 2, negative), "NaN": g.weighted(shards, 2, nan), "none": g.windows(shards, 2, 0),
	} {
		c := e.cluster(t, img, shards, windows, nil)
		_, err := c.invoke(args(t, img, nil, map[string]string{"from": "0"}), c.every()...)
		if !errors.Is(err, statusError(abi.ErrArgument)) {
			t.Errorf("%s: %v, want ErrArgument", what, err)
		}
		c.close()
	}
}
