package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/report"
)

// Kind is what a query asks.
type Kind string

// The kinds of queries, by their names on the command line and in JSON.
const (
	KindNeeds    Kind = "needs"     // what Package ends up needing
	KindNeededBy Kind = "needed-by" // who ends up needing Package
	KindPath     Kind = "path"      // why Package ends up needing Goal
	KindTop      Kind = "top"       // the First packages that most others end up needing
	KindChase    Kind = "chase"     // Hops steps of a pointer chase
)

// Limits of a query.
const (
	MaxFirst = 1000
	// MaxRanked bounds the graphs whose vertices are ranked if nobody asks for it: of larger ones the reference
	// answer alone takes minutes.
	MaxRanked = 1 << 18
	// MaxHops bounds a chase: at a microsecond a hop, a minute and a half.
	MaxHops = 100_000_000
)

// Query is a question as people ask it.
type Query struct {
	Kind    Kind
	Package string // all kinds but KindTop and KindChase
	Goal    string // KindPath
	First   int    // KindTop
	Prove   bool   // KindTop: go on until the ranking is proven
	Hops    uint64 // KindChase
}

// DefaultHops is how long the chase is if nobody says: what one invocation can
// do if every hop leads to another element, because its hop budget has 12 bits.
const DefaultHops = 4_000

// DefaultQueries is what the demo asks of a graph if it is not told what: about well-known
// packages if it has them, else about the vertices with the most neighbours. There
// is nothing to ask of a graph without vertices.
func DefaultQueries(g *debgraph.Graph) []Query {
	if g.Len() == 0 {
		return nil
	}
	all := func(uint32) bool { return true }
	most, wanted := widest(&g.Fwd, all), widest(&g.Rev, all) // needs the most, is needed the most, both directly
	name := func(preferred string, v uint32) string {
		if _, ok := g.ID(preferred); ok && len(g.Meta.Releases) > 0 {
			return preferred
		}
		return g.Names[v]
	}
	queries := []Query{
		{Kind: KindNeeds, Package: name("firefox-esr", most)},
		{Kind: KindNeededBy, Package: name("libssl3", wanted)},
	}
	if g.Len() > 1 { // a path is from one vertex to another
		start := name("gnome", most)
		goal := name("perl-base", wanted)
		if goal == start {
			goal = g.Names[widest(&g.Rev, func(v uint32) bool { return g.Names[v] != start })]
		}
		queries = append(queries, Query{Kind: KindPath, Package: start, Goal: goal})
	}
	if g.Len() <= MaxRanked {
		queries = append(queries, Query{Kind: KindTop, First: min(10, g.Len())})
	}
	return append(queries, Query{Kind: KindChase, Hops: DefaultHops})
}

// widest is the vertex with the longest row among those that count, of which there is one at least.
func widest(c *debgraph.CSR, counts func(v uint32) bool) uint32 {
	best, most := uint32(0), -1
	for v := range uint32(len(c.Off) - 1) {
		if n := c.Degree(v); n > most && counts(v) {
			best, most = v, n
		}
	}
	return best
}

// Data is what the questions are about, and how it is reached.
type Data struct {
	Graph       *debgraph.Graph
	GraphLayout Layout
	GraphAt     Backend
	// The chase has a table of its own; without one (Next is nil) it is refused.
	Next        []uint64
	ChaseLayout Layout
	ChaseAt     Backend
	// SetNext, if not nil, changes an entry of the chase's table where it lies; Next is changed with it. The chase is then
	// asked of data that changes between its answers.
	SetNext func(ctx context.Context, index, value uint64) error
}

// result is an answer, whichever way it was found.
type result struct {
	ids    []uint32
	counts []uint64
	chain  int      // of an injection's messages
	rank   *Ranking // injected rankings only
}

func (r *result) same(o *result) bool {
	return slices.Equal(r.ids, o.ids) && slices.Equal(r.counts, o.counts)
}

// CheckQuery says what is wrong with a query of a graph, before anything is asked.
func CheckQuery(g *debgraph.Graph, q Query) error {
	var names []string
	switch q.Kind {
	case KindNeeds, KindNeededBy:
		names = []string{q.Package}
	case KindPath:
		if q.Package == q.Goal {
			return fmt.Errorf("demo: why does %s need itself? Name two different %s", q.Package, nounOf(g).many)
		}
		names = []string{q.Package, q.Goal}
	case KindTop:
		if q.First < 1 || q.First > MaxFirst {
			return fmt.Errorf("demo: the first %d %s: 1 to %d are possible", q.First, nounOf(g).many, MaxFirst)
		}
	case KindChase:
		if q.Hops < 1 || q.Hops > MaxHops {
			return fmt.Errorf("demo: a chase of %d hops: 1 to %d are possible", q.Hops, MaxHops)
		}
	default:
		return fmt.Errorf("demo: there is no question %q; there are %s, %s, %s, %s and %s", q.Kind, KindNeeds, KindNeededBy, KindPath, KindTop, KindChase)
	}
	for _, name := range names {
		if _, err := g.Find(name); err != nil {
			return err
		}
	}
	return nil
}

