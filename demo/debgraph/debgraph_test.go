package debgraph

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func load(t testing.TB) *Graph {
	t.Helper()
	g, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func id(t testing.TB, g *Graph, name string) uint32 {
	t.Helper()
	v, err := g.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func names(g *Graph, ids []uint32) []string {
	out := make([]string, len(ids))
	for i, v := range ids {
		out[i] = g.Names[v]
	}
	return out
}

// The README beside the file says which bytes are committed.
func TestBuiltInFileIsTheOneDescribed(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bookworm)
	g := load(t)
	for _, want := range []string{hex.EncodeToString(sum[:]), g.Meta.InputSHA256, g.Meta.Date(), g.Meta.Command} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("README.md does not mention %q", want)
		}
	}
	if len(bookworm) > 2<<20 {
		t.Errorf("the file has %d bytes", len(bookworm))
	}
	for _, r := range g.Meta.Releases {
		if _, err := time.Parse("Mon, 02 Jan 2006 15:04:05 MST", r.Date); err != nil || r.Origin != "Debian" {
			t.Errorf("release %+v: %v", r, err)
		}
	}
}

func TestBuiltInGraph(t *testing.T) {
	g := load(t)
	if g.Len() != 63666 || g.Edges() != 265843 {
		t.Errorf("%d vertices, %d edges", g.Len(), g.Edges())
	}
	want := Stats{Entries: 63666, Groups: 279869, WithAlt: 7282, LaterAlt: 80, Provided: 30435, Unmet: 8}
	if d := cmp.Diff(want, g.Meta.Stats); d != "" {
		t.Error(d)
	}
	checkGraph(t, g)
	again, err := Encode(g)
	if err != nil || !bytes.Equal(again, bookworm) {
		t.Errorf("encoding what was decoded gives other bytes (%v)", err)
	}
}

func TestBuiltInAnswers(t *testing.T) {
	g := load(t)
	// base-files needs awk, a virtual package: all three that provide it count.
	bash := strings.Fields(`base-files debianutils dpkg gawk gcc-12-base libacl1 libbz2-1.0 libc6 libgcc-s1 libgmp10
		liblzma5 libmd0 libmpfr6 libpcre2-8-0 libreadline8 libselinux1 libsigsegv2 libtinfo6 libzstd1 mawk original-awk
		readline-common tar zlib1g`)
	if d := cmp.Diff(bash, names(g, g.Closure(id(t, g, "bash"), Needs))); d != "" {
		t.Error(d)
	}
	path := []string{"gnome", "gnome-core", "gnome-software", "libgtk3-perl", "libcairo-gobject-perl", "perl-base"}
	if d := cmp.Diff(path, names(g, g.Path(id(t, g, "gnome"), id(t, g, "perl-base")))); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		name            string
		needs, neededBy int
	}{
		{"libc6", 2, 49578}, {"gcc-12-base", 0, 49586}, {"zlib1g", 3, 39242}, {"firefox-esr", 172, 150},
		{"gnome", 1138, 0}, {"build-essential", 74, 169}, {"libreoffice", 250, 4}, {"apt", 44, 609},
	} {
		v := id(t, g, c.name)
		if n := len(g.Closure(v, Needs)); n != c.needs {
			t.Errorf("%s needs %d, not %d", c.name, n, c.needs)
		}
		if n := len(g.Closure(v, NeededBy)); n != c.neededBy {
			t.Errorf("%s is needed by %d, not %d", c.name, n, c.neededBy)
		}
	}
	var top []string
	for _, r := range g.Top(8) {
		top = append(top, g.Names[r.ID])
	}
	want := []string{"gcc-12-base", "libc6", "libgcc-s1", "zlib1g", "libzstd1", "liblzma5", "libmd0", "libpcre2-8-0"}
	if d := cmp.Diff(want, top); d != "" {
		t.Error(d)
	}
}

