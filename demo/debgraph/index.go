package debgraph

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Stats counts what BuildIndex saw and decided.
type Stats struct {
	Entries  int `json:"entries"`   // entries of the index
	Foreign  int `json:"foreign"`   // of these, left out: another architecture
	Older    int `json:"older"`     // left out: an older version of the same package
	Groups   int `json:"groups"`    // dependencies: the comma-separated parts
	WithAlt  int `json:"with_alt"`  // of these, with two alternatives or more
	LaterAlt int `json:"later_alt"` // where an alternative after the first was taken
	Provided int `json:"provided"`  // where a virtual package was meant
	Unmet    int `json:"unmet"`     // that nothing in the index satisfies: no edge
}

// BuildIndex reads a package index of the given architecture ("amd64") and
// makes the graph of what is needed to install a package on an empty machine:
//
//   - A vertex is a package name that has an entry, of that architecture or
//     "all". If a name has several entries, the highest version counts.
//   - Edges come from Pre-Depends and Depends, nothing else. Every dependency
//     (a part between commas) adds the first of its alternatives ("a | b | c")
//     that the index can satisfy: the one apt takes when nothing is installed. Where none
//     can be, the dependency adds nothing.
//   - An alternative is satisfied by the package of that name if its version
//     meets the constraint, and then by that one only. Otherwise the name is virtual: it is
//     satisfied by the packages that Provide it, and the edge goes to each of
//     them. A constraint on a virtual name is met only by a Provides with a version.
//   - "name:any" is satisfied only by packages that are marked Multi-Arch:
//     allowed; "name:arch" by none unless arch is the index's architecture.
//   - What a package satisfies by itself adds no edge.
func BuildIndex(r io.Reader, arch string) (*Graph, error) {
	b := builder{arch: arch, byName: map[string]int{}}
	if err := readStanzas(r, b.add); err != nil {
		return nil, err
	}
	if err := b.readProvides(); err != nil {
		return nil, err
	}
	edges, err := b.edges()
	if err != nil {
		return nil, err
	}
	order := make([]uint32, len(b.entries))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(x, y uint32) int {
		return strings.Compare(b.entries[x].name, b.entries[y].name)
	})
	id := make([]uint32, len(order))
	names := make([]string, len(order))
	for i, o := range order {
		id[o], names[i] = uint32(i), b.entries[o].name
	}
	for i, e := range edges {
		edges[i] = edge{id[e.from], id[e.to]}
	}
	return newGraph(names, edges, Meta{Stats: b.stats}), nil
}

// builder gathers an index. Vertices are entries' indices until the names are sorted.
type builder struct {
	arch     string
	entries  []stanza
	byName   map[string]int
	provides map[string][]provider
	stats    Stats
}

// provider is an entry that provides a name, with a version or without.
type provider struct {
	entry   int
	version string
}

func (b *builder) add(s stanza) error {
	b.stats.Entries++
	if s.arch != b.arch && s.arch != "all" {
		b.stats.Foreign++
		return nil
	}
	if len(s.name) > MaxNameBytes {
		return fmt.Errorf("%w: a name of %d bytes", ErrTooLarge, len(s.name))
	}
	i, seen := b.byName[s.name]
	if !seen {
		b.byName[s.name] = len(b.entries)
		b.entries = append(b.entries, s)
		return nil
	}
	b.stats.Older++
	if CompareVersions(s.version, b.entries[i].version) > 0 {
		b.entries[i] = s
	}
	return nil
}

func (b *builder) readProvides() error {
	b.provides = make(map[string][]provider)
	for i := range b.entries {
		groups, err := parseRelations(b.entries[i].provides)
		if err != nil {
			return fmt.Errorf("debgraph: %s: Provides: %w", b.entries[i].name, err)
		}
		for _, g := range groups {
			if len(g) > 1 || g[0].op != "" && g[0].op != "=" {
				return fmt.Errorf("debgraph: %s: Provides: %q is given with alternatives or a range", b.entries[i].name, g[0].name)
			}
			b.provides[g[0].name] = append(b.provides[g[0].name], provider{i, g[0].version})
		}
	}
	return nil
}

func (b *builder) edges() ([]edge, error) {
	var edges []edge
	for i := range b.entries {
		s := &b.entries[i]
		for _, f := range []struct{ name, text string }{{"Pre-Depends", s.preDepends}, {"Depends", s.depends}} {
			groups, err := parseRelations(f.text)
			if err != nil {
				return nil, fmt.Errorf("debgraph: %s: %s: %w", s.name, f.name, err)
			}
			for _, g := range groups {
				edges = b.take(edges, i, g)
			}
			if len(edges) > MaxEdges {
				return nil, fmt.Errorf("%w: more than %d edges", ErrTooLarge, MaxEdges)
			}
		}
	}
	return edges, nil
}

// take adds the edges of one dependency of entry from.
func (b *builder) take(edges []edge, from int, alts []relation) []edge {
	b.stats.Groups++
	if len(alts) > 1 {
		b.stats.WithAlt++
	}
	for k := range alts {
		to, virtual := b.satisfy(&alts[k])
		if len(to) == 0 {
			continue
		}
		if k > 0 {
			b.stats.LaterAlt++
		}
		if virtual {
			b.stats.Provided++
		}
		for _, t := range to {
			edges = append(edges, edge{uint32(from), uint32(t)})
		}
		return edges
	}
	b.stats.Unmet++
	return edges
}

// satisfy lists the entries that satisfy a relation, and whether they do so
// by providing its name.
func (b *builder) satisfy(r *relation) (entries []int, virtual bool) {
	if r.arch != "" && r.arch != "any" && r.arch != b.arch {
		return nil, false
	}
	anyArch := r.arch == "any"
	if i, ok := b.byName[r.name]; ok && r.allows(b.entries[i].version) {
		if !anyArch || b.entries[i].multiArch == "allowed" {
			return []int{i}, false
		}
	}
	for _, p := range b.provides[r.name] {
		if anyArch && b.entries[p.entry].multiArch != "allowed" {
			continue
		}
		if r.op == "" || p.version != "" && r.allows(p.version) {
			entries = append(entries, p.entry)
		}
	}
	return entries, true
}
