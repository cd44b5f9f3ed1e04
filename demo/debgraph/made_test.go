package debgraph

import (
	"errors"
	"slices"
	"testing"
)

// TestMake: a made graph is a valid one, always the same, and its vertices need few others, as packages do.
func TestMake(t *testing.T) {
	for _, n := range []int{1, 2, 999, 20_000} {
		g, err := Make(n)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Make(n)
		if err != nil || !slices.Equal(g.Fwd.Dst, again.Fwd.Dst) {
			t.Errorf("%d vertices: another graph the second time (%v)", n, err)
		}
		back := transpose(&g.Rev)
		if g.Len() != n || !slices.IsSorted(g.Names) || !slices.Equal(back.Off, g.Fwd.Off) || !slices.Equal(back.Dst, g.Fwd.Dst) {
			t.Errorf("%d vertices: the graph is not whole", n)
		}
		for v := range uint32(n) {
			if row := g.Fwd.Row(v); !slices.IsSorted(row) || len(row) > madeNeeds || len(row) > 0 && row[len(row)-1] >= v {
				t.Fatalf("%d vertices: %d needs %v", n, v, row)
			}
		}
	}
	for _, n := range []int{-1, 0, MaxMade + 1} {
		if _, err := Make(n); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d vertices: %v", n, err)
		}
	}
}
