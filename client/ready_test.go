package client

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
)

// called is a ready function's answer as CSV, its rows in order.
func called(t *testing.T, c *Client, table *cluster.Table, name string, args map[string]string) string {
	t.Helper()
	img, err := xrdma.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := invoke.Run(t.Context(), c.Runtime(), invoke.Request{Image: img, Table: table, Args: args})
	if err != nil {
		t.Fatalf("%s %v on %s: %v", name, args, table.Name, err)
	}
	var b strings.Builder
	if err := answer.Write(&b, batch.CSV); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines[1:])
	return strings.Join(lines, "")
}

// seen is a row that the ready functions are asked about.
type seen struct {
	name  string
	level int
	size  uint64
	score float64
	ok    bool
}

// cell is a column's value as text, and as a number if it is one.
func (v seen) cell(col string) (text string, number float64) {
	switch col {
	case "level":
		return fmt.Sprint(v.level), float64(v.level)
	case "size":
		return fmt.Sprint(v.size), float64(v.size)
	case "score":
		return fmt.Sprint(v.score), v.score
	case "ok":
		return fmt.Sprint(v.ok), map[bool]float64{true: 1}[v.ok]
	}
	return v.name, math.NaN()
}

// matches is what a condition means: column, operator, value.
func (v seen) matches(w [3]string) bool {
	text, number := v.cell(w[0])
	value, err := strconv.ParseFloat(w[2], 64)
	if w[2] == "true" {
		value, err = 1, nil
	}
	order := cmp.Compare(number, value)
	if err != nil {
		order = cmp.Compare(text, w[2])
	}
	switch w[1] {
	case "eq", "=", "==":
		return order == 0
	case "ne", "!=":
		return order != 0
	case "lt", "<":
		return order < 0
	case "le", "<=":
		return order <= 0
	case "gt", ">":
		return order > 0
	case "ge", ">=":
		return order >= 0
	case "prefix":
		return strings.HasPrefix(text, w[2])
	case "~":
		return strings.Contains(text, w[2])
	}
	return true
}

// countedBy and summed are the answers of countbyif and sumif.
func countedBy(rows []seen, col string, w [3]string) string {
	n := map[string]int{}
	for _, v := range rows {
		if v.matches(w) {
			text, _ := v.cell(col)
			n[text]++
		}
	}
	var b strings.Builder
	out := csv.NewWriter(&b)
	for key, n := range n {
		out.Write([]string{key, fmt.Sprint(n)})
	}
	out.Flush()
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return "key,n\n" + strings.Join(lines, "")
}