// checkGraph holds a graph against its definition.
func checkGraph(t testing.TB, g *Graph) {
	t.Helper()
	if !slices.IsSorted(g.Names) || len(slices.Compact(slices.Clone(g.Names))) != len(g.Names) {
		t.Fatal("names are not strictly ascending")
	}
	for _, side := range []*CSR{&g.Fwd, &g.Rev} {
		if len(side.Off) != g.Len()+1 || side.Off[0] != 0 || side.Off[g.Len()] != uint64(len(side.Dst)) {
			t.Fatalf("offsets do not frame the rows")
		}
		for v := range g.Names {
			row := side.Row(uint32(v))
			for i, d := range row {
				if int(d) >= g.Len() || int(d) == v || i > 0 && d <= row[i-1] {
					t.Fatalf("row %d: %v", v, row)
				}
			}
		}
	}
	back := transpose(&g.Rev)
	if !slices.Equal(back.Off, g.Fwd.Off) || !slices.Equal(back.Dst, g.Fwd.Dst) {
		t.Fatal("the two directions disagree")
	}
}

func TestFindOffersNeighbours(t *testing.T) {
	g := load(t)
	if _, err := g.Find("libc7"); err == nil || !strings.Contains(err.Error(), "libc6") {
		t.Errorf("%v", err)
	}
}

// drawGraph makes a small graph with cycles.
func drawGraph(t *rapid.T) *Graph {
	n := rapid.IntRange(1, 40).Draw(t, "vertices")
	ids := rapid.IntRange(0, n-1)
	var list strings.Builder
	for v := range n {
		list.WriteString(vertexName(v) + "\n")
	}
	for range rapid.IntRange(0, 3*n).Draw(t, "edges") {
		list.WriteString(vertexName(ids.Draw(t, "from")) + " " + vertexName(ids.Draw(t, "to")) + "\n")
	}
	g, err := ReadEdgeList("drawn", strings.NewReader(list.String()))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func vertexName(v int) string { return string([]byte{'v', byte('a' + v/10), byte('0' + v%10)}) }

func TestFormatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		file, err := Encode(g)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(g, back); d != "" {
			t.Fatal(d)
		}
		i := rapid.IntRange(0, len(file)-1).Draw(t, "damaged")
		file[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := Decode(file); err == nil {
			t.Fatalf("byte %d is damaged and nobody noticed", i)
		}
	})
}

func TestAlgorithmsAgreeWithTheirDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		n := g.Len()
		// dist by Floyd and Warshall.
		const far = 1 << 20
		dist := make([][]int, n)
		for v := range n {
			dist[v] = slices.Repeat([]int{far}, n)
			dist[v][v] = 0
			for _, d := range g.Fwd.Row(uint32(v)) {
				dist[v][d] = 1
			}
		}
		for k := range n {
			for i := range n {
				for j := range n {
					dist[i][j] = min(dist[i][j], dist[i][k]+dist[k][j])
				}
			}
		}
		counts := g.Dependents()
		for v := range n {
			var fwd, rev []uint32
			for u := range n {
				if u != v && dist[v][u] < far {
					fwd = append(fwd, uint32(u))
				}
				if u != v && dist[u][v] < far {
					rev = append(rev, uint32(u))
				}
			}
			if got := g.Closure(uint32(v), Needs); !slices.Equal(got, fwd) {
				t.Fatalf("needs of %d: %v, not %v", v, got, fwd)
			}
			if got := g.Closure(uint32(v), NeededBy); !slices.Equal(got, rev) || counts[v] != len(rev) {
				t.Fatalf("needed by, of %d: %v (counted %d), not %v", v, got, counts[v], rev)
			}
			u := uint32(rapid.IntRange(0, n-1).Draw(t, "goal"))
			path := g.Path(uint32(v), u)
			if dist[v][u] == far {
				if path != nil {
					t.Fatalf("a path %v where there is none", path)
				}
				continue
			}
			if err := g.CheckPath(path, uint32(v), u); err != nil || len(path) != dist[v][u]+1 {
				t.Fatalf("path %v, distance %d: %v", path, dist[v][u], err)
			}
		}
		all := make([]Ranked, n)
		for v, c := range counts {
			all[v] = Ranked{uint32(v), c}
		}
		slices.SortFunc(all, compareRanked)
		k := rapid.IntRange(0, n).Draw(t, "first")
		if d := cmp.Diff(all[:k], g.Top(k)); d != "" {
			t.Fatalf("ranking: %s", d)
		}
	})
}

