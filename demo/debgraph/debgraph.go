// Package debgraph is the demo's dataset: the dependency graph of Debian's
// main archive, one vertex a binary package, one edge "needs".
//
// # Model
//
// A [Graph] holds the package names in byte order (a vertex's id is its place
// there) and both directions in compressed sparse rows: Fwd row v lists what v
// needs, Rev row v lists who needs v. Rows are strictly ascending and hold no
// vertex twice and never v itself. A graph is immutable: any number of
// goroutines may read it.
//
// [Load] gives the graph that is built into the program, read from Debian's
// package index by the command in gen. [BuildIndex] makes one from any such
// index, [ReadEdgeList] from a text of pairs, [FromRows] from whatever else yields pairs.
//
// What an edge means is decided by [BuildIndex]; its comment is the rule.
//
// # Ownership
//
// Rows are views into the graph and must not be changed.
//
// # Errors
//
// Every decoder treats its bytes as hostile: it returns an error that names
// the place, and never holds more than its named limits.
package debgraph

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Limits of a graph, from any source. The archive has 64 thousand packages
// and 275 thousand edges; these leave room for two orders more and keep a graph below 2 GiB.
const (
	MaxVertices = 1 << 24
	MaxEdges    = 1 << 27
	// MaxNameBytes bounds one vertex's name. Debian's longest is 71 bytes.
	MaxNameBytes = 1 << 10
)

// ErrTooLarge says that a source holds more than this package's limits.
var ErrTooLarge = errors.New("debgraph: the graph is too large")

// CSR is one direction of a graph. Row v is Dst[Off[v]:Off[v+1]].
type CSR struct {
	Off []uint64 // vertices+1 entries, Off[0] = 0
	Dst []uint32 // vertex ids
}

// Row lists v's neighbours in ascending order. It is a view.
func (c *CSR) Row(v uint32) []uint32 { return c.Dst[c.Off[v]:c.Off[v+1]] }

// Degree is the length of v's row.
func (c *CSR) Degree(v uint32) int { return int(c.Off[v+1] - c.Off[v]) }

// Release is one signed index that a graph was read from, as its Release file
// describes it.
type Release struct {
	Origin   string `json:"origin"`
	Suite    string `json:"suite"`
	Codename string `json:"codename"`
	Version  string `json:"version"`
	Date     string `json:"date"`
	SHA256   string `json:"sha256"` // of the Release file
}

// Meta says where a graph comes from. A field that does not apply is empty.
type Meta struct {
	Title    string    `json:"title"`
	Releases []Release `json:"releases,omitempty"`
	// Command printed the index, InputSHA256 is the hash of what it printed.
	Command     string `json:"command,omitempty"`
	InputSHA256 string `json:"input_sha256,omitempty"`
	InputBytes  int64  `json:"input_bytes,omitempty"`
	Stats       Stats  `json:"stats"`
}

// Date is that of the newest of the main releases: the one without a dash in
// its codename if there is one, else the first; empty if there is none.
func (m *Meta) Date() string {
	if len(m.Releases) == 0 {
		return ""
	}
	best := m.Releases[0]
	for _, r := range m.Releases[1:] {
		if len(r.Codename) < len(best.Codename) {
			best = r
		}
	}
	return best.Date
}

// Graph is a directed graph with named vertices.
type Graph struct {
	Names []string // in byte order
	Fwd   CSR      // what a vertex needs
	Rev   CSR      // who needs a vertex
	Meta  Meta
}

// Len is the number of vertices.
func (g *Graph) Len() int { return len(g.Names) }

// Edges is the number of edges.
func (g *Graph) Edges() int { return len(g.Fwd.Dst) }

// ID finds a vertex by its name.
func (g *Graph) ID(name string) (id uint32, ok bool) {
	i, ok := slices.BinarySearch(g.Names, name)
	return uint32(i), ok
}

// Find is ID with an error for people that offers names close by.
func (g *Graph) Find(name string) (uint32, error) {
	i, ok := slices.BinarySearch(g.Names, name)
	if ok {
		return uint32(i), nil
	}
	lo, hi := max(0, i-2), min(len(g.Names), i+2)
	return 0, fmt.Errorf("debgraph: no vertex is called %q; near it in the list: %q", name, g.Names[lo:hi])
}

type edge struct{ from, to uint32 }

// newGraph makes a graph of sorted, distinct names and any edges between them;
// repeated edges and edges from a vertex to itself are dropped. It owns both slices afterwards.
func newGraph(names []string, edges []edge, meta Meta) *Graph {
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	edges = slices.Compact(edges)
	edges = slices.DeleteFunc(edges, func(e edge) bool { return e.from == e.to })
	fwd := CSR{Off: make([]uint64, len(names)+1), Dst: make([]uint32, len(edges))}
	for i, e := range edges {
		fwd.Off[e.from+1]++
		fwd.Dst[i] = e.to
	}
	for v := range names {
		fwd.Off[v+1] += fwd.Off[v]
	}
	return &Graph{Names: names, Fwd: fwd, Rev: transpose(&fwd), Meta: meta}
}

// transpose turns every edge around. Its rows are ascending because it visits the
// sources in ascending order.
func transpose(c *CSR) CSR {
	n := len(c.Off) - 1
	t := CSR{Off: make([]uint64, n+1), Dst: make([]uint32, len(c.Dst))}
	for _, d := range c.Dst {
		t.Off[d+1]++
	}
	for v := range n {
		t.Off[v+1] += t.Off[v]
	}
	next := slices.Clone(t.Off[:n])
	for v := range n {
		for _, d := range c.Row(uint32(v)) {
			t.Dst[next[d]] = uint32(v)
			next[d]++
		}
	}
	return t
}