// prepared is a query made ready: names looked up, the reference answer computed.
type prepared struct {
	Query
	noun        noun // what vertices are called
	start, goal uint32
	layout      Layout
	backend     Backend
	want        result
	local       time.Duration // that the reference answer took to compute
	changes     bool          // the data changes between answers
}

// prepare checks a query and answers it here, from the whole graph.
func prepare(d *Data, q Query) (*prepared, error) {
	if err := CheckQuery(d.Graph, q); err != nil {
		return nil, err
	}
	p := &prepared{Query: q, noun: nounOf(d.Graph), layout: d.GraphLayout, backend: d.GraphAt}
	if q.Package != "" {
		p.start, _ = d.Graph.ID(q.Package)
	}
	p.changes = q.Kind == KindChase && d.SetNext != nil
	start := time.Now()
	defer func() { p.local = time.Since(start) }()
	switch q.Kind {
	case KindPath:
		p.goal, _ = d.Graph.ID(q.Goal)
		p.want.ids = d.Graph.Path(p.start, p.goal)
	case KindTop:
		p.want = ranked(d.Graph.Top(q.First))
	case KindChase:
		if d.Next == nil {
			return nil, errors.New("demo: no table for the pointer chase was laid out")
		}
		p.layout, p.backend = d.ChaseLayout, d.ChaseAt
		p.want.counts = []uint64{Chase(d.Next, 0, q.Hops)}
	default:
		p.want.ids = d.Graph.Closure(p.start, p.direction())
	}
	return p, nil
}

func (p *prepared) direction() debgraph.Direction {
	if p.Kind == KindNeededBy {
		return debgraph.NeededBy
	}
	return debgraph.Needs
}

func ranked(top []debgraph.Ranked) result {
	var r result
	for _, t := range top {
		r.ids = append(r.ids, t.ID)
		r.counts = append(r.counts, uint64(t.Count))
	}
	return r
}

// inject answers by functions that travel.
func (p *prepared) inject(ctx context.Context) (res result, trips uint64, err error) {
	call := Call{Starts: []uint32{p.start}}
	switch p.Kind {
	case KindNeeds, KindNeededBy:
		call.Op, call.Dir = OpClosure, p.direction()
	case KindPath:
		call.Op, call.Goal = OpPath, p.goal
	case KindTop:
		rk, err := InjectTop(ctx, p.backend, p.layout, p.First, p.Prove)
		if err != nil {
			return res, 0, err
		}
		res = ranked(rk.Top)
		res.rank, res.chain = rk, rk.Chain
		return res, rk.Trips, nil
	case KindChase:
		call.Op, call.Hops = OpChase, p.Hops
	}
	reply, err := p.backend.Inject(ctx, &call)
	if err != nil {
		return res, 1, err
	}
	res = result{ids: reply.IDs, counts: reply.Counts, chain: reply.Chain}
	if call.Op == OpClosure {
		res.ids = slices.DeleteFunc(res.ids, func(v uint32) bool { return v == p.start })
	}
	return res, max(1, reply.Trips), nil
}

// read answers by a baseline.
func (p *prepared) read(ctx context.Context, style Style) (res result, trips, operations uint64, err error) {
	b := Baseline{Backend: p.backend, Layout: p.layout, Style: style}
	switch p.Kind {
	case KindNeeds, KindNeededBy:
		res.ids, err = b.Closure(ctx, p.start, p.direction())
	case KindPath:
		res.ids, err = b.Path(ctx, p.start, p.goal)
	case KindTop:
		var top []debgraph.Ranked
		top, err = b.Top(ctx, p.First)
		res = ranked(top)
	case KindChase:
		var end uint64
		end, err = b.Chase(ctx, 0, p.Hops)
		res.counts = []uint64{end}
	}
	return res, b.Trips, b.Operations, err
}