func TestPathTakesSmallestIDsFromTheEnd(t *testing.T) {
	g, err := ReadEdgeList("t", strings.NewReader("a b\na c\nb x\nc w\nx z\nw z\na y\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(g, g.Path(0, id(t, g, "z"))); !slices.Equal(got, []string{"a", "c", "w", "z"}) {
		t.Error(got)
	}
	if err := g.CheckPath([]uint32{0, id(t, g, "z")}, 0, id(t, g, "z")); err == nil {
		t.Error("a step that is no edge was accepted")
	}
	if err := g.CheckPath(nil, 0, 1); err == nil {
		t.Error("no path was accepted")
	}
}

func TestDecodeRefuses(t *testing.T) {
	g, err := ReadEdgeList("t", strings.NewReader("a b\nb c\n"))
	if err != nil {
		t.Fatal(err)
	}
	good, err := Encode(g)
	if err != nil {
		t.Fatal(err)
	}
	seal := func(f []byte) []byte {
		sum := checksum(f)
		copy(f[32:], sum[:])
		return f
	}
	for name, change := range map[string]func(f []byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"another magic":   func(f []byte) []byte { f[0] = 'x'; return seal(f) },
		"a later version": func(f []byte) []byte { f[8] = 2; return seal(f) },
		"flags":           func(f []byte) []byte { f[12] = 1; return seal(f) },
		"cut short":       func(f []byte) []byte { return f[:len(f)-1] },
		"something after": func(f []byte) []byte { return append(f, 0) },
		"another length":  func(f []byte) []byte { f[16]++; return seal(f) },
		"a huge length":   func(f []byte) []byte { f[23] = 0x7f; return seal(f) },
		"no flate":        func(f []byte) []byte { f[headerBytes] = 0xff; return seal(f) },
	} {
		_, err := Decode(change(bytes.Clone(good)))
		if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadEdgeList(t *testing.T) {
	g, err := ReadEdgeList("mine", strings.NewReader("# a comment\n\nb a\nb\ta\n c c\nd\n"))
	if err != nil {
		t.Fatal(err)
	}
	checkGraph(t, g)
	if !slices.Equal(g.Names, []string{"a", "b", "c", "d"}) || g.Edges() != 1 || g.Meta.Title != "mine" {
		t.Errorf("%+v", g)
	}
	for text, want := range map[string]string{
		"a b c":                                "line 1: 3 words",
		"a b\n" + strings.Repeat("x", 5000):    "line 2",
		strings.Repeat("x", MaxNameBytes+1):    "1025 bytes",
		"a " + strings.Repeat("x", 1<<11) + "": "2048 bytes",
	} {
		if _, err := ReadEdgeList("t", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestReadTakesBothForms(t *testing.T) {
	g, err := Read("built in", bytes.NewReader(bookworm))
	if err != nil || g.Len() != 63666 {
		t.Fatal(err)
	}
	for _, text := range []string{"", "a b", "a rather long name is not here\n"[:8]} {
		if _, err := Read("text", strings.NewReader(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	g, err := ReadEdgeList("t", strings.NewReader("a b\nb c\nb a\n"))
	if err != nil {
		f.Fatal(err)
	}
	file, err := Encode(g)
	if err != nil {
		f.Fatal(err)
	}
	raw, err := openFile(file)
	if err != nil {
		f.Fatal(err)
	}
	// Past the checksum the fuzzer would never come: it works on the body.
	f.Add(raw, false)
	f.Add(file, true)
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		if whole {
			Decode(data)
			return
		}
		d := decoder{rest: data}
		g := d.graph()
		if d.err != nil || len(d.rest) != 0 {
			return
		}
		g.Rev = transpose(&g.Fwd)
		checkGraph(t, g)
	})
}

func FuzzReadEdgeList(f *testing.F) {
	f.Add([]byte("a b\n# c\nb\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := Read("t", bytes.NewReader(data)); err == nil {
			checkGraph(t, g)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		load(b)
	}
}

func BenchmarkDependents(b *testing.B) {
	g := load(b)
	for b.Loop() {
		g.Dependents()
	}
}

func BenchmarkTop(b *testing.B) {
	g := load(b)
	for b.Loop() {
		g.Top(10)
	}
}

func BenchmarkClosure(b *testing.B) {
	g := load(b)
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		g.Closure(uint32(r.IntN(g.Len())), Needs)
	}
}
