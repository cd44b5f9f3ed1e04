package invoke

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/column/expr"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/query"
	"github.com/wherry-fabric/wherry/schema"
)

// Numbers are decimal in arguments, as they are for rows of C structs: in an expression, a zero in front would make them octal.
func TestReadyNumbers(t *testing.T) {
	img, err := xrdma.Lookup("count")
	if err != nil {
		t.Fatal(err)
	}
	table := &cluster.Table{Name: "cols", Kind: cluster.Columns, Columns: column.Schema{{Name: "i", Type: column.Type{ID: column.I16}},
		{Name: "f", Type: column.Type{ID: column.F64}}, {Name: "d", Type: column.Type{ID: column.Decimal128, Precision: 9, Scale: 2}}}}
	for _, c := range [][3]string{
		{"i", "010", "10"}, {"i", "+010", "10"}, {"i", "-010", "-10"}, {"i", "08", "8"}, {"i", "0", "0"}, {"i", "000", "0"}, {"i", "-0", "-0"},
		{"f", "010", "10"}, {"f", "00.5", "0.5"}, {"f", "-.5", "-.5"}, {"f", "0e3", "0e3"}, {"f", "100", "100"}, {"d", "010", "10"}, {"d", "-00.25", "-0.25"},
	} {
		r := Request{Image: img, Table: table, Args: map[string]string{"column": c[0], "op": "eq", "value": c[1]}}
		q, err := r.Query()
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		got, err := expr.Condition(q.Where, table.Columns)
		if err != nil {
			t.Errorf("%v: %s: %v", c, q.Where, err)
			continue
		}
		if want, err := expr.Condition(c[0]+" == "+c[2], table.Columns); err != nil || got.String() != want.String() {
			t.Errorf("%v: %s is %v, want %v (%v)", c, q.Where, got, want, err)
		}
	}
}

// What is named after a query is asked of columns only, and what to do is said where there are none.
func TestReadyNeedsColumns(t *testing.T) {
	fields := func(text string) schema.Schema {
		s, err := schema.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return *s
	}
	shards := []cluster.Shard{{Windows: make([]cluster.Window, cluster.FixedWindows)}}
	for _, name := range []string{"count", "countby", "countbyif", "sum", "sumif"} {
		img, err := xrdma.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		args := map[string]string{"column": "a"}
		if strings.HasSuffix(name, "if") {
			args["where"], args["op"] = "a", "any"
		}
		for _, c := range []struct {
			table *cluster.Table
			says  string // "": it is taken
		}{
			{&cluster.Table{Name: "log", Kind: cluster.Columns, Columns: column.Schema{{Name: "a", Type: column.Type{ID: column.U64}}}}, ""},
			{&cluster.Table{Name: "log", Kind: cluster.Records, Schema: fields("a:u64"), Shards: shards}, ""},
			{&cluster.Table{Name: "log", Kind: cluster.Records, Schema: fields("a:u64,n:u64"), Shards: shards}, "the rows of log are C structs of 2 fields, one column of bytes16: load the file without --packed"},
			{&cluster.Table{Name: "log", Kind: cluster.Records, Schema: fields("a:u64")}, "log is of kind records: load"},
			{&cluster.Table{Name: "web", Kind: cluster.CSR}, "a query reads columns; web is of kind csr"},
			{nil, "a node alone has no data: run it on a dataset (--on NAME)"},
		} {
			r := Request{Image: img, Table: c.table, Args: args}
			if _, err := r.Query(); !r.IsQuery() || (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s on %+v: %v, want %q", name, c.table, err, c.says)
			}
		}
	}
}

// Columns have no raw bytes; what is named instead is what a call's answer can be written as.
func TestReadyHasNoRawBytes(t *testing.T) {
	a := &Answer{Found: &Found{Columns: column.Schema{{Name: "n", Type: column.Type{ID: column.U64}}}}}
	for _, format := range []batch.Format{batch.CSV, batch.JSON, batch.NDJSON, batch.Table} {
		if err := a.Write(io.Discard, format); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	err := a.Write(io.Discard, batch.Raw)
	if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "use arrow, parquet, csv, json, ndjson or table") {
		t.Error(err)
	}
}

// TestReadyFlags: the query that an error suggests can be pasted into a shell, whatever the value has in it.
func TestReadyFlags(t *testing.T) {
	for _, value := range []string{"it's", "''", `a'b"c`, "plain"} {
		q := query.Query{Where: fmt.Sprintf("col(\"s\") == %q", value), Agg: []string{"n=count()"}}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `set --`+flags(q)+`; printf '%s\n' "$#" "$2"`).CombinedOutput()
		if want := "4\n" + q.Where + "\n"; err != nil || string(out) != want {
			t.Errorf("%s: the shell reads %q (%v), want %q", flags(q), out, err, want)
		}
	}
}
