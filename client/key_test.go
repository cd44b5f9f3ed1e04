package client

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// keyTypes are those of keyedCSV: a column of each kind that can be a key.
const keyTypes = `user id:i16,big:u64,name:utf8,day:date32,when:timestamp[ms, Europe/Berlin],price:decimal128(9, 2),paid:bool,n:i64`

// keyedCSV has rows with few keys, some of them missing.
func keyedCSV(from, to int) string {
	var b strings.Builder
	b.WriteString("user id,big,name,day,when,price,paid,n\n")
	for i := from; i < to; i++ {
		user, name := fmt.Sprint(i%11-5), fmt.Sprintf("name %d", i%7)
		if i%11 == 10 {
			user, name = "", ""
		}
		fmt.Fprintf(&b, "%s,%d,%s,2026-03-%02d,2026-03-01T12:00:%02dZ,%d.50,%v,%d\n", user, uint64(1)<<63+uint64(i%9), name, 1+i%5, i%13, i%6-3, i%2 == 0, i)
	}
	return b.String()
}

func keyed(t testing.TB, name, key, data string) LoadSpec {
	t.Helper()
	types, err := column.ParseList(keyTypes)
	if err != nil {
		t.Fatal(err)
	}
	spec := csvColumns(name, data)
	spec.Options.ColumnTypes, spec.Options.Spread.Key = types, key
	return spec
}

// found is a query's answer as CSV, its lines in order.
func found(t testing.TB, c *Client, name string, q query.Query) (string, invoke.Explanation) {
	t.Helper()
	table, err := c.Table(t.Context(), name, "r")
	if err != nil {
		t.Fatal(err)
	}
	f, err := invoke.Query(t.Context(), c.Runtime(), table, q)
	if err != nil {
		t.Fatalf("%s: %+v: %v", name, q, err)
	}
	var out bytes.Buffer
	if err := f.Write(&out, batch.CSV); err != nil {
		t.Fatal(err)
	}
	return sortedLines(out.String()), f.Explanation
}

// elementsOf says on which elements each value of a column lies.
func elementsOf(t testing.TB, c *Client, name, column string) map[string][]string {
	t.Helper()
	r, err := c.Reader(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	at := r.Table.Columns.Index(column)
	out := map[string][]string{}
	for _, s := range r.Table.Shards {
		for rec, err := range r.Batches(t.Context(), s.FirstRow, s.Rows) {
			if err != nil {
				t.Fatal(err)
			}
			for row := range int(rec.NumRows()) {
				v := "missing"
				if !rec.Column(at).IsNull(row) {
					v = batch.Text(r.Table.Columns[at].Type, rec.Column(at), row)
				}
				if !slices.Contains(out[v], s.Element) {
					out[v] = append(out[v], s.Element)
				}
			}
		}
	}
	return out
}

// Rows lie by the hash of a key, of any type that can be one: equal keys on one node, also those that are added later. A question for a key asks
// its node only, and has the answer that it has in ranges of rows.
func TestKey(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2", "n3")
		c := b.connect(t, tokenOwner)
		if _, err := c.Load(t.Context(), keyed(t, "plain", "", keyedCSV(0, 3000)), nil); err != nil {
			t.Fatal(err)
		}
		for key, where := range map[string][]string{
			"user id": {`col("user id") == -4`, `3 == col("user id") && n > 100`, `col("user id") == 99`, `isnull(col("user id"))`},
			"big":     {`big == 9223372036854775811`},
			"name":    {`name == "name 3"`, `(name == "name 3" || name == "name 5") && paid`},
			"day":     {`day == "2026-03-04"`},
			"when":    {`when == "2026-03-01T13:00:04+01:00"`, `when == "2026-03-01 13:00:04"`},
			"price":   {`price == -1.5`, `price == 1.50`},
			"paid":    {`paid == true`},
		} {
			spec := keyed(t, "by", key, keyedCSV(0, 2000))
			spec.Replace = true
			if _, err := c.Load(t.Context(), spec, nil); err != nil {
				t.Fatal(err)
			}
			spec = csvColumns("by", keyedCSV(2000, 3000))
			spec.Append = true
			report, err := c.Load(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s := report.Table.Sharding; s.Key != key || s.Kind != cluster.Hash || report.Table.Rows != 3000 {
				t.Fatalf("%+v", report.Table)
			}
			owners := elementsOf(t, c, "by", key)
			for v, on := range owners {
				if len(on) != 1 {
					t.Errorf("%s: key %q is on %v", key, v, on)
				}
			}
			if d, err := c.Stat(t.Context(), "by"); err != nil || d.Table.Sharding.Key != key {
				t.Errorf("%v, %v", d, err)
			}
			for _, w := range where {
				for _, q := range []query.Query{{Where: w}, {Where: w, Agg: []string{"c=count()", "sum(n)"}}, {Where: w, Group: []string{"name"}, Agg: []string{"max(n)"}, Order: []string{"name"}, Limit: 2}} {
					want, _ := found(t, c, "plain", q)
					got, ex := found(t, c, "by", q)
					if got != want {
						t.Errorf("%s: %+v: %s\nwant %s", key, q, got, want)
					}
					if !strings.HasPrefix(ex.Plan[0], "client: ask ") || ex.RowsRead == 3000 {
						t.Errorf("%s: %+v: asked all: %+v", key, q, ex)
					}
				}
			}
		}
	})
}

