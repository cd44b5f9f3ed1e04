package client

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/column/expr"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// question is a query, and the same in SQL for DuckDB.
type question struct {
	Q   query.Query
	SQL string
}

var questions = []question{
	{query.Query{Agg: []string{"n=count()", "s=sum(ms)", "u=sum(u16)", "m=mean(i8)"}}, `select count(*), sum(ms), sum(u16), avg(i8) from t`},
	{query.Query{Where: "u16 >= 500 && !isnull(ms)", Group: []string{"level"}, Agg: []string{"n=count()", "count(ms)", "sum(ms)"}},
		`select level, count(*), count(ms), sum(ms) from t where u16 >= 500 and ms is not null group by level`},
	{query.Query{Group: []string{"user id", "ok"}, Agg: []string{"a=sum(i64(u32))", "b=min(when)", "c=max(note)", "stddev(ms)"}},
		`select "user id", ok, sum(u32), min("when"), max(note), stddev(ms) from t group by all`},
	{query.Query{Where: `col("user id") % 7 == 0 || level == "warn"`, Select: []string{"user id", "level", "x=ms * 2 + 1", "when", "day"}},
		`select "user id", level, ms * 2 + 1, "when", day from t where "user id" % 7 = 0 or level = 'warn'`},
	{query.Query{Where: `when < "2026-03-01T15:00:00+01:00"`, Agg: []string{"n=count()", "min(day)", "max(u64)", "min(f)"}},
		`select count(*), min(day), max(u64), min(f) from t where "when" < timestamptz '2026-03-01 15:00:00+01:00'`},
	{query.Query{Where: `hasprefix(note, "note 4") && contains(note, "7") && !(level == "info" && ok)`, Group: []string{"level"}, Agg: []string{"count()"}},
		`select level, count(*) from t where starts_with(note, 'note 4') and contains(note, '7') and not (level = 'info' and ok) group by level`},
	{query.Query{Group: []string{"level", "q=i64(u16) / 10000"}, Agg: []string{"n=count()"}, Order: []string{"-n", "level", "q"}, Limit: 7},
		`select level, u16 // 10000 as q, count(*) as n from t group by all order by n desc nulls last, level nulls last, q nulls last limit 7`},
	{query.Query{Where: "u16 % 13 == 5 || isnull(raw)"}, `select * from t where u16 % 13 = 5 or raw is null`},
	{query.Query{Group: []string{"price", "key"}, Agg: []string{"count()"}}, `select price, key, count(*) from t group by all`},
	{query.Query{Where: "i8 > 200", Agg: []string{"n=count()", "sum(ms)", "max(level)"}}, `select count(*), sum(ms), max(level) from t where i8 > 200`},
	{query.Query{Where: "i8 > 200", Group: []string{"level"}, Agg: []string{"n=count()"}}, `select level, count(*) from t where i8 > 200 group by level`},
	{query.Query{Where: "ms / f64(i8) > 3 && u64 > 18446744073709550000", Group: []string{"none"}, Agg: []string{"n=count()", "max(ok)"}},
		`select none, count(*), max(ok) from t where ms / i8 > 3 and u64 > 18446744073709550000 group by none`},
	{query.Query{Where: `i8 > 100 && u64 < 100 && u64 * 3 > 1 || u64 > 100 || u64 * 3 > 1`, Agg: []string{"n=count()"}}, `select count(*) from t where u64 > 100`},
	{query.Query{Where: "price >= -12.5 && price != 7", Group: []string{"level"}, Agg: []string{"a=sum(price)", "b=mean(price)", "c=min(price)", "d=max(price)", "e=stddev(f64(price))"}},
		`select level, sum(price), avg(price), min(price), max(price), stddev(price::double) from t where price >= -12.5 and price != 7 group by level`},
	{query.Query{Group: []string{"ok"}, Agg: []string{"distinct(level)", "distinct(i8)", "distinct(price)", "distinct(f)", "distinct(key)", "distinct(none)"}},
		`select ok, count(distinct level), count(distinct i8), count(distinct price), count(distinct f), count(distinct key), count(distinct none) from t group by ok`},
	{query.Query{Agg: []string{"min(raw)", "max(key)", "min(ok)", "min(at)", "max(local)", "distinct(note)"}}, `select min(raw), max(key), min(ok), min("at"), max("local"), count(distinct note) from t`},
	{query.Query{Group: []string{"i8"}, Agg: []string{"a=quantile(u16, 0.5)", "b=quantile(ms, 0.99)", "c=quantile(day, 0)"}},
		`select i8, quantile_disc(u16, 0.5), quantile_disc(ms, 0.99), quantile_disc(day, 0) from t group by i8`},
	{query.Query{Group: []string{"note"}, Agg: []string{"s=sum(price)", "m=max(when)"}, Order: []string{"-s", "note"}, Limit: 11},
		`select note, sum(price) as s, max("when") as m from t group by note order by s desc nulls last, note limit 11`},
	{query.Query{Select: []string{"note", "price", "key"}, Order: []string{"-price", "key", "-note"}, Limit: 9},
		`select note, price, key from t order by price desc nulls last, key, note desc limit 9`},
	{query.Query{Where: `isnull(level) || local >= "2026-03-01 12:00:04.9"`, Group: []string{"level"}},
		`select distinct level from t where level is null or local >= timestamp '2026-03-01 12:00:04.9'`},
}

