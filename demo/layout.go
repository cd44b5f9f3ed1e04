package demo

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/wherry-fabric/wherry/demo/debgraph"
)

// MaxElements bounds a layout. The demo uses four.
const MaxElements = 1024

// MaxChase bounds the pointer chase's table: 2 GiB of indices.
const MaxChase = 1 << 28

// Layout says which element holds which vertices: blocks, in order, the first
// ones a vertex longer if it does not come out even. Datasets are cut the same way.
type Layout struct {
	Vertices uint64
	Elements int
	// WindowBytes is the length of each element's windows.
	WindowBytes [][]uint64
}

// NewLayout cuts vertices into equal blocks.
func NewLayout(vertices uint64, elements int) (Layout, error) {
	if elements < 1 || elements > MaxElements || vertices < 1 || vertices > debgraph.MaxVertices && vertices > MaxChase {
		return Layout{}, fmt.Errorf("demo: %d vertices on %d elements: 1 to %d elements and at least one vertex are possible", vertices, elements, MaxElements)
	}
	return Layout{Vertices: vertices, Elements: elements}, nil
}

// blocks is the length of most blocks, and how many have one vertex more.
func (l *Layout) blocks() (each, longer uint64) {
	return l.Vertices / uint64(l.Elements), l.Vertices % uint64(l.Elements)
}

// Owner is the element that holds v, and v's row there. For a vertex that does not exist it is no element.
func (l *Layout) Owner(v uint64) (element int, row uint64) {
	each, longer := l.blocks()
	switch first := longer * (each + 1); {
	case v >= l.Vertices:
		return l.Elements, v - l.Vertices
	case v < first:
		return int(v / (each + 1)), v % (each + 1)
	default:
		return int(longer + (v-first)/each), (v - first) % each
	}
}

// Block is the first vertex of an element and how many it has.
func (l *Layout) Block(element int) (first, rows uint64) {
	each, longer := l.blocks()
	e := uint64(element)
	first = e*each + min(e, longer)
	if e < longer {
		each++
	}
	return first, each
}

// Shard is what one element lends: the bytes of its windows.
type Shard struct {
	First   uint64 // the block's first vertex
	Rows    uint64
	Windows [][]byte
}

// GraphLayout says how a graph is cut, without cutting it.
func GraphLayout(g *debgraph.Graph, elements int) (Layout, error) {
	l, err := NewLayout(uint64(g.Len()), elements)
	if err != nil {
		return l, err
	}
	l.WindowBytes = make([][]uint64, elements)
	for e := range elements {
		first, rows := l.Block(e)
		targets := func(c *debgraph.CSR) uint64 { return 4 * (c.Off[first+rows] - c.Off[first]) }
		l.WindowBytes[e] = []uint64{FwdOffsets: 8 * (rows + 1), FwdTargets: targets(&g.Fwd), RevOffsets: 8 * (rows + 1), RevTargets: targets(&g.Rev)}
	}
	return l, nil
}

// GraphShards cuts a graph.
func GraphShards(g *debgraph.Graph, elements int) (Layout, []Shard, error) {
	l, err := GraphLayout(g, elements)
	if err != nil {
		return l, nil, err
	}
	shards := make([]Shard, elements)
	for e := range shards {
		first, rows := l.Block(e)
		s := Shard{First: first, Rows: rows, Windows: make([][]byte, GraphWindows)}
		s.Windows[FwdOffsets], s.Windows[FwdTargets] = cut(&g.Fwd, first, rows)
		s.Windows[RevOffsets], s.Windows[RevTargets] = cut(&g.Rev, first, rows)
		shards[e] = s
	}
	return l, shards, nil
}

// Bytes is what all windows take together.
func (l *Layout) Bytes() uint64 {
	sum := uint64(0)
	for _, windows := range l.WindowBytes {
		for _, n := range windows {
			sum += n
		}
	}
	return sum
}

func cut(c *debgraph.CSR, first, rows uint64) (offsets, targets []byte) {
	base := c.Off[first]
	for _, o := range c.Off[first : first+rows+1] {
		offsets = binary.LittleEndian.AppendUint64(offsets, o-base)
	}
	for _, t := range c.Dst[base:c.Off[first+rows]] {
		targets = binary.LittleEndian.AppendUint32(targets, t)
	}
	return offsets, targets
}

// Permutation is a random permutation of n indices that is one single cycle
// (Sattolo, Information Processing Letters 1986): a chase through it visits every index before it comes back.
// It is the pointer chase of arXiv 2208.01154. The same seed gives the same permutation.
func Permutation(n int, seed uint64) ([]uint64, error) {
	if n < 1 || n > MaxChase {
		return nil, fmt.Errorf("demo: a chase through %d indices: 1 to %d are possible", n, MaxChase)
	}
	next := make([]uint64, n)
	for i := range next {
		next[i] = uint64(i)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := n - 1; i > 0; i-- {
		k := r.IntN(i) // never i itself: that is what makes it one cycle
		next[i], next[k] = next[k], next[i]
	}
	return next, nil
}

// ChaseLayout says how a permutation of n indices is cut.
func ChaseLayout(n uint64, elements int) (Layout, error) {
	l, err := NewLayout(n, elements)
	if err != nil {
		return l, err
	}
	for e := range elements {
		_, rows := l.Block(e)
		l.WindowBytes = append(l.WindowBytes, []uint64{ChaseNext: 8 * rows})
	}
	return l, nil
}

// ChaseShards cuts a permutation.
func ChaseShards(next []uint64, elements int) (Layout, []Shard, error) {
	l, err := ChaseLayout(uint64(len(next)), elements)
	if err != nil {
		return l, nil, err
	}
	shards := make([]Shard, elements)
	for e := range shards {
		first, rows := l.Block(e)
		shards[e] = Shard{First: first, Rows: rows, Windows: [][]byte{ChaseBytes(next[first : first+rows])}}
	}
	return l, shards, nil
}

// ChaseBytes are indices as a window holds them.
func ChaseBytes(next []uint64) []byte {
	window := make([]byte, 0, 8*len(next))
	for _, n := range next {
		window = binary.LittleEndian.AppendUint64(window, n)
	}
	return window
}

// Chase walks the whole table here: the reference.
func Chase(next []uint64, start, hops uint64) uint64 {
	for range hops {
		start = next[start]
	}
	return start
}