// check holds an answer against the reference. Of a path it asks that it is one, and a
// shortest one: there may be several.
func (p *prepared) check(g *debgraph.Graph, got *result) error {
	if p.Kind == KindPath && len(got.ids) == len(p.want.ids) && len(got.ids) > 0 {
		return g.CheckPath(got.ids, p.start, p.goal)
	}
	if !got.same(&p.want) {
		return fmt.Errorf("demo: the answer is wrong: %d vertices %v…, counts %v…; expected %d, %v…, %v…",
			len(got.ids), head(got.ids), head(got.counts), len(p.want.ids), head(p.want.ids), head(p.want.counts))
	}
	return nil
}

func head[T any](s []T) []T { return s[:min(5, len(s))] }

// noun is a word for things that are counted.
type noun struct{ one, many string }

// count writes how many there are.
func (n noun) count(number uint64) string { return report.Plural(number, n.one, n.many) }

// nounOf is what vertices are called: those of an archive are packages.
func nounOf(g *debgraph.Graph) noun {
	if len(g.Meta.Releases) > 0 {
		return noun{"package", "packages"}
	}
	return noun{"vertex", "vertices"}
}

// title is the question in words.
func (p *prepared) title() string {
	switch p.Kind {
	case KindNeeds:
		return fmt.Sprintf("What does %s end up needing?", p.Package)
	case KindNeededBy:
		return fmt.Sprintf("Who ends up needing %s?", p.Package)
	case KindPath:
		return fmt.Sprintf("Why does %s end up needing %s?", p.Package, p.Goal)
	case KindTop:
		if p.First == 1 {
			return fmt.Sprintf("Which %s do most others end up needing?", p.noun.one)
		}
		return fmt.Sprintf("Which %s do most others end up needing?", p.noun.count(uint64(p.First)))
	default:
		do := "do"
		if p.Hops == 1 {
			do = "does"
		}
		text := fmt.Sprintf("Where %s %s through a random permutation of %s", do, report.Plural(p.Hops, "hop", "hops"), report.Count(p.layout.Vertices))
		if p.changes {
			return text + ", which changes between answers, lead?"
		}
		return text + " lead?"
	}
}

// shownNames is how many names an answer shows before it only counts.
const shownNames = 12

// change changes the data before a round, so that every method has to look at it anew, and computes the new answer: two
// entries of the table are exchanged, one of them in the middle of the way.
func (p *prepared) change(ctx context.Context, d *Data, round int) error {
	if !p.changes {
		return nil
	}
	n := uint64(len(d.Next))
	a := Chase(d.Next, 0, p.Hops/2)
	b := (a + n/2 + uint64(round)) % n
	d.Next[a], d.Next[b] = d.Next[b], d.Next[a]
	for _, i := range []uint64{a, b} {
		if err := d.SetNext(ctx, i, d.Next[i]); err != nil {
			return fmt.Errorf("demo: change the chase's table: %w", err)
		}
	}
	p.want.counts = []uint64{Chase(d.Next, 0, p.Hops)}
	return nil
}

// data is the reference answer for programs.
func (p *prepared) data(g *debgraph.Graph) report.Result {
	if p.Kind == KindChase {
		return report.Result{Index: &p.want.counts[0]}
	}
	r := report.Result{Counts: p.want.counts}
	for _, v := range p.want.ids {
		r.Names = append(r.Names, g.Names[v])
	}
	n := len(r.Names)
	r.Count = &n
	return r
}

// answer is the reference answer in words.
func (p *prepared) answer(g *debgraph.Graph) []string {
	names := make([]string, 0, len(p.want.ids))
	for _, v := range p.want.ids {
		names = append(names, g.Names[v])
	}
	switch p.Kind {
	case KindNeeds, KindNeededBy:
		if len(names) == 0 {
			return []string{"Nothing."}
		}
		shown := strings.Join(names[:min(shownNames, len(names))], ", ")
		if more := len(names) - shownNames; more > 0 {
			shown += fmt.Sprintf(", and %s more", report.Count(uint64(more)))
		}
		return []string{p.noun.count(uint64(len(names))) + ".", shown}
	case KindPath:
		if len(names) == 0 {
			return []string{"It does not."}
		}
		return []string{strings.Join(names, " → "), report.Plural(uint64(len(names)-1), "step", "steps") + "; no way is shorter."}
	case KindTop:
		lines := make([]string, len(names))
		for i, name := range names {
			lines[i] = fmt.Sprintf("%d. %s, by %s", i+1, name, report.Count(p.want.counts[i]))
		}
		return lines
	default:
		if p.changes {
			return []string{fmt.Sprintf("To index %d, when last asked.", p.want.counts[0])}
		}
		return []string{fmt.Sprintf("To index %d.", p.want.counts[0])}
	}
}