// sameAnswers compares Arrow streams in a folder with what DuckDB says.
const sameAnswers = `
import sys, json, math, duckdb, pyarrow as pa
con = duckdb.connect()
con.execute("set TimeZone = 'Europe/Berlin'")
con.execute("create view t as select * from read_parquet('%s')" % sys.argv[1])
def key(row): return [(v is not None, str(type(v)) if v is None else '', v if v is not None else 0) for v in row]
def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-9)
    return a == b
for i, q in enumerate(json.load(sys.stdin)):
    with open('%s.%d.arrows' % (sys.argv[1], i), 'rb') as f:
        got = pa.ipc.open_stream(f).read_all()
    got.validate(full=True)
    got = [tuple(r.values()) for r in got.to_pylist()]
    want = con.execute(q['SQL']).to_arrow_table()
    want = want.rename_columns([str(i) for i in range(want.num_columns)])
    want = [tuple(r.values()) for r in want.to_pylist()]
    if not q['Q'].get('order'):
        got.sort(key=key); want.sort(key=key)
    assert len(got) == len(want), '%s: %d rows, want %d' % (q, len(got), len(want))
    for a, b in zip(got, want):
        assert all(same(x, y) for x, y in zip(a, b)), '%s: %s, want %s' % (q, a, b)
    print(len(got))
`

// Questions to columns on two nodes have the answers that DuckDB gives to the same file: nulls, zones, text, sums over chunks.
func TestQueryEqualsDuckDB(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c := b.connect(t, tokenOwner)
		path := loadParquet(t, b, c, "t")
		table, err := c.Table(t.Context(), "t", "r")
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range questions {
			found, err := invoke.Query(patient(t), c.Runtime(), table, q.Q)
			if err != nil {
				t.Fatalf("%+v: %v", q.Q, err)
			}
			out, err := os.Create(fmt.Sprintf("%s.%d.arrows", path, i))
			if err == nil {
				err = found.Write(out, batch.Arrow)
			}
			if err == nil {
				err = out.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		text, err := json.Marshal(questions)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Fields(script(t, sameAnswers, text, path)); len(lines) != len(questions) || lines[0] != "1" || lines[6] != "7" {
			t.Errorf("rows: %v", lines)
		}
	})
}

