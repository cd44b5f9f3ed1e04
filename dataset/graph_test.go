package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/cluster"
)

// vertexOf reads vertex v of a loaded graph: its targets both ways, and its name.
func vertexOf(p *Plan, b *Buffers, v uint64) (out, in []uint32, name string) {
	e, local, _ := p.Sharding.Owner(v)
	u64 := func(w int, i uint64) uint64 { return binary.LittleEndian.Uint64(b.Memory(e, w)[8*i:]) }
	u32 := func(w int, i uint64) uint32 { return binary.LittleEndian.Uint32(b.Memory(e, w)[4*i:]) }
	targets := func(offsets, targets int) []uint32 {
		list := []uint32{}
		for i := u64(offsets, local); i < u64(offsets, local+1); i++ {
			list = append(list, u32(targets, i))
		}
		return list
	}
	if len(b.Memory(e, cluster.NameOffsetsWindow)) > 0 {
		w := cluster.NameOffsetsWindow
		name = string(b.Memory(e, cluster.NamesWindow)[u32(w, local):u32(w, local+1)])
	}
	return targets(cluster.FwdOffsetsWindow, cluster.FwdTargetsWindow), targets(cluster.RevOffsetsWindow, cluster.RevTargetsWindow), name
}

// graphText is a whole loaded graph as text.
func graphText(p *Plan, b *Buffers) []string {
	lines := []string{}
	for v := range p.Rows {
		out, in, name := vertexOf(p, b, v)
		lines = append(lines, strings.TrimSpace(fmt.Sprintln(v, name, out, in)))
	}
	return lines
}

func TestEdges(t *testing.T) {
	tests := []struct {
		name, text string
		o          Options
		want       []string
	}{
		{"numbers", "# a comment\n% another\n0 2\n\n 2\t0 \n0 2\n1 1\r\n", Options{},
			[]string{"0  [2 2] [2]", "1  [1] [1]", "2  [0] [0 0]"}},
		{"names", "a b\nb c\nc a\n", Options{Names: true},
			[]string{"0 a [1] [2]", "1 b [2] [0]", "2 c [0] [1]"}},
		{"names with spaces", "a b, c d,1.5\nc d,a b,x\n", Options{Names: true, Comma: ',', ExtraColumns: true},
			[]string{"0 a b [1] [1]", "1 c d [0] [0]"}},
		{"header", "# g\n@vertices 3\nalpha beta\n\n#gamma\n# edges\n@edges 2\n0 2\n2 0\n", Options{},
			[]string{"0 alpha beta [2] [2]", "1  [] []", "2 #gamma [0] [0]"}},
		{"header, edges not counted", "@vertices 1\nx\n@edges\n0 0\n", Options{}, []string{"0 x [0] [0]"}},
		{"no edges", "@vertices 1\nx\n@edges 0", Options{}, []string{"0 x [] []"}},
		{"nothing", "# nothing\n", Options{}, []string{}},
		{"weights", "0 1 0.5\n", Options{ExtraColumns: true}, []string{"0  [1] []", "1  [] [0]"}},
		{"bad lines", "x y\n0 1\n1\n1 0\n" + strings.Repeat("1", 40) + " 2\n", Options{SkipBad: 3, LineBytes: 32}, []string{"0  [1] [1]", "1  [0] [0]"}},
	}
	for _, tt := range tests {
		for _, mapped := range []bool{true, false} {
			tt.o.Format = Edges
			p, b := load(t, NewText(tt.name, []byte(tt.text)), tt.o, mapped)
			if diff := cmp.Diff(tt.want, graphText(p, b)); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		}
	}
}