func summed(rows []seen, col string, w [3]string) string {
	n, sum, least, most := 0, 0.0, math.Inf(1), math.Inf(-1)
	for _, v := range rows {
		if v.matches(w) {
			_, x := v.cell(col)
			n, sum, least, most = n+1, sum+x, min(least, x), max(most, x) // exact: integers and eighths
		}
	}
	if n == 0 {
		return "n,sum,min,max\n0,,,\n"
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	return fmt.Sprintf("n,sum,min,max\n%d,%s,%s,%s\n", n, number(sum), number(least), number(most))
}

// Count, countby, sum and those with a condition answer what is counted and added up here.
func TestReadyOnColumns(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	r := rand.New(rand.NewPCG(3, 15))
	var rows []seen
	text := "name,level,size,score,ok\n"
	for range 4000 {
		v := seen{fmt.Sprintf("n %d\"", r.IntN(30)), r.IntN(7) - 3, uint64(r.Uint32N(50)), float64(r.IntN(900)) / 8, r.IntN(2) == 0}
		rows = append(rows, v)
		text += fmt.Sprintf("\"%s\"\",%d,%d,%g,%v\n", v.name, v.level, v.size, v.score, v.ok)
	}
	load := func(name string, o dataset.Options) *cluster.Table {
		o.Format = dataset.CSV
		if _, err := c.Load(t.Context(), LoadSpec{Name: name, Input: dataset.NewText(name, []byte(text)), Options: o}, nil); err != nil {
			t.Fatal(err)
		}
		table, err := c.Table(t.Context(), name, "r")
		if err != nil || table.Kind != cluster.Columns {
			t.Fatal(table, err)
		}
		return table
	}
	tables := []*cluster.Table{load("given", dataset.Options{Header: true, Schema: parseSchema(t, "name:str,level:i16,size:u64,score:f64,ok:bool")}),
		load("inferred", dataset.Options{ColumnTypes: column.Schema{{Name: "size", Type: column.Type{ID: column.U64}}}})}
	conditions := [][3]string{{"level", "any", "x"}, {"level", "", ""}, {"size", ">=", "40"}, {"ok", "eq", "true"}, {"ok", "!=", "1"}, {"name", "prefix", "n 1"},
		{"name", "~", `7"`}, {"name", "=", `n 3"`}, {"name", "lt", "n 2"}, {"score", "gt", "51.5"}, {"score", "le", "+1e1"}, {"level", "==", "-2"}, {"level", "eq", "-002"}, {"size", "lt", "010"}, {"size", "le", "+08"}, {"level", "gt", "9"}}
	if testing.Short() { // the race detector makes each call slow
		conditions = [][3]string{conditions[0], conditions[3], conditions[len(conditions)-1]}
	}
	for i, w := range conditions {
		table := tables[i%len(tables)]
		is := func(want, name string, args ...string) {
			t.Helper()
			given := map[string]string{"op": w[1], "value": w[2]}
			for i := 0; i < len(args); i += 2 {
				given[args[i]] = args[i+1]
			}
			if got := called(t, c, table, name, given); got != want {
				t.Errorf("%s %v: %q, want %q", name, given, got, want)
			}
		}
		is(fmt.Sprintf("matched,scanned\n%d,4000\n", len(slices.DeleteFunc(slices.Clone(rows), func(v seen) bool { return !v.matches(w) }))), "count", "column", w[0])
		for _, col := range []string{"name", "level", "size", "ok"} {
			is(countedBy(rows, col, w), "countbyif", "column", col, "where", w[0])
		}
		for _, col := range []string{"level", "size", "score"} {
			is(summed(rows, col, w), "sumif", "column", col, "where", w[0])
		}
	}
	for _, table := range tables {
		for _, col := range []string{"name", "level", "size", "ok"} {
			if got, want := called(t, c, table, "countby", map[string]string{"column": col}), countedBy(rows, col, [3]string{"name", "any"}); got != want {
				t.Errorf("countby %s: %q, want %q", col, got, want)
			}
		}
		for _, col := range []string{"level", "size", "score"} {
			if got, want := called(t, c, table, "sum", map[string]string{"column": col}), summed(rows, col, [3]string{"name", "any"}); got != want {
				t.Errorf("sum of %s: %q, want %q", col, got, want)
			}
		}
	}
	readyRefused(t, c, tables[1])
}

// readyRefused is what a call of such a function may not be, with what mends it.
func readyRefused(t *testing.T, c *Client, cols *cluster.Table) {
	for _, w := range []struct {
		name string
		args map[string]string
		says string
	}{
		{"sum", map[string]string{"column": "sise"}, `the dataset has no column "sise"; did you mean "size"?`},
		{"sum", map[string]string{"column": "name"}, "--agg 'n=count(col(\"name\"))"},
		{"sum", nil, "no value for column"},
		{"sum", map[string]string{"column": "size", "cloumn": "size"}, `did you mean "column"?`},
		{"count", map[string]string{"column": "size", "op": "bogus"}, `"bogus" is none of any, eq`},
		{"count", map[string]string{"column": "size", "op": "eq", "value": "1 || true"}, `"1 || true" is no value of column size, which is u64`},
		{"count", map[string]string{"column": "ok", "op": "eq", "value": "perhaps"}, `"perhaps" is no value of column ok, which is bool`},
		{"countbyif", map[string]string{"column": "size", "where": "size"}, "no value for op"},
	} {
		img, err := xrdma.Lookup(w.name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = invoke.Run(t.Context(), c.Runtime(), invoke.Request{Image: img, Table: cols, Args: w.args})
		if err == nil || !strings.Contains(err.Error(), w.says) {
			t.Errorf("%s %v: %v, want %q", w.name, w.args, err, w.says)
		}
	}
	img, err := xrdma.Lookup("sum")
	if err != nil {
		t.Fatal(err)
	}
	element := uint32(0)
	for says, r := range map[string]invoke.Request{
		"not a payload":              {Payload: make([]byte, 16)},
		"leave Element out":          {Args: map[string]string{"column": "size"}, Element: &element},
		"form bitcode was asked for": {Args: map[string]string{"column": "size"}, Form: forms.Bitcode},
	} {
		r.Image, r.Table = img, cols
		if _, err := invoke.Run(t.Context(), c.Runtime(), r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if img, err = xrdma.Lookup("degrees"); err != nil {
		t.Fatal(err)
	}
	if _, err := invoke.Run(t.Context(), c.Runtime(), invoke.Request{Image: img, Table: cols}); !errors.Is(err, invoke.ErrRequest) || !strings.Contains(err.Error(), "holds columns") {
		t.Error(err)
	}
}
