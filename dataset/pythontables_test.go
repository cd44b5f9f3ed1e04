package dataset

import (
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	writer "github.com/wherry-fabric/wherry/dataset/batch"
)

// python runs a script in the Python with pyarrow and Polars that scripts/test-tools.sh installs.
func python(t testing.TB, code string, args ...string) {
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
	// Without an end of its own Python takes down Arrow's threads, which fails at times.
	code += "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"
	if out, err := exec.CommandContext(t.Context(), path, append([]string{"-c", code}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// tableFile loads a file, and is what is in it as NDJSON.
func tableFile(t *testing.T, format Format, path string) string {
	t.Helper()
	in, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := loadedAs(t, writer.NDJSON, 1, Options{Format: format}, in)
	if err != nil {
		t.Errorf("%s: %v", filepath.Base(path), err)
	}
	return text
}

// sameTables compares each file of a folder with the Arrow stream that its name's first word has, value by value.
func sameTables(t *testing.T, dir string, format Format, ending string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	sort.Strings(files)
	want := map[string]string{}
	for _, path := range files {
		table, _, _ := strings.Cut(filepath.Base(path), "-")
		if want[table] == "" {
			want[table] = tableFile(t, Arrow, filepath.Join(dir, table+".arrows"))
		}
		got := tableFile(t, format, path)
		if got == want[table] || got == "" {
			continue
		}
		lines, wanted := strings.Split(got, "\n"), strings.Split(want[table], "\n")
		for i := range min(len(lines), len(wanted)) {
			if lines[i] != wanted[i] {
				t.Errorf("%s: row %d of %d (want %d) is\n%.300s\nwant\n%.300s", filepath.Base(path), i, len(lines), len(wanted), lines[i], wanted[i])
				break
			}
		}
		if len(lines) != len(wanted) {
			t.Errorf("%s: %d rows, want %d", filepath.Base(path), len(lines), len(wanted))
		}
	}
}

// randomTables makes tables of all types, with runs of equal values and of missing ones that have any length.
const randomTables = `
import sys, random, datetime, decimal, itertools, pyarrow as pa, pyarrow.ipc, pyarrow.parquet as pq, polars as pl
dir, seed = sys.argv[1], int(sys.argv[2])
rnd = random.Random(seed)
def runs(n, value):
    out = []
    while len(out) < n:
        out += [value()] * rnd.choice([1, 1, 1, 2, 3, 5, 7, 9, 13, 31, 100])
    return out[:n]
t0 = datetime.datetime(2026, 3, 1, 12)
word = lambda: rnd.choice(['info', 'warn', 'übel', '']) if rnd.random() < .5 else ''.join(rnd.choices('abcdefgh', k=rnd.randrange(40)))
makers = {
    'ok': (pa.bool_(), lambda: rnd.random() < .5),
    'i8': (pa.int8(), lambda: rnd.randrange(-128, 128)),
    'i16': (pa.int16(), lambda: rnd.randrange(-300, 300)),
    'i32': (pa.int32(), lambda: rnd.randrange(-2**31, 2**31)),
    'i64': (pa.int64(), lambda: rnd.randrange(-2**63, 2**63)),
    'u8': (pa.uint8(), lambda: rnd.randrange(256)),
    'u16': (pa.uint16(), lambda: rnd.randrange(2**16)),
    'u32': (pa.uint32(), lambda: rnd.randrange(2**32)),
    'u64': (pa.uint64(), lambda: rnd.randrange(2**64)),
    'f32': (pa.float32(), lambda: float(rnd.randrange(1000)) / 8),
    'f64': (pa.float64(), rnd.random),
    'day': (pa.date32(), lambda: t0.date() + datetime.timedelta(days=rnd.randrange(-9999, 9999))),
    'time': (pa.timestamp('us', 'UTC'), lambda: t0 + datetime.timedelta(microseconds=rnd.randrange(10**15))),
    'price': (pa.decimal128(20, 3), lambda: decimal.Decimal(rnd.randrange(-10**9, 10**9)).scaleb(-3)),
    'text': (pa.string(), word),
    'raw': (pa.binary(), lambda: rnd.randbytes(rnd.randrange(9))),
    'oks': (pa.list_(pa.bool_()), lambda: [rnd.choice([True, True, False, None]) for _ in range(rnd.randrange(12))]),
    'words': (pa.list_(pa.string()), lambda: [word() for _ in range(rnd.randrange(4))]),
    'pair': (pa.struct([('on', pa.bool_()), ('n', pa.int32())]), lambda: {'on': rnd.random() < .5, 'n': rnd.randrange(9)}),
}
def table(n, some):
    cols, fields = [], []
    for name, (typ, make) in makers.items():
        value = make if some == 0 else (lambda: None if rnd.random() < some else make())
        cols.append(pa.array(runs(n, value), typ))
        fields.append(pa.field(name, typ, nullable=some > 0))
    return pa.table(cols, schema=pa.schema(fields))
# encodings of columns
ints, floats, texts = ['i32', 'i64'], ['f32', 'f64'], ['text', 'raw']
encodings = {
    'default': {},
    'plain': {'use_dictionary': False},
    'rle': {'use_dictionary': False, 'column_encoding': {'ok': 'RLE', 'pair.on': 'RLE', 'oks.list.element': 'RLE'}},
    'delta': {'use_dictionary': False, 'column_encoding': {**{c: 'DELTA_BINARY_PACKED' for c in ints}, **{c: 'BYTE_STREAM_SPLIT' for c in floats}, **{c: 'DELTA_BYTE_ARRAY' for c in texts}}},
    'length': {'use_dictionary': False, 'column_encoding': {c: 'DELTA_LENGTH_BYTE_ARRAY' for c in texts}},
}
for name, n, some in [('whole', 1501, 0), ('some', 2003, .3), ('few', 997, .97), ('none', 0, .5)]:
    t = table(n, some)
    with pa.ipc.new_stream(f'{dir}/{name}.arrows', t.schema) as w: w.write_table(t)
    for codec, version, (how, o) in itertools.product(['none', 'snappy', 'gzip', 'zstd', 'lz4'], ['1.0', '2.0'], encodings.items()):
        pq.write_table(t, f'{dir}/{name}-arrow-{codec}-{version[0]}-{how}.parquet', compression=codec, data_page_version=version,
            row_group_size=rnd.choice([333, 1000, 5000]), data_page_size=rnd.choice([700, 5000, 1 << 20]), write_page_checksum=rnd.random() < .5, **o)
    p = pl.from_arrow(t)
    with pa.ipc.new_stream(f'{dir}/polars_{name}.arrows', p.to_arrow().schema) as w: w.write_table(p.to_arrow())
    for codec in ['uncompressed', 'snappy', 'gzip', 'zstd', 'lz4']:
        for size in [700, None]:
            p.write_parquet(f'{dir}/polars_{name}-{codec}-{size}.parquet', compression=codec, data_page_size=size, row_group_size=rnd.choice([333, 1000, 5000]))
`

// Every value of tables that pyarrow and Polars write is read as it was written: in each codec, version of pages and encoding.
func TestParquetTables(t *testing.T) {
	dir := t.TempDir()
	python(t, randomTables, dir, "1")
	sameTables(t, dir, Parquet, ".parquet")
}

const arrowTables = `
for name, n, some in [('whole', 1501, 0), ('some', 2003, .3), ('none', 0, .5)]:
    t = table(n, some)
    t = t.append_column('cat', t['text'].dictionary_encode())
    with pa.ipc.new_stream(f'{dir}/{name}.arrows', t.schema) as w: w.write_table(t)
    for codec in [None, 'lz4', 'zstd']:
        with pa.ipc.new_file(f'{dir}/{name}-arrow-{codec}.arrow', t.schema, options=pa.ipc.IpcWriteOptions(compression=codec, unify_dictionaries=True)) as w: w.write_table(t, max_chunksize=700)
    p = pl.from_arrow(t)
    with pa.ipc.new_stream(f'{dir}/polars_{name}.arrows', p.to_arrow().schema) as w: w.write_table(p.to_arrow())
    for codec in ['uncompressed', 'lz4', 'zstd']:
        p.write_ipc(f'{dir}/polars_{name}-{codec}.arrow', compression=codec)
    for path in [f'{dir}/polars_{name}-zstd.arrow', f'{dir}/{name}-arrow-None.arrow']:
        for ending, codec in [('gz', 'gzip'), ('zst', 'zstd')]:
            with open(path, 'rb') as f, pa.output_stream(f'{path}.{ending}', compression=codec) as out: out.write(f.read())
`

// Arrow files are read by their footer: Polars writes no stream in front of it.
func TestArrowTables(t *testing.T) {
	dir := t.TempDir()
	makers, _, _ := strings.Cut(randomTables, "# encodings of columns")
	python(t, makers+arrowTables, dir, "2")
	sameTables(t, dir, Arrow, ".arrow")
	sameTables(t, dir, Arrow, ".arrow.gz")
	sameTables(t, dir, Arrow, ".arrow.zst")
	pipedTable(t, filepath.Join(dir, "polars_some-lz4.arrow"), filepath.Join(dir, "polars_some.arrows"))
	pipedTable(t, filepath.Join(dir, "polars_some-zstd.arrow.gz"), filepath.Join(dir, "polars_some.arrows"))
	unpackedTable(t, filepath.Join(dir, "polars_some-zstd.arrow.zst"))
}

// pipedTable compares a file on standard input with another one.
func pipedTable(t *testing.T, path, same string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spool, err := NewSpool(t.Context(), "standard input", f, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	if err := spool.Unpack(); err != nil {
		t.Fatal(err)
	}
	_, text, err := loadedAs(t, writer.NDJSON, 1, Options{Format: Arrow}, spool)
	if err != nil || text != tableFile(t, Arrow, same) {
		t.Errorf("%s, piped: %d bytes, %v", filepath.Base(path), len(text), err)
	}
}

// unpackedTable loads a file that needs a copy: it takes disk in the folder for temporary files, its rows go to all elements, and nothing is left.
func unpackedTable(t *testing.T, path string) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	in, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := openFiles(t)
	p, _, err := loadedAs(t, writer.NDJSON, 2, Options{Format: Arrow}, in)
	if err != nil || len(p.Parts[0]) == 0 || len(p.Parts[1]) == 0 {
		t.Fatalf("%+v: %v", p, err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 || openFiles(t) != open {
		t.Errorf("%v is left, %d files are open, and %d were: %v", left, openFiles(t), open, err)
	}
	t.Setenv("TMPDIR", filepath.Join(tmp, "none"))
	if _, err := loaded(t, Options{Format: Arrow}, in); err == nil || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
}

// openFiles is how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

const metadataTables = `
import sys, datetime, pyarrow as pa, pyarrow.ipc, pyarrow.parquet as pq, polars as pl
dir = sys.argv[1]
at, day = datetime.datetime(2026, 3, 1, 12), datetime.timedelta(1)
columns = {u: pa.array([1, None, -3], pa.duration(u)) for u in ['s', 'ms', 'us', 'ns']}
columns |= {f'at {u}': pa.array([at, None, at], pa.timestamp(u, 'Europe/Berlin')) for u in ['ms', 'us', 'ns']}
columns['local'] = pa.array([at, None, at], pa.timestamp('us'))
columns['n'] = pa.array([1, None, -3], pa.int64())
columns['list'] = pa.array([[1], None, [2, None]], pa.list_(pa.duration('us')))
columns['group'] = pa.array([{'x': 1}, None, {'x': None}], pa.struct([('x', pa.duration('ms'))]))
t = pa.table(columns)
p = pl.DataFrame({**{u: pl.Series([day, None, -day], dtype=pl.Duration(u)) for u in ['ms', 'us', 'ns']}, 'l': [[day], None, [None]], 's': [{'x': day}, {'x': None}, None],
    'at': pl.Series([at, None, at], dtype=pl.Datetime('us')).dt.replace_time_zone('Europe/Berlin')})
for name, t in [('arrow', t), ('polars', p.to_arrow())]:
    with pa.ipc.new_stream(f'{dir}/{name}.arrows', t.schema) as w: w.write_table(t)
    pq.write_table(t, f'{dir}/{name}-arrow.parquet')
p.write_parquet(f'{dir}/polars-own.parquet')
`

// What Parquet itself has no words for is read from the Arrow schema in a file's metadata.
func TestParquetArrowTypes(t *testing.T) {
	dir := t.TempDir()
	python(t, metadataTables, dir)
	sameTables(t, dir, Parquet, ".parquet")
	for _, name := range []string{"arrow-arrow.parquet", "polars-arrow.parquet", "polars-own.parquet"} {
		var types [2]string
		table, _, _ := strings.Cut(name, "-")
		for i, format := range []Format{Parquet, Arrow} {
			in, err := OpenFile(filepath.Join(dir, []string{name, table + ".arrows"}[i]))
			if err != nil {
				t.Fatal(err)
			}
			p, err := loaded(t, Options{Format: format}, in)
			if err != nil {
				t.Fatal(err)
			}
			types[i] = p.Columns.List()
		}
		if types[0] != types[1] {
			t.Errorf("%s has %s, want %s", name, types[0], types[1])
		}
	}
}

// Columns of type null, which pyarrow makes of values that are all missing, are text without values; date64 are dates.
func TestAllMissing(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import sys, pyarrow as pa, pyarrow.parquet as pq, datetime
dir = sys.argv[1]
day = datetime.date(1969, 12, 30)
t = pa.table({'n': [1, 2, 3], 'none': pa.nulls(3), 'day': pa.array([day, None, day], pa.date64()), 'list': pa.array([[None], None, [None, None]], pa.list_(pa.null())), 'at': pa.array([{'x': None, 'y': 5}] * 3, pa.struct([('x', pa.null()), ('y', pa.int64())]))})
with pa.ipc.new_stream(f'{dir}/x.arrows', t.schema) as w: w.write_table(t)
with pa.ipc.new_file(f'{dir}/x.arrow', t.schema) as w: w.write_table(t)
for version in ['1.0', '2.0']:
    for dictionary in [False, True]:
        pq.write_table(t, f'{dir}/x-{version[0]}-{dictionary}.parquet', data_page_version=version, use_dictionary=dictionary)
t = pa.table({'day': pa.Array.from_buffers(pa.date64(), 1, [None, pa.py_buffer((5).to_bytes(8, 'little'))])})
with pa.ipc.new_stream(f'{dir}/odd.arrows', t.schema) as w: w.write_table(t)
`, dir)
	const want = `{"n":1,"none":null,"day":"1969-12-30","list":[null],"at":{"x":null,"y":5}}` + "\n" +
		`{"n":2,"none":null,"day":null,"list":null,"at":{"x":null,"y":5}}` + "\n" +
		`{"n":3,"none":null,"day":"1969-12-30","list":[null,null],"at":{"x":null,"y":5}}` + "\n"
	for _, name := range []string{"x.arrows", "x.arrow", "x-1-False.parquet", "x-1-True.parquet", "x-2-False.parquet", "x-2-True.parquet"} {
		format := Arrow
		if strings.HasSuffix(name, ".parquet") {
			format = Parquet
		}
		if got := tableFile(t, format, filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	in, err := OpenFile(filepath.Join(dir, "odd.arrows"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadedAs(t, writer.NDJSON, 1, Options{Format: Arrow}, in); err == nil || !strings.Contains(err.Error(), "no whole day") {
		t.Error(err)
	}
}

// Lists of views, in any order and with values in common, are read as pyarrow has them as lists.
func TestListViews(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import sys, pyarrow as pa
dir = sys.argv[1]
def view(typ, n, valid, offsets, sizes, values):
    c = 'q' if typ.id == pa.large_list_view(pa.null()).id else 'i'
    import struct
    return pa.Array.from_buffers(typ, n, [pa.py_buffer(bytes([valid])), pa.py_buffer(struct.pack(f'{n}{c}', *offsets)), pa.py_buffer(struct.pack(f'{n}{c}', *sizes))], children=[values])
words = pa.array(['a', None, 'übel', 'dd', 'unused'])
items = view(pa.list_view(pa.string()), 5, 0b11011, [2, 0, 4, 0, 1], [2, 3, 1, 0, 3], words)
large = view(pa.large_list_view(pa.int64()), 5, 0b10111, [0, 0, 1, 1, 2], [3, 3, 2, 2, 0], pa.array([1, None, 3]))
deep = view(pa.list_view(items.type), 5, 0b11111, [3, 1, 0, 0, 2], [2, 1, 5, 0, 1], items)
point = pa.StructArray.from_arrays([items, large], ['i', 'l'])
deeper = view(pa.large_list_view(point.type), 5, 0b11110, [0, 3, 0, 1, 1], [0, 2, 5, 0, 1], point)
within = pa.ListArray.from_arrays(pa.array([0, 1, 1, None, 3, 5]), large)
text = pa.array(['x', None, 'a text longer than twelve', '', 'y'], pa.string_view())
raw = pa.array([b'x', None, b'bytes longer than twelve', b'', b'y'], pa.binary_view())
texts = view(pa.list_view(pa.string_view()), 5, 0b01111, [2, 0, 4, 0, 1], [2, 3, 1, 0, 3], text)
t = pa.table({'n': [1, 2, 3, 4, 5], 'items': items, 'large': large, 'deep': deep, 'point': point, 'deeper': deeper, 'within': within, 'text': text, 'raw': raw, 'texts': texts})
t.validate(full=True)
lists = pa.table({c: pa.array(t[c].to_pylist(), {'n': pa.int64(), 'items': pa.list_(pa.string()), 'large': pa.list_(pa.int64()), 'deep': pa.list_(pa.list_(pa.string())),
    'point': pa.struct([('i', pa.list_(pa.string())), ('l', pa.list_(pa.int64()))]), 'deeper': pa.list_(pa.struct([('i', pa.list_(pa.string())), ('l', pa.list_(pa.int64()))])),
    'within': pa.list_(pa.list_(pa.int64())), 'text': pa.string(), 'raw': pa.binary(), 'texts': pa.list_(pa.string())}[c]) for c in t.column_names})
with pa.ipc.new_stream(f'{dir}/views.arrows', lists.schema) as w: w.write_table(lists)
for codec in [None, 'lz4', 'zstd']:
    with pa.ipc.new_file(f'{dir}/views-{codec}.arrow', t.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w: w.write_table(t)
with pa.ipc.new_file(f'{dir}/views-cut.arrow', t.schema) as w:
    for i in range(5): w.write_table(t.slice(i, 1))
with pa.ipc.new_stream(f'{dir}/views-stream.arrow', t.schema) as w: w.write_table(t)
`, dir)
	sameTables(t, dir, Arrow, ".arrow")
}
