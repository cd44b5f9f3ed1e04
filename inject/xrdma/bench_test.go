package xrdma

import (
	"fmt"
	"testing"
)

// ring is one random cycle through all rows of a table.
func ring(rows int) []uint64 {
	order := seeded(5).Perm(rows)
	table := make([]uint64, rows)
	for i, row := range order {
		table[row] = uint64(order[(i+1)%rows])
	}
	return table
}

// A hop of a chase that stays on one element, as shipped (wazero, without what
// an element adds to stop a runaway), and the same loop in Go.
func BenchmarkChaseHop(b *testing.B) {
	e := newEngine(b)
	const depth = 10000
	for _, rows := range []int{1 << 10, 1 << 16, 1 << 23} {
		table := ring(rows)
		b.Run(fmt.Sprintf("wasm/%dKiB", rows*8>>10), func(b *testing.B) {
			shards := blocks(uint64(rows), 1)
			c := e.cluster(b, Chase(), shards, tableWindows(table, shards, 1), nil)
			defer c.close()
			row := uint64(0)
			for b.Loop() {
				parts, err := c.invoke(ChaseArgs(row, depth), 0)
				if err != nil {
					b.Fatal(err)
				}
				if row, err = ChaseResult(parts[0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/depth, "ns/hop")
		})
		b.Run(fmt.Sprintf("go/%dKiB", rows*8>>10), func(b *testing.B) {
			row := uint64(0)
			for b.Loop() {
				for range depth {
					row = table[row]
				}
			}
			if row > uint64(rows) {
				b.Fatal(row)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/depth, "ns/hop")
		})
	}
}

// A closure of a random graph on one element, and the same search in Go.
func BenchmarkClosureEdge(b *testing.B) {
	e := newEngine(b)
	const vertices, degree = 200000, 8
	r := seeded(9)
	pairs := make([][2]uint32, 0, vertices*degree)
	for range vertices * degree {
		pairs = append(pairs, [2]uint32{r.Uint32N(vertices), r.Uint32N(vertices)})
	}
	g := newDigraph(vertices, pairs)
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("wasm/%d", n), func(b *testing.B) {
			shards := blocks(vertices, n)
			c := e.cluster(b, Closure(), shards, g.windows(shards, n, 0), nil)
			defer c.close()
			payload := ClosureArgs{Vertices: []uint32{0}}.Encode()
			for b.Loop() {
				if _, err := c.invoke(payload, c.every()...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(vertices*degree), "ns/edge")
		})
	}
	b.Run("go", func(b *testing.B) {
		for b.Loop() {
			seen := make([]uint64, vertices/64+1)
			queue := []uint32{0}
			seen[0] = 1
			for len(queue) > 0 {
				v := queue[0]
				queue = queue[1:]
				for _, to := range g.edges[0][v] {
					if bit := uint64(1) << (to & 63); seen[to>>6]&bit == 0 {
						seen[to>>6] |= bit
						queue = append(queue, to)
					}
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(vertices*degree), "ns/edge")
	})
}
