package xrdma

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/schema"
	"pgregory.net/rapid"
)

// namedWindows are a graph's windows without edges and with names.
func namedWindows(shards sharding, elements int, names []string) [][][]byte {
	out := newDigraph(len(names), nil).windows(shards, elements, 0)
	for e := range out {
		out[e] = append(out[e], u32s(0), nil)
	}
	for v, name := range names {
		e, _, _ := shards.Owner(uint64(v))
		out[e][5] = append(out[e][5], name...)
		out[e][4] = binary.LittleEndian.AppendUint32(out[e][4], uint32(len(out[e][5])))
	}
	return out
}

// namesOf runs names or find, and returns its rows, sorted.
func namesOf(t tb, c *cluster, function, param, list string) []string {
	t.Helper()
	m := ready(function).Call()
	parts, err := c.invoke(args(t, ready(function), nil, map[string]string{param: list}), c.every()...)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, p := range parts {
		rows, err := m.Result.DecodePart(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows.Len() {
			got = append(got, fmt.Sprintf("%d %q", rows.Uint(i, 0), rows.Text(i, 1)))
		}
	}
	slices.Sort(got)
	return got
}

// TestNames: find and names answer as a table of names here does, on every sharding, with names that
// are empty, that are given twice, and that begin as others do.
func TestNames(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("abé ")), 0, 12, -1)
		all := rapid.SliceOfN(name, 1, 60).Draw(t, "names")
		shards, n := drawShards(t, uint64(len(all)))
		sought := rapid.SliceOfN(rapid.OneOf(name, rapid.SampledFrom(all)), 1, 20).Draw(t, "sought")
		vertices := rapid.SliceOfN(rapid.IntRange(0, len(all)-1), 0, 20).Draw(t, "vertices")

		find := e.cluster(t, ready("find"), shards, namedWindows(shards, n, all), nil)
		defer find.close()
		want := []string{}
		for v, name := range all {
			if slices.Contains(sought, name) {
				want = append(want, fmt.Sprintf("%d %q", v, name))
			}
		}
		slices.Sort(want)
		if got := namesOf(t, find, "find", "names", strings.Join(sought, "\n")); !slices.Equal(got, want) {
			t.Fatalf("find %q: %v, want %v", sought, got, want)
		}

		names := e.cluster(t, ready("names"), shards, namedWindows(shards, n, all), nil)
		defer names.close()
		want, list := []string{}, []string{}
		for _, v := range vertices {
			want, list = append(want, fmt.Sprintf("%d %q", v, all[v])), append(list, fmt.Sprint(v))
		}
		slices.Sort(want)
		if got := namesOf(t, names, "names", "vertices", strings.Join(list, ",")); !slices.Equal(got, want) {
			t.Fatalf("names of %v: %v, want %v", vertices, got, want)
		}
	})
}

// TestNamesOfNone: a graph without names has no rows, whatever is asked.
func TestNamesOfNone(t *testing.T) {
	e := newEngine(t)
	shards := blocks(3, 2)
	for function, param := range map[string]string{"find": "names", "names": "vertices"} {
		c := e.cluster(t, ready(function), shards, newDigraph(3, nil).windows(shards, 2, 0), nil)
		if got := namesOf(t, c, function, param, "1,2"); len(got) > 0 {
			t.Errorf("%s on a graph without names: %v", function, got)
		}
		c.close()
	}
}

// TestRowFields: every field of a result that is a vertex of a graph is declared a row, so that its name can be shown.
func TestRowFields(t *testing.T) {
	for _, name := range List() {
		m := ready(name).Manifest()
		if m.Result == nil || name == "names" || name == "find" {
			continue
		}
		for _, f := range m.Result.Fields {
			if f.Name == "vertex" && (f.Type != schema.U32 || !f.IsRow()) {
				t.Errorf("%s: the field %s is not declared a row", name, f.Name)
			}
		}
	}
}