// Conditions that leave rows of all nodes open ask all.
func TestKeyAsksAll(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	if _, err := c.Load(t.Context(), keyed(t, "by", "user id", keyedCSV(0, 500)), nil); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"", `col("user id") > 3`, `!(col("user id") == 3)`, `col("user id") == 3 || n > 400`, `col("user id") != 3`, `col("user id") + 0 == 3`, `n == 3`, `col("user id") == n`} {
		_, ex := found(t, c, "by", query.Query{Where: w, Agg: []string{"count()"}})
		if strings.HasPrefix(ex.Plan[0], "client: ask ") {
			t.Errorf("%q: %v", w, ex.Plan)
		}
	}
}

func TestKeyErrors(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	for name, key := range map[string]string{"by": "user id", "plain": ""} {
		if _, err := c.Load(t.Context(), keyed(t, name, key, keyedCSV(0, 50)), nil); err != nil {
			t.Fatal(err)
		}
	}
	load := func(name, key string, edit func(*LoadSpec)) error {
		spec := csvColumns(name, "n,f\n1,2.5\n")
		spec.Options.Spread.Key = key
		if edit != nil {
			edit(&spec)
		}
		_, err := c.Load(t.Context(), spec, nil)
		return err
	}
	adds := func(s *LoadSpec) { s.Append = true }
	for want, err := range map[string]error{
		`the key "m" is no column; did you mean "n"`: load("x", "m", nil),
		`the key "f" is f64: a float is no key`:      load("x", "f", nil),
		`in ranges of rows, not by the key "n"`:      load("plain", "n", adds),
		`lies by the key "user id", not "n"`:         load("by", "n", adds),
		`load the file here, without --at`: load("by", "", func(s *LoadSpec) {
			s.Append, s.Input, s.At = true, nil, []Source{{Node: "n1", Path: b.dir + "/x.csv"}}
		}),
		`by a key (--key COLUMN), not hash`: load("x", "", func(s *LoadSpec) { s.Options.Spread = dataset.Spread{Kind: cluster.Hash} }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

type visit struct {
	User int64 `wherry:"user id,key"`
	Page string
}

// A struct's tag names the key.
func TestKeyOfStruct(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	var rows []visit
	for i := range 200 {
		rows = append(rows, visit{int64(i % 20), fmt.Sprint("page ", i)})
	}
	report, err := LoadRows(t.Context(), c, "visits", slices.Values(rows))
	if err != nil {
		t.Fatal(err)
	}
	if report.Table.Sharding.Key != "user id" {
		t.Errorf("%+v", report.Table.Sharding)
	}
	for v, on := range elementsOf(t, c, "visits", "user id") {
		if len(on) != 1 {
			t.Errorf("key %q is on %v", v, on)
		}
	}
	n := 0
	for v, err := range All[visit](t.Context(), c, From("visits").Where(`col("user id") == 7`)) {
		if err != nil || v.User != 7 {
			t.Fatal(v, err)
		}
		n++
	}
	if n != 10 {
		t.Errorf("%d rows", n)
	}
	_, err = LoadRows(t.Context(), c, "x", slices.Values([]struct {
		A int `wherry:"a,u16,key"`
		B int `wherry:"b,key"`
	}{{}}))
	if err == nil || !strings.Contains(err.Error(), "both A and B are called its key") {
		t.Error(err)
	}
}
