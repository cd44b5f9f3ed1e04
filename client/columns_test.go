package client

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
)

// python finds the Python with pyarrow and DuckDB that scripts/test-tools.sh installs.
func python(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "wherry-test", "python-tables-1", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("there is no Python with pyarrow: %v: run scripts/test-tools.sh", err)
		}
		t.Skipf("there is no Python with pyarrow: %v: run scripts/test-tools.sh", err)
	}
	return path
}

// script runs a script of Python, with input on its standard input, and returns what it prints.
func script(t testing.TB, code string, input []byte, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*moment)
	defer cancel()
	// Without an end of its own Python takes down Arrow's threads, which fails at times: "terminate called without an active exception".
	code += "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"
	cmd := exec.CommandContext(ctx, python(t), append([]string{"-c", code}, args...)...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return out.String()
}

// writeParquet makes a file with all types that can be loaded, some values missing, in small row groups.
const writeParquet = `
import sys, datetime, decimal, pyarrow as pa, pyarrow.parquet as pq
n = 5000
def some(f): return [None if i % 11 == 3 else f(i) for i in range(n)]
t0 = datetime.datetime(2026, 3, 1, 12)
t = pa.table({
  'user id': pa.array([i % 700 - 5 for i in range(n)], pa.int64()),
  'level': pa.array(some(lambda i: ['info', 'warn', 'error', 'äußerst'][i % 4]), pa.string()),
  'when': pa.array(some(lambda i: t0 + datetime.timedelta(seconds=i * 37)), pa.timestamp('us', 'Europe/Berlin')),
  'local': pa.array([t0 + datetime.timedelta(milliseconds=i) for i in range(n)], pa.timestamp('ms')),
  'ms': pa.array(some(lambda i: i / 8), pa.float64()),
  'f': pa.array(some(lambda i: i / 4), pa.float32()),
  'ok': pa.array(some(lambda i: i % 3 == 0), pa.bool_()),
  'i8': pa.array(some(lambda i: i % 256 - 128), pa.int8()),
  'u16': pa.array(some(lambda i: i * 13 % 65536), pa.uint16()),
  'u32': pa.array(some(lambda i: 4294967295 - i), pa.uint32()),
  'u64': pa.array(some(lambda i: 18446744073709551615 - i), pa.uint64()),
  'day': pa.array(some(lambda i: datetime.date(2026, 1, 1) + datetime.timedelta(days=i % 99)), pa.date32()),
  'at': pa.array(some(lambda i: datetime.time(i % 24, i % 60, 1, i)), pa.time64('us')),
  'price': pa.array(some(lambda i: decimal.Decimal(i * 7 - 9000).scaleb(-2)), pa.decimal128(12, 2)),
  'note': pa.array(['note %d' % i for i in range(n)], pa.string()),
  'raw': pa.array(some(lambda i: bytes([i % 256, 0])), pa.binary()),
  'key': pa.array([bytes([i % 256] * 5) for i in range(n)], pa.binary(5)),
  'id': pa.ExtensionArray.from_storage(pa.uuid(), pa.array(some(lambda i: i.to_bytes(16, 'big')), pa.binary(16))),
  'none': pa.array([None] * n, pa.string()),
})
pq.write_table(t, sys.argv[1], row_group_size=1900)
`

// sameTable compares the stream on standard input with the file.
const sameTable = `
import sys, pyarrow as pa, pyarrow.parquet as pq
got = pa.ipc.open_stream(sys.stdin.buffer).read_all()
got.validate(full=True)
want = pq.read_table(sys.argv[1]).slice(int(sys.argv[2]), int(sys.argv[3]))
want = want.replace_schema_metadata(None)
assert got.schema.equals(want.schema), '%s\nwant\n%s' % (got.schema, want.schema)
for c in want.column_names:
    assert got[c].equals(want[c]), c
print(got.num_rows)
`

