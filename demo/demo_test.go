package demo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/demotest"
	"github.com/wherry-fabric/wherry/demo/report"
)

const elements = 4

var styles = []demo.Style{demo.OneAtATime, demo.Batched, demo.FetchAll}

func debian(t testing.TB) *debgraph.Graph {
	t.Helper()
	g, err := debgraph.Load()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func lend(t testing.TB, g *debgraph.Graph) (demo.Layout, *demotest.Backend) {
	t.Helper()
	l, shards, err := demo.GraphShards(g, elements)
	if err != nil {
		t.Fatal(err)
	}
	return l, demotest.New(l, shards)
}

func TestInProcessBackendConforms(t *testing.T) {
	demotest.Check(t, elements, func(_ *testing.T, l demo.Layout, s []demo.Shard) demo.Backend { return demotest.New(l, s) })
}

// TestBaselinesAgree holds the three baselines against the reference, on drawn graphs.
func TestBaselinesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list strings.Builder
		n := rapid.IntRange(1, 30).Draw(t, "vertices")
		name := func(v int) string { return string(rune('a'+v/10)) + string(rune('0'+v%10)) }
		for v := range n {
			list.WriteString(name(v) + "\n")
		}
		for range rapid.IntRange(0, 3*n).Draw(t, "edges") {
			list.WriteString(name(rapid.IntRange(0, n-1).Draw(t, "from")) + " " + name(rapid.IntRange(0, n-1).Draw(t, "to")) + "\n")
		}
		g, err := debgraph.ReadEdgeList("t", strings.NewReader(list.String()))
		if err != nil {
			t.Fatal(err)
		}
		l, shards, err := demo.GraphShards(g, rapid.IntRange(1, 7).Draw(t, "elements"))
		if err != nil {
			t.Fatal(err)
		}
		from, to := uint32(rapid.IntRange(0, n-1).Draw(t, "start")), uint32(rapid.IntRange(0, n-1).Draw(t, "goal"))
		first := rapid.IntRange(1, n).Draw(t, "first")
		for _, s := range styles {
			b := demo.Baseline{Backend: demotest.New(l, shards), Layout: l, Style: s}
			for _, d := range []debgraph.Direction{debgraph.Needs, debgraph.NeededBy} {
				got, err := b.Closure(t.Context(), from, d)
				if want := g.Closure(from, d); err != nil || !slices.Equal(got, want) {
					t.Fatalf("style %d, %v of %d: %v, not %v (%v)", s, d, from, got, want, err)
				}
			}
			path, err := b.Path(t.Context(), from, to)
			if want := g.Path(from, to); err != nil || !slices.Equal(path, want) {
				t.Fatalf("style %d, path: %v, not %v (%v)", s, path, want, err)
			}
			top, err := b.Top(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(g.Top(first), top); d != "" {
				t.Fatalf("style %d, top: %s", s, d)
			}
		}
		for _, prove := range []bool{false, true} {
			rk, err := demo.InjectTop(t.Context(), demotest.New(l, shards), l, first, prove)
			if err != nil {
				t.Fatal(err)
			}
			want := g.Top(first)
			if d := cmp.Diff(want[:rk.Proven], rk.Top[:rk.Proven]); d != "" || prove && rk.Proven != first {
				t.Fatalf("proven %d of %d ranks: %s", rk.Proven, first, d)
			}
		}
	})
}

// TestRoundTripsAreCounted: the figures that the demo shows, for a walk that
// can be followed by hand: a needs b and c, both need d.
func TestRoundTripsAreCounted(t *testing.T) {
	g, err := debgraph.ReadEdgeList("t", strings.NewReader("a b\na c\nb d\nc d\n"))
	if err != nil {
		t.Fatal(err)
	}
	l, back := lend(t, g)
	for s, want := range map[demo.Style][2]uint64{
		demo.OneAtATime: {7, 7}, // four offset pairs, three rows that are not empty
		demo.Batched:    {5, 7}, // levels a, {b c}, {d}: two waits each, the last has no targets
		demo.FetchAll:   {1, 7}, // four offset windows, three target windows that are not empty
	} {
		b := demo.Baseline{Backend: back, Layout: l, Style: s}
		if _, err := b.Closure(t.Context(), 0, debgraph.Needs); err != nil {
			t.Fatal(err)
		}
		if b.Trips != want[0] || b.Operations != want[1] {
			t.Errorf("style %d: %d round trips, %d reads; expected %v", s, b.Trips, b.Operations, want)
		}
	}
}

