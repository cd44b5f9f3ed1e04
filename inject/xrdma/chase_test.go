package xrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"pgregory.net/rapid"
)

// tableWindows cuts a table into the elements' windows 0.
func tableWindows(table []uint64, shards sharding, elements int) [][][]byte {
	local := make([][]uint64, elements)
	for row, v := range table {
		e, _, _ := shards.Owner(uint64(row))
		local[e] = append(local[e], v)
	}
	out := make([][][]byte, elements)
	for e := range out {
		out[e] = [][]byte{u64s(local[e]...)}
	}
	return out
}

func drawShards(t *rapid.T, rows uint64) (sharding, int) {
	n := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 9, 10, 13, 23}).Draw(t, "elements") // more than eight have heads
	switch kind := rapid.SampledFrom([]string{"blocks", "ranges", "block", "cyclic", "hash", "keyed"}).Draw(t, "sharding"); kind {
	case "blocks":
		return blocks(rows, n), n
	case "ranges":
		cuts := append(rapid.SliceOfN(rapid.Uint64Range(0, rows), n-1, n-1).Draw(t, "cuts"), 0, rows)
		slices.Sort(cuts)
		return ranges(cuts...), n
	default:
		return kinds(rows, n)[kind], n
	}
}

func TestChase(t *testing.T) {
	e := newEngine(t)
	img := Chase()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.Uint64Range(1, 200).Draw(t, "rows")
		table := rapid.SliceOfN(rapid.Uint64Range(0, rows-1), int(rows), int(rows)).Draw(t, "table")
		shards, n := drawShards(t, rows)
		start := rapid.Uint64Range(0, rows-1).Draw(t, "start")
		depth := rapid.Uint64Range(0, 300).Draw(t, "depth")
		want := start
		for range depth {
			want = table[want]
		}
		c := e.cluster(t, img, shards, tableWindows(table, shards, n), nil)
		defer c.close()
		machines := rapid.IntRange(1, n).Draw(t, "machines")
		c.near = func(from, to int) bool { return from%machines == to%machines }
		owner, _, _ := shards.Owner(start)
		on := int(owner)
		if rapid.Bool().Draw(t, "elsewhere") {
			on = rapid.IntRange(0, n-1).Draw(t, "on")
		}
		parts, err := c.invoke(ChaseArgs(start, depth), on)
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) != 1 || binary.LittleEndian.Uint64(parts[0]) != want {
			t.Fatalf("chase ends at %x, want %d", parts, want)
		}
		if got := rowsOf(t, img, parts); got[0][0] != fmt.Sprint(want) {
			t.Fatalf("decoded %v", got)
		}
	})
}

// A row that holds no row's number is named, with the number, whatever the sharding and wherever it lies.
func TestChaseErrors(t *testing.T) {
	e := newEngine(t)
	const rows = 7
	table := []uint64{1, 4, rows, 1 << 40, 6, ^uint64(0), 9}
	wrong := []string{"row 6 holds 9", "row 6 holds 9", "row 2 holds 7", "row 3 holds 1099511627776", "row 6 holds 9", "row 5 holds -1", "row 6 holds 9"}
	all := kinds(rows, 2)
	all["uneven"], all["alone"] = ranges(0, 5, 5, rows), ranges(0, rows)
	for kind, shards := range all {
		n := len(shards.Shards)
		c := e.cluster(t, Chase(), shards, tableWindows(table, shards, n), nil)
		for start := range uint64(rows) {
			for turn, depth := range []uint64{5, 1<<32 + 2, 5, 1<<32 + 2} { // more than what travels has room for
				c.near = func(_, _ int) bool { return turn > 1 }
				on, _, _ := shards.Owner(start)
				c.logs = nil
				_, err := c.invoke(ChaseArgs(start, depth), int(on))
				want := wrong[start] + "; there are 7 rows"
				if !errors.Is(err, statusError(abi.ErrArgument)) || !slices.Equal(c.logs, []string{want}) {
					t.Errorf("%s: %d steps from %d: %v, it says %q, want ErrArgument and %q", kind, depth, start, err, c.logs, want)
				}
			}
		}
		for _, payload := range [][]byte{nil, make([]byte, 15), make([]byte, 17), make([]byte, 22)} {
			if _, err := c.invoke(payload, 0); !errors.Is(err, statusError(abi.ErrArgument)) {
				t.Errorf("%d bytes of payload: %v, want ErrArgument", len(payload), err)
			}
		}
		if c.logs = nil; n > 1 {
			if _, err := c.invoke(ChaseArgs(rows, 5), 0); !errors.Is(err, statusError(abi.ErrArgument)) || c.logs != nil {
				t.Errorf("%s: a start that is no row: %v, it says %q", kind, err, c.logs)
			}
		}
		c.close()
	}
}

// Equal blocks must cost three host calls on each element passed, and 22 bytes; elements on one machine, none.
func TestChaseCost(t *testing.T) {
	e := newEngine(t)
	const rows, n, depth = 64, 4, 1000
	table := make([]uint64, rows)
	for i := range table {
		table[i] = uint64((i + rows/n) % rows) // always the next element
	}
	shards := blocks(rows, n)
	c := e.cluster(t, Chase(), shards, tableWindows(table, shards, n), nil)
	defer c.close()
	c.calls = map[string]int{}
	if _, err := c.invoke(ChaseArgs(0, depth), 0); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"window": depth, "get_near": depth - 1, "forward": depth - 1, "reply": 1, "self": 1, "elements": 1, "shard_rows": 1 + n}
	for name, n := range c.calls {
		if want[name] != n {
			t.Errorf("%d calls of %s, want %d", n, name, want[name])
		}
	}
	if c.branches != depth {
		t.Errorf("%d hops, want %d", c.branches, depth)
	}
	c.near = func(_, _ int) bool { return true }
	if _, err := c.invoke(ChaseArgs(0, depth), 0); err != nil || c.branches != 1 {
		t.Errorf("on one machine: %d branches, %v, want 1", c.branches, err)
	}
}