func loadParquet(t *testing.T, b *bench, c *Client, name string) string {
	t.Helper()
	path := filepath.Join(b.dir, name+".parquet")
	script(t, writeParquet, nil, path)
	in, err := dataset.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	report, err := c.Load(t.Context(), LoadSpec{Name: name, Input: in, Options: dataset.Options{Format: dataset.Parquet}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Table.Kind != cluster.Columns || report.Table.Rows != 5000 || report.Table.Shards[1].Rows != 2500 {
		t.Errorf("%+v", report.Table)
	}
	return path
}

// A Parquet file goes to two nodes and comes back as an Arrow stream that pyarrow reads; both sides' tables are the same.
func TestParquetToArrow(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c := b.connect(t, tokenOwner)
		path := loadParquet(t, b, c, "logs")
		for _, o := range []ReadOptions{{}, {First: 2400, Count: 201}} {
			var out bytes.Buffer
			r, err := c.Reader(t.Context(), "logs")
			if err == nil {
				err = r.WriteBatches(t.Context(), o, batch.Arrow, &out)
			}
			if err != nil {
				t.Fatal(err)
			}
			count := "5000"
			if o.Count > 0 {
				count = "201"
			}
			first := "0"
			if o.First > 0 {
				first = "2400"
			}
			if got := script(t, sameTable, out.Bytes(), path, first, count); got != count+"\n" {
				t.Errorf("%s rows", got)
			}
		}
		// A node reads a file of its own too.
		report, err := c.Load(t.Context(), LoadSpec{Name: "own", At: []Source{{Node: "n2", Path: path}, {Node: "n1", Path: path}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if report.Table.Rows != 10000 || report.Table.Shards[0].Element != "n2" || len(report.Table.Columns) != 19 || report.Table.Columns[17].Type != column.Extended(column.UUID) {
			t.Errorf("%+v", report.Table)
		}
	})
}

func TestParquetErrors(t *testing.T) {
	b := newBench(t, "shm", "n1")
	c := b.connect(t, tokenOwner)
	path := filepath.Join(b.dir, "x.parquet")
	script(t, `
import sys, pyarrow as pa, pyarrow.parquet as pq
t = pa.table({'s': pa.array([b'a', b'\xff'], pa.binary())})
f = pa.schema([pa.field('s', pa.string())])
pq.write_table(pa.Table.from_arrays([pa.Array.from_buffers(pa.string(), 2, t['s'].chunk(0).buffers())], schema=f), sys.argv[1] + '.utf8.parquet')
pq.write_table(pa.table({'a': list(range(1000))}), sys.argv[1] + '.cut.parquet')
`, nil, path)
	cut, err := os.ReadFile(path + ".cut.parquet")
	if err == nil {
		err = os.WriteFile(path+".cut.parquet", cut[:len(cut)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"utf8": `row group 0, column "s": row 1 of the file: "\xff" is not UTF-8`,
		"cut":  "it is no Parquet file, or is cut off",
	} {
		in, err := dataset.OpenFile(path + "." + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Load(t.Context(), LoadSpec{Name: "x", Input: in, Options: dataset.Options{Format: dataset.Parquet}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name+".parquet") {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if lent := b.lent(); lent != 0 {
		t.Errorf("%d bytes are lent to loads that failed", lent)
	}
}

// sameFile compares two Parquet files, types, zones and missing values included.
const sameFile = `
import sys, pyarrow.parquet as pq
got, want = pq.read_table(sys.argv[1]), pq.read_table(sys.argv[2]).replace_schema_metadata(None)
got = got.replace_schema_metadata(None)
got.validate(full=True)
assert got.schema.equals(want.schema), '%s\nwant\n%s' % (got.schema, want.schema)
for c in want.column_names:
    assert got[c].equals(want[c]), c
print(got.num_rows, pq.ParquetFile(sys.argv[1]).num_row_groups)
`

// What was loaded from a Parquet file is written as one again, and is the same.
func TestParquetToParquet(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	path := loadParquet(t, b, c, "logs")
	r, err := c.Reader(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(path + ".out")
	if err == nil {
		err = r.WriteBatches(t.Context(), ReadOptions{}, batch.Parquet, out)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := script(t, sameFile, nil, out.Name(), path); !strings.HasPrefix(got, "5000 ") {
		t.Error(got)
	}
}