func TestTopOfDebianIsProven(t *testing.T) {
	g := debian(t)
	l, b := lend(t, g)
	rk, err := demo.InjectTop(t.Context(), b, l, 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(g.Top(10), rk.Top); d != "" || rk.Proven != 3 || rk.Counted != 383 {
		t.Errorf("%d proven, %d counted: %s", rk.Proven, rk.Counted, d)
	}
	rk, err = demo.InjectTop(t.Context(), b, l, 10, true)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(g.Top(10), rk.Top); d != "" || rk.Proven != 10 {
		t.Errorf("%d proven of %d counted: %s", rk.Proven, rk.Counted, d)
	}
	t.Logf("%d counted, %d calls", rk.Counted, rk.Trips)
}

func TestPermutationIsOneCycle(t *testing.T) {
	for _, n := range []int{1, 2, 3, 1000} {
		next, err := demo.Permutation(n, 42)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := demo.Permutation(n, 42)
		at, length := next[0], 1
		for ; at != 0 && length <= n; length++ {
			at = next[at]
		}
		if length != n || !slices.Equal(next, again) {
			t.Errorf("a cycle of %d among %d", length, n)
		}
	}
	for _, n := range []int{0, -1, demo.MaxChase + 1} {
		if _, err := demo.Permutation(n, 1); err == nil {
			t.Errorf("%d indices were accepted", n)
		}
	}
}

func TestLayoutCoversEveryVertexOnce(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {1, 4}, {4, 4}, {5, 4}, {63666, 4}, {7, 1024}} {
		l, err := demo.NewLayout(uint64(c[0]), c[1])
		if err != nil {
			t.Fatal(err)
		}
		at := uint64(0)
		for e := range c[1] {
			first, rows := l.Block(e)
			if first != at {
				t.Fatalf("%v: element %d starts at %d, not %d", c, e, first, at)
			}
			for v := first; v < first+rows; v++ {
				if owner, row := l.Owner(v); owner != e || row != v-first {
					t.Fatalf("%v: vertex %d belongs to %d", c, v, owner)
				}
			}
			at += rows
		}
		if owner, _ := l.Owner(uint64(c[0])); owner != c[1] {
			t.Fatalf("%v: a vertex that does not exist belongs to %d", c, owner)
		}
		if at != uint64(c[0]) {
			t.Fatalf("%v: %d vertices are laid out", c, at)
		}
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {1, demo.MaxElements + 1}} {
		if _, err := demo.NewLayout(uint64(c[0]), c[1]); err == nil {
			t.Errorf("%v was accepted", c)
		}
	}
}

