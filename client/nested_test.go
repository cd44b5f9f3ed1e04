package client

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// nestedFiles writes a table of lists, structs and maps in the ways that Arrow and Parquet files have them.
const nestedFiles = `
import sys, datetime, pyarrow as pa, pyarrow.parquet as pq
n = 1000
at = [None if i % 7 == 0 else {'x': i if i % 3 else None, 'when': datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=i)} for i in range(n)]
t = pa.table({
    'user id': pa.array(range(n), pa.int64()),
    'tags': pa.array([None if i % 5 == 0 else ['t%d' % (i % 9), None][:i % 3] for i in range(n)], pa.list_(pa.string())),
    'large': pa.array([list(range(i % 4)) for i in range(n)], pa.large_list(pa.uint32())),
    'pair': pa.array([None if i % 11 == 0 else [i, -i] for i in range(n)], pa.list_(pa.float64(), 2)),
    'at': pa.array(at, pa.struct([('x', pa.int32()), ('when', pa.timestamp('us', 'Europe/Berlin'))])),
    'map': pa.array([None if i % 4 == 0 else [('k%d' % k, k) for k in range(i % 3)] for i in range(n)], pa.map_(pa.string(), pa.int16())),
    'deep': pa.array([None if i % 6 == 0 else [[{'a': [b'x' * (i % 3)], 'b': None}], None, []][:i % 4] for i in range(n)],
        pa.list_(pa.list_(pa.struct([('a', pa.list_(pa.binary())), ('b', pa.bool_())])))),
})
pq.write_table(t, sys.argv[1] + '/1.parquet', row_group_size=300)
pq.write_table(t, sys.argv[1] + '/2.parquet', data_page_version='2.0', compression='zstd', data_page_size=200, use_compliant_nested_type=False)
with pa.OSFile(sys.argv[1] + '/3.arrow', 'wb') as f, pa.ipc.new_file(f, t.schema) as w:
    w.write_table(t, max_chunksize=170)
`

// nestedSame compares what comes back with that table.
const nestedSame = `
import sys, pyarrow as pa, pyarrow.parquet as pq
want = pq.read_table(sys.argv[1] + '/1.parquet')
for name, got in (('arrow', pa.ipc.open_stream(open(sys.argv[1] + '/out.arrow', 'rb')).read_all()), ('parquet', pq.read_table(sys.argv[1] + '/out.parquet'))):
    got.validate(full=True)
    print(got.schema.field('at').type, got.schema.field('map').type)
    for c in want.column_names:
        a, b = got[c].to_pylist(), want[c].to_pylist()
        if c == 'map':
            a = [None if r is None else [(e['key'], e['value']) for e in r] for r in a]
        assert a == b, '%s: %s: %s, want %s' % (name, c, [(x, y) for x, y in zip(a, b) if x != y][:3], len(b))
`

// Lists, structs and maps go to two nodes and come back as pyarrow has them, from Parquet of either page version and Arrow, as Parquet and Arrow.
func TestNested(t *testing.T) {
	dir := t.TempDir()
	script(t, nestedFiles, nil, dir)
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	for _, name := range []string{"1.parquet", "2.parquet", "3.arrow"} {
		in, err := dataset.OpenFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		format, _, _ := dataset.FormatOf(name)
		report, err := c.Load(t.Context(), LoadSpec{Name: "t", Replace: true, Input: in, Options: dataset.Options{Format: format}}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s := report.Table.Columns.List(); s != "user id:i64,tags:list<utf8>,large:list<u32>,pair:list<f64>,at:struct<x:i32,when:timestamp[us, Europe/Berlin]>,"+
			"map:list<struct<key:utf8,value:i16>>,deep:list<list<struct<a:list<binary>,b:bool>>>" {
			t.Errorf("%s: %s", name, s)
		}
		if len(report.Columns) != 7 || report.Columns[1].Nulls != 200 || report.Columns[1].Bytes == 0 || report.Columns[1].Min != "" {
			t.Errorf("%s: %+v", name, report.Columns)
		}
		r, err := c.Reader(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []batch.Format{batch.Arrow, batch.Parquet} {
			var out bytes.Buffer
			if err := r.WriteBatches(t.Context(), ReadOptions{}, format, &out); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "out."+string(format)), out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		script(t, nestedSame, nil, dir)
	}
	table, err := c.Table(t.Context(), "t", "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []query.Query{{}, {Where: `tags == "x"`}, {Group: []string{"at"}, Agg: []string{"count()"}}, {Agg: []string{"count(tags)"}}, {Select: []string{"user id"}, Where: "isnull(large)"}} {
		if _, err := invoke.Query(t.Context(), c.Runtime(), table, q); err == nil || !strings.Contains(err.Error(), "which queries do not read: name the other columns (--select); wherry mem get gives it") {
			t.Errorf("%+v: %v", q, err)
		}
	}
	f, err := invoke.Query(t.Context(), c.Runtime(), table, query.Query{Where: `col("user id") >= 990`, Agg: []string{"n=count()"}})
	if err != nil || f.Rows != 1 {
		t.Errorf("beside lists: %v", err)
	}
	spec := LoadSpec{Name: "u", Input: dataset.NewText("x.ndjson", []byte(`{"a":[1]}`)), Options: dataset.Options{Format: dataset.NDJSON, Spread: dataset.Spread{Key: "a"}}}
	if _, err := c.Load(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), `the key "a" is list<i64>: a key is one value`) {
		t.Error(err)
	}
	if _, err := c.Load(t.Context(), LoadSpec{Name: "u", Input: spec.Input, Options: dataset.Options{Format: dataset.NDJSON}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, err := range All[struct {
		A string `wherry:"a"`
	}](t.Context(), c, From("u")) {
		if err == nil || !strings.Contains(err.Error(), "a column of type list<i64> does not go into a string") {
			t.Error(err)
		}
		break
	}
}
