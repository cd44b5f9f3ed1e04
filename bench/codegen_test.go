package bench

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/inject/forms"
)

// expr is a predicate's text, and what it comes to for a row.
type expr struct {
	text string
	eval func(row []int64) int64
}

// randomExpr is an expression in parentheses of a few levels. It divides by no 0.
func randomExpr(r *rand.Rand, levels int) expr {
	truth := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	if levels == 0 {
		if n := r.Int64N(2000) - 1000; r.IntN(2) == 0 {
			return expr{fmt.Sprint(n), func([]int64) int64 { return n }}
		}
		col := r.IntN(whereColumns)
		return expr{string(rune('a' + col)), func(row []int64) int64 { return row[col] }}
	}
	x := randomExpr(r, levels-1)
	if r.IntN(8) == 0 {
		return expr{"!" + x.text, func(row []int64) int64 { return truth(x.eval(row) == 0) }}
	}
	if n := r.Int64N(50) + 1; r.IntN(6) == 0 {
		if r.IntN(2) == 0 {
			return expr{fmt.Sprintf("(%s / %d)", x.text, n), func(row []int64) int64 { return x.eval(row) / n }}
		}
		return expr{fmt.Sprintf("(%s %% -%d)", x.text, n), func(row []int64) int64 { return x.eval(row) % -n }}
	}
	y := randomExpr(r, r.IntN(levels))
	ops := []struct {
		word string
		does func(x, y int64) int64
	}{
		{"*", func(x, y int64) int64 { return x * y }}, {"+", func(x, y int64) int64 { return x + y }}, {"-", func(x, y int64) int64 { return x - y }},
		{"<", func(x, y int64) int64 { return truth(x < y) }}, {">", func(x, y int64) int64 { return truth(x > y) }}, {"<=", func(x, y int64) int64 { return truth(x <= y) }},
		{">=", func(x, y int64) int64 { return truth(x >= y) }}, {"==", func(x, y int64) int64 { return truth(x == y) }}, {"!=", func(x, y int64) int64 { return truth(x != y) }},
		{"&&", func(x, y int64) int64 { return truth(x != 0 && y != 0) }}, {"||", func(x, y int64) int64 { return truth(x != 0 || y != 0) }},
	}
	op := ops[r.IntN(len(ops))]
	return expr{fmt.Sprintf("(%s %s %s)", x.text, op.word, y.text), func(row []int64) int64 { return op.does(x.eval(row), y.eval(row)) }}
}

// TestWhere: predicates of all kinds hold for the same rows compiled, interpreted and in Go; what cannot be read is said.
func TestWhere(t *testing.T) {
	withCompiler(t)
	cfg := Config{Kind: "codegen", Transport: "shm", Command: []string{"none"}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	code, err := cfg.code(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := &role{Name: "where", scheme: schemes.All()[0], Code: code, CacheDir: filepath.Join(t.TempDir(), "cache")}
	st, err := newStation(spec, true)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	const rows = 300
	seg, err := st.el.NewSegment(rows*whereColumns*8, fabric.Writable)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(11, 5))
	data := make([][]int64, rows)
	for i := range data {
		for k := range whereColumns {
			v := r.Int64N(2000) - 1000
			data[i] = append(data[i], v)
			binary.LittleEndian.PutUint64(seg.Bytes()[(i*whereColumns+k)*8:], uint64(v))
		}
	}
	key, err := seg.Key(fabric.RightRead)
	if err != nil {
		t.Fatal(err)
	}
	table := &cluster.Table{Name: "where", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: rows},
		Shards: []cluster.Shard{{Element: "where", Incarnation: st.el.Incarnation(), Addrs: []string{"shm:///none"}, Windows: []cluster.Window{{Key: key, Size: rows * whereColumns * 8}}}}}
	table.FillRows()
	img, err := spec.image("where")
	if err != nil {
		t.Fatal(err)
	}
	f, err := st.rt.PrepareAs(img, table, forms.Auto)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &client{station: st, spec: spec, ctx: t.Context(), w: json.NewEncoder(t.Output())}
	for range 60 {
		e := randomExpr(r, 4)
		var want answer
		for _, row := range data {
			if e.eval(row) != 0 {
				want.matches++
				want.total += uint64(row[0])
			}
		}
		for step := range 2 {
			if got, err := c.where(f, e.text, step); err != nil || got != want {
				t.Errorf("step %d of %s: %+v, %v; want %+v", step, e.text, got, err, want)
			}
		}
	}
	for text, says := range map[string]string{"a +": "cannot be read from here on", "a < e": "from here on: e", "(a": "cannot be read", "": "cannot be read", strings.Repeat("(", 100): "cannot be read"} {
		if _, err := c.where(f, text, 0); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.10q: %v, want %q", text, err, says)
		}
	}
}