func TestEdgeErrors(t *testing.T) {
	tests := []struct {
		o    Options
		text string
		want string
	}{
		{Options{}, "0 1\n0 x\n", `in: line 2: "x" is not a vertex number (0 to 4294967294); load by names (--names)`},
		{Options{}, "a b\n", `in: line 1: "a" is not a vertex number`},
		{Options{}, "0 4294967295\n", `"4294967295" is not a vertex number`},
		{Options{}, "0 99999999999999999999999999\n", `is not a vertex number`},
		{Options{}, "0 -1\n", `is not a vertex number`},
		{Options{}, "# c\n7\n", `in: line 2: "7" is not two vertices`},
		{Options{}, "0 1 2\n", `in: line 1: "2" follows the two vertices`},
		{Options{Weights: true}, "0 1 2 3\n", `in: line 1: "3" follows the weight`},
		{Options{Weights: true}, "0 1 2\n1 0\n", `in: line 2: the edge's weight is "", which is no finite number`},
		{Options{Weights: true}, "0 1 NaN\n", `the edge's weight is "NaN"`},
		{Options{Weights: true, Comma: ','}, "0,1,1e999\n", `the edge's weight is "1e999"`},
		{Options{Comma: ','}, ",1\n", `is not two vertices`},
		{Options{}, "0,1\n", `in: line 1: "0,1" is not two vertices; if a ',' separates them, say so (--separator ',')`},
		{Options{Names: true}, "a " + strings.Repeat("b", 1025), `a vertex's name has 1025 bytes`},
		{Options{}, "0 4000000000\n", `need 64000000016 bytes of memory here, 2147483648 are allowed; if the vertices' numbers have gaps, load by names (--names)`},
		{Options{}, "@vertices 4000000000\n", `the file ends after 0 of 4000000000 vertices`},
		{Options{MemoryBytes: 1 << 20}, "@vertices 90000\n" + strings.Repeat("x\n", 90000), `bytes of memory here, 1048576 are allowed`},
		{Options{}, "@vertices x\n", `in: line 1: "@vertices x" is not @vertices and a number`},
		{Options{}, "@vertices 4294967296\n", `is not @vertices and a number`},
		{Options{}, "@vertices 1\nx\n0 0\n", `in: line 3: after the 1 vertices comes "0 0", want @edges`},
		{Options{}, "@vertices 1\nx\n", `want @edges`},
		{Options{}, "@vertices 1\nx\n@edges -1\n", `"@edges -1" is not @edges and a number`},
		{Options{}, "@vertices 1\nx\n@edges 2\n0 0\n", `the file has 1 edges, its header says 2`},
		{Options{}, "@vertices 1\nx\n@edges\n0 1\n", `there is no vertex 1: the header declares 1`},
		{Options{}, "@vertices 1\n" + strings.Repeat("x", 1025) + "\n@edges\n", `a vertex's name has 1025 bytes`},
		{Options{Names: true}, "@vertices 1\nx\n@edges\n", `is not read by names`},
	}
	for _, tt := range tests {
		tt.o.Format = Edges
		_, err := Scan(context.Background(), NewText("in", []byte(tt.text)), tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60q: %v, want …%s…", tt.text, err, tt.want)
			continue
		}
		if line := (*LineError)(nil); !errors.As(err, &line) && !errors.Is(err, ErrInput) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.60q: %v is of no kind", tt.text, err)
		}
	}
}

// naive is graphText of a list of edges, computed plainly.
func naive(vertices int, names []string, edges []edge) []string {
	out, in := make([][]uint32, vertices), make([][]uint32, vertices)
	for _, e := range edges {
		out[e.from], in[e.to] = append(out[e.from], e.to), append(in[e.to], e.from)
	}
	lines := []string{}
	for v := range vertices {
		name := ""
		if names != nil {
			name = names[v]
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintln(v, name, out[v], in[v])))
	}
	return lines
}

func genSpread() *rapid.Generator[Spread] {
	return rapid.Custom(func(t *rapid.T) Spread {
		return Spread{Kind: rapid.SampledFrom([]cluster.ShardKind{cluster.Block, cluster.Cyclic, cluster.Hash}).Draw(t, "kind"),
			Elements: rapid.Uint32Range(1, 5).Draw(t, "elements")}
	})
}

func genEdges(vertices int) *rapid.Generator[[]edge] {
	v := rapid.Uint32Range(0, uint32(vertices-1))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) edge {
		return edge{v.Draw(t, "src"), v.Draw(t, "dst"), rapid.Float64Range(-1e9, 1e9).Draw(t, "weight")}
	}), 0, 60)
}