// A condition on a column whose chunks have bounds keeps the others from being read.
func TestQueryExplains(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	loadParquet(t, b, c, "t")
	table, err := c.Table(t.Context(), "t", "r")
	if err != nil {
		t.Fatal(err)
	}
	found, err := invoke.Query(patient(t), c.Runtime(), table, query.Query{Where: "u32 < 4294962398", Agg: []string{"n=count()"}}) // i > 4897
	if err != nil {
		t.Fatal(err)
	}
	e := found.Explanation
	if e.ChunksSkipped == 0 || e.ChunksRead == 0 || e.RowsRead >= 5000 || len(e.Pushed) != 1 || e.BytesMoved == 0 || found.Rows != 1 || e.Workers != 1 {
		t.Errorf("%+v", e)
	}
	for _, workers := range []int{2, 3, query.MaxWorkers} { // more of them than a node has chunks: together they read the same
		shared, err := invoke.Query(patient(t), c.Runtime(), table, query.Query{Where: "u32 < 4294962398", Agg: []string{"n=count()"}, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		if got := shared.Explanation; got.Stats != e.Stats || got.Workers != workers || !slices.ContainsFunc(got.Plan, func(s string) bool { return strings.Contains(s, fmt.Sprint("among ", workers, " workers")) }) {
			t.Errorf("%d workers: %+v, one %+v", workers, got, e)
		}
	}
}

func TestQueryErrors(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	loadParquet(t, b, c, "t")
	path := filepath.Join(b.dir, "rows.csv")
	if err := os.WriteFile(path, []byte(peopleHeader+people(5)), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := dataset.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := csvOptions(t, dataset.Spread{})
	packed.Schema, packed.Packed = parseSchema(t, "id:u32,score:f64"), true
	if _, err := c.Load(t.Context(), LoadSpec{Name: "rows", Input: in, Options: packed}, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("text\n"+strings.Repeat(strings.Repeat("x", 1000<<10)+"\n", 140)), 0o600); err != nil {
		t.Fatal(err)
	}
	if in, err = dataset.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context(), LoadSpec{Name: "long", Input: in, Options: dataset.Options{Format: dataset.CSV}}, nil); err != nil {
		t.Fatal(err)
	}
	ask := func(name string, q query.Query) error {
		table, err := c.Table(t.Context(), name, "r")
		if err != nil {
			t.Fatal(err)
		}
		_, err = invoke.Query(patient(t), c.Runtime(), table, q)
		return err
	}
	for want, err := range map[string]error{
		`there is no column "levle"; did you mean "level"?`: ask("t", query.Query{Where: `levle == "x"`}),
		`there is no aggregate "summ"`:                      ask("t", query.Query{Agg: []string{"summ(ms)"}}),
		"an integer overflows: compute with f64":            ask("t", query.Query{Where: "u64 * 3 > 1", Agg: []string{"count()"}}),
		"query t: in --where u64 * 3 > 1: ":                 ask("t", query.Query{Where: "u64 * 3 > 1", Agg: []string{"count()"}}),
		"sum(u64) is ":                                      ask("t", query.Query{Agg: []string{"sum(u64)"}}),
		"nothing that comes out is called":                  ask("t", query.Query{Agg: []string{"n=count()"}, Order: []string{"m"}}),
		"both called \"level\"":                             ask("t", query.Query{Select: []string{"level", "level"}}),
		"raw\" is of type binary":                           ask("t", query.Query{Where: "raw > 1"}),
		"of which there are count, min":                     ask("t", query.Query{Agg: []string{"sum(raw)"}}),
		"quantile does not take decimal128":                 ask("t", query.Query{Agg: []string{"quantile(price, 0.5)"}}),
		"the rows of rows are C structs of 2 fields":        ask("rows", query.Query{}),
		"sum computes with numbers":                         ask("t", query.Query{Agg: []string{"sum(level)"}}),
		"a condition is true or false":                      ask("t", query.Query{Where: "ms"}),
		"17 workers: a node's chunks are shared by 1 to 16": ask("t", query.Query{Workers: 17}),
		"or read all of them (mem get)":                     ask("long", query.Query{}),
		"sum() of what?":                                    ask("t", query.Query{Agg: []string{"sum()"}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := ask("t", query.Query{Where: "x"}); !strings.Contains(err.Error(), expr.ErrExpr.Error()) {
		t.Error(err)
	}
}
