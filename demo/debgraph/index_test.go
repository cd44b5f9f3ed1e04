package debgraph

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// TestIndex reads small indexes and prints the graph and what was counted.
func TestIndex(t *testing.T) {
	datadriven.RunTest(t, "testdata/index", func(t *testing.T, d *datadriven.TestData) string {
		g, err := BuildIndex(strings.NewReader(d.Input), "amd64")
		if err != nil {
			return err.Error() + "\n"
		}
		checkGraph(t, g)
		var b strings.Builder
		for v, name := range g.Names {
			fmt.Fprintf(&b, "%s -> %s\n", name, strings.Join(names(g, g.Fwd.Row(uint32(v))), " "))
		}
		fmt.Fprintf(&b, "%+v\n", g.Meta.Stats)
		return b.String()
	})
}

func TestCompareVersions(t *testing.T) {
	// Each list is ascending; members of an inner list are equal.
	for _, list := range [][][]string{
		{{"~~"}, {"~~a"}, {"~"}, {"", "0", "0:0-0"}, {"a"}},
		{{"1.0~rc1-1"}, {"1.0-0", "1.0", "0:1.0"}, {"1.0-1~bpo12+1"}, {"1.0-1"}, {"1.0-1+b1"}, {"1.0-1.1"}, {"1.0.1-1"}, {"1.00000010-1", "1.10-1"}, {"1:0.1"}},
		{{"2.36-9+deb12u9"}, {"2.36-9+deb12u10"}, {"2.36-10"}},
		{{"1.2.3"}, {"1.2.3a"}, {"1.2.3+"}, {"1.2.3.1"}},
		{{"99999999999999999999999999"}, {"100000000000000000000000000"}},
	} {
		for i, as := range list {
			for j, bs := range list {
				for _, a := range as {
					for _, b := range bs {
						if got, want := sign(CompareVersions(a, b)), sign(i-j); got != want {
							t.Errorf("%q against %q: %d, not %d", a, b, got, want)
						}
					}
				}
			}
		}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestCompareVersionsIsAnOrder(t *testing.T) {
	version := rapid.StringMatching(`([0-9]:)?[0-9a-c.+~]{0,6}(-[0-9a~+]{0,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		v := []string{version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")}
		if sign(CompareVersions(v[0], v[1])) != -sign(CompareVersions(v[1], v[0])) {
			t.Fatalf("%q and %q", v[0], v[1])
		}
		slices.SortFunc(v, CompareVersions)
		if CompareVersions(v[0], v[2]) > 0 {
			t.Fatalf("%q is no chain", v)
		}
	})
}

func FuzzBuildIndex(f *testing.F) {
	f.Add([]byte("Package: a\nVersion: 1\nArchitecture: all\nDepends: b (>= 1) | c,\n d:any\nProvides: e (= 2)\n\nPackage: b\nVersion: 2\nArchitecture: amd64\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := BuildIndex(strings.NewReader(string(data)), "amd64"); err == nil {
			checkGraph(t, g)
		}
	})
}