// TestGraphsArrive loads random graphs three ways: by numbers with a header, by
// names, and from memory.
func TestGraphsArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vertices := rapid.IntRange(1, 12).Draw(t, "vertices")
		edges := genEdges(vertices).Draw(t, "edges")
		spread := genSpread().Draw(t, "spread")
		mapped := rapid.Bool().Draw(t, "mapped")
		names := make([]string, vertices)
		for v := range names {
			names[v] = rapid.StringMatching(`[a-z ]{0,3}`).Draw(t, "name") + "x"
		}
		var text strings.Builder
		fmt.Fprintf(&text, "@vertices %d\n%s\n@edges %d\n", vertices, strings.Join(names, "\n"), len(edges))
		for _, e := range edges {
			fmt.Fprintln(&text, e.from, e.to)
		}
		want := naive(vertices, names, edges)
		p, b := load(t, NewText("header", []byte(text.String())), Options{Format: Edges, Spread: spread}, mapped)
		if diff := cmp.Diff(want, graphText(p, b)); diff != "" {
			t.Fatalf("header: %s", diff)
		}

		text.Reset()
		number := map[uint32]uint32{}
		var seen []string
		var renamed []edge
		id := func(v uint32) uint32 {
			if _, ok := number[v]; !ok {
				number[v] = uint32(len(seen))
				seen = append(seen, fmt.Sprint("v", v))
			}
			return number[v]
		}
		for _, e := range edges {
			renamed = append(renamed, edge{id(e.from), id(e.to), 0})
			fmt.Fprintf(&text, "v%d\tv%d\n", e.from, e.to)
		}
		checkWeights(t, vertices, edges, Options{Spread: spread}, mapped)
		p, b = load(t, NewText("names", []byte(text.String())), Options{Format: Edges, Names: true, Spread: spread}, mapped)
		if diff := cmp.Diff(naive(len(seen), seen, renamed), graphText(p, b)); diff != "" {
			t.Fatalf("names: %s", diff)
		}

		// A CSR has its edges by source: reversed targets come in that order.
		slices.SortStableFunc(edges, func(a, b edge) int { return int(a.from) - int(b.from) })
		g := csrOf(vertices, edges)
		g.Name = func(v uint64) string { return names[v] }
		if rapid.Bool().Draw(t, "reversed") {
			g = g.reversed()
		}
		p, err := PlanCSR(g, spread)
		if err != nil {
			t.Fatal(err)
		}
		b, _ = fill(t, p, mapped)
		if diff := cmp.Diff(naive(vertices, names, edges), graphText(p, b)); diff != "" {
			t.Fatalf("memory: %s", diff)
		}
	})
}

// checkWeights loads a list of edges with their weights, and looks for each at its target, both ways.
func checkWeights(t interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}, vertices int, edges []edge, o Options, mapped bool) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "@vertices %d\n%s@edges\n", vertices, strings.Repeat("x\n", vertices))
	want := [2][][]float64{make([][]float64, vertices), make([][]float64, vertices)}
	for _, e := range edges {
		fmt.Fprintln(&text, e.from, e.to, e.weight, "ignored")
		want[forward][e.from], want[reverse][e.to] = append(want[forward][e.from], e.weight), append(want[reverse][e.to], e.weight)
	}
	o.Format, o.Weights, o.ExtraColumns = Edges, true, true
	p, b := load(t, NewText("weights", []byte(text.String())), o, mapped)
	for v := range p.Rows {
		e, local, _ := p.Sharding.Owner(v)
		for dir := range 2 {
			from, to := binary.LittleEndian.Uint64(b.Memory(e, offsetsWindow(dir))[8*local:]), binary.LittleEndian.Uint64(b.Memory(e, offsetsWindow(dir))[8*local+8:])
			var got []float64
			for i := from; i < to; i++ {
				got = append(got, math.Float64frombits(binary.LittleEndian.Uint64(b.Memory(e, weightsWindow(dir))[8*i:])))
			}
			if !slices.Equal(got, want[dir][v]) {
				t.Fatalf("weights of vertex %d, direction %d: %v, want %v", v, dir, got, want[dir][v])
			}
		}
	}
}

func csrOf(vertices int, sorted []edge) *CSR {
	g := &CSR{Offsets: make([]uint64, vertices+1)}
	for _, e := range sorted {
		g.Offsets[e.from+1]++
		g.Targets = append(g.Targets, e.to)
	}
	for v := range vertices {
		g.Offsets[v+1] += g.Offsets[v]
	}
	return g
}

// TestGraphInSeveralPasses has more edges than the loader has memory for, and
// a vertex that alone has.
func TestGraphInSeveralPasses(t *testing.T) {
	const vertices, count, hub = 1000, 450_000, 300_000
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	var edges []edge
	for i := range count {
		e := edge{rng.Uint32N(vertices), rng.Uint32N(vertices), rng.Float64()}
		if i < hub {
			e.from = 3
		}
		edges = append(edges, e)
		fmt.Fprintln(&text, e.from, e.to)
	}
	in := NewText("in", []byte(text.String()))
	last := int64(0)
	o := Options{Format: Edges, MemoryBytes: 1 << 20, Spread: Spread{Kind: cluster.Cyclic, Elements: 3}}
	o.Progress = func(ph Phase, done, total int64) {
		if ph != PhaseFill {
			return
		}
		if done < last || done > total || total < 3*in.Size() || total%in.Size() != 0 {
			t.Fatalf("%d of %d after %d", done, total, last)
		}
		last = done
	}
	p, b := load(t, in, o, false)
	if diff := cmp.Diff(naive(vertices, nil, edges), graphText(p, b)); diff != "" {
		t.Fatal("graphs differ")
	}
	t.Logf("%d passes", last/in.Size())
	o.Progress = nil
	checkWeights(t, vertices, edges, o, false)
}