// TestDamagedDataIsAnError changes what elements hold: no baseline may panic or loop.
func TestDamagedDataIsAnError(t *testing.T) {
	g, err := debgraph.ReadEdgeList("t", strings.NewReader("a b\nb c\nc d\nd e\ne f\nf a\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(s []demo.Shard){
		"an offset beyond the window":  func(s []demo.Shard) { binary.LittleEndian.PutUint64(s[0].Windows[demo.FwdOffsets][8:], 1<<40) },
		"an offset that wraps around":  func(s []demo.Shard) { binary.LittleEndian.PutUint64(s[0].Windows[demo.FwdOffsets][8:], 1<<62) },
		"offsets that fall":            func(s []demo.Shard) { binary.LittleEndian.PutUint64(s[0].Windows[demo.FwdOffsets][0:], 2) },
		"a vertex that does not exist": func(s []demo.Shard) { binary.LittleEndian.PutUint32(s[0].Windows[demo.FwdTargets], 6) },
	} {
		l, shards, err := demo.GraphShards(g, elements)
		if err != nil {
			t.Fatal(err)
		}
		damage(shards)
		for _, s := range styles {
			b := demo.Baseline{Backend: demotest.New(l, shards), Layout: l, Style: s}
			if _, err := b.Closure(t.Context(), 0, debgraph.Needs); !errors.Is(err, demo.ErrBadData) {
				t.Errorf("%s: style %d: %v", name, s, err)
			}
			if _, err := b.Path(t.Context(), 0, 3); !errors.Is(err, demo.ErrBadData) {
				t.Errorf("%s: style %d: path: %v", name, s, err)
			}
		}
	}
	next, err := demo.Permutation(8, 1)
	if err != nil {
		t.Fatal(err)
	}
	next[next[0]] = 8
	l, shards, err := demo.ChaseShards(next, elements)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []demo.Style{demo.OneAtATime, demo.FetchAll} {
		b := demo.Baseline{Backend: demotest.New(l, shards), Layout: l, Style: s}
		if _, err := b.Chase(t.Context(), 0, 5); !errors.Is(err, demo.ErrBadData) {
			t.Errorf("style %d: chase: %v", s, err)
		}
	}
}

func data(t testing.TB) *demo.Data {
	t.Helper()
	g := debian(t)
	l, b := lend(t, g)
	next, err := demo.Permutation(100_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	cl, shards, err := demo.ChaseShards(next, elements)
	if err != nil {
		t.Fatal(err)
	}
	return &demo.Data{Graph: g, GraphLayout: l, GraphAt: b, Next: next, ChaseLayout: cl, ChaseAt: demotest.New(cl, shards)}
}

// TestRunAsksEverything runs the demo as a whole, on the in-process elements.
func TestRunAsksEverything(t *testing.T) {
	d := data(t)
	r := report.Report{Environment: demo.Host(d.Graph, elements, time.Now())}
	r.Environment.Transports = []string{"calls within one process"}
	for _, q := range demo.DefaultQueries(d.Graph) {
		asked := 0
		got, err := demo.Run(t.Context(), d, q, demo.Options{Repeats: 1, Progress: func(string, string, int, int) { asked++ }})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Methods {
			if q.Kind == demo.KindChase && m.Name == "get-batched" {
				if m.Failure == "" {
					t.Error("a chase was batched")
				}
				continue
			}
			if !m.Checked || m.Failure != "" || m.RoundTrips == 0 || m.BytesToClient == 0 || m.TimeNs <= 0 || m.FirstTimeNs <= 0 {
				t.Errorf("%s: %+v", q.Kind, m)
			}
		}
		if asked == 0 || got.Methods[0].RoundTrips >= got.Methods[1].RoundTrips {
			t.Errorf("%s: %+v", q.Kind, got.Methods)
		}
		r.Questions = append(r.Questions, *got)
	}
	var text bytes.Buffer
	if err := report.Text(&text, &r, report.TextOptions{Width: 110}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"172 packages", "gnome → gnome-core", "1. gcc-12-base, by 49,586", "4,000 hops"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	t.Log("\n" + text.String())
}

// TestRunTakesAnyGraph: the questions of a graph that knows no Debian package.
func TestRunTakesAnyGraph(t *testing.T) {
	d := data(t)
	var err error
	if d.Graph, err = debgraph.ReadEdgeList("mine", strings.NewReader("app lib\nlib base\ntool lib\napp tool\n")); err != nil {
		t.Fatal(err)
	}
	d.GraphLayout, d.GraphAt = func() (demo.Layout, demo.Backend) { l, b := lend(t, d.Graph); return l, b }()
	var got [][]string
	for _, q := range demo.DefaultQueries(d.Graph) {
		answer, err := demo.Run(t.Context(), d, q, demo.Options{Repeats: 1})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, answer.Answer)
	}
	want := [][]string{
		{"3 vertices.", "base, lib, tool"}, {"2 vertices.", "app, tool"}, {"app → lib", "1 step; no way is shorter."},
		{"1. base, by 3", "2. lib, by 2", "3. tool, by 1", "4. app, by 0"},
	}
	if diff := cmp.Diff(want, got[:4]); diff != "" {
		t.Error(diff)
	}
}

// TestOneIsNotMany: the smallest graph has one package of a kind, one step and one hop.
func TestOneIsNotMany(t *testing.T) {
	d := data(t)
	var err error
	if d.Graph, err = debgraph.ReadEdgeList("mine", strings.NewReader("app lib\n")); err != nil {
		t.Fatal(err)
	}
	l, b := lend(t, d.Graph)
	d.GraphLayout, d.GraphAt = l, b
	var said []string
	for _, q := range []demo.Query{{Kind: demo.KindNeeds, Package: "app"}, {Kind: demo.KindTop, First: 1}, {Kind: demo.KindChase, Hops: 1}} {
		answer, err := demo.Run(t.Context(), d, q, demo.Options{Repeats: 1})
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, answer.Title, answer.Answer[0])
	}
	want := []string{"What does app end up needing?", "1 vertex.", "Which vertex do most others end up needing?", "1. lib, by 1",
		"Where does 1 hop through a random permutation of 100,000 lead?", said[5]}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
}

// TestDefaultPath: it leads from one vertex to another, also where the one that needs the most is needed the most.
func TestDefaultPath(t *testing.T) {
	for edges, want := range map[string]string{
		"a b\nb c\nc a\n":                   "a b",
		"hub x\nhub y\nx hub\ny hub\ny x\n": "hub x",
		"alone\n":                           "",
	} {
		g, err := debgraph.ReadEdgeList("mine", strings.NewReader(edges))
		if err != nil {
			t.Fatal(err)
		}
		path := ""
		for _, q := range demo.DefaultQueries(g) {
			if err := demo.CheckQuery(g, q); err != nil {
				t.Error(err)
			}
			if q.Kind == demo.KindPath {
				path = q.Package + " " + q.Goal
			}
		}
		if path != want {
			t.Errorf("%q: the path is %q, want %q", edges, path, want)
		}
	}
}

// TestNothingIsAskedOfAnEmptyGraph: there is no vertex to ask about.
func TestNothingIsAskedOfAnEmptyGraph(t *testing.T) {
	g, err := debgraph.ReadEdgeList("empty", strings.NewReader("# nothing\n"))
	if err != nil {
		t.Fatal(err)
	}
	if q := demo.DefaultQueries(g); len(q) != 0 {
		t.Errorf("%+v", q)
	}
}

func TestRunRefusesBadQuestions(t *testing.T) {
	d := data(t)
	d.Next = nil
	for _, q := range []demo.Query{
		{}, {Kind: demo.KindNeeds, Package: "no-such-package"}, {Kind: demo.KindPath, Package: "apt"}, {Kind: demo.KindTop},
		{Kind: demo.KindTop, First: demo.MaxFirst + 1}, {Kind: demo.KindChase, Hops: 1}, {Kind: demo.KindChase},
		{Kind: demo.KindChase, Hops: demo.MaxHops + 1},
	} {
		if _, err := demo.Run(t.Context(), d, q, demo.Options{}); err == nil {
			t.Errorf("%+v was answered", q)
		}
	}
	for _, o := range []demo.Options{{Repeats: -1}, {Repeats: demo.MaxRepeats + 1}, {Budget: -1}} {
		if _, err := demo.Run(t.Context(), d, demo.Query{Kind: demo.KindTop, First: 1}, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// TestRunReportsWhatFails: an element that breaks is a method's failure, in words.
func TestRunReportsWhatFails(t *testing.T) {
	d := data(t)
	calls := 0
	d.GraphAt.(*demotest.Backend).Fail = func() error {
		if calls++; calls > 5 {
			return errors.New("the element is gone")
		}
		return nil
	}
	got, err := demo.Run(t.Context(), d, demo.Query{Kind: demo.KindNeeds, Package: "bash"}, demo.Options{Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got.Methods[1:] {
		if !strings.Contains(m.Failure, "the element is gone") || m.Checked || m.TimeNs != 0 {
			t.Errorf("%+v", m)
		}
	}
}

// slow waits before every read, and so does a method that reads one at a time run out of its budget.
type slow struct{ demo.Backend }

func (s slow) Get(ctx context.Context, r demo.Read) error {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.Backend.Get(ctx, r)
}

func TestRunStopsSlowMethods(t *testing.T) {
	d := data(t)
	d.GraphAt = slow{d.GraphAt}
	got, err := demo.Run(t.Context(), d, demo.Query{Kind: demo.KindNeeds, Package: "firefox-esr"}, demo.Options{Repeats: 1, Budget: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if m := got.Methods[1]; !strings.Contains(m.Failure, "stopped after 2s") {
		t.Errorf("%+v", m)
	}
	if m := got.Methods[3]; m.Failure != "" || m.TimeNs <= 0 {
		t.Errorf("%+v", m)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := demo.Run(gone, d, demo.Query{Kind: demo.KindTop, First: 1}, demo.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run whose context is over gave %v", err)
	}
}

// TestDistance: a time has what its round trips, messages and bytes take at the distance that is said, and nothing is waited for.
func TestDistance(t *testing.T) {
	for name, c := range map[string]struct {
		d         demo.Distance
		near, far func(m *report.Method) time.Duration // beside the time measured; far nil: there is none
	}{
		"here": {demo.Distance{}, func(*report.Method) time.Duration { return 0 }, nil},
		"all far": {demo.Distance{RTT: time.Second}, func(m *report.Method) time.Duration {
			if m.Name == "injected" {
				return time.Duration(m.Chain) * time.Second / 2
			}
			return time.Duration(m.RoundTrips) * time.Second
		}, nil},
		"the client far": {demo.Distance{ClientRTT: time.Second, Bandwidth: 8000}, func(*report.Method) time.Duration { return 0 }, func(m *report.Method) time.Duration {
			return time.Duration(m.RoundTrips)*time.Second + time.Duration(m.BytesToClient+m.BytesFromClient)*time.Millisecond
		}},
	} {
		got, err := demo.Run(t.Context(), data(t), demo.Query{Kind: demo.KindNeeds, Package: "vim"}, demo.Options{Repeats: 1, Distance: c.d})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Methods {
			m := &got.Methods[i]
			if took := time.Duration(m.TimeNs) - c.near(m); m.Failure != "" || took <= 0 || took > time.Minute {
				t.Errorf("%s: %s took %v beside the distance (%s)", name, m.Name, took, m.Failure)
			}
			want := int64(0)
			if c.far != nil {
				want = m.TimeNs + c.far(m).Nanoseconds()
			}
			if d := m.FarTimeNs - want; d < -1000 || d > 1000 { // floats
				t.Errorf("%s: %s to a far client is %d, want %d", name, m.Name, m.FarTimeNs, want)
			}
		}
	}
	for _, d := range []demo.Distance{{RTT: -1}, {RTT: demo.MaxRTT + 1}, {ClientRTT: -1}, {ClientRTT: demo.MaxRTT + 1}} {
		if err := d.Validate(); err == nil {
			t.Errorf("%+v was accepted", d)
		}
	}
}

func TestParseBandwidth(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "1000": 1000, "100Mbit": 1e8, "1.5 Gbit/s": 15e8, "56kbit": 56000} {
		if got, err := demo.ParseBandwidth(text); err != nil || got != want {
			t.Errorf("%q is %d, want %d (%v)", text, got, want, err)
		}
	}
	for _, text := range []string{"", "fast", "-1", "NaN", "1e300", "Mbit", "0.5", "12MB"} {
		if got, err := demo.ParseBandwidth(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// TestChaseOfChangingData: the table changes between answers, and every method is held against it as it is then. A
// table that is not changed where it lies, though the reference is, makes all of them wrong.
func TestChaseOfChangingData(t *testing.T) {
	for _, written := range []bool{true, false} {
		next, err := demo.Permutation(1000, 7)
		if err != nil {
			t.Fatal(err)
		}
		l, shards, err := demo.ChaseShards(next, elements)
		if err != nil {
			t.Fatal(err)
		}
		changes := 0
		d := &demo.Data{Graph: debian(t), Next: next, ChaseLayout: l, ChaseAt: demotest.New(l, shards), SetNext: func(_ context.Context, index, value uint64) error {
			changes++
			if e, row := l.Owner(index); written {
				binary.LittleEndian.PutUint64(shards[e].Windows[demo.ChaseNext][8*row:], value)
			}
			return nil
		}}
		got, err := demo.Run(t.Context(), d, demo.Query{Kind: demo.KindChase, Hops: 100}, demo.Options{Repeats: 3})
		if err != nil {
			t.Fatal(err)
		}
		if changes != 6 || !strings.Contains(got.Title, "which changes between answers") || *got.Result.Index != demo.Chase(next, 0, 100) {
			t.Errorf("%d changes, %q, %+v", changes, got.Title, got.Result)
		}
		for _, i := range []int{0, 1, 3} {
			if m := got.Methods[i]; m.Checked != written || m.Broken == written {
				t.Errorf("written %v: %+v", written, m)
			}
		}
	}
}

func TestHostIsDescribed(t *testing.T) {
	e := demo.Host(debian(t), elements, time.Unix(0, 0))
	if e.Cores != runtime.NumCPU() || e.Machine == "" || e.Kernel == "" || e.CPU == "" || e.DatasetDate == "" || e.TakenAt != "1970-01-01T00:00:00Z" {
		t.Errorf("%+v", e)
	}
}
