package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
	"github.com/wherry-fabric/wherry/schema"
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
	if err := answer.Write(&b, schema.FormatCSV); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines[1:])
	return strings.Join(lines, "")
}

// On columns count, countby, sum and those with a condition answer what their code answers of the same values in rows of C structs.
func TestReadyOnColumns(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	r := rand.New(rand.NewPCG(3, 15))
	text := "name,level,size,score,ok\n"
	for range 4000 {
		text += fmt.Sprintf("\"n %d\"\"\",%d,%d,%g,%v\n", r.IntN(30), r.IntN(7)-3, r.Uint32N(50), float64(r.IntN(900))/8, r.IntN(2) == 0)
	}
	load := func(name string, o dataset.Options) *cluster.Table {
		o.Format = dataset.CSV
		if _, err := c.Load(t.Context(), LoadSpec{Name: name, Input: dataset.NewText(name, []byte(text)), Options: o}, nil); err != nil {
			t.Fatal(err)
		}
		table, err := c.Table(t.Context(), name, "r")
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	rows := load("rows", dataset.Options{Header: true, Schema: parseSchema(t, "name:str,level:i16,size:u64,score:f64,ok:bool")})
	cols := load("cols", dataset.Options{ColumnTypes: column.Schema{{Name: "size", Type: column.Type{ID: column.U64}}}})
	if rows.Kind != cluster.Records || cols.Kind != cluster.Columns {
		t.Fatal(rows.Kind, cols.Kind)
	}
	conditions := [][3]string{{"level", "any", "x"}, {"level", "", ""}, {"size", ">=", "40"}, {"ok", "eq", "true"}, {"ok", "!=", "1"}, {"name", "prefix", "n 1"},
		{"name", "~", `7"`}, {"name", "=", `n 3"`}, {"name", "lt", "n 2"}, {"score", "gt", "51.5"}, {"score", "le", "+1e1"}, {"level", "==", "-2"}, {"level", "eq", "-002"}, {"size", "lt", "010"}, {"size", "le", "+08"}, {"level", "gt", "9"}}
	if testing.Short() { // the race detector makes each call slow
		conditions = [][3]string{conditions[0], conditions[3], conditions[len(conditions)-1]}
	}
	for _, w := range conditions {
		args := map[string]string{"column": w[0], "op": w[1], "value": w[2]}
		if got, want := called(t, c, cols, "count", args), called(t, c, rows, "count", args); got != want {
			t.Errorf("count %v: %q, of rows %q", w, got, want)
		}
		for _, name := range []string{"countbyif", "sumif"} {
			for _, col := range []string{"name", "level", "size", "score"} {
				if name == "sumif" == (col == "name") || name == "countbyif" && col == "score" {
					continue // no code of records does that
				}
				args := map[string]string{"column": col, "where": w[0], "op": w[1], "value": w[2]}
				if w[0] == "level" && w[1] == "gt" && name == "sumif" { // of no rows: missing here, 0 and infinities there
					if got := called(t, c, cols, name, args); got != "n,sum,min,max\n0,,,\n" {
						t.Errorf("%s of no rows: %q", name, got)
					}
					continue
				}
				if got, want := called(t, c, cols, name, args), called(t, c, rows, name, args); got != want {
					t.Errorf("%s %v: %q, of rows %q", name, args, got, want)
				}
			}
		}
	}
	readyUnconditional(t, c, cols, rows)
	readyRefused(t, c, cols)
}

// readyUnconditional compares the functions that look at all rows.
func readyUnconditional(t *testing.T, c *Client, cols, rows *cluster.Table) {
	for _, col := range []string{"name", "level", "size"} {
		if got, want := called(t, c, cols, "countby", map[string]string{"column": col}), called(t, c, rows, "countby", map[string]string{"column": col}); got != want {
			t.Errorf("countby %s: %q, of rows %q", col, got, want)
		}
	}
	if got := called(t, c, cols, "countby", map[string]string{"column": "ok"}); !strings.HasPrefix(got, "key,n\nfalse,") { // of rows 0
		t.Errorf("countby ok: %q", got)
	}
	found, err := invoke.Query(patient(t), c.Runtime(), cols, query.Query{Agg: []string{"n=count(size)", "sum=sum(size)", "min=min(size)", "max=max(size)"}})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := found.Write(&want, "csv"); err != nil {
		t.Fatal(err)
	}
	if got := called(t, c, cols, "sum", map[string]string{"column": "size"}); got != want.String() {
		t.Errorf("sum: %q, wherry query says %q", got, want.String())
	}
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