func TestCSRErrors(t *testing.T) {
	tests := []struct {
		g    CSR
		want string
	}{
		{CSR{}, "no forward offsets"},
		{CSR{Offsets: []uint64{1, 1}, Targets: []uint32{0}}, "forward offsets go from 1 to 1, want 0 to 1"},
		{CSR{Offsets: []uint64{0, 2, 1}, Targets: []uint32{0}}, "forward offsets of vertex 1 are 2 and 1"},
		{CSR{Offsets: []uint64{0, 1}, Targets: []uint32{1}}, "forward target 0 is vertex 1 of 1"},
		{CSR{Offsets: []uint64{0, 1}, Targets: []uint32{0}, RevOffsets: []uint64{0}}, "reversed 1 and 0"},
		{CSR{Offsets: []uint64{0, 1}, Targets: []uint32{0}, RevOffsets: []uint64{0, 1}, RevTargets: []uint32{7}}, "reverse target 0 is vertex 7"},
		{CSR{Offsets: []uint64{0, 0}, Name: func(uint64) string { return strings.Repeat("x", 1025) }}, "the name of vertex 0 has 1025 bytes"},
	}
	for _, tt := range tests {
		if _, err := PlanCSR(&tt.g, Spread{}); !errors.Is(err, ErrGraph) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want …%s…", err, tt.want)
		}
	}
	if _, err := PlanCSR(&CSR{Offsets: []uint64{0}}, Spread{Elements: 9999}); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
	p, err := PlanCSR(&CSR{Offsets: []uint64{0}}, Spread{Elements: 2})
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := fill(t, p, true); len(b.Memory(1, cluster.FwdOffsetsWindow)) != 8 {
		t.Error("no vertices, but an offset is wanted")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("gone"))
	p, _ = PlanCSR(csrOf(1, nil), Spread{})
	if err := p.Fill(ctx, &Buffers{}); err == nil || err.Error() != "gone" {
		t.Error(err)
	}
}

func FuzzEdges(f *testing.F) {
	f.Add("# c\n0 1\n1,2\n", false, byte(0))
	f.Add("@vertices 2\na\nb\n@edges 1\n0 1\n", false, byte(0))
	f.Add("a b\nb a\n", true, byte(' '))
	f.Add("0 1 2.5\n1 0 -1e9\n", false, byte(0))
	f.Fuzz(func(t *testing.T, text string, names bool, comma byte) {
		o := Options{Format: Edges, Names: names, Comma: comma, MemoryBytes: 1 << 20, LineBytes: fuzzLineBytes, SkipBad: 5, Spread: Spread{Kind: cluster.Hash, Elements: 3},
			Weights: len(text)%3 == 0}
		p, err := Scan(context.Background(), NewText("in", []byte(text)), o)
		if err != nil {
			return
		}
		b, _ := fill(t, p, len(text)%2 == 0)
		edges := uint64(0)
		for v := range p.Rows {
			out, in, _ := vertexOf(p, b, v)
			edges += uint64(len(out))
			for _, to := range append(out, in...) {
				if uint64(to) >= p.Rows {
					t.Fatalf("vertex %d of %d", to, p.Rows)
				}
			}
		}
		if edges != p.Edges {
			t.Fatalf("%d edges, %d arrived", p.Edges, edges)
		}
	})
}

func BenchmarkEdges(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 200_000 {
		fmt.Fprintln(&text, rng.Uint32N(50_000), rng.Uint32N(50_000))
	}
	in := NewText("bench", []byte(text.String()))
	for _, names := range []bool{false, true} {
		b.Run(fmt.Sprintf("names=%v", names), func(b *testing.B) {
			b.SetBytes(in.Size())
			for b.Loop() {
				load(b, in, Options{Format: Edges, Names: names, Spread: Spread{Elements: 4}}, true)
			}
			b.ReportMetric(200_000*float64(b.N)/b.Elapsed().Seconds(), "edges/s")
		})
	}
}
